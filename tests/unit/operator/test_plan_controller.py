"""The plan for controller groups: the quorum is never taken below what one more fault needs."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_operator.plan.actions import (
    ApplyObject,
    CheckAgain,
    DeletePod,
    EmitEvent,
    EnsureSecret,
    WriteStatus,
)
from gantry_operator.plan.controller_steps import required_others
from gantry_operator.plan.observed import PodView
from gantry_protocol.admin_client.outcomes import Unreachable
from unit.operator.world import (
    OLD,
    changed,
    controller_pod,
    controller_world,
    controllers,
    name_of,
    of_type,
    planned,
    quorum,
    settled_status,
    step,
    told,
    with_status,
)

SECRETS = ("gantry-admin", "gantry-quorum-key")
LOST = Unreachable("no controller answers")


def pods(*facts: dict[str, Any]) -> tuple[PodView, ...]:
    return tuple(controller_pod(n, **fact) for n, fact in enumerate(facts))


OUT: dict[str, Any] = {"revision": OLD}
DEAD = OUT | {"running": False, "ready": False}

ROLLING = [
    pytest.param(pods({}, {}, {}), quorum(), "nothing", id="all-current"),
    pytest.param(pods(OUT, OUT, OUT), quorum(), "delete 2", id="highest-follower-first"),
    pytest.param(pods(OUT, OUT, {}), quorum(), "delete 1", id="next-follower"),
    pytest.param(pods(OUT, {}, {}), quorum(), "delete 0", id="leader-last"),
    pytest.param(
        pods(OUT, OUT, OUT), quorum(leader=3, node=3), "delete 1", id="leader-is-asked-anew"
    ),
    pytest.param(
        pods(OUT, OUT | {"ready": False}, OUT), quorum(), "delete 1", id="unready-before-ready"
    ),
    pytest.param(pods(OUT, OUT, OUT), quorum(0, None, 0), "nothing", id="an-unconnected-voter"),
    pytest.param(pods(OUT, OUT, OUT), quorum(0, 5000, 0), "nothing", id="a-voter-behind"),
    pytest.param(pods(OUT, OUT, OUT), quorum(0, 1000, 0), "delete 2", id="a-voter-a-little-behind"),
    pytest.param(pods(OUT, OUT, OUT), quorum(0, 0, None), "delete 2", id="the-lost-one-goes-first"),
    pytest.param(pods(OUT, OUT, OUT), quorum(leader=None), "nothing", id="no-leader"),
    pytest.param(pods(OUT, OUT, OUT), quorum(leader=1, node=2), "nothing", id="a-followers-word"),
    pytest.param(pods(OUT, OUT, OUT), LOST, "nothing", id="observation-lost"),
    pytest.param(
        pods(OUT, OUT, {"terminating": True, "ready": False}),
        quorum(),
        "nothing",
        id="one-at-a-time",
    ),
    pytest.param(pods(OUT, OUT), quorum(), "nothing", id="a-missing-pod-comes-back-first"),
    pytest.param(
        pods(OUT, OUT, {"ready": False}), quorum(), "nothing", id="a-replaced-pod-is-ready-first"
    ),
    pytest.param(pods(OUT, DEAD, OUT), LOST, "delete 1", id="dead-container-goes-even-unobserved"),
    pytest.param(pods(DEAD, DEAD, DEAD), LOST, "delete 2", id="a-broken-quorum-can-be-repaired"),
]


@pytest.mark.parametrize(("seen_pods", "known", "expected"), ROLLING)
def test_rolling_update(seen_pods: tuple[PodView, ...], known: Any, expected: str) -> None:
    assert name_of(step(controller_world(pods=seen_pods, quorum=known))) == expected


def test_a_deletion_carries_the_term_it_was_decided_in() -> None:
    action = step(controller_world(pods=pods(OUT, OUT, OUT)))
    assert action == DeletePod(name="gantry-controller-2", uid="uid-2", term=6)


@pytest.mark.parametrize(
    ("replicas", "others"), [(1, 0), (3, 2), (5, 3)], ids=["one", "three", "five"]
)
def test_how_many_others_must_be_caught_up(replicas: int, others: int) -> None:
    assert required_others(replicas) == others


@pytest.mark.parametrize("fact", [{"last_contact_ms": 2001}, {"counted": False}])
def test_a_voter_that_fell_silent_or_is_being_filled_does_not_count(fact: dict[str, Any]) -> None:
    well = quorum(0, 0, 0)
    peer = well.peers[1].model_copy(update=fact)
    known = well.model_copy(update={"peers": [well.peers[0], peer, well.peers[2]]})
    assert step(controller_world(pods=pods(OUT, OUT, OUT), quorum=known)) is None


def test_a_single_controller_restarts() -> None:
    group = controllers(replicas=1)
    assert name_of(step(controller_world(group, pods=pods(OUT)))) == "delete 0"


def test_five_can_miss_one_and_still_roll() -> None:
    group = controllers(replicas=5)
    seen_pods = pods(OUT, OUT, OUT, OUT, OUT)
    assert name_of(step(controller_world(group, pods=seen_pods))) == "delete 4"
    one_away = quorum(0, 0, 0, None, 0)
    assert name_of(step(controller_world(group, pods=seen_pods, quorum=one_away))) == "delete 4"
    two_away = quorum(0, 0, None, None, 0)
    assert step(controller_world(group, pods=seen_pods, quorum=two_away)) is None


def test_a_paused_group_is_only_reported() -> None:
    group = controllers(paused=True)
    seen = controller_world(group, pods=pods(OUT, OUT, OUT), missing_secrets=SECRETS)
    assert {type(a) for a in planned(changed(seen, objects={}))} <= {
        WriteStatus,
        CheckAgain,
        EmitEvent,
    }


def test_a_new_group_gets_its_secret_before_its_pods() -> None:
    seen = controller_world(pods=(), missing_secrets=SECRETS, quorum=LOST)
    actions = planned(changed(seen, objects={}))
    assert actions[:2] == [EnsureSecret(name=name) for name in SECRETS]
    kinds = [a.manifest["kind"] for a in of_type(actions, ApplyObject)]
    assert kinds == [
        *("ConfigMap", "Service", "Service", "PodDisruptionBudget", "NetworkPolicy", "StatefulSet")
    ]


def test_an_existing_secret_is_never_written() -> None:
    assert of_type(planned(controller_world()), EnsureSecret) == []


CONDITIONS = [
    pytest.param(controller_world(), "Available", "True", "LeaderElected", id="serving"),
    pytest.param(controller_world(), "FullyReplicated", "True", "AllInSync", id="full"),
    pytest.param(controller_world(), "Progressing", "False", "Settled", id="settled"),
    pytest.param(
        controller_world(quorum=quorum(leader=None)), "Available", "False", "NoLeader", id="none"
    ),
    pytest.param(
        controller_world(quorum=LOST), "Available", "Unknown", "ControllerUnreachable", id="lost"
    ),
    pytest.param(
        controller_world(quorum=LOST), "FullyReplicated", "Unknown", "ControllerUnreachable", id="l"
    ),
    pytest.param(
        controller_world(quorum=quorum(0, 0, None)),
        "FullyReplicated",
        "False",
        "ReplicaCatchingUp",
        id="one-away",
    ),
    pytest.param(
        controller_world(pods=pods({}, {}, {"ready": False})),
        "Progressing",
        "True",
        "Starting",
        id="starting",
    ),
    pytest.param(
        controller_world(pods=pods(OUT, OUT, OUT), quorum=LOST),
        "Progressing",
        "True",
        "RollingUpdate",
        id="waiting-for-sight",
    ),
]


@pytest.mark.parametrize(("seen", "name", "status", "reason"), CONDITIONS)
def test_conditions(seen: Any, name: str, status: str, reason: str) -> None:
    assert told(seen, name)[:2] == (status, reason)


def test_the_leader_is_shown_and_kept_while_nobody_answers() -> None:
    seen = with_status(controller_world())
    leader = {"pod": "gantry-controller-0", "nodeId": 1, "term": 6}
    assert seen.live_status["leader"] == leader
    assert settled_status(changed(seen, quorum=LOST))["leader"] == leader
    assert "leader" not in settled_status(changed(seen, quorum=quorum(leader=None)))


def test_a_new_leader_is_an_event_and_a_new_term_is_not() -> None:
    seen = with_status(controller_world())
    assert of_type(planned(changed(seen, quorum=quorum(term=7))), EmitEvent) == []
    moved = changed(seen, quorum=quorum(leader=2, node=2))
    assert [e.reason for e in of_type(planned(moved), EmitEvent)] == ["LeaderElected"]


def test_nothing_is_done_while_it_is_deleted() -> None:
    gone = controllers()
    meta = gone.metadata.model_copy(update={"deletion_timestamp": "now"})
    assert planned(controller_world(gone, meta=meta)) == []
