"""Rules that never take anything away: they may run at any time, in any number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.admin import GroupDeclaration, GroupView
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable

from gantry_operator import names
from gantry_operator.plan.actions import (
    Declare,
    ForgetMember,
    LabelPod,
    ReportGone,
    Role,
    RouteTraffic,
    SetFinalizer,
)
from gantry_operator.plan.listeners import advertised
from gantry_operator.plan.members import ObservedGroup
from gantry_operator.plan.minimum import minimum_now
from gantry_operator.plan.preferred import places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_protocol.admin_bodies import PreferredPlace

    from gantry_operator.models import BrokerGroup
    from gantry_operator.plan.observed import Body, BrokerObserved, ObjectKey, Observed, PodView
    from gantry_operator.plan.workload import Workload


def declare_group(seen: BrokerObserved, group: BrokerGroup, replicas_now: int) -> list[Declare]:
    """Rule: the controllers know what the group is to be like.

    While scaling down, the declared size is the size that exists, so that the controllers never
    take a member for surplus that the plan has not yet found safe to remove. A lower minimum counts
    at once: the last steps of scaling down need it. A higher one counts when it is reached
    (`minimum`). Nothing is declared before the address that clients are to be sent to is known,
    since a wrong one would be handed out.
    """
    if isinstance(seen.view, Unreachable):
        return []
    known, address = route_address(seen, group)
    if not known:
        return []
    if not all(pod.hosts(seen.shard) for pod in seen.pods):
        address = _as_declared(seen.view, address)
    wished = GroupDeclaration(
        uid=seen.uid,
        replicas=max(group.spec.replicas, replicas_now),
        min_in_sync_replicas=minimum_now(seen.view, group.spec.min_in_sync),
        route_address=address,
        listeners=advertised(seen, group),
        preferred=_preferred(seen, group),
    )
    view = seen.view
    if isinstance(view, GroupView) and wished == _declared(view) and not view.retired:
        return []
    return [Declare(declaration=wished, group=seen.shard)]


def _as_declared(view: GroupView | NotDeclared | Unreachable, address: str | None) -> str | None:
    """The address of a shard that not every pod hosts yet: the Service's only if clients have it.

    A connection that came to a pod without the shard would be refused there, so clients are sent
    to the master itself until the last pod was replaced.
    """
    has_it = isinstance(view, GroupView) and view.route_address == address
    return address if has_it else None


def _declared(view: GroupView) -> GroupDeclaration | None:
    if view.uid is None or view.replicas is None or view.min_in_sync_replicas is None:
        return None
    return GroupDeclaration(
        uid=view.uid,
        replicas=view.replicas,
        min_in_sync_replicas=view.min_in_sync_replicas,
        route_address=view.route_address,
        listeners=view.listeners,
        preferred=view.preferred or [],
    )


def _preferred(seen: BrokerObserved, group: BrokerGroup) -> list[PreferredPlace]:
    """The zones that elections are to prefer; none before the controllers know the members."""
    if not isinstance(seen.view, GroupView):
        return []
    return places(ObservedGroup(seen.view, seen.pods, seen.shard), group.spec.preferred_master)


def route_address(seen: BrokerObserved, group: BrokerGroup) -> tuple[bool, str | None]:
    """Whether the address for clients is known, and what it is; None means the master's own."""
    name = seen.meta.name
    port = names.shard_port(seen.shard) if seen.shard else names.BROKER_REMOTING_PORT
    match group.spec.clients.route:
        case "Group":
            return _cluster_address(seen.objects, names.group_service(name), port)
        case "Master":
            return _cluster_address(seen.objects, names.master_service(name), port)
        case "Pod":
            return True, None


def _cluster_address(
    objects: dict[ObjectKey, Body], service: str, port: int
) -> tuple[bool, str | None]:
    spec = objects.get(("Service", service), {}).get("spec") or {}
    address = spec.get("clusterIP")
    if not address or address == "None":
        return False, None
    host = f"[{address}]" if ":" in address else address
    return True, f"{host}:{port}"


def label_roles(group: ObservedGroup) -> list[LabelPod]:
    """Rule: the role label of a pod is the role that the controllers give its member.

    Only a view that was read from the leader gets here, so with the observation lost the labels
    stay as they are. The former master loses its label before the new one gets it: for a moment
    the `-master` Service may lead nowhere, never to two.
    """
    labels = []
    for member in group.view.members:
        pod = group.pod_of(member)
        if pod is None or pod.terminating:
            continue
        is_master = member.broker_id == group.view.master_broker_id
        role: Role = names.ROLE_MASTER if is_master else names.ROLE_REPLICA
        if pod.role != role:
            labels.append(LabelPod(name=pod.name, uid=pod.uid, role=role))
    return sorted(labels, key=lambda label: (label.role == names.ROLE_MASTER, label.name))


def route_traffic(groups: Sequence[ObservedGroup], min_in_sync: int) -> list[RouteTraffic]:
    """Rule: new connections avoid the pod of a member that the controllers call lost.

    Of several groups in the same pods: a pod all of whose members they call lost.

    On a lost node the kubelet cannot say that a pod is not Ready, so Kubernetes goes on sending
    clients there for most of a minute. The process may live all the same, so this never takes the
    last way in: fewer pods than the minimum in sync are kept out, hence while writes are possible
    at all, some living member can be reached, also if the operator is gone by then.
    """
    lives: dict[str, tuple[PodView, bool]] = {}
    for group in groups:
        for member in group.view.members:
            pod = group.pod_of(member)
            if pod is not None and not pod.terminating:
                _, lived = lives.get(pod.uid, (pod, False))
                lives[pod.uid] = pod, lived or member.alive
    back = [pod for pod, alive in lives.values() if alive and not pod.traffic]
    lost = [pod for pod, alive in lives.values() if not alive]
    if len(lost) == len(lives):
        lost = []
    room = max(0, min_in_sync - 1 - sum(1 for pod in lost if not pod.traffic))
    cut = [pod for pod in lost if pod.traffic][:room]
    return [RouteTraffic(name=pod.name, uid=pod.uid, on=True) for pod in back] + [
        RouteTraffic(name=pod.name, uid=pod.uid, on=False) for pod in cut
    ]


def report_gone(group: ObservedGroup) -> list[ReportGone]:
    """Rule: the controllers learn of a process that the kubelet saw end.

    The evidence is the kubelet's: the container terminated and will not be started again. A pod
    that is terminating, a pod object that was deleted, or a phase that the node lifecycle set for a
    lost node say nothing about the process and are not reported. A wrong report would cost one
    needless election inside the sync-state set, never data.
    """
    gone = {pod.uid for pod in group.pods if pod.finished}
    return [
        ReportGone(pod_uid=member.pod_uid, group=group.shard)
        for member in group.view.members
        if member.alive and member.pod_uid is not None and member.pod_uid in gone
    ]


def forget_gone(group: ObservedGroup, load: Workload | None, wished: int) -> list[ForgetMember]:
    """Rule: a member that will not come back leaves the record.

    That is one that no pod holds while each wished replica that is not fenced lives in its pod and
    is in sync: one whose pod scaling down removed, or whose volume was wiped. It is dead and
    outside the sync-state set, so whatever it holds of value the others hold, too. The controllers
    judge again, by their own evidence. Should its volume be found after all, it joins as a new
    member.
    """
    if load is None or load.revision is None or load.disturbance():
        return []
    if not load.replicas == len(load.pods) == wished:
        return []
    in_sync = group.in_sync()
    for pod in load.unfenced():
        member = group.member_in(pod)
        if member is None or not pod.ready or member.broker_id not in in_sync:
            return []
    return [
        ForgetMember(broker_id=member.broker_id, incarnation=member.incarnation, group=group.shard)
        for member in group.view.members
        if not member.alive
        and member.pod_uid is not None
        and member.broker_id not in group.view.sync_state_set
        and group.pod_of(member) is None
    ]


def keep_finalizer(seen: BrokerObserved, group: BrokerGroup) -> list[SetFinalizer]:
    """Rule: the finalizer exists exactly while there is metadata to clean at deletion.

    That is with storage.whenDeleted Delete. With Retain nothing stands in the way of a deletion,
    operator or not.
    """
    wanted = group.spec.storage.when_deleted == "Delete"
    if wanted == (names.FINALIZER in seen.meta.finalizers):
        return []
    return [finalizer_action(seen, present=wanted)]


def finalizer_action(
    seen: Observed, *, present: bool, finalizer: str = names.FINALIZER
) -> SetFinalizer:
    """The action that adds or removes a finalizer of the operator and keeps the others."""
    others = tuple(f for f in seen.meta.finalizers if f != finalizer)
    return SetFinalizer(
        present=present,
        finalizers=(*others, finalizer) if present else others,
        resource_version=seen.meta.resource_version,
    )
