"""A new master's part in the trace of a change of master."""

from __future__ import annotations

import pytest
from gantry_broker.host.tracing import TakeoverTrace
from gantry_protocol.tracing.export import SpanExport
from gantry_protocol.tracing.masters import Change
from gantry_protocol.tracing.spans import Span

MS = 1_000_000


class Taken(TakeoverTrace):
    """Keeps the spans; its time is set."""

    def __init__(self) -> None:
        self.export = SpanExport("http://nowhere", {}, "1")
        self.now_ms = 0
        super().__init__(self.export, "c", "g", lambda: self.now_ms)

    def at(self, now_ms: int) -> Taken:
        self.now_ms = now_ms
        return self

    @property
    def spans(self) -> list[Span]:
        return list(self.export._queue)

    @property
    def times(self) -> list[tuple[str, int, int]]:
        return [(span.name, span.start_ns // MS, span.end_ns // MS) for span in self.spans]


@pytest.fixture
async def taken() -> Taken:
    return Taken()


async def test_from_the_word_to_the_first_write(taken: Taken) -> None:
    taken.at(100).told(7)
    taken.at(105).told(7)  # it is told again while it makes its epoch durable
    taken.at(110).promoted(7)
    assert taken.waits
    taken.at(300).wrote(250)
    assert not taken.waits
    assert taken.times == [("promote", 100, 110), ("first write", 110, 250)]
    assert {(span.trace_id, span.parent_id) for span in taken.spans} == {Change("c", "g", 7).ids}


async def test_each_mastership_has_a_trace_of_its_own(taken: Taken) -> None:
    for epoch in (7, 9):
        taken.told(epoch)
        taken.promoted(epoch)
        taken.ended()
    assert [span.trace_id for span in taken.spans] == [Change("c", "g", n).ids[0] for n in (7, 9)]


async def test_a_mastership_that_never_wrote_has_no_first_write(taken: Taken) -> None:
    taken.at(100).told(7)
    taken.at(110).promoted(7)
    taken.ended()
    assert not taken.waits
    taken.wrote(200)
    assert taken.times == [("promote", 100, 110)]


async def test_a_promotion_that_came_to_nothing_is_no_part(taken: Taken) -> None:
    taken.at(100).told(7)
    taken.at(200).told(8)
    taken.at(210).promoted(8)
    assert taken.times == [("promote", 200, 210)]


async def test_serving_again_after_a_damage_is_no_second_promotion(taken: Taken) -> None:
    taken.at(100).promoted(7)
    taken.at(200).promoted(7)
    assert taken.times == [("promote", 100, 100)]


async def test_a_takeover_amid_which_tracing_is_switched_on_has_its_beginning(
    taken: Taken,
) -> None:
    taken.export.point_to(None)
    taken.at(100).told(7)
    taken.export.point_to("http://nowhere")
    taken.at(110).promoted(7)
    taken.at(300).wrote(250)
    assert taken.times == [("promote", 100, 110), ("first write", 110, 250)]


async def test_a_takeover_that_ended_untraced_is_forgotten(taken: Taken) -> None:
    """Hours later a span of its first write would be part of nothing."""
    taken.export.point_to(None)
    taken.at(100).told(7)
    taken.at(110).promoted(7)
    taken.export.point_to("http://nowhere")
    assert not taken.waits
    taken.at(300).wrote(250)
    assert taken.times == []
    assert not +taken.export.dropped
