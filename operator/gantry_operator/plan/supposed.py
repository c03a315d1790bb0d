"""The world as it would be after an action, if all goes well: what a plan is foreseen with.

Supposed are the good outcomes only: a pod that is replaced comes back Ready and in sync, and an
election that is asked for takes place. What is amiss now stays so: nothing says that it will mend.
Everything else about the future is the planner's own word (`foresight`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_protocol.admin import (
    DeclaredFronts,
    FrontsView,
    GroupView,
    MemberView,
    PeerView,
    QuorumView,
)
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable
from gantry_protocol.process.config import fingerprint
from msgspec.structs import replace

from gantry_operator import names
from gantry_operator.models import BrokerGroupStatus, ControllerGroupStatus, FrontGroupStatus
from gantry_operator.plan import actions as act
from gantry_operator.plan.live_settings import live_text
from gantry_operator.plan.objects import key_of
from gantry_operator.plan.observed import (
    Body,
    BrokerObserved,
    ControllerObserved,
    FrontObserved,
    Observed,
    PodView,
    ShardView,
    hosted_shards,
)
from gantry_operator.plan.shards import view_of_all

if TYPE_CHECKING:
    from collections.abc import Callable

    Rolls = Callable[[Body, Body], bool]
    """Whether applying a manifest to a live StatefulSet or Deployment changes its pods."""

_STATUS: dict[type[Any], Any] = {
    BrokerObserved: BrokerGroupStatus,
    ControllerObserved: ControllerGroupStatus,
    FrontObserved: FrontGroupStatus,
}
_COUNTS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
SOMEWHERE = "an address yet to be given"


def after(seen: Observed, action: act.Action, rolls: Rolls) -> Observed:
    """The world after an action; the same world after one of which nothing is supposed."""
    match action:
        case act.ApplyObject():
            return _applied(seen, action.manifest, rolls)
        case act.DeleteObject():
            kept = {k: v for k, v in seen.objects.items() if k != (action.kind, action.name)}
            return replace(seen, objects=kept)
        case act.SetFinalizer():
            return replace(
                seen, meta=seen.meta.model_copy(update={"finalizers": action.finalizers})
            )
        case act.GrowClaim() if not isinstance(seen, FrontObserved):
            volumes = (
                replace(volume, requested=action.size, capacity=action.size)
                if volume.uid == action.uid
                else volume
                for volume in seen.volumes or ()
            )
            return replace(seen, volumes=tuple(volumes))
        case act.WriteStatus():
            previous = _STATUS[type(seen)].model_validate(action.status)
            return replace(seen, previous=previous, live_status=action.status)
        case act.DeletePod() if not isinstance(seen, FrontObserved):
            return _replaced(seen, action.name)
        case act.RenewFiles(uid=uid, settings=text):
            pods = (replace(p, files=text) if p.uid == uid else p for p in seen.pods)
            return replace(seen, pods=tuple(pods))
    if isinstance(seen, BrokerObserved):
        return _after_of_brokers(seen, action, rolls)
    if isinstance(seen, ControllerObserved):
        return _after_of_controllers(seen, action, rolls)
    return _after_of_fronts(seen, action)


# Objects and pods


def _applied(seen: Observed, manifest: Body, rolls: Rolls) -> Observed:
    key = key_of(manifest)
    live = seen.objects.get(key)
    head: Body = (live or {}).get("metadata") or {"uid": "supposed"}
    generation = head.get("generation", 0) + 1
    meta = manifest["metadata"] | {"uid": head.get("uid", ""), "generation": generation}
    body = manifest | {"metadata": meta}
    if key[0] == "Service":
        address = ((live or {}).get("spec") or {}).get("clusterIP") or SOMEWHERE
        body |= {"spec": {"clusterIP": address} | manifest["spec"]}
    if key[0] == "Deployment":
        count = manifest["spec"].get("replicas") or ((live or {}).get("spec") or {}).get(
            "replicas", 1
        )
        counts = dict.fromkeys(_COUNTS, count)
        body |= {"spec": {"replicas": count} | manifest["spec"]}
        body |= {"status": {"observedGeneration": generation} | counts}
    if key[0] == "StatefulSet" and "template" not in manifest["spec"]:
        assert live is not None, "only of one that exists a part is applied"
        body = live | {"metadata": head | {"generation": generation}}
        body |= {"spec": live["spec"] | manifest["spec"]}
    if key[0] == "StatefulSet":
        revision = _revision(live, generation, rolled=live is None or rolls(manifest, live))
        body |= {"status": {"observedGeneration": generation, "updateRevision": revision}}
    seen = replace(seen, objects=seen.objects | {key: body})
    if key[0] == "ConfigMap" and not isinstance(seen, FrontObserved):
        text = live_text({key: body}, key[1])
        if isinstance(seen, BrokerObserved):
            return _with_views(seen, lambda _, view: _told(view, text))
        return replace(seen, quorum=_told(seen.quorum, text))
    return _grown(seen, body) if key[0] in ("StatefulSet", "Deployment") else seen


def _revision(live: Body | None, generation: int, *, rolled: bool) -> str:
    before = ((live or {}).get("status") or {}).get("updateRevision")
    return f"supposed-{generation}" if rolled or not before else str(before)


def _grown(seen: Observed, workload: Body) -> Observed:
    """The pods that its controller makes of a StatefulSet or Deployment that has too few."""
    name, wished = workload["metadata"]["name"], workload["spec"].get("replicas", 1)
    there = {pod.ordinal for pod in seen.pods}
    missing = [ordinal for ordinal in range(wished) if ordinal not in there]
    if workload["kind"] == "Deployment":
        missing = list(range(len(seen.pods), wished))
    made: list[PodView] = [_pod(workload, names.pod(name, ordinal), ordinal) for ordinal in missing]
    if not made:
        return seen
    pods = tuple(sorted((*seen.pods, *made), key=lambda pod: pod.name))
    seen = replace(seen, pods=pods)
    if isinstance(seen, BrokerObserved):
        return _with_views(seen, lambda shard, view: _joined(view, list(made), shard))
    if isinstance(seen, ControllerObserved) and isinstance(seen.quorum, Unreachable):
        return replace(seen, quorum=_new_quorum(seen))
    return seen


def _pod(workload: Body, name: str, ordinal: int | None, life: int = 0) -> PodView:
    return PodView(
        name=name,
        uid=f"supposed-{name}-{life}",
        resource_version="",
        ordinal=ordinal,
        ip=None,
        ready=True,
        running=True,
        finished=False,
        terminating=False,
        revision=(workload.get("status") or {}).get("updateRevision"),
        role=None,
        traffic=True,
        shards=hosted_shards(workload),
    )


def _replaced(seen: BrokerObserved | ControllerObserved, name: str) -> Observed:
    """A pod was deleted, and its successor is well."""
    old = next(pod for pod in seen.pods if pod.name == name)
    made_by = next(
        body
        for (kind, owner), body in seen.objects.items()
        if kind == "StatefulSet" and name.startswith(f"{owner}-")
    )
    life = int(old.uid.rpartition("-")[2]) + 1 if old.uid.startswith("supposed-") else 0
    new = replace(_pod(made_by, name, old.ordinal, life), node=old.node, zone=old.zone)
    seen = replace(seen, pods=tuple(new if pod.uid == old.uid else pod for pod in seen.pods))
    if isinstance(seen, BrokerObserved):
        return _with_views(seen, lambda shard, view: _restarted(view, old, new, shard))
    if isinstance(seen.quorum, QuorumView):
        return replace(seen, quorum=_without_leader(seen.quorum, name))
    return seen


# Broker groups


def _after_of_brokers(seen: BrokerObserved, action: act.Action, rolls: Rolls) -> BrokerObserved:
    match action:
        case act.Declare():
            return _of_group(seen, action.group, lambda view: _declared(seen, view, action))
        case act.Elect():
            return _of_group(seen, action.group, lambda view: elected(view, action.broker_id))
        case act.ElectEach():
            for one in action.elections:
                seen = _after_of_brokers(seen, one, rolls)
            return seen
        case act.ScaleDown():
            return _shrunk(_applied(seen, action.manifest, rolls), action.manifest)
        case act.ReportGone():
            return _of_group(seen, action.group, lambda view: _gone(view, action.pod_uid))
        case act.ForgetMember() | act.AdoptCopies() | act.FenceMember() | act.UnfenceMember():
            return _after_of_members(seen, action)
        case act.LabelPod():
            pods = (replace(p, role=action.role) if p.uid == action.uid else p for p in seen.pods)
            return replace(seen, pods=tuple(pods))
        case act.RouteTraffic():
            pods = (replace(p, traffic=action.on) if p.uid == action.uid else p for p in seen.pods)
            return replace(seen, pods=tuple(pods))
    return seen


def _after_of_members(
    seen: BrokerObserved,
    action: act.ForgetMember | act.AdoptCopies | act.FenceMember | act.UnfenceMember,
) -> BrokerObserved:
    if isinstance(action, act.AdoptCopies):
        return _of_group(seen, "", _adopted)
    if isinstance(action, act.ForgetMember):
        return _of_group(seen, action.group, lambda view: _without(view, {action.broker_id}))
    on = isinstance(action, act.FenceMember)
    return _fenced(seen, action.group, action.broker_id, on=on)


def _adopted(view: Any) -> Any:
    """The view once no copy is refused any more; whom they elect is not supposed."""
    if not isinstance(view, GroupView):
        return view
    members = [member.model_copy(update={"refused": False}) for member in view.members]
    return view.model_copy(update={"members": members})


def _with_views(seen: BrokerObserved, change: Callable[[str, Any], Any]) -> BrokerObserved:
    """The views of all groups changed; of a single group, its own."""
    if not seen.shards:
        return replace(seen, view=change("", seen.view))
    shards = tuple(ShardView(one.name, change(one.name, one.view)) for one in seen.shards)
    return replace(seen, shards=shards, view=view_of_all(shards))


def _of_group(seen: BrokerObserved, group: str, change: Callable[[Any], Any]) -> BrokerObserved:
    return _with_views(seen, lambda shard, view: change(view) if shard == group else view)


def _declared(seen: BrokerObserved, view: Any, action: act.Declare) -> Any:
    """A group that the controllers did not know gets its members, and of these a master."""
    if isinstance(view, Unreachable):
        return view
    wish = action.declaration
    if isinstance(view, NotDeclared):
        view = GroupView(
            cluster="",
            name=action.group or seen.meta.name,
            master_epoch=0,
            sync_state_set=[],
            sync_state_set_epoch=0,
            has_others=seen.neighbours,
            preferred=[],
        )
    declared = view.model_copy(
        update={
            "uid": wish.uid,
            "replicas": wish.replicas,
            "min_in_sync_replicas": wish.min_in_sync_replicas,
            "route_address": wish.route_address,
            "listeners": wish.listeners,
            "retired": False,
            "preferred": wish.preferred if view.preferred is not None else None,
        }
    )
    strangers = [pod for pod in seen.pods if pod.uid not in {m.pod_uid for m in view.members}]
    return _joined(declared, strangers, action.group) if not view.members else declared


def _joined(view: Any, pods: list[PodView], shard: str) -> Any:
    """New members, in sync; the first members of a group get a master."""
    if not isinstance(view, GroupView) or view.uid is None:
        return view
    members = list(view.members)
    for pod in pods:
        if pod.hosts(shard):
            broker_id = max((member.broker_id for member in members), default=0) + 1
            members.append(_member(broker_id, pod))
    everybody = [member.broker_id for member in members[len(view.members) :]]
    joined = view.model_copy(
        update={
            "members": members,
            "sync_state_set": sorted([*view.sync_state_set, *everybody]),
            "sync_state_set_epoch": view.sync_state_set_epoch + bool(everybody),
        }
    )
    if joined.master_epoch == 0 and members:
        return elected(joined, members[0].broker_id)
    return joined


def _member(broker_id: int, pod: PodView) -> MemberView:
    return MemberView(
        broker_id=broker_id, address=SOMEWHERE, pod_uid=pod.uid, alive=True, in_sync=True
    )


def elected(view: Any, broker_id: int) -> Any:
    """The view after an election."""
    if not isinstance(view, GroupView):
        return view
    return view.model_copy(
        update={"master_broker_id": broker_id, "master_epoch": view.master_epoch + 1}
    )


def _restarted(view: Any, old: PodView, new: PodView, shard: str) -> Any:
    """The member of a pod lives in its successor; one that led gives way, if there is another."""
    if not isinstance(view, GroupView):
        return view
    mine = [member for member in view.members if member.pod_uid == old.uid]
    if not mine:
        return _joined(view, [new], shard)
    broker_id = mine[-1].broker_id
    back = {"pod_uid": new.uid, "alive": True, "draining": False, "in_sync": True}
    members = [
        member.model_copy(update=back) if member.broker_id == broker_id else member
        for member in view.members
    ]
    in_sync = sorted({*view.sync_state_set, broker_id})
    changed = view.model_copy(update={"members": members, "sync_state_set": in_sync})
    if view.master_broker_id != broker_id:
        return changed
    alive = {member.broker_id for member in members if member.alive}
    others = [other for other in in_sync if other != broker_id and other in alive]
    return elected(changed, others[0] if others else broker_id)


def _told(view: Any, text: str) -> Any:
    """Members that say which settings they have will have those of a new file."""
    if not isinstance(view, GroupView | QuorumView) or not text:
        return view
    new = {"settings": fingerprint(text.encode()), "settings_refused": ""}
    whose = "members" if isinstance(view, GroupView) else "peers"
    told = [one.model_copy(update=new) if one.settings else one for one in getattr(view, whose)]
    return view.model_copy(update={whose: told})


def _shrunk(seen: Any, manifest: Body) -> BrokerObserved:
    assert isinstance(seen, BrokerObserved), "only broker groups are scaled down by steps"
    wished = manifest["spec"]["replicas"]
    gone = {pod.uid for pod in seen.pods if pod.ordinal is not None and pod.ordinal >= wished}
    pods = tuple(pod for pod in seen.pods if pod.uid not in gone)
    return _with_views(replace(seen, pods=pods), lambda _, view: _left(view, gone))


def _left(view: Any, pod_uids: set[str]) -> Any:
    if not isinstance(view, GroupView):
        return view
    return _without(view, {m.broker_id for m in view.members if m.pod_uid in pod_uids})


def _without(view: Any, broker_ids: set[int]) -> Any:
    if not isinstance(view, GroupView):
        return view
    return view.model_copy(
        update={
            "members": [m for m in view.members if m.broker_id not in broker_ids],
            "sync_state_set": [one for one in view.sync_state_set if one not in broker_ids],
        }
    )


def _fenced(seen: BrokerObserved, shard: str, broker_id: int, *, on: bool) -> BrokerObserved:
    """A member is taken out of its group, or has caught up again; its pod is Ready or not."""

    def changed(view: Any) -> Any:
        if not isinstance(view, GroupView):
            return view
        members = [
            one.model_copy(update={"fenced": on, "in_sync": not on})
            if one.broker_id == broker_id
            else one
            for one in view.members
        ]
        others = {one for one in view.sync_state_set if one != broker_id}
        in_sync = sorted(others if on else others | {broker_id})
        return view.model_copy(update={"members": members, "sync_state_set": in_sync})

    seen = _of_group(seen, shard, changed)
    views = [one.view for one in seen.shards if one.name == shard] if shard else [seen.view]
    members = [one for view in views if isinstance(view, GroupView) for one in view.members]
    homes = {one.pod_uid for one in members if one.broker_id == broker_id}
    pods = (replace(pod, ready=not on) if pod.uid in homes else pod for pod in seen.pods)
    return replace(seen, pods=tuple(pods))


def _gone(view: Any, pod_uid: str) -> Any:
    if not isinstance(view, GroupView):
        return view
    members = [
        m.model_copy(update={"alive": False}) if m.pod_uid == pod_uid else m for m in view.members
    ]
    return view.model_copy(update={"members": members})


# Controllers


def _after_of_controllers(
    seen: ControllerObserved, action: act.Action, rolls: Rolls
) -> ControllerObserved:
    match action:
        case act.ScaleDown(manifest=manifest):
            pods = (p for p in seen.pods if (p.ordinal or 0) < manifest["spec"]["replicas"])
            fewer = _applied(replace(seen, pods=tuple(pods)), manifest, rolls)
            assert isinstance(fewer, ControllerObserved), "as it was before"
            return fewer
        case act.ChangeMembers() if isinstance(seen.quorum, QuorumView):
            return replace(seen, quorum=_with_members(seen, seen.quorum, action))
        case act.EnsureSecret():
            left = tuple(name for name in seen.missing_secrets if name != action.name)
            return replace(seen, missing_secrets=left)
        case act.MarkClaim():
            claims = tuple(
                replace(claim, quorum=action.quorum, size=action.size)
                if claim.name == action.name
                else claim
                for claim in seen.claims
            )
            return replace(seen, claims=claims)
    return seen


def _with_members(
    seen: ControllerObserved, quorum: QuorumView, action: act.ChangeMembers
) -> QuorumView:
    """A change of members that succeeds; a learner is filled at once."""
    number = action.number
    if action.change == "transfer":
        update = {"leader_id": number, "node_id": number, "term": quorum.term + 1}
        return quorum.model_copy(update=update)
    peers = [peer for peer in quorum.peers if peer.id != number]
    if action.change != "remove":
        peer = PeerView(
            id=number,
            name=names.pod(names.controller_statefulset(seen.meta.name), number - 1),
            address=SOMEWHERE,
            role="learner" if action.change == "add" else "voter",
            match_index=quorum.commit_index,
            last_contact_ms=0,
        )
        peers = sorted((*peers, peer), key=lambda peer: peer.id)
    return quorum.model_copy(update={"peers": peers})


def _new_quorum(seen: ControllerObserved) -> QuorumView:
    peers = [
        PeerView(
            id=(pod.ordinal or 0) + 1,
            name=pod.name,
            address=SOMEWHERE,
            match_index=0,
            last_contact_ms=0,
        )
        for pod in seen.pods
    ]
    return QuorumView(
        cluster_uid="",
        node_id=1,
        name=peers[0].name,
        term=1,
        role="leader",
        leader_id=1,
        commit_index=0,
        applied_index=0,
        peers=peers,
    )


def _without_leader(quorum: QuorumView, name: str) -> QuorumView:
    """A quorum one of whose controllers restarted; one that led is followed by another."""
    caught_up = {"match_index": quorum.commit_index, "last_contact_ms": 0}
    peers = [
        peer.model_copy(update=caught_up) if peer.name == name else peer for peer in quorum.peers
    ]
    led = next((peer for peer in peers if peer.id == quorum.leader_id), None)
    others = [peer for peer in peers if peer.name != name and peer.match_index is not None]
    update: dict[str, Any] = {"peers": peers}
    if led is not None and led.name == name and others:
        update |= {"leader_id": others[0].id, "node_id": others[0].id, "term": quorum.term + 1}
    return quorum.model_copy(update=update)


# Fronts


def _after_of_fronts(seen: FrontObserved, action: act.Action) -> FrontObserved:
    if isinstance(seen.view, Unreachable):
        return seen
    match action:
        case act.DeclareFronts():
            wish = action.declaration
            entry = DeclaredFronts(
                name=seen.meta.name,
                address=wish.address,
                first_port=wish.first_port,
                ports=wish.ports,
            )
            groups = [
                group.model_copy(update={"served_by_fronts": group.index < wish.ports})
                for group in seen.view.groups
            ]
            return replace(seen, view=FrontsView(fronts=[entry], groups=groups))
        case act.RemoveFronts():
            return replace(seen, view=FrontsView(fronts=[], groups=seen.view.groups))
    return seen
