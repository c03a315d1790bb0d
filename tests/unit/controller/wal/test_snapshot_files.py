"""Snapshot files: every byte counts, and what a crash leaves of the making does no harm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from gantry_controller.raft.members import Membership
from gantry_controller.raft.snapshot import SnapshotMeta
from gantry_controller.wal.snapshots import (
    SnapshotWriter,
    keep_only,
    read_snapshot,
    remove_older,
    snapshot_path,
)
from gantry_protocol.errors import CorruptionError, DataDirError
from gantry_protocol.types import Index, NodeId, Term

if TYPE_CHECKING:
    from pathlib import Path

SLICES = [b"one", b"two" * 30, b"three"]


def meta(index: int) -> SnapshotMeta:
    return SnapshotMeta(Index(index), Term(2), Membership((NodeId(1), NodeId(2))), lease=True)


def written(directory: Path, index: int = 7) -> Path:
    writer = SnapshotWriter(directory, meta(index))
    for data in SLICES:
        writer.add(data)
    info = writer.finish()
    path = snapshot_path(directory, Index(index))
    assert info.size == path.stat().st_size
    return path


def read(directory: Path) -> list[bytes]:
    info, slices = read_snapshot(directory, Index(7))
    assert info.meta == meta(7)
    return list(slices)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    written(tmp_path)
    assert read(tmp_path) == SLICES


def test_equal_content_is_equal_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert written(tmp_path / "a").read_bytes() == written(tmp_path / "b").read_bytes()


def test_every_flipped_bit_and_every_cut_is_found(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 1 << place % 8
        path.write_bytes(data)
        with pytest.raises((CorruptionError, DataDirError)):
            read(tmp_path)
        path.write_bytes(whole[:place])
        with pytest.raises(CorruptionError):
            read(tmp_path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(CorruptionError):
        read(tmp_path)


def test_an_unfinished_one_is_no_snapshot(tmp_path: Path) -> None:
    writer = SnapshotWriter(tmp_path, meta(7))
    writer.add(b"half")
    with pytest.raises(CorruptionError, match="the file is missing"):
        read(tmp_path)
    writer.drop()
    writer.drop()
    assert list(tmp_path.iterdir()) == []


def test_a_younger_one_stays_until_its_own_marker_is_durable(tmp_path: Path) -> None:
    """If a crash takes the younger one's marker, recovery needs the older one's file, and if the
    younger one has just been published, its marker is still to come."""
    paths = [written(tmp_path, index) for index in (5, 7, 9)]
    remove_older(tmp_path, Index(7))
    assert sorted(tmp_path.iterdir()) == paths[1:]
    keep_only(tmp_path, Index(7))
    assert list(tmp_path.iterdir()) == [paths[1]]
