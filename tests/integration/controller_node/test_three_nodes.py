"""Three nodes on loopback: they elect, order, read, and go on when one of them is gone."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
from typing import TYPE_CHECKING

import pytest
from gantry_controller.node import NodeOptions, ProposalDropped, RaftNode
from gantry_controller.node.disk import DiskError
from gantry_controller.raft.errors import NotLeader, Overloaded
from gantry_lab.bench.ports import free_ports
from gantry_protocol.errors import CorruptionError, PortInUseError
from gantry_protocol.types import Index, NodeId, Term
from support.raft_quorum import Journal, Quorum, call, running, until

if TYPE_CHECKING:
    from pathlib import Path


async def test_orders_commands_on_every_node(tmp_path: Path) -> None:
    async with running(tmp_path) as quorum:
        leader = await quorum.leader()
        commands = [b"%d" % n for n in range(500)]
        results = await asyncio.gather(*(call(leader.propose, command) for command in commands))
        assert results == list(range(1, 501))
        await quorum.agree_on(commands)
        assert leader.wal_batches < 500, "many commands share a sync"
        assert leader.stats.passes < 5_000, "many commands share a pass"


async def test_one_node_is_a_quorum_and_remembers(tmp_path: Path) -> None:
    for life in range(3):
        async with running(tmp_path, 1) as quorum:
            (journal,) = quorum.journals.values()
            await quorum.write(b"%d" % life)
            assert journal.commands == [b"%d" % n for n in range(life + 1)]
            assert await call((await quorum.leader()).read) is None
        shutil.copytree(quorum.directory(NodeId(1)), tmp_path / "copy", dirs_exist_ok=True)


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
        await quorum.agree_on([b"before", b"between", b"after"])


async def test_two_lost_nodes_mean_no_answer_and_no_loss(tmp_path: Path) -> None:
    async with running(tmp_path) as quorum:
        await quorum.write(b"kept")
        survivor = await quorum.leader()
        others = [n for n in quorum.nodes if n != survivor.node_id]
        for node_id in others:
            await quorum.stop(node_id)
        dropped = await call(survivor.propose, b"perhaps")  # answered when the leader steps down
        assert isinstance(dropped, ProposalDropped)
        await until(lambda: not survivor.is_serving_leader)  # check-quorum
        assert isinstance(await call(survivor.propose, b"refused"), NotLeader)
        assert isinstance(await call(survivor.read), NotLeader)
        for node_id in others:
            await quorum.start(node_id)
        await quorum.write(b"more")
        logs = [quorum.journals[node].commands for node in quorum.nodes]
        await until(lambda: logs[0] == logs[1] == logs[2])
        assert logs[0] in ([b"kept", b"more"], [b"kept", b"perhaps", b"more"])


async def test_a_lost_volume_is_filled_again(tmp_path: Path) -> None:
    async with running(tmp_path) as quorum:
        commands = [b"%d" % n for n in range(50)]
        for command in commands:
            await quorum.write(command)
        leader = await quorum.leader()
        victim = next(n for n in quorum.nodes if n != leader.node_id)
        await quorum.stop(victim)
        shutil.rmtree(quorum.directory(victim))
        await until(lambda: _counted(leader, victim) is None)
        node = await quorum.start(victim)
        assert not node.is_voter
        await until(lambda: _counted(leader, victim) or node.is_voter)
        assert node.is_voter, "nobody says that it counts before it does"
        await quorum.agree_on(commands)
        await until(lambda: all(peer.counted for peer in leader.peer_status()))


def _counted(leader: RaftNode, node: NodeId) -> bool | None:
    return next(peer.counted for peer in leader.peer_status() if peer.node_id == node)


async def test_a_new_quorum_waits_for_all_of_its_members(tmp_path: Path) -> None:
    quorum = Quorum(tmp_path)
    try:
        nodes = [await quorum.start(NodeId(n)) for n in (1, 2)]
        await asyncio.sleep(1)
        assert [node.is_voter for node in nodes] == [False, False]
        await quorum.start(NodeId(3))
        await quorum.write(b"founded")
    finally:
        for node_id in list(quorum.nodes):
            await quorum.stop(node_id)


async def test_a_node_of_another_quorum_is_turned_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as quorum:
        leader = await quorum.leader()
        follower = next(n for n in quorum.nodes if n != leader.node_id)
        await quorum.stop(follower)
        stranger = await quorum.start(follower, cluster_uid="another")
        await until(lambda: stranger.links.stats.refused and leader.links.stats.refused)
        assert stranger.leader_id is None
        facts = [getattr(record, "facts", {}) for record in caplog.records]
        reasons = {str(fact.get("reason")) for fact in facts}
        assert "it belongs to the cluster 'another', this node to 'q'" in reasons


async def test_a_damaged_log_stops_the_start_and_stays_as_it_is(tmp_path: Path) -> None:
    async with running(tmp_path) as quorum:
        written = [b"%d" % n for n in range(20)]
        for command in written:
            await quorum.write(command)
        await quorum.agree_on(written)  # or the damage would be in a tail that was never flushed
        await quorum.stop(NodeId(1))
        (segment,) = quorum.directory(NodeId(1)).glob("wal-*")
        data = bytearray(segment.read_bytes())
        data[200] ^= 0x10
        segment.write_bytes(data)
        with pytest.raises(CorruptionError, match=segment.name):
            await quorum.start(NodeId(1))
        assert segment.read_bytes() == bytes(data)


async def test_a_taken_port_is_named(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as quorum:
        port = int(quorum.peers[NodeId(1)].rpartition(":")[2])
        options = NodeOptions(
            cluster_uid="q",
            node_id=NodeId(1),
            peers=quorum.peers,
            directory=tmp_path / "other",
            port=port,
        )
        with pytest.raises(PortInUseError, match=f"Port {port} on 127.0.0.1 is in use"):
            await RaftNode(options, Journal()).start()


async def test_too_many_proposals_are_refused_at_once(tmp_path: Path) -> None:
    async with running(tmp_path, proposals_max=10) as quorum:
        leader = await quorum.leader()
        outcomes = await asyncio.gather(*(call(leader.propose, b"%d" % n) for n in range(50)))
        refused = [outcome for outcome in outcomes if isinstance(outcome, Overloaded)]
        assert len(refused) == 40
        assert leader.stats.proposals_refused == 40
        assert await call(leader.propose, b"later") == 11


async def test_reads_without_an_answer_are_bounded(tmp_path: Path) -> None:
    async with running(tmp_path, proposals_max=10) as quorum:
        leader = await quorum.leader()
        for _ in range(3):
            outcomes = await asyncio.gather(*(call(leader.read) for _ in range(15)))
            assert outcomes.count(None) == 10
            assert sum(isinstance(outcome, Overloaded) for outcome in outcomes) == 5


async def test_a_disk_that_fails_ends_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, 1) as quorum:
        leader = await quorum.leader()

        def fail(*_: object) -> int:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(os, "pwritev", fail)
        outcome = await call(leader.propose, b"lost")
        assert isinstance(outcome, ProposalDropped)
        (reason,) = quorum.fatal
        assert isinstance(reason, DiskError)
        assert re.search("Writing the log in .* failed .Input/output error.; what is", str(reason))
        assert not leader.is_serving_leader
        assert isinstance(await call(leader.propose, b"after"), NotLeader)
        assert isinstance(await call(leader.read), NotLeader)


async def test_a_state_machine_that_fails_ends_the_node(tmp_path: Path) -> None:
    class Broken(Journal):
        def apply(self, index: Index, term: Term, command: bytes) -> int:
            raise ValueError("cannot read this event")

    (port,) = free_ports(1)
    fatal: list[BaseException] = []
    options = NodeOptions(
        cluster_uid="q",
        node_id=NodeId(1),
        peers={NodeId(1): f"127.0.0.1:{port}"},
        directory=tmp_path,
        port=port,
    )
    node = RaftNode(options, Broken(), on_fatal=fatal.append)
    await node.start()
    try:
        await until(lambda: node.is_serving_leader)
        assert isinstance(await call(node.propose, b"x"), ProposalDropped)
        assert str(fatal[0]) == "cannot read this event"
    finally:
        await node.stop()
        await node.stop()


async def test_listeners_hear_of_roles_and_applied_entries(tmp_path: Path) -> None:
    quorum = Quorum(tmp_path, 1)
    node = await quorum.start(NodeId(1))
    served: list[bool] = []
    applied: list[int] = []
    node.add_role_listener(lambda: served.append(node.is_serving_leader))
    node.add_applied_listener(applied.append)
    await quorum.write(b"x")
    await quorum.stop(NodeId(1))
    assert served[-2:] == [True, False]
    assert applied == sorted(applied)
    assert applied[-1] == node.stats.entries_applied == 2


async def test_a_leader_serves_when_it_has_applied_what_was_committed_before_it(
    tmp_path: Path,
) -> None:
    """Until then its state may be older than what an earlier leader has acknowledged."""
    async with running(tmp_path, 1) as quorum:
        commands = [b"%d" % number for number in range(50)]
        for command in commands:
            await quorum.write(command)
        last = quorum.nodes[NodeId(1)].applied_index
        await quorum.stop(NodeId(1))
        node = await quorum.start(NodeId(1))
        begins: list[int] = []
        node.add_role_listener(
            lambda: begins.append(node.applied_index) if node.is_serving_leader else None
        )
        await quorum.leader()
        assert begins[0] > last, "the entry of its own term, and all before it"
        assert quorum.journals[NodeId(1)].commands == commands


async def test_callers_are_told_when_the_node_stops(tmp_path: Path) -> None:
    async with running(tmp_path) as quorum:
        leader = await quorum.leader()
        waiting = asyncio.gather(
            call(leader.propose, b"queued"), call(leader.read), return_exceptions=True
        )
        await asyncio.sleep(0)
        await quorum.stop(leader.node_id)
        proposed, read = await waiting
        assert isinstance(proposed, (NotLeader, ProposalDropped))
        assert isinstance(read, NotLeader)
