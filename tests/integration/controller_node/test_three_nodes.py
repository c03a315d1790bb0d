"""Three nodes on loopback: they elect, order, read, and go on when one of them is gone."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from gantry_controller.node import NodeOptions, RaftNode
from gantry_controller.raft.errors import NotLeader
from gantry_protocol.errors import CorruptionError
from gantry_protocol.types import Index, NodeId, Term

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


class Journal:
    """A state machine that remembers everything in order."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []

    def apply(self, index: Index, term: Term, command: bytes) -> int:
        self.commands.append(command)
        return len(self.commands)


class Quorum:
    """Nodes that can be stopped and started again on their directories."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.peers = {NodeId(n): f"127.0.0.1:{free_port()}" for n in (1, 2, 3)}
        self.nodes: dict[NodeId, RaftNode] = {}
        self.journals: dict[NodeId, Journal] = {}

    async def start(self, node_id: NodeId, uid: str = "q") -> RaftNode:
        options = NodeOptions(
            cluster_uid=uid,
            node_id=node_id,
            peers=self.peers,
            directory=self.root / str(node_id),
            port=int(self.peers[node_id].rpartition(":")[2]),
        )
        journal = Journal()
        node = RaftNode(options, journal)
        await node.start()
        self.nodes[node_id], self.journals[node_id] = node, journal
        return node

    async def stop(self, node_id: NodeId) -> None:
        await self.nodes.pop(node_id).stop()

    async def leader(self) -> RaftNode:
        def serving() -> RaftNode | None:
            return next((n for n in self.nodes.values() if n.is_serving_leader), None)

        return await until(serving)

    async def write(self, command: bytes) -> Any:
        """Like a client: ask whoever leads until it is answered."""
        while True:
            outcome = await call((await self.leader()).propose, command)
            if not isinstance(outcome, Exception):
                return outcome


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def until(condition: Callable[[], Any]) -> Any:
    async with asyncio.timeout(20):
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
    async with asyncio.timeout(20):
        return await answered


@asynccontextmanager
async def running(root: Path) -> AsyncIterator[Quorum]:
    quorum = Quorum(root)
    try:
        for node_id in quorum.peers:
            await quorum.start(node_id)
        yield quorum
    finally:
        for node_id in list(quorum.nodes):
            await quorum.stop(node_id)


async def test_orders_commands_on_every_node(tmp_path: Path) -> None:
    async with running(tmp_path) as quorum:
        leader = await quorum.leader()
        commands = [b"%d" % n for n in range(500)]
        results = await asyncio.gather(*(call(leader.propose, command) for command in commands))
        assert results == list(range(1, 501))
        await until(lambda: all(j.commands == commands for j in quorum.journals.values()))
        assert leader.wal_batches < 500, "many commands share a sync"


async def test_reads_see_what_was_written_and_followers_refuse(tmp_path: Path) -> None:
    async with running(tmp_path) as quorum:
        leader = await quorum.leader()
        assert await call(leader.propose, b"x") == 1
        assert await call(leader.read) is None
        assert quorum.journals[leader.node_id].commands == [b"x"]
        follower = next(n for n in quorum.nodes.values() if n is not leader)
        refusal = await call(follower.read)
        assert isinstance(refusal, NotLeader)
        assert refusal.leader == leader.node_id
        assert isinstance(await call(follower.propose, b"y"), NotLeader)


async def test_goes_on_without_its_leader_which_comes_back(tmp_path: Path) -> None:
    async with running(tmp_path) as quorum:
        first = await quorum.leader()
        await quorum.write(b"before")
        await quorum.stop(first.node_id)
        await quorum.write(b"between")
        assert (await quorum.leader()).node_id != first.node_id
        await quorum.start(first.node_id)
        await quorum.write(b"after")
        expected = [b"before", b"between", b"after"]
        await until(lambda: all(j.commands == expected for j in quorum.journals.values()))


async def test_two_lost_nodes_mean_no_answer_and_no_loss(tmp_path: Path) -> None:
    async with running(tmp_path) as quorum:
        await quorum.write(b"kept")
        survivor = await quorum.leader()
        others = [n for n in quorum.nodes if n != survivor.node_id]
        for node_id in others:
            await quorum.stop(node_id)
        await until(lambda: not survivor.is_serving_leader)  # check-quorum
        assert isinstance(await call(survivor.propose, b"refused"), NotLeader)
        for node_id in others:
            await quorum.start(node_id)
        await quorum.write(b"more")
        await until(lambda: all(j.commands == [b"kept", b"more"] for j in quorum.journals.values()))


async def test_a_node_of_another_quorum_is_turned_away(tmp_path: Path) -> None:
    async with running(tmp_path) as quorum:
        leader = await quorum.leader()
        follower = next(n for n in quorum.nodes if n != leader.node_id)
        await quorum.stop(follower)
        stranger = await quorum.start(follower, uid="another")
        await until(lambda: stranger.links.stats.refused and leader.links.stats.refused)
        assert stranger.leader_id is None


async def test_a_damaged_log_stops_the_start_and_stays_as_it_is(tmp_path: Path) -> None:
    async with running(tmp_path) as quorum:
        for n in range(20):
            await quorum.write(b"%d" % n)
        await quorum.stop(NodeId(1))
        [segment] = sorted((tmp_path / "1").glob("wal-*"))
        data = bytearray(segment.read_bytes())
        data[data.index(b"GANTRWAL") + 200] ^= 0x10
        segment.write_bytes(data)
        with pytest.raises(CorruptionError, match=segment.name):
            await quorum.start(NodeId(1))
        assert segment.read_bytes() == bytes(data)
