"""The kubelet's writes to a real API server: said to the mirror at once, sent by tasks of its own.

One request about a pod is under way at a time, and one that fails is tried again, later and later,
for as long as the pod exists. Events are a courtesy: bounded, sent once, and dropped first.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Any, Final

from gantry_protocol.process import log

from gantry_local.client import ApiError, Resource
from gantry_local.kubelet.recorder import MAX_REMEMBERED, new_event
from gantry_local.real.mirror import PODS
from gantry_local.real.wishes import revision_of

if TYPE_CHECKING:
    from gantry_local.apiserver.ambient import Ambient
    from gantry_local.apiserver.store import Store
    from gantry_local.client import Client
    from gantry_local.real.wishes import PodWish, Step, Wishes

Object = dict[str, Any]
EVENTS: Final = Resource("", "v1", "events", "event", "Event", namespaced=True)
MAX_UNDER_WAY: Final = 8
MAX_EVENTS: Final = 500
FIRST_RETRY_S: Final = 0.1
MAX_RETRY_S: Final = 5.0
_GONE: Final = frozenset({404, 409})
"""No such pod, or another one of its name: the uid is part of every request."""

_log = log.get("local.outbox")


class Outbox:
    """Pods as the kubelet writes them (``controllers.direct.Pods``).

    Attributes:
        failures: Requests without an answer, and refused ones, by what was asked.
    """

    def __init__(self, client: Client, store: Store, wishes: Wishes, ambient: Ambient) -> None:
        self.store = store
        self.ambient = ambient
        self.failures: Counter[str] = Counter()
        self._client = client
        self._wishes = wishes
        self._due: dict[str, None] = {}
        self._busy: set[str] = set()
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(MAX_UNDER_WAY)

    def get(self, group: str, plural: str, namespace: str, name: str) -> Object | None:
        """One object of the mirror, or None."""
        record = self.store.get((group, plural), (namespace, name))
        return None if record is None else record.obj

    def all(self, group: str, plural: str, namespace: str | None = None) -> list[Object]:
        """All mirrored objects of a type."""
        return [record.obj for record in self.store.records((group, plural), namespace)]

    def bind(self, pod: Object, node: str) -> Object | None:
        """Give the pod its node; None when it is gone."""
        current = self._same(pod)
        if current is None:
            return None
        self._wishes.bind(pod, node)
        return self._say({**current, "spec": {**current["spec"], "nodeName": node}})

    def set_status(self, group: str, plural: str, obj: Object, status: Object) -> Object | None:
        """Replace a pod's status when it differs; None when it is gone."""
        assert (group, plural) == ("", "pods"), "the kubelet writes the status of pods"
        current = self._same(obj)
        if current is None or current.get("status") == status:
            return current
        self._wishes.set_status(obj, status)
        return self._say({**current, "status": status})

    def end(self, pod: Object) -> None:
        """Remove a pod whose processes have ended."""
        if self._same(pod) is None:
            return
        meta = pod["metadata"]
        self._wishes.delete(pod)
        self.store.delete(("", "pods"), (meta["namespace"], meta["name"]))
        self._send(meta["uid"])

    def _same(self, pod: Object) -> Object | None:
        meta = pod["metadata"]
        current = self.get("", "pods", meta["namespace"], meta["name"])
        return (
            current if current is not None and current["metadata"]["uid"] == meta["uid"] else None
        )

    def _say(self, pod: Object) -> Object:
        meta = pod["metadata"]
        self._send(meta["uid"])
        return self.store.put(("", "pods"), (meta["namespace"], meta["name"]), pod).obj

    def _send(self, uid: str) -> None:
        self._due[uid] = None
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled; what was not sent by then is said again after a restart."""
        async with asyncio.TaskGroup() as group:
            while True:
                for uid in [uid for uid in self._due if uid not in self._busy]:
                    del self._due[uid]
                    self._busy.add(uid)
                    group.create_task(self._send_all(uid))
                self._wake.clear()
                await self._wake.wait()

    async def _send_all(self, uid: str) -> None:
        delay_s = FIRST_RETRY_S
        try:
            while (step := self._wishes.next_step(uid)) is not None:
                wish = self._wishes.get(uid)
                assert wish is not None, "it has a step"
                async with self._slots:
                    answered = await self._ask(wish, step)
                if answered:
                    delay_s = FIRST_RETRY_S
                    continue
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, MAX_RETRY_S)
        finally:
            self._busy.discard(uid)
            self._wake.set()  # what was said since the last look

    async def _ask(self, wish: PodWish, step: Step) -> bool:
        """Send one step; False when it is to be sent again."""
        path = PODS.path(wish.namespace, wish.name, step.subresource)
        try:
            answer = await self._client.request(
                step.method, path, body=step.body, content_type=step.content_type
            )
        except ApiError as error:
            return self._refused(wish, step, error)
        shows = step.kind == "status" and isinstance(answer, dict)
        self._wishes.taken(wish.uid, revision_of(answer) if shows else 0)
        return True

    def _refused(self, wish: PodWish, step: Step, error: ApiError) -> bool:
        if error.code in _GONE:
            # Bound already, or removed: either way the mirror is told by the server.
            self._wishes.taken(wish.uid, 0)
            return True
        self.failures[step.kind] += 1
        facts = {"pod": wish.name, "step": step.kind, "why": str(error)}
        if 400 <= error.code < 500 and error.code != 429:
            _log.error("the API server refuses what the kubelet says", **facts)
            self._wishes.taken(wish.uid, 0)  # said again, it would be refused again
            return True
        _log.warning("the API server does not answer the kubelet", **facts)
        self._wishes.failed(wish.uid)
        return False


class Events:
    """Events about pods (``kubelet.recorder.Posts``): the server keeps them for an hour."""

    def __init__(self, client: Client, ambient: Ambient, component: str) -> None:
        self._client = client
        self._ambient = ambient
        self._component = component
        self._known: OrderedDict[tuple[str, str, str], Object] = OrderedDict()
        self._due: deque[tuple[Object, bool]] = deque(maxlen=MAX_EVENTS)
        self._wake = asyncio.Event()

    def post(self, about: Object, kind: str, reason: str, message: str) -> None:
        """Post ``kind`` (Normal or Warning) with a CamelCase reason and a sentence."""
        meta, now = about["metadata"], self._ambient.now_text()
        identity = (meta["uid"], reason, message)
        event = self._known.get(identity)
        if event is None:
            event = new_event(self._component, about, kind, reason, message, now)
            name = f"{meta['name']}.{self._ambient.suffix(10)}"
            event["metadata"] = {"name": name, "namespace": meta.get("namespace", "default")}
            self._known[identity] = event
            if len(self._known) > MAX_REMEMBERED:
                self._known.popitem(last=False)
            self._due.append((event, True))
        else:
            event |= {"count": event["count"] + 1, "lastTimestamp": now}
            self._due.append((event, False))
        self._wake.set()

    def prune(self) -> None:
        """The server forgets events by itself."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            while self._due:
                await self._send(*self._due.popleft())
            self._wake.clear()
            await self._wake.wait()

    async def _send(self, event: Object, fresh: bool) -> None:
        namespace, name = event["metadata"]["namespace"], event["metadata"]["name"]
        try:
            if fresh:
                await self._client.request("POST", EVENTS.path(namespace), body=event)
                return
            repeated = {key: event[key] for key in ("count", "lastTimestamp")}
            await self._client.patch(EVENTS, name, namespace, repeated)
        except ApiError as error:
            _log.warning("event is lost", event=name, why=str(error))
