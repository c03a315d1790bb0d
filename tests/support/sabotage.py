"""What people and other programs do to a cluster in which the operator runs, one by one.

Each is a context: what is wrong is so inside of it, and is taken back behind it. Things are done to
`orders`, or to resources of its own, and never to `other`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import aiohttp
import yaml
from gantry_operator import names
from gantry_operator.api import kinds
from gantry_operator.api.kinds import Kind
from support.admission import Rule, configuration, refuse
from support.cli_cluster import ROOT
from support.contract_api import ContractApi, Refused
from support.patience import PATIENCE_S
from support.wrong_manifests import SPARED, VERSION

Json = dict[str, Any]
VICTIM, NEIGHBOUR = "orders", "other"
NAMESPACE: Final = "default"
HOLD: Final = "example.com/hold"
NO: Final = "policy.example: frozen until Monday"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


class Ruled(Protocol):
    """Where rules about writes are put in force."""

    def rule(self, rule: Rule, /) -> AbstractContextManager[None]:
        """One in force."""
        ...


class Scene(NamedTuple):
    """What a sabotage is done with.

    Attributes:
        api: of the cluster.
        admission: its webhook.
        etcd: the socket of etcd.
    """

    api: ContractApi
    admission: Ruled
    etcd: Path

    async def touch(self, kind: Kind, name: str, field: str = "metadata", **fields: Any) -> Json:
        """Changes fields of an object, as people do."""
        return await self.api.merge(kind.path(NAMESPACE, name), {field: fields})

    async def spoil(self, kind: Kind, name: str) -> None:
        """Makes an owned object another one than the operator wants, though of no effect."""
        await self.touch(kind, name, annotations={names.ANNOTATION_APPLIED: "spoilt"})

    async def delete(self, path: str) -> None:
        """Deletes an object that may be gone."""
        with contextlib.suppress(Refused):
            await self.api.delete(path, None, propagationPolicy="Background")

    async def free(self, path: str) -> None:
        """Takes the finalizers off an object that may be gone."""
        with contextlib.suppress(Refused):
            await self.api.merge(path, {"metadata": {"finalizers": None}})

    async def make(self, kind: Kind, name: str, spec: Json, **meta: Any) -> Json:
        """Makes an object, once there is none of its name left."""
        path = kind.path(NAMESPACE, name)
        await self.api.until(path, lambda found: found is None)
        head = {"apiVersion": kind.api_version, "kind": kind.kind}
        return await self.api.create(
            kind.path(NAMESPACE), head | {"metadata": {"name": name} | meta} | spec
        )


Deed = Callable[[Scene], AbstractAsyncContextManager[None]]


class Sabotage(NamedTuple):
    """A sabotage, and how it is answered.

    Attributes:
        does: it.
        reason: of the condition, or of the event if that is none's.
        words: in its message, which say what is wrong or what to do.
        condition: its type; empty for an event.
        kind: of the resource that has it.
        name: of that.
        labels: whether labels of the victim's pods can still be written.
        status: whether its status can.
    """

    does: Deed
    reason: str
    words: str
    condition: str = "Accepted"
    kind: Kind = kinds.BROKER_GROUP
    name: str = VICTIM
    labels: bool = True
    status: bool = True


def group(size: int = 1, **spec: Any) -> Json:
    """The spec of a small group without doors."""
    small = {"replicas": size, "storage": {"size": "64Mi"}, "clients": {"door": {"enabled": False}}}
    return {"spec": small | spec}


def _done(deed: Callable[[Scene], AsyncIterator[None]]) -> Deed:
    return asynccontextmanager(deed)


@_done
async def _refused_statefulset(scene: Scene) -> AsyncIterator[None]:
    name = names.broker_statefulset(VICTIM)
    with scene.admission.rule(refuse(NO, resource="statefulsets", name=name)):
        await scene.spoil(kinds.STATEFULSET, name)
        yield


@_done
async def _refused_step(scene: Scene) -> AsyncIterator[None]:
    """Nothing is wrong with any object: a step alone is refused."""
    name = names.broker_statefulset(VICTIM)
    with scene.admission.rule(refuse(NO, resource="statefulsets", name=name)):
        await scene.touch(kinds.BROKER_GROUP, VICTIM, "spec", replicas=1)
        try:
            yield
        finally:
            await scene.touch(kinds.BROKER_GROUP, VICTIM, "spec", replicas=2)


@_done
async def _broken_service(scene: Scene) -> AsyncIterator[None]:
    broken = "Internal error occurred: the object cannot be decoded"
    name = names.master_service(VICTIM)
    with scene.admission.rule(refuse(broken, resource="services", name=name, code=500)):
        await scene.spoil(kinds.SERVICE, name)
        yield


@_done
async def _silent_webhook(scene: Scene) -> AsyncIterator[None]:
    """One that must agree, and that nobody serves."""
    nobody = {"url": "https://127.0.0.1:1/"}
    hook = configuration("silent", nobody, "services", namespace=NAMESPACE)
    hook["kind"] = "ValidatingWebhookConfiguration"
    (only,) = hook["webhooks"]
    only["failurePolicy"] = "Fail"
    has = "has(request.options) && has(request.options.fieldManager)"
    ours = f"{has} && request.options.fieldManager == '{names.FIELD_MANAGER}'"
    only["matchConditions"] = [{"name": "ours", "expression": ours}]
    await scene.api.create(_HOOKS, hook)
    try:
        path = kinds.SERVICE.path(NAMESPACE, names.master_service(NEIGHBOUR))
        patch = {"metadata": {"annotations": {"tried": "yes"}}}
        query = {"dryRun": "All", "fieldManager": names.FIELD_MANAGER}
        await _until_refused(lambda: scene.api.merge(path, patch, **query))
        await scene.spoil(kinds.SERVICE, names.master_service(VICTIM))
        yield
    finally:
        await scene.delete(f"{_HOOKS}/silent")


async def _until_refused(tries: Callable[[], Awaitable[Any]]) -> None:
    """What is to refuse is in force a moment after it is made."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await tries()
            except Refused:
                return
            await asyncio.sleep(0.05)


@_done
async def _used_up_quota(scene: Scene) -> AsyncIterator[None]:
    hard = {"count/services": "0"}
    made = await scene.make(kinds.QUOTA, "none", {"spec": {"hard": hard}})
    made["status"] = {"hard": hard, "used": {"count/services": "9"}}
    path = kinds.QUOTA.path(NAMESPACE, "none")
    await scene.api.replace(f"{path}/status", made)
    try:
        port = {"metadata": {"name": "tried"}, "spec": {"ports": [{"port": 80}]}}
        services = kinds.SERVICE.path(NAMESPACE)
        await _until_refused(lambda: scene.api.create(services, port, dryRun="All"))
        await scene.delete(kinds.SERVICE.path(NAMESPACE, names.master_service(VICTIM)))
        yield
    finally:
        await scene.delete(path)


@_done
async def _refused_labels(scene: Scene) -> AsyncIterator[None]:
    pod = names.pod(names.broker_statefulset(VICTIM), 0)
    with scene.admission.rule(refuse(NO, resource="pods", name=pod)):
        await scene.touch(kinds.POD, pod, labels={names.LABEL_ROLE: None})
        yield


@_done
async def _refused_status(scene: Scene) -> AsyncIterator[None]:
    rule = refuse(NO, resource="brokergroups", name=VICTIM, subresource="status")
    with scene.admission.rule(rule):
        await scene.touch(kinds.BROKER_GROUP, VICTIM, "spec", drain={"deadlineSeconds": 77})
        yield


@_done
async def _refused_secret(scene: Scene) -> AsyncIterator[None]:
    path = kinds.CONTROLLER_GROUP.path(NAMESPACE, "keyless")
    with scene.admission.rule(refuse(NO, resource="secrets")):
        spec = {"spec": {"replicas": 1, "storage": {"size": "64Mi"}}}
        await scene.make(kinds.CONTROLLER_GROUP, "keyless", spec)
        try:
            yield
        finally:
            await scene.delete(path)


@_done
async def _refused_user_secret(scene: Scene) -> AsyncIterator[None]:
    with scene.admission.rule(refuse(NO, resource="secrets")):
        await scene.make(kinds.MESSAGE_USER, "keyless", {"spec": {}})
        try:
            yield
        finally:
            await scene.delete(kinds.MESSAGE_USER.path(NAMESPACE, "keyless"))


@_done
async def _refused_pods(scene: Scene) -> AsyncIterator[None]:
    """By a policy that nobody told the StatefulSet about."""
    rule = refuse(NO, resource="pods", manager="", operations=("CREATE",))
    with scene.admission.rule(rule):
        await scene.make(kinds.BROKER_GROUP, "crowd", group())
        try:
            yield
        finally:
            await scene.delete(kinds.BROKER_GROUP.path(NAMESPACE, "crowd"))


@_done
async def _unreadable_secret(scene: Scene) -> AsyncIterator[None]:
    """As after a lost encryption key: the API server answers 500 to whoever asks for it."""
    key = f"/registry/secrets/{NAMESPACE}/gantry-quorum-key"
    before = await _etcd(scene, "range", key=_text(key))
    (found,) = before["kvs"]
    await _etcd(scene, "put", key=_text(key), value=_text("no object"))
    try:
        await scene.touch(kinds.CONTROLLER_GROUP, "gantry", annotations={"looked": "again"})
        yield
    finally:
        await _etcd(scene, "put", key=_text(key), value=found["value"])
        await scene.touch(kinds.CONTROLLER_GROUP, "gantry", annotations={"looked": None})


async def _etcd(scene: Scene, verb: str, **request: str) -> Json:
    connector = aiohttp.UnixConnector(str(scene.etcd))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(f"http://etcd/v3/kv/{verb}", json=request) as answer,
    ):
        found: Json = await answer.json()
        assert answer.status == 200, found
        return found


def _text(plain: str) -> str:
    return base64.b64encode(plain.encode()).decode()


@_done
async def _claim_that_never_ends(scene: Scene) -> AsyncIterator[None]:
    name = f"data-{names.pod(names.broker_statefulset('late'), 0)}"
    requests = {"resources": {"requests": {"storage": "64Mi"}}}
    claim = {"spec": {"accessModes": ["ReadWriteOnce"]} | requests}
    await scene.make(kinds.CLAIM, name, claim, finalizers=[HOLD])
    await scene.delete(kinds.CLAIM.path(NAMESPACE, name))
    await scene.make(kinds.BROKER_GROUP, "late", group())
    try:
        yield
    finally:
        await scene.delete(kinds.BROKER_GROUP.path(NAMESPACE, "late"))
        await scene.free(kinds.CLAIM.path(NAMESPACE, name))


@_done
async def _claim_that_is_never_bound(scene: Scene) -> AsyncIterator[None]:
    storage = {"size": "64Mi", "className": "nowhere"}
    await scene.make(kinds.BROKER_GROUP, "unbound", group(storage=storage))
    try:
        yield
    finally:
        await scene.delete(kinds.BROKER_GROUP.path(NAMESPACE, "unbound"))


@_done
async def _name_of_somebody_else(scene: Scene) -> AsyncIterator[None]:
    name = names.group_service("taken")
    port = {"spec": {"ports": [{"port": 80}], "clusterIP": "None"}}
    await scene.make(kinds.SERVICE, name, port)
    await scene.make(kinds.BROKER_GROUP, "taken", group())
    try:
        yield
    finally:
        await scene.delete(kinds.BROKER_GROUP.path(NAMESPACE, "taken"))
        await scene.delete(kinds.SERVICE.path(NAMESPACE, name))


@_done
async def _affinity_that_is_none(scene: Scene) -> AsyncIterator[None]:
    """From the time of definitions that took anything."""
    path = f"{_CRDS}/brokergroups.{names.GROUP}"
    theirs = yaml.safe_load((ROOT / f"crds/{names.GROUP}_brokergroups.yaml").read_text("utf-8"))
    loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec = (await scene.api.get(path))["spec"]
    schema = spec["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = loose
    schema.pop("x-kubernetes-validations", None)
    await scene.api.merge(path, {"spec": spec})
    wish: Json = {"template": {"spec": {"affinity": {"nodeAffinity": []}}}} | SPARED
    try:
        await _until_taken(scene, wish)
        await scene.api.merge(path, {"spec": theirs["spec"]})
        yield
    finally:
        await scene.api.merge(path, {"spec": theirs["spec"]})
        await scene.delete(kinds.BROKER_GROUP.path(NAMESPACE, "odd"))


async def _until_taken(scene: Scene, wish: Json) -> None:
    """A definition is in force a moment after it is written."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await scene.make(kinds.BROKER_GROUP, "odd", {"spec": wish})
            except Refused:
                await asyncio.sleep(0.1)
            else:
                return


@_done
async def _deleted_namespace(scene: Scene) -> AsyncIterator[None]:
    """Something of it does not go, so it does not either, and takes nothing new."""
    place = "leaving"
    meta = {"namespace": place, "finalizers": [HOLD]}
    head = {"apiVersion": VERSION, "kind": "BrokerGroup", "metadata": meta | {"name": "held"}}
    await scene.api.create(kinds.NAMESPACE.path(None), {"metadata": {"name": place}})
    path = kinds.BROKER_GROUP.path(place)
    await scene.api.create(path, head | {"spec": SPARED})
    await scene.api.delete(kinds.NAMESPACE.path(None, place))
    try:
        yield
    finally:
        await scene.free(f"{path}/held")
        gone = await scene.api.until(kinds.NAMESPACE.path(None, place), lambda one: one is None)
        assert gone is None


@_done
async def _foreign_finalizer(scene: Scene) -> AsyncIterator[None]:
    path = kinds.BROKER_GROUP.path(NAMESPACE, "held")
    # Other groups of the quorum may still stand there, which would make a drain of it.
    spec = SPARED | {"drain": {"deadlineSeconds": 0}}
    await scene.make(kinds.BROKER_GROUP, "held", {"spec": spec}, finalizers=[HOLD])
    await scene.delete(path)
    try:
        yield
    finally:
        await scene.free(path)


@_done
async def _pod_that_never_ends(scene: Scene) -> AsyncIterator[None]:
    """Of a group of one, which is not served until somebody lets the pod go."""
    pod = kinds.POD.path(NAMESPACE, names.pod(names.broker_statefulset(VICTIM), 1))
    await scene.api.merge(pod, {"metadata": {"finalizers": [HOLD]}})
    await scene.delete(pod)
    try:
        yield
    finally:
        await scene.free(pod)


@_done
async def _foreign_container(scene: Scene) -> AsyncIterator[None]:
    """Last, since pods are replaced for it."""
    name = names.broker_statefulset(VICTIM)
    container = {"name": "meddler", "image": "meddler:1", "command": ["sleep", "3600"]}
    body = {
        "apiVersion": kinds.STATEFULSET.api_version,
        "kind": kinds.STATEFULSET.kind,
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    await scene.api.apply(kinds.STATEFULSET.path(NAMESPACE, name), body, "somebody")
    yield


_STAYS = "if it stays so, `kubectl describe"
SABOTAGES: Final[dict[str, Sabotage]] = {
    "a webhook refuses the StatefulSet": Sabotage(_refused_statefulset, "ApiRefused", NO),
    "a webhook refuses a step": Sabotage(_refused_step, "ApiRefused", NO),
    "500 for one object": Sabotage(
        _broken_service, "ApiRefused", "orders-master: admission webhook"
    ),
    "a webhook that nobody serves": Sabotage(
        _silent_webhook, "ApiRefused", "failed calling webhook"
    ),
    "a quota": Sabotage(_used_up_quota, "ApiRefused", "exceeded quota"),
    "a webhook refuses labels of pods": Sabotage(
        _refused_labels, "ApiRefused", "Pod orders-broker-0: admission webhook", labels=False
    ),
    "a webhook refuses the status": Sabotage(
        _refused_status, "ApiRefused", "The status cannot be written", condition="", status=False
    ),
    "a webhook refuses the quorum's Secrets": Sabotage(
        _refused_secret,
        "ApiRefused",
        "Secret keyless-",
        kind=kinds.CONTROLLER_GROUP,
        name="keyless",
    ),
    "a webhook refuses a user's Secret": Sabotage(
        _refused_user_secret,
        "RefusedByControllers",
        "Secret keyless-user is refused",
        condition="Ready",
        kind=kinds.MESSAGE_USER,
        name="keyless",
    ),
    "a policy refuses pods": Sabotage(
        _refused_pods, "Starting", f"{_STAYS} statefulset", "Progressing", name="crowd"
    ),
    "a Secret that cannot be read": Sabotage(
        _unreadable_secret,
        "ApiRefused",
        "Secret gantry-quorum-key: it cannot be read",
        kind=kinds.CONTROLLER_GROUP,
        name="gantry",
    ),
    "a claim that never ends": Sabotage(
        _claim_that_never_ends, "Starting", _STAYS, "Progressing", name="late"
    ),
    "a claim that is never bound": Sabotage(
        _claim_that_is_never_bound, "Starting", f"{_STAYS} pod", "Progressing", name="unbound"
    ),
    "a name of somebody else": Sabotage(
        _name_of_somebody_else, "NameTaken", "belongs to somebody else", name="taken"
    ),
    "an affinity that is none": Sabotage(
        _affinity_that_is_none, "InvalidSpec", "affinity", name="odd"
    ),
    "a finalizer of somebody else": Sabotage(
        _foreign_finalizer, "Deleting", "finalizers of others", "Progressing", name="held"
    ),
    "a pod that never ends": Sabotage(
        _pod_that_never_ends, "Starting", f"{_STAYS} pod", "Progressing"
    ),
    "a foreign container": Sabotage(_foreign_container, "AlteredByOthers", "meddler", "Altered"),
}
"""Those that are answered by a condition, or by an event."""
DELETED_NAMESPACE: Final = _deleted_namespace
