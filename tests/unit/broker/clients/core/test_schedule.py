"""The scheduler: when what is due, whatever clocks do; and a world in which masters die."""

from __future__ import annotations

from itertools import pairwise

import pytest
from gantry_broker.clients.core.delay.schedule import (
    BACKOFF_FIRST_MS,
    BACKOFF_MAX_MS,
    PACE_MS,
    Level,
    Parked,
    Schedule,
)
from hypothesis import given
from hypothesis import strategies as st
from support.delay_world import BATCH, DELAYS_MS, DelayWorld

NOW, WALL = 1_000_000, 1_700_000_000_000


def _schedule(*levels: Level) -> Schedule:
    return Schedule(levels, NOW, WALL)


def _due(schedule: Schedule, message: Parked, number: int = 0) -> int:
    """When it is delivered, by asking the machine as the shell does."""
    now_ms = NOW
    while True:
        wake_ms = schedule.wake_ms()
        assert wake_ms is not None
        now_ms = max(now_ms, wake_ms)
        assert schedule.wanted(now_ms) == [number]
        if schedule.judge(number, [message], now_ms):
            return now_ms


@pytest.mark.parametrize(
    ("stored", "wait"),
    [
        pytest.param(WALL - 400, 600, id="a part of the delay is over"),
        pytest.param(WALL - 1_000, 0, id="all of it is over, to the ms"),
        pytest.param(WALL - 10**9, 0, id="long over"),
        pytest.param(WALL, 1_000, id="stored just now"),
        pytest.param(WALL + 10**9, 1_000, id="this clock is behind: the delay, not for ever"),
    ],
)
def test_what_was_parked_before_waits_by_the_wall_clock_and_never_beyond_its_delay(
    stored, wait
) -> None:
    level = Level(position=0, end=1, inherited=1, delay_ms=9)
    assert _due(_schedule(level), Parked(0, stored, delay_ms=1_000)) == NOW + wait


@pytest.mark.parametrize("stamp", [0, WALL, WALL + 10**9])
def test_what_arrives_in_this_mastership_waits_by_the_steady_clock(stamp) -> None:
    schedule = _schedule(Level(0, 0, 0, delay_ms=5_000))
    assert schedule.wake_ms() is None
    schedule.levels[0].arrived(1, NOW + 70)
    assert _due(schedule, Parked(0, stamp, delay_ms=5_000)) == NOW + 5_070


def test_many_arrivals_are_few_marks_and_late_by_a_thousandth_at_most() -> None:
    level = Level(0, 0, 0, delay_ms=5_000)
    for number in range(20_000):  # one each ms, for four times the delay
        level.arrived(number + 1, NOW + number)
    assert len(level._marks) <= 1_002
    for number in (19_999, 17_000, 15_001):
        due = level.due_at(Parked(number, 0, 5_000), NOW, WALL)
        assert NOW + number + 5_000 <= due <= NOW + number + 5_000 + 5


def test_a_batch_ends_before_what_is_not_due_yet() -> None:
    level = Level(position=5, end=8, inherited=8, delay_ms=1_000)
    schedule = _schedule(level)
    assert schedule.wanted(NOW) == [0]
    stored = [WALL - 1_000, WALL - 990, WALL - 500]
    messages = [Parked(5 + index, at, 1_000) for index, at in enumerate(stored)]
    assert schedule.judge(0, messages, NOW + 10) == 2
    assert schedule.wanted(NOW + 10_000) == [], "one append of a level at a time"
    schedule.advanced(0, 7)
    assert schedule.wake_ms() == NOW + 10 + PACE_MS


def test_a_level_that_is_refused_waits_longer_and_longer_and_nobody_waits_with_it() -> None:
    slow, fast = (Level(0, 1, 1, 1_000) for _ in range(2))
    schedule = _schedule(slow, fast)
    now_ms, waits = NOW, []
    assert schedule.wanted(now_ms) == [0, 1]
    schedule.advanced(1, 1)
    for _ in range(8):
        schedule.refused(0, now_ms)
        wake_ms = schedule.wake_ms()
        assert wake_ms is not None
        waits.append(wake_ms - now_ms)
        now_ms = wake_ms
        assert schedule.wanted(now_ms) == [0]
    assert waits[:3] == [BACKOFF_FIRST_MS, 2 * BACKOFF_FIRST_MS, 4 * BACKOFF_FIRST_MS]
    assert waits[-1] == BACKOFF_MAX_MS
    assert schedule.judge(0, [Parked(0, WALL - 3_000, 1_000)], now_ms) == 1
    assert schedule.overdue_ms(0, now_ms) == now_ms - NOW
    schedule.advanced(0, 1)
    assert slow.backoff_ms == 0


# ---- masters that die


def _run(seed: int, *, crashes: bool, jumps: bool) -> DelayWorld:
    world = DelayWorld(seed)
    pick = world.random
    for _ in range(150):
        match pick.randrange(8):
            case 0 | 1 | 2:
                world.park()
            case 3 | 4:
                world.confirm()
            case 5:
                world.refusing = pick.random() < 0.3
            case 6 if crashes and pick.random() < 0.5:
                world.crash()
            case 7 if jumps:
                world.skew_ms = pick.choice([0, 0, 3_600_000, -3_600_000, pick.randint(-99, 99)])
        world.pass_time(pick.choice([0, 1, 7, 60, 700]))
    world.refusing = False
    for _ in range(200):  # the faults are over
        world.confirm()
        world.pass_time(100)
    return world


def _first(numbers: list[int]) -> list[int]:
    return list(dict.fromkeys(numbers))


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("jumps", [False, True])
def test_nothing_is_lost_and_the_order_of_a_level_is_kept(crashes, jumps) -> None:
    delivered = 0
    for seed in range(60):
        world = _run(seed, crashes=crashes, jumps=jumps)
        assert world.early == [], f"seed {seed}"
        for level in range(len(DELAYS_MS)):
            numbers = [one.number for one in world.delivered(level)]
            delivered += len(numbers)
            assert _first(numbers) == list(range(len(world.parked(level)))), f"seed {seed}"
            assert all(after - before >= 1 - BATCH for before, after in pairwise(numbers))
    assert delivered > 1_000


def test_twice_is_only_what_a_torn_append_held() -> None:
    duplicates = 0
    for seed in range(150):
        world = _run(seed, crashes=True, jumps=True)
        for level in range(len(DELAYS_MS)):
            seen: dict[int, int] = {}
            for one in world.delivered(level):
                if one.number in seen:
                    duplicates += 1
                    assert seen[one.number] in world.torn, f"seed {seed}: {one}"
                seen[one.number] = one.append
    assert duplicates > 0, "the worlds tear appends"


def test_without_a_crash_each_message_is_delivered_once() -> None:
    for seed in range(60):
        world = _run(seed, crashes=False, jumps=True)
        for level in range(len(DELAYS_MS)):
            numbers = [one.number for one in world.delivered(level)]
            assert len(numbers) == len(set(numbers))


@given(st.integers(-(10**9), 10**9))
def test_a_wrong_clock_makes_a_message_of_this_mastership_hardly_later(jump_ms: int) -> None:
    """It came within the 100 ms that the level takes together."""
    schedule = Schedule([Level(0, 0, 0, 100_000)], 0, WALL)
    schedule.levels[0].arrived(1, 1_000)
    schedule.levels[0].arrived(2, 1_090)
    message = Parked(0, WALL + 1_000, 100_000)
    assert schedule.late_ms(0, message, 101_090, WALL + 101_090) == 90
    assert 0 <= schedule.late_ms(0, message, 101_090, WALL + 101_090 + jump_ms) <= 100
    assert 500 <= schedule.late_ms(0, message, 101_590, WALL + 101_590 + jump_ms) <= 600


def test_what_was_due_while_there_was_no_master_is_as_late_as_that() -> None:
    schedule = Schedule([Level(0, 1, 1, 100_000)], 5_000, WALL)
    message = Parked(0, WALL - 160_000, 100_000)
    assert schedule.late_ms(0, message, 5_000, 0) == 60_000
    assert schedule.late_ms(0, message, 6_000, 0) == 61_000
    assert schedule.late_ms(0, Parked(0, WALL + 10**9, 100_000), 105_000, 0) == 0, "a clock behind"
