"""Connections over the simulated network: in order, without loss or repetition, or closed.

The kernel's network loses, repeats and reorders messages. Whatever speaks TCP in production speaks
through this in the simulator: sequence numbers, cumulative acknowledgements, retransmission, and a
reset when nothing gets through for a while. As with TCP, what was sent before a connection broke
may still arrive at the other side, much later.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sim.kernel.world import MS, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.kernel.machine import Host

RETRANSMIT_US = 60 * MS
RESET_US = 2 * SECOND
SEGMENTS_AT_ONCE = 32

ConnectionId = tuple[str, int, int]


@dataclass(frozen=True)
class Segment:
    """``kind`` is syn, data, fin, ack or rst."""

    connection: ConnectionId
    kind: str
    sequence: int = 0
    payload: object = None


@dataclass
class _Connection:
    id: ConnectionId
    peer: str
    link: int
    opened: bool
    next_out: int = 0
    next_in: int = 0
    unacked: deque[Segment] = field(default_factory=deque)
    waiting: dict[int, Segment] = field(default_factory=dict)
    progress_us: int = 0


class Tcp:
    """The connections of one process. Links are numbered as the real replication links are.

    Args:
        opened: called with the number of an outgoing link once it is connected.
        received: called with a link's number and a message.
        closed: called with a link's number when it ends for a reason that is not our own.
    """

    def __init__(
        self,
        host: Host,
        *,
        opened: Callable[[int], None],
        received: Callable[[int, object], None],
        closed: Callable[[int], None],
    ) -> None:
        self._host = host
        self._opened = opened
        self._received = received
        self._closed = closed
        self._by_link: dict[int, _Connection] = {}
        self._by_id: dict[ConnectionId, _Connection] = {}
        self._ended: set[ConnectionId] = set()  # membership tests only, never iterated
        self._made = 0
        self._accepted = 0
        host.after(RETRANSMIT_US, self._sweep)

    def connect(self, link: int, target: str) -> None:
        """Open the outgoing ``link``; ``opened`` or ``closed`` follows."""
        self._made += 1
        connection_id = (self._host.name, self._host.life, self._made)
        connection = self._add(connection_id, target, link, opened=False)
        self._push(connection, "syn", None)

    def send(self, link: int, message: object) -> None:
        """Send on a link; nothing happens if it has ended."""
        connection = self._by_link.get(link)
        if connection is not None:
            self._push(connection, "data", message)

    def close(self, link: int) -> None:
        """End a link; the other side sees it after what was sent before."""
        connection = self._by_link.get(link)
        if connection is not None:
            self._push(connection, "fin", None)
            self._remove(connection)

    def receive(self, source: str, message: object) -> bool:
        """Take a segment; False if the message is none."""
        if not isinstance(message, Segment):
            return False
        connection = self._by_id.get(message.connection)
        if message.kind == "rst":
            self._drop(connection)
        elif connection is not None:
            self._take(connection, message)
        elif message.kind == "syn" and message.connection not in self._ended:
            self._accepted += 1
            added = self._add(message.connection, source, self._accepted, opened=True)
            self._take(added, message)
        elif message.kind != "ack":
            self._host.send(source, Segment(message.connection, "rst"))
        return True

    def peer_closed(self, name: str) -> None:
        """A peer's process died and its kernel said so."""
        for connection in [one for one in self._by_id.values() if one.peer == name]:
            self._drop(connection)

    def _add(
        self, connection_id: ConnectionId, peer: str, link: int, *, opened: bool
    ) -> _Connection:
        connection = _Connection(connection_id, peer, link, opened, progress_us=self._host.clock_us)
        self._by_id[connection_id] = connection
        self._by_link[link] = connection
        return connection

    def _push(self, connection: _Connection, kind: str, payload: object) -> None:
        segment = Segment(connection.id, kind, connection.next_out, payload)
        if not connection.unacked:
            connection.progress_us = self._host.clock_us
        connection.next_out += 1
        connection.unacked.append(segment)
        self._host.send(connection.peer, segment)

    def _take(self, connection: _Connection, segment: Segment) -> None:
        if segment.kind == "ack":
            self._acked(connection, segment.sequence)
            return
        if segment.sequence >= connection.next_in:
            connection.waiting[segment.sequence] = segment
        ended = False
        while (ready := connection.waiting.pop(connection.next_in, None)) is not None:
            connection.next_in += 1
            if ready.kind == "fin":
                ended = True
            elif ready.kind == "data" and connection.link in self._by_link:
                self._received(connection.link, ready.payload)
        self._host.send(connection.peer, Segment(connection.id, "ack", connection.next_in))
        if ended:
            self._drop(self._by_id.get(connection.id))

    def _acked(self, connection: _Connection, sequence: int) -> None:
        while connection.unacked and connection.unacked[0].sequence < sequence:
            connection.unacked.popleft()
            connection.progress_us = self._host.clock_us
        if not connection.opened:
            connection.opened = True
            self._opened(connection.link)

    def _drop(self, connection: _Connection | None) -> None:
        if connection is not None:
            self._remove(connection)
            self._closed(connection.link)

    def _remove(self, connection: _Connection) -> None:
        self._by_id.pop(connection.id, None)
        self._by_link.pop(connection.link, None)
        self._ended.add(connection.id)

    def _sweep(self) -> None:
        self._host.after(RETRANSMIT_US, self._sweep)
        for connection in list(self._by_id.values()):
            if not connection.unacked:
                continue
            silent_us = self._host.clock_us - connection.progress_us
            if silent_us > RESET_US:
                self._drop(connection)
            elif silent_us > RETRANSMIT_US:
                for segment in list(connection.unacked)[:SEGMENTS_AT_ONCE]:
                    self._host.send(connection.peer, segment)
