"""The disruptive rules for broker groups: what may be taken away when, one line per case."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_operator.plan.actions import DeletePod, Elect, EmitEvent, ScaleDown
from gantry_operator.plan.observed import PodView, Refusal
from gantry_protocol.admin import GroupView
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable
from unit.operator.world import (
    OLD,
    broker_world,
    brokers,
    changed,
    member,
    name_of,
    of_type,
    planned,
    pod,
    settled_status,
    step,
    told,
    view,
    with_status,
)

Pods = tuple[PodView, ...]
OLD_PODS: Pods = (pod(0, revision=OLD), pod(1, revision=OLD), pod(2, revision=OLD))


def pods(*facts: dict[str, Any]) -> Pods:
    return tuple(pod(n, **fact) for n, fact in enumerate(facts))


ROLLING = [
    pytest.param(pods({}, {}, {}), view(), "nothing", id="all-current"),
    pytest.param(OLD_PODS, view(), "delete 2", id="highest-replica-first"),
    pytest.param(
        pods({"revision": OLD}, {"revision": OLD}, {}), view(), "delete 1", id="then-the-next"
    ),
    pytest.param(
        pods({"revision": OLD}, {}, {}), view(), "elect 2", id="master-last-switches-first"
    ),
    pytest.param(
        pods({"revision": OLD}, {}, {}),
        view(master_broker_id=2),
        "delete 0",
        id="former-master-goes-as-a-replica",
    ),
    pytest.param(
        OLD_PODS,
        view(member(1), member(2), member(3, in_sync=False)),
        "delete 2",
        id="outside-the-set-goes-first",
    ),
    pytest.param(
        (pod(0, revision=OLD), pod(1, revision=OLD, ready=False), pod(2, revision=OLD)),
        view(),
        "delete 1",
        id="not-ready-goes-first-after-another-change",
    ),
    pytest.param(
        OLD_PODS,
        view(member(1), member(2, in_sync=False), member(3)),
        "delete 1",
        id="outside-the-set-goes-before-higher-ordinals",
    ),
    pytest.param(
        pods({"revision": OLD}, {"revision": OLD}, {}),
        view(member(1), member(2), member(3, in_sync=False)),
        "nothing",
        id="replaced-pod-must-be-in-sync-first",
    ),
    pytest.param(
        pods({"revision": OLD}, {"revision": OLD}, {"ready": False}),
        view(),
        "nothing",
        id="replaced-pod-must-be-ready-first",
    ),
    pytest.param(
        pods({"revision": OLD}, {"revision": OLD}, {"uid": "fresh"}),
        view(),
        "nothing",
        id="replaced-pod-must-register-first",
    ),
    pytest.param(
        pods({"revision": OLD}, {"revision": OLD}, {"terminating": True, "ready": False}),
        view(),
        "nothing",
        id="one-at-a-time",
    ),
    pytest.param(OLD_PODS[:2], view(), "nothing", id="a-missing-pod-comes-back-first"),
    pytest.param(
        OLD_PODS,
        view(member(1), member(2), member(3, alive=False)),
        "delete 2",
        id="dead-member-of-the-set-is-not-counted-on",
    ),
    pytest.param(
        OLD_PODS,
        view(member(1), member(2, alive=False), member(3, alive=False)),
        "nothing",
        id="last-in-sync-replica-stays",
    ),
    pytest.param(
        OLD_PODS,
        view(member(1), member(2, draining=True), member(3)),
        "delete 1",
        id="draining-member-goes-before-healthy-ones",
    ),
    pytest.param(
        pods({"revision": OLD}, {"revision": OLD}, {"revision": OLD, "uid": "unknown"}),
        view(),
        "nothing",
        id="role-of-a-running-pod-must-be-known",
    ),
    pytest.param(
        pods({"revision": OLD}, {"revision": OLD, "running": False, "ready": False}, {}),
        view(member(1), member(2, alive=False), member(3, in_sync=False)),
        "delete 1",
        id="dead-container-is-replaced-whatever-the-others-do",
    ),
    pytest.param(
        pods(*({"revision": OLD, "running": False, "ready": False},) * 3),
        view(member(1, alive=False), member(2, alive=False), member(3, alive=False)),
        "delete 2",
        id="a-group-that-a-bad-change-broke-can-be-repaired",
    ),
    pytest.param(
        pods({"revision": OLD}, {"revision": OLD}, {"running": False, "ready": False}),
        view(member(1), member(2), member(3, alive=False)),
        "nothing",
        id="a-bad-change-breaks-one-pod-and-no-more",
    ),
    pytest.param(
        pods({"revision": OLD}, {"ready": False}, {"ready": False}),
        view(),
        "nothing",
        id="nobody-ready-to-take-over",
    ),
]


@pytest.mark.parametrize(("seen_pods", "known", "expected"), ROLLING)
def test_rolling_update(seen_pods: Pods, known: GroupView, expected: str) -> None:
    assert name_of(step(broker_world(pods=seen_pods, known=known))) == expected


def test_a_rolling_update_waits_aloud() -> None:
    known = view(member(1), member(2), member(3, in_sync=False))
    seen = broker_world(pods=(*OLD_PODS[:2], pod(2)), known=known)
    status, reason, message = told(seen, "Progressing")
    assert (status, reason) == ("True", "RollingUpdate")
    assert "orders-broker-2 is not in the sync-state set yet" in message


@pytest.mark.parametrize(
    ("replicas", "minimum", "alive", "expected"),
    [
        pytest.param(1, 1, 1, "delete 0", id="single-replica-restarts"),
        pytest.param(2, 2, 2, "delete 1", id="minimum-of-all-pauses-acknowledgements"),
        pytest.param(2, 1, 1, "delete 1", id="outside-the-set-costs-nothing"),
        pytest.param(3, 3, 3, "delete 2", id="three-of-three"),
        pytest.param(3, 3, 2, "delete 2", id="three-of-three-one-dead-replaces-the-dead"),
        pytest.param(5, 3, 4, "delete 4", id="five-one-dead-replaces-the-dead"),
    ],
)
def test_how_many_must_stay(replicas: int, minimum: int, alive: int, expected: str) -> None:
    group = brokers(replicas=replicas, replication={"minInSyncReplicas": minimum})
    members = (member(n + 1, alive=n < alive) for n in range(replicas))
    seen_pods = tuple(pod(n, revision=OLD) for n in range(replicas))
    seen = broker_world(group, pods=seen_pods, known=view(*members, replicas=replicas))
    assert name_of(step(seen)) == expected


def test_the_only_member_left_is_not_taken_with_five_replicas() -> None:
    group = brokers(replicas=5)
    members = (member(n + 1, alive=n < 2) for n in range(5))
    seen_pods = tuple(pod(n, revision=OLD if n < 2 else "rev-new") for n in range(5))
    seen = broker_world(group, pods=seen_pods, known=view(*members, replicas=5))
    assert step(seen) is None


def test_the_mastership_moves_to_a_pod_that_is_not_replaced_next() -> None:
    ahead = view(member(1), member(2, max_offset=9000), member(3))
    seen = broker_world(pods=(pod(0, revision=OLD), pod(1), pod(2)), known=ahead)
    assert step(seen) == Elect(broker_id=2, master_epoch=4)


def test_a_deletion_names_exactly_what_was_seen() -> None:
    action = step(broker_world(pods=OLD_PODS))
    assert action == DeletePod(
        name="orders-broker-2", uid="uid-2", master_epoch=4, sync_state_set=(1, 2, 3)
    )


def test_a_dead_pod_is_deleted_only_while_it_is_dead() -> None:
    seen_pods = (*OLD_PODS[:2], pod(2, revision=OLD, running=False, ready=False))
    action = step(broker_world(pods=seen_pods))
    assert action == DeletePod(name="orders-broker-2", uid="uid-2", only_if_dead=True)


PREMISES = [
    pytest.param({"view": Unreachable("no controller answers")}, id="observation-lost"),
    pytest.param({"view": NotDeclared()}, id="group-not-known"),
    pytest.param({"group": brokers(paused=True)}, id="paused"),
    pytest.param({"group": None, "invalid": "bad"}, id="invalid-spec"),
    pytest.param({"controllers": None, "controllers_exist": False}, id="no-controller-group"),
    pytest.param(
        {"refusals": (Refusal("Service", "orders", taken=True, message="taken"),)},
        id="an-object-could-not-be-written",
    ),
]


@pytest.mark.parametrize("facts", PREMISES)
@pytest.mark.parametrize("replicas", [3, 4])
def test_nothing_disruptive_without_its_premises(facts: dict[str, Any], replicas: int) -> None:
    seen = broker_world(
        pods=tuple(pod(n, revision=OLD) for n in range(replicas)), replicas=replicas
    )
    assert step(seen) is not None
    assert step(changed(seen, **facts)) is None


def test_nobody_is_outdated_until_the_statefulset_controller_has_seen_the_spec() -> None:
    seen = broker_world(pods=OLD_PODS)
    seen.objects["StatefulSet", "orders-broker"]["metadata"]["generation"] = 2
    assert step(seen) is None


SCALING = [
    pytest.param(view(*map(member, (1, 2, 3, 4))), "scale 3", id="highest-ordinal-goes"),
    pytest.param(
        view(*map(member, (1, 2, 3, 4)), master_broker_id=4), "elect 1", id="never-the-master"
    ),
    pytest.param(
        view(member(1), member(2, in_sync=False), member(3, in_sync=False), member(4)),
        "nothing",
        id="not-below-the-minimum",
    ),
    pytest.param(
        view(member(1), member(2, alive=False), member(3, alive=False), member(4)),
        "nothing",
        id="the-dead-do-not-count",
    ),
    pytest.param(
        view(member(1), member(2), member(3, in_sync=False), member(4, in_sync=False)),
        "scale 3",
        id="a-laggard-may-go",
    ),
]


@pytest.mark.parametrize(("known", "expected"), SCALING)
def test_scaling_down(known: GroupView, expected: str) -> None:
    assert name_of(step(broker_world(known=known, replicas=4))) == expected


def test_scaling_down_that_is_refused_says_what_to_do() -> None:
    known = view(member(1), member(2, in_sync=False), member(3, in_sync=False), member(4))
    status, reason, message = told(broker_world(known=known, replicas=4), "Progressing")
    assert (status, reason) == ("False", "UnsafeScaleDown")
    assert "raise spec.replicas again" in message


def test_the_master_moves_to_a_replica_that_stays() -> None:
    members = (member(1), member(2), member(3, max_offset=9000), member(4, max_offset=9000))
    group = brokers(replicas=2)
    seen = broker_world(group, replicas=4, known=view(*members, master_broker_id=4))
    assert name_of(step(seen)) == "elect 1"


def test_scaling_down_goes_one_at_a_time() -> None:
    group = brokers(replicas=1)
    members = tuple(member(n) for n in (1, 2, 3))
    assert name_of(step(broker_world(group, replicas=3, known=view(*members)))) == "scale 2"
    leaving = (pod(0), pod(1), pod(2, terminating=True, ready=False))
    seen = broker_world(group, replicas=2, pods=leaving, known=view(*members))
    assert step(seen) is None


def test_one_that_is_still_ending_is_waited_for_where_one_in_sync_is_enough() -> None:
    """The minimum alone would let the next one go: two restarts at once."""
    group = brokers(replication={"minInSyncReplicas": 1})
    last = {"revision": OLD, "terminating": True, "ready": False}
    ending = pods({"revision": OLD}, {"revision": OLD}, last)
    known = view(member(1), member(2), member(3, alive=False), min_in_sync_replicas=1)
    assert step(broker_world(group, pods=ending, known=known)) is None


def test_scaling_down_to_one_needs_only_one() -> None:
    group = brokers(replicas=1)
    seen = broker_world(group, replicas=2, known=view(member(1), member(2), replicas=2))
    action = step(seen)
    assert isinstance(action, ScaleDown)
    assert action.manifest["spec"]["replicas"] == 1
    assert action.sync_state_set == (1, 2)


def test_scaling_down_comes_before_rolling() -> None:
    seen_pods = tuple(pod(n, revision=OLD) for n in range(4))
    known = view(*map(member, (1, 2, 3, 4)))
    assert name_of(step(broker_world(replicas=4, pods=seen_pods, known=known))) == "scale 3"


SWITCHOVER = [
    pytest.param({"id": "a", "to": 2}, view(), "elect 3", "InProgress", id="to-an-ordinal"),
    pytest.param({"id": "a"}, view(), "elect 2", "InProgress", id="to-anybody"),
    pytest.param(
        {"id": "a"},
        view(member(1), member(2), member(3, max_offset=2000)),
        "elect 3",
        "InProgress",
        id="to-the-one-furthest-ahead",
    ),
    pytest.param({"id": "a", "to": 0}, view(), "nothing", "Completed", id="already-master"),
    pytest.param({"id": "a", "to": 7}, view(), "nothing", "Refused", id="no-such-replica"),
    pytest.param(
        {"id": "a", "to": 2},
        view(member(1), member(2), member(3, in_sync=False)),
        "nothing",
        "Refused",
        id="not-in-sync",
    ),
    pytest.param(
        {"id": "a", "to": 2},
        view(member(1), member(2), member(3, alive=False)),
        "nothing",
        "Refused",
        id="dead",
    ),
    pytest.param(
        {"id": "a", "to": 2},
        view(member(1), member(2), member(3, draining=True)),
        "nothing",
        "Refused",
        id="draining",
    ),
    pytest.param(
        {"id": "a"},
        view(member(1), member(2, in_sync=False), member(3, in_sync=False)),
        "nothing",
        "Refused",
        id="nobody-in-sync",
    ),
]


@pytest.mark.parametrize(("request_", "known", "expected", "state"), SWITCHOVER)
def test_switchover(request_: dict[str, Any], known: GroupView, expected: str, state: str) -> None:

    seen = broker_world(brokers(switchover=request_), known=known)
    assert name_of(step(seen)) == expected
    assert settled_status(seen)["switchover"]["state"] == state


def test_the_mastership_does_not_move_to_a_pod_that_is_not_ready() -> None:
    seen = broker_world(pods=(pod(0), pod(1, ready=False), pod(2)))
    assert name_of(step(changed(seen, group=brokers(switchover={"id": "a"})))) == "elect 3"


def test_a_switchover_is_carried_out_once() -> None:

    asked = broker_world(brokers(switchover={"id": "a"}))
    assert name_of(step(asked)) == "elect 2"
    begun = with_status(asked)
    assert name_of(step(begun)) == "elect 2", "a lost answer is followed by the same choice"
    ahead = view(member(1), member(2), member(3, max_offset=9999))
    assert name_of(step(changed(begun, view=ahead))) == "elect 2"
    done = with_status(changed(begun, view=view(master_broker_id=2, master_epoch=5)))
    assert done.live_status["switchover"]["state"] == "Completed"
    back = changed(done, view=view(master_broker_id=1, master_epoch=6))
    assert step(back) is None
    assert settled_status(back)["switchover"]["state"] == "Completed"


def test_a_refused_switchover_does_not_come_true_later() -> None:

    lagging = view(member(1), member(2), member(3, in_sync=False))
    refused = with_status(broker_world(brokers(switchover={"id": "a", "to": 2}), known=lagging))
    assert step(changed(refused, view=view())) is None


TWINS = [
    pytest.param({"pod_uid": "uid-2"}, id="of-the-same-pod"),
    pytest.param({"pod_uid": None, "address": "10.0.0.12:10911"}, id="at-the-same-address"),
]


@pytest.mark.parametrize("facts", TWINS)
def test_a_wiped_replica_is_who_lives_in_the_pod(facts: dict[str, Any]) -> None:
    """An empty volume gives the replica a new id; the old one stays in the record, dead."""
    dead = member(3, alive=False, in_sync=False, **facts)
    known = view(member(1), member(2), dead, member(4, pod_uid="uid-2"))
    seen = broker_world(brokers(switchover={"id": "a", "to": 2}), known=known)
    assert name_of(step(seen)) == "elect 4"
    rows = {row["brokerId"]: row for row in settled_status(seen)["members"]}
    assert (rows[4]["replica"], rows[4]["state"]) == (2, "InSync")
    assert (rows[3].get("replica"), rows[3]["state"]) == (None, "Lost")


def test_a_used_id_with_another_replica_is_refused_aloud() -> None:
    done = with_status(broker_world(brokers(switchover={"id": "a", "to": 0})))
    again = changed(done, group=brokers(switchover={"id": "a", "to": 1}))
    assert step(again) is None
    refused = with_status(again)
    assert refused.live_status["switchover"]["state"] == "Refused"
    assert "choose a new id" in refused.live_status["switchover"]["message"]
    events = [e for e in of_type(planned(again), EmitEvent) if e.reason == "SwitchoverRefused"]
    assert len(events) == 1
    assert not of_type(planned(refused), EmitEvent), "told once"


def test_a_used_id_without_a_replica_stays_done() -> None:
    done = with_status(broker_world(brokers(switchover={"id": "a", "to": 0})))
    seen = changed(done, group=brokers(switchover={"id": "a"}))
    assert settled_status(seen)["switchover"]["state"] == "Completed"


def test_a_new_id_is_a_new_request() -> None:

    done = with_status(broker_world(brokers(switchover={"id": "a", "to": 0})))
    again = changed(done, group=brokers(switchover={"id": "b", "to": 1}))
    assert name_of(step(again)) == "elect 2"


def test_a_switchover_waits_for_a_master() -> None:
    seen = broker_world(brokers(switchover={"id": "a", "to": 1}), known=view(master_broker_id=None))
    assert step(seen) is None

    assert "switchover" not in settled_status(seen)
