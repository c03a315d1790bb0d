"""A real log without a tier: what is old or too much goes, and the disk has the room again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gantry_broker.queues import MessageStore
from gantry_broker.retention.core.pins import Pins
from gantry_broker.retention.core.rules import HOUR_MS, Need, RetentionBounds
from gantry_broker.retention.disk_space import DiskSpace, Usage, Watermarks
from gantry_broker.retention.log_retention import (
    CLOCK_SLACK_S,
    LogRetention,
    SteadyClock,
    first_time,
)
from gantry_broker.store.contract import GetStatus, ReadLimits, Refusal, SendOutcome
from gantry_protocol.codes import ResponseCode
from gantry_protocol.records import MessageRecord
from gantry_protocol.types import Offset
from support import stores

SEGMENT_BYTES = 2048
BODY = bytes(200)
FIRST_MS = 1_000_000


class Host:
    """A member with a real store; confirms at once."""

    def __init__(self, directory: Path) -> None:
        self.store = MessageStore.open(directory, SEGMENT_BYTES)
        self.store.take_mastership()
        self.store_host = stores.HOST
        self.serving = True
        self.refusal: Refusal | None = None
        self.needed: list[Need] = []
        self.copied: list[Need] = []
        self.trimmed: list[Offset] = []
        self.now_ms = FIRST_MS

    def pins(self) -> Pins:
        return Pins(tuple(self.needed), tuple(self.copied))

    def accepting_writes(self) -> Refusal | None:
        return self.refusal

    def append(self, records: list[MessageRecord], done: Callable[[SendOutcome], None]) -> None:
        self.store.put(records, now_ms=self.now_ms)
        stores.confirm(self.store)
        done(SendOutcome(ResponseCode.SUCCESS))

    def log_trimmed(self, start: Offset) -> None:
        self.trimmed.append(start)

    def fill(self, count: int = 40) -> None:
        """A message in each minute."""
        for _ in range(count):
            self.now_ms += 60_000
            stores.put(self.store, stores.message(body=BODY), now_ms=self.now_ms)
        stores.confirm(self.store)

    @property
    def files(self) -> int:
        return len(list(self.store.log.directory.glob("0*")))


class Clock(SteadyClock):
    def __init__(self, host: Host) -> None:
        self.ms = lambda: host.now_ms

    def now_ms(self) -> int:
        return self.ms()


class Bench:
    def __init__(self, directory: Path) -> None:
        self.host = Host(directory)
        self.used_percent: Callable[[], float] = lambda: 10.0
        self.disk = DiskSpace(
            directory, Watermarks(90, 85), lambda _: Usage(self.used_percent(), 1)
        )
        self.failed: list[BaseException] = []

    def retention(self, kept: RetentionBounds) -> LogRetention:
        return LogRetention(self.host, kept, self.disk, self.failed.append, Clock(self.host))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "store")
    yield made
    made.host.store.close()


async def test_what_is_old_goes_once_the_state_behind_it_is_confirmed(bench: Bench) -> None:
    host, log = bench.host, bench.host.store.log
    host.store.offsets.commit("g", "T", 0, 3)
    host.fill()
    young = host.now_ms
    host.fill(20)
    retention = bench.retention(RetentionBounds(hours=(host.now_ms - young) / HOUR_MS))
    files = host.files
    await retention.look()
    assert (retention.states, log.log_start) == (1, 0), "the state first"
    await retention.look()
    assert host.trimmed == [log.log_start] == [log.starts[0]]
    assert host.files < files
    second_ms = first_time(log.directory, log.starts[1])
    assert first_time(log.directory, log.log_start) <= young < second_ms
    assert host.store.offsets.query("g", "T", 0) == 3
    low = host.store.min_offset("T", 0)
    assert low > 0
    below = host.store.get("T", 0, 0, ReadLimits(1, 1 << 20))
    assert (below.status, below.next_offset) == (GetStatus.OFFSET_TOO_SMALL, low)
    await retention.look()
    assert retention.next_cut_ms == second_ms + (host.now_ms - young)
    assert (retention.reason, retention.trims, retention.trimmed_bytes) == ("", 1, log.log_start)


async def test_what_is_too_much_goes(bench: Bench) -> None:
    host = bench.host
    host.fill()
    retention = bench.retention(RetentionBounds(bytes=5000))
    await retention.look()
    await retention.look()
    kept = host.store.log.end - host.store.log.log_start
    assert 5000 <= kept <= 5000 + 2 * SEGMENT_BYTES


async def test_a_full_disk_makes_room_before_its_time_and_no_more_than_needed(bench: Bench) -> None:
    host = bench.host
    host.fill()
    files = host.files
    bench.used_percent = lambda: 40.0 + 5.0 * host.files
    assert 40 + 5 * files > 85
    bench.disk.look()
    retention = bench.retention(RetentionBounds(hours=1000.0))
    for _ in range(3):
        await retention.look()
    bench.disk.look()
    assert host.files < files
    assert 80 <= bench.disk.usage.used_percent < 85
    assert not bench.disk.refusing
    assert not retention.is_stuck


async def test_a_disk_that_fills_has_the_state_ready(bench: Bench) -> None:
    """So that a full one, which takes no state, can still make room."""
    host = bench.host
    host.fill()
    bench.used_percent = lambda: 70.0
    bench.disk.look()
    retention = bench.retention(RetentionBounds())
    await retention.look()
    assert (retention.states, host.store.log.log_start) == (1, 0)
    host.refusal = Refusal(ResponseCode.SYSTEM_ERROR, "no room")
    bench.used_percent = lambda: 99.0 if not host.trimmed else 10.0
    bench.disk.look()
    await retention.look()
    assert host.store.log.log_start > 0


async def test_a_full_disk_of_which_nothing_may_go_is_told(bench: Bench) -> None:
    host = bench.host
    host.fill()
    bench.used_percent = lambda: 99.0
    bench.disk.look()
    host.needed = [Need(Offset(3), "a delayed message")]
    retention = bench.retention(RetentionBounds())
    await retention.look()
    assert retention.is_stuck
    assert "a delayed message needs the log from 3 on" in retention.reason
    assert host.store.log.log_start == 0


async def test_who_copies_keeps_the_log_from_ageing_and_no_disk_full(bench: Bench) -> None:
    host = bench.host
    host.fill()
    host.copied = [Need(Offset(0), "replica outside the set, 3")]
    retention = bench.retention(RetentionBounds(bytes=1))
    for _ in range(3):
        await retention.look()
    assert (host.trimmed, host.store.log.log_start) == ([], 0)
    assert "replica outside the set, 3 needs" in retention.reason
    bench.used_percent = lambda: 99.0 if not host.trimmed else 10.0
    for _ in range(2):
        bench.disk.look()
        await retention.look()
    assert host.trimmed


async def test_what_changes_while_queues_are_gone_through_stops_the_trim(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = bench.host
    host.fill()
    retention = bench.retention(RetentionBounds(bytes=1))
    await retention.look()
    raise_minimums = host.store.raise_minimums

    def raising(start: Offset) -> Iterator[None]:
        host.needed = [Need(Offset(0), "member 2")]
        yield from raise_minimums(start)

    monkeypatch.setattr(host.store, "raise_minimums", raising)
    await retention.look()
    assert (host.trimmed, retention.trims) == ([], 0)


def test_a_clock_that_jumps_ahead_makes_nothing_old() -> None:
    wall, passed = [1000.0], [5.0]
    clock = SteadyClock(lambda: wall[0], lambda: passed[0])
    assert clock.now_ms() == 1_000_000
    wall[0] += 86_400
    assert clock.now_ms() == int(1000 * (1000 + CLOCK_SLACK_S))
    passed[0] += 86_400
    assert clock.now_ms() == 1000 * (1000 + 86_400)
    wall[0] = 900.0
    assert clock.now_ms() == 900_000


def test_a_file_that_is_gone_has_no_age(tmp_path: Path) -> None:
    assert first_time(tmp_path, Offset(0)) is None
