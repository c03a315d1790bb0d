"""Callers who wait for leadership to move: answered when it has, or when the attempt is over.

The core bounds an attempt by one election time-out; the outcome is read off what every pass sees.
"""

from collections.abc import Callable

from gantry_protocol.types import NodeId, Term

from gantry_controller.raft.core import RaftCore
from gantry_controller.raft.errors import ChangeRefused
from gantry_controller.raft.state import Role

TransferDone = Callable[[NodeId | Exception], None]
"""Gets who leads next, or why leadership stays."""


class Handovers:
    """At most one is under way, since the core refuses a second."""

    def __init__(self) -> None:
        self._done: TransferDone | None = None
        self._target = NodeId(0)
        self._term = Term(0)

    def add(self, target: NodeId, term: Term, done: TransferDone) -> None:
        """``done`` waits for the leadership of ``term`` to move to ``target``."""
        assert self._done is None
        self._done, self._target, self._term = done, target, term

    def look(self, core: RaftCore) -> None:
        """Answer, if there is something to say by now."""
        if self._done is None:
            return
        if core.term > self._term and core.leader is not None:
            self._answer(core.leader)
        elif core.role is Role.LEADER and not core.handing_over:
            self._answer(
                ChangeRefused(
                    f"Node {self._target} did not take over within one election time-out; this "
                    "node leads on."
                )
            )

    def drop(self, error: Exception) -> None:
        """The node ends."""
        if self._done is not None:
            self._answer(error)

    def _answer(self, outcome: NodeId | Exception) -> None:
        done, self._done = self._done, None
        assert done is not None
        done(outcome)
