"""Additions that others have made to the pod template of an owned workload.

Server-side apply leaves alone what the operator never wished, such as a container that somebody
added. So does the operator: whoever adds a sidecar wants it, and taking it out again would restart
pods for ever. It is told, with who did it, by the API server's own record (`managedFields`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gantry_operator import names
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gantry_operator.plan.conditions import Conditions
    from gantry_operator.plan.observed import Body, ObjectKey

CONDITION = "Altered"
MAX_TOLD = 5
"""Additions that are named; more are counted."""
_OURS = frozenset({names.FIELD_MANAGER, names.STATUS_FIELD_MANAGER})
_TEMPLATES = (
    ("f:spec", "f:template", "f:spec"),
    ("f:spec", "f:jobTemplate", "f:spec", "f:template", "f:spec"),
)
Fields = dict[str, Any]
"""A set of field paths as FieldsV1 has it: `f:` a field, `k:` an item by its key, `v:` a value."""


def kept(entries: Iterable[Body]) -> list[Body]:
    """Of the records of who wrote what, those that `additions` needs; none if all is ours."""
    found = []
    for entry in entries:
        fields = entry.get("fieldsV1") or {}
        if entry.get("subresource") or not any(_at(fields, path) for path in _TEMPLATES):
            continue
        found.append({"manager": entry.get("manager"), "fieldsV1": fields})
    return found if any(entry["manager"] not in _OURS for entry in found) else []


def additions(body: Body) -> list[tuple[str, str]]:
    """Additions of others to the pod template: (what, who), sorted."""
    entries = kept(body["metadata"].get("managedFields") or ())
    found: set[tuple[str, str]] = set()
    for path in _TEMPLATES:
        own: Fields = {}
        for entry in entries:
            if entry["manager"] in _OURS:
                own = _union(own, _at(entry["fieldsV1"], path))
        for entry in entries:
            if entry["manager"] not in _OURS:
                who = str(entry["manager"] or "somebody")
                found |= {(what, who) for what in _beyond(_at(entry["fieldsV1"], path), own)}
    return sorted(found)


def report_additions(conditions: Conditions, objects: Mapping[ObjectKey, Body]) -> None:
    """Altered: what others added to pods; no condition where nobody did."""
    texts = []
    for (kind, name), body in sorted(objects.items(), key=lambda item: item[0]):
        found = additions(body)
        if not found:
            continue
        told = [f"{what} (by {who})" for what, who in found[:MAX_TOLD]]
        told += [f"{len(found) - MAX_TOLD} more"] if len(found) > MAX_TOLD else []
        texts.append(f"{kind} {name}: {', '.join(told)}")
    if texts:
        text = (
            f"Others have added to the pod template of {'; '.join(texts)}. It is left alone, and "
            "pods run with it; who does not want it takes it out there."
        )
        conditions.set(CONDITION, "True", Reason.ALTERED_BY_OTHERS, text)


def _at(fields: Fields, path: tuple[str, ...]) -> Fields:
    for step in path:
        fields = fields.get(step) or {}
    return fields


def _union(left: Fields, right: Fields) -> Fields:
    both = {key: _union(left[key], right[key]) for key in left.keys() & right.keys()}
    return left | right | both


def _beyond(fields: Fields, own: Fields, path: str = "") -> list[str]:
    """The topmost paths that are not in `own`: each container, but not each of its fields."""
    found = []
    for key, below in fields.items():
        if key == ".":
            continue
        name = path + _step(key, first=not path)
        is_list = any(item.startswith("k:") for item in below)
        goes_on = key in own or is_list
        found += _beyond(below, own.get(key, {}), name) if goes_on else [name]
    return found


def _step(key: str, *, first: bool) -> str:
    kind, _, text = key.partition(":")
    if kind == "f":
        return text if first else f".{text}"
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    values = value.values() if isinstance(value, dict) else [value]
    return f"[{'/'.join(str(item) for item in values)}]"
