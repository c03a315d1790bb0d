"""The way to the controllers, for whoever has a question: its outcome and who can be asked."""

from collections.abc import Callable
from typing import Protocol

from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import RemotingError

Outcome = RemotingCommand | RemotingError


class Asker(Protocol):
    """Passes questions on to the controllers."""

    def ask(
        self,
        command: RemotingCommand,
        done: Callable[[Outcome], None],
        timeout_s: float,
        held_s: float = 0.0,
    ) -> None:
        """``done`` comes once, maybe at once.

        Args:
            command: the question.
            done: takes the outcome.
            timeout_s: until somebody must have answered.
            held_s: besides, how long a read asks the controller to keep its answer back.
        """
