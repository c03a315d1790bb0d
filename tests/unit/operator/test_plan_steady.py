"""Rules that may run at any time: objects, declaration, labels, traffic, evidence."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.plan.actions import (
    ApplyObject,
    CheckAgain,
    Declare,
    LabelPod,
    ReportGone,
    RouteTraffic,
    WriteStatus,
)
from gantry_operator.plan.objects import drifted
from gantry_operator.plan.observed import pod_view
from gantry_protocol.admin import GroupDeclaration, GroupView
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable
from unit.operator.world import (
    CLUSTER_IP,
    broker_world,
    brokers,
    changed,
    member,
    of_type,
    planned,
    pod,
    view,
)

LOST = Unreachable("no controller answers")


def applied(seen: Any) -> list[str]:
    found = of_type(planned(seen), ApplyObject)
    return [f"{a.manifest['kind']} {a.manifest['metadata']['name']}" for a in found]


# Objects


def test_what_clients_wait_for_comes_before_every_object() -> None:
    """An API server that is slow about an object, or refuses it, keeps no client waiting."""
    known = view(member(1), member(2, alive=False), member(3), master_broker_id=3)
    pods = (pod(0, role="replica"), pod(1, role="replica"), pod(2, role="replica"))
    plan = planned(changed(broker_world(pods=pods, known=known), objects={}))
    kinds = [type(action).__name__ for action in plan]
    assert {"RouteTraffic", "LabelPod", "ApplyObject", "WriteStatus"} <= set(kinds)
    last = max(kinds.index("RouteTraffic"), len(kinds) - 1 - kinds[::-1].index("LabelPod"))
    assert last < kinds.index("ApplyObject")


def test_a_new_group_gets_everything() -> None:
    seen = broker_world(pods=(), known=NotDeclared())
    assert applied(changed(seen, objects={})) == [
        "ConfigMap orders-broker",
        "Service orders-broker",
        "Service orders",
        "Service orders-master",
        "PodDisruptionBudget orders-broker",
        "NetworkPolicy orders-broker",
        "StatefulSet orders-broker",
    ]


def test_a_settled_group_gets_nothing() -> None:
    assert applied(broker_world()) == []


def test_objects_are_ensured_while_the_controllers_are_lost() -> None:
    seen = broker_world(known=LOST)
    seen.objects.pop(("Service", "orders"))
    assert applied(seen) == ["Service orders"]


@pytest.mark.parametrize(
    ("kind", "name", "damage"),
    [
        pytest.param(
            "Service", "orders", lambda o: o["spec"]["selector"].update(x="y"), id="extra-is-fine"
        ),
        pytest.param(
            "Service",
            "orders",
            lambda o: o["spec"]["ports"][0].update(nodePort=30000),
            id="defaults-are-fine",
        ),
        pytest.param(
            "Service",
            "orders",
            lambda o: o["metadata"]["ownerReferences"].append({"uid": "other"}),
            id="other-owners-are-fine",
        ),
    ],
)
def test_what_others_add_is_left_alone(kind: str, name: str, damage: Any) -> None:
    seen = broker_world()
    damage(seen.objects[kind, name])
    assert applied(seen) == []


@pytest.mark.parametrize(
    ("kind", "name", "damage"),
    [
        pytest.param("Service", "orders", lambda o: o["spec"]["ports"].pop(), id="port-removed"),
        pytest.param(
            "StatefulSet", "orders-broker", lambda o: o["spec"].update(replicas=2), id="scaled-away"
        ),
        pytest.param(
            "ConfigMap", "orders-broker", lambda o: o["data"].update({"gantry.toml": ""}), id="edit"
        ),
        pytest.param(
            "Service", "orders", lambda o: o["metadata"].pop("ownerReferences"), id="owner-removed"
        ),
        pytest.param(
            "PodDisruptionBudget",
            "orders-broker",
            lambda o: o["metadata"]["annotations"].update({names.ANNOTATION_APPLIED: "older"}),
            id="applied-from-another-wish",
        ),
    ],
)
def test_drift_is_repaired(kind: str, name: str, damage: Any) -> None:
    seen = broker_world()
    damage(seen.objects[kind, name])
    assert applied(seen) == [f"{kind} {name}"]


@pytest.mark.parametrize(
    ("wished", "live", "expected"),
    [
        ({"limits": {"cpu": "1000m"}}, {"limits": {"cpu": "1"}}, False),
        ({"limits": {"cpu": 1}}, {"limits": {"cpu": "1"}}, False),
        ({"limits": {"memory": "1024Mi"}}, {"limits": {"memory": "1Gi"}}, False),
        ({"limits": {"memory": "1G"}}, {"limits": {"memory": "1Gi"}}, True),
        ({"limits": {"cpu": "1"}}, {"limits": {"cpu": "junk"}}, True),
        ({"data": {"cpu": "1000m"}}, {"data": {"cpu": "1"}}, True),
        ({"a": {}, "b": [], "c": ""}, {}, False),
        ({"a": [1]}, {"a": [1, 2]}, True),
        ({"a": {"b": 1}}, {"a": 1}, True),
    ],
)
def test_drift(wished: Any, live: Any, expected: bool) -> None:
    assert drifted(wished, live) is expected


def test_scaling_up_is_applied_at_once() -> None:
    (action,) = of_type(planned(broker_world(brokers(replicas=5), replicas=3)), ApplyObject)
    assert action.manifest["spec"]["replicas"] == 5


def test_scaling_down_is_never_part_of_ensuring() -> None:
    assert applied(broker_world(known=LOST, replicas=5)) == []


def test_a_paused_group_is_only_reported() -> None:
    seen = changed(broker_world(brokers(paused=True), known=NotDeclared()), objects={})
    assert {type(a) for a in planned(seen)} <= {WriteStatus, CheckAgain}


# Declaration


def declared(seen: Any) -> GroupDeclaration | None:
    found = of_type(planned(seen), Declare)
    return found[0].declaration if found else None


WISH = GroupDeclaration(
    uid="bg-uid", replicas=3, min_in_sync_replicas=2, route_address=f"{CLUSTER_IP}:10911"
)


def test_a_retired_group_is_declared_again() -> None:
    assert declared(broker_world(known=view(retired=True))) == WISH


def test_what_is_declared_already_is_not_declared_again() -> None:
    assert declared(broker_world()) is None


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(NotDeclared(), id="unknown-group"),
        pytest.param(view(uid=None), id="a-group-nobody-declared"),
        pytest.param(view(uid="older"), id="a-group-of-the-same-name"),
        pytest.param(view(replicas=2), id="size"),
        pytest.param(view(min_in_sync_replicas=1), id="minimum"),
        pytest.param(view(route_address=None), id="address"),
    ],
)
def test_declaration(known: GroupView | NotDeclared) -> None:
    assert declared(broker_world(known=known)) == WISH


@pytest.mark.parametrize(
    ("route", "address"),
    [("Group", f"{CLUSTER_IP}:10911"), ("Master", "10.96.0.8:10911"), ("Pod", None)],
)
def test_the_route(route: str, address: str | None) -> None:
    seen = broker_world(brokers(clients={"route": route}), known=NotDeclared())
    seen.objects["Service", "orders-master"]["spec"]["clusterIP"] = "10.96.0.8"
    declaration = declared(seen)
    assert declaration is not None
    assert declaration.route_address == address


def test_an_ipv6_address_is_bracketed() -> None:
    seen = broker_world(known=NotDeclared())
    seen.objects["Service", "orders"]["spec"]["clusterIP"] = "fd00::7"
    declaration = declared(seen)
    assert declaration is not None
    assert declaration.route_address == "[fd00::7]:10911"


def test_nothing_is_declared_before_the_address_is_known() -> None:
    seen = broker_world(known=NotDeclared())
    seen.objects["Service", "orders"]["spec"].pop("clusterIP")
    assert declared(seen) is None
    seen.objects.pop(("Service", "orders"))
    assert declared(seen) is None


def test_while_scaling_down_the_size_that_exists_is_declared_with_the_new_minimum() -> None:
    seen = broker_world(brokers(replicas=1), replicas=3)
    declaration = declared(seen)
    assert declaration is not None
    assert (declaration.replicas, declaration.min_in_sync_replicas) == (3, 1)


def grown(*in_sync: int, minimum: int | None = 1, **facts: Any) -> GroupView:
    """A group that had one replica and is to have three; who is in sync by now."""
    members = (member(n, in_sync=n in in_sync, max_offset=3000 // n) for n in (1, 2, 3))
    return view(*members, min_in_sync_replicas=minimum, replicas=1, **facts)


@pytest.mark.parametrize(
    ("known", "minimum"),
    [
        pytest.param(grown(1), 1, id="not-reached"),
        pytest.param(grown(1, 2), 2, id="reached"),
        pytest.param(grown(1, 2, 3), 2, id="more-than-reached"),
        pytest.param(grown(1, minimum=2), 2, id="fallen-back-after-it-rose"),
        pytest.param(grown(1, minimum=None), 2, id="nobody-declared-one"),
        pytest.param(grown(1, uid="older"), 1, id="declared-by-an-older-owner"),
        pytest.param(grown(minimum=1, master_broker_id=None), 2, id="nothing-acknowledged-yet"),
        pytest.param(NotDeclared(), 2, id="new"),
        pytest.param(
            view(
                member(1),
                member(2, alive=False),
                member(3, in_sync=False),
                min_in_sync_replicas=1,
                replicas=1,
            ),
            1,
            id="in-the-set-but-dead",
        ),
        pytest.param(
            view(
                member(1),
                member(2, draining=True),
                member(3, in_sync=False),
                min_in_sync_replicas=1,
                replicas=1,
            ),
            1,
            id="in-the-set-but-leaving",
        ),
    ],
)
def test_a_minimum_rises_when_it_is_reached(known: GroupView | NotDeclared, minimum: int) -> None:
    declaration = declared(broker_world(known=known))
    assert declaration is not None
    assert (declaration.replicas, declaration.min_in_sync_replicas) == (3, minimum)


def test_a_minimum_raised_by_hand_counts_at_once_where_it_is_reached() -> None:
    by_hand = brokers(replication={"minInSyncReplicas": 3})
    declaration = declared(broker_world(by_hand))
    assert declaration is not None
    assert declaration.min_in_sync_replicas == 3


def test_nothing_is_declared_to_controllers_that_do_not_answer() -> None:
    assert declared(broker_world(known=LOST)) is None


# Role labels


def labels(seen: Any) -> list[tuple[str, str]]:
    return [(a.name[-1], a.role) for a in of_type(planned(seen), LabelPod)]


@pytest.mark.parametrize(
    ("known", "roles", "expected"),
    [
        pytest.param(view(), ("master", "replica", "replica"), [], id="right"),
        pytest.param(
            view(),
            (None, None, None),
            [("1", "replica"), ("2", "replica"), ("0", "master")],
            id="new",
        ),
        pytest.param(
            view(master_broker_id=3),
            ("master", "replica", "replica"),
            [("0", "replica"), ("2", "master")],
            id="former-master-first",
        ),
        pytest.param(
            view(master_broker_id=None),
            ("master", "replica", "replica"),
            [("0", "replica")],
            id="no-master",
        ),
        pytest.param(LOST, ("replica", "master", None), [], id="observation-lost-labels-stay"),
        pytest.param(NotDeclared(), ("replica", "master", None), [], id="unknown-labels-stay"),
        pytest.param(
            view(member(1), member(2)),
            ("master", "replica", None),
            [],
            id="unregistered-pods-have-no-role",
        ),
    ],
)
def test_role_labels(known: Any, roles: tuple[str | None, ...], expected: Any) -> None:
    seen = broker_world(pods=tuple(pod(n, role=r) for n, r in enumerate(roles)), known=known)
    assert labels(seen) == expected


def test_the_successor_of_a_pod_does_not_inherit_its_role() -> None:
    seen = broker_world(pods=(pod(0, uid="fresh", role=None), pod(1), pod(2)))
    assert labels(seen) == []


def test_a_pod_on_its_way_out_is_not_labelled() -> None:
    seen = broker_world(pods=(pod(0), pod(1, terminating=True, role=None), pod(2)))
    assert labels(seen) == []


def test_labels_follow_the_controllers_even_when_paused_or_invalid() -> None:
    switched = broker_world(brokers(paused=True), known=view(master_broker_id=2))
    assert labels(switched) == [("0", "replica"), ("1", "master")]
    assert labels(changed(switched, group=None, invalid="bad")) == labels(switched)


# New connections


def lost(*broker_ids: int, count: int = 3) -> GroupView:
    members = (member(n, alive=n not in broker_ids) for n in range(1, count + 1))
    return view(*members, replicas=count)


@pytest.mark.parametrize(
    ("known", "kept_out", "expected"),
    [
        pytest.param(lost(), (), [], id="well"),
        pytest.param(lost(2), (), [("1", False)], id="lost"),
        pytest.param(lost(2), (1,), [], id="kept-out-already"),
        pytest.param(lost(), (1,), [("1", True)], id="back"),
        pytest.param(lost(2, 3), (), [("1", False)], id="two-lost-but-one-is-the-most"),
        pytest.param(lost(3), (1,), [("1", True), ("2", False)], id="back-makes-room"),
        pytest.param(lost(2, 3), (1,), [], id="no-room"),
        pytest.param(lost(1, 2, 3), (), [], id="all-lost-proves-nothing"),
        pytest.param(LOST, (1,), [], id="observation-lost"),
        pytest.param(NotDeclared(), (1,), [], id="unknown"),
    ],
)
def test_new_connections_avoid_the_lost(
    known: Any, kept_out: tuple[int, ...], expected: list[tuple[str, bool]]
) -> None:
    pods = tuple(pod(n, traffic=n not in kept_out) for n in range(3))
    seen = broker_world(pods=pods, known=known)
    assert [(a.name[-1], a.on) for a in of_type(planned(seen), RouteTraffic)] == expected


def test_the_lost_master_loses_its_connections_before_its_label() -> None:
    known = view(member(1, alive=False), member(2), member(3), master_broker_id=2)
    actions = of_type(planned(broker_world(known=known)), RouteTraffic, LabelPod)
    assert [(type(a), a.name[-1]) for a in actions] == [
        (RouteTraffic, "0"),
        (LabelPod, "0"),
        (LabelPod, "1"),
    ]


@pytest.mark.parametrize(("replicas", "minimum"), [(1, 1), (2, 2), (3, 1), (3, 3), (4, 2), (5, 3)])
def test_while_writes_are_possible_some_living_member_takes_connections(
    replicas: int, minimum: int
) -> None:
    """Worst case: the lost come back and the others go while no operator is there to see it."""
    group = brokers(replicas=replicas, replication={"minInSyncReplicas": minimum})
    gone = range(2, replicas + 1)
    seen = broker_world(group, known=lost(*gone, count=replicas))
    assert len(of_type(planned(seen), RouteTraffic)) < minimum


def test_until_the_minimum_rises_the_old_one_says_who_may_be_kept_out() -> None:
    """With the minimum at one, the only pod that is kept out might be the only one that serves."""
    known = view(
        member(1), member(2, alive=False, in_sync=False), replicas=2, min_in_sync_replicas=1
    )
    seen = broker_world(brokers(replicas=2), known=known)
    assert of_type(planned(seen), RouteTraffic) == []


def test_the_successor_of_a_lost_pod_is_left_alone() -> None:
    seen = broker_world(pods=(pod(0), pod(1, uid="fresh"), pod(2)), known=lost(2))
    assert of_type(planned(seen), RouteTraffic) == []


def test_members_without_a_pod_uid_are_found_by_their_address() -> None:
    foreign = view(member(1, pod_uid=None), member(2, pod_uid=None))
    seen = broker_world(pods=(pod(0, role=None), pod(1, role=None)), known=foreign)
    assert labels(seen) == [("1", "replica"), ("0", "master")]


# Evidence


def test_a_process_that_the_kubelet_saw_end_is_reported() -> None:
    seen = broker_world(pods=(pod(0, finished=True), pod(1), pod(2)))
    assert of_type(planned(seen), ReportGone) == [ReportGone(pod_uid="uid-0")]


def test_what_the_controllers_know_is_not_reported() -> None:
    known = view(member(1, alive=False), member(2), member(3))
    seen = broker_world(pods=(pod(0, finished=True), pod(1), pod(2)), known=known)
    assert of_type(planned(seen), ReportGone) == []


def test_a_missing_pod_is_no_evidence() -> None:
    assert of_type(planned(broker_world(pods=(pod(1), pod(2)))), ReportGone) == []


def body(**status: Any) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": "orders-broker-0", "uid": "u"}
    if status.pop("deleting", False):
        meta["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    spec = {"nodeName": status.pop("node")} if "node" in status else {}
    return {"metadata": meta, "spec": spec, "status": status}


RUNNING = [{"name": "broker", "state": {"running": {}}}]
ENDED = [{"name": "broker", "state": {"terminated": {"exitCode": 1}}}]
SIDECAR = {"name": "metrics", "state": {"running": {}}}
WAITING = [{"name": "broker", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]


@pytest.mark.parametrize(
    ("status", "running", "finished"),
    [
        pytest.param({"containerStatuses": RUNNING, "node": "n"}, True, False, id="running"),
        pytest.param({"containerStatuses": ENDED, "node": "n"}, False, False, id="may-restart"),
        pytest.param({"containerStatuses": WAITING, "node": "n"}, False, False, id="waiting"),
        pytest.param(
            {"containerStatuses": ENDED, "phase": "Failed", "node": "n"}, False, True, id="failed"
        ),
        pytest.param(
            {"containerStatuses": ENDED, "deleting": True, "node": "n"},
            False,
            True,
            id="terminated-for-good",
        ),
        pytest.param(
            {"containerStatuses": RUNNING, "deleting": True, "node": "n"},
            True,
            False,
            id="terminating-is-not-gone",
        ),
        pytest.param(
            {"containerStatuses": RUNNING, "phase": "Failed", "node": "n"},
            True,
            False,
            id="phase-set-for-a-lost-node",
        ),
        pytest.param(
            {"containerStatuses": [SIDECAR, *WAITING], "node": "n"},
            False,
            False,
            id="sidecar-lives",
        ),
        pytest.param(
            {"containerStatuses": [SIDECAR, *ENDED], "deleting": True, "node": "n"},
            False,
            True,
            id="sidecar-outlives",
        ),
        pytest.param({"phase": "Failed", "node": "n"}, True, False, id="phase-alone"),
        pytest.param({"node": "n"}, True, False, id="not-reported-yet"),
        pytest.param({"phase": "Pending"}, False, False, id="never-scheduled"),
    ],
)
def test_what_a_pod_proves(status: dict[str, Any], running: bool, finished: bool) -> None:
    seen = pod_view(body(**status))
    assert (seen.running, seen.finished) == (running, finished)


def test_a_terminating_pod_is_not_ready() -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    assert pod_view(body(**ready)).ready
    assert not pod_view(body(deleting=True, **ready)).ready
    assert not pod_view(body(conditions=[{"type": "Ready", "status": "False"}])).ready
    assert not pod_view({"metadata": {"name": "x-0"}}).ready
