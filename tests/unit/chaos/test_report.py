"""The page of a run: whole, self-contained, escaped, bounded; and it shows what matters."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from random import Random

import msgspec
import pytest
from gantry_chaos.checkers import queue, register
from gantry_chaos.checkers.availability import check, outages
from gantry_chaos.history.lines import Outcome
from gantry_chaos.history.observations import LeaderSeen, Observation, OffsetSeen, RoleSeen
from gantry_chaos.history.operations import History, Operation, Window
from gantry_chaos.plan.engine import Band
from gantry_chaos.report import series
from gantry_chaos.report.page import ReportPage, render
from gantry_chaos.report.svg import Axis, nice

VOID = {"meta", "line", "circle", "polyline", "rect", "br"}
EVIL = "<script>alert('x')</script>&\"'"


class Tree(HTMLParser):
    """Elements that are open, in order; fails on a page whose tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def count(self, tag: str, kind: str) -> int:
        return sum(
            1
            for found, attrs in self.tags
            if found == tag and kind in (attrs.get("class") or "").split()
        )


def operations() -> list[Operation]:
    """A minute of two clients with an outage of 2 s after 20 s."""
    random, found = Random(5), []
    for client in ("a", "b"):
        for at in range(0, 60_000, 50):
            down = 20_000 <= at < 22_000
            outcome: Outcome = "UNKNOWN" if down else "SUCCESS"
            took = 900 if down else int(3 + random.expovariate(0.3))
            value = f"{client}{at}"
            extra = {"position": f"orders/0@{value}"}
            found.append(Operation(client, "enqueue", outcome, value, None, at, at + took, extra))
            if not down:
                found.append(
                    Operation("c", "dequeue", "SUCCESS", value, None, at + took, at + took, extra)
                )
    return sorted(found, key=lambda one: one.called_ms)


def page(**changes: object) -> ReportPage:
    ops = operations()
    faults = (
        Band("kill-master", ("gantry/orders-broker-0",), 20.0, 23.0),
        Band("slow", ("gantry/orders-broker-1", "gantry/orders-broker-2"), 35.0, 45.0),
    )
    windows = [Window(one.fault, int(one.start_s * 1000), int(one.end_s * 1000)) for one in faults]
    seen: list[Observation] = [
        RoleSeen(0, "orders", "orders-broker-0", "master", 4),
        RoleSeen(0, "orders", "orders-broker-1", "replica"),
        RoleSeen(0, "orders", "orders-broker-2", "replica"),
        RoleSeen(20_000, "orders", "orders-broker-0", "gone"),
        RoleSeen(21_600, "orders", "orders-broker-1", "master", 5),
        RoleSeen(27_000, "orders", "orders-broker-0", "replica"),
        LeaderSeen(0, "gantry-controller-1", 3),
        *(OffsetSeen(at, "orders", "confirm", at * 90) for at in range(0, 20_000, 500)),
        *(
            OffsetSeen(at, "orders", "confirm", at * 90 - 9_000)
            for at in range(22_000, 60_000, 500)
        ),
        *(OffsetSeen(at, "orders", "tier", at // 4000 * 4000 * 88) for at in range(0, 60_000, 500)),
    ]
    cost = outages(ops, windows)
    whole = ReportPage(
        title="kill-master",
        facts={"seed": "7", "group": "orders"},
        history=History(tuple(ops), tuple(windows)),
        faults=faults,
        observations=tuple(seen),
        verdicts=(queue.check(ops), register.check_roles(seen), check(cost, limit_ms=5000)),
        outages=tuple(cost),
    )
    return msgspec.structs.replace(whole, **changes)


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    text = render(page())
    found = Tree(text)
    assert [tag for tag, _ in found.tags if tag in ("script", "link", "img", "iframe")] == []
    assert not re.search(r"(?:src|href)=|url\(|@import|https?:", text)
    assert sum(1 for tag, _ in found.tags if tag == "svg") == 1
    assert len(text) < 2_000_000


def test_the_page_shows_what_happened() -> None:
    found = Tree(render(page()))
    told = " ".join(found.texts)
    assert "kill-master: passed" in " ".join(told.split())
    for word in ("orders-broker-0", "epoch 5", "gantry-controller-1, term 3", "it bit"):
        assert word in told
    assert "orders confirm" in told
    assert "orders tier" in told
    assert found.count("rect", "band") == 2
    assert found.count("rect", "master") == 2
    assert found.count("rect", "gone") == 1
    assert found.count("circle", "unknown") == 80
    assert found.count("polyline", "p99") == 2, "nothing is drawn through the outage"
    assert re.search(r"2,\d{3} ms", told), "the write gap of the kill"


def test_what_failed_is_said() -> None:
    bad = queue.check([*operations(), Operation("c", "dequeue", "SUCCESS", "x", None, 1, 1, {})])
    told = " ".join(Tree(render(page(verdicts=(bad,)))).texts)
    assert "failed" in told
    assert "x was consumed, but nobody sent it" in told
    assert not page(verdicts=()).passed
    unproved = (msgspec.structs.replace(page().faults[0], invalid="None of 2 rules matched."),)
    told = " ".join(Tree(render(page(faults=unproved))).texts)
    assert "not proved: None of 2 rules matched." in told
    assert "kill-master: failed" in " ".join(told.split())


def test_nothing_from_outside_becomes_markup() -> None:
    evil = Operation(EVIL, "enqueue", "UNKNOWN", EVIL, None, 1, 500, {})
    text = render(
        page(
            title=EVIL,
            facts={EVIL: EVIL},
            history=History((evil,), ()),
            faults=(Band(EVIL, (EVIL,), 0.0, 1.0, EVIL),),
            observations=(
                RoleSeen(0, EVIL, EVIL, EVIL),
                LeaderSeen(0, EVIL),
                OffsetSeen(0, EVIL, EVIL, 3),
            ),
            verdicts=(queue.check([Operation("c", "dequeue", "SUCCESS", EVIL, None, 1, 1, {})]),),
            outages=(),
        )
    )
    found = Tree(text)
    assert "<script" not in text
    assert all("alert" not in name for _, attrs in found.tags for name in attrs)
    assert any(EVIL in told for told in found.texts)


@pytest.mark.parametrize("operations", [(), (operations()[0],)], ids=["none", "one"])
def test_little_is_drawn_too(operations: tuple[Operation, ...]) -> None:
    Tree(render(page(history=History(operations, ()), faults=(), observations=(), outages=())))


def test_thinning_keeps_trouble_and_spikes() -> None:
    ops = [
        Operation("a", "enqueue", "SUCCESS", str(n), None, n, n + (5000 if n == 7777 else 3), {})
        for n in range(20_000)
    ]
    ops[123] = msgspec.structs.replace(ops[123], outcome="FAILURE")
    drawn = series.points(ops, "enqueue", most=500)
    assert len(drawn) <= 500
    assert [point.at_ms for point in drawn if point.outcome == "FAILURE"] == [123]
    assert max(point.took_ms for point in drawn) == 5000
    everything_failed = [msgspec.structs.replace(one, outcome="UNKNOWN") for one in ops]
    assert len(series.points(everything_failed, "enqueue", most=500)) == 500


def test_offsets_are_thinned_but_end_where_they_end() -> None:
    (curve,) = series.curves([OffsetSeen(n, "g", "confirm", n) for n in range(9_999)])
    assert len(curve.points) <= series.OFFSETS_MAX + 1
    assert curve.points[-1] == (9_998, 9_998)


def test_bars_end_where_the_next_begins() -> None:
    seen = [
        RoleSeen(0, "g", "b", "replica"),
        RoleSeen(5, "g", "b", "replica"),
        RoleSeen(10, "g", "b", "master", 2),
    ]
    found = [(bar.start_ms, bar.end_ms, bar.label) for bar in series.bars(seen, 99)]
    assert found == [(0, 10, "replica"), (10, 99, "epoch 2")]


def test_bars_are_bounded() -> None:
    flapping = [RoleSeen(n, "g", "b", "master", n) for n in range(5000)]
    assert len(series.bars(flapping, 99_999)) == series.BARS_MAX


@pytest.mark.parametrize(
    ("value", "expected"), [(0.7, 1), (1, 1), (1.1, 2), (3, 5), (7, 10), (0.03, 0.05), (120, 200)]
)
def test_round_steps(value: float, expected: float) -> None:
    assert nice(value) == pytest.approx(expected)


def test_the_axis_keeps_everything_inside() -> None:
    axis = Axis(1000, 2000)
    assert axis.x(0) == axis.x(1000) < axis.x(1500) < axis.x(2000) == axis.x(9000)
    assert [label for _, label in axis.ticks()][:2] == ["0 s", "0.1 s"]
