"""The size of a quorum: every state has one next step, and none is unsafe."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.builders import broker_objects, controller_objects, front_objects
from gantry_operator.plan import plan
from gantry_operator.plan.actions import (
    Action,
    ApplyObject,
    ChangeMembers,
    CheckAgain,
    MarkClaim,
    ScaleDown,
)
from gantry_operator.plan.foresight import foresee
from gantry_operator.plan.observed import ClaimView, ControllerObserved, PodView
from gantry_operator.plan.quorum_size import told_size
from gantry_operator.plan.supposed import after
from gantry_protocol.admin import PeerView, QuorumView
from gantry_protocol.admin_client.outcomes import Unreachable
from unit.operator.world import (
    IMAGE,
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
    live,
    name_of,
    of_type,
    planned,
    quorum,
    settled_status,
    step,
    told,
)

END = 100_000
AWAY: dict[str, Any] = {"match_index": None, "last_contact_ms": None}
BEHIND: dict[str, Any] = {"match_index": END - 1001}


def peer(number: int, role: str = "voter", **facts: Any) -> PeerView:
    known: dict[str, Any] = {"match_index": END, "last_contact_ms": 50, "role": role}
    known["name"] = f"gantry-controller-{number - 1}"
    return PeerView(id=number, address="", **(known | facts))


def voters(*numbers: int) -> tuple[PeerView, ...]:
    return tuple(peer(number) for number in numbers)


def world(
    wished: int,
    replicas: int,
    *peers: PeerView,
    founders: int = 3,
    size: int | None = None,
    pods: dict[int, dict[str, Any] | None] | None = None,
    **facts: Any,
) -> ControllerObserved:
    """So many are wished, the StatefulSet has so many pods, and these take part.

    Args:
        wished: by the spec.
        replicas: of the StatefulSet.
        peers: the members, by the leader's word.
        founders: how many the pods say founded the quorum.
        size: what pods are told; as many as there are pods or members, if it is not said.
        pods: what is different of the pods of these numbers; None for one that is not there.
        facts: of the quorum.
    """
    group = controllers(replicas=wished)
    known = max(replicas, *(one.id for one in peers)) if size is None else size
    made = controller_objects(group, image=IMAGE, replicas=replicas, founders=founders, size=known)
    odd = pods or {}
    there = [n for n in range(1, replicas + 1) if odd.get(n, {}) is not None]
    return controller_world(
        group,
        objects=live(made),
        pods=tuple(controller_pod(n - 1, **(odd.get(n) or {})) for n in there),
        quorum=quorum(**facts).model_copy(update={"peers": list(peers)}),
    )


def next_of(seen: ControllerObserved) -> str:
    """What is done about the size, in two words; else `wait` or `nothing`."""
    actions = planned(seen)
    for action in actions:
        match action:
            case ApplyObject(manifest={"kind": "StatefulSet"} as manifest):
                before = seen.objects["StatefulSet", "gantry-controller"]
                if manifest["spec"]["replicas"] != before["spec"]["replicas"]:
                    return f"start {manifest['spec']['replicas']}"
            case ChangeMembers(change=change, number=number):
                return f"{change} {number}"
            case ScaleDown(manifest=manifest):
                return f"stop {manifest['spec']['replicas'] + 1}"
    if any(action.disruptive for action in actions):
        return name_of(step(seen))
    return "wait" if told(seen, "Progressing")[1] == "ChangingSize" else "nothing"


NOT_READY = {"ready": False}
GONE = None
GROWING = [
    ((3, 3, *voters(1, 2, 3)), {}, "nothing"),
    ((5, 3, *voters(1, 2, 3)), {}, "start 4"),
    ((5, 4, *voters(1, 2, 3)), {}, "add 4"),
    ((5, 4, *voters(1, 2, 3)), {"size": 3}, "wait"),  # a member could found a second quorum
    ((5, 4, *voters(1, 2, 3)), {"pods": {4: NOT_READY}}, "add 4"),  # it is not, before
    ((5, 4, *voters(1, 2, 3)), {"pods": {4: GONE}}, "wait"),
    ((5, 4, *voters(1, 2, 3)), {"pods": {4: {"running": False, "ready": False}}}, "wait"),
    ((5, 4, *voters(1, 2, 3)), {"pods": {4: {"terminating": True}}}, "wait"),
    ((5, 4, *voters(1, 2, 3), peer(4, "learner")), {}, "start 5"),
    ((5, 4, *voters(1, 2, 3), peer(4, "learner", **AWAY)), {}, "start 5"),
    ((5, 5, *voters(1, 2, 3), peer(4, "learner")), {}, "add 5"),
    ((5, 5, *voters(1, 2, 3), peer(4, "learner"), peer(5, "learner")), {}, "promote 4"),
    ((5, 5, *voters(1, 2, 3), peer(4, "learner"), peer(5, "learner", **BEHIND)), {}, "wait"),
    ((5, 5, *voters(1, 2, 3), peer(4, "learner", **AWAY), peer(5, "learner")), {}, "wait"),
    ((5, 5, *voters(1, 2, 3), peer(4, "learner"), peer(5, "learner", counted=False)), {}, "wait"),
    ((5, 5, *voters(1, 2, 3, 4), peer(5, "learner")), {}, "promote 5"),
    ((5, 5, *voters(1, 2, 3, 4), peer(5, "learner")), {"pods": {5: NOT_READY}}, "wait"),
    ((5, 5, *voters(1, 2, 3, 4, 5)), {}, "nothing"),
    ((3, 1, *voters(1)), {"founders": 1}, "start 2"),
    ((3, 2, *voters(1)), {"founders": 1}, "add 2"),
    ((3, 2, *voters(1), peer(2, "learner")), {"founders": 1}, "start 3"),
    ((3, 3, *voters(1), peer(2, "learner")), {"founders": 1}, "add 3"),
    ((3, 3, *voters(1), peer(2, "learner"), peer(3, "learner")), {"founders": 1}, "promote 2"),
    ((3, 3, *voters(1, 2), peer(3, "learner")), {"founders": 1}, "promote 3"),
    ((3, 3, *voters(1, 3)), {}, "add 2"),  # taken out by hand
    ((3, 1, *voters(1, 2, 3)), {}, "start 2"),  # scaled by hand: a member has its pod, at once
]
UNWELL = [
    ((5, 3, *voters(1, 2), peer(3, **AWAY)), {}, "wait"),
    ((5, 3, *voters(1, 2), peer(3, **BEHIND)), {}, "wait"),
    ((5, 3, *voters(1, 2), peer(3, counted=False)), {}, "wait"),
    ((5, 3, *voters(1, 2, 3)), {"pods": {3: NOT_READY}}, "wait"),
    ((5, 4, *voters(1, 2), peer(3, **AWAY)), {}, "wait"),
    ((5, 5, *voters(1, 2), peer(3, **AWAY), *[peer(n, "learner") for n in (4, 5)]), {}, "wait"),
    ((5, 3, *voters(1, 2, 3)), {"leader": None}, "wait"),
    ((5, 3, *voters(1, 2, 3)), {"leader": 2}, "wait"),  # a follower's word
    ((3, 5, *voters(1, 2), peer(3, **AWAY), *voters(4, 5)), {}, "wait"),
    ((3, 5, *voters(1, 2, 3, 4, 5)), {"pods": {2: NOT_READY}}, "wait"),
    ((1, 3, peer(1, **AWAY), *voters(2, 3)), {"leader": 2, "node": 2}, "wait"),
    ((5, 3, *voters(1, 2, 3), peer(4, name="10")), {}, "wait"),  # whose is it?
    ((3, 5, *voters(1, 2, 3, 4, 5), peer(9, name="x")), {}, "wait"),
    ((3, 3, *voters(1, 2), peer(3, **AWAY)), {}, "nothing"),
]
SHRINKING = [
    ((3, 5, *voters(1, 2, 3, 4, 5)), {}, "remove 5"),
    ((3, 5, *voters(1, 2, 3, 4, 5)), {"leader": 5, "node": 5}, "transfer 1"),
    (
        (3, 5, peer(1, match_index=END - 9), *voters(2, 3, 4, 5)),
        {"leader": 4, "node": 4},
        "transfer 2",
    ),
    ((3, 5, *voters(1, 2, 3), peer(4, **AWAY), *voters(5)), {}, "remove 4"),  # lost anyway
    ((3, 5, *voters(1, 2, 3), *(peer(n, **AWAY) for n in (4, 5))), {}, "remove 5"),
    ((3, 5, *voters(1, 2, 3, 4)), {}, "remove 4"),  # in a row: an even number bears no more
    ((3, 5, *voters(1, 2, 3)), {}, "stop 5"),
    ((3, 5, *voters(1, 2, 3)), {"pods": {5: GONE}}, "stop 5"),
    ((3, 4, *voters(1, 2, 3)), {"pods": {5: NOT_READY}}, "stop 4"),
    ((3, 4, *voters(1, 2, 3, 4)), {}, "remove 4"),
    ((3, 4, *voters(1, 2, 3, 4), peer(5, **AWAY)), {}, "remove 5"),  # its pod went by hand
    ((3, 5, *voters(1, 2, 3), peer(4, "learner"), peer(5, "learner")), {}, "remove 5"),
    ((3, 4, *voters(1, 2, 3), peer(4, "learner", **AWAY)), {}, "remove 4"),  # the wish came back
    ((1, 3, *voters(1, 2, 3)), {}, "remove 3"),
    ((1, 3, *voters(1, 2), peer(3, **AWAY)), {}, "remove 3"),
    ((1, 3, *voters(1), peer(2, **AWAY), *voters(3)), {}, "remove 2"),
    ((1, 3, *voters(1), *(peer(n, **AWAY) for n in (2, 3))), {}, "wait"),  # who would decide?
    ((1, 3, *voters(1, 2)), {}, "remove 2"),
    ((1, 3, *voters(1, 2)), {"leader": 2, "node": 2}, "transfer 1"),
    ((1, 3, *voters(1)), {}, "stop 3"),
    ((1, 2, *voters(1)), {}, "stop 2"),
    ((1, 1, *voters(1)), {}, "nothing"),
]


@pytest.mark.parametrize(("about", "facts", "expected"), [*GROWING, *UNWELL, *SHRINKING])
def test_every_state_has_its_next_step(
    about: tuple[Any, ...], facts: dict[str, Any], expected: str
) -> None:
    assert next_of(world(*about, **facts)) == expected


@pytest.mark.parametrize(("wished", "replicas"), [(5, 3), (3, 5), (5, 4)])
def test_nothing_is_done_while_the_quorum_cannot_be_asked(wished: int, replicas: int) -> None:
    seen = changed(world(wished, replicas, *voters(1, 2, 3)), quorum=Unreachable("Nobody."))
    assert next_of(seen) == "wait"
    assert "Nobody." in told(seen, "Progressing")[2]
    assert any(isinstance(action, CheckAgain) for action in planned(seen))


def test_who_is_not_well_is_told() -> None:
    seen = world(5, 3, *voters(1, 2), peer(3, **AWAY))
    assert told(seen, "Progressing") == (
        "True",
        "ChangingSize",
        "Waiting to take members in: gantry-controller-2 is not caught up and Ready.",
    )
    assert told(seen, "Ready")[0] == "False"


def test_a_member_is_added_under_the_name_of_its_pod() -> None:
    (action,) = of_type(planned(world(5, 4, *voters(1, 2, 3))), ChangeMembers)
    assert action.address == "gantry-controller-3.gantry-controller.mq.svc"


def test_only_the_pod_of_no_member_is_removed_and_that_is_looked_at_again() -> None:
    action = step(world(3, 5, *voters(1, 2, 3)))
    assert isinstance(action, ScaleDown)
    assert action.number == 5


def template(manifests: list[dict[str, Any]]) -> Any:
    return manifests[-1]["spec"]["template"]


@pytest.mark.parametrize(("founders", "replicas", "size"), [(1, 2, 3), (3, 5, 5), (5, 2, 3)])
def test_no_pod_has_another_template_for_another_size(
    founders: int, replicas: int, size: int
) -> None:
    of_size = controller_objects(controllers(replicas=founders), image=IMAGE)
    seen = world(size, replicas, *voters(1), founders=founders)
    applied = [a.manifest for a in of_type(planned(seen), ApplyObject)]
    for manifest in applied:
        assert manifest["kind"] != "StatefulSet" or template([manifest]) == template(of_size)
    known = seen.objects["StatefulSet", "gantry-controller"]
    assert known["spec"]["template"] == template(of_size)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_brokers_and_fronts_keep_the_addresses_that_they_were_started_with(size: int) -> None:
    quorum_of = {n: controllers(replicas=n) for n in (1, 3, 5)}
    made = broker_objects(brokers(), quorum_of[3], image=IMAGE, replicas=3)
    seen = broker_world(controllers=quorum_of[size], objects=live(made))
    assert not [a for a in of_type(planned(seen), ApplyObject) if a.manifest["kind"] != "Service"]
    front = front_objects(fronts(), quorum_of[3], image=IMAGE)
    deployed = front_world(controllers=quorum_of[size], objects=live(front))
    assert not of_type(planned(deployed), ApplyObject)


def test_addresses_that_nobody_of_ours_wrote_are_put_right() -> None:
    objects = live(broker_objects(brokers(), controllers(), image=IMAGE, replicas=3))
    container = objects["StatefulSet", "orders-broker"]["spec"]["template"]["spec"]["containers"][0]
    entry = next(one for one in container["env"] if one["name"] == "GANTRY_CONTROLLERS")
    entry["value"] = "elsewhere:9878"
    applied = of_type(planned(broker_world(objects=objects)), ApplyObject)
    assert [action.manifest["kind"] for action in applied] == ["StatefulSet"]


TOLD = [
    (world(3, 3, *voters(1, 2, 3)), None),
    (world(5, 3, *voters(1, 2, 3)), "4"),  # with the pod
    (world(5, 5, *voters(1, 2, 3, 4, 5)), "5"),
    (world(3, 5, *voters(1, 2, 3)), "5"),  # while the pods are there
    (world(3, 4, *voters(1, 2, 3, 4), peer(5, **AWAY)), "5"),
    (world(3, 3, *voters(1, 2, 3), size=5), None),
    (world(1, 1, *voters(1)), "1"),
    (world(3, 3, *voters(1, 2, 3), founders=1), "3"),
    (world(3, 3, *voters(1, 2, 3), leader=None, size=5), "5"),  # nobody knows
    (changed(world(3, 3, *voters(1, 2, 3), size=5), quorum=Unreachable("Nobody.")), "5"),
]


@pytest.mark.parametrize(("seen", "expected"), TOLD)
def test_pods_are_told_of_no_smaller_size_than_one_in_effect(
    seen: ControllerObserved, expected: str | None
) -> None:
    for action in planned(seen):
        if not action.disruptive:
            seen = after(seen, action, lambda _new, _live: False)  # type: ignore[assignment]
    data = seen.objects["ConfigMap", "gantry-controller"]["data"]
    assert data.get(names.QUORUM_SIZE_KEY) == expected
    assert told_size(seen.objects["ConfigMap", "gantry-controller"], 3) == int(expected or 3)


# ---- together with other changes -----------------------------------------------------------------


def outdated(seen: ControllerObserved, *numbers: int, **facts: Any) -> ControllerObserved:
    pods: list[PodView] = []
    for pod in seen.pods:
        odd = {"revision": OLD, **facts} if (pod.ordinal or 0) + 1 in numbers else {}
        pods.append(changed(pod, **odd))
    return changed(seen, pods=tuple(pods))


DEAD = {"running": False, "ready": False}
BOTH = [
    (outdated(world(5, 3, *voters(1, 2, 3)), 1, 2, 3), "delete 2"),
    (outdated(world(5, 4, *voters(1, 2, 3), pods={4: NOT_READY}), 1, 2, 3), "add 4"),
    (outdated(world(3, 5, *voters(1, 2, 3, 4, 5)), 1, 2, 3, 4, 5), "remove 5"),
    (outdated(world(5, 4, *voters(1, 2, 3)), 4, **DEAD), "delete 3"),  # a new template cures it
    (outdated(world(3, 3, *voters(1), founders=1), 1), "add 2"),
]


@pytest.mark.parametrize(("seen", "expected"), BOTH)
def test_what_has_begun_is_ended_before_pods_are_replaced(
    seen: ControllerObserved, expected: str
) -> None:
    assert next_of(seen) == expected


def test_a_learner_does_not_count_for_those_who_must_stay() -> None:
    """Of three voters two must be caught up while the third is away, whatever learners hold."""
    peers = (*voters(1), peer(2, **AWAY), *voters(3), peer(4, "learner"), peer(5, "learner"))
    seen = outdated(world(5, 5, *peers), 1, 3)
    assert name_of(step(seen)) == "nothing"
    assert settled_status(seen)["conditions"][2]["message"] == "2 of 3 controllers are caught up."


def test_the_status_says_who_takes_part() -> None:
    status = settled_status(world(5, 4, *voters(1, 2, 3), peer(4, "learner")))
    assert [(m["nodeId"], m["name"], m["role"]) for m in status["members"]] == [
        (1, "gantry-controller-0", "Voter"),
        (2, "gantry-controller-1", "Voter"),
        (3, "gantry-controller-2", "Voter"),
        (4, "gantry-controller-3", "Learner"),
    ]
    assert status["summary"] == "Changing size 3/5"


# ---- the volumes ---------------------------------------------------------------------------------


def claim(ordinal: int, size: int) -> ClaimView:
    name = f"data-gantry-controller-{ordinal}"
    return ClaimView(name, f"pvc-{ordinal}", ordinal, "cg-uid", size, ending=False)


def test_claims_are_marked_with_the_new_size_once_it_is_reached() -> None:
    claims = tuple(claim(n, 3) for n in range(3))
    reached = changed(world(5, 5, *voters(1, 2, 3, 4, 5)), claims=claims)
    marked = of_type(planned(reached), MarkClaim)
    assert [(mark.name[-1], mark.size) for mark in marked] == [("0", 5), ("1", 5), ("2", 5)]
    for seen in (
        world(5, 5, *voters(1, 2, 3, 4), peer(5, "learner")),
        world(5, 3, *voters(1, 2, 3)),
        changed(world(5, 5, *voters(1, 2, 3, 4, 5)), quorum=Unreachable("Nobody.")),
    ):
        assert of_type(planned(changed(seen, claims=claims)), MarkClaim) == []


def test_volumes_of_members_that_were_taken_out_do_not_count() -> None:
    """A ControllerGroup that is made again takes up the quorum as it was last."""
    claims = tuple(claim(n, 3 if n < 3 else 5) for n in range(5))
    seen = controller_world(controllers(replicas=3), objects={}, pods=(), claims=claims)
    assert settled_status(seen)["clusterUid"] == "cg-uid"
    assert told(seen, "Accepted")[0] == "True"
    larger = controller_world(controllers(replicas=5), objects={}, pods=(), claims=claims)
    assert told(larger, "Accepted")[1] == "VolumesUnclear"


# ---- the whole way -------------------------------------------------------------------------------


def rolls(_new: Any, _live: Any) -> bool:
    return False


def carried_on(seen: ControllerObserved) -> list[Action]:
    return [action for action in planned(seen) if not isinstance(action, CheckAgain)]


def check(seen: ControllerObserved, action: Action, founders: int) -> None:
    """No step makes less of a quorum than it was, nor founds another one."""
    assert isinstance(seen.quorum, QuorumView)
    members = {one.id for one in seen.quorum.peers}
    if isinstance(action, ScaleDown):
        assert action.number is not None
        assert action.number not in members
    if isinstance(action, ChangeMembers) and action.change == "add":
        config = seen.objects["ConfigMap", "gantry-controller"]
        assert told_size(config, founders) >= action.number
    if isinstance(action, ChangeMembers) and action.change == "remove":
        assert action.number != seen.quorum.leader_id


@pytest.mark.parametrize("founded", [1, 3, 5])
@pytest.mark.parametrize("course", list(itertools.permutations((1, 3, 5))))
@pytest.mark.parametrize("steps", [3, 7, 1000])
def test_any_course_of_wishes_ends_as_the_last_one(
    founded: int, course: tuple[int, ...], steps: int
) -> None:
    """Each wish but the last is taken back after some steps, wherever it has come to."""
    group = controllers(replicas=founded)
    seen = controller_world(group)
    for turn, wished in enumerate((*course, founded, *course[:2])):
        last = turn == len(course) + 2
        seen = changed(seen, group=controllers(replicas=wished))
        for _ in range(1000 if last else steps):
            before = seen
            for action in carried_on(seen):
                check(seen, action, founded)
                following = after(seen, action, rolls)
                assert isinstance(following, ControllerObserved)
                seen = following
            if seen == before:
                break
    assert isinstance(seen.quorum, QuorumView)
    wished = course[1]
    assert [one.id for one in seen.quorum.peers] == list(range(1, wished + 1))
    assert {one.role for one in seen.quorum.peers} == {"voter"}
    assert len(seen.pods) == wished
    assert told(seen, "Ready")[0] == "True"
    assert settled_status(seen)["ready"] == f"{wished}/{wished}"


# ---- announced -----------------------------------------------------------------------------------


def announced(seen: ControllerObserved) -> list[str]:
    found = foresee(seen, NOW, plan)
    assert found.gap_ms == 0
    assert (found.refused, found.waits) == ("", "")
    return [one.message for one in found.steps]


def test_a_larger_quorum_is_announced_step_by_step() -> None:
    seen = changed(world(3, 3, *voters(1, 2, 3)), group=controllers(replicas=5))
    assert announced(seen) == [
        "Change StatefulSet gantry-controller.",
        "Start gantry-controller-3.",
        "Fill controller 4, which does not vote yet. Sends go on.",
        "Change StatefulSet gantry-controller.",
        "Start gantry-controller-4.",
        "Fill controller 5, which does not vote yet. Sends go on.",
        "Let controller 4 vote. Sends go on.",
        "Let controller 5 vote. Sends go on.",
    ]


def test_a_smaller_quorum_is_announced_step_by_step() -> None:
    five = world(5, 5, *voters(1, 2, 3, 4, 5), leader=5, node=5)
    assert announced(changed(five, group=controllers(replicas=3))) == [
        "Let controller 1 lead the quorum. Sends go on.",
        "Take controller 5 out of the quorum. Sends go on.",
        "Take controller 4 out of the quorum. Sends go on.",
        "Remove gantry-controller-4.",
        "Remove gantry-controller-3.",
    ]


def test_a_quorum_that_is_not_well_is_announced_to_wait() -> None:
    found = foresee(world(5, 3, *voters(1, 2), peer(3, **AWAY)), NOW, plan)
    assert (found.steps, found.waits) == ((), "ChangingSize")
    assert "gantry-controller-2 is not caught up" in found.message
