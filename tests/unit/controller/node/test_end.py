"""What callers are told when a node loses its role, ends, or fails."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING

import pytest
from gantry_controller.node import NodeOptions, RaftNode
from gantry_controller.node.disk import DiskError
from gantry_controller.node.pending import ProposalDropped
from gantry_controller.raft.core import SoftState
from gantry_controller.raft.errors import NotLeader, Overloaded
from gantry_controller.raft.reads import ReadState
from gantry_controller.raft.state import Role
from gantry_protocol.types import Index, NodeId, Term
from support.raft_quorum import Journal, call, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ME, OTHER = NodeId(1), NodeId(2)


class Lone:
    """A quorum of one; its disk confirms nothing while ``silent``."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.silent = False
        self.fatal: list[BaseException] = []
        self.heard: list[object] = []
        self.journal = Journal()
        options = NodeOptions(
            cluster_uid="q",
            node_id=ME,
            peers={ME: "127.0.0.1:0"},
            directory=directory,
            proposals_max=3,
        )
        confirm = RaftNode._on_durable

        def maybe(node: RaftNode, batch: int) -> None:
            if not self.silent:
                confirm(node, batch)

        monkeypatch.setattr(RaftNode, "_on_durable", maybe)
        self.node = RaftNode(options, self.journal, on_fatal=self.fatal.append)

    async def begin_to_propose(self) -> None:
        """One is on its way to the disk, and will be for ever."""
        self.silent = True
        self.node.propose(b"x", self.heard.append)
        await until(lambda: len(self.node._proposals))


@pytest.fixture
async def lone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lone]:
    lone = Lone(tmp_path, monkeypatch)
    await lone.node.start()
    await until(lambda: lone.node.is_serving_leader)
    yield lone
    await lone.node.stop()


async def test_so_many_proposals_wait_and_no_more(lone: Lone) -> None:
    lone.silent = True
    for _ in range(4):
        lone.node.propose(b"x", lone.heard.append)
    await asyncio.sleep(0)
    assert [type(one) for one in lone.heard] == [Overloaded]


async def test_a_node_that_stops_tells_who_waits(lone: Lone) -> None:
    await lone.begin_to_propose()
    lone.node.propose(b"queued", lone.heard.append)
    lone.node.read(lone.heard.append)
    await lone.node.stop()
    assert [type(one) for one in lone.heard] == [NotLeader, ProposalDropped, NotLeader]
    assert not lone.node.is_serving_leader


async def test_who_waits_for_a_read_index_is_told(lone: Lone) -> None:
    lone.node._reads.open += 1
    lone.node._reads.add([ReadState(Index(1_000_000), [lone.heard.append])])  # not applied yet
    await lone.node.stop()
    assert [type(one) for one in lone.heard] == [NotLeader]


async def test_an_error_of_the_disk_ends_the_node(
    lone: Lone, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    writer = lone.node._disk._writer
    monkeypatch.setattr(writer._wal, "append", broken)
    lone.node.propose(b"x", lone.heard.append)
    await until(lambda: not writer._thread.is_alive())
    await asyncio.sleep(0)  # what the thread said last
    assert [type(one) for one in lone.fatal] == [DiskError]
    assert [type(one) for one in lone.heard] == [ProposalDropped]
    assert lone.journal.commands == []
    assert isinstance(await call(lone.node.propose, b"y"), NotLeader)


async def test_an_error_of_the_state_machine_ends_the_node(
    lone: Lone, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def apply(*facts: object) -> None:
        asked.append(facts)
        raise ZeroDivisionError

    monkeypatch.setattr(lone.journal, "apply", apply)
    lone.node.propose(b"x", lone.heard.append)
    await until(lambda: asked)
    assert [type(one) for one in lone.fatal] == [ZeroDivisionError]
    assert [type(one) for one in lone.heard] == [ProposalDropped]


async def test_what_is_not_on_the_disk_is_not_applied(lone: Lone) -> None:
    await lone.begin_to_propose()
    await until(lambda: lone.node.wal_batches)
    assert (lone.journal.commands, lone.heard) == ([], [])


@pytest.mark.parametrize(
    "soft",
    [
        SoftState(Role.FOLLOWER, Term(1), OTHER),
        SoftState(Role.LEADER, Term(2), ME),
    ],
    ids=["role", "term"],
)
async def test_proposals_end_with_the_leadership_they_were_made_in(
    tmp_path: Path, soft: SoftState
) -> None:
    """Else the entry of another leader at their index would answer them."""
    options = NodeOptions(
        cluster_uid="q", node_id=ME, peers={ME: "127.0.0.1:1"}, directory=tmp_path
    )
    node, heard = RaftNode(options, Journal()), list[object]()
    node._proposals.add(Index(5), [heard.append])
    node._on_soft_state(soft)
    assert [type(one) for one in heard] == [ProposalDropped]
