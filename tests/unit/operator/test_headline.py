"""One line that says how a resource is, and what tools that wait conclude from its conditions."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.models import Condition
from gantry_operator.models.base import ConditionStatus
from gantry_operator.plan.conditions import Conditions
from gantry_operator.plan.entities import plan_entity
from gantry_operator.plan.headline import MAX_WORDS, headline
from gantry_operator.plan.observed import Observed, Refusal
from gantry_operator.plan.reasons import Reason
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable
from unit.operator.test_crashes import BACK_OFF, LOOPING, container, crashing
from unit.operator.test_plan_entities import ABSENT, OTHER, after, topic
from unit.operator.test_plan_entities import seen as entity_world
from unit.operator.world import (
    NOW,
    OLD,
    broker_world,
    brokers,
    changed,
    controller_world,
    controllers,
    front_pod,
    front_world,
    fronts,
    member,
    pod,
    settled_status,
    shard_view,
    shard_world,
    view,
)

GOING = {"deletionTimestamp": "2026-11-21T12:00:00Z"}
LOST = Unreachable("No controller answers.")
TAKEN = Refusal("Service", "orders-master", taken=True, message="it is somebody else's")
DENIED = Refusal("StatefulSet", "orders-broker", taken=False, message="quota")
UNKNOWN_KEY = "gantry: unknown key log_segmnt_bytes; did you mean log_segment_bytes?"


def compute(body: dict[str, Any]) -> str:
    """The status of a resource by the published rules of kstatus (cli-utils, `status.Compute`).

    Deletion first, then the generation, then Reconciling and Stalled in the order in which they
    stand, then Ready; a resource that has none of these is taken for current.
    """
    meta, status = body["metadata"], body.get("status") or {}
    if meta.get("deletionTimestamp"):
        return "Terminating"
    observed = status.get("observedGeneration")
    if observed is not None and observed != meta["generation"]:
        return "InProgress"
    conditions = status.get("conditions") or ()
    for condition in conditions:
        if condition["type"] == "Reconciling" and condition["status"] == "True":
            return "InProgress"
        if condition["type"] == "Stalled" and condition["status"] == "True":
            return "Failed"
    for condition in conditions:
        if condition["type"] == "Ready":
            return "Current" if condition["status"] == "True" else "InProgress"
    return "Current"


def rolling() -> Observed:
    """One of three has been replaced."""
    return broker_world(pods=(pod(0, revision=OLD), pod(1, revision=OLD), pod(2)))


def changed_spec(seen: Any, **spec: Any) -> Any:
    return changed(seen, group=brokers(**spec))


def deleting(finalizer: str, **facts: Any) -> Any:
    group = brokers(GOING | {"finalizers": (finalizer,)}, storage={"whenDeleted": "Delete"})
    return changed(broker_world(group), **facts)


def quorum_held(*dependents: str) -> Any:
    group = controllers()
    finalizers = (names.QUORUM_FINALIZER,)
    update = {"deletion_timestamp": GOING["deletionTimestamp"], "finalizers": finalizers}
    meta = group.metadata.model_copy(update=update)
    return changed(controller_world(group), meta=meta, dependents=dependents)


def rolled_fronts() -> Any:
    seen = front_world(fronts(replicas=3))
    objects = {key: dict(body) for key, body in seen.objects.items()}
    deployment = next(body for (kind, _), body in objects.items() if kind == "Deployment")
    deployment["status"] = deployment["status"] | {"updatedReplicas": 1}
    return changed(seen, objects=objects)


STUCK = view(member(1, disk_stuck="the disk is full"), member(2), member(3))
MASTERLESS = view(member(1, alive=False), member(2), member(3), master_broker_id=None)
STATES = [
    pytest.param(broker_world(), "Healthy", "Current", id="well"),
    pytest.param(controller_world(), "Healthy", "Current", id="quorum-well"),
    pytest.param(front_world(), "Healthy", "Current", id="fronts-well"),
    pytest.param(shard_world(), "Healthy", "Current", id="shards-well"),
    pytest.param(broker_world(known=STUCK), "Healthy (DiskFull)", "Current", id="full"),
    pytest.param(
        changed(broker_world(), refusals=(TAKEN,)), "Refused NameTaken", "Failed", id="taken"
    ),
    pytest.param(
        changed(broker_world(), refusals=(DENIED,)), "Refused ApiRefused", "Failed", id="denied"
    ),
    pytest.param(
        changed(broker_world(), group=None, invalid="replicas: lower it"),
        "Refused InvalidSpec",
        "Failed",
        id="invalid",
    ),
    pytest.param(
        changed_spec(broker_world(), storage={"size": "5Gi"}),
        "Refused ImmutableFieldChanged",
        "Failed",
        id="immutable",
    ),
    pytest.param(
        broker_world(controllers=None),
        "Refused ControllerGroupNotFound",
        "InProgress",
        id="applied-before-its-quorum",
    ),
    pytest.param(
        crashing(container(BACK_OFF, {"exitCode": 2, "message": UNKNOWN_KEY})),
        "Crashing: unknown key log_segmnt_bytes; did you mean log_segment_bytes?",
        "Failed",
        id="crashing",
    ),
    pytest.param(
        crashing(container(BACK_OFF, {"exitCode": 137})),
        "Crashing: orders-broker-2 ended with code 137",
        "Failed",
        id="crashing-without-a-word",
    ),
    pytest.param(rolling(), "Rolling 1/3", "InProgress", id="rolling"),
    pytest.param(
        changed(rolling(), view=MASTERLESS),
        "Rolling 1/3 (no master)",
        "InProgress",
        id="masterless",
    ),
    pytest.param(rolled_fronts(), "Rolling 1/3", "InProgress", id="rolling-fronts"),
    pytest.param(
        front_world(pods=(front_pod(0), front_pod(1, ready=False))),
        "Starting 1/2",
        "InProgress",
        id="starting-fronts",
    ),
    pytest.param(
        broker_world(
            pods=(pod(0), pod(1)), known=view(member(1), member(2), member(3, in_sync=False))
        ),
        "Starting 2/3",
        "InProgress",
        id="starting",
    ),
    pytest.param(
        broker_world(known=view(member(1), member(2), member(3, in_sync=False))),
        "Catching up 2/3",
        "InProgress",
        id="catching-up",
    ),
    pytest.param(
        broker_world(known=NotDeclared()), "Waiting for quorum", "InProgress", id="not-declared"
    ),
    pytest.param(broker_world(known=MASTERLESS), "No master", "InProgress", id="no-master"),
    pytest.param(
        changed(broker_world(), view=LOST),
        "Unknown (controllers unreachable)",
        "InProgress",
        id="unseen",
    ),
    pytest.param(broker_world(brokers(paused=True)), "Paused", "InProgress", id="paused"),
    pytest.param(
        broker_world(
            brokers(replicas=2),
            replicas=3,
            known=view(member(1), member(2, in_sync=False), member(3)),
        ),
        "Not scaled down",
        "InProgress",
        id="kept-replica",
    ),
    pytest.param(
        broker_world(brokers(switchover={"id": "a", "to": 1})),
        "Switching over",
        "InProgress",
        id="switchover",
    ),
    pytest.param(
        changed_spec(broker_world(), config={"lock_wait_s": "1"}),
        "Applying",
        "InProgress",
        id="on-its-way",
    ),
    pytest.param(deleting(names.FINALIZER), "Deleting (3 pods left)", "Terminating", id="stopping"),
    pytest.param(
        deleting(names.FINALIZER, objects={}, pods=(), view=LOST),
        "Deleting (waits for controllers)",
        "Terminating",
        id="waits-for-controllers",
    ),
    pytest.param(
        deleting("a/b"), "Deleting (waits for finalizers of others)", "Terminating", id="others"
    ),
    pytest.param(
        quorum_held("orders", "payments"),
        "Deleting (waits for orders and 1 more)",
        "Terminating",
        id="held",
    ),
    pytest.param(
        shard_world(views={1: shard_view(1, member(1), member(2), member(3, in_sync=False))}),
        "Catching up 2/3",
        "InProgress",
        id="worst-shard",
    ),
]


@pytest.mark.parametrize(("seen", "line", "concluded"), STATES)
def test_each_state_has_a_line_and_a_conclusion(seen: Any, line: str, concluded: str) -> None:
    status = settled_status(seen)
    assert status["summary"] == line
    meta = {"generation": seen.meta.generation}
    if seen.meta.deletion_timestamp:
        meta["deletionTimestamp"] = seen.meta.deletion_timestamp
    assert compute({"metadata": meta, "status": status}) == concluded
    newer = meta | {"generation": seen.meta.generation + 1}
    assert compute({"metadata": newer, "status": status}) in ("InProgress", "Terminating")


def test_a_line_has_no_place_for_a_novel() -> None:
    end = {"exitCode": 2, "message": f"gantry: {'x' * 300}"}
    line = settled_status(crashing(container(BACK_OFF, end)))["summary"]
    assert len(line) == len("Crashing: ") + MAX_WORDS
    assert line.endswith("…")
    assert settled_status(LOOPING)["summary"].endswith("write TENANT:BYTES"), "no full stop"


@pytest.mark.parametrize(
    ("world", "line", "concluded"),
    [
        pytest.param(entity_world(), "Healthy", "Current", id="in-place"),
        pytest.param(entity_world(standing=ABSENT), "Being made", "InProgress", id="made"),
        pytest.param(
            entity_world(standing=OTHER), "Refused ExistsOtherwise", "Failed", id="exists"
        ),
        pytest.param(entity_world(first="older"), "Refused AnotherOwnsIt", "Failed", id="second"),
        pytest.param(
            entity_world(standing=ABSENT, refusal="no"),
            "Refused RefusedByControllers",
            "Failed",
            id="refused",
        ),
        pytest.param(
            entity_world(quorum_exists=False),
            "Refused ControllerGroupNotFound",
            "InProgress",
            id="before-its-quorum",
        ),
        pytest.param(
            after(
                entity_world(),
                meta=topic(GOING | {"finalizers": ("a/b",)}).metadata,
            ),
            "Deleting (waits for finalizers of others)",
            "Terminating",
            id="deleting",
        ),
    ],
)
def test_entities_have_the_same_lines(world: Any, line: str, concluded: str) -> None:
    (written,) = [action for action in plan_entity(world, NOW) if hasattr(action, "status")]
    assert written.status["summary"] == line
    meta = {"generation": world.meta.generation}
    if world.meta.deletion_timestamp:
        meta["deletionTimestamp"] = world.meta.deletion_timestamp
    assert compute({"metadata": meta, "status": written.status}) == concluded


def summed_up(reason: str, status: ConditionStatus = "False") -> dict[str, Condition]:
    conditions = Conditions((), 1, NOW)
    conditions.conclude(status, reason, "words")
    return {condition.type: condition for condition in conditions.result()}


@pytest.mark.parametrize("reason", list(Reason), ids=str)
def test_what_is_not_ready_is_under_way_or_stuck_and_never_both(reason: Reason) -> None:
    assert set(summed_up(reason, "True")) == {"Ready"}
    assert set(summed_up(reason, "Unknown")) == {"Ready"}
    more = set(summed_up(reason)) - {"Ready"}
    assert len(more) <= 1
    assert more <= {"Stalled", "Reconciling"}
    if not more:
        assert reason in (
            Reason.PAUSED_BY_SPEC,
            Reason.UNSAFE_SCALE_DOWN,
            Reason.UNSAFE_HIBERNATION,
            Reason.UNSAFE_FENCE,
            Reason.WAITING_FOR_APPROVAL,
            Reason.VOLUME_EXPANSION_REFUSED,
            Reason.SETTINGS_REFUSED,
        )


@pytest.mark.parametrize("reason", [*Reason, "FromANewerOperator"], ids=str)
def test_every_reason_makes_a_line(reason: str) -> None:
    for status in ("True", "False", "Unknown"):
        line = headline(summed_up(reason, status).values())
        assert line
        assert line == headline(summed_up(reason, status).values())
