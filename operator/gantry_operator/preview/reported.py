"""The controllers' views as the operator last reported them in the status of resources.

Whoever asks from outside the cluster reaches the API server and no controller. What is known from
there is what the operator saw, and it says in the status when it could not see. A status of another
time is no danger: nothing is done by it, and the operator itself looks again before each step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from gantry_protocol.process.config import fingerprint

from gantry_operator import names
from gantry_operator.api.kinds import (
    BROKER_GROUP,
    CONFIG_MAP,
    CONTROLLER_GROUP,
    FRONT_GROUP,
    POD,
    STATEFULSET,
)
from gantry_operator.cache import Cache, Key, reference
from gantry_operator.models import BrokerGroupStatus, ControllerGroupStatus, FrontGroupStatus
from gantry_operator.plan.conditions import find
from gantry_operator.plan.fencing import told_fenced
from gantry_operator.plan.live_settings import applies_live, live_text
from gantry_operator.plan.observed import PodView, pod_view

if TYPE_CHECKING:
    from gantry_operator.models import Condition

Body = dict[str, Any]


class Reported:
    """Answers of the quorums, by what the cache has of their resources."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def admin(self, namespace: str, name: str) -> ReportedQuorum:
        """The answers of one quorum."""
        return ReportedQuorum(self._cache, namespace, name)

    def known_groups(self) -> set[tuple[str, str]]:
        """None besides those that resources stand for."""
        return set()


class ReportedQuorum:
    """Answers of one quorum."""

    def __init__(self, cache: Cache, namespace: str, name: str) -> None:
        self._cache = cache
        self._namespace = namespace
        self._name = name

    async def group(self, name: str) -> GroupView | NotDeclared | Unreachable:
        """One broker group."""
        resource = names.resource_of(name)
        body = self._cache.get(BROKER_GROUP, self._namespace, resource) or {}
        status = BrokerGroupStatus.model_validate(body.get("status") or {"observedGeneration": -1})
        unseen = _unseen(status.conditions)
        if unseen is not None:
            return unseen
        pods = self._pods(BROKER_GROUP.kind, resource)
        if resource != name:
            return self._shard(name, body, status, pods)
        if not status.members:
            return NotDeclared()
        return self._view(name, body["metadata"]["uid"], _members(status, pods), status)

    def _view(
        self, name: str, uid: str, members: list[MemberView], status: BrokerGroupStatus | None
    ) -> GroupView:
        master = status.master if status is not None else None
        told = {"settings": self._settings(names.broker_statefulset(names.resource_of(name)))}
        members = [member.model_copy(update=told) for member in members]
        return GroupView(
            cluster=self._name,
            name=name,
            uid=uid,
            master_broker_id=master.broker_id if master is not None else None,
            master_epoch=master.epoch if master is not None else 0,
            sync_state_set=[member.broker_id for member in members if member.in_sync],
            sync_state_set_epoch=0,
            members=members,
            has_others=self._has_others(names.resource_of(name)),
            preferred=[],
        )

    def _settings(self, name: str) -> str:
        """The fingerprint of the settings that pods have, if nothing else is under way."""
        if not applies_live(self._cache.get(STATEFULSET, self._namespace, name)):
            return ""
        file = self._cache.get(CONFIG_MAP, self._namespace, name) or {}
        text = live_text({("ConfigMap", name): file}, name)
        return fingerprint(text.encode())

    def _shard(
        self, name: str, body: Body, status: BrokerGroupStatus, pods: list[PodView]
    ) -> GroupView | NotDeclared | Unreachable:
        """One of many, of which the status has sums only: that suffices where all are well."""
        index, shards = names.shard_index(name), status.shards
        if shards is None or index >= shards.count:
            return NotDeclared()
        if shards.worst is not None:
            return Unreachable(f"{shards.worst.name} is not Ready: {shards.worst.message}")
        homes = {pod.ordinal: pod for pod in pods if pod.ordinal is not None}
        out = told_fenced(status, homes)
        members = [
            _member(ordinal + 1, pod, "Fenced" if ordinal in out else "InSync")
            for ordinal, pod in homes.items()
        ]
        led = [one.pod for one in shards.masters for _ in range(one.masters)]
        masters = {pod.name: (pod.ordinal or 0) + 1 for pod in pods}
        view = self._view(name, f"{body['metadata']['uid']}.{name}", members, None)
        known = masters.get(led[index]) if index < len(led) else None
        return view.model_copy(update={"master_broker_id": known, "master_epoch": 1})

    def _has_others(self, resource: str) -> bool:
        others = (
            self._cache.get(BROKER_GROUP, *name)
            for name in self._cache.names(BROKER_GROUP)
            if name[0] == self._namespace and name[1] != resource
        )
        return any(body is not None and reference(body) == self._name for body in others)

    async def view(self) -> QuorumView | Unreachable:
        """The quorum."""
        body = self._cache.get(CONTROLLER_GROUP, self._namespace, self._name) or {}
        status = ControllerGroupStatus.model_validate(
            body.get("status") or {"observedGeneration": -1}
        )
        unseen = _unseen(status.conditions)
        if unseen is not None:
            return unseen
        leader = status.leader
        pods = {pod.name: pod for pod in self._pods(CONTROLLER_GROUP.kind, self._name)}
        # The status of an operator that does not tell of members yet: all pods are.
        members = [(member.node_id, member.name, member.role) for member in status.members] or [
            ((pod.ordinal or 0) + 1, name, "Voter") for name, pod in pods.items()
        ]
        settings = self._settings(names.controller_statefulset(self._name))
        peers = [
            PeerView(
                id=number,
                name=name,
                address=(pods[name].ip or "") if name in pods else "",
                role=role.lower(),
                match_index=0 if name in pods and pods[name].ready else None,
                last_contact_ms=0 if name in pods and pods[name].ready else None,
                settings=settings,
            )
            for number, name, role in members
        ]
        leads = next((p.id for p in peers if leader is not None and p.name == leader.pod), None)
        return QuorumView(
            cluster_uid=status.cluster_uid or "",
            node_id=leads or 0,
            name=leader.pod if leader is not None else "",
            term=leader.term if leader is not None else 0,
            role="leader",
            leader_id=leads,
            commit_index=0,
            applied_index=0,
            peers=peers,
        )

    async def fronts(self) -> FrontsView | Unreachable:
        """The way of clients of the cluster."""
        declared: list[DeclaredFronts] = []
        groups: dict[str, FrontIndex] = {}
        for namespace, name in self._cache.names(FRONT_GROUP):
            body = self._cache.get(FRONT_GROUP, namespace, name) or {}
            if namespace != self._namespace or reference(body) != self._name:
                continue
            status = FrontGroupStatus.model_validate(
                body.get("status") or {"observedGeneration": -1}
            )
            unseen = _unseen(status.conditions)
            if unseen is not None:
                return unseen
            if status.address is None:
                continue
            host, _, port = status.address.rpartition(":")
            ports = int((body.get("spec") or {}).get("ports", 16))
            declared.append(
                DeclaredFronts(
                    name=name, address=host.strip("[]"), first_port=int(port), ports=ports
                )
            )
            for served in status.groups:
                index = served.port - int(port)
                groups[served.name] = FrontIndex(
                    group=served.name, index=index, served_by_fronts=True
                )
        for number, name in enumerate(self._groups()):
            groups.setdefault(name, FrontIndex(group=name, index=number))
        return FrontsView(fronts=declared, groups=list(groups.values()))

    def _groups(self) -> list[str]:
        bodies = (self._cache.get(BROKER_GROUP, *n) for n in self._cache.names(BROKER_GROUP))
        return sorted(
            body["metadata"]["name"]
            for body in bodies
            if body is not None
            and body["metadata"].get("namespace") == self._namespace
            and reference(body) == self._name
        )

    def _pods(self, kind: str, name: str) -> list[PodView]:
        found = self._cache.owned(Key(kind, self._namespace, name), POD)
        return sorted((pod_view(body) for body in found), key=lambda pod: pod.name)


def _unseen(conditions: tuple[Condition, ...]) -> Unreachable | None:
    """The operator's word that it cannot see; of what it never saw it says nothing."""
    available = find(conditions, "Available")
    if available is not None and available.status == "Unknown":
        return Unreachable(available.message)
    return None


def _members(status: BrokerGroupStatus, pods: list[PodView]) -> list[MemberView]:
    homes = {pod.ordinal: pod for pod in pods}
    return [
        _member(
            member.broker_id,
            homes.get(member.replica) if member.replica is not None else None,
            member.state,
            member.address or "",
        )
        for member in status.members
    ]


def _member(broker_id: int, pod: PodView | None, state: str, address: str = "") -> MemberView:
    return MemberView(
        broker_id=broker_id,
        address=address,
        pod_uid=pod.uid if pod is not None else f"gone-{broker_id}",
        alive=state not in ("Lost", "Hibernated"),
        draining=state == "Draining",
        in_sync=state in ("InSync", "Draining"),
        fenced=state == "Fenced",
    )
