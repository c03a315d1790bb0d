"""Status, conditions, events: stable words, honest about what is not known."""

from __future__ import annotations

import copy
import datetime as dt
from typing import Any

import msgspec
import pytest
from gantry_operator.models import BrokerGroupStatus, ControllerGroup
from gantry_operator.plan import plan
from gantry_operator.plan.actions import CheckAgain, EmitEvent, WriteStatus
from gantry_operator.plan.observed import Refusal
from gantry_operator.plan.reasons import Reason
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable
from unit.operator.world import (
    IMAGE,
    NOW,
    OLD,
    broker_world,
    brokers,
    changed,
    controller_world,
    controllers,
    member,
    of_type,
    planned,
    pod,
    settled_status,
    told,
    view,
    with_status,
)

LOST = Unreachable("no controller of gantry answers")
GONE_MASTER = view(member(1, alive=False), member(2), member(3))


def row(seen: Any, name: str) -> tuple[str, str]:
    return told(seen, name)[:2]


CONDITIONS = [
    pytest.param(broker_world(), "Accepted", "True", "Valid", id="valid"),
    pytest.param(broker_world(), "Available", "True", "MasterElected", id="serving"),
    pytest.param(broker_world(), "InSync", "True", "EnoughInSync", id="in-sync"),
    pytest.param(broker_world(), "FullyReplicated", "True", "AllInSync", id="full"),
    pytest.param(broker_world(), "Progressing", "False", "Settled", id="settled"),
    pytest.param(broker_world(), "Paused", "False", "Active", id="active"),
    pytest.param(broker_world(brokers(paused=True)), "Paused", "True", "PausedBySpec", id="paused"),
    pytest.param(
        broker_world(known=GONE_MASTER), "Available", "False", "NoMaster", id="dead-master"
    ),
    pytest.param(
        broker_world(known=GONE_MASTER.model_copy(update={"no_master_reason": "too short"})),
        "Available",
        "False",
        "ElectionHeldBack",
        id="held-back",
    ),
    pytest.param(
        broker_world(pods=(pod(0, ready=False), pod(1), pod(2))),
        "Available",
        "False",
        "NoMaster",
        id="master-not-ready",
    ),
    pytest.param(
        broker_world(known=view(master_broker_id=None)),
        "Available",
        "False",
        "NoMaster",
        id="no-master",
    ),
    pytest.param(
        broker_world(known=view(master_broker_id=None, master_epoch=0)),
        "Available",
        "False",
        "WaitingForQuorum",
        id="first-election",
    ),
    pytest.param(
        broker_world(known=NotDeclared()), "Available", "False", "WaitingForQuorum", id="undeclared"
    ),
    pytest.param(
        broker_world(known=view(member(1), member(2, in_sync=False), member(3, in_sync=False))),
        "InSync",
        "False",
        "LastInSyncReplica",
        id="last-replica",
    ),
    pytest.param(
        broker_world(
            brokers(replication={"minInSyncReplicas": 1}), known=view(member(1), replicas=3)
        ),
        "InSync",
        "True",
        "LastInSyncReplica",
        id="last-replica-suffices",
    ),
    pytest.param(
        broker_world(
            brokers(replication={"minInSyncReplicas": 3}),
            known=view(member(1), member(2), member(3, in_sync=False), min_in_sync_replicas=3),
        ),
        "InSync",
        "False",
        "BelowMinInSync",
        id="below-minimum",
    ),
    pytest.param(
        broker_world(known=GONE_MASTER), "FullyReplicated", "False", "ReplicaCatchingUp", id="two"
    ),
    pytest.param(
        broker_world(pods=(pod(0), pod(1))), "Progressing", "True", "Starting", id="starting"
    ),
    pytest.param(
        broker_world(controllers=None),
        "Accepted",
        "False",
        "ControllerGroupNotFound",
        id="dangling",
    ),
    pytest.param(
        broker_world(refusals=(Refusal("Service", "orders", taken=True, message="x"),)),
        "Accepted",
        "False",
        "NameTaken",
        id="name-taken",
    ),
    pytest.param(
        broker_world(refusals=(Refusal("StatefulSet", "o", taken=False, message="x"),)),
        "Accepted",
        "False",
        "ApiRefused",
        id="refused",
    ),
]


@pytest.mark.parametrize(("seen", "name", "status", "reason"), CONDITIONS)
def test_conditions(seen: Any, name: str, status: str, reason: str) -> None:
    assert row(seen, name) == (status, reason)


LAGGING = view(member(1), member(2, in_sync=False), member(3), replicas=3)


@pytest.mark.parametrize(
    ("seen", "status", "reason"),
    [
        pytest.param(broker_world(), "True", "AsWished", id="well"),
        pytest.param(controller_world(), "True", "AsWished", id="quorum"),
        pytest.param(
            broker_world(controllers=None), "False", "ControllerGroupNotFound", id="not-accepted"
        ),
        pytest.param(
            broker_world(known=Unreachable("x")), "Unknown", "ControllerUnreachable", id="unseen"
        ),
        pytest.param(broker_world(known=GONE_MASTER), "False", "NoMaster", id="not-available"),
        pytest.param(
            changed(broker_world(), group=brokers(config={"lock_wait_s": "1"})),
            "False",
            "Applying",
            id="on-its-way",
        ),
        pytest.param(
            changed(broker_world(), group=brokers(config={"lock_wait": "1"})),
            "False",
            "InvalidSpec",
            id="a-wrong-key",
        ),
        pytest.param(
            changed(controller_world(), group=controllers(config={"read_lag_max": "-1"})),
            "False",
            "InvalidSpec",
            id="a-wrong-value",
        ),
        pytest.param(
            broker_world(brokers(replicas=2), replicas=3, known=LAGGING),
            "False",
            "UnsafeScaleDown",
            id="kept-replica",
        ),
        pytest.param(broker_world(brokers(paused=True)), "False", "PausedBySpec", id="paused"),
        pytest.param(
            controller_world(controllers(paused=True)), "False", "PausedBySpec", id="paused-quorum"
        ),
    ],
)
def test_ready_sums_the_others_up(seen: Any, status: str, reason: str) -> None:
    """The one that kubectl wait, Flux and their like ask for; of the generation they wait for."""
    assert row(seen, "Ready") == (status, reason)


GIB = 2**30


def copying(behind_bytes: int) -> Any:
    """A group that had one replica and is to have three: two copies are under way."""
    known = view(
        member(1, max_offset=3 * GIB),
        member(2, max_offset=3 * GIB - behind_bytes, in_sync=False),
        member(3, alive=False, in_sync=False),
        replicas=3,
        min_in_sync_replicas=1,
    )
    return broker_world(known=known)


def test_a_minimum_that_is_not_reached_says_what_it_waits_for() -> None:
    seen = copying(GIB * 3 // 2)
    assert row(seen, "Progressing") == ("True", "RaisingMinimum")
    assert row(seen, "InSync")[0] == "True", "sends are acknowledged by the minimum in force"
    assert told(seen, "Progressing")[2] == (
        "minInSyncReplicas stays 1 until 2 replicas are in sync; 1 is, "
        "broker 2 is up to 2 GiB behind."
    )


def test_a_copy_under_way_changes_the_status_seldom() -> None:
    texts = {told(copying(n * 2**20), "Progressing")[2] for n in range(3 * 1024, 1023, -8)}
    assert len(texts) == 3


def unseen(seen: Any) -> Any:
    """The same world before the StatefulSet's controller has seen the newest template."""
    objects = copy.deepcopy(seen.objects)
    for (kind, _), body in objects.items():
        if kind == "StatefulSet":
            body["metadata"]["generation"] += 1
    return changed(seen, objects=objects)


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(
            changed(broker_world(), group=brokers(config={"lock_wait_s": "1"})), id="written-now"
        ),
        pytest.param(unseen(broker_world()), id="not-seen-yet"),
        pytest.param(
            changed(controller_world(), group=controllers(config={"read_lag_max": "1"})),
            id="quorum",
        ),
        pytest.param(unseen(controller_world()), id="quorum-not-seen-yet"),
    ],
)
def test_a_change_on_its_way_is_progress(seen: Any) -> None:
    """All pods are Ready and in sync, and none of them as wished."""
    assert row(seen, "Progressing") == ("True", "Applying")


@pytest.mark.parametrize("name", ["Available", "InSync", "FullyReplicated", "Progressing"])
def test_what_cannot_be_observed_is_unknown(name: str) -> None:
    seen = changed(with_status(broker_world()), view=LOST)
    assert told(seen, name) == ("Unknown", "ControllerUnreachable", LOST.reason)


def test_a_lost_observation_does_not_rewrite_history() -> None:
    before = with_status(broker_world())
    after = settled_status(changed(before, view=LOST))
    for field in ("master", "members", "inSync", "inSyncReplicas"):
        assert after[field] == before.live_status[field]


def test_an_invalid_spec_is_answered_at_its_generation() -> None:
    meta = brokers({"generation": 5}).metadata
    seen = broker_world(group=brokers(), meta=meta)
    status = settled_status(changed(seen, group=None, invalid="replicas: lower it"))
    assert status["observedGeneration"] == 5
    accepted = next(c for c in status["conditions"] if c["type"] == "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "InvalidSpec")
    assert accepted["message"] == "replicas: lower it"
    assert accepted["observedGeneration"] == 5


def test_an_invalid_spec_keeps_what_was_concluded_before() -> None:
    seen = changed(with_status(broker_world()), group=None, invalid="bad")
    assert row(seen, "InSync") == ("True", "EnoughInSync")
    assert row(seen, "Available") == ("True", "MasterElected")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param({"storage": {"size": "9Gi"}}, "set it back to 10Gi", id="size"),
        pytest.param({"storage": {"className": "fast"}}, "className is fixed", id="class"),
        pytest.param(
            {"replicas": 1, "storage": {"type": "EmptyDir"}},
            "set it back to PersistentVolumeClaim",
            id="type",
        ),
        pytest.param(
            {"controllerRef": {"name": "other"}}, "set it back to gantry", id="controllers"
        ),
    ],
)
def test_a_changed_immutable_field_is_named(spec: dict[str, Any], words: str) -> None:
    seen = changed(broker_world(), group=brokers(**spec))
    status, reason, message = told(seen, "Accepted")
    assert (status, reason) == ("False", "ImmutableFieldChanged")
    assert words in message


def test_the_same_size_in_other_words_is_the_same_size() -> None:
    seen = changed(broker_world(), group=brokers(storage={"size": "10240Mi"}))
    assert row(seen, "Accepted") == ("True", "Valid")


def test_the_picture_of_a_group() -> None:
    known = view(member(1), member(2), member(3, in_sync=False), member(9, alive=False))
    seen = broker_world(known=known)
    assert settled_status(seen) | {"conditions": []} == {
        "observedGeneration": 1,
        "summary": "Catching up 2/3",
        "image": IMAGE,
        "replicas": 3,
        "readyReplicas": 3,
        "ready": "3/3",
        "inSync": "2/3",
        "selector": (
            "app.kubernetes.io/name=gantry,app.kubernetes.io/instance=orders,"
            "app.kubernetes.io/component=broker"
        ),
        "master": {
            "replica": 0,
            "pod": "orders-broker-0",
            "brokerId": 1,
            "epoch": 4,
            "since": "2026-11-21T12:00:00Z",
        },
        "inSyncReplicas": [0, 1],
        "members": [
            member_status(1, 0, "Master", "InSync"),
            member_status(2, 1, "Replica", "InSync"),
            member_status(3, 2, "Replica", "CatchingUp"),
            {k: v for k, v in member_status(9, None, "Replica", "Lost").items() if v is not None},
        ],
        "conditions": [],
    }


def member_status(broker_id: int, replica: int | None, role: str, state: str) -> dict[str, Any]:
    return {
        "brokerId": broker_id,
        "replica": replica,
        "role": role,
        "state": state,
        "address": f"10.0.0.{broker_id + 9}:10911",
    }


def test_a_member_keeps_its_ordinal_while_its_pod_is_replaced() -> None:
    before = with_status(broker_world())
    replaced = changed(before, pods=(pod(0), pod(1), pod(2, uid="fresh")))
    assert settled_status(replaced)["members"][2]["replica"] == 2
    moved_in = view(member(1), member(2), member(3), member(4, pod_uid="fresh"))
    assert "replica" not in settled_status(changed(replaced, view=moved_in))["members"][2]


def test_a_status_is_written_only_when_it_changes() -> None:
    seen = with_status(broker_world())
    assert of_type(plan(seen, NOW + dt.timedelta(hours=1)), WriteStatus) == []


def test_volatile_facts_are_no_change() -> None:
    seen = with_status(broker_world())
    known = view(*(member(n, max_offset=n * 7777, last_heartbeat_age_ms=n) for n in (1, 2, 3)))
    assert of_type(planned(changed(seen, view=known)), WriteStatus) == []


def test_transition_times_move_with_the_status_only() -> None:
    before = with_status(broker_world())
    later = NOW + dt.timedelta(minutes=5)
    (written,) = of_type(plan(changed(before, view=GONE_MASTER), later), WriteStatus)
    times = {c["type"]: c["lastTransitionTime"] for c in written.status["conditions"]}
    assert times["Available"] == times["FullyReplicated"] == "2026-11-21T12:05:00Z"
    assert times["Accepted"] == times["InSync"] == "2026-11-21T12:00:00Z"


def test_another_reason_for_the_same_status_is_no_transition() -> None:
    before = with_status(broker_world(known=view(master_broker_id=None)))
    later = NOW + dt.timedelta(minutes=5)
    (written,) = of_type(plan(changed(before, view=NotDeclared()), later), WriteStatus)
    available = next(c for c in written.status["conditions"] if c["type"] == "Available")
    assert available["reason"] == "WaitingForQuorum"
    assert available["lastTransitionTime"] == "2026-11-21T12:00:00Z"


def test_since_moves_with_the_epoch_only() -> None:
    before = with_status(broker_world())
    later = NOW + dt.timedelta(minutes=5)
    moved = view(master_broker_id=2, master_epoch=5)
    (written,) = of_type(plan(changed(before, view=moved), later), WriteStatus)
    assert written.status["master"]["since"] == "2026-11-21T12:05:00Z"
    again = changed(before, view=GONE_MASTER)
    (written,) = of_type(plan(again, later), WriteStatus)
    assert written.status["master"]["since"] == "2026-11-21T12:00:00Z"


def test_status_comes_before_what_it_tells_about() -> None:
    actions = planned(broker_world(pods=tuple(pod(n, revision=OLD) for n in range(3))))
    kinds = [type(action).__name__ for action in actions]
    assert kinds.index("WriteStatus") < kinds.index("DeletePod")


# Events


def events(seen: Any) -> list[tuple[str, str]]:
    return [(e.type, e.reason) for e in of_type(planned(seen), EmitEvent)]


def test_a_quiet_group_has_no_events() -> None:
    assert events(with_status(broker_world())) == []


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param(
            {"view": view(master_broker_id=2, master_epoch=5)},
            [("Normal", "MasterElected")],
            id="failover",
        ),
        pytest.param({"view": GONE_MASTER}, [("Warning", "NoMaster")], id="master-lost"),
        pytest.param({"view": LOST}, [], id="observation-lost"),
        pytest.param({"group": None, "invalid": "bad"}, [("Warning", "InvalidSpec")], id="invalid"),
        pytest.param(
            {"pods": tuple(pod(n, revision=OLD) for n in range(3))},
            [("Normal", "RollingUpdate")],
            id="step",
        ),
        pytest.param(
            {"group": brokers(switchover={"id": "a", "to": 8})},
            [("Warning", "SwitchoverRefused")],
            id="refused",
        ),
        pytest.param(
            {"group": brokers(switchover={"id": "a", "to": 0})},
            [("Normal", "SwitchoverCompleted")],
            id="completed",
        ),
    ],
)
def test_events(facts: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    seen = changed(with_status(broker_world()), **facts)
    assert events(seen) == expected
    if "pods" not in facts:
        assert events(with_status(seen)) == [], "told once"


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(broker_world(known=NotDeclared()), id="undeclared"),
        pytest.param(broker_world(known=LOST), id="not-reached"),
        pytest.param(
            broker_world(known=view(master_broker_id=None, master_epoch=0)), id="unelected"
        ),
    ],
)
def test_what_only_comes_up_has_lost_nothing(before: Any) -> None:
    not_ready = (pod(0, ready=False), pod(1), pod(2))
    seen = changed(with_status(before), view=view(), pods=not_ready)
    assert [reason for _, reason in events(seen)] == ["MasterElected"]


WAITING = [
    pytest.param(
        (pod(0), pod(1)),
        "orders-broker-2 does not exist: if it stays so, `kubectl describe statefulset "
        "orders-broker` says why.",
        id="refused-or-not-made-yet",
    ),
    pytest.param(
        (pod(0), pod(1), pod(2, ready=False)),
        "orders-broker-2 is not Ready: if it stays so, `kubectl describe pod orders-broker-2` says "
        "why.",
        id="without-a-volume",
    ),
    pytest.param(
        (pod(0), pod(1), pod(2, ready=False, terminating=True)),
        "orders-broker-2 is being deleted: if it stays so, `kubectl describe pod orders-broker-2` "
        "says why.",
        id="held-by-a-finalizer",
    ),
]


@pytest.mark.parametrize(("pods", "words"), WAITING)
def test_what_a_pod_waits_for_is_said_to_be_where_it_is_said(pods: Any, words: str) -> None:
    seen = broker_world(pods=pods)
    wanted = ("True", "Starting", f"2 of 3 pods are Ready. {words}")
    assert told(seen, "Progressing") == wanted
    words = words.replace("orders-broker", "gantry-controller")
    names = {f"orders-broker-{n}": f"gantry-controller-{n}" for n in range(3)}
    own = tuple(msgspec.structs.replace(one, name=names[one.name]) for one in pods)
    assert told(controller_world(pods=own), "Progressing") == (
        *wanted[:2],
        f"2 of 3 pods are Ready. {words}",
    )


def test_a_loss_behind_a_lost_observation_is_told() -> None:
    lost = with_status(changed(with_status(broker_world()), view=LOST))
    assert events(changed(lost, view=GONE_MASTER)) == [("Warning", "NoMaster")]


# When to look again


@pytest.mark.parametrize(
    ("seen", "seconds"),
    [
        pytest.param(broker_world(), [], id="settled"),
        pytest.param(broker_world(known=LOST), [5.0], id="lost"),
        pytest.param(broker_world(known=GONE_MASTER), [5.0], id="unwell"),
        pytest.param(
            broker_world(pods=tuple(pod(n, revision=OLD) for n in range(3))), [2.0], id="step"
        ),
    ],
)
def test_look_again(seen: Any, seconds: list[float]) -> None:
    assert [a.after_s for a in of_type(planned(seen), CheckAgain)] == seconds


def test_every_reason_is_explained() -> None:
    assert [reason for reason in Reason if len(reason.__doc__ or "") < 20] == []
    assert all(reason.value.isalnum() and reason.value[0].isupper() for reason in Reason)


def test_status_models_read_their_own_writing() -> None:
    body = settled_status(broker_world())
    assert BrokerGroupStatus.model_validate(body).to_object() == body
    assert ControllerGroup.parse({"metadata": {"name": "gantry"}, "status": None}).status is None


def test_a_disk_that_is_full_of_what_must_stay_is_told_while_it_is() -> None:
    full = member(2, disk_stuck="a delayed message needs the log from 3 on")
    seen = broker_world(known=view(member(1), full, member(3)))
    status, reason, text = told(seen, "DiskFull")
    assert (status, reason) == ("True", "NothingMayGo")
    assert "has no room: a delayed message needs the log from 3 on." in text
    usual = [condition["type"] for condition in settled_status(broker_world())["conditions"]]
    assert "DiskFull" not in usual
    assert "LogDamaged" not in usual


def test_a_log_that_nobody_could_repair_is_told_while_it_is() -> None:
    damaged = member(2, log_damage="1 damaged ranges, the first at log offsets 3 to 9: no")
    seen = broker_world(known=view(member(1), damaged, member(3)))
    status, reason, text = told(seen, "LogDamaged")
    assert (status, reason) == ("True", "NotRepaired")
    assert "is damaged: 1 damaged ranges, the first at log offsets 3 to 9: no." in text


def test_queues_of_mapped_topics_are_counted_once_there_were_some() -> None:
    assert "queues" not in settled_status(broker_world(known=view()))
    seen = with_status(broker_world(known=view(queues=8, queues_wished=8)))
    assert settled_status(seen)["queues"] == 8
    gone = changed(seen, view=view())
    assert settled_status(gone)["queues"] == 0
    (event,) = of_type(planned(gone), EmitEvent)
    assert (event.type, event.reason) == ("Normal", "QueuesMoved")
    assert event.note == "It has 0 queues of mapped topics now, 8 before."


def test_queues_that_are_to_come_or_go_are_told_while_they_are() -> None:
    seen = broker_world(known=view(queues=8, queues_wished=12))
    assert told(seen, "QueuesMoving") == (
        "True",
        "QueuesMoving",
        "It has 8 queues of mapped topics, and is to have 12.",
    )
    settled = settled_status(broker_world(known=view(queues=8, queues_wished=8)))
    assert "QueuesMoving" not in [condition["type"] for condition in settled["conditions"]]
