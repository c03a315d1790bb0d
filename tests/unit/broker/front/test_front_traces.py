"""Traced sends of a front and the master's part in them, over a link without a network."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from gantry_broker.clients.traced_sends import OpenSends
from gantry_broker.remote import messages as wire
from gantry_protocol.codes import ResponseCode
from gantry_protocol.records import MessageRecord
from gantry_protocol.tracing.export import UNFINISHED
from gantry_protocol.tracing.spans import Span
from unit.broker.clients.test_traced_sends import NOT_SAMPLED, SAMPLED, SPAN, TRACE, Clock, Kept
from unit.broker.front.test_front_asides import Front


class Traced(Front):
    """A front and a master that trace what they are told to."""

    def __init__(self, directory: Path, *, masters: bool = True) -> None:
        super().__init__(directory)
        clock = Clock()
        self.ours, self.masters = Kept(), Kept()
        self.sends = OpenSends(self.ours, 0.0, "g", clock, drawn=lambda: 0.5)
        self.at_master = OpenSends(self.masters, 1.0, "g", clock)
        if masters:
            self.group.session._traced_now = lambda: self.at_master
        self.asides.trace(self.sends)

    def appends(self) -> list[wire.AppendRecords]:
        return [said for said in self.group.heard if isinstance(said, wire.AppendRecords)]


@pytest.fixture
async def front(tmp_path: Path) -> Traced:
    return Traced(tmp_path)


def named(spans: list[Span]) -> dict[str, Span]:
    return {span.name: span for span in spans}


async def test_a_send_is_one_trace_of_both(front: Traced) -> None:
    front.group.holding = True
    assert front.send(i=SAMPLED)
    front.at_master.flushed(front.group.messages.log.end)
    front.group.confirm()
    ours, masters = front.ours.parts, front.masters.parts
    assert list(ours) == ["SendMessage", "queue", "store", "answer"]
    assert list(masters) == ["StoreRecord", "queue", "append", "replicate", "answer"]
    root, asked, stored = ours["SendMessage"], ours["store"], masters["StoreRecord"]
    assert (root.trace_id, root.parent_id) == (int(TRACE, 16), int(SPAN, 16))
    assert {span.trace_id for span in (*ours.values(), *masters.values())} == {root.trace_id}
    assert (asked.parent_id, stored.parent_id) == (root.span_id, asked.span_id)
    assert [int(span.kind) for span in (root, asked, stored)] == [2, 3, 2]
    assert masters["append"].start_ns < masters["replicate"].start_ns < masters["append"].end_ns
    # Here an answer comes amid the master's telling; the master makes its spans behind it.
    assert asked.start_ns < stored.start_ns < masters["replicate"].end_ns < asked.end_ns
    assert asked.end_ns == ours["answer"].start_ns
    assert stored.attributes["messaging.destination.name"] == "TopicTest"
    assert stored.attributes["gantry.response_code"] == 0
    assert (len(front.sends), front.at_master.watched) == (0, 0)


@pytest.mark.parametrize("properties", ["", NOT_SAMPLED])
async def test_what_a_front_does_not_trace_the_master_does_not(
    front: Traced, properties: str
) -> None:
    """Though its own ratio is 1: it was decided."""
    assert front.send(i=properties)
    assert (front.ours.traces, front.masters.traces) == ([], [])
    (said,) = front.appends()
    assert said.parents == {}


async def test_each_send_of_a_turn_has_its_own_parent(front: Traced) -> None:
    front.group.turn = []
    for properties in (SAMPLED, NOT_SAMPLED, SAMPLED):
        assert front.send(i=properties)
    front.group.end_turn()
    (said,) = front.appends()
    assert list(said.parents) == [0, 2]
    asked = [named(spans)["store"].span_id for spans in front.ours.traces]
    stored = [named(spans)["StoreRecord"].parent_id for spans in front.masters.traces]
    assert asked == stored
    assert len(set(asked)) == 2


async def test_a_send_that_is_refused_here_names_no_parent_to_the_next(front: Traced) -> None:
    assert front.send(b"", i=SAMPLED), "its body is empty"
    assert front.answers()[-1].code == ResponseCode.MESSAGE_ILLEGAL
    (spans,) = front.ours.traces
    assert "empty" in str(spans[0].error)
    assert front.send(i=NOT_SAMPLED)
    (said,) = front.appends()
    assert said.parents == {}


async def test_a_master_without_tracing_stores_all_the_same(tmp_path: Path) -> None:
    front = Traced(tmp_path, masters=False)
    assert front.send(i=SAMPLED)
    assert front.answers()[-1].code == 0
    assert front.masters.traces == []
    assert len(front.ours.traces) == 1


async def test_a_master_that_traces_from_now_on_traces_fronts_that_are_there(
    tmp_path: Path,
) -> None:
    front = Traced(tmp_path, masters=False)
    assert front.send(i=SAMPLED)
    front.group.session._traced_now = lambda: front.at_master
    front.group.holding = True
    assert front.send(i=SAMPLED)
    front.group.session._traced_now = lambda: None  # and no more, amid that one
    front.group.confirm()
    assert front.send(i=SAMPLED)
    front.group.confirm()
    assert len(front.ours.traces) == 3
    assert list(front.masters.parts) == ["StoreRecord", "queue", "append", "replicate", "answer"]
    assert front.at_master.watched == 0


async def test_a_front_that_is_told_to_trace_goes_on_where_it_was(tmp_path: Path) -> None:
    front = Front(tmp_path)
    front.group.holding = True
    before = front.asides._sender
    assert front.send(i=SAMPLED), "begun untraced"
    ours = Kept()
    front.asides.trace(OpenSends(ours, 0.0, "g"))
    assert front.asides._sender._unique_keys is before._unique_keys, "keys are given once"
    assert front.asides._sender._turn is before._turn
    assert front.send(i=SAMPLED)
    front.group.confirm()
    assert [answer.code for answer in front.answers()] == [0, 0]
    assert len(ours.traces) == 1
    front.asides.close()


async def test_a_front_that_is_told_to_trace_no_more_ends_what_is_under_way(front: Traced) -> None:
    front.group.holding = True
    assert front.send(i=SAMPLED)
    front.ours.point_to(None)
    assert front.send(i=SAMPLED)
    front.group.confirm()
    assert (len(front.ours.traces), len(front.sends)) == (1, 0)
    assert [list(said.parents) for said in front.appends()] == [[0], []]
    front.ours.point_to("http://nowhere")
    assert front.send(i=SAMPLED)
    front.group.confirm()
    assert len(front.ours.traces) == 2


@pytest.mark.parametrize("parent", ["", "no parent", f"00-{TRACE}-{SPAN}-00"])
async def test_a_parent_that_is_none_is_left_out(front: Traced, parent: str) -> None:
    record = _stored(front)
    front.group.held_answers = []  # of a send that the front knows nothing of
    named = {0: parent, 7: f"00-{TRACE}-{SPAN}-01", -1: f"00-{TRACE}-{SPAN}-01"}
    front.group.session.received(wire.AppendRecords(2, [record], named))
    assert front.masters.traces == []
    assert front.at_master.watched == 0


async def test_what_is_open_when_the_link_ends_is_counted_and_forgotten(front: Traced) -> None:
    front.group.holding = True
    assert front.send(i=SAMPLED)
    assert front.at_master.watched == 1
    front.asides.close()
    front.group.cut()
    assert front.at_master.watched == 0
    assert front.masters.dropped[UNFINISHED] == 1
    assert front.ours.dropped[UNFINISHED] == 1
    assert (front.ours.traces, front.masters.traces) == ([], [])


class OlderAppend(msgspec.Struct, tag=8, frozen=True, array_like=True):
    """The frame of sends before it had parents."""

    number: int
    records: list[MessageRecord]


async def test_versions_of_a_front_and_a_master_may_differ() -> None:
    record = MessageRecord(topic="t", body=b"x")
    newer = wire.AppendRecords(3, [record], {0: SAMPLED})
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(newer), type=OlderAppend)
    assert read == OlderAppend(3, [record])
    older = msgspec.msgpack.encode(OlderAppend(3, [record]))
    assert msgspec.msgpack.decode(older, type=wire.AppendRecords) == wire.AppendRecords(3, [record])


def _stored(front: Traced):  # type: ignore[no-untyped-def]
    assert front.send()
    (said,) = front.appends()
    return said.records[0]
