"""The gap of a fault: from the last acknowledgement before it to the first that came after."""

from __future__ import annotations

import pytest
from gantry_cli.client.gaps import AckTimes, Gap


def times(*seconds: float) -> AckTimes:
    acks = AckTimes()
    for second in seconds:
        acks.add(second)
    return acks


def test_gap_contains_the_fault() -> None:
    gap = times(0.0, 0.1, 0.2, 1.0, 1.1).longest(since_s=0.25)
    assert gap is not None
    assert (gap.start_s, gap.end_s) == (0.2, 1.0)
    assert gap.ms == pytest.approx(800)


def test_earlier_gap_does_not_count() -> None:
    gap = times(0.0, 5.0, 5.1, 5.4).longest(since_s=5.2)
    assert gap is not None
    assert (gap.start_s, gap.end_s) == (5.1, 5.4)


def test_gap_after_the_window_does_not_count() -> None:
    gap = times(0.0, 0.1, 0.4, 0.5, 9.0).longest(since_s=0.2, until_s=0.45)
    assert gap is not None
    assert (gap.start_s, gap.end_s) == (0.1, 0.4)


def test_acknowledgements_in_flight_at_the_fault_do_not_hide_the_gap() -> None:
    """Two answers were on their way when the master died; the silence after them is the gap."""
    gap = times(0.0, 0.1, 0.21, 0.22, 0.9).longest(since_s=0.2)
    assert gap is not None
    assert (gap.start_s, gap.end_s) == (0.22, 0.9)


@pytest.mark.parametrize("acks", [(), (0.5,), (0.1, 0.2)], ids=["none", "one", "all before"])
def test_no_gap_before_the_stream_resumes(acks: tuple[float, ...]) -> None:
    assert times(*acks).longest(since_s=0.3) is None


def test_rates_count_the_newest_steps() -> None:
    acks = times(0.05, 0.15, 0.16, 0.95)
    assert acks.rates(1.0, step_s=0.1, steps=10) == [1, 2, 0, 0, 0, 0, 0, 0, 0, 1]


def test_time_never_runs_backwards() -> None:
    with pytest.raises(AssertionError):
        times(1.0, 0.5)


def test_flowing_needs_acknowledgements_all_the_time() -> None:
    assert times(0.1, 0.3, 0.6, 0.9).flowing(1.0, for_s=1.0)
    assert not times(0.1, 0.3, 0.6).flowing(1.0, for_s=1.0)
    assert not times(0.1, 0.2, 0.9, 0.95).flowing(1.0, for_s=1.0)


def test_bounded_times_keep_the_newest_and_the_longest_gap_ever() -> None:
    acks = AckTimes(keep=3)
    for second in (0.0, 5.0, 5.1, 5.2, 5.4, 5.5):
        acks.add(second)
    assert len(acks) == 3
    assert acks.last_s == 5.5
    assert acks.longest_ever == Gap(0.0, 5.0)
    assert acks.longest(since_s=1.0) == Gap(0.0, 5.0)
    assert acks.longest(since_s=5.3) == Gap(5.2, 5.4)
    assert acks.longest(since_s=0.0, until_s=4.0) == Gap(0.0, 5.0)


def test_longest_gap_ever_answers_only_for_its_time() -> None:
    acks = AckTimes(keep=3)
    for second in (0.0, 0.1, 0.2, 5.0, 5.1, 5.2, 5.3):
        acks.add(second)
    assert acks.longest(since_s=0.0, until_s=0.15) is None  # forgotten
    assert acks.longest(since_s=6.0) is None


def test_own_pause_is_no_gap() -> None:
    acks = times(0.0, 0.1, 0.4)
    acks.interrupt()
    acks.interrupt()
    acks.add(9.0)
    assert acks.longest(since_s=0.0) == acks.longest_ever == Gap(0.1, 0.4)
    assert acks.longest(since_s=0.5) is None
    acks.add(9.2)
    assert acks.longest(since_s=0.5) == Gap(9.0, 9.2)


def test_pause_before_the_first_acknowledgement_is_none() -> None:
    acks = AckTimes()
    acks.interrupt()
    for second in (1.0, 3.0):
        acks.add(second)
    assert acks.longest_ever == Gap(1.0, 3.0)
