"""When messages are refused for want of room, and when no more."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_broker.retention.disk_space import HOLD_S, DiskSpace, Usage, Watermarks, usage_of


def test_refusing_begins_at_the_high_mark_and_ends_below_the_low_one() -> None:
    shares = iter([10, 89.9, 90, 86, 85, 84.9, 89, 95])
    disk = DiskSpace(Path(), Watermarks(90, 85), lambda _: Usage(next(shares), 1))
    seen = []
    for _ in range(8):
        disk.look()
        seen.append(disk.refusing)
    assert seen == [False, False, True, True, True, False, False, True]


def test_a_large_disk_with_enough_left_refuses_nothing() -> None:
    marks = Watermarks(90, 85, spare_bytes=1000)
    assert not marks.refuses(Usage(99.0, 1000), refusing=False)
    assert marks.refuses(Usage(99.0, 999), refusing=False)
    assert not marks.refuses(Usage(99.0, 1000), refusing=True)


def test_a_disk_that_does_not_say_changes_nothing() -> None:
    answers = iter([95.0, None, 10.0])

    def look(_: Path) -> Usage:
        answer = next(answers)
        if answer is None:
            raise OSError(5, "Input/output error")
        return Usage(answer, 1)

    disk = DiskSpace(Path(), Watermarks(), look)
    seen = []
    for _ in range(3):
        disk.look()
        seen.append((disk.refusing, disk.usage.used_percent))
    assert seen == [(True, 95.0), (True, 95.0), (False, 10.0)]


def test_the_share_is_that_of_a_real_disk(tmp_path: Path) -> None:
    found = usage_of(tmp_path)
    assert 0 < found.used_percent < 100
    assert found.free_bytes > 0


@pytest.mark.asyncio
async def test_it_looks_as_soon_as_it_is_started() -> None:
    disk = DiskSpace(Path(), Watermarks(), lambda _: Usage(99.0, 1))
    disk.start()
    assert disk.refusing
    disk.stop()


def test_room_for_a_mastership_is_room_for_a_while() -> None:
    """Below the mark from which on messages are taken again, and known."""
    shares = iter([95, 86, 84, 89])
    disk = DiskSpace(Path(), Watermarks(90, 85), lambda _: Usage(next(shares), 1))
    assert not disk.has_room, "nothing is known yet"
    seen = []
    for _ in range(4):
        disk.look()
        seen.append(disk.has_room)
    assert seen == [False, False, True, False]


def test_a_write_that_found_no_room_is_believed_more_than_the_disk() -> None:
    """A quota may be the reason; once a write may succeed again the disk's word counts."""
    now_s = 0.0
    disk = DiskSpace(Path(), Watermarks(), lambda _: Usage(10.0, 1), lambda: now_s)
    disk.look()
    assert (disk.refusing, disk.has_room) == (False, True)
    disk.met_full()
    assert (disk.refusing, disk.has_room) == (True, False)
    now_s = HOLD_S
    disk.look()
    assert (disk.refusing, disk.has_room) == (False, True)
