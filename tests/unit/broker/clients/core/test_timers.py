"""Timers: which steps a message waits, and what its record says meanwhile."""

from __future__ import annotations

import itertools

import pytest
from gantry_broker.clients.core.delay.levels import (
    QUEUES,
    STEPS_MS,
    next_step,
)
from gantry_broker.clients.core.delay.parked import (
    is_timer,
    next_park,
    park_timer,
    unpark,
    wanted_time,
)
from gantry_protocol.errors import RecordError
from gantry_protocol.records import MessageRecord, decode_properties
from gantry_protocol.records.properties import DELAY_MS, SCHEDULE_TOPIC
from gantry_protocol.settings.delays import MAX_DELAY_MS, MAX_LEVELS
from hypothesis import given
from hypothesis import strategies as st

NOW_MS = 1_790_000_000_000
HOST = ("127.0.0.1", 10911)
AFTER = st.integers(1, MAX_DELAY_MS)


def waiting(after_ms: int) -> MessageRecord:
    sent = MessageRecord(topic="orders", queue_id=3, body=b"x", properties="TAGS\x01a\x02")
    return park_timer(sent, NOW_MS + after_ms, NOW_MS)


def steps_of(after_ms: int, late_ms: int = 0) -> tuple[list[int], int]:
    """The steps of a message, and how long it has waited in all.

    Each step is as late as a level may be, and by ``late_ms``.
    """
    steps, waited_ms = [], 0
    record: MessageRecord | None = waiting(after_ms)
    while record is not None:
        assert is_timer(record)
        assert (record.topic, record.queue_id < QUEUES) == (SCHEDULE_TOPIC, True)
        step = STEPS_MS[record.queue_id - MAX_LEVELS]
        assert decode_properties(record.properties)[DELAY_MS] == str(step)
        steps.append(step)
        waited_ms += step + step // 1000 + late_ms
        parked = record
        record = next_park(record, step // 1000 + late_ms, HOST)
    found = unpark(parked, HOST)
    assert (found.topic, found.queue_id, found.body) == ("orders", 3, b"x")
    assert "__GANTRY" not in found.properties
    assert decode_properties(found.properties)["TAGS"] == "a"
    return steps, waited_ms


@given(AFTER)
def test_a_message_is_never_early_and_less_than_a_second_late(after_ms: int) -> None:
    steps, waited_ms = steps_of(after_ms, late_ms=30)
    assert after_ms <= waited_ms < after_ms + 1000
    assert len(steps) <= after_ms // 3_600_000 + 6


@given(AFTER, st.integers(0, MAX_DELAY_MS))
def test_what_nobody_delivered_in_time_does_not_wait_for_the_rest(after: int, late: int) -> None:
    parked = waiting(after)
    again = next_park(parked, late, HOST)
    step = STEPS_MS[parked.queue_id - MAX_LEVELS]
    assert (again is None) == (step + late >= after)


def test_steps_are_long_ones_first() -> None:
    assert steps_of(10_000)[0] == [10_000]
    assert steps_of(9_940)[0] == [10_000]
    assert steps_of(9_890)[0] == [9_000, 900]
    assert steps_of(83_400)[0][:2] == [60_000, 23_000]
    assert steps_of(60_000)[0][0] == 59_000, "a minute may be late by more than a tenth of a second"
    hours, rest = itertools.tee(steps_of(86_400_000)[0])
    assert sum(step == 3_600_000 for step in hours) == 23
    assert max(rest) == 3_600_000, "what waits keeps the log for an hour at most"


@given(AFTER)
def test_no_step_is_longer_than_what_is_left(left_ms: int) -> None:
    assert STEPS_MS[next_step(left_ms)] < left_ms + 100


@pytest.mark.parametrize(
    ("asked", "due_ms"),
    [
        ({}, None),
        ({"TIMER_DELAY_SEC": "3"}, NOW_MS + 3_000),
        ({"TIMER_DELAY_MS": "3"}, NOW_MS + 3),
        ({"TIMER_DELIVER_MS": str(NOW_MS + 7)}, NOW_MS + 7),
        ({"TIMER_DELIVER_MS": str(NOW_MS)}, None),
        ({"TIMER_DELIVER_MS": "1"}, None),
        ({"TIMER_DELAY_SEC": "2", "TIMER_DELIVER_MS": "1"}, NOW_MS + 2_000),
        ({"TIMER_DELAY_SEC": "2", "DELAY": "1"}, None),
        ({"TIMER_DELAY_SEC": "2", "TIMER_OUT_MS": "1"}, None),
        ({"TIMER_DELAY_SEC": "3456000"}, NOW_MS + MAX_DELAY_MS),
    ],
)
def test_a_message_asks_for_one_moment(asked: dict[str, str], due_ms: int | None) -> None:
    assert wanted_time(asked, NOW_MS) == due_ms


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"TIMER_DELAY_SEC": "soon"}, "its TIMER_DELAY_SEC 'soon' is no time"),
        ({"TIMER_DELAY_MS": "-1"}, "is no time"),
        ({"TIMER_DELIVER_MS": "9" * 16}, "is no time"),
        ({"TIMER_DELAY_SEC": "3456001"}, "is more than 40 days from now"),
        ({"TIMER_DELIVER_MS": str(NOW_MS + MAX_DELAY_MS + 1)}, "is more than 40 days from now"),
    ],
)
def test_what_is_no_moment_is_refused(asked: dict[str, str], words: str) -> None:
    with pytest.raises(RecordError, match=words):
        wanted_time(asked, NOW_MS)
