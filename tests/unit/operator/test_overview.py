"""One screen about a namespace, out of statuses alone."""

from __future__ import annotations

from typing import Any

from gantry_operator.models.changes import ChangeStatus, FailoverStatus
from gantry_operator.preview.overview import NOT_SEEN, of_body, told_change, told_failover
from unit.operator.test_changes import failover, led_by_2
from unit.operator.test_hibernation import sleeping
from unit.operator.world import (
    broker_world,
    controller_world,
    front_world,
    member,
    settled_status,
    shard_world,
    view,
)


def shown(kind: str, status: dict[str, Any] | None, generation: int = 1) -> Any:
    body: dict[str, Any] = {"metadata": {"name": "a", "generation": generation}}
    return of_body(kind, "mq", body | ({} if status is None else {"status": status}))


def test_what_serves_is_named() -> None:
    assert shown("BrokerGroup", settled_status(broker_world())).serves == (
        "orders-broker-0 is master at epoch 4, 3/3 in sync"
    )
    assert shown("BrokerGroup", settled_status(shard_world())).serves == "3/3 shards Ready"
    leads = shown("ControllerGroup", settled_status(controller_world())).serves
    assert leads == "gantry-controller-0 leads"
    assert shown("FrontGroup", settled_status(front_world())).serves == "clients at 10.96.0.7:10950"


def test_what_is_not_well_says_why() -> None:
    stuck = view(member(1, disk_stuck="the disk is full"), member(2), member(3, in_sync=False))
    found = shown("BrokerGroup", settled_status(broker_world(known=stuck)))
    assert found.summary == "Catching up 2/3"
    assert found.why == "2 of 3 replicas are in sync."
    assert found.notes == (
        "replica 2: CatchingUp",
        "orders-broker-0 has no room: the disk is full.",
    )
    assert shown("BrokerGroup", settled_status(broker_world())).why == ""


def test_a_group_that_sleeps_is_no_fault() -> None:
    found = shown("BrokerGroup", settled_status(sleeping()))
    assert (found.summary, found.serves) == ("Hibernated", "nobody is served")
    assert (found.notes, found.why) == ((), "")


def test_what_nobody_has_looked_at_says_so() -> None:
    for status in (None, {"observedGeneration": -1}):
        assert shown("BrokerGroup", status).summary == NOT_SEEN
    stale = shown("BrokerGroup", settled_status(broker_world()), generation=2)
    assert stale.why == "The operator has not seen the newest spec yet."


def test_the_last_failover_is_one_line() -> None:
    found = shown("BrokerGroup", settled_status(broker_world(known=led_by_2(failover()))))
    (line,) = found.notes
    assert line == (
        "Last failover: 2026-11-21T12:00:00.912Z (refused): noticed after 400 ms, elected after "
        "12 ms, written to after 48 ms, gap 130 ms, 0 bytes lost"
    )
    bare = FailoverStatus(epoch=2, seen="silent", elected_at="then")
    assert told_failover(bare) == "Last failover: then (silent): no figures"


def test_the_last_change_is_one_line() -> None:
    change = ChangeStatus(id="7", kind="RollingUpdate", started_at="then", steps=4)
    assert told_change(change) == (
        "Last change: RollingUpdate 7, 4 steps, under way; gap foreseen nobody could tell, "
        "measured not measured"
    )
    done = change.model_copy(
        update={
            "finished_at": "now",
            "predicted_gap_ms": 500,
            "measured_gap_ms": 40,
            "lost_bytes": 0,
        }
    )
    assert told_change(done) == (
        "Last change: RollingUpdate 7, 4 steps, ended now; gap foreseen 500 ms, measured 40 ms, "
        "0 bytes lost"
    )
