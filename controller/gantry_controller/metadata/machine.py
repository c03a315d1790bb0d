"""The state machine under the Raft log.

It decodes, applies and tells its listeners which group changed. Listeners (notifications, watchers,
the election supervisor) are called in the order of the log, on every node and at every replay; they
must only take note, and decide for themselves whether this node has anything to say.
"""

from collections.abc import Callable, Iterator
from typing import cast

from gantry_protocol.types import Index, Term

from gantry_controller.metadata import snapshot
from gantry_controller.metadata.apply import apply
from gantry_controller.metadata.events import Event, decode_event
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import BrokerGroup, MetadataState

ChangeListener = Callable[[Event, Result], None]
"""Called with each event that changed something and its result."""

RestoreListener = Callable[[], None]
"""Called when the whole state was replaced: everything may be different."""


class MetadataStateMachine:
    """Implements the node's ``StateMachine`` over a ``MetadataState``."""

    def __init__(self) -> None:
        self.state = MetadataState()
        self._listeners: list[ChangeListener] = []
        self._restore_listeners: list[RestoreListener] = []

    def add_listener(self, listener: ChangeListener) -> None:
        """Has ``listener`` told of every change from here on."""
        self._listeners.append(listener)

    def add_restore_listener(self, listener: RestoreListener) -> None:
        """Has ``listener`` told when a snapshot has replaced the state."""
        self._restore_listeners.append(listener)

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

    def snapshot(self) -> Iterator[bytes]:
        """The state as of now; each step encodes one slice, and later events change none."""
        return snapshot.take(self.state)

    def decode(self, data: bytes) -> object:
        """One slice, decoded; changes nothing.

        Raises:
            DataDirError: it was written by a newer program.
        """
        return snapshot.decode(data)

    def restore(self, parts: list[object]) -> None:
        """Replaces the state by the decoded slices of one snapshot, in one step."""
        snapshot.restore(self.state, cast(list[snapshot.Part], parts))
        for listener in self._restore_listeners:
            listener()

    def group(self, cluster: str | None, name: str) -> BrokerGroup | None:
        """The living group as of the last applied event."""
        return self.state.find(cluster, name)
