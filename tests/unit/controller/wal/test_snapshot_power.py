"""The power goes at any sync while snapshots are written and old ones removed."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from gantry_controller.raft.members import Membership
from gantry_controller.raft.snapshot import SnapshotMeta
from gantry_controller.wal.snapshots import (
    SnapshotWriter,
    read_snapshot,
    remove_older,
    snapshot_path,
)
from gantry_protocol.types import Index, NodeId, Term
from support.power import power_watch, restore

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

WAYS = 8  # a directory is restored in so many ways per moment


def write(directory: Path, index: int) -> None:
    meta = SnapshotMeta(Index(index), Term(1), Membership((NodeId(1),)))
    writer = SnapshotWriter(directory, meta)
    for number in range(3):
        writer.add(bytes([index, number]) * 700)
    writer.finish()


def test_what_a_marker_may_name_is_there_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "raft"
    directory.mkdir()
    finished: list[int] = []  # the log may name the last one from now on
    with power_watch(directory, monkeypatch) as power:
        power.keep_moments = True
        power.note = lambda: finished[-1:]
        for index in (5, 7, 9):
            write(directory, index)
            finished.append(index)
            power.moments.append(power.freeze())
            remove_older(directory, Index(index))
            power.moments.append(power.freeze())
        moments = power.moments
    assert len(moments) > 20
    for number, moment in enumerate(moments):
        for way in range(WAYS):
            found = restore(moment, tmp_path / f"{number}-{way}", Random(way))
            for path in found.glob("snapshot-" + "[0-9]" * 20):
                _, slices = read_snapshot(found, Index(int(path.name.removeprefix("snapshot-"))))
                assert len(list(slices)) == 3, "a name stands for a whole file"
            for index in moment.note:
                assert snapshot_path(found, Index(index)).exists(), "the log begins behind it"
