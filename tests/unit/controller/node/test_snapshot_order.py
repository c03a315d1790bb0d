"""When the core hears of a snapshot, its file is durable."""

from __future__ import annotations

import errno
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from gantry_controller.node import NodeOptions
from gantry_controller.node.disk import DiskError
from gantry_controller.node.snapshots import SnapshotBusy, Snapshots
from gantry_controller.raft.members import Membership
from gantry_controller.raft.snapshot import SnapshotMeta
from gantry_controller.wal.snapshots import (
    SnapshotFile,
    SnapshotWriter,
    read_snapshot,
    snapshot_path,
)
from gantry_protocol.types import Index, NodeId, Term
from support.power import Power, power_watch, restore
from support.raft_quorum import Journal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

META = SnapshotMeta(Index(9), Term(2), Membership((NodeId(1),)))
COMMANDS = [b"one", b"two" * 500]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "raft"
    directory.mkdir()
    return directory


@pytest.fixture
def power(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Power]:
    with power_watch(directory, monkeypatch) as power:
        yield power


class Core:
    """What a snapshot's end is told to; the power might go in that moment."""

    applied_index = Index(9)

    def __init__(self, power: Power) -> None:
        self.snapshot: SnapshotMeta | None = None
        self._power = power

    def snapshot_meta(self) -> SnapshotMeta:
        return META

    def compact(self, meta: SnapshotMeta, margin_entries: int) -> list[Any]:
        self._told(meta)
        return []

    def install(self, meta: SnapshotMeta) -> list[Any]:
        self._told(meta)
        return []

    def _told(self, meta: SnapshotMeta) -> None:
        self.snapshot = meta
        moment = self._power.freeze()
        for way in range(10):
            after = restore(moment, self._power.root.with_name(f"after-{way}"), Random(way))
            info, slices = read_snapshot(after, meta.index)
            assert (info.meta, list(slices)) == (META, COMMANDS)


def snapshots_of(directory: Path, core: Core) -> tuple[Snapshots, Journal]:
    options = NodeOptions(
        cluster_uid="q", node_id=NodeId(1), peers={NodeId(1): "h:1"}, directory=directory
    )
    journal = Journal()
    snapshots = Snapshots(options, journal, news=lambda: None, failed=lambda error: None)
    snapshots.begin(core, [])  # type: ignore[arg-type]  # only what an end is told to
    return snapshots, journal


async def test_the_core_hears_of_a_taken_one_when_it_is_durable(
    directory: Path, power: Power
) -> None:
    core = Core(power)
    snapshots, journal = snapshots_of(directory, core)
    journal.commands = COMMANDS
    assert await snapshots.take() == META
    assert core.snapshot == META
    with pytest.raises(SnapshotBusy, match="Nothing was applied"):  # and none is under way
        await snapshots.take()
    await snapshots.stop()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
async def test_an_error_of_the_disk_ends_the_node_unless_it_is_full(
    directory: Path, power: Power, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def broken(*_: object) -> None:
        raise OSError(number, "it fails")

    core, failures = Core(power), list[BaseException]()
    snapshots, journal = snapshots_of(directory, core)
    journal.commands = COMMANDS
    monkeypatch.setattr(snapshots, "_tell_failed", failures.append)
    with monkeypatch.context() as patch:
        patch.setattr(SnapshotFile, "append", broken)
        with pytest.raises(DiskError):
            await snapshots.take()
    assert len(failures) == (number == errno.EIO)
    assert await snapshots.take() == META, "the next one may begin"
    await snapshots.stop()


def received(directory: Path) -> tuple[SnapshotFile, Index, int]:
    """All bytes of a peer's snapshot, and what was announced: its index and checksum."""
    elsewhere = directory.with_name("peer")
    elsewhere.mkdir()
    writer = SnapshotWriter(elsewhere, META)
    for command in COMMANDS:
        writer.add(command)
    info = writer.finish()
    file = SnapshotFile(directory, META.index, "received")
    file.append(snapshot_path(elsewhere, META.index).read_bytes())
    return file, META.index, info.checksum


async def test_the_core_hears_of_a_received_one_when_it_is_durable(
    directory: Path, power: Power
) -> None:
    core = Core(power)
    snapshots, journal = snapshots_of(directory, core)
    assert await snapshots.install(*received(directory))
    assert (core.snapshot, journal.commands) == (META, COMMANDS)
    assert snapshots.index == META.index, "it is what is sent to others from now on"
    await snapshots.stop()


@pytest.mark.parametrize("wrong", ["checksum", "index"])
async def test_what_was_not_announced_is_dropped(directory: Path, power: Power, wrong: str) -> None:
    core = Core(power)
    snapshots, journal = snapshots_of(directory, core)
    file, index, checksum = received(directory)
    if wrong == "checksum":
        checksum ^= 1
    else:
        index = Index(index + 1)
    assert not await snapshots.install(file, index, checksum)
    assert (core.snapshot, journal.commands, list(directory.iterdir())) == (None, [], [])
    assert snapshots.stats.failed == 1
    await snapshots.stop()
