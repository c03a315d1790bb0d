"""``meta.k8s.io/v1 Table`` answers: what ``kubectl get`` and ``gantry local get`` print."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from gantry_local.apiserver import jsonpath

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_local.apiserver.kinds import ResourceType
    from gantry_local.apiserver.store import Record

Object = dict[str, Any]
Cell = str | int | bool | None
Column = tuple[str, str, int, "Callable[[Object, dt.datetime], Cell]"]
"""Name, type, priority (1: only with ``-o wide``) and value."""


def wants_table(accept: str) -> bool:
    """Whether an Accept header asks for a Table first."""
    return "as=Table" in accept.partition(",")[0]


def table(
    resource: ResourceType,
    crd: Object | None,
    records: list[Record],
    metadata: dict[str, Any],
    now: dt.datetime,
) -> Object:
    """The Table of some records; ``crd`` is the definition of a custom resource."""
    columns = _custom_columns(crd) if crd is not None else _COLUMNS.get(resource.key, [AGE])
    columns = [NAME, *columns]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [
            {
                "name": name,
                "type": kind,
                "format": "name" if name == "Name" else "",
                "description": "",
                "priority": priority,
            }
            for name, kind, priority, _ in columns
        ],
        "rows": [_row(record, columns, now) for record in records],
    }


def _row(record: Record, columns: list[Column], now: dt.datetime) -> Object:
    partial = {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {k: v for k, v in record.obj["metadata"].items() if k != "managedFields"},
    }
    cells = [value(record.obj, now) for _, _, _, value in columns]
    return {"cells": cells, "object": partial}


def age(text: str | None, now: dt.datetime) -> str:
    """The age, in the short form of kubectl (``5s``, ``3m12s``, ``2d``)."""
    if not text:
        return "<unknown>"
    seconds = int((now - dt.datetime.fromisoformat(text)).total_seconds())
    if seconds < 120:
        return f"{max(0, seconds)}s"
    if seconds < 600:
        return f"{seconds // 60}m{seconds % 60}s" if seconds % 60 else f"{seconds // 60}m"
    if seconds < 3 * 3600:
        return f"{seconds // 60}m"
    if seconds < 48 * 3600:
        return f"{seconds // 3600}h"
    return f"{seconds // 86400}d"


def _age(obj: Object, now: dt.datetime) -> Cell:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _at(*path: str, default: Cell = "") -> Callable[[Object, dt.datetime], Cell]:
    def value(obj: Object, _now: dt.datetime) -> Cell:
        found: Any = obj
        for step in path:
            found = found.get(step) if isinstance(found, dict) else None
        return default if found is None else found

    return value


def _custom_columns(crd: Object) -> list[Column]:
    columns = crd["spec"]["versions"][0].get("additionalPrinterColumns")
    if not columns:
        return [AGE]
    return [
        (c["name"], c["type"], c.get("priority", 0), _json_path_value(c["jsonPath"], c["type"]))
        for c in columns
    ]


def _json_path_value(path: str, kind: str) -> Callable[[Object, dt.datetime], Cell]:
    steps = jsonpath.parse(path)

    def value(obj: Object, now: dt.datetime) -> Cell:
        found = jsonpath.find(obj, steps)
        if kind == "date":
            return age(found, now) if found else None
        if isinstance(found, list | dict):
            return ",".join(map(str, found)) if isinstance(found, list) else str(found)
        cell: Cell = found
        return cell

    return value


def _pod_ready(obj: Object, _now: dt.datetime) -> Cell:
    statuses = (obj.get("status") or {}).get("containerStatuses") or []
    total = len(obj["spec"].get("containers") or [])
    return f"{sum(status['ready'] for status in statuses)}/{total}"


def _pod_phase(obj: Object, _now: dt.datetime) -> Cell:
    if "deletionTimestamp" in obj["metadata"]:
        return "Terminating"
    status = obj.get("status") or {}
    for container in status.get("containerStatuses") or []:
        waiting = container["state"].get("waiting")
        if waiting:
            return str(waiting["reason"])
    return str(status.get("phase", "Unknown"))


def _claim_phase(obj: Object, _now: dt.datetime) -> Cell:
    if "deletionTimestamp" in obj["metadata"]:
        return "Terminating"
    return str((obj.get("status") or {}).get("phase", ""))


def _pod_restarts(obj: Object, _now: dt.datetime) -> Cell:
    statuses = (obj.get("status") or {}).get("containerStatuses") or []
    return sum(int(status["restartCount"]) for status in statuses)


def _replicas_ready(obj: Object, _now: dt.datetime) -> Cell:
    ready = (obj.get("status") or {}).get("readyReplicas", 0)
    return f"{ready}/{obj['spec'].get('replicas', 1)}"


def _service_ports(obj: Object, _now: dt.datetime) -> Cell:
    ports = obj["spec"].get("ports") or []
    return ",".join(f"{p['port']}/{p.get('protocol', 'TCP')}" for p in ports) or "<none>"


def _event_object(obj: Object, _now: dt.datetime) -> Cell:
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _event_seen(obj: Object, now: dt.datetime) -> Cell:
    fields = ("lastTimestamp", "deprecatedLastTimestamp", "eventTime")
    seen = next((obj[field] for field in fields if obj.get(field)), None)
    return age(seen or obj["metadata"]["creationTimestamp"], now)


def _event_message(obj: Object, _now: dt.datetime) -> Cell:
    return str(obj.get("message") or obj.get("note") or "")


def _capacity(obj: Object, _now: dt.datetime) -> Cell:
    return str(((obj.get("status") or {}).get("capacity") or {}).get("storage", ""))


def _keys(field: str) -> Callable[[Object, dt.datetime], Cell]:
    return lambda obj, _now: len(obj.get(field) or {})


NAME: Column = ("Name", "string", 0, _at("metadata", "name"))
AGE: Column = ("Age", "string", 0, _age)
_EVENT: list[Column] = [
    ("Last Seen", "string", 0, _event_seen),
    ("Type", "string", 0, _at("type")),
    ("Reason", "string", 0, _at("reason")),
    ("Object", "string", 0, _event_object),
    ("Message", "string", 0, _event_message),
]
_COLUMNS: dict[tuple[str, str], list[Column]] = {
    ("", "pods"): [
        ("Ready", "string", 0, _pod_ready),
        ("Status", "string", 0, _pod_phase),
        ("Restarts", "integer", 0, _pod_restarts),
        AGE,
        ("IP", "string", 1, _at("status", "podIP", default="<none>")),
        ("Node", "string", 1, _at("spec", "nodeName", default="<none>")),
    ],
    ("", "services"): [
        ("Type", "string", 0, _at("spec", "type")),
        ("Cluster-IP", "string", 0, _at("spec", "clusterIP", default="<none>")),
        ("Port(s)", "string", 0, _service_ports),
        AGE,
    ],
    ("", "persistentvolumeclaims"): [
        ("Status", "string", 0, _claim_phase),
        ("Volume", "string", 0, _at("spec", "volumeName")),
        ("Capacity", "string", 0, _capacity),
        AGE,
    ],
    ("", "namespaces"): [("Status", "string", 0, _at("status", "phase")), AGE],
    ("", "configmaps"): [("Data", "integer", 0, _keys("data")), AGE],
    ("", "secrets"): [
        ("Type", "string", 0, _at("type")),
        ("Data", "integer", 0, _keys("data")),
        AGE,
    ],
    ("", "events"): _EVENT,
    ("events.k8s.io", "events"): _EVENT,
    ("apps", "statefulsets"): [("Ready", "string", 0, _replicas_ready), AGE],
    ("apps", "deployments"): [("Ready", "string", 0, _replicas_ready), AGE],
    ("policy", "poddisruptionbudgets"): [
        ("Min Available", "string", 0, _at("spec", "minAvailable", default="N/A")),
        ("Max Unavailable", "string", 0, _at("spec", "maxUnavailable", default="N/A")),
        ("Allowed Disruptions", "integer", 0, _at("status", "disruptionsAllowed", default=0)),
        AGE,
    ],
    ("batch", "cronjobs"): [
        ("Schedule", "string", 0, _at("spec", "schedule")),
        ("Last Schedule", "string", 0, lambda _obj, _now: "never: gantry local runs no jobs"),
        AGE,
    ],
    ("autoscaling", "horizontalpodautoscalers"): [
        ("Reference", "string", 0, _at("spec", "scaleTargetRef", "name")),
        ("MinPods", "string", 0, _at("spec", "minReplicas")),
        ("MaxPods", "string", 0, _at("spec", "maxReplicas")),
        ("Replicas", "string", 0, lambda _obj, _now: "as it is: gantry local scales nothing"),
        AGE,
    ],
    ("coordination.k8s.io", "leases"): [
        ("Holder", "string", 0, _at("spec", "holderIdentity")),
        AGE,
    ],
}
