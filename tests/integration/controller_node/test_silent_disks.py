"""Real nodes on loopback whose disks fall silent: what may leave them, and who leads then."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from gantry_controller.node.pending import ProposalDropped
from gantry_controller.raft.errors import NotLeader
from gantry_controller.raft.state import Role
from gantry_protocol.command import request
from gantry_protocol.errors import RemotingError
from gantry_protocol.remoting.client import RemotingClient
from support.controller_processes import ControllerProcesses
from support.patience import PATIENCE_S
from support.raft_quorum import Quorum, running, until
from support.silent_disks import SilentDisks, silent_disks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from gantry_controller.node import RaftNode

PATIENT = {"election_timeout_ms": 4_000}  # so that no disk of the test counts as hanging
HASTY = {"election_timeout_ms": 200}


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentDisks]:
    with silent_disks(monkeypatch) as disks:
        yield disks


@asynccontextmanager
async def three(root: Path, disks: SilentDisks, **options: Any) -> AsyncIterator[Quorum]:
    """Three nodes; a node stops only when its disk answers, so all do in the end."""
    async with running(root, **options) as quorum:
        try:
            yield quorum
        finally:
            disks.answer_all()


def others(quorum: Quorum, leader: RaftNode) -> list[RaftNode]:
    return [node for node in quorum.nodes.values() if node is not leader]


def proposed(node: RaftNode, command: bytes) -> list[Any]:
    """Where the outcome will be."""
    outcomes: list[Any] = []
    node.propose(command, outcomes.append)
    return outcomes


async def test_acknowledgements_wait_for_the_disk(tmp_path: Path, disks: SilentDisks) -> None:
    async with three(tmp_path, disks, **PATIENT) as quorum:
        leader = await quorum.leader()
        await quorum.write(b"before")
        await quorum.agree_on([b"before"])
        for node in others(quorum, leader):
            disks.silence(quorum.directory(node.node_id))
        outcomes = proposed(leader, b"waits")
        await until(lambda: disks.waiting == 2)
        last = leader.commit_index
        follower = others(quorum, leader)[0]
        await until(lambda: len(follower.messages_held) > 0 or outcomes)
        for _ in range(100):  # they hold it in memory, and have many turns to say so
            await asyncio.sleep(0)
        assert (leader.commit_index, outcomes) == (last, [])
        disks.answer(quorum.directory(others(quorum, leader)[0].node_id))
        await until(lambda: outcomes == [2])
        disks.answer_all()
        await quorum.agree_on([b"before", b"waits"])


async def test_votes_wait_for_the_disk(tmp_path: Path, disks: SilentDisks) -> None:
    """Two are left of three. While one's disk is silent, neither can lead, whoever stands."""
    async with three(tmp_path, disks, **HASTY) as quorum:
        leader = await quorum.leader()
        await quorum.write(b"before")
        await quorum.agree_on([b"before"])
        standing, voting = others(quorum, leader)
        disks.silence(quorum.directory(voting.node_id))
        led: list[Role] = []
        for node in (standing, voting):
            node.add_role_listener(lambda node=node: led.append(node.role))
        await quorum.stop(leader.node_id)
        await until(lambda: disks.waiting == 1)  # its vote, or its candidacy
        await until(lambda: voting.disk_hangs)
        assert Role.LEADER not in led
        disks.answer_all()
        assert await quorum.write(b"after") == 2


async def test_a_leader_whose_disk_is_silent_lets_another_lead(
    tmp_path: Path, disks: SilentDisks
) -> None:
    async with three(tmp_path, disks, **HASTY) as quorum:
        leader = await quorum.leader()
        await quorum.write(b"before")
        disks.silence(quorum.directory(leader.node_id))
        outcomes = proposed(leader, b"in doubt")
        await until(lambda: outcomes)
        assert isinstance(outcomes[0], ProposalDropped)
        assert leader.stats.gave_way == 1
        await until(lambda: any(node.is_serving_leader for node in others(quorum, leader)))
        for node in (1, 2, 3):
            assert await quorum.write(b"%d" % node) == node + 2
        assert leader.disk_hangs
        assert leader.role is Role.FOLLOWER
        assert outcomes[1:] == []
        disks.answer_all()
        await quorum.agree_on([b"before", b"in doubt", b"1", b"2", b"3"])
        assert not leader.disk_hangs


async def test_a_leader_stays_while_no_quorum_has_more_than_its_disk(
    tmp_path: Path, disks: SilentDisks
) -> None:
    """All three on one slow volume: nobody else could do what this leader cannot."""
    async with three(tmp_path, disks, **HASTY) as quorum:
        leader = await quorum.leader()
        await quorum.write(b"before")
        await quorum.agree_on([b"before"])
        term = leader.term
        for node in quorum.nodes:
            disks.silence(quorum.directory(node))
        outcomes = proposed(leader, b"slow")
        await until(lambda: all(node.disk_hangs for node in quorum.nodes.values()))
        assert (leader.role, outcomes) == (Role.LEADER, [])
        disks.answer_all()
        await until(lambda: outcomes == [2])
        assert (leader.role, leader.term) == (Role.LEADER, term)


async def test_whoever_waits_is_told_when_the_leader_has_lost_its_quorum(
    tmp_path: Path, disks: SilentDisks
) -> None:
    """Proposals and reads end with the role, each once; else their callers would wait for ever."""
    async with three(tmp_path, disks, **HASTY) as quorum:
        leader = await quorum.leader()
        await quorum.write(b"before")
        for node in others(quorum, leader):
            await quorum.stop(node.node_id)
        outcomes = proposed(leader, b"in doubt")
        reads: list[Exception | None] = []
        for _ in range(3):
            leader.read(reads.append)
        await until(lambda: outcomes and len(reads) == 3)
        assert isinstance(outcomes[0], ProposalDropped)
        assert all(isinstance(error, NotLeader) for error in reads)
        for node_id in set(quorum.peers) - set(quorum.nodes):
            await quorum.start(node_id)
        for number in range(3):
            await quorum.write(b"%d" % number)
        assert (len(outcomes), len(reads)) == (1, 3)


async def written(addresses: dict[int, str], group: str) -> None:
    """One write, asked of one controller after the other until it is answered."""
    code = {"clusterName": "c", "brokerName": group}
    ext = {**code, "appliedBrokerId": "1", "registerCheckCode": f"{group};1"}
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for address in addresses.values():
                client = RemotingClient()
                try:
                    await client.connect(address, 1.0)
                    answer = await client.call(request(1013, ext), 3.0)
                    if answer.code == 0:
                        return
                except RemotingError:
                    pass
                finally:
                    client.close()
            await asyncio.sleep(0.05)


async def test_processes_go_on_writing_when_the_leaders_disk_hangs(tmp_path: Path) -> None:
    processes = ControllerProcesses(tmp_path)
    try:
        await processes.start()
        leader = await processes.led()
        await written(processes.addresses, "before")
        processes.hang(leader)
        began = time.monotonic()
        await written(processes.addresses, "amid")
        print(f"the first write came {time.monotonic() - began:.1f} s after the disk hung")
        assert await processes.led(besides=leader) != leader
        assert "gives-way" in processes.said(leader)
        processes.answer(leader)
        await written({1: processes.addresses[leader]}, "after")
        await _until_said(processes, leader, "disk-answers")
    finally:
        await processes.stop()


async def _until_said(processes: ControllerProcesses, number: int, what: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while what not in processes.said(number):
            await asyncio.sleep(0.05)
