"""Members come and go while clients write, on loopback with real links and disks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_controller.node import RaftNode
from gantry_controller.raft.core import RaftCore
from gantry_controller.raft.errors import ChangeRefused
from gantry_controller.raft.members import Membership
from gantry_lab.bench.ports import free_ports
from gantry_protocol.types import Index, NodeId
from support.patience import PATIENCE_S
from support.raft_quorum import Quorum, call, running, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

N1, N2, N3, N4 = map(NodeId, range(1, 5))


async def changed(quorum: Quorum, begin: Callable[[RaftCore], Index]) -> Membership:
    """Like an administrator: ask whoever leads until it is done."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            outcome = await call((await quorum.leader()).change, begin)
            if isinstance(outcome, Membership):
                return outcome
            assert isinstance(outcome, ChangeRefused)  # of the learner that is not ready yet
            await asyncio.sleep(0.01)


async def taken_in(quorum: Quorum, node: NodeId) -> RaftNode:
    """Start ``node`` with an empty directory, and make it a voter."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    joiner = await quorum.start(node, peers={node: address}, join=True)
    await changed(quorum, lambda core: core.add_learner(node, address))
    await changed(quorum, lambda core: core.promote(node))
    return joiner


async def test_a_fourth_joins_and_the_leader_is_removed(tmp_path: Path) -> None:
    async with running(tmp_path) as quorum:
        written = [b"before"]
        await quorum.write(written[0])
        joiner = await taken_in(quorum, N4)
        leader = (await quorum.leader()).node_id
        members = await changed(quorum, lambda core: core.remove(leader))
        assert members.voters == tuple(node for node in (N1, N2, N3, N4) if node != leader)
        await until(lambda: quorum.nodes[leader].leader_id is None)
        written.append(b"after")
        await quorum.write(written[1])
        removed = quorum.nodes[leader]
        assert removed.members == members, "it knows that it is out"
        await quorum.stop(leader)
        await quorum.agree_on(written)
        # Everything a restart needs is in the log: who takes part, and where.
        options = joiner._options
        await quorum.stop(N4)
        await quorum.start(N4, peers=options.peers, join=True)
        written.append(b"again")
        await quorum.write(written[2])
        await quorum.agree_on(written)


async def test_leadership_moves_while_proposals_wait(tmp_path: Path) -> None:
    async with running(tmp_path) as quorum:
        await quorum.write(b"a")
        leader = await quorum.leader()
        await until(lambda: all(peer.match_index for peer in leader.peer_status()))
        target = next(node for node in quorum.nodes if node != leader.node_id)
        moved = asyncio.create_task(call(leader.transfer, target))
        await asyncio.sleep(0)
        assert isinstance(await call(leader.transfer, target), ChangeRefused)
        assert await moved == target
        assert (await quorum.leader()).node_id == target
        await quorum.write(b"b")
        await quorum.agree_on([b"a", b"b"])


async def test_leadership_goes_to_the_preferred_member(tmp_path: Path) -> None:
    quorum = Quorum(tmp_path)  # a shorter time-out would not be kept on a busy machine
    try:
        for node in quorum.peers:
            await quorum.start(node, priority=5 if node == N2 else 0)
        await until(lambda: quorum.nodes[N2].is_serving_leader)
    finally:
        for node in list(quorum.nodes):
            await quorum.stop(node)
