"""Volumes that grow: by claims alone, one at a time, the master's last, and never smaller."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.api.errors import Denied
from gantry_operator.api.kinds import CLAIM
from gantry_operator.cache import Key
from gantry_operator.plan import plan
from gantry_operator.plan.actions import ApplyObject, CheckAgain, DeletePod, Elect, GrowClaim
from gantry_operator.plan.foresight import foresee
from gantry_operator.plan.growth import RETRY_S, has_grown
from gantry_operator.plan.observed import RefusedGrowth, VolumeView, volume_view
from gantry_operator.reconcile.claims import Claims
from gantry_operator.reconcile.repeats import LIMIT, Repeats
from gantry_protocol.admin_client.outcomes import Unreachable
from unit.operator.fake_api import FakeApi, as_api
from unit.operator.world import (
    NOW,
    broker_world,
    brokers,
    changed,
    controller_pod,
    controller_world,
    controllers,
    live,
    name_of,
    of_type,
    planned,
    pod,
    quorum,
    settled_status,
    step,
    told,
)

KEY = Key("BrokerGroup", "mq", "orders")
CREATED = "2026-11-21T10:00:00Z"
LONG_AGO, JUST_NOW = "2026-11-21T11:00:00Z", "2026-11-21T11:59:30Z"
FORBIDDEN = "only dynamically provisioned pvc can be resized"


def volume(ordinal: int, base: str = "orders-broker", **facts: Any) -> VolumeView:
    """A claim that has its first size."""
    defaults: dict[str, Any] = {
        "name": f"data-{base}-{ordinal}",
        "uid": f"claim-{ordinal}",
        "ordinal": ordinal,
        "requested": "10Gi",
        "capacity": "10Gi",
        "bound": True,
    }
    return VolumeView(**(defaults | facts))


def grown(ordinal: int, base: str = "orders-broker") -> VolumeView:
    return volume(ordinal, base, requested="20Gi", capacity="20Gi")


def asked(ordinal: int, **facts: Any) -> VolumeView:
    return volume(ordinal, requested="20Gi", **facts)


def world(*volumes: VolumeView, size: str = "20Gi", **facts: Any) -> Any:
    """Three replicas, of which 0 has the master, with claims of 10Gi that are to have 20Gi.

    The StatefulSet has taken in that they are, as after the first plan.
    """
    small = broker_world(pods=tuple(pod(n, created=CREATED) for n in range(3)))
    seen = changed(
        small,
        group=brokers(storage={"size": size}),
        volumes=volumes or tuple(volume(n) for n in range(3)),
        **facts,
    )
    return taken_in(seen)


def taken_in(seen: Any) -> Any:
    applied = [a.manifest for a in of_type(planned(seen), ApplyObject)]
    return changed(seen, objects=seen.objects | live(applied))


def to_grow(seen: Any) -> list[str]:
    return [action.name.removeprefix("data-") for action in of_type(planned(seen), GrowClaim)]


def test_the_first_plan_notes_the_wish_and_leaves_template_and_pods_alone() -> None:
    seen = changed(
        broker_world(), group=brokers(storage={"size": "20Gi"}), volumes=(volume(0), volume(1))
    )
    (applied,) = of_type(planned(seen), ApplyObject)
    old = seen.objects["StatefulSet", "orders-broker"]
    assert applied.manifest["spec"] == old["spec"]
    assert applied.manifest["metadata"]["annotations"][names.ANNOTATION_STORAGE_SIZE] == "20Gi"
    assert of_type(planned(seen), GrowClaim) == []
    assert of_type(planned(taken_in(seen)), ApplyObject) == []


@pytest.mark.parametrize(
    ("volumes", "next_ones"),
    [
        pytest.param((volume(0), volume(1), volume(2)), ["orders-broker-2"], id="replicas-first"),
        pytest.param((volume(0), volume(1), grown(2)), ["orders-broker-1"], id="one-by-one"),
        pytest.param((volume(0), grown(1), grown(2)), ["orders-broker-0"], id="master-last"),
        pytest.param((volume(0), volume(1), asked(2)), [], id="one-at-a-time"),
        pytest.param((grown(0), grown(1), grown(2)), [], id="all-done"),
        pytest.param(
            (volume(0), volume(1), volume(2, requested="30Gi", capacity="30Gi")),
            ["orders-broker-1"],
            id="larger-already",
        ),
        pytest.param(
            (volume(0), volume(1), volume(2, bound=False, capacity="")),
            ["orders-broker-1"],
            id="a-claim-without-a-volume-holds-nobody-up",
        ),
        pytest.param(
            (volume(0), volume(1), asked(2, trouble="no space in the pool")),
            ["orders-broker-1"],
            id="a-driver-that-cannot-holds-nobody-up",
        ),
        pytest.param(
            (volume(0), volume(1), asked(2, pending_since=JUST_NOW)),
            [],
            id="a-file-system-is-waited-for",
        ),
        pytest.param(
            (volume(0), volume(1), asked(2, pending_since="2026-11-21T09:00:00Z")),
            ["orders-broker-1"],
            id="a-pod-that-restarted-in-vain-holds-nobody-up",
        ),
    ],
)
def test_which_claim_is_next(volumes: tuple[VolumeView, ...], next_ones: list[str]) -> None:
    assert to_grow(world(*volumes)) == next_ones


def test_the_claim_is_asked_for_what_is_wished() -> None:
    (action,) = of_type(planned(world()), GrowClaim)
    assert action == GrowClaim(name="data-orders-broker-2", uid="claim-2", size="20Gi")


def test_progress_is_told() -> None:
    seen = world(volume(0), volume(1), grown(2))
    assert settled_status(seen)["summary"] == "Growing volumes 1/3"
    assert told(seen, "Progressing") == (
        "True",
        "GrowingVolumes",
        "1 of 3 volumes have 20Gi; data-orders-broker-1 is next.",
    )
    assert settled_status(world(*(grown(n) for n in range(3))))["summary"] == "Healthy"


def test_nothing_is_asked_of_controllers_or_brokers() -> None:
    """Full volumes: the processes end again and again, and nobody is in sync."""
    pods = tuple(pod(n, ready=False, running=False, created=CREATED) for n in range(3))
    seen = world(view=Unreachable("no answer"), pods=pods)
    assert to_grow(seen) == ["orders-broker-2"]


def test_a_paused_group_grows_nothing() -> None:
    seen = changed(world(), group=brokers(storage={"size": "20Gi"}, paused=True))
    assert to_grow(seen) == []


def test_a_group_that_is_to_sleep_grows_when_it_has_woken() -> None:
    """Its pods end now, so nobody would make their file systems larger."""
    asleep = brokers(storage={"size": "20Gi"}, hibernated=True)
    assert to_grow(changed(world(), group=asleep)) == []


def test_a_change_that_waits_for_approval_holds_no_volume_up() -> None:
    supervised = brokers(
        storage={"size": "20Gi"}, update={"strategy": "Supervised"}, image="gantry:next"
    )
    assert to_grow(changed(world(), group=supervised)) == ["orders-broker-2"]


def test_a_group_that_is_deleted_grows_nothing() -> None:
    head = {"deletionTimestamp": "2026-11-21T11:00:00Z"}
    group = brokers(head, storage={"size": "20Gi"})
    seen = changed(world(), group=group, meta=group.metadata)
    assert to_grow(seen) == []


@pytest.mark.parametrize("size", ["19Gi", "1Gi", "10Gi"])
def test_what_was_wished_once_is_never_shrunk(size: str) -> None:
    """Not even while the template, and some of the claims, have less."""
    seen = changed(world(), group=brokers(storage={"size": size}))
    assert told(seen, "Accepted")[1:] == (
        "ImmutableFieldChanged",
        "spec.storage.size can grow and never shrink, since no volume does: set it back to 20Gi.",
    )
    assert of_type(planned(seen), GrowClaim, ApplyObject) == []


def test_it_may_grow_again() -> None:
    seen = taken_in(changed(world(), group=brokers(storage={"size": "30Gi"})))
    assert told(seen, "Accepted")[0] == "True"
    annotations = seen.objects["StatefulSet", "orders-broker"]["metadata"]["annotations"]
    assert annotations[names.ANNOTATION_STORAGE_SIZE] == "30Gi"


@pytest.mark.parametrize("size", ["2Gi", "1Gi"])
def test_the_size_of_an_empty_dir_is_fixed(size: str) -> None:
    empty = {"replicas": 1, "storage": {"type": "EmptyDir", "size": "1Gi"}}
    other = brokers(replicas=1, storage={"type": "EmptyDir", "size": size})
    seen = changed(broker_world(brokers(**empty)), group=other)
    assert (told(seen, "Accepted")[0] == "True") == (size == "1Gi")


# Claims of an earlier StatefulSet


@pytest.mark.parametrize(
    ("left", "template", "noted"),
    [
        pytest.param((), "20Gi", None, id="none"),
        pytest.param((grown(0), grown(1)), "20Gi", None, id="of-the-size"),
        pytest.param((grown(0), volume(1)), "10Gi", "20Gi", id="smaller"),
        pytest.param(
            (volume(0, requested="30Gi", capacity="30Gi"),), "20Gi", None, id="larger-stays"
        ),
    ],
)
def test_a_new_statefulset_grows_the_claims_that_are_left(
    left: tuple[VolumeView, ...], template: str, noted: str | None
) -> None:
    wish = brokers(storage={"size": "20Gi"})
    seen = changed(broker_world(wish, pods=()), volumes=left)
    objects = {key: body for key, body in seen.objects.items() if key[0] != "StatefulSet"}
    (applied,) = of_type(planned(changed(seen, objects=objects)), ApplyObject)
    (claim,) = applied.manifest["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == template
    annotations = applied.manifest["metadata"]["annotations"]
    assert annotations.get(names.ANNOTATION_STORAGE_SIZE) == noted


async def test_claims_that_are_left_are_found_by_name() -> None:
    api = FakeApi()
    stored(api, 0, "10Gi")
    stored(api, 2, "10Gi")
    ending = {"metadata": {"deletionTimestamp": LONG_AGO}}
    api.have(CLAIM, "data-orders-broker-1", spec=body()["spec"], status={}, **ending)
    found = await Claims(as_api(api)).left("mq", "orders-broker", 3)
    assert [one.ordinal for one in found] == [0, 2]


async def test_who_may_not_read_claims_knows_of_none_that_are_left() -> None:
    api = FakeApi()
    api.refuse("get", CLAIM, Denied(403, "Forbidden", "no"))
    assert await Claims(as_api(api)).left("mq", "orders-broker", 3) == ()


# What the API server refuses


def refused(*ordinals: int, due: bool = False) -> dict[str, RefusedGrowth]:
    return {f"data-orders-broker-{n}": RefusedGrowth("20Gi", FORBIDDEN, due=due) for n in ordinals}


def test_a_refusal_is_told_and_tried_again_later() -> None:
    seen = world(refused_growth=refused(0, 1, 2))
    assert to_grow(seen) == []
    status, reason, message = told(seen, "Progressing")
    assert (status, reason) == ("False", "VolumeExpansionRefused")
    assert f"data-orders-broker-2: the API server refuses it: {FORBIDDEN}." in message
    assert told(seen, "Ready")[:2] == ("False", "VolumeExpansionRefused")
    assert settled_status(seen)["summary"] == "Volumes not grown 0/3"
    (check,) = of_type(planned(seen), CheckAgain)
    assert check.after_s == RETRY_S
    due = world(refused_growth=refused(0, 1, 2, due=True))
    assert to_grow(due) == ["orders-broker-2"]
    assert told(due, "Progressing") == told(seen, "Progressing")


def test_what_is_asked_for_again_is_no_repetition() -> None:
    repeats, now_s = Repeats(), 0.0
    actions = planned(world(refused_growth=refused(0, 1, 2, due=True)))
    for _ in range(3 * LIMIT):
        assert repeats.held_s(KEY, actions, now_s) == 0.0
        assert repeats.note(KEY, actions, now_s) == 1
        now_s += RETRY_S


def test_the_others_are_asked_for_before_one_that_was_refused() -> None:
    assert to_grow(world(refused_growth=refused(2, due=True))) == ["orders-broker-1"]


def test_another_size_is_asked_for_at_once() -> None:
    seen = world(size="30Gi", refused_growth=refused(0, 1, 2))
    assert to_grow(seen) == ["orders-broker-2"]


def test_a_refusal_holds_no_other_change_up() -> None:
    seen = world(refused_growth=refused(0, 1, 2))
    outdated = tuple(pod(n, revision="rev-old", created=CREATED) for n in range(3))
    assert name_of(step(changed(seen, pods=outdated))) == "delete 2"
    wish = brokers(storage={"size": "20Gi"}, image="gantry:2")
    (applied,) = of_type(planned(changed(seen, group=wish)), ApplyObject)
    assert applied.manifest["spec"]["template"]["spec"]["containers"][0]["image"] == "gantry:2"


# File systems that wait for a restart


def test_a_file_system_that_waits_for_long_gets_its_restart() -> None:
    seen = world(grown(0), grown(1), asked(2, pending_since=LONG_AGO))
    action = step(seen)
    assert isinstance(action, DeletePod)
    assert name_of(action) == "delete 2"
    assert told(seen, "Progressing") == (
        "True",
        "GrowingVolumes",
        "A file system grows with a restart. Replacing orders-broker-2.",
    )


def test_a_claim_that_grew_in_the_second_of_its_pod_waits_for_a_restart_too() -> None:
    """Both times are in seconds: nobody knows which came first, so it was not in vain."""
    seen = world(grown(0), grown(1), asked(2, pending_since=CREATED))
    assert name_of(step(seen)) == "delete 2"


@pytest.mark.parametrize(
    "volumes",
    [
        pytest.param((grown(0), grown(1), asked(2)), id="no-condition"),
        pytest.param((grown(0), grown(1), asked(2, pending_since=JUST_NOW)), id="not-for-long"),
        pytest.param(
            (grown(0), grown(1), asked(2, pending_since="2026-11-21T09:00:00Z")), id="once"
        ),
        pytest.param((grown(0), grown(1), volume(2)), id="not-asked-for"),
        pytest.param((volume(0), volume(1), volume(2, pending_since="")), id="at-the-start"),
    ],
)
def test_no_other_pod_restarts(volumes: tuple[VolumeView, ...]) -> None:
    assert step(world(*volumes)) is None


def test_a_pod_of_unknown_age_does_not_restart() -> None:
    seen = world(grown(0), grown(1), asked(2, pending_since=LONG_AGO))
    assert step(changed(seen, pods=tuple(pod(n) for n in range(3)))) is None


def test_the_master_hands_over_before_its_restart() -> None:
    seen = world(asked(0, pending_since=LONG_AGO), grown(1), grown(2))
    assert isinstance(step(seen), Elect)


def test_file_systems_wait_for_each_other() -> None:
    waiting = [asked(n, pending_since=LONG_AGO) for n in range(3)]
    assert name_of(step(world(*waiting))) == "delete 2"


# Controllers


def controller_volumes(*done: int) -> tuple[VolumeView, ...]:
    base = "gantry-controller"
    return tuple(grown(n, base) if n in done else volume(n, base) for n in range(3))


def controller_growth(*volumes: VolumeView) -> Any:
    pods = tuple(controller_pod(n, created=CREATED) for n in range(3))
    seen = changed(
        controller_world(pods=pods, quorum=quorum(0, 0, 0, leader=3, node=3)),
        group=controllers(storage={"size": "20Gi"}),
        volumes=volumes or controller_volumes(),
    )
    return taken_in(seen)


def test_the_leaders_volume_grows_last() -> None:
    assert to_grow(controller_growth()) == ["gantry-controller-1"]
    assert to_grow(controller_growth(*controller_volumes(0, 1))) == ["gantry-controller-2"]
    assert settled_status(controller_growth(*controller_volumes(0, 1)))["summary"] == (
        "Growing volumes 2/3"
    )


def test_a_controller_restarts_for_its_file_system() -> None:
    base = "gantry-controller"
    waiting = volume(0, base, requested="20Gi", pending_since=LONG_AGO)
    assert name_of(step(controller_growth(waiting, grown(1, base), grown(2, base)))) == "delete 0"


def test_controllers_never_shrink() -> None:
    seen = changed(controller_growth(), group=controllers(storage={"size": "15Gi"}))
    assert "never shrink" in told(seen, "Accepted")[2]


# Foretold


def test_growth_is_foretold_a_step_for_each_volume_and_no_gap() -> None:
    found = foresee(world(), NOW, lambda seen, now: plan(seen, now, announces=False))
    assert [one.message for one in found.growing] == [
        f"Make data-orders-broker-{n} larger, 20Gi. Sends go on." for n in (2, 1, 0)
    ]
    assert (found.disruptive, found.gap_ms, found.waits) == ((), 0, "")


def test_growth_is_the_last_change() -> None:
    change = settled_status(world())["lastChange"]
    assert (change["kind"], change["steps"], change["predictedGapMs"]) == ("GrowVolumes", 3, 0)


# Claims, as they are read


def body(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "data-orders-broker-1", "uid": "c"},
        "spec": {"resources": {"requests": {"storage": "20Gi"}}},
        "status": {"phase": "Bound", "capacity": {"storage": "10Gi"}} | status,
    }


@pytest.mark.parametrize(
    ("condition", "pending_since", "trouble"),
    [
        pytest.param({"type": "Resizing", "status": "True"}, "", "", id="resizing"),
        pytest.param(
            {"type": "FileSystemResizePending", "status": "True", "lastTransitionTime": LONG_AGO},
            LONG_AGO,
            "",
            id="file-system",
        ),
        pytest.param(
            {"type": "FileSystemResizePending", "status": "False", "lastTransitionTime": LONG_AGO},
            "",
            "",
            id="no-more",
        ),
        pytest.param(
            {"type": "ControllerResizeError", "status": "True", "message": "pool is full"},
            "",
            "pool is full",
            id="failed",
        ),
    ],
)
def test_conditions_of_a_claim(condition: Any, pending_since: str, trouble: str) -> None:
    found = volume_view(body(conditions=[condition]))
    assert (found.pending_since, found.trouble) == (pending_since, trouble)
    assert (found.ordinal, found.requested, found.capacity) == (1, "20Gi", "10Gi")


def test_what_counts_as_grown() -> None:
    assert has_grown(volume_view(body(capacity={"storage": "20480Mi"})), "20Gi")
    assert not has_grown(volume_view(body()), "20Gi")
    assert not has_grown(volume_view(body(capacity={})), "20Gi")
    assert not has_grown(volume_view(body(phase="Pending")), "20Gi")


def stored(api: FakeApi, ordinal: int, capacity: str) -> None:
    api.have(
        CLAIM,
        f"data-orders-broker-{ordinal}",
        spec={"resources": {"requests": {"storage": "20Gi"}}},
        status={"phase": "Bound", "capacity": {"storage": capacity}},
    )


async def test_claims_that_have_grown_are_not_read_again() -> None:
    api = FakeApi()
    claims, pods = Claims(as_api(api)), (pod(0), pod(1))
    stored(api, 0, "20Gi")
    stored(api, 1, "10Gi")
    assert len(await claims.volumes(KEY, pods, "20Gi") or ()) == 2
    stored(api, 1, "20Gi")
    assert len(await claims.volumes(KEY, pods, "20Gi") or ()) == 2  # the plan sees the end of it
    read = len(api.calls)
    assert await claims.volumes(KEY, pods, "20Gi") is None
    assert len(api.calls) == read
    assert await claims.volumes(KEY, pods, "30Gi") is not None
    stored(api, 2, "10Gi")
    later = await claims.volumes(KEY, (*pods, pod(2)), "20Gi")
    assert [one.capacity for one in later or ()] == ["20Gi", "20Gi", "10Gi"]


async def test_a_claim_that_is_missing_is_looked_for_again() -> None:
    api = FakeApi()
    claims = Claims(as_api(api))
    stored(api, 0, "20Gi")
    for _ in range(2):
        assert len(await claims.volumes(KEY, (pod(0), pod(1)), "20Gi") or ()) == 1


def test_refusals_are_due_after_a_while_and_forgotten_with_the_group() -> None:
    now = [100.0]
    claims = Claims(as_api(FakeApi()), clock=lambda: now[0])
    claims.note(KEY, "data-a", "20Gi", FORBIDDEN)
    assert claims.refused(KEY) == {"data-a": RefusedGrowth("20Gi", FORBIDDEN, due=False)}
    now[0] += RETRY_S
    assert claims.refused(KEY)["data-a"].due
    claims.note(KEY, "data-a", "20Gi", "")
    assert claims.refused(KEY) == {}
    claims.note(KEY, "data-a", "20Gi", FORBIDDEN)
    claims.drop(KEY)
    assert claims.refused(KEY) == {}


def test_an_unreadable_moment_is_no_reason_for_a_restart() -> None:
    seen = world(grown(0), grown(1), asked(2, pending_since="some time ago"))
    assert step(seen) is None
    assert NOW.tzinfo is dt.UTC
