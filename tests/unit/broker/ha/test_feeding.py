"""The pace at which a replica that is behind is filled: bounded, and above the log's growth."""

from __future__ import annotations

import pytest
from gantry_broker.ha.feeding import FeedRate
from gantry_protocol.types import Offset

RATE = 1_000_000


def sent_in(seconds: float, step_s: float, grows_per_s: int) -> int:
    """Bytes that a link that always has something to send gets, in messages of 1,000."""
    sent, end = 0, 10**9
    pace = FeedRate(RATE, 20_000, 0.0, Offset(end))
    for turn in range(int(seconds / step_s)):
        end += int(grows_per_s * step_s)
        while pace.room(turn * step_s, Offset(end)) > 0:
            pace.spend(1_000)
            sent += 1_000
    return sent


@pytest.mark.parametrize("step_s", [0.0001, 0.001, 0.004])
@pytest.mark.parametrize("grows_per_s", [0, 300_000, 900_000])
def test_so_much_in_a_second_beyond_what_the_log_grows(step_s: float, grows_per_s: int) -> None:
    sent = sent_in(2.0, step_s, grows_per_s)
    expected = 2 * (RATE + grows_per_s)
    assert expected * 0.98 <= sent <= expected * 1.02 + 20_000


def test_what_was_not_used_is_kept_up_to_a_burst() -> None:
    pace = FeedRate(RATE, 5_000, 1.0, Offset(9_000))
    pace.spend(100_000)
    assert pace.room(60.0, Offset(9_000)) == 5_000
    assert pace.room(61.0, Offset(10**9)) == 5_000, "of what the log has grown, too"


def test_it_says_how_long_until_there_is_room() -> None:
    pace = FeedRate(RATE, 5_000, 1.0, Offset(9_000))
    assert pace.wait_s == 0
    pace.spend(7_000)
    assert pace.wait_s == pytest.approx(0.002)
    assert pace.room(1.0 + pace.wait_s, Offset(9_000)) == pytest.approx(0, abs=1e-6)


def test_a_log_that_was_cut_takes_nothing_back() -> None:
    pace = FeedRate(RATE, 5_000, 1.0, Offset(9_000))
    assert pace.room(1.0, Offset(100)) == 5_000
