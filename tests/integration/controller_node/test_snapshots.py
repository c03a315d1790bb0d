"""Snapshots on real files and sockets: taken, restarted from, sent to a node that needs one."""

from __future__ import annotations

import asyncio
import os
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from gantry_controller.node import shipping
from gantry_controller.node.snapshots import SnapshotBusy, due_at
from gantry_controller.raft import shipment
from gantry_protocol.errors import CorruptionError
from gantry_protocol.member_tls.process import NO_MEMBER_TLS, MemberTls
from gantry_protocol.quorum_key import KeyFile
from gantry_protocol.types import NodeId
from support.certificates import MemberAuthority
from support.raft_quorum import Quorum, call, running, until

if TYPE_CHECKING:
    from pathlib import Path

SMALL = {"segment_size_bytes": 4096, "snapshot_margin_entries": 0}


async def write_many(quorum: Quorum, count: int, tag: bytes = b"v") -> list[bytes]:
    commands = [tag + b"%d:" % number + b"x" * 200 for number in range(count)]
    leader = await quorum.leader()
    for first in range(0, count, 10):  # a few at a time, so that the log gets several segments
        wave = [call(leader.propose, command) for command in commands[first : first + 10]]
        outcomes = await asyncio.gather(*wave)
        assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    return commands


def _member_tls(authority: MemberAuthority, mode: str | None) -> MemberTls:
    if mode is None:
        return NO_MEMBER_TLS
    return MemberTls(authority.settings("controller", "gantry://mq/controller", mode=mode))


def names(quorum: Quorum, node: int) -> list[str]:
    return sorted(path.name for path in quorum.directory(NodeId(node)).iterdir())


async def test_a_restart_begins_with_the_snapshot_and_goes_on_with_the_log(tmp_path: Path) -> None:
    async with running(tmp_path, 1, **SMALL) as quorum:
        first = await write_many(quorum, 100)
        before = len(names(quorum, 1))
        meta = await quorum.nodes[NodeId(1)].snapshots.take()
        second = await write_many(quorum, 10, b"w")
        await until(lambda: len(names(quorum, 1)) < before)
        behind = quorum.nodes[NodeId(1)].snapshots.stats.log_bytes
        await quorum.stop(NodeId(1))
        node = await quorum.start(NodeId(1))
        assert node.applied_index >= meta.index
        await quorum.agree_on(first + second)
        assert behind <= node.snapshots.stats.log_bytes < behind + 200, "each entry counts once"
        assert [name for name in names(quorum, 1) if name.startswith("snap")] == [
            f"snapshot-{meta.index:020}"
        ]


async def test_one_at_a_time_and_none_without_news(tmp_path: Path) -> None:
    async with running(tmp_path, 1, **SMALL) as quorum:
        await write_many(quorum, 10)
        snapshots = quorum.nodes[NodeId(1)].snapshots
        both = await asyncio.gather(snapshots.take(), snapshots.take(), return_exceptions=True)
        assert [type(outcome).__name__ for outcome in both] == ["SnapshotMeta", "SnapshotBusy"]
        with pytest.raises(SnapshotBusy, match="Nothing was applied"):
            await snapshots.take()


async def test_enough_log_makes_a_snapshot_by_itself(tmp_path: Path) -> None:
    async with running(tmp_path, 1, snapshot_log_bytes=5_000, **SMALL) as quorum:
        await write_many(quorum, 60)
        stats = quorum.nodes[NodeId(1)].snapshots.stats
        await until(lambda: stats.taken)
        assert stats.last_bytes > 0


@pytest.mark.parametrize(
    ("least", "size", "due"),
    [
        pytest.param(1000, 0, 1000, id="before the first"),
        pytest.param(1000, 400, 1000, id="little state"),
        pytest.param(1000, 600, 1200, id="much state"),
    ],
)
def test_much_state_is_not_written_for_little_log(least: int, size: int, due: int) -> None:
    assert due_at(least, size) == due


@pytest.mark.parametrize("modes", [(None,) * 3, ("enforcing",) * 3, (None, None, "permissive")])
async def test_a_follower_that_is_too_far_behind_gets_the_snapshot(
    tmp_path: Path, modes: tuple[str | None, ...]
) -> None:
    """Also by TLS between members, of which one may have no certificate yet, nor a key."""
    authority = MemberAuthority(tmp_path / "authority")
    keys = {
        NodeId(number): KeyFile(None, _member_tls(authority, mode))
        for number, mode in enumerate(modes, start=1)
    }
    async with running(tmp_path, keys=keys, **SMALL) as quorum:
        leader = await quorum.leader()
        late = next(node for node in quorum.peers if node != leader.node_id)
        await quorum.stop(late)
        commands = await write_many(quorum, 100)
        await leader.snapshots.take()
        await quorum.start(late)
        await quorum.agree_on(commands)
        assert quorum.nodes[late].snapshots.stats.installed == 1
        await until(lambda: leader.traffic.sender.stats.sent == 1)
        more = await write_many(quorum, 10, b"w")
        await quorum.agree_on(commands + more)
        await quorum.stop(late)
        await quorum.start(late)
        await quorum.agree_on(commands + more)
    handshakes = sum(key.tls.handshakes for key in keys.values())
    assert handshakes >= 6 if set(modes) == {"enforcing"} else not handshakes


async def test_a_broken_transfer_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipment, "CHUNK_BYTES", 1000)
    monkeypatch.setitem(shipment.Sending.__init__.__kwdefaults__, "chunk_bytes", 1000)
    monkeypatch.setattr(shipping, "BACK_OFF_FIRST_S", 0.01)
    offsets: list[int] = []
    write = shipping.SnapshotSender._write

    dialled_in_vain: list[int] = []

    def lose_some(self: Any, writer: Any, node: Any, sent: Any, offset: int, data: bytes) -> None:
        if data:
            offsets.append(offset)
            dialled_in_vain.append(self.stats.interrupted)
        if data and len(offsets) in (5, 9):
            writer.transport.abort()
        write(self, writer, node, sent, offset, data)

    monkeypatch.setattr(shipping.SnapshotSender, "_write", lose_some)
    async with running(tmp_path, **SMALL) as quorum:
        leader = await quorum.leader()
        late = next(node for node in quorum.peers if node != leader.node_id)
        await quorum.stop(late)
        commands = await write_many(quorum, 100)
        await leader.snapshots.take()
        await quorum.start(late)
        await quorum.agree_on(commands)
        # Before the first chunk it may have dialled until the late node listened.
        assert leader.traffic.sender.stats.interrupted - dialled_in_vain[0] == 2
        restarts = [offset for before, offset in pairwise(offsets) if offset <= before]
        assert 1 <= len(restarts) <= 2, "some chunks were lost, and only those were sent again"
        assert 0 not in restarts, "and nothing that had arrived was sent again"


async def test_a_follower_that_dies_amid_it_comes_back_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(shipment.Sending.__init__.__kwdefaults__, "chunk_bytes", 1000)
    async with running(tmp_path, **SMALL) as quorum:
        leader = await quorum.leader()
        late = next(node for node in quorum.peers if node != leader.node_id)
        early = await write_many(quorum, 5, b"early")
        await quorum.agree_on(early)
        await quorum.stop(late)
        commands = await write_many(quorum, 100)
        await leader.snapshots.take()
        node = await quorum.start(late)
        await until(lambda: node.traffic.receiver.received_bytes > 3_000)
        await quorum.stop(late)
        await quorum.start(late)
        await quorum.agree_on(early + commands)
        assert not [name for name in names(quorum, late) if name.endswith(".new")]


@pytest.mark.parametrize("how", ["gone", "flipped"])
async def test_a_damaged_snapshot_is_named_and_the_node_does_not_start(
    tmp_path: Path, how: str
) -> None:
    async with running(tmp_path, 1, **SMALL) as quorum:
        await write_many(quorum, 50)
        meta = await quorum.nodes[NodeId(1)].snapshots.take()
        await write_many(quorum, 1, b"w")
        await quorum.stop(NodeId(1))
        path = quorum.directory(NodeId(1)) / f"snapshot-{meta.index:020}"
        if how == "gone":
            path.unlink()
        else:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        with pytest.raises(CorruptionError, match="must not vote") as caught:
            await quorum.start(NodeId(1))
        assert caught.value.file == path
        assert caught.value.offset == 0 or how == "flipped"


async def test_a_full_disk_costs_the_snapshot_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, 1, **SMALL) as quorum:
        commands = await write_many(quorum, 50)
        node = quorum.nodes[NodeId(1)]

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", full)
            patch.setattr("gantry_controller.wal.snapshots.SnapshotFile.append", full)
            with pytest.raises(Exception, match="No space left"):
                await node.snapshots.take()
        assert quorum.fatal == []
        commands += await write_many(quorum, 1, b"w")
        await quorum.agree_on(commands)
        await node.snapshots.take()


async def test_a_broken_disk_ends_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, 1, **SMALL) as quorum:
        await write_many(quorum, 50)

        def broken(*_: object) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr("gantry_controller.wal.snapshots.SnapshotFile.append", broken)
        with pytest.raises(Exception, match="Input/output error"):
            await quorum.nodes[NodeId(1)].snapshots.take()
        assert [type(error).__name__ for error in quorum.fatal] == ["DiskError"]
