"""Events about pods, few and bounded: a repetition counts up instead of being a new object."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from gantry_local.controllers.direct import Direct

EVENTS = ("", "events")
MAX_REMEMBERED: Final = 500
"""Distinct events known to be repeatable; more than that are new objects again."""
MAX_STORED: Final = 2000
"""Events the cluster keeps, whoever wrote them; the oldest go first (a real one keeps an hour)."""

Object = dict[str, Any]


class Posts(Protocol):
    """The kubelet's way to tell people about pods."""

    def post(self, about: Object, kind: str, reason: str, message: str) -> None:
        """Post ``kind`` (Normal or Warning) with a CamelCase reason and a sentence."""

    def prune(self) -> None:
        """Drop what is beyond the bound."""


class Recorder:
    """Posts events under one component's name."""

    def __init__(self, direct: Direct, component: str) -> None:
        self._direct = direct
        self._component = component
        self._known: OrderedDict[tuple[str, str, str], str] = OrderedDict()

    def post(self, about: Object, kind: str, reason: str, message: str) -> None:
        """Post ``kind`` (Normal or Warning) with a CamelCase reason and a sentence."""
        meta = about["metadata"]
        identity = (meta["uid"], reason, message)
        namespace = meta.get("namespace", "default")
        now = self._direct.ambient.now_text()
        name = self._known.get(identity)
        if name is not None:
            current = self._direct.get(*EVENTS, namespace, name)
            if current is not None:
                patch = {"count": current.get("count", 1) + 1, "lastTimestamp": now}
                self._direct.patch(*EVENTS, current, patch)
                return
        event = new_event(self._component, about, kind, reason, message, now)
        created = self._direct.create(*EVENTS, event)
        if created is not None:
            self._known[identity] = created["metadata"]["name"]
            while len(self._known) > MAX_REMEMBERED:
                self._known.popitem(last=False)

    def prune(self) -> None:
        """Drop the oldest events of both event APIs beyond the bound."""
        for group in ("", "events.k8s.io"):
            records = self._direct.registry.store.records((group, "events"))
            for record in sorted(records, key=lambda r: r.revision)[: len(records) - MAX_STORED]:
                self._direct.delete(group, "events", record.obj)


def new_event(
    component: str, about: Object, kind: str, reason: str, message: str, now: str
) -> Object:
    """The first event of its words; the server gives it its name."""
    meta = about["metadata"]
    namespace = meta.get("namespace", "default")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{meta['name']}.", "namespace": namespace},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": meta["name"],
            "namespace": namespace,
            "uid": meta["uid"],
        },
        "type": kind,
        "reason": reason,
        "message": message,
        "source": {"component": component},
        "reportingComponent": component,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
