"""Hibernation: all pods go at once or none does, and what wakes is what fell asleep."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_operator.models import BrokerGroupStatus, InvalidSpecError
from gantry_operator.plan.actions import (
    ApplyObject,
    CheckAgain,
    Declare,
    DrainGroup,
    EmitEvent,
    ForgetMember,
    ScaleDown,
)
from gantry_operator.plan.foresight import foresee
from gantry_operator.plan.observed import BrokerObserved
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable
from unit.operator.world import (
    NOW,
    broker_world,
    brokers,
    changed,
    live,
    member,
    members,
    of_type,
    planned,
    pod,
    settled_status,
    shard_view,
    shard_world,
    step,
    told,
    with_status,
)

SET = ("StatefulSet", "orders-broker")


def sleeping(**facts: Any) -> BrokerObserved:
    """A group whose pods are gone; the controllers have the members as they were."""
    dead = members(*[{"alive": False}] * 3, **facts.pop("group", {}))
    wish = {"hibernated": True} | facts.pop("wish", {})
    defaults: dict[str, Any] = {"replicas": 0, "pods": (), "known": dead}
    return broker_world(brokers(**wish), **(defaults | facts))


def size(seen: BrokerObserved) -> int | None:
    """The size of the StatefulSet that is applied; None if it is as it is."""
    sizes = [
        action.manifest["spec"]["replicas"]
        for action in of_type(planned(seen), ApplyObject, ScaleDown)
        if action.manifest["kind"] == "StatefulSet"
    ]
    return sizes[-1] if sizes else None


def summary(seen: BrokerObserved) -> str:
    return str(settled_status(seen)["summary"])


def test_all_pods_go_in_one_step_that_counts_on_who_is_in_sync() -> None:
    seen = broker_world(brokers(hibernated=True))
    action = step(seen)
    assert isinstance(action, ScaleDown)
    assert action.manifest["spec"]["replicas"] == 0
    assert (action.master_epoch, action.sync_state_set) == (4, (1, 2, 3))
    assert told(seen, "Progressing")[:2] == ("True", "Hibernating")
    assert summary(seen) == "Hibernating"


def test_too_few_in_sync_keep_their_pods() -> None:
    seen = broker_world(
        brokers(hibernated=True), known=members({}, {"in_sync": False}, {"in_sync": False})
    )
    assert step(seen) is None
    status, reason, message = told(seen, "Progressing")
    assert (status, reason) == ("False", "UnsafeHibernation")
    assert message == (
        "The pods are kept: 1 replicas are in sync and minInSyncReplicas is 2. Wait until more are "
        "in sync, or set spec.hibernated to false."
    )
    assert summary(seen) == "Not hibernated"
    lagging = broker_world(brokers(hibernated=True), known=members({}, {}, {"in_sync": False}))
    assert isinstance(step(lagging), ScaleDown), "one that lags holds nobody awake"


def test_nobody_is_stopped_unseen() -> None:
    seen = broker_world(brokers(hibernated=True), known=Unreachable("lost"))
    assert step(seen) is None
    assert size(seen) is None


def test_claims_are_kept_before_a_pod_goes() -> None:
    """Scaling would delete them; so would a policy whose StatefulSet nobody has looked at yet."""
    storage = {"whenScaled": "Delete"}
    awake = broker_world(brokers(storage=storage))
    seen = changed(awake, group=brokers(storage=storage, hibernated=True))
    assert step(seen) is None
    (action,) = of_type(planned(seen), ApplyObject)
    spec = action.manifest["spec"]
    assert spec["persistentVolumeClaimRetentionPolicy"]["whenScaled"] == "Retain"
    assert spec["replicas"] == 3
    told_so = changed(seen, objects=seen.objects | live([action.manifest]))
    stops = step(told_so)
    assert isinstance(stops, ScaleDown)
    policy = stops.manifest["spec"]["persistentVolumeClaimRetentionPolicy"]
    assert policy["whenScaled"] == "Retain"


def test_a_volume_that_goes_with_its_pod_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match="hibernated removes the pods"):
        brokers(hibernated=True, replicas=1, storage={"type": "EmptyDir"})


def test_a_group_that_sleeps_says_so_and_is_as_wished() -> None:
    seen = sleeping()
    body = settled_status(seen)
    assert body["summary"] == "Hibernated"
    conditions = {one["type"]: (one["status"], one["reason"]) for one in body["conditions"]}
    assert conditions["Hibernated"] == ("True", "Hibernated")
    assert conditions["Ready"] == ("True", "Hibernated"), "tools that wait are done"
    for name in ("Available", "InSync", "FullyReplicated"):
        assert conditions[name] == ("False", "Hibernated")
    assert {one["state"] for one in body["members"]} == {"Hibernated"}
    assert of_type(planned(with_status(seen)), CheckAgain, Declare, ForgetMember) == []
    ends = sleeping(pods=(pod(0, terminating=True, ready=False),))
    assert summary(ends) == "Hibernating"
    assert "Waiting for 1 pod to end" in told(ends, "Progressing")[2]


def test_sleep_is_no_warning() -> None:
    served = BrokerGroupStatus.model_validate(settled_status(broker_world()))

    def warned(seen: BrokerObserved) -> list[str]:
        told_of = of_type(planned(changed(seen, previous=served)), EmitEvent)
        return [event.reason for event in told_of if event.type == "Warning"]

    assert warned(sleeping()) == []
    assert warned(sleeping(pods=(pod(0, ready=False),))) == []
    assert warned(broker_world(known=members({"alive": False}, {}, {}))) == ["NoMaster"]


def test_it_is_known_to_sleep_without_controllers() -> None:
    assert summary(sleeping(known=Unreachable("they sleep, too"))) == "Hibernated"


def test_all_wake_at_once_as_what_they_were() -> None:
    seen = sleeping(wish={"hibernated": False})
    assert size(seen) == 3
    assert told(seen, "Progressing")[:2] == ("True", "Applying")
    storage = {"whenScaled": "Delete"}
    deletes = sleeping(wish={"hibernated": False, "storage": storage})
    (action,) = of_type(planned(deletes), ApplyObject)[-1:]
    spec = action.manifest["spec"]
    assert spec["persistentVolumeClaimRetentionPolicy"]["whenScaled"] == "Delete", "as before"


def test_as_many_wake_as_fell_asleep() -> None:
    """The third may be the only one with everything; it leaves later, by the ordinary rule."""
    fewer = {"replicas": 2, "hibernated": True}
    assert of_type(planned(sleeping(wish=fewer)), Declare) == [], "the record stays"
    woken = sleeping(wish=fewer | {"hibernated": False})
    assert size(woken) == 3
    more = sleeping(wish={"replicas": 5, "hibernated": False})
    assert size(more) == 5
    new = sleeping(wish={"hibernated": False}, known=NotDeclared())
    assert size(new) == 3


def test_nobody_wakes_while_nobody_can_say_how_many_there_were() -> None:
    seen = sleeping(wish={"hibernated": False, "replicas": 2}, known=Unreachable("lost"))
    assert size(seen) is None
    assert of_type(planned(seen), CheckAgain) == [CheckAgain(after_s=5.0)]


def test_no_shard_is_drained_or_left_while_nobody_could_read_it() -> None:
    awake = with_status(shard_world(2, hosted=3, group=brokers(shards=2)))
    assert of_type(planned(awake), DrainGroup) != []
    seen = changed(awake, group=brokers(shards=2, hibernated=True))
    assert of_type(planned(seen), DrainGroup) == []
    fresh = shard_world(2, hosted=3, group=brokers(shards=2, hibernated=True))
    assert "drain" not in settled_status(fresh)
    few = shard_world(
        3,
        group=brokers(shards=3, hibernated=True),
        views={1: shard_view(1, member(1), member(2, in_sync=False), member(3, in_sync=False))},
    )
    assert step(few) is None
    assert "1 replicas of orders_1 are in sync" in told(few, "Progressing")[2]


def test_what_changes_meanwhile_is_there_when_it_wakes() -> None:
    seen = changed(sleeping(), group=brokers(hibernated=True, image="gantry:2"))
    (action,) = of_type(planned(seen), ApplyObject)[-1:]
    assert action.manifest["spec"]["replicas"] == 0
    containers = action.manifest["spec"]["template"]["spec"]["containers"]
    assert containers[0]["image"] == "gantry:2"


def test_a_change_that_waits_for_a_person_sleeps_on() -> None:
    supervised = {"update": {"strategy": "Supervised"}}
    seen = changed(
        broker_world(brokers(**supervised)),
        group=brokers(hibernated=True, image="gantry:2", **supervised),
    )
    action = step(seen)
    assert isinstance(action, ScaleDown)
    assert action.manifest["spec"]["replicas"] == 0
    assert "template" not in action.manifest["spec"], "they wake as they were"


def test_a_plan_says_that_nobody_is_served() -> None:
    course = foresee(broker_world(brokers(hibernated=True)), NOW, lambda seen, _: planned(seen))
    (found,) = course.disruptive
    assert found.message == (
        "Stop orders-broker-0, orders-broker-1, orders-broker-2. Nobody is served until the group "
        "wakes."
    )
    assert course.gap_ms is None
    assert course.waits == ""
