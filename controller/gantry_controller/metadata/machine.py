"""The state machine under the Raft log.

It decodes, applies and tells its listeners which group changed. Listeners (notifications, watchers,
the election supervisor) are called in the order of the log, on every node and at every replay; they
must only take note, and decide for themselves whether this node has anything to say.
"""

from collections.abc import Callable

from gantry_protocol.types import Index, Term

from gantry_controller.metadata.apply import apply
from gantry_controller.metadata.events import Event, decode_event
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import BrokerGroup, MetadataState

ChangeListener = Callable[[Event, Result], None]
"""Called with each event that changed something and its result."""


class MetadataStateMachine:
    """Implements the node's ``StateMachine`` over a ``MetadataState``."""

    def __init__(self) -> None:
        self.state = MetadataState()
        self._listeners: list[ChangeListener] = []

    def add_listener(self, listener: ChangeListener) -> None:
        """Has ``listener`` told of every change from here on."""
        self._listeners.append(listener)

    def apply(self, index: Index, term: Term, command: bytes) -> Result:
        """Applies one command of the log.

        Raises:
            UnknownEventError: this version cannot read the command; the node must stop.
        """
        event = decode_event(command)
        result = apply(self.state, index, event)
        if result.changed:
            for listener in self._listeners:
                listener(event, result)
        return result

    def group(self, cluster: str | None, name: str) -> BrokerGroup | None:
        """The living group as of the last applied event."""
        return self.state.find(cluster, name)
