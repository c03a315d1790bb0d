"""Whoever goes: the finalizer, a deletion step by step, and members that are forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.plan.actions import (
    CheckAgain,
    DeleteStatefulSet,
    ForgetGroup,
    ForgetMember,
    RetireGroup,
    SetFinalizer,
    WriteStatus,
)
from gantry_operator.plan.deletion import has_departed
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable
from unit.operator.world import (
    broker_world,
    brokers,
    changed,
    controllers,
    member,
    of_type,
    planned,
    pod,
    view,
)

LOST = Unreachable("no controller answers")

DELETE = {"whenDeleted": "Delete"}
MARKED = {"finalizers": (names.FINALIZER, "other/one"), "resourceVersion": "7"}
GOING = MARKED | {"deletionTimestamp": "2026-11-21T12:00:00Z"}


@pytest.mark.parametrize(
    ("storage", "finalizers", "expected"),
    [
        pytest.param({}, (), None, id="retain-has-none"),
        pytest.param(DELETE, (), (names.FINALIZER,), id="delete-has-one"),
        pytest.param(DELETE, ("a/b", names.FINALIZER), None, id="set-once"),
        pytest.param({}, ("a/b", names.FINALIZER), ("a/b",), id="retain-again"),
    ],
)
def test_finalizer(storage: Any, finalizers: Any, expected: Any) -> None:
    group = brokers({"finalizers": finalizers}, storage=storage)
    found = of_type(planned(broker_world(group)), SetFinalizer)
    assert [action.finalizers for action in found] == ([] if expected is None else [expected])
    assert all(action.resource_version == "7" for action in found)


RETIRED = view(retired=True)


def deletion(**facts: Any) -> list[Any]:
    seen = broker_world(brokers(GOING, storage=DELETE), known=RETIRED)
    plan = planned(changed(seen, **facts))
    return [action for action in plan if not isinstance(action, CheckAgain | WriteStatus)]


def test_without_the_finalizer_garbage_collection_does_everything() -> None:
    group = brokers({"deletionTimestamp": "2026-11-21T12:00:00Z"})
    (told,) = planned(broker_world(group, known=RETIRED))
    assert isinstance(told, WriteStatus)


@pytest.mark.parametrize(
    ("finalizers", "facts", "text"),
    [
        pytest.param(("a/b",), {}, "Waiting for finalizers of others: a/b.", id="others"),
        pytest.param((names.FINALIZER,), {}, "being stopped; 3 still exist", id="pods"),
        pytest.param(
            (names.FINALIZER,),
            {"objects": {}, "pods": (), "view": LOST},
            "Waiting for the controllers, to clean the group's metadata",
            id="lost",
        ),
        pytest.param((names.FINALIZER,), {"objects": {}, "pods": ()}, "clean", id="clean"),
    ],
)
def test_a_deletion_is_told(finalizers: tuple[str, ...], facts: dict[str, Any], text: str) -> None:
    """Whoever waits for it must not read that nothing is under way."""
    meta = {"deletionTimestamp": "2026-11-21T12:00:00Z", "finalizers": finalizers}
    seen = changed(broker_world(brokers(meta, storage=DELETE)), **facts)
    (told,) = of_type(planned(seen), WriteStatus)
    progressing = next(c for c in told.status["conditions"] if c["type"] == "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("True", "Deleting")
    assert text in progressing["message"]


@pytest.mark.parametrize("meta", [GOING, {"deletionTimestamp": "now"}], ids=["delete", "retain"])
def test_deletion_takes_the_group_out_of_the_routes_first(meta: dict[str, Any]) -> None:
    actions = [a for a in planned(broker_world(brokers(meta))) if not isinstance(a, WriteStatus)]
    assert actions[0] == RetireGroup(uid="bg-uid")


@pytest.mark.parametrize(
    ("known", "finalizers"),
    [
        pytest.param(view(), ("orphan",), id="its-pods-are-kept-by-somebody"),
        pytest.param(view(uid="newer"), (), id="taken-over"),
        pytest.param(RETIRED, (), id="retired"),
        pytest.param(LOST, (), id="unreachable"),
    ],
)
def test_deletion_leaves_the_routes_alone(known: Any, finalizers: tuple[str, ...]) -> None:
    group = brokers({"deletionTimestamp": "now", "finalizers": finalizers})
    assert of_type(planned(broker_world(group, known=known)), RetireGroup) == []


OURS = (names.FINALIZER, names.DRAIN_FINALIZER)


@pytest.mark.parametrize("finalizers", [(), OURS[:1], OURS[1:], OURS], ids=str)
@pytest.mark.parametrize("cut", [True, False], ids=["cut-loose", "to-be-cut"])
def test_pods_that_a_deletion_leaves_to_others_serve_on(
    finalizers: tuple[str, ...], cut: bool
) -> None:
    """Whatever else holds the resource, and whichever of the two the watches bring first."""
    others = () if cut else ("orphan",)
    group = brokers(GOING | {"finalizers": finalizers + others}, storage=DELETE)
    seen = broker_world(group, neighbours=True)
    if cut:
        bodies = {key: body | {"metadata": {}} for key, body in seen.objects.items()}
        seen = changed(seen, objects=bodies)
    plan = [act for act in planned(seen) if not isinstance(act, WriteStatus)]
    assert {type(act) for act in plan} <= {SetFinalizer}, "nothing else is done"
    assert bool(plan) == bool(finalizers), "and the resource is let go"


OWNED = {"metadata": {"ownerReferences": [{"uid": "bg-uid"}]}}
ENDING = {"metadata": {"deletionTimestamp": "now"}}


@pytest.mark.parametrize(
    ("known", "owner", "statefulset", "expected"),
    [
        pytest.param(view(), None, OWNED, True, id="garbage-collection-follows"),
        pytest.param(view(), None, ENDING, True, id="pods-end"),
        pytest.param(view(), None, None, True, id="nothing-left"),
        pytest.param(view(), None, {"metadata": {}}, False, id="orphaned-pods-serve-on"),
        pytest.param(view(), {"metadata": {}}, None, False, id="the-resource-exists"),
        pytest.param(view(uid=None), None, None, False, id="nobody-declared-it"),
        pytest.param(RETIRED, None, None, False, id="retired"),
        pytest.param(NotDeclared(), None, None, False, id="unknown"),
        pytest.param(LOST, None, None, False, id="unreachable"),
        pytest.param(view(member(1, pod_uid=None)), None, None, False, id="brokers-without-pods"),
    ],
)
def test_a_group_has_departed(known: Any, owner: Any, statefulset: Any, expected: bool) -> None:
    assert has_departed(known, owner, statefulset) is expected


GONE = member(4, pod_uid="uid-3", alive=False, in_sync=False, incarnation="n4")


def forgotten(seen: Any) -> list[int]:
    return [action.broker_id for action in of_type(planned(seen), ForgetMember)]


def test_who_scaling_down_removed_is_forgotten() -> None:
    known = view(member(1), member(2), member(3), GONE)
    (action,) = of_type(planned(broker_world(known=known)), ForgetMember)
    assert action == ForgetMember(broker_id=4, incarnation="n4")


def test_the_dead_twin_of_a_wiped_replica_is_forgotten() -> None:
    twin = member(3, alive=False, in_sync=False)
    known = view(member(1), member(2), twin, member(4, pod_uid="uid-2"))
    assert forgotten(broker_world(known=known)) == [3]


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(
            {"known": view(member(1), member(2), member(3, in_sync=False), GONE)},
            id="somebody-catches-up",
        ),
        pytest.param({"known": view(member(1), member(2), GONE)}, id="a-pod-has-no-member"),
        pytest.param({"pods": (pod(0), pod(1))}, id="a-pod-is-missing"),
        pytest.param({"pods": (pod(0), pod(1), pod(2, ready=False))}, id="a-pod-is-not-ready"),
        pytest.param({"pods": (pod(0), pod(1), pod(2), pod(3))}, id="its-pod-still-exists"),
        pytest.param({"replicas": 4}, id="scaling-down-is-not-over"),
        pytest.param({"group": brokers(replicas=4)}, id="it-is-wished-again"),
        pytest.param({"group": brokers(paused=True)}, id="paused"),
        pytest.param(
            {"known": view(member(1), member(2), member(3), member(4, pod_uid="uid-3"))}, id="alive"
        ),
        pytest.param(
            {
                "known": view(
                    member(1), member(2), member(3), member(4, pod_uid="uid-3", alive=False)
                )
            },
            id="in-the-set",
        ),
        pytest.param(
            {
                "known": view(
                    member(1),
                    member(2),
                    member(3),
                    member(4, pod_uid=None, address="10.9.9.9:1", alive=False, in_sync=False),
                )
            },
            id="it-never-was-in-a-pod",
        ),
        pytest.param({"known": LOST}, id="unreachable"),
    ],
)
def test_nobody_is_forgotten_while_anything_is_open(facts: dict[str, Any]) -> None:
    defaults = {"known": view(member(1), member(2), member(3), GONE)}
    assert forgotten(broker_world(**(defaults | facts))) == []


def test_deletion_stops_the_pods_first() -> None:
    assert deletion() == [DeleteStatefulSet(name="orders-broker", uid="live")]


def test_deletion_waits_for_the_pods() -> None:
    assert deletion(objects={}) == []
    seen = broker_world(brokers(GOING, storage=DELETE), known=RETIRED)
    seen.objects["StatefulSet", "orders-broker"]["metadata"]["deletionTimestamp"] = "now"
    assert [type(action) for action in planned(seen)] == [WriteStatus, CheckAgain]


def test_deletion_goes_on_if_the_retirement_is_still_due() -> None:
    actions = deletion(view=view())
    assert [type(action) for action in actions] == [RetireGroup, DeleteStatefulSet]


def test_then_the_controllers_forget_the_group() -> None:
    assert deletion(objects={}, pods=()) == [ForgetGroup(uid="bg-uid")]


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"view": NotDeclared()}, id="forgotten"),
        pytest.param({"view": view(uid="newer")}, id="taken-over"),
        pytest.param(
            {"view": LOST, "controllers": None, "controllers_exist": False}, id="controllers-gone"
        ),
    ],
)
def test_then_the_resource_goes(facts: dict[str, Any]) -> None:
    (action,) = deletion(objects={}, pods=(), **facts)
    assert action == SetFinalizer(present=False, finalizers=("other/one",), resource_version="7")


@pytest.mark.parametrize("quorum", [controllers(), None], ids=["valid", "invalid"])
def test_unreachable_controllers_hold_the_deletion(quorum: Any) -> None:
    assert deletion(objects={}, pods=(), view=LOST, controllers=quorum) == []
