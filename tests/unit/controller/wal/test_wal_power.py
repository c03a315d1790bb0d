"""The power goes after a sync has failed: what a node counted as durable is still there.

After EIO the kernel takes the pages for clean: the next process reads them as they were written,
and syncs them with success, while the medium never got them (``support.power``).
"""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING

import pytest
from gantry_controller.raft.messages import EntryKind, HardState, make_entry
from gantry_controller.wal.format import Write
from gantry_controller.wal.wal import AHEAD_BYTES, Wal
from gantry_protocol.types import Index, NodeId, Term
from support.power import Frozen, power_watch, restore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEGMENT = "wal-0000000001"
SEGMENT_BYTES = 3 * AHEAD_BYTES
WAYS = 8  # a directory is restored in so many ways per moment


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "raft"
    made.mkdir()
    return made


def write(index: int, command: bytes, term: int = 1) -> Write:
    entry = make_entry(EntryKind.COMMAND, Term(term), Index(index), command)
    return Write([entry], HardState(Term(term), NodeId(2)))


def opened(directory: Path) -> tuple[Wal, list[bytes]]:
    wal, found = Wal.open(directory, segment_size_bytes=SEGMENT_BYTES)
    return wal, [entry.command for entry in found.entries]


def after_power_cuts(moment: Frozen, directory: Path) -> Iterator[list[bytes]]:
    for way in range(WAYS):
        wal, commands = opened(restore(moment, directory.with_name(f"found-{way}"), Random(way)))
        wal.close()
        yield commands


def test_a_batch_whose_sync_failed_is_durable_once_a_start_has_counted_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with power_watch(directory, monkeypatch) as power:
        wal, _ = opened(directory)
        wal.append([write(1, b"one" * 300)])
        power.fail_next(SEGMENT)
        with pytest.raises(OSError, match="Input/output"):
            wal.append([write(2, b"two" * 300)])
        wal.close()
        wal, counted = opened(directory)  # the next process: this node may vote with it
        wal.close()
        moment = power.freeze()
    assert counted == [b"one" * 300, b"two" * 300]
    for commands in after_power_cuts(moment, directory):
        assert commands == counted


def test_a_start_whose_own_sync_fails_counts_nothing(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with power_watch(directory, monkeypatch) as power:
        wal, _ = opened(directory)
        wal.append([write(1, b"one")])
        wal.close()
        power.fail_next(SEGMENT)
        with pytest.raises(OSError, match="Input/output"):
            opened(directory)


def test_a_torn_end_that_could_not_be_removed_never_comes_back(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros that never reached the medium would leave its rest behind a shorter batch.

    What is behind the zeros that go ahead of the first batch of a process, that is.
    """
    with power_watch(directory, monkeypatch) as power:
        wal, _ = opened(directory)
        wal.append([write(1, b"kept")])
        wal.append([write(2, b"torn" * (AHEAD_BYTES // 2))])
        wal.close()
        path = directory / SEGMENT
        used = len(path.read_bytes().rstrip(b"\0"))
        fd = os.open(path, os.O_RDWR)
        os.pwrite(fd, bytes(100), used - 100)  # its last sector never arrived
        os.fsync(fd)
        os.close(fd)
        power.fail_next()
        with pytest.raises(OSError, match="Input/output"):
            opened(directory)
        wal, counted = opened(directory)
        assert counted == [b"kept"]
        wal.append([write(2, b"next", term=2)])
        wal.close()
        moment = power.freeze()
    for commands in after_power_cuts(moment, directory):
        assert commands == [b"kept", b"next"]
