"""Times of syncs as a histogram, of one writer and of several."""

from __future__ import annotations

import pytest
from gantry_protocol.process.sync_times import BOUNDS_S, SyncTimes, sync_times


def noted(*took_s: float) -> SyncTimes:
    times = SyncTimes()
    for one in took_s:
        times.note(one)
    return times


@pytest.mark.parametrize(
    ("took_s", "bound"),
    [(0.0, "0.0001"), (0.0001, "0.0001"), (0.00011, "0.00025"), (10.0, "10"), (10.1, "+Inf")],
)
def test_a_sync_counts_for_each_bound_that_it_is_within(took_s: float, bound: str) -> None:
    samples = sync_times("a_seconds", "Text.", [noted(took_s)]).samples
    counts = {s.labels["le"]: s.value for s in samples if s.name == "a_seconds_bucket"}
    within = False
    for le, count in counts.items():
        within = within or le == bound
        assert count == within, le
    assert counts["+Inf"] == 1


def test_writers_of_a_process_are_one_histogram() -> None:
    samples = sync_times("a_seconds", "Text.", [noted(0.001, 0.002), noted(3.0)]).samples
    values = {(s.name, s.labels.get("le")): s.value for s in samples}
    assert values["a_seconds_bucket", "0.001"] == 1
    assert values["a_seconds_bucket", "2.5"] == 2
    assert values["a_seconds_count", None] == 3
    assert values["a_seconds_sum", None] == pytest.approx(3.003)


def test_a_process_without_a_writer_has_the_same_bounds() -> None:
    samples = sync_times("a_seconds", "Text.", []).samples
    buckets = [s.value for s in samples if s.name == "a_seconds_bucket"]
    assert buckets == [0] * (len(BOUNDS_S) + 1)
