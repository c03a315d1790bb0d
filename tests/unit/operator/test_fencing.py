"""Replicas that people take out of their group for a while, and let in again."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_operator.models import BrokerGroupStatus, InvalidSpecError
from gantry_operator.plan import plan
from gantry_operator.plan.actions import (
    CheckAgain,
    DeletePod,
    Elect,
    ElectEach,
    FenceMember,
    ForgetMember,
    ScaleDown,
    UnfenceMember,
)
from gantry_operator.plan.foresight import foresee
from unit.operator.world import (
    NOW,
    OLD,
    broker_world,
    brokers,
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
    view,
    with_status,
)

OUT: dict[str, Any] = {"fenced": True, "in_sync": False}


def fenced_world(**facts: Any) -> Any:
    """Replica 2 is fenced, as wished; its pod is not Ready."""
    wish = {"fenced": [2]} | facts.pop("wish", {})
    known = members({}, {}, OUT, **facts.pop("group", {}))
    pods = tuple(facts.pop("pods", (pod(0), pod(1), pod(2, ready=False))))
    return broker_world(brokers(**wish), known=known, pods=pods, **facts)


def test_a_replica_is_fenced_by_the_controllers() -> None:
    seen = broker_world(brokers(fenced=[2]))
    assert step(seen) == FenceMember(broker_id=3)
    assert told(seen, "Progressing") == ("True", "Fencing", "Fencing replica 2.")
    assert settled_status(seen)["summary"] == "Fencing"


def test_the_master_hands_over_first_and_not_to_one_that_is_to_be_fenced() -> None:
    ahead = members({}, {"max_offset": 2_000}, {}, {}, min_in_sync_replicas=2)
    seen = broker_world(brokers(fenced=[0, 1], replicas=4), known=ahead)
    assert step(seen) == Elect(broker_id=3, master_epoch=4)
    moved = broker_world(
        brokers(fenced=[0]), known=members({}, {}, {}, master_broker_id=2, master_epoch=5)
    )
    assert step(moved) == FenceMember(broker_id=1)


def test_a_master_that_nobody_can_follow_is_not_fenced() -> None:
    pods = (pod(0), pod(1, ready=False), pod(2, ready=False))
    seen = broker_world(brokers(fenced=[0]), pods=pods)
    assert step(seen) is None
    status, reason, message = told(seen, "Progressing")
    assert (status, reason) == ("False", "UnsafeFence")
    assert message == (
        "Replica 0 is not fenced: it is the master, and no other replica that may take over is "
        "Ready and in sync. Wait until others are in sync, lower minInSyncReplicas, or take it "
        "out of spec.fenced."
    )


@pytest.mark.parametrize("ordinal", [0, 2])
def test_no_write_stops_for_it(ordinal: int) -> None:
    """Of the master, too: its mastership does not move before it is clear that it may go."""
    facts: list[dict[str, Any]] = [{}, {"in_sync": False}, {}]
    seen = broker_world(brokers(fenced=[ordinal]), known=members(*facts))
    assert step(seen) is None
    _, reason, message = told(seen, "Progressing")
    assert reason == "UnsafeFence"
    assert message == (
        f"Replica {ordinal} is not fenced: without it 1 replicas would be in sync and "
        "minInSyncReplicas is 2. Wait until others are in sync, lower minInSyncReplicas, or take "
        "it out of spec.fenced."
    )
    assert told(seen, "Ready")[0] == "False"
    assert settled_status(seen)["summary"].startswith("Not fenced")
    assert step(broker_world(brokers(fenced=[2]), known=members({}, {"alive": False}, {}))) is None


def test_a_sick_one_outside_the_set_may_go_but_not_the_last_that_could_come_back() -> None:
    lagging = members({}, {}, {"in_sync": False})
    assert step(broker_world(brokers(fenced=[2]), known=lagging)) == FenceMember(broker_id=3)
    alone = members({}, {"in_sync": False}, {"in_sync": False, "alive": False})
    seen = broker_world(brokers(fenced=[1]), known=alone)
    assert step(seen) is None
    assert "would be alive and not fenced" in told(seen, "Progressing")[2]


def test_one_whose_pod_is_away_is_known_by_the_status() -> None:
    """So nobody elects it in the moment in which it comes back."""
    before = BrokerGroupStatus.model_validate(settled_status(broker_world()))
    away = members({}, {}, {"alive": False, "in_sync": False, "pod_uid": "gone"})
    seen = broker_world(brokers(fenced=[2]), known=away, pods=(pod(0), pod(1)), previous=before)
    assert step(seen) == FenceMember(broker_id=3)
    new = pod(2, uid="other")
    heir = view(*away.members, member(4, pod_uid="other"))
    seen = broker_world(
        brokers(fenced=[2]), known=heir, pods=(pod(0), pod(1), new), previous=before
    )
    assert step(seen) == FenceMember(broker_id=4), "who lives there now, and not a ghost"


def test_a_new_group_elects_before_anybody_is_fenced() -> None:
    born = members(
        {"in_sync": False}, {"in_sync": False}, {"in_sync": False},
        master_epoch=0, master_broker_id=None,
    )  # fmt: skip
    assert step(broker_world(brokers(fenced=[2]), known=born)) is None


def test_a_group_with_a_fenced_replica_is_as_wished() -> None:
    seen = fenced_world()
    assert step(seen) is None
    assert not of_type(planned(seen), UnfenceMember, CheckAgain)
    assert told(seen, "FullyReplicated")[2] == "All 2 replicas are in sync."
    assert told(seen, "Progressing")[:2] == ("False", "Settled")
    assert told(seen, "Ready")[0] == "True"
    status, reason, message = told(seen, "Fenced")
    assert (status, reason) == ("True", "MembersFenced")
    assert "replica 2" in message
    status = settled_status(seen)
    assert status["summary"] == "Healthy (Fenced)"
    assert [one["state"] for one in status["members"]] == ["InSync", "InSync", "Fenced"]
    assert status["inSyncReplicas"] == [0, 1]


def test_no_condition_while_nobody_is_fenced() -> None:
    conditions = settled_status(broker_world())["conditions"]
    assert "Fenced" not in {one["type"] for one in conditions}


def test_it_is_let_in_again_at_any_time() -> None:
    seen = fenced_world(wish={"fenced": []})
    assert of_type(planned(seen), UnfenceMember) == [UnfenceMember(broker_id=3)]
    assert told(seen, "FullyReplicated")[2] == "2 of 3 replicas are in sync."
    paused = fenced_world(wish={"fenced": [], "paused": True})
    assert not of_type(planned(paused), UnfenceMember)
    elsewhere = fenced_world(wish={"fenced": [1]}, group={"min_in_sync_replicas": 1})
    assert of_type(planned(elsewhere), UnfenceMember) == [UnfenceMember(broker_id=3)]


def test_a_roll_leaves_the_fenced_pod_alone() -> None:
    old = [pod(n, revision=OLD) for n in range(2)]
    last = pod(2, revision=OLD, ready=False)
    one = {"replication": {"minInSyncReplicas": 1}}
    seen = fenced_world(wish=one, pods=(*old, last), group={"min_in_sync_replicas": 1})
    action = step(seen)
    assert isinstance(action, DeletePod)
    assert action.name == "orders-broker-1"
    done = fenced_world(wish=one, pods=(pod(0), pod(1), last), group={"min_in_sync_replicas": 1})
    assert step(done) is None
    assert told(done, "Ready")[0] == "True"
    new = fenced_world(
        wish=one, pods=(pod(0, revision=OLD), pod(1), pod(2, ready=False)),
        group={"min_in_sync_replicas": 1},
    )  # fmt: skip
    assert isinstance(step(new), Elect), "a fenced pod that is not Ready holds no roll up"


def test_a_roll_waits_where_writes_would_stop() -> None:
    old = (pod(0, revision=OLD), pod(1, revision=OLD), pod(2, ready=False))
    seen = fenced_world(pods=old)
    assert step(seen) is None
    assert "would be in sync and 2 are needed" in told(seen, "Progressing")[2]


def test_a_fenced_replica_may_be_scaled_away() -> None:
    seen = fenced_world(wish={"replicas": 2}, replicas=3)
    assert isinstance(step(seen), ScaleDown)


def test_a_ghost_is_struck_though_a_replica_is_fenced() -> None:
    known = view(
        member(1), member(2), member(3, **OUT), member(4, alive=False, in_sync=False, pod_uid="g")
    )
    seen = broker_world(
        brokers(fenced=[2]), known=known, pods=(pod(0), pod(1), pod(2, ready=False))
    )
    assert [one.broker_id for one in of_type(planned(seen), ForgetMember)] == [4]


def test_nobody_is_switched_over_to_who_is_fenced() -> None:
    seen = fenced_world(wish={"switchover": {"id": "a", "to": 2}})
    assert step(seen) is None
    message = settled_status(seen)["switchover"]["message"]
    assert message == "Replica 2 is fenced: take it out of spec.fenced first."


def test_of_many_groups_all_members_of_the_pod_are_fenced_the_masters_last() -> None:
    seen = shard_world(3, group=brokers(shards=3, fenced=[1]))
    moves = step(seen)
    assert isinstance(moves, ElectEach)
    assert [one.group for one in moves.elections] == ["orders_1"]
    views = {n: shard_view(n, master_broker_id=1) for n in range(3)}
    shard = {"master_broker_id": 1}
    assert step(shard_world(3, group=brokers(shards=3, fenced=[1]), views=views)) == FenceMember(
        broker_id=2, group="orders_0"
    )
    out = [member(1), member(2, **OUT), member(3)]
    views[0] = shard_view(0, *out, **shard)
    assert step(shard_world(3, group=brokers(shards=3, fenced=[1]), views=views)) == FenceMember(
        broker_id=2, group="orders_1"
    )
    views[2] = shard_view(2, member(1), member(2), member(3, in_sync=False), **shard)
    seen = shard_world(3, group=brokers(shards=3, fenced=[1]), views=views)
    assert step(seen) is None, "each of them has to be able to spare it"
    assert "of orders_2 would be in sync" in told(seen, "Progressing")[2]


def test_not_all_replicas_can_be_fenced() -> None:
    with pytest.raises(InvalidSpecError, match="set hibernated to true instead"):
        brokers(replicas=2, fenced=[0, 1])
    with pytest.raises(InvalidSpecError):
        brokers(fenced=[9])
    assert brokers(replicas=2, fenced=[1, 2]).spec.fenced_now == {1}


def test_a_fence_is_foreseen() -> None:
    found = foresee(broker_world(brokers(fenced=[0])), NOW, plan)
    assert [(one.kind, one.message) for one in found.disruptive] == [
        ("Move", "Move the mastership from orders-broker-0 to orders-broker-1."),
        ("Fence", "Fence orders-broker-0: it serves nobody and is never elected. Sends go on."),
    ]
    assert (found.refused, found.waits) == ("", "")
    back = foresee(fenced_world(wish={"fenced": []}), NOW, plan)
    assert [one.message for one in back.steps if one.kind == "Fence"] == [
        "Let orders-broker-2 in again; it catches up. Sends go on."
    ]
    assert back.waits == ""
    unsafe = broker_world(brokers(fenced=[2]), known=members({}, {"in_sync": False}, {}))
    assert foresee(unsafe, NOW, plan).waits == "UnsafeFence"


def test_the_status_stays_as_it_is_while_nothing_happens() -> None:
    seen = with_status(fenced_world())
    assert planned(seen) == []
