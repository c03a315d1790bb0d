"""The state machine under the Raft log.

It decodes, applies and tells its listeners which group changed. Listeners (notifications, watchers,
the election supervisor) are called in the order of the log, on every node and at every replay; they
must only take note, and decide for themselves whether this node has anything to say.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import cast

from gantry_protocol.types import Index, Term

from gantry_controller.metadata import snapshot
from gantry_controller.metadata.apply import apply
from gantry_controller.metadata.events import Event, decode_event
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import BrokerGroup, MetadataState
from gantry_controller.raft.digests import DigestPoint

ChangeListener = Callable[[Event, Result], None]
"""Called with each event that changed something and its result."""

ConsumerListener = Callable[[BrokerGroup, tuple[str, ...]], None]
"""Called with a broker group, and the consumer groups whose members there have changed."""

RestoreListener = Callable[[], None]
"""Called when the whole state was replaced: everything may be different."""

DIGEST_EVERY = 1024
"""Entries between two digests; a difference is known within a second of load."""

COUNT_EVERY = 64
"""Entries between two bits of a digest, so that no entry waits for one of very many changes."""


class MetadataStateMachine:
    """Implements the node's ``StateMachine`` over a ``MetadataState``.

    Args:
        digest_every: entries between two digests; equal on all nodes, or nothing is compared.

    Attributes:
        point: the newest digest of the state. Its index is a multiple of ``digest_every``; it is
            begun just before the first event beyond that index is applied, and counted bit by bit.
    """

    def __init__(self, digest_every: int = DIGEST_EVERY) -> None:
        self.state = MetadataState()
        self.point = DigestPoint()
        self._digest_every = digest_every
        self._digest_due = digest_every  # begun before the first event beyond it
        self._counting = Index(0)  # the index of the digest that is being counted
        self._listeners: list[ChangeListener] = []
        self._consumer_listeners: list[ConsumerListener] = []
        self._restore_listeners: list[RestoreListener] = []

    def add_listener(self, listener: ChangeListener) -> None:
        """Has ``listener`` told of every change from here on."""
        self._listeners.append(listener)

    def add_consumer_listener(self, listener: ConsumerListener) -> None:
        """Has ``listener`` told of every change of who consumes, from here on."""
        self._consumer_listeners.append(listener)

    def add_restore_listener(self, listener: RestoreListener) -> None:
        """Has ``listener`` told when a snapshot has replaced the state."""
        self._restore_listeners.append(listener)

    def apply(self, index: Index, term: Term, command: bytes) -> Result:
        """Applies one command of the log.

        Raises:
            UnknownEventError: this version cannot read the command; the node must stop.
        """
        event = decode_event(command)
        if index > self._digest_due:
            self._begin_point(index)
        elif self._counting and index % COUNT_EVERY == 0:
            self._count_point()
        result = apply(self.state, index, event)
        if result.changed:
            for listener in self._listeners:
                listener(event, result)
        if result.consumers_changed and result.group is not None:
            for consumers_changed in self._consumer_listeners:
                consumers_changed(result.group, result.consumers_changed)
        return result

    def _begin_point(self, index: Index) -> None:
        """The state as it is was that at the last multiple before ``index``, and all through."""
        while self._counting:
            self._count_point()
        last = (index - 1) // self._digest_every * self._digest_every
        self.state.begin_digest()
        self._counting = Index(last)
        self._digest_due = last + self._digest_every
        self._count_point()

    def _count_point(self) -> None:
        digest = self.state.count_digest()
        if digest is not None:
            self.point = DigestPoint(self._counting, digest)
            self._counting = Index(0)

    def snapshot(self) -> Iterator[bytes]:
        """The state as of now; each step encodes one slice, and later events change none."""
        return snapshot.take(self.state)

    def assemble(self, slices: Iterable[bytes]) -> object:
        """A state from the slices of one snapshot, in whatever thread; changes nothing.

        Raises:
            DataDirError: a newer program wrote it.
        """
        return snapshot.assemble(slices)

    def restore(self, assembled: object) -> None:
        """Replaces the state by an assembled one, in one step."""
        snapshot.restore(self.state, cast(MetadataState, assembled))
        # What the state was at the last multiple before it nobody knows any more.
        self._digest_due = (self.state.index // self._digest_every + 1) * self._digest_every
        self._counting = Index(0)
        for listener in self._restore_listeners:
            listener()

    def group(self, cluster: str | None, name: str) -> BrokerGroup | None:
        """The living group as of the last applied event."""
        return self.state.find(cluster, name)
