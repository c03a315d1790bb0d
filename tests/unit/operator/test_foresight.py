"""A change before it happens: the operator's own plan, for the worlds that would follow."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_operator.plan import plan
from gantry_operator.plan.foresight import HAND_OVER_MS, LIMIT, Foresight, foresee
from gantry_operator.plan.observed import BrokerObserved, Observed
from gantry_protocol.admin import GroupView
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable
from hypothesis import given
from unit.operator.test_plan_properties import worlds
from unit.operator.world import (
    NOW,
    OLD,
    broker_world,
    brokers,
    changed,
    controller_pod,
    controller_world,
    controllers,
    front_world,
    fronts,
    fronts_view,
    member,
    pod,
    shard_world,
    view,
)

OUTDATED = tuple(pod(n, revision=OLD) for n in range(3))


def any_change(manifest: dict[str, Any], live: dict[str, Any]) -> bool:
    return manifest != live


def waits(ordinal: int, staying: int, needed: int) -> str:
    head = f"Restart orders-broker-{ordinal}. Sends wait until it is back: "
    return f"{head}in sync without it {staying}, needed {needed}."


def foreseen(seen: Observed, **facts: Any) -> Foresight:
    return foresee(seen, NOW, plan, **facts)


def course(seen: Observed, **facts: Any) -> list[str]:
    return [step.message for step in foreseen(seen, **facts).disruptive]


def test_a_roll_is_foreseen_pod_by_pod_the_master_last() -> None:
    found = foreseen(broker_world(pods=OUTDATED))
    assert [step.message for step in found.steps] == [
        "Restart orders-broker-2. Sends go on.",
        "Restart orders-broker-1. Sends go on.",
        "Move the mastership from orders-broker-0 to orders-broker-1.",
        "Restart orders-broker-0. Sends go on.",
    ]
    assert [step.gap_ms for step in found.steps] == [0, 0, HAND_OVER_MS, 0]
    assert (found.gap_ms, found.refused, found.waits) == (HAND_OVER_MS, "", "")
    (move,) = (move for step in found.steps for move in step.moves)
    assert (move.from_pod, move.to_pod) == ("orders-broker-0", "orders-broker-1")


def test_the_gap_of_a_move_is_the_one_that_was_measured_last() -> None:
    assert foreseen(broker_world(pods=OUTDATED), gap_ms=73).gap_ms == 73


def test_a_new_template_rolls_and_another_number_of_replicas_does_not() -> None:
    changed_config = changed(broker_world(), group=brokers(config={"lock_wait_s": "1"}))
    found = foreseen(changed_config, rolls=any_change)
    assert next(step.message for step in found.steps) == "Change StatefulSet orders-broker."
    assert len(found.disruptive) == 4
    grown = foreseen(broker_world(brokers(replicas=5), replicas=3))
    assert grown.disruptive == ()
    assert "Start orders-broker-3, orders-broker-4." in [step.message for step in grown.steps]


def test_what_is_well_has_no_steps() -> None:
    for seen in (broker_world(), controller_world(), front_world(), shard_world()):
        assert foreseen(seen).disruptive == ()
        assert foreseen(seen).waits == ""


@pytest.mark.parametrize(
    ("seen", "messages", "gap_ms"),
    [
        pytest.param(
            broker_world(brokers(replicas=1), replicas=3, known=view(master_broker_id=3)),
            [
                "Move the mastership from orders-broker-2 to orders-broker-0.",
                "Remove orders-broker-2.",
                "Remove orders-broker-1.",
            ],
            HAND_OVER_MS,
            id="the-master-leaves",
        ),
        pytest.param(
            broker_world(brokers(replicas=1), pods=(pod(0, revision=OLD),)),
            [waits(0, 0, 1)],
            None,
            id="the-only-replica",
        ),
        pytest.param(
            broker_world(
                brokers(replicas=2),
                pods=OUTDATED[:2],
                known=view(member(1), member(2), replicas=2),
            ),
            [
                waits(1, 1, 2),
                "Move the mastership from orders-broker-0 to orders-broker-1.",
                waits(0, 1, 2),
            ],
            None,
            id="nobody-to-spare",
        ),
        pytest.param(
            broker_world(brokers(switchover={"id": "a", "to": 2})),
            ["Move the mastership from orders-broker-0 to orders-broker-2."],
            HAND_OVER_MS,
            id="switchover",
        ),
        pytest.param(
            controller_world(pods=tuple(controller_pod(n, revision=OLD) for n in range(3))),
            [
                "Restart gantry-controller-2. Sends go on.",
                "Restart gantry-controller-1. Sends go on.",
                "Restart gantry-controller-0, the leader; another controller leads. Sends go on.",
            ],
            0,
            id="controllers",
        ),
        pytest.param(
            broker_world(pods=(pod(0), pod(1), pod(2, revision=OLD, ready=False, running=False))),
            ["Restart orders-broker-2, whose container does not run."],
            0,
            id="a-broken-pod",
        ),
    ],
)
def test_steps_and_gaps(seen: Any, messages: list[str], gap_ms: int | None) -> None:
    assert course(seen) == messages
    assert foreseen(seen).gap_ms == gap_ms


def test_many_masterships_of_a_pod_move_as_one_step() -> None:
    old = tuple(pod(n, role=None, shards=3, revision=OLD) for n in range(3))
    moves = [len(step.moves) for step in foreseen(shard_world(pods=old)).disruptive]
    assert moves == [1, 0, 1, 0, 2, 0]


def test_a_refusal_is_told_and_nothing_else() -> None:
    found = foreseen(changed(broker_world(), group=brokers(storage={"size": "1Gi"})))
    assert (found.steps, found.refused) == ((), "ImmutableFieldChanged")
    assert "set it back to 10Gi" in found.message


def test_what_waits_says_for_what() -> None:
    lagging = view(member(1), member(2, in_sync=False), member(3))
    kept = foreseen(broker_world(brokers(replicas=2), replicas=3, known=lagging))
    assert (kept.disruptive, kept.waits) == ((), "UnsafeScaleDown")
    assert "raise spec.replicas again" in kept.message
    shrunk = foreseen(shard_world(2, 3))
    assert shrunk.waits == "Draining"
    lost = foreseen(changed(broker_world(pods=OUTDATED), view=Unreachable("No answer.")))
    assert (lost.disruptive, lost.waits, lost.message) == (
        (),
        "ControllerUnreachable",
        "No answer.",
    )
    stuck = foreseen(broker_world(pods=(OUTDATED[0], OUTDATED[1], pod(2, ready=False))))
    assert stuck.disruptive == ()
    assert "orders-broker-2 is not Ready yet" in stuck.message


def test_new_resources_end_ready() -> None:
    made = foreseen(changed(broker_world(), objects={}, pods=(), view=NotDeclared()))
    assert made.waits == ""
    assert made.steps[-1].message == "Tell the controllers: 3 replicas, at least 2 in sync."
    unborn = Unreachable("There are no controllers yet.")
    quorum = foreseen(changed(controller_world(), objects={}, pods=(), quorum=unborn))
    assert quorum.waits == ""
    led = fronts_view(declared=False)
    assert foreseen(changed(front_world(), objects={}, pods=(), view=led)).waits == ""
    assert foreseen(changed(front_world(), group=fronts(replicas=3))).waits == ""


def test_a_listener_restarts_brokers_never_and_controllers_one_by_one() -> None:
    clients = {"listeners": [{"name": "outside", "type": "NodePort", "allowPlain": True}]}
    group = foreseen(changed(broker_world(), group=brokers(clients=clients)), rolls=any_change)
    assert (group.waits, group.disruptive) == ("", ())
    assert group.steps[-1].message.endswith("Give clients addresses of listener outside.")
    quorum = changed(controller_world(), group=controllers(clients=clients))
    assert len(foreseen(quorum, rolls=any_change).disruptive) == 3


@given(worlds)
def test_every_course_ends_and_holds_at_most_one_step_at_a_time(seen: Any) -> None:
    before = repr(seen)
    found = foreseen(seen, rolls=any_change)
    assert found.waits != "CutOff", f"more than {LIMIT} turns"
    assert repr(seen) == before, "nothing of the world is changed by foresight"
    restarted = [name for step in found.disruptive for name in step.pods]
    assert len(restarted) <= 2 * len(seen.pods) + 5
    assert found == foreseen(seen, rolls=any_change)


@given(worlds)
def test_what_is_foreseen_begins_with_what_is_planned(seen: Any) -> None:
    """The first disruptive step is the planner's own, unless steps that take nothing away help."""
    planned = [action for action in plan(seen, NOW) if action.disruptive]
    if planned and not foreseen(seen).refused:
        assert foreseen(seen).disruptive, planned


def test_epochs_rise_with_each_move_and_sets_stay() -> None:
    seen = broker_world(pods=OUTDATED)
    assert isinstance(seen, BrokerObserved)
    assert isinstance(seen.view, GroupView)
    found = foreseen(seen)
    assert seen.view.master_epoch == 4, "what was seen is as it was"
    assert len([step for step in found.steps if step.kind == "Move"]) == 1
