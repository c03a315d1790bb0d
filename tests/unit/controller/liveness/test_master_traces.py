"""The leader's part in the traces of changes of master."""

from __future__ import annotations

import pytest
from gantry_controller.liveness.core.courses import ASKED, MasterChange
from gantry_controller.liveness.master_traces import MasterTraces
from gantry_controller.metadata.state import BrokerGroup
from gantry_protocol.tracing.export import SpanExport
from gantry_protocol.tracing.masters import Change
from gantry_protocol.types import Epoch
from msgspec.structs import replace
from support.metadata_world import three_in_sync
from unit.controller.liveness.test_overseer import KEY

MS = 1_000_000


class Traced(MasterTraces):
    """Keeps the spans; its time is set."""

    def __init__(self) -> None:
        self.export = SpanExport("http://nowhere", {}, "1")
        self.now_ms = 0
        super().__init__(self.export, lambda: self.now_ms)

    @property
    def times(self) -> list[tuple[str, int, int]]:
        spans = self.export._queue
        return [(span.name, span.start_ns // MS, span.end_ns // MS) for span in spans]

    @property
    def reason(self) -> object:
        return self.export._queue[0].attributes.get("gantry.reason")


@pytest.fixture
async def traced() -> Traced:
    return Traced()


@pytest.fixture
def group() -> BrokerGroup:
    return replace(three_in_sync().state.groups[KEY], master_epoch=Epoch(7))


def course(**changes: object) -> MasterChange:
    seen = MasterChange(
        epoch=Epoch(7),
        planned=False,
        reason="connection closed",
        heard_ms=100,
        noticed_ms=160,
        elected_ms=175,
    )
    return replace(seen, **changes)


async def test_a_failover(traced: Traced, group: BrokerGroup) -> None:
    traced.now_ms = 170
    traced.proposed(KEY, "connection closed")
    traced.now_ms = 176
    traced.elected(group, course())
    assert traced.times == [
        ("failover", 100, 175),
        ("notice", 100, 160),
        ("decide", 160, 170),
        ("commit", 170, 175),
    ]
    assert traced.reason == "connection closed"
    change = Change(group.cluster, group.name, 7)
    assert (traced.export._queue[0].trace_id, traced.export._queue[0].span_id) == change.ids


async def test_a_hand_over_that_was_asked_for(traced: Traced, group: BrokerGroup) -> None:
    traced.elected(group, course(planned=True, reason=ASKED, heard_ms=None, noticed_ms=None))
    assert traced.times == [("hand-over", 175, 175)]
    assert traced.reason == ASKED


async def test_a_first_election_says_why(traced: Traced, group: BrokerGroup) -> None:
    traced.now_ms = 50
    traced.proposed(KEY, "first election")
    traced.now_ms = 60
    traced.elected(group, None)
    assert traced.times == [("election", 50, 60), ("commit", 50, 60)]
    assert traced.reason == "first election"


async def test_a_proposal_that_has_ended_is_no_part_of_a_later_change(
    traced: Traced, group: BrokerGroup
) -> None:
    traced.now_ms = 10
    traced.proposed(KEY, "connection closed")
    traced.settled(KEY)
    traced.elected(group, course())
    assert [name for name, *_ in traced.times] == ["failover", "notice", "decide"]
    assert traced.times[-1] == ("decide", 160, 175)


async def test_tracing_that_is_switched_on_amid_a_change_knows_when_it_was_proposed(
    traced: Traced, group: BrokerGroup
) -> None:
    traced.export.point_to(None)
    traced.now_ms = 170
    traced.proposed(KEY, "connection closed")
    traced.elected(group, course())
    assert traced.times == []
    assert not +traced.export.dropped, "nobody wanted it"
    traced.export.point_to("http://nowhere")
    traced.elected(group, course())
    assert ("commit", 170, 175) in traced.times
