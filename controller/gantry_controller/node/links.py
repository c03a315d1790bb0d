"""All connections of one node to its peers: messages out, messages in.

Each node dials every other and sends on the connection it dialled; what a peer sends arrives on the
connection the peer dialled. A message that finds no connection is dropped: Raft repeats what
matters, so nothing is queued here beyond the bound of a socket's buffer.

Whom to dial follows the membership (``follow``). A peer that has come here and is no member is
dialled as well, where it says it is, for as long as it stays connected, so that it can be answered:
the leader that took it in, or took this node in, may be ahead, and a leader that removes itself
needs the answers of those who know it already. The listener bounds how many there can be.
"""

import asyncio
from collections.abc import Callable, Mapping

import msgspec
from gantry_protocol.process.tasks import keep
from gantry_protocol.types import NodeId

from gantry_controller.node.contacts import raft_address
from gantry_controller.node.dialler import Dialler
from gantry_controller.node.framing import VERSION, Hello, frame
from gantry_controller.node.listener import PeerListener, ReceiveSnapshot
from gantry_controller.node.options import NodeOptions
from gantry_controller.raft.codec import decode, encode
from gantry_controller.raft.errors import MessageError
from gantry_controller.raft.messages import Message


class LinkStats(msgspec.Struct, frozen=True):
    """Counters of one node's links.

    Attributes:
        sent, received: messages; some of those sent may have been ``dropped``.
        connects: connections made to peers.
        refused: hellos, either way, and connections beyond the listener's bound.
        incoming: connections that are open now, strangers included.
    """

    sent: int
    received: int
    dropped: int
    connects: int
    refused: int
    incoming: int


class _Link(msgspec.Struct):
    """One peer that is dialled, and where."""

    address: str
    dialler: Dialler
    task: asyncio.Task[None]


class PeerLinks:
    """Sends and receives Raft messages.

    Args:
        options: who we are and where we are reached.
        receive: gets the messages of one read of one peer; raises ``MessageError`` for nonsense.
        receive_snapshot: the same for the connection that carries a snapshot.
        process_gone: the peer's process is known to have ended (``dialler``).
        changed: a peer's connection to this node has begun, or its last one has ended.
    """

    def __init__(
        self,
        options: NodeOptions,
        *,
        receive: Callable[[NodeId, list[Message]], None],
        receive_snapshot: ReceiveSnapshot,
        process_gone: Callable[[NodeId], None],
        changed: Callable[[NodeId], None],
    ) -> None:
        self._sent = 0
        self._stopped = False
        self._received = 0
        self._options = options
        self._receive = receive
        self._process_gone = process_gone
        self._changed = changed
        self._links: dict[NodeId, _Link] = {}
        self._members: dict[NodeId, str] = {}  # addresses of those to dial
        self._guests: dict[NodeId, str] = {}  # and those of all who are connected, as they say
        self._dropped = self._connects = self._refused = 0  # of links that are no more
        self._closing: set[asyncio.Task[None]] = set()
        self._listener = PeerListener(
            options.node_id,
            options.cluster_uid,
            self._on_frames,
            receive_snapshot,
            greeted=self._on_greeted,
            left=self._on_left,
            key=options.key,
        )

    @property
    def stats(self) -> LinkStats:
        """Counters since the start."""
        diallers = [link.dialler for link in self._links.values()]
        return LinkStats(
            sent=self._sent,
            received=self._received,
            dropped=self._dropped + sum(dialler.dropped for dialler in diallers),
            connects=self._connects + sum(dialler.connects for dialler in diallers),
            refused=self._refused
            + self._listener.refused
            + self._listener.gate.refused
            + sum(dialler.refused for dialler in diallers),
            incoming=self._listener.connections,
        )

    @property
    def connected(self) -> list[NodeId]:
        """Peers that can be sent to now."""
        return [node for node, link in self._links.items() if link.dialler.connected]

    def address_of(self, node: NodeId) -> str | None:
        """The address at which ``node`` is dialled; None if it is not."""
        link = self._links.get(node)
        return None if link is None else link.dialler.address

    async def start(self) -> int:
        """Listen; returns the port.

        Raises:
            PortInUseError: somebody listens there.
        """
        return await self._listener.start(self._options.bind, self._options.port)

    async def stop(self) -> None:
        """Close everything."""
        self._stopped = True
        for node in list(self._links):
            self._hang_up(node)
        await asyncio.gather(*self._closing, return_exceptions=True)
        await self._listener.stop()

    def follow(self, nodes: list[NodeId], known: Mapping[NodeId, str]) -> None:
        """Dial ``nodes`` at their ``known`` contacts; without one, where they were until now."""
        addresses = {node: raft_address(known.get(node, "")) for node in nodes}
        before = self._members
        self._members = {
            node: address or before[node]
            for node, address in addresses.items()
            if address or node in before
        }
        self._settle()

    def send(self, messages: list[Message]) -> None:
        """Send each message, those to one peer in one write."""
        by_target: dict[NodeId, list[bytes]] = {}
        for message in messages:
            by_target.setdefault(message.target, []).append(frame(encode(message)))
        for target, frames in by_target.items():
            link = self._links.get(target)
            if link is None:
                self._dropped += len(frames)
            else:
                link.dialler.send(frames)
        self._sent += len(messages)

    def _settle(self) -> None:
        """Dial members and guests, hang up on all others."""
        if self._stopped:
            return
        wanted = {**self._guests, **self._members}
        for node, link in list(self._links.items()):
            if wanted.get(node) != link.address:
                self._hang_up(node)
        for node, address in sorted(wanted.items()):
            if node not in self._links:
                self._dial(node, address)

    def _dial(self, node: NodeId, address: str) -> None:
        options = self._options
        own = options.peers[options.node_id]
        hello = Hello(VERSION, options.node_id, node, options.cluster_uid, own)
        dialler = Dialler(node, address, hello, process_gone=self._process_gone, key=options.key)
        task = keep(dialler.run(), f"peer-{node}")
        self._links[node] = _Link(address, dialler, task)

    def _hang_up(self, node: NodeId) -> None:
        link = self._links.pop(node)
        link.task.cancel()
        self._closing.add(link.task)
        link.task.add_done_callback(self._closing.discard)
        self._dropped += link.dialler.dropped
        self._connects += link.dialler.connects
        self._refused += link.dialler.refused

    def _on_greeted(self, node: NodeId, contact: str) -> None:
        self._changed(node)
        address = raft_address(contact)
        if address is not None:
            self._guests[node] = address
            self._settle()

    def _on_left(self, node: NodeId) -> None:
        self._changed(node)
        self._guests.pop(node, None)
        self._settle()

    def _on_frames(self, peer: NodeId, bodies: list[bytes]) -> None:
        messages = [decode(body) for body in bodies]
        for message in messages:
            if message.source != peer:
                raise MessageError(f"node {peer} sent a message in the name of {message.source}")
        self._received += len(messages)
        self._receive(peer, messages)
