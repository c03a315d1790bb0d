"""A byte that is not what was flushed is not read, however it got there."""

from __future__ import annotations

import errno
import itertools
import os
import random
from pathlib import Path

import pytest
from gantry_broker.log import CommitLog, checked, sums
from gantry_broker.log.checked import DamagedError, Kept, read_checked
from gantry_protocol.types import Offset
from support import logs


@pytest.fixture
def log(tmp_path: Path):
    log = CommitLog.open(tmp_path / "log", 1 << 20)
    for number in range(300):
        logs.append(log, number, 1 + number * 37 % 900)
        if number % 3 == 0:
            log.flush()
    log.flush()
    yield log
    log.close()


def _units(log: CommitLog) -> list[tuple[Offset, int]]:
    ends = logs.boundaries(log)
    return [(at, end - at) for at, end in itertools.pairwise(ends)]


def _read(log: CommitLog, how: str, at: Offset, size: int) -> None:
    if how == "read_checked":
        path, position = log.locate(at)
        read_checked(str(path), [(position, size)])
    else:
        getattr(log, how)(at, size)


@pytest.mark.parametrize("read", ["read", "read_cached", "read_units", "read_checked"])
def test_any_flipped_bit_is_found_by_whoever_reads_it(log: CommitLog, read: str) -> None:
    draw = random.Random(7)
    sound, units = logs.contents(log), _units(log)
    for at, size in draw.sample(units, 20):
        path, position = log.locate(at)
        into = draw.randrange(size)
        log.checks.forget(0, log.end)
        logs.flip(path, position + into, draw.randrange(8))
        with pytest.raises(DamagedError) as caught:
            _read(log, read, at, size)
        damage = caught.value.damage
        assert damage.start <= at + into < damage.end
        assert str(path) in str(caught.value)
        for other, length in (units[0], units[-1]):
            if not damage.start <= other < damage.end:
                assert log.read_cached(other, length) == sound[other : other + length]
        path.write_bytes(sound)
        log.checks.forget(0, log.end)
    assert logs.contents(log) == sound


def test_whoever_reads_on_gets_what_stands_before_the_damage(log: CommitLog) -> None:
    units = _units(log)
    at, _ = units[200]
    path, position = log.locate(at)
    log.checks.forget(0, log.end)
    logs.flip(path, position + 30)
    with pytest.raises(DamagedError) as caught:
        log.read_units(at, 1 << 20)
    begin = caught.value.damage.start
    assert log.read_units(Offset(0), 1 << 20) == path.read_bytes()[:begin]
    with pytest.raises(DamagedError):
        log.read_units(Offset(begin), 1 << 20)
    assert log.checks.found == 1, "noted once"
    assert [(one.start, one.end) for one in log.checks.damage.values()] == [
        (begin, caught.value.damage.end)
    ]


def test_what_was_compared_is_what_is_given_out(log: CommitLog) -> None:
    at, size = _units(log)[150]
    expected = log.read_cached(at, size)
    path, position = log.locate(at)
    logs.flip(path, position + size - 1)
    assert log.read_cached(at, size) == log.read(at, size) == expected, "the file is not asked"
    log.checks.forget(0, log.end)
    with pytest.raises(DamagedError):
        log.read_cached(at, size)


def test_only_pulls_take_from_the_file_what_was_compared_and_for_a_while(log: CommitLog) -> None:
    log.checks._kept = Kept(1)  # keeps the newest piece only
    now_s = 100.0
    log.checks._clock = lambda: now_s
    log.checks.forget(0, log.end)
    (at, size), (far, length) = _units(log)[20], _units(log)[290]
    expected = log.read_cached(at, size)
    path, position = log.locate(at)
    logs.flip(path, position + size - 1)
    log.read_cached(far, length)
    assert log.read_cached(at, size) != expected, "this is what it costs to be fast"
    with pytest.raises(DamagedError):
        log.read(at, size)
    logs.flip(path, position + size - 1)
    log.checks.forget(0, log.end)
    log.read_cached(at, size)
    log.read_cached(far, length)
    logs.flip(path, position + size - 1)
    now_s += checked.TRUST_S + 0.1
    with pytest.raises(DamagedError):
        log.read_cached(at, size)


def test_what_rotted_beside_it_stops_no_reader_of_a_piece(log: CommitLog) -> None:
    sound, units = logs.contents(log), _units(log)
    log.checks.forget(0, log.end)
    log.checks._kept = Kept(1)
    for number in (10, 20, 290):
        log.read(*units[number])
    path, position = log.locate(units[12][0])
    logs.flip(path, position + 30)
    for number in (30, 20, 16, 8, 20):
        at, size = units[number]
        assert log.read(at, size) == sound[at : at + size]
    with pytest.raises(DamagedError):
        log.read(*units[12])


def test_a_reader_at_the_growing_end_compares_what_is_new(log: CommitLog) -> None:
    for number in range(200):
        at, data = logs.append(log, number, 500)
        log.flush()
        assert log.read_cached(at, len(data)) == data
    at, data = logs.append(log, 1, 500)
    log.flush()
    path, position = log.locate(at)
    logs.flip(path, position + 60)
    with pytest.raises(DamagedError):
        log.read_cached(at, len(data))


@pytest.mark.parametrize("per_flush", [1, 5, 250])
def test_ranges_of_all_sizes_are_read_from_any_place(tmp_path: Path, per_flush: int) -> None:
    log = CommitLog.open(tmp_path / "log", 1 << 22)
    for number in range(250):
        logs.append(log, number, 10_000)
        if number % per_flush == per_flush - 1:
            log.flush()
    log.flush()
    try:
        path, _ = log.locate(Offset(0))
        sound = path.read_bytes()
        draw = random.Random(per_flush)
        for _ in range(500):
            at = draw.randrange(log.end)
            size = min(draw.choice([1, 100, 10_000, 300_000]), log.end - at)
            assert log.read_cached(Offset(at), size) == sound[at : at + size]
    finally:
        log.close()


def test_what_is_kept_and_named_is_bounded(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = logs.contents(log)
    log.checks.forget(0, log.end)
    log.checks._kept = Kept(100_000)
    monkeypatch.setattr(checked, "KNOWN_MAX", 5)
    monkeypatch.setattr(checked, "_STRETCHES", 2)
    monkeypatch.setattr(checked, "_TAIL", 2)
    for at, size in _units_of(sound):
        log.read(at, size)
        assert sum(len(one.data or b"") for one in log.checks._pieces.values()) <= 100_000
        assert len(log.checks._pieces) <= 5
        assert sorted(log.checks._sums._known) == log.checks._sums._starts
        assert len(log.checks._sums._starts) <= 2
    assert sorted(log.checks._pieces) == log.checks._starts
    monkeypatch.setattr(checked, "DAMAGE_MAX", 3)
    path, _ = log.locate(Offset(0))
    path.write_bytes(bytes(byte ^ 1 for byte in sound))
    log.checks.forget(0, log.end)
    for at, size in _units_of(sound):
        with pytest.raises(DamagedError):
            log.read(at, size)
    assert len(log.checks.damage) == 3


def _units_of(sound: bytes) -> list[tuple[Offset, int]]:
    found, at = [], 0
    while at < len(sound):
        size = int.from_bytes(sound[at : at + 4], "big")
        found.append((Offset(at), size))
        at += size
    return found


def test_a_sector_that_cannot_be_read_is_damage(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    (at, size), (other, length) = _units(log)[30], _units(log)[290]
    pread = os.pread

    def failing(descriptor: int, length: int, position: int) -> bytes:
        if position <= at < position + length and length >= size:
            raise OSError(errno.EIO, "Input/output error")
        return pread(descriptor, length, position)

    log.checks.forget(0, log.end)
    monkeypatch.setattr(os, "pread", failing)
    with pytest.raises(DamagedError, match="cannot be read"):
        log.read(at, size)
    assert len(log.read(other, length)) == length


def test_bytes_whose_sums_are_gone_are_not_vouched_for(log: CommitLog) -> None:
    log.checks.forget(0, log.end)
    path = sums.sums_path(log.locate(Offset(0))[0])
    logs.flip(path, sums.HEADER_BYTES + 5 * sums.ENTRY_BYTES + 10)
    bad = sums.load(path, 0).chain[-1].end
    assert log.read(Offset(0), bad)
    with pytest.raises(DamagedError, match="checksums of"):
        log.read(Offset(bad), 10)
    assert log.read(Offset(log.end - 100), 100)


def test_a_cut_forgets_what_it_took(log: CommitLog) -> None:
    units = _units(log)
    at, size = units[250]
    path, position = log.locate(at)
    log.checks.forget(0, log.end)
    logs.flip(path, position + 50)
    with pytest.raises(DamagedError) as caught:
        log.read(at, size)
    log.truncate(Offset(caught.value.damage.start))
    assert not log.checks.damage
    again, data = logs.append(log, 1, 700)
    log.flush()
    assert log.read_cached(again, len(data)) == data


def test_ranges_are_found_from_any_place(log: CommitLog) -> None:
    path = sums.sums_path(log.locate(Offset(0))[0])
    chain = sums.load(path, 0).chain
    assert len(chain) > 80
    draw = random.Random(3)
    for _ in range(300):
        start = draw.randrange(log.end)
        end = min(log.end, start + draw.choice([1, 10, 500, 5000]))
        expected = [one for one in chain if one.start < end and start < one.end]
        assert sums.covering(path, start, end) == expected


def test_readers_that_go_on_read_few_sums_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find sums in the file takes five times as long as to compare what they cover."""
    log = CommitLog.open(tmp_path / "log", 1 << 22)
    for number in range(1200):
        logs.append(log, number, 900)
        log.flush()
    units = _units(log)
    log.checks.forget(0, log.end)
    asked, covering = [], sums.covering
    monkeypatch.setattr(checked, "LOOK_BYTES", 1)
    monkeypatch.setattr(sums, "covering", lambda *args: asked.append(args) or covering(*args))
    readers = [units[begin : begin + 100] for begin in range(0, 1200, 100)]
    for step in itertools.zip_longest(*readers):
        for at, size in filter(None, step):
            log.read_cached(at, size)
    assert len(asked) <= 3 * len(readers)
    log.close()
