"""A tiny vocabulary for worlds that the operator may find: groups, pods, members, quorums.

Everything is well by default; a test says only what is different.
"""

from __future__ import annotations

import copy
import datetime as dt
from typing import Any

from gantry_operator import names
from gantry_operator.builders import broker_objects, controller_objects
from gantry_operator.models import (
    BrokerGroup,
    BrokerGroupStatus,
    ControllerGroup,
    ControllerGroupStatus,
)
from gantry_operator.plan import plan
from gantry_operator.plan.actions import Action, DeletePod, Elect, ScaleDown, WriteStatus
from gantry_operator.plan.observed import BrokerObserved, ControllerObserved, ObjectKey, PodView
from gantry_protocol.admin import GroupView, MemberView, PeerView, QuorumView
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


def live(manifests: list[dict[str, Any]]) -> dict[ObjectKey, dict[str, Any]]:
    """What the API server makes of applied objects."""
    result = {}
    for manifest in copy.deepcopy(manifests):
        manifest["metadata"] |= {"uid": "live", "generation": 1, "resourceVersion": "1"}
        if manifest["kind"] == "Service":
            manifest["spec"].setdefault("clusterIP", CLUSTER_IP)
        if manifest["kind"] == "StatefulSet":
            manifest["status"] = {"observedGeneration": 1, "updateRevision": NEW}
        result[manifest["kind"], manifest["metadata"]["name"]] = manifest
    return result


def settled_status(seen: BrokerObserved | ControllerObserved) -> Any:
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
    objects = live(broker_objects(group, controllers(), image=IMAGE, replicas=count))
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


def with_status(seen: Any) -> Any:
    """The same world after its plan's status was written."""
    body = settled_status(seen)
    model = BrokerGroupStatus if isinstance(seen, BrokerObserved) else ControllerGroupStatus
    fields = {name: getattr(seen, name) for name in seen.__struct_fields__}
    fields |= {"live_status": body, "previous": model.model_validate(body)}
    return type(seen)(**fields)


def changed(seen: Any, **facts: Any) -> Any:
    """The same world but for these facts."""
    fields = {name: getattr(seen, name) for name in seen.__struct_fields__}
    return type(seen)(**(fields | facts))


def planned(seen: BrokerObserved | ControllerObserved) -> list[Action]:
    return plan(seen, NOW)


def of_type(actions: list[Action], *kinds: type[Action]) -> list[Any]:
    return [action for action in actions if isinstance(action, kinds)]


def step(seen: BrokerObserved | ControllerObserved) -> Action | None:
    """The disruptive action, of which there is at most one."""
    found = [action for action in planned(seen) if action.disruptive]
    assert len(found) <= 1, found
    return found[0] if found else None


def told(seen: BrokerObserved | ControllerObserved, name: str) -> tuple[str, str, str]:
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
        case ScaleDown(manifest=manifest):
            return f"scale {manifest['spec']['replicas']}"
        case None:
            return "nothing"
    return type(action).__name__
