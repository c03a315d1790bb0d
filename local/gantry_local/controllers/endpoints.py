"""Endpoints and EndpointSlices of Services with a selector.

Ready pods are addresses, others are listed as not ready unless the Service publishes them anyway.
A Service has a slice for each set of port numbers among its pods: what a target port's name means
is each pod's own matter, and pods of two templates may differ while one replaces the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from gantry_local.controllers.direct import is_finished, is_ready, is_terminating, owner_reference
from gantry_local.controllers.labelindex import LabelIndex, SelectorIndex

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_local.apiserver.store import Event
    from gantry_local.controllers.runner import Key

SERVICES = ("", "services")
PODS = ("", "pods")
ENDPOINTS = ("", "endpoints")
SLICES = ("discovery.k8s.io", "endpointslices")
SERVICE_LABEL = "kubernetes.io/service-name"
Object = dict[str, Any]


class Objects(Protocol):
    """Access to Services and pods, which are read, and endpoints, which are written."""

    def get(self, group: str, plural: str, namespace: str, name: str) -> Object | None:
        """One object, or None."""

    def all(self, group: str, plural: str, namespace: str | None = None) -> list[Object]:
        """All objects of a type."""

    def owned(self, owner: Object, group: str, plural: str) -> list[Object]:
        """Objects of a type that ``owner`` owns."""

    def create(self, group: str, plural: str, obj: Object) -> Object | None:
        """Create; None when that is not possible now."""

    def patch(self, group: str, plural: str, obj: Object, patch: Object) -> Object | None:
        """Replace fields; None when the object is gone."""

    def delete(self, group: str, plural: str, obj: Object) -> None:
        """Delete; gone already is fine."""


class EndpointsController:
    """Keeps Endpoints and EndpointSlice of every Service."""

    name = "endpoints"

    def __init__(self, direct: Objects) -> None:
        self._direct = direct
        self._pods = LabelIndex()
        self._services = SelectorIndex()

    def initial_keys(self) -> Iterable[Key]:
        """Every Service, after indexing what exists."""
        self._pods, self._services = LabelIndex(), SelectorIndex()
        for pod in self._direct.all(*PODS):
            self._pods.put(_key(pod), pod["metadata"].get("labels") or {})
        for service in self._direct.all(*SERVICES):
            self._services.put(_key(service), service["spec"].get("selector") or {})
            yield _key(service)

    def keys_for(self, event: Event) -> Iterable[Key]:
        """The changed Service, or Services that select the pod before or after its change."""
        record = event.record
        if record.resource == SERVICES:
            if event.type == "DELETED":
                self._services.drop(record.key)
            else:
                self._services.put(record.key, record.obj["spec"].get("selector") or {})
            yield record.key
        elif record.resource == PODS:
            labels = record.obj["metadata"].get("labels") or {}
            if event.type == "DELETED":
                self._pods.drop(record.key)
            else:
                self._pods.put(record.key, labels)
            yield from self._services.selecting(record.key[0], labels)
            if event.before is not None:
                old = event.before.obj["metadata"].get("labels") or {}
                if old != labels:
                    yield from self._services.selecting(record.key[0], old)

    def reconcile(self, key: Key) -> float | None:
        """Write what differs."""
        service = self._direct.get(*SERVICES, *key)
        if service is None:  # its Endpoints have no owner; slices are garbage-collected
            leftover = self._direct.get(*ENDPOINTS, *key)
            if leftover is not None:
                self._direct.delete(*ENDPOINTS, leftover)
            return None
        selector = service["spec"].get("selector")
        if not selector:
            return None
        matching = self._pods.matching(key[0], selector)
        pods = [pod for k in matching if (pod := self._direct.get(*PODS, *k)) is not None]
        slices = new_slices(service, pods)
        for wanted in slices:
            self._write(SLICES, wanted)
        kept = {wanted["metadata"]["name"] for wanted in slices}
        for found in self._direct.owned(service, *SLICES):
            if found["metadata"]["name"] not in kept:
                self._direct.delete(*SLICES, found)
        self._write(ENDPOINTS, new_endpoints(service, pods))
        return None

    def _write(self, kind: tuple[str, str], wanted: Object) -> None:
        current = self._direct.get(*kind, *_key(wanted))
        if current is None:
            self._direct.create(*kind, wanted)
            return
        fields = {k: v for k, v in wanted.items() if k not in {"apiVersion", "kind", "metadata"}}
        if any(current.get(name) != value for name, value in fields.items()):
            self._direct.patch(*kind, current, fields)


def _key(obj: Object) -> Key:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


def _candidates(service: Object, pods: list[Object]) -> list[Object]:
    """Pods with an address that may be listed at all."""
    anyway = service["spec"].get("publishNotReadyAddresses", False)
    return [
        pod
        for pod in pods
        if (pod.get("status") or {}).get("podIP")
        and not is_finished(pod)
        and (anyway or not is_terminating(pod))
    ]


def _serves(service: Object, pod: Object) -> bool:
    if service["spec"].get("publishNotReadyAddresses", False):
        return True
    return is_ready(pod) and not is_terminating(pod)


def new_slices(service: Object, pods: list[Object]) -> list[Object]:
    """The EndpointSlices of a Service; without pods, one that is empty."""
    namespace, name = _key(service)
    return [
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{name}-local-{number}" if number else f"{name}-local",
                "namespace": namespace,
                "labels": {SERVICE_LABEL: name},
                "ownerReferences": [owner_reference(service)],
            },
            "addressType": "IPv4",
            "endpoints": [_endpoint(service, pod) for pod in alike],
            "ports": ports,
        }
        for number, (ports, alike) in enumerate(_by_ports(service, pods) or [([], [])])
    ]


def _endpoint(service: Object, pod: Object) -> Object:
    endpoint: Object = {
        "addresses": [pod["status"]["podIP"]],
        "conditions": {
            "ready": _serves(service, pod),
            "serving": is_ready(pod),
            "terminating": is_terminating(pod),
        },
        "nodeName": pod["spec"].get("nodeName", ""),
        "targetRef": _reference(pod),
    }
    if pod["spec"].get("subdomain") == service["metadata"]["name"]:
        endpoint["hostname"] = pod["spec"]["hostname"]
    return endpoint


def new_endpoints(service: Object, pods: list[Object]) -> Object:
    """The Endpoints of a Service."""
    namespace, name = _key(service)
    return {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": name, "namespace": namespace},
        "subsets": [_subset(service, ports, alike) for ports, alike in _by_ports(service, pods)],
    }


def _subset(service: Object, ports: list[Object], pods: list[Object]) -> Object:
    subset: Object = {}
    for pod in pods:
        field = "addresses" if _serves(service, pod) else "notReadyAddresses"
        address: Object = {"ip": pod["status"]["podIP"], "targetRef": _reference(pod)}
        subset.setdefault(field, []).append(address)
    return subset | {"ports": ports}


def _by_ports(service: Object, pods: list[Object]) -> list[tuple[list[Object], list[Object]]]:
    """Pods that may be listed, together with those to whom the Service's ports mean the same."""
    groups: list[tuple[list[Object], list[Object]]] = []
    for pod in _candidates(service, pods):
        ports = _ports(service, pod)
        alike = next((found for known, found in groups if known == ports), None)
        if alike is None:
            groups.append((ports, [pod]))
        else:
            alike.append(pod)
    return groups


def _reference(pod: Object) -> Object:
    meta = pod["metadata"]
    return {
        "kind": "Pod",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
    }


def _ports(service: Object, pod: Object) -> list[Object]:
    listed: list[Object] = []
    for port in service["spec"].get("ports") or []:
        number = resolve_port(port.get("targetPort", port["port"]), pod)
        if number is not None:
            entry: Object = {"port": number, "protocol": port.get("protocol", "TCP")}
            if port.get("name"):
                entry["name"] = port["name"]
            listed.append(entry)
    return listed


def resolve_port(target: int | str, pod: Object) -> int | None:
    """A target port as a number; names are those of the pod's container ports."""
    if isinstance(target, int):
        return target
    for container in pod["spec"].get("containers") or []:
        for port in container.get("ports") or []:
            if port.get("name") == target:
                return int(port["containerPort"])
    return None
