"""Carrying out a plan, action by action.

Each action fails alone: what the API server or the controllers refuse is remembered and reported by
the next plan, and the rest of this one goes on, except for what is disruptive. An answer that
contradicts what was planned with, such as that an object is gone, makes us read that object anew.
Only an API server that does not answer, or asks to be left in peace, ends the plan: the queue
brings the key back, and the next plan starts from what is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import msgspec
from gantry_protocol.admin import GroupView
from gantry_protocol.process import log

from gantry_operator import names
from gantry_operator.api.errors import (
    ApiError,
    Conflict,
    Denied,
    Ending,
    Gone,
    Invalid,
    NotFound,
    TooManyRequests,
)
from gantry_operator.api.kinds import (
    BY_NAME,
    CLAIM,
    CONTROLLER_GROUP,
    POD,
    SECRET,
    STATEFULSET,
    Kind,
)
from gantry_operator.plan import actions as act
from gantry_operator.plan.objects import owner_uids
from gantry_operator.plan.observed import (
    Body,
    BrokerObserved,
    ControllerObserved,
    FrontObserved,
    Observed,
    Refusal,
)
from gantry_operator.reconcile import departed
from gantry_operator.reconcile.checks import (
    change_members,
    elect_each,
    still_to_delete,
    still_to_scale,
)
from gantry_operator.reconcile.events import post_event
from gantry_operator.reconcile.reread import is_referred_to, live, reread, take, target_of

if TYPE_CHECKING:
    from gantry_protocol.admin_client.admin import Admin

    from gantry_operator.api.protocol import Api
    from gantry_operator.cache import Cache, Key
    from gantry_operator.quorums.directory import Directory
    from gantry_operator.reconcile.quorum_secrets import Secrets
from gantry_protocol.admin_client.errors import (
    AdminError,
    AdminRefusedError,
    QuorumUnreachableError,
)

LATE_WATCH_S = 2.0
"""Until the next look at a finalizer that the API server says is needed."""
OFF_RECORD_AGAIN_S = 30.0
"""After the controllers refused to retire a group or to forget a member."""
_UNHEARD = (
    act.Declare,
    act.FenceMember,
    act.UnfenceMember,
    act.RetireGroup,
    act.ForgetMember,
    act.AdoptCopies,
    act.EndDrain,
    act.ChangeMembers,
)
"""Changes of the record that the status tells of, and the quorum's watch stream perhaps not.

What is declared or fenced is in no line of it, and what came and went between two lines is no news.
"""
_log = log.get("apply")


class ApplyOutcome(msgspec.Struct):
    """The outcome of a plan.

    Attributes:
        check_after_s: when to look again at the latest; None for only when something is heard.
        again: look again at once. The operator's own writes are in the cache already, so the watch
            brings nothing new about them.
        refusals: what could not be written.
        failure: the first error that only time can mend; the key is tried again later.
        disruption: the disruptive action that was carried out, in one word.
        dropped: why the disruptive action was not carried out after all.
        growth: by claim that was to become larger, its size, and why not; empty if it does.
        refused_drains: why a drain did not begin, by `DrainGroup.group`.
        refused_status: why the status could not be written, and whether that may pass by itself.
        read: fingerprint of what was read (`spins`); empty if there was nothing to read.
        plan: what was carried out.
    """

    check_after_s: float | None = None
    again: bool = False
    refusals: tuple[Refusal, ...] = ()
    failure: ApiError | AdminError | None = None
    disruption: str = ""
    dropped: str = ""
    growth: dict[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    refused_drains: dict[str, str] = msgspec.field(default_factory=dict)
    refused_status: tuple[str, bool] | None = None
    read: bytes = b""
    plan: list[act.Action] = msgspec.field(default_factory=list)


class Applier:
    """The hands of the operator."""

    def __init__(self, api: Api, cache: Cache, directory: Directory, secrets: Secrets) -> None:
        self._api = api
        self._cache = cache
        self._directory = directory
        self._secrets = secrets

    async def apply(self, key: Key, seen: Observed, plan: list[act.Action]) -> ApplyOutcome:
        """Carries out a plan in order.

        Raises:
            ApiError: the API server does not answer, or wants to be left in peace.
        """
        outcome = ApplyOutcome()
        for action in plan:
            if action.disruptive and (outcome.refusals or outcome.failure):
                outcome.dropped = "a step before it failed"
                continue
            try:
                await self._carry_out(key, seen, action, outcome)
            except (Ending, TooManyRequests):
                raise
            except (NotFound, Conflict, Gone) as error:
                await self._contradicted(key, action, error, outcome)
            except ApiError as error:
                if error.status == 0:
                    raise
                self._failed(key, action, error, outcome)
            except QuorumUnreachableError as error:
                outcome.failure = outcome.failure or error
            except AdminRefusedError as error:
                if isinstance(action, act.Declare | act.DeclareFronts | act.ReportGone):
                    outcome.refusals += (_refused_by_controllers(key, action, error),)
                else:
                    outcome.failure = outcome.failure or error
        return outcome

    async def tell(self, key: Key, seen: Observed, reason: str, note: str) -> None:
        """Posts a warning about a resource."""
        event = act.EmitEvent(type="Warning", reason=reason, note=note)
        await post_event(self._api, key, seen.meta, event)

    async def _contradicted(
        self, key: Key, action: act.Action, error: ApiError, outcome: ApplyOutcome
    ) -> None:
        """The plan rests on what is no more: the object is read anew, and planned with at once."""
        target, news = target_of(key, action), False
        if target is not None:
            try:
                news = await reread(self._api, self._cache, *target)
            except ApiError as unread:
                error = unread
        outcome.again |= news
        if action.disruptive:
            outcome.dropped = error.message
        if not news:
            self._failed(key, action, error, outcome)

    def _failed(self, key: Key, action: act.Action, error: ApiError, outcome: ApplyOutcome) -> None:
        """What concerns one object is told of that object; a server's fault may pass."""
        passing = not isinstance(error, Invalid | Denied | Conflict)
        written = _written(key, action)
        if written is None or (isinstance(error, Conflict | NotFound) and not _is_whole(action)):
            outcome.failure = outcome.failure or error
            if isinstance(action, act.WriteStatus):
                outcome.refused_status = error.message, passing
            return
        kind, name = written
        outcome.refusals += (
            Refusal(
                kind,
                name,
                taken=False,
                message=error.message,
                passing=passing,
                step=action.disruptive,
            ),
        )

    async def _carry_out(
        self,
        key: Key,
        seen: Observed,
        action: act.Action,
        outcome: ApplyOutcome,
    ) -> None:
        match action:
            case act.ApplyObject():
                await self._apply_object(key, seen, action, outcome)
            case act.EnsureSecret(name=name):
                assert isinstance(seen, ControllerObserved), "only quorums have Secrets"
                assert seen.group is not None, "an accepted resource has been parsed"
                await self._secrets.ensure(seen.group, name)
                outcome.again = True
            case act.CheckAgain(after_s=after_s):
                outcome.check_after_s = after_s
            case (
                act.Elect()
                | act.ElectEach()
                | act.DeletePod()
                | act.ScaleDown()
                | act.ChangeMembers()
                | act.FenceMember()
                | act.DeleteStatefulSet()
            ):
                outcome.dropped = await self._disrupt(key, seen, action, self._admin(key, seen))
                outcome.disruption = "" if outcome.dropped else type(action).__name__
                outcome.again |= isinstance(action, _UNHEARD) and not outcome.dropped
                _log.info(
                    "step dropped" if outcome.dropped else "step taken",
                    **_facts(key, action),
                    why=outcome.dropped or "planned",
                )
            case act.Declare() | act.ReportGone() | act.UnfenceMember():
                await self._tell(key, self._admin(key, seen), action)
                outcome.again |= isinstance(action, _UNHEARD)
            case act.DeclareFronts() | act.RemoveFronts():
                await self._lead(key, self._admin(key, seen), action)
                outcome.again = True
            case _:
                await self._steady(key, seen, action, outcome)

    def _admin(self, key: Key, seen: Observed) -> Admin:
        name = key.name
        if isinstance(seen, BrokerObserved) and seen.group is not None:
            name = seen.group.spec.controller_ref.name
        elif isinstance(seen, FrontObserved):
            name = seen.cluster
        return self._directory.admin(key.namespace, name)

    async def _lead(
        self, key: Key, admin: Admin, action: act.DeclareFronts | act.RemoveFronts
    ) -> None:
        if isinstance(action, act.DeclareFronts):
            await admin.declare_fronts(key.name, action.declaration)
        else:
            await admin.remove_fronts(key.name)
        _log.info("clients led", **_facts(key, action))

    async def _tell(
        self, key: Key, admin: Admin, action: act.Declare | act.ReportGone | act.UnfenceMember
    ) -> None:
        if isinstance(action, act.Declare):
            await admin.declare(action.group or key.name, action.declaration)
        elif isinstance(action, act.UnfenceMember):
            await admin.fence_member(action.group or key.name, action.broker_id, fenced=False)
        else:
            await admin.report_gone(action.group or key.name, action.pod_uid)

    async def _steady(
        self,
        key: Key,
        seen: Observed,
        action: act.Action,
        outcome: ApplyOutcome,
    ) -> None:
        match action:
            case act.SetFinalizer():
                if not await self._set_finalizer(key, seen, action):
                    outcome.check_after_s = LATE_WATCH_S
            case act.MarkClaim():
                await self._mark(key, action)
            case act.GrowClaim():
                await self._grow(key, action, outcome)
            case act.DeleteObject(kind=kind, name=name, uid=uid):
                await self._api.delete(BY_NAME[kind], key.namespace, name, uid=uid)
                outcome.again |= await reread(
                    self._api, self._cache, BY_NAME[kind], key.namespace, name
                )
            case act.ForgetGroup(uid=uid, group=group):
                await self._admin(key, seen).forget(group or key.name, uid)
            case (
                act.RetireGroup()
                | act.ForgetMember()
                | act.DrainGroup()
                | act.EndDrain()
                | act.AdoptCopies()
            ):
                await self._take_off_record(key, seen, action, outcome)
            case act.LabelPod() | act.RouteTraffic() | act.RenewFiles():
                outcome.again |= await self._label(key, action)
            case act.WriteStatus(status=status):
                outcome.again |= await self._write_status(key, seen, status)
            case act.EmitEvent():
                await post_event(self._api, key, seen.meta, action)
            case _:
                raise AssertionError(f"a plan holds a {type(action).__name__}")

    async def _take_off_record(
        self,
        key: Key,
        seen: Observed,
        action: act.RetireGroup
        | act.ForgetMember
        | act.DrainGroup
        | act.EndDrain
        | act.AdoptCopies,
        outcome: ApplyOutcome,
    ) -> None:
        """Nothing waits for it: what the controllers refuse is asked for again, or is well so."""
        if await self._are_pods_kept(key, seen):
            outcome.again = True
            return
        admin = self._admin(key, seen)
        name = key.name if isinstance(action, act.AdoptCopies) else action.group or key.name
        try:
            if isinstance(action, act.RetireGroup):
                await admin.retire(name, action.uid)
            elif isinstance(action, act.DrainGroup):
                await _drain(admin, name, action, outcome)
            elif isinstance(action, act.EndDrain):
                await admin.end_drain(name)
            elif isinstance(action, act.AdoptCopies):
                assert isinstance(seen, BrokerObserved)
                assert isinstance(seen.view, GroupView), "the plan was made of it"
                copies = list(action.broker_ids)
                await admin.adopt(seen.view, copies, accept_missing=False)
            else:
                await admin.forget_member(name, action.broker_id, action.incarnation)
        except AdminRefusedError as error:
            _log.info("record not changed", **_facts(key, action), why=error)
            outcome.check_after_s = outcome.check_after_s or OFF_RECORD_AGAIN_S
        else:
            _log.info("record changed", **_facts(key, action))
            outcome.again |= isinstance(action, _UNHEARD)

    async def retire_departed(self, key: Key) -> None:
        """Retires a group whose resource does not exist; see `departed`."""
        await departed.retire(self._api, self._cache, self._directory, key)

    async def _outdated(self, key: Key, seen: Observed) -> str:
        """The reason why fewer pods are not wished any more; empty if they are.

        A watch may be behind, and pods that were stopped for an older wish serve nobody until they
        have started again: all of them, if the group was to sleep and was woken since.
        """
        kind = BY_NAME[key.kind]
        found = await live(self._api, self._cache, kind, key.namespace, key.name)
        now = {} if found is None else found["metadata"]
        if (now.get("uid"), now.get("generation")) != (seen.meta.uid, seen.meta.generation):
            return "the resource has changed since it was looked at"
        return ""

    async def _disrupt(
        self,
        key: Key,
        seen: Observed,
        action: act.Elect
        | act.ElectEach
        | act.DeletePod
        | act.ScaleDown
        | act.ChangeMembers
        | act.FenceMember
        | act.DeleteStatefulSet,
        admin: Admin,
    ) -> str:
        """Carries out a disruptive action; a text says why it was dropped instead."""
        match action:
            case act.Elect(broker_id=broker_id, master_epoch=epoch, group=group):
                await admin.elect(group or key.name, broker_id, epoch)
            case act.ElectEach(elections=elections):
                return await elect_each(admin, elections)
            case act.DeletePod():
                pod = await still_to_delete(
                    self._api, self._cache, admin, key.namespace, key.name, action
                )
                if isinstance(pod, str):
                    return pod
                await self._api.delete(
                    POD,
                    key.namespace,
                    pod.name,
                    uid=pod.uid,
                    resource_version=pod.resource_version,
                )
                await reread(self._api, self._cache, POD, key.namespace, pod.name)
            case act.ScaleDown(manifest=manifest, manager=manager):
                changed = await still_to_scale(admin, key.name, action)
                changed = changed or await self._outdated(key, seen)
                if changed:
                    return changed
                written = await self._api.apply(STATEFULSET, manifest, manager=manager)
                self._cache.put(STATEFULSET, written)
            case act.ChangeMembers():
                return await self._outdated(key, seen) or await change_members(admin, action)
            case act.FenceMember(broker_id=broker_id, group=group):
                await admin.fence_member(group or key.name, broker_id, fenced=True)
            case act.DeleteStatefulSet(name=name, uid=uid):
                if await self._are_pods_kept(key, seen):
                    return "its pods are kept by somebody else"
                await self._api.delete(STATEFULSET, key.namespace, name, uid=uid)
                await reread(self._api, self._cache, STATEFULSET, key.namespace, name)
            case _:
                assert_never(action)
        return ""

    async def _apply_object(
        self,
        key: Key,
        seen: Observed,
        action: act.ApplyObject,
        outcome: ApplyOutcome,
    ) -> None:
        manifest = action.manifest
        kind, meta = BY_NAME[manifest["kind"]], manifest["metadata"]
        if not action.exists:
            stranger = await self._stranger(kind, meta, seen.meta.uid)
            if stranger is not None:
                outcome.refusals += (stranger,)
                return
        elif not _owns(seen, manifest) and await self._is_leaving(key, seen):
            outcome.again = True
            return
        if action.kept is not None:
            await self._api.apply(kind, action.kept, manager=names.REPLICAS_FIELD_MANAGER)
        live = await self._api.apply(kind, manifest, manager=action.manager)
        # An apply that changed nothing must not start the next one: a field that the API server
        # writes in its own way would otherwise be applied for ever.
        if self._cache.put(kind, live):
            outcome.again = True

    async def _is_leaving(self, key: Key, seen: Observed) -> bool:
        """Whether the resource is going, or gone, as the API server itself has it.

        Asked before an object is made its own again: a deletion that leaves the pods to somebody
        else (`--cascade=orphan`) cuts the references, and what had one again would be collected.
        """
        kind = BY_NAME[key.kind]
        found = await live(self._api, self._cache, kind, key.namespace, key.name)
        if found is None or found["metadata"]["uid"] != seen.meta.uid:
            return True
        return found["metadata"].get("deletionTimestamp") is not None

    async def _are_pods_kept(self, key: Key, seen: Observed) -> bool:
        """Whether a deletion has left the pods to somebody else, as the API server itself has it.

        A watch of the pods' owner that is behind must not take away a group that serves on.
        """
        if seen.meta.deletion_timestamp is None:
            return False
        name = names.broker_statefulset(key.name)
        found = await live(self._api, self._cache, STATEFULSET, key.namespace, name)
        return found is not None and seen.meta.uid not in owner_uids(found)

    async def _stranger(self, kind: Kind, meta: Body, owner: str) -> Refusal | None:
        """Server-side apply takes over whatever has the name, so the name is looked up first."""
        try:
            found = await self._api.get(kind, meta["namespace"], meta["name"])
        except NotFound:
            return None
        if owner in owner_uids(found):
            return None
        message = (
            "an object of this name exists and belongs to somebody else; delete it, or choose "
            "another name."
        )
        return Refusal(kind.kind, meta["name"], taken=True, message=message)

    async def _mark(self, key: Key, action: act.MarkClaim) -> None:
        annotations = {
            names.ANNOTATION_QUORUM: action.quorum,
            names.ANNOTATION_QUORUM_SIZE: str(action.size),
        }
        patch = {"metadata": {"uid": action.uid, "annotations": annotations}}
        try:
            await self._api.merge(CLAIM, key.namespace, action.name, patch)
        except (NotFound, Conflict):
            return  # it is gone, or another one has its name: the next look finds that one

    async def _grow(self, key: Key, action: act.GrowClaim, outcome: ApplyOutcome) -> None:
        """Nothing else waits for it: a class that allows no growth must not hold a change up."""
        requests = {"resources": {"requests": {"storage": action.size}}}
        patch = {"metadata": {"uid": action.uid}, "spec": requests}
        refusal = ""
        try:
            await self._api.merge(CLAIM, key.namespace, action.name, patch)
        except (NotFound, Conflict):
            return  # as above
        except (Denied, Invalid) as error:
            refusal = error.message
        outcome.growth[action.name] = action.size, refusal
        _log.info("volume growth", **_facts(key, action), why=refusal or "asked")

    async def _set_finalizer(self, key: Key, seen: Observed, action: act.SetFinalizer) -> bool:
        """Writes finalizers; false says that they stay, since a watch is late.

        What a quorum's deletion waits for is read from the API server itself: a group that no watch
        has brought yet would lose its controllers.
        """
        kind, last = BY_NAME[key.kind], not action.present
        if kind is CONTROLLER_GROUP and last and await is_referred_to(self._api, key):
            return False
        patch = {
            "metadata": {
                "uid": seen.meta.uid,
                "resourceVersion": action.resource_version,
                "finalizers": list(action.finalizers),
            }
        }
        live = await self._api.merge(kind, key.namespace, key.name, patch)
        # An object that lost its last finalizer is gone; its deletion is heard of by the watch.
        if live["metadata"].get("deletionTimestamp") is None:
            self._cache.put(kind, live)
        return True

    async def _label(
        self, key: Key, action: act.LabelPod | act.RouteTraffic | act.RenewFiles
    ) -> bool:
        match action:
            case act.LabelPod(role=role):
                marks = {"labels": {names.LABEL_ROLE: str(role)}}
            case act.RouteTraffic(on=on):
                text = names.TRAFFIC_ON if on else names.TRAFFIC_OFF
                marks = {"labels": {names.LABEL_TRAFFIC: text}}
            case act.RenewFiles(settings=print_of_file):
                marks = {"annotations": {names.ANNOTATION_FILES: print_of_file}}
        patch = {"metadata": {"uid": action.uid, **marks}}
        return take(self._cache, POD, await self._api.merge(POD, key.namespace, action.name, patch))

    async def _write_status(self, key: Key, seen: Observed, status: Body) -> bool:
        kind = BY_NAME[key.kind]
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": seen.meta.uid},
            "status": status,
        }
        return take(self._cache, kind, await self._api.apply_status(kind, body))


def _is_whole(action: act.Action) -> bool:
    """Whether it writes an object as the builders want it, whatever its version."""
    return isinstance(action, act.ApplyObject | act.ScaleDown)


def _written(key: Key, action: act.Action) -> tuple[str, str] | None:
    """Kind and name of the one object that an action writes; a status is none."""
    if isinstance(action, act.EnsureSecret):
        return SECRET.kind, action.name
    if isinstance(action, act.MarkClaim):
        return CLAIM.kind, action.name
    target = None if isinstance(action, act.WriteStatus) else target_of(key, action)
    return None if target is None else (target[0].kind, target[2])


def _owns(seen: Observed, manifest: Body) -> bool:
    found = seen.objects.get((manifest["kind"], manifest["metadata"]["name"]))
    return found is not None and seen.meta.uid in owner_uids(found)


async def _drain(admin: Admin, name: str, action: act.DrainGroup, outcome: ApplyOutcome) -> None:
    """Begins a drain; why it did not begin is told in the status, since a deletion waits for it."""
    try:
        await admin.drain(name, action.uid)
    except AdminError as error:
        outcome.refused_drains[action.group] = str(error)
        raise


def _refused_by_controllers(key: Key, action: act.Action, error: AdminRefusedError) -> Refusal:
    name = getattr(action, "group", "") or key.name
    return Refusal("Declaration", name, taken=False, message=f"the controllers refuse: {error}")


def _facts(key: Key, action: act.Action) -> dict[str, object]:
    facts: dict[str, object] = {"namespace": key.namespace, "name": key.name}
    facts["action"] = type(action).__name__
    for field in ("broker_id", "master_epoch", "uid", "group"):
        value = getattr(action, field, None)
        if value not in (None, ""):
            facts[field] = value
    pod = getattr(action, "name", None)
    if pod is not None:
        facts["object"] = pod
    return facts
