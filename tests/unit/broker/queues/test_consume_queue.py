"""The bytes of a consume queue, its files, and that damage to them is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_broker.queues import consume_queue
from gantry_broker.queues.consume_queue import ENTRY, ConsumeQueue, find_damage
from support import logs

FILE_ENTRIES = 10


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume_queue, "FILE_ENTRIES", FILE_ENTRIES)
    monkeypatch.setattr(consume_queue, "_BUFFER_BYTES", 3 * consume_queue.ENTRY_BYTES)


def _entry(number: int) -> tuple[int, int, int]:
    return (number * 1000, 100 + number, (-1) ** number * number)


def _queue(directory: Path, count: int, base: int = 0) -> ConsumeQueue:
    queue = ConsumeQueue(directory, base)
    for number in range(base, base + count):
        queue.append(*_entry(number))
    return queue


def test_an_entry_has_rocketmqs_bytes(tmp_path: Path) -> None:
    queue = ConsumeQueue(tmp_path, 0)
    queue.append(524, 261, 2598919)
    queue.write_out()
    assert (tmp_path / f"{0:020d}").read_bytes().hex() == "000000000000020c00000105000000000027a807"


@pytest.mark.parametrize("base", [0, 7, 10, 23])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 9, 10, 11, 35])
def test_entries_are_read_from_memory_and_any_number_of_files(
    tmp_path: Path, base: int, count: int
) -> None:
    queue = _queue(tmp_path / "q", count, base)
    assert (queue.min_offset, queue.max_offset) == (base, base + count)
    for start in range(base, base + count + 1):
        for wanted in (0, 1, 5, 100):
            found = list(ENTRY.iter_unpack(queue.entries(start, wanted)))
            stop = min(start + wanted, base + count)
            assert found == [_entry(number) for number in range(start, stop)]


def test_files_are_named_by_the_byte_offset_of_their_first_entry(tmp_path: Path) -> None:
    queue = _queue(tmp_path, 25)
    queue.write_out()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{number * FILE_ENTRIES * 20:020d}" for number in range(3)
    ]
    assert queue.take_dirty() == set(tmp_path.iterdir())
    assert queue.take_dirty() == set()


@pytest.mark.parametrize("base", [0, 7, 23])
@pytest.mark.parametrize("count", [1, 3, 10, 25])
def test_a_restored_queue_goes_on_where_the_checkpoint_was(
    tmp_path: Path, base: int, count: int
) -> None:
    queue = _queue(tmp_path / "q", count, base)
    queue.write_out()
    state = queue.state("T", 3)
    for number in range(base + count, base + count + 7):
        queue.append(*_entry(number))
    queue.write_out()
    whole = logs.directory_bytes(tmp_path)
    assert find_damage(tmp_path / "q", state, newest_only=False) is None
    again = ConsumeQueue.restore(tmp_path / "q", state)
    assert again.max_offset == base + count
    for number in range(base + count, base + count + 7):
        again.append(*_entry(number))
    again.write_out()
    assert logs.directory_bytes(tmp_path) == whole
    assert again.state("T", 3) == queue.state("T", 3)


@pytest.mark.parametrize("base", [0, 7])
def test_any_flipped_byte_below_the_checkpoint_is_found(tmp_path: Path, base: int) -> None:
    queue = _queue(tmp_path, 25, base)
    queue.write_out()
    state = queue.state("T", 0)
    for path in sorted(tmp_path.iterdir()):
        for position in range(path.stat().st_size):
            logs.flip(path, position)
            assert find_damage(tmp_path, state, newest_only=False) == path
            logs.flip(path, position)
        data = path.read_bytes()
        path.write_bytes(data[:-1])
        assert find_damage(tmp_path, state, newest_only=False) == path
        path.unlink()
        assert find_damage(tmp_path, state, newest_only=False) == path
        path.write_bytes(data)
    assert find_damage(tmp_path, state, newest_only=False) is None


def test_of_many_files_only_the_newest_two_are_read_when_there_is_too_much(tmp_path: Path) -> None:
    queue = _queue(tmp_path, 35)
    queue.write_out()
    state = queue.state("T", 0)
    paths = sorted(tmp_path.iterdir())
    logs.flip(paths[0], 3)
    assert find_damage(tmp_path, state, newest_only=True) is None
    logs.flip(paths[2], 3)
    assert find_damage(tmp_path, state, newest_only=True) == paths[2]


def test_hiding_moves_only_the_minimum_and_only_up(tmp_path: Path) -> None:
    queue = _queue(tmp_path, 5)
    for offset, expected in ((3, 3), (1, 3), (99, 5)):
        queue.hide_below(offset)
        assert queue.min_offset == expected
    queue.append(*_entry(5))
    queue.write_out()
    assert ConsumeQueue.restore(tmp_path, queue.state("T", 0)).min_offset == 5
