"""The tier in the status: the master's word, told once, and quiet while nothing turns."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from gantry_operator.models import BrokerGroup, BrokerGroupStatus
from gantry_operator.plan import plan
from gantry_operator.plan.actions import CheckAgain, EmitEvent, WriteStatus
from gantry_operator.plan.observed import BrokerObserved
from gantry_operator.plan.tier import REFRESH_S
from gantry_protocol.admin import GroupView, TierView
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.operator.world import (
    NOW,
    broker_world,
    brokers,
    changed,
    member,
    of_type,
    pod,
    settled_status,
    told,
    view,
    with_status,
)

URL = "s3://orders-log/tier"
DENIED = "man/ in s3://orders-log/tier: 403 Forbidden (AccessDenied)."
WELL = TierView(state="uploading", epoch=4, committed_offset=900, lag_ms=1_700, version=7)


def tiered(**spec: Any) -> BrokerGroup:
    return brokers(tier={"url": URL}, **spec)


def with_tier(tier: TierView | None, *, master: int = 1, epoch: int = 4, **facts: Any) -> GroupView:
    """Three members, of which the master says this."""
    members = [member(n, tier=tier if n == master else STANDBY, **facts) for n in (1, 2, 3)]
    return view(*members, master_broker_id=master, master_epoch=epoch)


STANDBY = TierView(state="standby")


def world(tier: TierView | None = WELL, **facts: Any) -> BrokerObserved:
    return broker_world(tiered(), known=with_tier(tier, **facts))


def says(**facts: Any) -> TierView:
    return WELL.model_copy(update=facts)


def failing(**facts: Any) -> TierView:
    """A master that has not claimed the tier."""
    return TierView(state="backoff", epoch=4, reason=DENIED).model_copy(update=facts)


CONDITIONS = [
    pytest.param(world(), "True", "Uploading", "orders-broker-0 uploads at epoch 4", id="well"),
    pytest.param(
        world(says(state="backoff", reason=DENIED)),
        "True",
        "Uploading",
        "uploads",
        id="a store that fails now and then",
    ),
    pytest.param(
        world(says(state="stalled", reason=DENIED)),
        "False",
        "Stalled",
        "for a minute: man/ in s3://orders-log/tier: 403 Forbidden (AccessDenied).",
        id="stalled",
    ),
    pytest.param(
        world(failing()), "False", "Stalled", f"take the upload over: {DENIED}", id="cannot claim"
    ),
    pytest.param(
        world(failing(state="claiming")),
        "False",
        "Stalled",
        DENIED,
        id="cannot claim, and tries again",
    ),
    pytest.param(world(failing(reason="")), "Unknown", "Claiming", "epoch 4", id="claiming"),
    pytest.param(
        world(says(state="halted", committed_offset=None, reason="another group's prefix.")),
        "False",
        "Halted",
        "a person has to look: another group's prefix.",
        id="halted",
    ),
    pytest.param(
        world(says(state="halted", epoch=2, committed_offset=None, reason="damaged")),
        "False",
        "Halted",
        "damaged",
        id="halted in an earlier epoch",
    ),
    pytest.param(
        world(says(state="unreadable", reason="1 of 9 packs cannot be read.")),
        "False",
        "Unreadable",
        "uploads, and cannot read all that the tier should hold: 1 of 9 packs cannot be read.",
        id="a hole",
    ),
    pytest.param(
        world(says(state="shortened", reason="the oldest objects were removed")),
        "False",
        "HistoryRemoved",
        "the oldest objects were removed.",
        id="a rule of the bucket",
    ),
    pytest.param(
        world(says(state="fenced", committed_offset=None, reason="epoch 9")),
        "False",
        "Fenced",
        "epoch 9",
        id="fenced",
    ),
    pytest.param(
        world(says(state="fenced", epoch=3, committed_offset=None, reason="epoch 9")),
        "Unknown",
        "Claiming",
        "takes the upload over",
        id="fenced before it was elected again",
    ),
    pytest.param(
        world(says(epoch=3)), "Unknown", "Claiming", "epoch 4", id="a report of an earlier epoch"
    ),
    pytest.param(world(STANDBY), "Unknown", "Claiming", "takes", id="just elected"),
    pytest.param(world(None), "Unknown", "NotReported", "orders-broker-0", id="not restarted yet"),
    pytest.param(
        broker_world(tiered(), known=with_tier(WELL, alive=False)),
        "Unknown",
        "NoMaster",
        "no master",
        id="dead master",
    ),
    pytest.param(
        broker_world(tiered(), known=view(master_broker_id=None)),
        "Unknown",
        "NoMaster",
        "no master",
        id="no master",
    ),
    pytest.param(
        broker_world(tiered(), known=NotDeclared()), "Unknown", "NoMaster", "", id="undeclared"
    ),
    pytest.param(
        changed(with_status(world()), view=Unreachable("nobody answers")),
        "Unknown",
        "ControllerUnreachable",
        "nobody answers",
        id="controllers lost",
    ),
]


@pytest.mark.parametrize(("seen", "status", "reason", "words"), CONDITIONS)
def test_the_condition(seen: BrokerObserved, status: str, reason: str, words: str) -> None:
    got_status, got_reason, message = told(seen, "TierHealthy")
    assert (got_status, got_reason) == (status, reason)
    assert words in message
    assert ".." not in message


def test_a_group_without_a_tier_has_neither_condition_nor_status() -> None:
    status = settled_status(broker_world(known=with_tier(WELL)))
    assert "TierHealthy" not in [c["type"] for c in status["conditions"]]
    assert "tier" not in status


def test_the_status_is_the_masters_word() -> None:
    assert settled_status(world())["tier"] == {
        "uploader": 0,
        "epoch": 4,
        "committedOffset": 900,
        "lagSeconds": 1,
        "observedAt": "2026-11-21T12:00:00Z",
    }


def test_a_deposed_masters_word_is_worth_nothing() -> None:
    members = (member(1, tier=WELL), member(2, tier=failing(epoch=5)), member(3))
    known = view(*members, master_broker_id=2, master_epoch=5)
    seen = changed(with_status(world()), view=known)
    assert told(seen, "TierHealthy")[:2] == ("False", "Stalled")
    assert settled_status(seen)["tier"]["epoch"] == 4, "the last one who held it"


def test_a_claim_of_an_earlier_epoch_is_not_the_present_one() -> None:
    """A master that is elected again has not spoken of its new epoch yet."""
    stale = says(epoch=3, committed_offset=100, version=2)
    seen = changed(with_status(world()), view=with_tier(stale, master=2, epoch=5))
    assert settled_status(seen)["tier"]["epoch"] == 4
    assert tier_events(seen) == []


def test_before_anybody_holds_the_tier_there_is_no_status() -> None:
    assert "tier" not in settled_status(world(failing()))
    assert "tier" not in settled_status(world(STANDBY))


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(Unreachable("lost"), id="controllers lost"),
        pytest.param(NotDeclared(), id="forgotten"),
        pytest.param(with_tier(says(state="halted", version=None, committed_offset=None)), id="up"),
        pytest.param(with_tier(WELL, alive=False), id="master lost"),
    ],
)
def test_how_far_it_came_is_not_forgotten(known: Any) -> None:
    before = with_status(world())
    assert settled_status(changed(before, view=known))["tier"]["committedOffset"] == 900


def test_an_invalid_spec_keeps_what_was_known() -> None:
    before = with_status(world())
    after = settled_status(changed(before, group=None, invalid="bad"))
    assert after["tier"] == before.live_status["tier"]
    assert told(changed(before, group=None, invalid="bad"), "TierHealthy")[0] == "True"


def test_the_end_is_kept_while_a_new_master_compares_its_log() -> None:
    claimed = TierView(state="reconciling", epoch=5, version=8)
    seen = changed(with_status(world()), view=with_tier(claimed, master=2, epoch=5))
    tier = settled_status(seen)["tier"]
    assert (tier["uploader"], tier["epoch"], tier["committedOffset"]) == (1, 5, 900)


def test_an_uploader_keeps_its_ordinal_while_its_pod_is_replaced() -> None:
    before = with_status(world())
    later = NOW + dt.timedelta(seconds=REFRESH_S)
    replaced = changed(before, pods=(pod(0, uid="fresh"), pod(1), pod(2)))
    (written,) = of_type(plan(replaced, later), WriteStatus)
    assert written.status["tier"]["uploader"] == 0


# ---- events


def events(seen: BrokerObserved) -> list[tuple[str, str, str]]:
    return [(e.type, e.reason, e.note) for e in of_type(plan(seen, NOW), EmitEvent)]


def tier_events(seen: BrokerObserved) -> list[tuple[str, str, str]]:
    return [e for e in events(seen) if e[1] in ("TierClaimed", "Stalled", "Halted", "Fenced")]


def test_each_claim_is_an_event() -> None:
    first = ("Normal", "TierClaimed", "orders-broker-0 uploads to the tier from epoch 4 on.")
    assert tier_events(world()) == [first]
    again = with_status(world())
    assert tier_events(again) == []
    moved = changed(again, view=with_tier(says(epoch=5), master=3, epoch=5))
    second = ("Normal", "TierClaimed", "orders-broker-2 uploads to the tier from epoch 5 on.")
    assert tier_events(moved) == [second]
    assert tier_events(with_status(moved)) == []


def test_a_claim_of_the_same_replica_in_a_later_epoch_is_another_one() -> None:
    again = changed(with_status(world()), view=with_tier(says(epoch=6), epoch=6))
    assert [e[1] for e in tier_events(again)] == ["TierClaimed"]


def test_what_stops_the_upload_is_a_warning_once() -> None:
    seen = changed(with_status(world()), view=with_tier(says(state="stalled", reason=DENIED)))
    ((kind, reason, note),) = tier_events(seen)
    assert (kind, reason) == ("Warning", "Stalled")
    assert DENIED in note
    assert tier_events(with_status(seen)) == []


# ---- a status that keeps still

volatile = st.builds(
    TierView,
    state=st.sampled_from(["uploading", "backoff", "reconciling"]),
    epoch=st.just(4),
    committed_offset=st.integers(0, 2**62),
    lag_ms=st.one_of(st.none(), st.integers(0, 10**9)),
    reason=st.sampled_from(["", DENIED, "timed out"]),
    version=st.integers(1, 2**40),
)
seconds = st.integers(0, REFRESH_S - 1)


def after(seen: BrokerObserved, known: GroupView, passed_s: float) -> list[Any]:
    return plan(changed(seen, view=known), NOW + dt.timedelta(seconds=passed_s))


@given(volatile, seconds)
def test_offsets_and_lags_alone_are_not_written_at_once(tier: TierView, passed_s: int) -> None:
    seen = with_status(world())
    assert of_type(after(seen, with_tier(tier), passed_s), WriteStatus, EmitEvent) == []


@given(volatile)
def test_they_are_written_every_half_minute_and_then_not_again(tier: TierView) -> None:
    seen = with_status(world())
    (written,) = of_type(after(seen, with_tier(tier), REFRESH_S), WriteStatus)
    assert written.status["tier"]["committedOffset"] == tier.committed_offset
    assert written.status["conditions"] == seen.live_status["conditions"]
    previous = BrokerGroupStatus.model_validate(written.status)
    told_again = changed(seen, previous=previous, live_status=written.status)
    assert of_type(after(told_again, with_tier(tier), REFRESH_S), WriteStatus) == []


@given(st.lists(st.tuples(volatile, st.integers(1, 20)), max_size=12))
@settings(deadline=None)  # a dozen plans, on a machine that has other work
def test_a_status_is_written_at_most_every_half_minute(steps: list[tuple[TierView, int]]) -> None:
    seen, passed_s, writes = with_status(world()), 0, 0
    for tier, later_s in steps:
        passed_s += later_s
        for action in of_type(after(seen, with_tier(tier), passed_s), WriteStatus):
            writes += 1
            previous = BrokerGroupStatus.model_validate(action.status)
            seen = changed(seen, previous=previous, live_status=action.status)
    assert writes <= passed_s / REFRESH_S


@pytest.mark.parametrize("state", ["backoff", "claiming", "stalled"])
def test_the_next_attempt_at_the_same_failure_is_no_news(state: str) -> None:
    def attempt(nonce: str, offset: int) -> TierView:
        reason = f"Creating pack/{offset:020d}-9-{nonce} in s3://b took longer than 20 s"
        return failing(state=state, reason=reason)

    seen = with_status(world(attempt("a" * 32, 100)))
    again = attempt("0f" * 16, 77_777)
    assert of_type(after(seen, with_tier(again), 5), WriteStatus) == []
    other = failing(state=state, reason=DENIED)
    (written,) = of_type(after(seen, with_tier(other), 5), WriteStatus)
    assert DENIED in str(written.status["conditions"])


def test_health_that_turns_is_written_at_once_with_the_offset_of_that_moment() -> None:
    seen = with_status(world())
    stalled = with_tier(says(state="stalled", reason=DENIED, committed_offset=950))
    (written,) = of_type(after(seen, stalled, 1), WriteStatus)
    assert written.status["tier"]["committedOffset"] == 950


def test_a_clock_that_was_set_back_does_not_freeze_the_status() -> None:
    seen = with_status(world())
    assert of_type(after(seen, with_tier(says(committed_offset=950)), -3600), WriteStatus)


def test_a_settled_group_with_a_tier_is_looked_at_again() -> None:
    assert of_type(plan(with_status(world()), NOW), CheckAgain) == [CheckAgain(after_s=REFRESH_S)]
    assert of_type(plan(with_status(broker_world()), NOW), CheckAgain) == []


# ---- what is refused


def uploaded(url: str = URL) -> BrokerObserved:
    """A group that has uploaded something there."""
    return with_status(broker_world(brokers(tier={"url": url}), known=with_tier(WELL)))


@pytest.mark.parametrize(
    "tier", [None, {"url": "s3://elsewhere"}], ids=["taken out", "another place"]
)
def test_the_place_is_fixed_once_something_was_uploaded(tier: dict[str, Any] | None) -> None:
    spec = {} if tier is None else {"tier": tier}
    seen = changed(uploaded(), group=brokers(**spec))
    status, reason, message = told(seen, "Accepted")
    assert (status, reason) == ("False", "ImmutableFieldChanged")
    assert f"set it back to {URL}" in message


def test_a_place_where_nothing_lies_can_be_corrected() -> None:
    empty = says(committed_offset=0, version=1)
    seen = with_status(broker_world(tiered(), known=with_tier(empty)))
    corrected = changed(seen, group=brokers(tier={"url": "s3://the-right-one"}))
    assert told(corrected, "Accepted")[:2] == ("True", "Valid")


def test_keys_and_sizes_can_change() -> None:
    wish = {"url": URL, "credentialsSecret": {"name": "new"}, "packBytes": 8192, "lingerMs": 500}
    assert told(changed(uploaded(), group=brokers(tier=wish)), "Accepted")[0] == "True"


def test_a_directory_is_refused_where_pods_do_not_share_it() -> None:
    group = brokers(tier={"url": "file:///tier"})
    seen = broker_world(group, known=with_tier(WELL))
    status, reason, message = told(seen, "Accepted")
    assert (status, reason) == ("False", "InvalidSpec")
    assert "use s3://BUCKET" in message
    assert told(changed(seen, directory_tiers=True), "Accepted")[0] == "True"
