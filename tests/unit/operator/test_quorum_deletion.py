"""Deleting a ControllerGroup waits for who depends on it; created again it finds its volumes."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.api.kinds import CLAIM
from gantry_operator.models import ControllerGroup
from gantry_operator.plan.actions import (
    ApplyObject,
    EmitEvent,
    EnsureSecret,
    MarkClaim,
    SetFinalizer,
)
from gantry_operator.plan.observed import ClaimView, PodView, claim_view
from gantry_operator.plan.volumes import claim_names, identity
from gantry_operator.reconcile.claims import Claims
from gantry_protocol.admin_client.outcomes import Unreachable
from unit.operator.fake_api import FakeApi
from unit.operator.world import (
    changed,
    controller_pod,
    controller_world,
    controllers,
    live,
    of_type,
    planned,
    settled_status,
    told,
    with_status,
)

HELD = (names.QUORUM_FINALIZER,)
ORDERS = ("orders",)


def deleting(finalizers: tuple[str, ...] = HELD, **facts: Any) -> Any:
    seen = controller_world(**facts)
    meta = seen.meta.model_copy(
        update={"deletion_timestamp": "2026-11-21T11:59:00Z", "finalizers": finalizers}
    )
    return changed(seen, meta=meta)


# The finalizer


@pytest.mark.parametrize(
    ("dependents", "finalizers", "wanted"),
    [
        pytest.param((), (), None, id="nobody-depends"),
        pytest.param(ORDERS, (), True, id="somebody-does"),
        pytest.param(ORDERS, HELD, None, id="kept"),
        pytest.param((), HELD, False, id="the-last-one-went"),
    ],
)
@pytest.mark.parametrize("paused", [False, True])
def test_the_finalizer_is_there_exactly_while_groups_depend(
    dependents: tuple[str, ...], finalizers: tuple[str, ...], wanted: bool | None, paused: bool
) -> None:
    seen = controller_world(controllers(paused=paused), dependents=dependents)
    meta = seen.meta.model_copy(update={"finalizers": ("others/one", *finalizers)})
    found = of_type(planned(changed(seen, meta=meta)), SetFinalizer)
    assert [action.present for action in found] == ([] if wanted is None else [wanted])
    for action in found:
        assert action.finalizers == (("others/one", *HELD) if wanted else ("others/one",))


def test_a_deletion_waits_for_the_groups_and_names_them() -> None:
    seen = deleting(dependents=("orders", "payments"))
    assert of_type(planned(seen), SetFinalizer) == []
    status, reason, message = told(seen, "Progressing")
    assert (status, reason) == ("True", "Deleting")
    assert "orders, payments" in message
    assert names.QUORUM_FINALIZER in message
    (event,) = [e for e in of_type(planned(seen), EmitEvent) if e.reason == "Deleting"]
    assert (event.type, event.note) == ("Warning", message)
    again = with_status(seen)
    assert [e for e in of_type(planned(again), EmitEvent) if e.reason == "Deleting"] == []


def test_many_groups_are_counted() -> None:
    seen = deleting(dependents=tuple(f"g-{n:02}" for n in range(25)))
    assert "g-09 and 15 more" in told(seen, "Progressing")[2]


def test_what_waits_for_its_deletion_is_kept_whole() -> None:
    """The groups fail over by it until they are gone, and afterwards nothing holds it."""
    seen = deleting(dependents=ORDERS, missing_secrets=("gantry-admin",))
    actions = planned(changed(seen, objects={}))
    assert of_type(actions, EnsureSecret)
    assert "StatefulSet" in {a.manifest["kind"] for a in of_type(actions, ApplyObject)}
    (last,) = planned(deleting(dependents=()))
    assert isinstance(last, SetFinalizer)
    assert last.finalizers == ()


def test_a_deletion_in_the_foreground_is_not_fought() -> None:
    """Garbage collection takes the objects first; making them again would never end."""
    seen = deleting(("foregroundDeletion", *HELD), dependents=ORDERS)
    assert of_type(planned(changed(seen, objects={})), ApplyObject, EnsureSecret) == []
    assert told(seen, "Progressing")[1] == "Deleting"


@pytest.mark.parametrize("finalizers", [(), ("others/one",)])
def test_a_deletion_without_the_finalizer_is_left_alone(finalizers: tuple[str, ...]) -> None:
    assert planned(deleting(finalizers, dependents=ORDERS)) == []


# The identity


def claim(ordinal: int, quorum: str = "old-uid", size: int = 3, **facts: Any) -> ClaimView:
    defaults: dict[str, Any] = {
        "name": f"data-gantry-controller-{ordinal}",
        "uid": f"claim-{ordinal}",
        "ordinal": ordinal,
        "quorum": quorum,
        "size": size,
        "ending": False,
    }
    return ClaimView(**(defaults | facts))


def statefulset(**spec: Any) -> dict[str, Any]:
    found = controller_world(controllers(**spec)).objects
    return found["StatefulSet", "gantry-controller"]


IDENTITIES = [
    pytest.param(controllers(), (), "cg-uid", id="no-volumes"),
    pytest.param(controllers(), (claim(0), claim(1), claim(2)), "old-uid", id="all-volumes"),
    pytest.param(controllers(), (claim(0), claim(2)), "old-uid", id="a-majority"),
    pytest.param(controllers(), (claim(1), claim(0, "", 0), claim(2)), "old-uid", id="one-unsaid"),
    pytest.param(controllers(), (claim(0, "", 0), claim(1, "", 0)), "cg-uid", id="nothing-said"),
    pytest.param(controllers(clusterUid="given"), (claim(0), claim(1)), "given", id="given"),
    pytest.param(controllers(replicas=1), (claim(0, size=1),), "old-uid", id="a-quorum-of-one"),
]


@pytest.mark.parametrize(("group", "claims", "wanted"), IDENTITIES)
def test_the_identity_of_a_new_quorum(
    group: ControllerGroup, claims: tuple[ClaimView, ...], wanted: str
) -> None:
    found = identity(group, None, claims)
    assert (found.uid, found.refused) == (wanted, "")


REFUSALS = [
    pytest.param(controllers(), (claim(1),), "Only 1 of 3 volumes", id="a-minority"),
    pytest.param(controllers(), (claim(0), claim(1, "other")), "different quorums", id="several"),
    pytest.param(
        controllers(replicas=5), (claim(0), claim(1), claim(2)), "spec.replicas 3", id="larger"
    ),
    pytest.param(
        controllers(),
        tuple(claim(n, size=5) for n in range(5)),
        "spec.replicas 5",
        id="smaller",
    ),
]


@pytest.mark.parametrize(("group", "claims", "words"), REFUSALS)
def test_volumes_that_leave_a_choice_are_left_to_a_person(
    group: ControllerGroup, claims: tuple[ClaimView, ...], words: str
) -> None:
    seen = controller_world(group, objects={}, pods=(), claims=claims, quorum=Unreachable("none"))
    status, reason, message = told(seen, "Accepted")
    assert (status, reason) == ("False", "VolumesUnclear")
    assert words in message
    assert "old-uid" in message, "the identity to give is named"
    assert of_type(planned(seen), ApplyObject) == []


def test_what_runs_keeps_its_identity_whatever_the_volumes_say() -> None:
    running = statefulset(clusterUid="running")
    assert identity(controllers(), running, (claim(0, "other"),)).uid == "running"


def test_a_quorum_that_takes_volumes_up_says_so_and_stays_what_it_is() -> None:
    taken = (claim(0), claim(1), claim(2))
    seen = controller_world(objects={}, pods=(), claims=taken, quorum=Unreachable("none"))
    assert settled_status(seen)["clusterUid"] == "old-uid"
    actions = planned(seen)
    (event,) = [e for e in of_type(actions, EmitEvent) if e.reason == "VolumesTakenUp"]
    assert "old-uid" in event.note
    made = [a.manifest for a in of_type(actions, ApplyObject)]
    later = changed(with_status(controller_world()), objects=live(made), claims=())
    assert settled_status(later)["clusterUid"] == "old-uid"
    assert of_type(planned(later), ApplyObject) == []


# The marks


def test_a_claim_is_marked_once_a_controller_runs_on_it() -> None:
    pods = (controller_pod(0), controller_pod(1, ready=False), controller_pod(2))
    unsaid = tuple(claim(n, "", 0) for n in range(3))
    seen = controller_world(pods=pods, claims=unsaid)
    marks = of_type(planned(seen), MarkClaim)
    assert [(m.name, m.uid, m.quorum, m.size) for m in marks] == [
        ("data-gantry-controller-0", "claim-0", "cg-uid", 3),
        ("data-gantry-controller-2", "claim-2", "cg-uid", 3),
    ]
    done = changed(seen, claims=tuple(claim(n, "cg-uid") for n in range(3)))
    assert of_type(planned(done), MarkClaim) == []


def test_volumes_that_nobody_runs_on_are_not_marked() -> None:
    seen = controller_world(objects={}, pods=(), claims=(claim(0, "", 0),))
    assert of_type(planned(seen), MarkClaim) == []


# Reading claims


def have(api: FakeApi, ordinal: int, **meta: Any) -> None:
    api.have(CLAIM, claim_names("gantry", 5)[ordinal], metadata={"uid": f"c-{ordinal}"} | meta)


def mark(uid: str = "old-uid", size: str = "3") -> dict[str, Any]:
    return {"annotations": {names.ANNOTATION_QUORUM: uid, names.ANNOTATION_QUORUM_SIZE: size}}


async def test_before_a_quorum_starts_all_of_its_claims_are_read() -> None:
    api = FakeApi()
    have(api, 0, **mark())
    have(api, 1, deletionTimestamp="now", **mark())
    have(api, 4)
    found = await Claims(api).of(controllers(), (), running=False)
    assert [(c.ordinal, c.quorum, c.size) for c in found] == [(0, "old-uid", 3), (4, "", 0)]


async def test_later_a_claim_is_read_until_it_is_marked_and_again_for_another_pod() -> None:
    api, group = FakeApi(), controllers()
    claims = Claims(api)
    pods: tuple[PodView, ...] = (controller_pod(0), controller_pod(1, ready=False))
    have(api, 0)
    have(api, 1)
    assert [c.ordinal for c in await claims.of(group, pods, running=True)] == [0]
    have(api, 0, **mark("cg-uid"))
    assert [c.quorum for c in await claims.of(group, pods, running=True)] == ["cg-uid"]
    assert await claims.of(group, pods, running=True) == ()
    other = (controller_pod(0, uid="another"),)
    assert len(await claims.of(group, other, running=True)) == 1


async def test_a_quorum_without_claims_reads_none() -> None:
    api = FakeApi()
    group = controllers(replicas=1, storage={"type": "EmptyDir"})
    assert await Claims(api).of(group, (), running=False) == ()
    assert api.calls == []


def test_a_mark_that_is_no_number_is_none() -> None:
    body = {"metadata": {"name": "data-gantry-controller-2"} | mark(size="three")}
    view = claim_view(body)
    assert (view.ordinal, view.size) == (2, 0)
