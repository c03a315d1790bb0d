"""All connections of one node to its peers: messages out, messages in.

Each node dials every other and sends on the connection it dialled; what a peer sends arrives on the
connection the peer dialled. A message that finds no connection is dropped: Raft repeats what
matters, so nothing is queued here beyond the bound of a socket's buffer.
"""

import asyncio
from collections.abc import Callable

import msgspec
from gantry_protocol.types import NodeId

from gantry_controller.node.dialler import Dialler
from gantry_controller.node.framing import VERSION, Hello, frame
from gantry_controller.node.listener import PeerListener
from gantry_controller.node.options import NodeOptions
from gantry_controller.raft.codec import decode, encode
from gantry_controller.raft.errors import MessageError
from gantry_controller.raft.messages import Message


class LinkStats(msgspec.Struct, frozen=True):
    """Counters of one node's links; ``refused`` counts hellos, either way."""

    sent: int
    received: int
    dropped: int
    connects: int
    refused: int


class PeerLinks:
    """Sends and receives Raft messages.

    Args:
        options: who we are and where the peers are.
        receive: gets the messages of one read of one peer; raises ``MessageError`` for nonsense.
        process_gone: the peer's process is known to have ended (``link``).
    """

    def __init__(
        self,
        options: NodeOptions,
        *,
        receive: Callable[[NodeId, list[Message]], None],
        process_gone: Callable[[NodeId], None],
    ) -> None:
        self._sent = 0
        self._received = 0
        self._options = options
        self._receive = receive
        self._process_gone = process_gone
        self._links: dict[NodeId, Dialler] = {}
        self._tasks: list[asyncio.Task[None]] = []
        others = {node for node in options.peers if node != options.node_id}
        self._listener = PeerListener(options.node_id, options.cluster_uid, others, self._on_frames)

    @property
    def stats(self) -> LinkStats:
        """Counters since the start."""
        diallers = self._links.values()
        return LinkStats(
            sent=self._sent,
            received=self._received,
            dropped=sum(link.dropped for link in diallers),
            connects=sum(link.connects for link in diallers),
            refused=self._listener.refused + sum(link.refused for link in diallers),
        )

    @property
    def connected(self) -> list[NodeId]:
        """Peers that can be sent to now."""
        return [node for node, link in self._links.items() if link.connected]

    async def start(self) -> int:
        """Listen and begin to dial; returns the port.

        Raises:
            PortInUseError: somebody listens there.
        """
        port = await self._listener.start(self._options.bind, self._options.port)
        for node, address in sorted(self._options.peers.items()):
            if node != self._options.node_id:
                self._dial(node, address)
        return port

    async def stop(self) -> None:
        """Close everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._listener.stop()

    def send(self, messages: list[Message]) -> None:
        """Send each message, those to one peer in one write."""
        by_target: dict[NodeId, list[bytes]] = {}
        for message in messages:
            by_target.setdefault(message.target, []).append(frame(encode(message)))
        for target, frames in by_target.items():
            self._links[target].send(frames)
        self._sent += len(messages)

    def _dial(self, node: NodeId, address: str) -> None:
        hello = Hello(VERSION, self._options.node_id, node, self._options.cluster_uid)
        link = Dialler(node, address, hello, process_gone=self._process_gone)
        self._links[node] = link
        self._tasks.append(asyncio.create_task(link.run(), name=f"peer-{node}"))

    def _on_frames(self, peer: NodeId, bodies: list[bytes]) -> None:
        messages = [decode(body) for body in bodies]
        for message in messages:
            if message.source != peer:
                raise MessageError(f"node {peer} sent a message in the name of {message.source}")
        self._received += len(messages)
        self._receive(peer, messages)
