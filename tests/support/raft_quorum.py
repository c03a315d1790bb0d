"""Raft nodes in one process, on loopback: started, stopped, and asked like a client would."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from gantry_controller.node import NodeOptions, RaftNode
from gantry_lab.bench.ports import free_ports
from gantry_protocol.quorum_key import NO_KEY, KeyFile
from gantry_protocol.types import Index, NodeId, Term
from support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator
    from pathlib import Path


class Journal:
    """A state machine that remembers everything in order; the result is the place in it."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []

    def apply(self, index: Index, term: Term, command: bytes) -> int:
        self.commands.append(command)
        return len(self.commands)

    def snapshot(self) -> Iterator[bytes]:
        return iter(list(self.commands))

    def assemble(self, slices: Iterable[bytes]) -> object:
        return list(slices)

    def restore(self, assembled: object) -> None:
        assert isinstance(assembled, list)
        self.commands = assembled


class Quorum:
    """Nodes that can be stopped and started again on their directories."""

    def __init__(
        self,
        root: Path,
        members: int = 3,
        keys: dict[NodeId, KeyFile] | None = None,
        **options: Any,
    ) -> None:
        self.root = root
        self.keys = keys or {}
        self.options = options
        ports = free_ports(members)
        self.peers = {NodeId(n + 1): f"127.0.0.1:{port}" for n, port in enumerate(ports)}
        self.nodes: dict[NodeId, RaftNode] = {}
        self.journals: dict[NodeId, Journal] = {}
        self.fatal: list[BaseException] = []

    def directory(self, node_id: NodeId) -> Path:
        return self.root / str(node_id)

    async def start(self, node_id: NodeId, **options: Any) -> RaftNode:
        settings: dict[str, Any] = {
            "cluster_uid": "q",
            "node_id": node_id,
            "peers": self.peers,
            "directory": self.directory(node_id),
            "key": self.keys.get(node_id, NO_KEY),
        }
        settings |= {**self.options, **options}
        peers: dict[NodeId, str] = settings["peers"]
        settings["port"] = int(peers[node_id].rpartition(":")[2])
        journal = Journal()
        node = RaftNode(
            NodeOptions(**settings),
            journal,
            on_fatal=self.fatal.append,
        )
        await node.start()
        self.nodes[node_id], self.journals[node_id] = node, journal
        return node

    async def stop(self, node_id: NodeId) -> None:
        await self.nodes.pop(node_id).stop()

    async def leader(self) -> RaftNode:
        found: RaftNode = await until(
            lambda: next((n for n in self.nodes.values() if n.is_serving_leader), None)
        )
        return found

    async def write(self, command: bytes) -> Any:
        """Like a client: ask whoever leads until it is answered."""
        while True:
            outcome = await call((await self.leader()).propose, command)
            if not isinstance(outcome, Exception):
                return outcome

    async def agree_on(self, commands: list[bytes]) -> None:
        """Wait until every node has applied exactly ``commands``."""
        await until(lambda: all(self.journals[node].commands == commands for node in self.nodes))


@asynccontextmanager
async def running(root: Path, members: int = 3, **options: Any) -> AsyncIterator[Quorum]:
    """A quorum all of whose founders may vote; it is stopped in the end."""
    quorum = Quorum(root, members, **options)
    try:
        for node_id in quorum.peers:
            await quorum.start(node_id)
        # Without them, whoever is stopped leaves too few (``raft.admission``).
        await until(lambda: all(node.is_voter for node in quorum.nodes.values()))
        yield quorum
    finally:
        for node_id in list(quorum.nodes):
            await quorum.stop(node_id)


async def until(condition: Callable[[], Any]) -> Any:
    """Wait for something true."""
    async with asyncio.timeout(PATIENCE_S):
        while not (found := condition()):
            await asyncio.sleep(0.01)
        return found


async def call(method: Callable[..., None], *arguments: object) -> Any:
    """Await a callback."""
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(outcome: object) -> None:
        if not answered.done():
            answered.set_result(outcome)

    method(*arguments, done)
    async with asyncio.timeout(PATIENCE_S):
        return await answered
