"""Delay levels as text, and what a parked record's queue entry says."""

from __future__ import annotations

import pytest
from gantry_broker.clients.core.delay.levels import DelayLevels
from gantry_protocol.records import entry_code
from gantry_protocol.records.properties import SCHEDULE_TOPIC
from gantry_protocol.settings.defaults import DELAY_LEVELS


def test_the_default_levels_are_upstreams() -> None:
    levels = DelayLevels.parse(DELAY_LEVELS)
    minutes = [60_000 * count for count in (*range(1, 11), 20, 30, 60, 120)]
    assert levels.delays_ms == (1_000, 5_000, 10_000, 30_000, *minutes)
    assert len(levels.delays_ms) == 18


@pytest.mark.parametrize(("level", "clamped"), [(1, 1), (18, 18), (19, 18), (2**31, 18)])
def test_a_level_beyond_the_highest_is_the_highest(level, clamped) -> None:
    assert DelayLevels.parse(DELAY_LEVELS).clamp(level) == clamped


@pytest.mark.parametrize(
    ("text", "delays_ms"),
    [("50ms", (50,)), ("1s 2m", (1_000, 120_000)), (" 3h\t1d ", (10_800_000, 86_400_000))],
)
def test_units(text, delays_ms) -> None:
    assert DelayLevels.parse(text).delays_ms == delays_ms


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "not 0", id="none"),
        pytest.param("1s " * 65, "not 65", id="too many"),
        pytest.param("1s 5", "'5' is no delay", id="no unit"),
        pytest.param("0s", "'0s' is no delay", id="zero"),
        pytest.param("-1s", "no delay", id="negative"),
        pytest.param("1.5s", "no delay", id="fraction"),
        pytest.param("41d", "longer than 40 days", id="too long"),
    ],
)
def test_what_is_no_list_of_levels_is_refused_in_words(text, words) -> None:
    with pytest.raises(ValueError, match=words):
        DelayLevels.parse(text)


@pytest.mark.parametrize(
    ("topic", "properties", "code"),
    [
        # Golden: a captured delay entry ends with 000001a1fcb410c4, a second after storing.
        (SCHEDULE_TOPIC, "TAGS\x01TagA\x02__GANTRY_DELAY_MS\x011000\x02", 0x1A1FCB410C4),
        (SCHEDULE_TOPIC, "", 0x1A1FCB410C4 - 1000),
        (SCHEDULE_TOPIC, "__GANTRY_DELAY_MS\x01soon\x02", 0x1A1FCB410C4 - 1000),
        ("TopicTest", "TAGS\x01TagA\x02__GANTRY_DELAY_MS\x011000\x02", 2598919),
        ("TopicTest", "", 0),
    ],
    ids=["delivery time", "no delay", "damaged delay", "tag elsewhere", "no tag"],
)
def test_the_code_of_a_queue_entry(topic, properties, code) -> None:
    stored_ms = 0x1A1FCB410C4 - 1000
    assert entry_code(topic.encode(), properties.encode(), stored_ms) == code
