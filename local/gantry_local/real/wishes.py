"""The kubelet's word on pods until the server has taken it: a pure state machine.

The kubelet decides at once, and the server hears of it a moment later. The rule protected here: an
object that comes from the server never takes back what the kubelet has said meanwhile. What was
said stays laid over what comes until the server shows a revision that has it.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

Object = dict[str, Any]
Kind = Literal["bind", "status", "delete"]
OWN_CONDITIONS: Final = frozenset(
    {"PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"}
)
_ADDRESSES: Final = ("podIP", "podIPs")


class Step(msgspec.Struct, frozen=True):
    """One request that is due."""

    kind: Kind
    method: str
    subresource: str
    body: Object
    content_type: str = "application/json"


class PodWish(msgspec.Struct):
    """The kubelet's word on one pod."""

    namespace: str
    name: str
    uid: str
    node: str = ""
    status: Object | None = None
    gone: bool = False
    # What the server has not acknowledged.
    unsent: set[Kind] = msgspec.field(default_factory=set)
    # What was sent, and is neither acknowledged nor unsent.
    under_way: Kind | None = None
    # The server has all that was acknowledged from this revision on.
    revision: int = 0


class Wishes:
    """Wishes by the pod's uid."""

    def __init__(self) -> None:
        self._all: dict[str, PodWish] = {}

    def get(self, uid: str) -> PodWish | None:
        """The wish about a pod, while there is one."""
        return self._all.get(uid)

    def _of(self, pod: Object) -> PodWish:
        meta = pod["metadata"]
        fresh = PodWish(meta["namespace"], meta["name"], meta["uid"])
        return self._all.setdefault(fresh.uid, fresh)

    def bind(self, pod: Object, node: str) -> None:
        """The pod is to run on ``node``."""
        wish = self._of(pod)
        wish.node = node
        wish.unsent.add("bind")

    def set_status(self, pod: Object, status: Object) -> None:
        """The pod's status; a later one replaces one that was not sent yet."""
        wish = self._of(pod)
        wish.status = status
        wish.unsent.add("status")

    def delete(self, pod: Object) -> None:
        """The pod has ended: nothing else matters any more."""
        wish = self._of(pod)
        wish.gone = True
        wish.unsent = {"delete"}

    def forget(self, uid: str) -> None:
        """The server has no such pod any more."""
        self._all.pop(uid, None)

    def retain(self, uids: set[str]) -> None:
        """The server has these pods, and no others."""
        for uid in self._all.keys() - uids:
            self.forget(uid)

    def shown(self, pod: Object) -> Object | None:
        """The server's pod with what was said of it since; None when it has ended."""
        wish = self._all.get(pod["metadata"]["uid"])
        if wish is None:
            return pod
        if wish.gone:
            return None
        taken = not wish.unsent and wish.under_way is None
        # The answer to a binding names no revision.
        bound = not wish.node or "nodeName" in pod["spec"]
        if taken and bound and revision_of(pod) >= wish.revision:
            self.forget(wish.uid)
            return pod
        spec, status = pod["spec"], pod.get("status") or {}
        if wish.node:
            spec = {**spec, "nodeName": wish.node}
        if wish.status is not None:
            status = merged(status, wish.status)
        return {**pod, "spec": spec, "status": status}

    def next_step(self, uid: str) -> Step | None:
        """The next request about a pod, which is under way from now on."""
        wish = self._all.get(uid)
        if wish is None or not wish.unsent:
            return None
        step = _due(wish)
        wish.unsent.discard(step.kind)  # what is said meanwhile is due again
        wish.under_way = step.kind
        return step

    def taken(self, uid: str, revision: int) -> None:
        """The server has acknowledged the step in ``revision`` (0: it had it already)."""
        wish = self._all.get(uid)
        if wish is not None:
            wish.under_way = None
            wish.revision = max(wish.revision, revision)

    def failed(self, uid: str) -> None:
        """The server did not answer: the step is due again."""
        wish = self._all.get(uid)
        if wish is not None and wish.under_way is not None:
            if not wish.gone or wish.under_way == "delete":
                wish.unsent.add(wish.under_way)
            wish.under_way = None


def _due(wish: PodWish) -> Step:
    if "delete" in wish.unsent:
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": wish.uid}}
        return Step("delete", "DELETE", "", options)
    meta = {"name": wish.name, "uid": wish.uid}
    if "bind" in wish.unsent:
        target = {"apiVersion": "v1", "kind": "Node", "name": wish.node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        return Step("bind", "POST", "binding", body)
    assert wish.status is not None, "a status was said"
    body = {"metadata": meta, "status": status_patch(wish.status)}
    return Step("status", "PATCH", "status", body, "application/strategic-merge-patch+json")


def revision_of(obj: Object) -> int:
    """The revision of etcd that an object is of."""
    text = obj["metadata"].get("resourceVersion", "")
    return int(text) if text.isdigit() else 0


def merged(status: Object, said: Object) -> Object:
    """A pod's status with the kubelet's laid over it; conditions of others stay as they are."""
    foreign = [c for c in status.get("conditions") or [] if c["type"] not in OWN_CONDITIONS]
    own = [c for c in said.get("conditions") or [] if c["type"] in OWN_CONDITIONS]
    kept = {key: value for key, value in status.items() if key not in _ADDRESSES}
    return {**kept, **said, "conditions": [*own, *foreign]}


def status_patch(said: Object) -> Object:
    """The strategic merge patch that makes a status the kubelet's, as the real one writes it."""
    own = [c for c in said.get("conditions") or [] if c["type"] in OWN_CONDITIONS]
    addresses = said.get("podIPs")
    listed = [{"$patch": "replace"}, *addresses] if addresses else None
    return {**said, "conditions": own, "podIP": said.get("podIP"), "podIPs": listed}
