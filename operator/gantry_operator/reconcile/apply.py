"""Carrying out a plan, action by action.

What the API server or the controllers refuse is remembered and reported by the next plan; the rest
of the plan goes on, except for what is disruptive. Controllers that cannot be reached do not keep
the status from being written either. Everything else that fails ends the plan: the queue brings the
key back, and the next plan starts from what is.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, assert_never

import msgspec
from gantry_protocol.process import log

from gantry_operator import names
from gantry_operator.api.errors import AlreadyExists, Conflict, Denied, Invalid, NotFound
from gantry_operator.api.kinds import BROKER_GROUP, BY_NAME, POD, SECRET, STATEFULSET, Kind
from gantry_operator.builders import admin_secret
from gantry_operator.plan import actions as act
from gantry_operator.plan.observed import Body, BrokerObserved, ControllerObserved, Refusal
from gantry_operator.reconcile.checks import still_to_delete, still_to_scale
from gantry_operator.reconcile.events import post_event

if TYPE_CHECKING:
    from gantry_operator.api.protocol import Api
    from gantry_operator.cache import Cache, Key
    from gantry_operator.controllers.admin import Admin
    from gantry_operator.controllers.directory import Directory
from gantry_operator.controllers.errors import AdminRefusedError, QuorumUnreachableError

TOKEN_BYTES = 32
OWN_LABELS = (names.LABEL_ROLE, names.LABEL_TRAFFIC)
_log = log.get("apply")


class Outcome(msgspec.Struct):
    """What came of a plan.

    Attributes:
        check_after_s: when to look again at the latest; None for only when something is heard.
        again: look again at once. The operator's own writes are in the cache already, so the watch
            brings nothing new about them.
        refusals: what could not be written.
        disruption: the disruptive action that was carried out, in one word.
        dropped: why the disruptive action was not carried out after all.
    """

    check_after_s: float | None = None
    again: bool = False
    refusals: tuple[Refusal, ...] = ()
    disruption: str = ""
    dropped: str = ""


class Applier:
    """The hands of the operator."""

    def __init__(self, api: Api, cache: Cache, directory: Directory) -> None:
        self._api = api
        self._cache = cache
        self._directory = directory

    async def apply(
        self, key: Key, seen: BrokerObserved | ControllerObserved, plan: list[act.Action]
    ) -> Outcome:
        """Carries out a plan in order.

        Raises:
            ApiError: the API server failed or contradicted.
            AdminError: the controllers failed or refused.
        """
        outcome = Outcome()
        unreached: QuorumUnreachableError | None = None
        for action in plan:
            if action.disruptive and (outcome.refusals or unreached):
                outcome.dropped = "a step before it failed"
                continue
            match action:
                case act.ApplyObject():
                    await self._apply_object(seen, action, outcome)
                case act.EnsureSecret():
                    await self._ensure_secret(seen)
                    outcome.again = True
                case act.CheckAgain(after_s=after_s):
                    outcome.check_after_s = after_s
                case act.Elect() | act.DeletePod() | act.ScaleDown() | act.DeleteStatefulSet():
                    outcome.dropped = await self._disrupt(key, action, self._admin(key, seen))
                    outcome.disruption = "" if outcome.dropped else type(action).__name__
                    _log.info(
                        "step dropped" if outcome.dropped else "step taken",
                        **_facts(key, action),
                        why=outcome.dropped or "planned",
                    )
                case act.Declare() | act.ReportGone():
                    try:
                        await self._tell(key, self._admin(key, seen), action)
                    except AdminRefusedError as error:
                        outcome.refusals += (_refused_by_controllers(key, error),)
                    except QuorumUnreachableError as error:
                        unreached = error
                case _:
                    await self._steady(key, seen, action, outcome)
        if unreached is not None:
            raise unreached
        return outcome

    def _admin(self, key: Key, seen: BrokerObserved | ControllerObserved) -> Admin:
        name = key.name
        if isinstance(seen, BrokerObserved) and seen.group is not None:
            name = seen.group.spec.controller_ref.name
        return self._directory.admin(key.namespace, name)

    async def _tell(self, key: Key, admin: Admin, action: act.Declare | act.ReportGone) -> None:
        if isinstance(action, act.Declare):
            await admin.declare(key.name, action.declaration)
        else:
            await admin.report_gone(key.name, action.pod_uid)

    async def _steady(
        self,
        key: Key,
        seen: BrokerObserved | ControllerObserved,
        action: act.Action,
        outcome: Outcome,
    ) -> None:
        match action:
            case act.SetFinalizer():
                await self._set_finalizer(key, seen, action)
            case act.DeleteObject(kind=kind, name=name, uid=uid):
                try:
                    await self._api.delete(BY_NAME[kind], key.namespace, name, uid=uid)
                except (NotFound, Conflict):
                    outcome.again = True  # it is gone, or another one has its name
            case act.ForgetGroup(uid=uid):
                await self._admin(key, seen).forget(key.name, uid)
            case act.LabelPod(role=role):
                outcome.again |= await self._label(key, action, names.LABEL_ROLE, role)
            case act.RouteTraffic(on=on):
                text = names.TRAFFIC_ON if on else names.TRAFFIC_OFF
                outcome.again |= await self._label(key, action, names.LABEL_TRAFFIC, text)
            case act.WriteStatus(status=status):
                outcome.again |= await self._write_status(key, seen, status)
            case act.EmitEvent():
                await post_event(self._api, key, seen.meta, action)
            case _:
                raise AssertionError(f"a plan holds a {type(action).__name__}")

    async def _disrupt(
        self,
        key: Key,
        action: act.Elect | act.DeletePod | act.ScaleDown | act.DeleteStatefulSet,
        admin: Admin,
    ) -> str:
        """Carries out a disruptive action; a text says why it was dropped instead."""
        match action:
            case act.Elect(broker_id=broker_id, master_epoch=epoch):
                await admin.elect(key.name, broker_id, epoch)
            case act.DeletePod():
                pod = await still_to_delete(self._api, admin, key.namespace, key.name, action)
                if isinstance(pod, str):
                    return pod
                await self._api.delete(
                    POD,
                    key.namespace,
                    pod.name,
                    uid=pod.uid,
                    resource_version=pod.resource_version,
                )
            case act.ScaleDown(manifest=manifest):
                changed = await still_to_scale(admin, key.name, action)
                if changed:
                    return changed
                self._cache.put(STATEFULSET, await self._api.apply(STATEFULSET, manifest))
            case act.DeleteStatefulSet(name=name, uid=uid):
                try:
                    await self._api.delete(STATEFULSET, key.namespace, name, uid=uid)
                except NotFound:
                    return "it is gone"
            case _:
                assert_never(action)
        return ""

    async def _apply_object(
        self,
        seen: BrokerObserved | ControllerObserved,
        action: act.ApplyObject,
        outcome: Outcome,
    ) -> None:
        manifest = action.manifest
        kind, meta = BY_NAME[manifest["kind"]], manifest["metadata"]
        if not action.exists:
            stranger = await self._stranger(kind, meta, seen.meta.uid)
            if stranger is not None:
                outcome.refusals += (stranger,)
                return
        try:
            live = await self._api.apply(kind, manifest)
        except (Invalid, Denied, Conflict) as error:
            refusal = Refusal(kind.kind, meta["name"], taken=False, message=error.message)
            outcome.refusals += (refusal,)
            return
        # An apply that changed nothing must not start the next one: a field that the API server
        # writes in its own way would otherwise be applied for ever.
        if self._cache.put(kind, live):
            outcome.again = True

    async def _stranger(self, kind: Kind, meta: Body, owner: str) -> Refusal | None:
        """Server-side apply takes over whatever has the name, so the name is looked up first."""
        try:
            found = await self._api.get(kind, meta["namespace"], meta["name"])
        except NotFound:
            return None
        owners = found["metadata"].get("ownerReferences") or ()
        if any(reference.get("uid") == owner for reference in owners):
            return None
        message = (
            "an object of this name exists and belongs to somebody else; delete it, or choose "
            "another name."
        )
        return Refusal(kind.kind, meta["name"], taken=True, message=message)

    async def _ensure_secret(self, seen: BrokerObserved | ControllerObserved) -> None:
        """The token is made up here, once, and never logged, changed or kept."""
        assert isinstance(seen, ControllerObserved), "only quorums have a Secret"
        assert seen.group is not None, "an accepted resource has been parsed"
        secret = admin_secret(seen.group, secrets.token_urlsafe(TOKEN_BYTES))
        try:
            await self._api.create(SECRET, secret)
        except AlreadyExists:
            return

    async def _set_finalizer(
        self, key: Key, seen: BrokerObserved | ControllerObserved, action: act.SetFinalizer
    ) -> None:
        patch = {
            "metadata": {
                "uid": seen.meta.uid,
                "resourceVersion": action.resource_version,
                "finalizers": list(action.finalizers),
            }
        }
        try:
            live = await self._api.merge(BROKER_GROUP, key.namespace, key.name, patch)
        except NotFound:
            return
        # An object that lost its last finalizer is gone; its deletion is heard of by the watch.
        if live["metadata"].get("deletionTimestamp") is None:
            self._cache.put(BROKER_GROUP, live)

    async def _label(
        self, key: Key, action: act.LabelPod | act.RouteTraffic, label: str, text: str
    ) -> bool:
        patch = {"metadata": {"uid": action.uid, "labels": {label: text}}}
        try:
            return self._take(POD, await self._api.merge(POD, key.namespace, action.name, patch))
        except (NotFound, Conflict):
            # The pod is gone or was replaced; its successor is heard of by the watch.
            return False

    async def _write_status(
        self, key: Key, seen: BrokerObserved | ControllerObserved, status: Body
    ) -> bool:
        kind = BY_NAME[key.kind]
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": seen.meta.uid},
            "status": status,
        }
        try:
            return self._take(kind, await self._api.apply_status(kind, body))
        except NotFound:
            return False

    def _take(self, kind: Kind, live: Body) -> bool:
        """Takes in the answer to a write of ours; whether it holds a change of somebody else.

        The answer is the whole object. A change that came before our write is in it, and once it
        is in the cache, the event that would bring it is no news and would start nothing.
        """
        name = live["metadata"].get("namespace", ""), live["metadata"]["name"]
        before = _of_others(kind, self._cache.get(kind, *name))
        self._cache.put(kind, live)
        return before is not None and before != _of_others(kind, self._cache.get(kind, *name))


def _of_others(kind: Kind, body: Body | None) -> Body | None:
    """An object without its version and without what the operator writes into it."""
    if body is None:
        return None
    meta = {key: value for key, value in body["metadata"].items() if key != "resourceVersion"}
    if kind == POD:
        labels = meta.get("labels") or {}
        meta["labels"] = {k: v for k, v in labels.items() if k not in OWN_LABELS}
        return body | {"metadata": meta}
    return {key: value for key, value in body.items() if key != "status"} | {"metadata": meta}


def _refused_by_controllers(key: Key, error: AdminRefusedError) -> Refusal:
    return Refusal("Declaration", key.name, taken=False, message=f"the controllers refuse: {error}")


def _facts(key: Key, action: act.Action) -> dict[str, object]:
    facts: dict[str, object] = {"namespace": key.namespace, "name": key.name}
    facts["action"] = type(action).__name__
    for field in ("broker_id", "master_epoch", "uid"):
        value = getattr(action, field, None)
        if value is not None:
            facts[field] = value
    pod = getattr(action, "name", None)
    if pod is not None:
        facts["object"] = pod
    return facts
