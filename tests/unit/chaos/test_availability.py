"""Write gaps, shares and OpenChaos's RTO on made-up streams of acknowledgements."""

from __future__ import annotations

import pytest
from gantry_chaos.checkers import availability
from gantry_chaos.checkers.availability import outages, quantile
from gantry_chaos.history.lines import Outcome
from gantry_chaos.history.operations import Operation, Window

CUT = Window("cut", 10_000, 12_000)


def stream(
    client: str, start_ms: int, end_ms: int, outcome: Outcome = "SUCCESS"
) -> list[Operation]:
    """One request every 100 ms, each answered after 10 ms."""
    return [
        Operation(client, "enqueue", outcome, str(at), None, at, at + 10, {})
        for at in range(start_ms, end_ms, 100)
    ]


def history(*streams: list[Operation]) -> list[Operation]:
    return sorted((one for part in streams for one in part), key=lambda one: one.called_ms)


STEADY = history(stream("a", 0, 10_000), stream("b", 0, 10_000))


def test_the_worst_client_counts_not_the_luckiest() -> None:
    """`a` is served again after 500 ms, `b` after 4 s: OpenChaos would say less than a second."""
    ops = history(
        STEADY,
        stream("a", 10_500, 30_000),
        stream("b", 10_000, 13_900, "UNKNOWN"),
        stream("b", 13_900, 30_000),
    )
    (found,) = outages(ops, [CUT])
    assert found.baseline_ms == 100
    assert found.worst_ms == 4_000 - 100
    assert found.median_ms == (600 - 100 + 3_900) / 2
    assert found.rto_ms == 510
    assert found.before == 1.0
    assert found.during == pytest.approx(15 / 35)
    assert availability.check([found]).passed
    assert availability.check([found], limit_ms=5_000).passed
    late = availability.check([found], limit_ms=3_000)
    assert late.violations == ("cut: a client could not write for 3900 ms, 3000 ms are allowed.",)


def test_an_outage_that_begins_late_or_outlasts_the_heal_counts() -> None:
    ops = history(stream("a", 0, 11_500), stream("a", 15_000, 30_000))
    assert outages(ops, [CUT])[0].worst_ms == 3_600 - 100


def test_a_client_that_is_never_served_again_is_no_short_outage() -> None:
    ops = history(STEADY, stream("a", 10_500, 30_000))
    (found,) = outages(ops, [CUT])
    assert found.worst_ms is None
    assert "cut: a client was never served again." in availability.check([found]).violations


def test_nothing_before_proves_nothing_after() -> None:
    ops = history(stream("a", 0, 10_000, "UNKNOWN"), stream("a", 10_000, 30_000))
    (found,) = outages(ops, [CUT])
    assert found.before == 0.0
    told = availability.check([found]).violations
    assert told == ("cut: 0.0% of the requests before it succeeded: it says nothing.",)
    (first,) = outages(stream("a", 10_000, 30_000), [CUT])
    assert not availability.check([first]).passed


def test_a_request_that_is_under_way_at_a_fault_is_not_one_before_it() -> None:
    """Of few slow requests one would be more than may fail before, and it failed by the fault."""
    struck = Operation("a", "enqueue", "UNKNOWN", "struck", None, 9_950, 10_400, {})
    ops = history(stream("a", 0, 9_900), [struck], stream("a", 10_500, 30_000))
    (found,) = outages(ops, [CUT])
    assert found.before == 1.0
    failed = Operation("a", "enqueue", "UNKNOWN", "failed", None, 9_950, 9_990, {})
    (found,) = outages(history(ops, [failed]), [CUT])
    assert found.before is not None
    assert found.before < 1.0


def test_without_a_gap_there_is_none() -> None:
    (found,) = outages(stream("a", 0, 30_000), [CUT])
    assert (found.worst_ms, found.rto_ms) == (0.0, None)


def test_a_gap_belongs_to_one_fault_only() -> None:
    again = Window("again", 20_000, 21_000)
    ops = history(stream("a", 0, 20_000), stream("a", 23_000, 60_000))
    first, second = outages(ops, [CUT, again])
    assert first.worst_ms == 0.0
    assert second.worst_ms == 3_100 - 100
    assert second.before == 1.0


def test_a_fault_without_an_end_lasts_to_the_end() -> None:
    (found,) = outages(stream("a", 0, 30_000), [Window("cut", 10_000, None)])
    assert found.during == 1.0
    assert found.after is None


def test_quantiles() -> None:
    assert quantile([5.0], 0.99) == 5.0
    assert quantile([float(n) for n in range(1, 101)], 0.99) == 99.0
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
