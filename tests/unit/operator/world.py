"""A tiny vocabulary for worlds that the operator may find: groups, pods, members, quorums.

Everything is well by default; a test says only what is different.
"""

from __future__ import annotations

import copy
import datetime as dt
from typing import Any

from gantry_operator import names
from gantry_operator.builders import broker_objects, controller_objects, front_objects
from gantry_operator.models import (
    BrokerGroup,
    BrokerGroupStatus,
    ControllerGroup,
    ControllerGroupStatus,
    FrontGroup,
    FrontGroupStatus,
)
from gantry_operator.plan import plan
from gantry_operator.plan.actions import (
    Action,
    DeletePod,
    Elect,
    ElectEach,
    ScaleDown,
    WriteStatus,
)
from gantry_operator.plan.observed import (
    BrokerObserved,
    ControllerObserved,
    FrontObserved,
    ObjectKey,
    Observed,
    PodView,
    ShardView,
)
from gantry_operator.plan.shards import view_of_all
from gantry_protocol.admin import (
    DeclaredFronts,
    FrontIndex,
    FrontsView,
    GroupView,
    MemberView,
    PeerView,
    QuorumView,
)
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable

NOW = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)
IMAGE = "gantry:1"
NEW, OLD = "rev-new", "rev-old"
CLUSTER_IP = "10.96.0.7"


def controllers(name: str = "gantry", **spec: Any) -> ControllerGroup:
    meta = {"name": name, "namespace": "mq", "uid": "cg-uid", "generation": 1}
    return ControllerGroup.parse({"metadata": meta, "spec": spec})


def brokers(meta: dict[str, Any] | None = None, **spec: Any) -> BrokerGroup:
    head = {"name": "orders", "namespace": "mq", "uid": "bg-uid", "generation": 1}
    head |= {"resourceVersion": "7"} | (meta or {})
    return BrokerGroup.parse({"metadata": head, "spec": spec})


def fronts(meta: dict[str, Any] | None = None, **spec: Any) -> FrontGroup:
    head: dict[str, Any] = {"name": "clients", "namespace": "mq", "uid": "fg-uid"}
    head |= {"generation": 1, "resourceVersion": "7", "finalizers": (names.FRONTS_FINALIZER,)}
    return FrontGroup.parse({"metadata": head | (meta or {}), "spec": spec})


def pod(ordinal: int, base: str = "orders-broker", **facts: Any) -> PodView:
    defaults: dict[str, Any] = {
        "name": f"{base}-{ordinal}",
        "uid": f"uid-{ordinal}",
        "resource_version": "1",
        "ordinal": ordinal,
        "ip": f"10.0.0.{ordinal + 10}",
        "ready": True,
        "running": True,
        "finished": False,
        "terminating": False,
        "revision": NEW,
        "role": names.ROLE_MASTER if ordinal == 0 else names.ROLE_REPLICA,
        "traffic": True,
    }
    return PodView(**(defaults | facts))


def member(broker_id: int, **facts: Any) -> MemberView:
    """Broker 1 lives in pod 0, and so on."""
    defaults: dict[str, Any] = {
        "broker_id": broker_id,
        "address": f"10.0.0.{broker_id + 9}:10911",
        "pod_uid": f"uid-{broker_id - 1}",
        "alive": True,
        "epoch": 4,
        "max_offset": 1000,
        "in_sync": True,
    }
    return MemberView(**(defaults | facts))


def view(*members: MemberView, **facts: Any) -> GroupView:
    given = members or (member(1), member(2), member(3))
    defaults: dict[str, Any] = {
        "cluster": "gantry",
        "name": "orders",
        "uid": "bg-uid",
        "replicas": 3,
        "min_in_sync_replicas": 2,
        "route_address": f"{CLUSTER_IP}:10911",
        "master_broker_id": 1,
        "master_epoch": 4,
        "sync_state_set": [m.broker_id for m in given if m.in_sync],
        "sync_state_set_epoch": 9,
        "members": list(given),
    }
    return GroupView(**(defaults | facts))


def members(*facts: dict[str, Any], **group: Any) -> GroupView:
    """Brokers 1, 2 and so on, by what is special of each, in a group."""
    return view(*(member(n + 1, **fact) for n, fact in enumerate(facts)), **group)


def live(manifests: list[dict[str, Any]]) -> dict[ObjectKey, dict[str, Any]]:
    """What the API server makes of applied objects."""
    result = {}
    for manifest in copy.deepcopy(manifests):
        manifest["metadata"] |= {"uid": "live", "generation": 1, "resourceVersion": "1"}
        if manifest["kind"] == "Service":
            manifest["spec"].setdefault("clusterIP", CLUSTER_IP)
        if manifest["kind"] == "StatefulSet":
            manifest["status"] = {"observedGeneration": 1, "updateRevision": NEW}
        if manifest["kind"] == "Deployment":
            count = manifest["spec"].setdefault("replicas", 1)
            counts = ("replicas", "updatedReplicas", "readyReplicas")
            manifest["status"] = {"observedGeneration": 1} | dict.fromkeys(counts, count)
        result[manifest["kind"], manifest["metadata"]["name"]] = manifest
    return result


def settled_status(seen: Observed) -> Any:
    """The status that a plan for this world would leave."""
    for action in plan(seen, NOW):
        if isinstance(action, WriteStatus):
            return action.status
    return seen.live_status


def broker_world(
    group: BrokerGroup | None = None,
    *,
    pods: tuple[PodView, ...] | None = None,
    known: GroupView | NotDeclared | Unreachable | None = None,
    replicas: int | None = None,
    **facts: Any,
) -> BrokerObserved:
    """A group of three that is well, unless something else is said.

    Args:
        replicas: how many the live StatefulSet has; the wish if not given.
    """
    group = group or brokers()
    quorum = facts.pop("controllers", controllers())
    count = replicas if replicas is not None else group.spec.replicas
    made = broker_objects(
        group, controllers(), image=IMAGE, replicas=count, shards=group.spec.shards
    )
    objects = live(made)
    defaults: dict[str, Any] = {
        "meta": group.metadata,
        "group": group,
        "controllers": quorum,
        "controllers_exist": quorum is not None,
        "objects": objects,
        "pods": tuple(pod(n) for n in range(count)) if pods is None else pods,
        "view": known or view(*(member(n + 1) for n in range(count)), replicas=count),
        "image": IMAGE,
    }
    return BrokerObserved(**(defaults | facts))


def shard_view(index: int, *members: MemberView, **facts: Any) -> GroupView:
    """A shard of `orders`; masters are spread over the pods."""
    defaults: dict[str, Any] = {
        "name": f"orders_{index}",
        "uid": f"bg-uid.orders_{index}",
        "route_address": f"{CLUSTER_IP}:{11100 + index}",
        "master_broker_id": index % 3 + 1,
    }
    return view(*members, **(defaults | facts))


def shard_world(count: int = 3, hosted: int | None = None, **facts: Any) -> BrokerObserved:
    """Three pods that host so many shards of `orders`, unless something else is said.

    Args:
        count: how many are wished.
        hosted: how many the live StatefulSet has; the wish if not given.
        facts: what is different; `views` by the index of the shard.
    """
    group = facts.pop("group", None) or brokers(facts.pop("head", None), shards=count)
    hosted = count if hosted is None else hosted
    views = {n: shard_view(n) for n in range(max(count, hosted))} | facts.pop("views", {})
    shards = tuple(ShardView(f"orders_{n}", known) for n, known in sorted(views.items()))
    made = broker_objects(group, controllers(), image=IMAGE, replicas=3, shards=hosted)
    defaults: dict[str, Any] = {
        "objects": live(made),
        "pods": tuple(pod(n, role=None, shards=hosted) for n in range(3)),
        "shards": shards,
        "known": view_of_all(shards),
    }
    return broker_world(group, **(defaults | facts))


def peers(*lags: int | None) -> list[PeerView]:
    """Voters 1, 2, … with how far they are behind; None is no contact."""
    return [
        PeerView(
            id=n + 1,
            name=f"gantry-controller-{n}",
            address=f"10.0.1.{n}:9879",
            match_index=None if lag is None else 100_000 - lag,
            last_contact_ms=None if lag is None else 50,
        )
        for n, lag in enumerate(lags)
    ]


def quorum(*lags: int | None, leader: int | None = 1, node: int = 1, **facts: Any) -> QuorumView:
    defaults: dict[str, Any] = {
        "cluster_uid": "cg-uid",
        "node_id": node,
        "name": f"gantry-controller-{node - 1}",
        "term": 6,
        "role": "leader" if leader == node else "follower",
        "leader_id": leader,
        "commit_index": 100_000,
        "applied_index": 100_000,
        "peers": peers(*(lags or (0, 0, 0))),
    }
    return QuorumView(**(defaults | facts))


def controller_pod(ordinal: int, **facts: Any) -> PodView:
    return pod(ordinal, "gantry-controller", role=None, **facts)


def controller_world(group: ControllerGroup | None = None, **facts: Any) -> ControllerObserved:
    group = group or controllers()
    defaults: dict[str, Any] = {
        "meta": group.metadata,
        "group": group,
        "objects": live(controller_objects(group, image=IMAGE)),
        "pods": tuple(controller_pod(n) for n in range(group.spec.replicas)),
        "quorum": quorum(*(0 for _ in range(group.spec.replicas))),
        "image": IMAGE,
    }
    return ControllerObserved(**(defaults | facts))


def front_pod(number: int, **facts: Any) -> PodView:
    return pod(number, "clients-front", **({"role": None, "revision": None} | facts))


def fronts_view(
    name: str = "clients", *, declared: bool = True, address: str = CLUSTER_IP, ports: int = 16
) -> FrontsView:
    """Two broker groups, whose clients are led to fronts."""
    entry = DeclaredFronts(name=name, address=address, first_port=10950, ports=ports)
    groups = [
        FrontIndex(group=group, index=n, served_by_fronts=declared and n < ports)
        for n, group in enumerate(("orders", "returns"))
    ]
    return FrontsView(fronts=[entry] if declared else [], groups=groups)


def front_world(group: FrontGroup | None = None, **facts: Any) -> FrontObserved:
    """Two fronts that serve two broker groups, unless something else is said."""
    group = group or fronts()
    quorum = facts.pop("controllers", controllers())
    defaults: dict[str, Any] = {
        "meta": group.metadata,
        "group": group,
        "cluster": "gantry",
        "controllers": quorum,
        "controllers_exist": quorum is not None,
        "broker_groups": ("orders", "returns"),
        "objects": live(front_objects(group, controllers(), image=IMAGE)),
        "pods": tuple(front_pod(n) for n in range(group.spec.replicas)),
        "view": fronts_view(),
        "image": IMAGE,
    }
    return FrontObserved(**(defaults | facts))


STATUSES = {
    BrokerObserved: BrokerGroupStatus,
    ControllerObserved: ControllerGroupStatus,
    FrontObserved: FrontGroupStatus,
}


def with_status(seen: Any) -> Any:
    """The same world after its plan's status was written."""
    body = settled_status(seen)
    model = STATUSES[type(seen)]
    fields = {name: getattr(seen, name) for name in seen.__struct_fields__}
    fields |= {"live_status": body, "previous": model.model_validate(body)}
    return type(seen)(**fields)


def changed(seen: Any, **facts: Any) -> Any:
    """The same world but for these facts."""
    fields = {name: getattr(seen, name) for name in seen.__struct_fields__}
    return type(seen)(**(fields | facts))


def planned(seen: Observed) -> list[Action]:
    return plan(seen, NOW)


def of_type(actions: list[Action], *kinds: type[Action]) -> list[Any]:
    return [action for action in actions if isinstance(action, kinds)]


def step(seen: Observed) -> Action | None:
    """The disruptive action, of which there is at most one."""
    found = [action for action in planned(seen) if action.disruptive]
    assert len(found) <= 1, found
    return found[0] if found else None


def told(seen: Observed, name: str) -> tuple[str, str, str]:
    """Status, reason and message of a condition."""
    for condition in settled_status(seen)["conditions"]:
        if condition["type"] == name:
            return condition["status"], condition["reason"], condition["message"]
    raise AssertionError(f"no condition {name}")


def name_of(action: Action | None) -> str:
    """A disruptive action in two words."""
    match action:
        case DeletePod(name=name):
            return f"delete {name.rpartition('-')[2]}"
        case Elect(broker_id=broker_id):
            return f"elect {broker_id}"
        case ElectEach(elections=elections):
            return ", ".join(f"elect {one.broker_id} of {one.group}" for one in elections)
        case ScaleDown(manifest=manifest):
            return f"scale {manifest['spec']['replicas']}"
        case None:
            return "nothing"
    return type(action).__name__
