"""The last change and the last failover in the status: announced, carried out, proved."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from gantry_operator.models import BrokerGroupStatus
from gantry_operator.plan import plan
from gantry_operator.plan.actions import WriteStatus
from gantry_operator.plan.changes import IN_USE_MS, expected_gap_ms, gap_ms, lost_bytes
from gantry_operator.plan.foresight import HAND_OVER_MS
from gantry_protocol.admin import LossView, MastershipView
from gantry_protocol.admin_client.outcomes import Unreachable
from unit.operator.world import (
    NOW,
    OLD,
    broker_world,
    brokers,
    changed,
    member,
    pod,
    settled_status,
    shard_view,
    shard_world,
    view,
)

AT_MS = round(NOW.timestamp() * 1000)
OUTDATED = tuple(pod(n, revision=OLD) for n in range(3))
LATER = NOW + dt.timedelta(minutes=5)


def mastership(epoch: int = 5, **facts: Any) -> MastershipView:
    """A hand-over under load: 40 ms from record to record."""
    defaults: dict[str, Any] = {
        "epoch": epoch,
        "planned": True,
        "reason": "asked for",
        "elected_ms": AT_MS + 1000,
        "last_write_ms": AT_MS + 990,
        "first_write_ms": AT_MS + 1030,
    }
    return MastershipView(**(defaults | facts))


def failover(epoch: int = 5, **facts: Any) -> MastershipView:
    """A master that was killed under load."""
    defaults: dict[str, Any] = {
        "planned": False,
        "reason": "refused",
        "heard_ms": AT_MS + 500,
        "noticed_ms": AT_MS + 900,
        "elected_ms": AT_MS + 912,
        "last_write_ms": AT_MS + 830,
        "first_write_ms": AT_MS + 960,
    }
    return mastership(epoch, **(defaults | facts))


def led_by_2(told: MastershipView | None, **facts: Any) -> Any:
    return view(master_broker_id=2, master_epoch=5, mastership=told, **facts)


def written(seen: Any, now: dt.datetime = NOW) -> Any:
    """The world after the status of a plan was written; it is written once."""
    for action in plan(seen, now):
        if isinstance(action, WriteStatus):
            previous = BrokerGroupStatus.model_validate(action.status)
            seen = changed(seen, live_status=action.status, previous=previous)
    assert not [one for one in plan(seen, now) if isinstance(one, WriteStatus)], "a fixed point"
    return seen


def change(seen: Any) -> dict[str, Any]:
    found: dict[str, Any] = seen.live_status["lastChange"]
    return found


def test_a_roll_is_announced_with_its_first_step() -> None:
    seen = written(broker_world(brokers({"generation": 7}), pods=OUTDATED))
    assert change(seen) == {
        "id": "7",
        "kind": "RollingUpdate",
        "startedAt": "2026-11-21T12:00:00Z",
        "fromEpoch": 4,
        "steps": 4,
        "predictedGapMs": HAND_OVER_MS,
    }


def test_a_roll_that_is_over_and_well_is_proved() -> None:
    seen = written(broker_world(pods=OUTDATED))
    moved = written(changed(seen, view=led_by_2(mastership())))
    assert change(moved)["measuredGapMs"] == 40
    assert "finishedAt" not in change(moved), "the old master is outdated yet"
    new = tuple(pod(n) for n in range(3))
    unwell = written(changed(moved, pods=(pod(0, ready=False), *new[1:])))
    assert "finishedAt" not in change(unwell), "the last pod is not Ready"
    done = written(changed(unwell, pods=new), LATER)
    assert change(done) == change(seen) | {
        "finishedAt": "2026-11-21T12:05:00Z",
        "toEpoch": 5,
        "measuredGapMs": 40,
        "lostBytes": 0,
    }
    again = written(done, LATER + dt.timedelta(days=1))
    assert change(again) == change(done)
    assert expected_gap_ms(again.previous) == 40, "what the next one is foreseen with"


def test_the_first_record_may_come_after_the_end_and_a_later_move_is_no_part_of_it() -> None:
    seen = written(broker_world(pods=OUTDATED))
    silent = led_by_2(mastership(first_write_ms=None))
    done = written(changed(seen, pods=tuple(pod(n) for n in range(3)), view=silent), LATER)
    assert "measuredGapMs" not in change(done)
    told = written(changed(done, view=led_by_2(mastership())), LATER)
    assert change(told)["measuredGapMs"] == 40
    later = view(master_epoch=6, mastership=mastership(6, first_write_ms=AT_MS + 9_000))
    assert change(written(changed(told, view=later), LATER))["measuredGapMs"] == 40


def test_nothing_is_made_up_while_the_controllers_are_silent() -> None:
    seen = written(broker_world(pods=OUTDATED))
    lost = written(changed(seen, view=Unreachable("No answer.")), LATER)
    assert change(lost) == change(seen)
    fresh = written(changed(broker_world(pods=OUTDATED), view=Unreachable("No answer.")))
    assert "lastChange" not in fresh.live_status, "nothing was begun"


def test_a_wait_is_no_change() -> None:
    lagging = view(member(1), member(2, in_sync=False), member(3))
    kept = written(broker_world(brokers(replicas=2), replicas=3, known=lagging))
    assert "lastChange" not in kept.live_status
    waiting = (OUTDATED[0], OUTDATED[1], pod(2, ready=False))
    assert "lastChange" not in written(broker_world(pods=waiting)).live_status
    assert "lastChange" not in written(broker_world()).live_status


def test_other_kinds_of_changes() -> None:
    down = written(broker_world(brokers(replicas=1), replicas=3))
    assert (change(down)["kind"], change(down)["steps"]) == ("ScaleDown", 2)
    assert change(down)["predictedGapMs"] == 0
    asked = written(broker_world(brokers({"generation": 3}, switchover={"id": "x", "to": 1})))
    assert (change(asked)["kind"], change(asked)["id"], change(asked)["steps"]) == (
        "Switchover",
        "x",
        1,
    )
    only = written(broker_world(brokers(replicas=1), pods=(pod(0, revision=OLD),)))
    assert "predictedGapMs" not in change(only), "until the only replica is back"


def test_many_shards_are_told_by_the_worst_of_them() -> None:
    old = tuple(pod(n, role=None, shards=3, revision=OLD) for n in range(3))
    seen = written(shard_world(pods=old))
    assert change(seen)["steps"] == 6
    assert "fromEpoch" not in change(seen)
    views = {
        0: shard_view(0, mastership=mastership(4)),
        1: shard_view(1, mastership=mastership(4, first_write_ms=AT_MS + 1090)),
        2: shard_view(2, mastership=mastership(4, elected_ms=AT_MS - 1, last_write_ms=AT_MS - 900)),
    }
    moved = written(changed(shard_world(pods=old, views=views), previous=seen.previous))
    assert change(moved)["measuredGapMs"] == 100, "and not that of a move before it began"


def test_a_failover_is_told_segment_by_segment() -> None:
    seen = written(broker_world(known=led_by_2(failover())))
    assert seen.live_status["lastFailover"] == {
        "master": "orders-broker-1",
        "epoch": 5,
        "seen": "refused",
        "lastHeardAt": "2026-11-21T12:00:00.500Z",
        "noticedAt": "2026-11-21T12:00:00.900Z",
        "electedAt": "2026-11-21T12:00:00.912Z",
        "firstWriteAt": "2026-11-21T12:00:00.960Z",
        "noticeMs": 400,
        "electionMs": 12,
        "resumeMs": 48,
        "gapMs": 130,
        "lostBytes": 0,
    }


def test_a_failover_stays_until_the_next_one() -> None:
    seen = written(broker_world(known=led_by_2(failover())))
    told = seen.live_status["lastFailover"]
    for known in (
        led_by_2(None),  # another leader of the controllers, which saw nothing
        view(master_epoch=6, mastership=mastership(6)),  # planned
        view(master_epoch=6, mastership=mastership(6, planned=None)),
        Unreachable("No answer."),
    ):
        assert written(changed(seen, view=known)).live_status["lastFailover"] == told
    newer = view(master_epoch=7, mastership=failover(7, elected_ms=AT_MS + 5_000))
    assert written(changed(seen, view=newer)).live_status["lastFailover"]["epoch"] == 7


def test_a_status_changes_twice_for_a_failover() -> None:
    seen = written(broker_world(known=led_by_2(failover(first_write_ms=None))))
    assert "firstWriteAt" not in seen.live_status["lastFailover"]
    done = written(changed(seen, view=led_by_2(failover())))
    assert done.live_status["lastFailover"]["gapMs"] == 130
    gone = pod(1, uid="another")
    replaced = written(changed(done, pods=(pod(0), gone, pod(2))))
    assert replaced.live_status["lastFailover"] == done.live_status["lastFailover"]


def test_a_failover_of_a_shard_names_it() -> None:
    views = {1: shard_view(1, master_epoch=5, mastership=failover())}
    found = settled_status(shard_world(views=views))["lastFailover"]
    assert (found["group"], found["epoch"]) == ("orders_1", 5)


@pytest.mark.parametrize(
    ("facts", "gap"),
    [
        pytest.param({}, 130, id="under-load"),
        pytest.param({"last_write_ms": AT_MS + 500 - IN_USE_MS}, 1460, id="a-record-a-second"),
        pytest.param({"last_write_ms": AT_MS + 499 - IN_USE_MS}, None, id="idle"),
        pytest.param({"last_write_ms": None}, None, id="an-empty-log"),
        pytest.param({"first_write_ms": None}, None, id="nothing-yet"),
        pytest.param({"first_write_ms": AT_MS + 829}, None, id="clocks-that-contradict"),
        pytest.param({"heard_ms": None, "last_write_ms": AT_MS + 900}, 60, id="never-heard"),
        pytest.param({"heard_ms": None, "elected_ms": None}, None, id="nobody-knows-when"),
    ],
)
def test_a_gap_is_told_only_where_somebody_wrote(facts: dict[str, Any], gap: int | None) -> None:
    assert gap_ms(failover(**facts)) == gap


@pytest.mark.parametrize(
    ("facts", "lost"),
    [
        pytest.param({}, 0, id="nobody-gave-anything-up"),
        pytest.param({"clean": False}, None, id="an-election-outside-the-set"),
        pytest.param(
            {
                "clean": False,
                "loss": LossView(
                    master_epoch=5, broker_id=2, epoch=4, end=900, confirmed_offset=1000, at_ms=1
                ),
            },
            100,
            id="given-up",
        ),
        pytest.param(
            {
                "loss": LossView(
                    master_epoch=5, broker_id=2, epoch=4, end=900, confirmed_offset=-1, at_ms=1
                )
            },
            None,
            id="nobody-knew-the-end",
        ),
        pytest.param(
            {
                "loss": LossView(
                    master_epoch=3, broker_id=2, epoch=2, end=900, confirmed_offset=1000, at_ms=1
                )
            },
            0,
            id="long-ago",
        ),
    ],
)
def test_what_is_lost(facts: dict[str, Any], lost: int | None) -> None:
    assert lost_bytes(led_by_2(failover(), **facts)) == lost


def test_the_clocks_of_others_never_run_backwards_in_a_segment() -> None:
    told = led_by_2(failover(first_write_ms=AT_MS + 900))
    found = settled_status(broker_world(known=told))["lastFailover"]
    assert "resumeMs" not in found
    assert found["gapMs"] == 70
