"""Ensure owned objects: apply what is missing, what drifted, and what the wish no longer has.

An object is left alone when every field of the wish has the wished value. One of these fields is an
annotation with the wish's hash, which notices a field that was taken out of the wish.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from gantry_operator import names
from gantry_operator.plan.actions import ApplyObject, DeleteObject
from gantry_operator.plan.crashes import OURS

if TYPE_CHECKING:
    from gantry_operator.builders import Manifest
    from gantry_operator.plan.observed import Body, ObjectKey

OPTIONAL_KINDS = frozenset({"CronJob", "HorizontalPodAutoscaler", "NetworkPolicy"})
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
_QUANTITY_KEYS = frozenset({"requests", "limits", "sizeLimit"})
_MERGE_KEYS = (("mountPath",), ("containerPort", "protocol"), ("name",))
"""By what the API server tells items of a pod template's lists apart, the more special first."""
_FACTORS = {"m": Decimal("0.001"), "": Decimal(1)} | {
    unit: Decimal(base) ** power
    for base, units in ((1000, ("k", "M", "G", "T", "P")), (1024, ("Ki", "Mi", "Gi", "Ti", "Pi")))
    for power, unit in enumerate(units, start=1)
}


def key_of(manifest: Manifest) -> ObjectKey:
    """Kind and name."""
    return manifest["kind"], manifest["metadata"]["name"]


def ensure(wished: list[Manifest], live: dict[ObjectKey, Body]) -> list[ApplyObject]:
    """Rule: every owned object exists as the builders want it.

    Safe at any time: none of these writes restarts a process that keeps something. StatefulSets are
    OnDelete, and their replica count here is never lower than the live one; a Deployment of fronts
    has a new one Ready before an old one ends.
    """
    actions = []
    for manifest in wished:
        found = live.get(key_of(manifest))
        if found is None or _differs(manifest, found):
            actions.append(ApplyObject(manifest=manifest, exists=found is not None))
    return actions


def surplus(owner: str, wished: list[Manifest], live: dict[ObjectKey, Body]) -> list[DeleteObject]:
    """Rule: what an optional field of the wish made goes with the field.

    Only kinds that hold no data and serve no client, and Services of listeners, and only objects
    whose owner is the resource with the uid `owner`: what somebody else made under such labels
    stays.
    """
    keys = {key_of(manifest) for manifest in wished}
    return [
        DeleteObject(kind=key[0], name=key[1], uid=found["metadata"]["uid"])
        for key, found in sorted(live.items(), key=lambda item: item[0])
        if (key[0] in OPTIONAL_KINDS or _is_of_listener(key, found))
        and key not in keys
        and found["metadata"].get("deletionTimestamp") is None
        and owner in owner_uids(found)
    ]


def _is_of_listener(key: ObjectKey, found: Body) -> bool:
    labels = found["metadata"].get("labels") or {}
    return key[0] == "Service" and names.LABEL_LISTENER in labels


def container(statefulset: Body, name: str) -> Body | None:
    """The container of this name in a StatefulSet's pods."""
    return next((item for item in _containers(statefulset) if item.get("name") == name), None)


def _containers(statefulset: Body) -> list[Body]:
    template = statefulset["spec"].get("template") or {}
    return (template.get("spec") or {}).get("containers") or []


def setting(statefulset: Body, name: str) -> str | None:
    """The StatefulSet's environment variable for our container; None if it has none."""
    for item in _containers(statefulset):
        if item.get("name") not in OURS:
            continue
        for entry in item.get("env") or ():
            if entry["name"] == name:
                found: str | None = entry.get("value")
                return found
    return None


def _differs(manifest: Manifest, found: Body) -> bool:
    meta = {key: part for key, part in manifest["metadata"].items() if key != "ownerReferences"}
    return not is_owned(manifest, found) or drifted(manifest | {"metadata": meta}, found)


def is_owned(manifest: Manifest, found: Body) -> bool:
    """Whether the owner is among those of the live object; others may add owners of their own."""
    return owner_uids(manifest) <= owner_uids(found)


def owner_uids(body: Body) -> set[str]:
    """Uids of the resources that an object belongs to."""
    return {reference.get("uid", "") for reference in body["metadata"].get("ownerReferences") or ()}


def drifted(wished: Any, live: Any, *, quantity: bool = False, template: bool = False) -> bool:
    """Whether the live value lacks something of the wish.

    The API server adds defaults, drops empty values and rewrites quantities ("1000m" becomes "1");
    none of these is a drift, or the operator would apply for ever. Neither is what others add to a
    list of a pod `template`, such as a container, since an apply leaves it there (`additions`).
    """
    if isinstance(wished, dict):
        if not isinstance(live, dict):
            return bool(wished)
        return any(
            drifted(
                value,
                live.get(key),
                quantity=quantity or key in _QUANTITY_KEYS,
                template=template or key == "template",
            )
            for key, value in wished.items()
        )
    if isinstance(wished, list):
        if not isinstance(live, list):
            return bool(wished)
        if template:
            live = _counterparts(wished, live)
        return len(wished) != len(live) or any(
            drifted(a, b, quantity=quantity, template=template)
            for a, b in zip(wished, live, strict=True)
        )
    if wished == live or (not wished and live is None):
        return False
    return not (quantity and same_quantity(wished, live))


def _counterparts(wished: list[Any], live: list[Any]) -> list[Any]:
    """The live items that the wished ones are; all of them where items have no names."""
    for keys in _MERGE_KEYS:
        if all(isinstance(item, dict) and keys[0] in item for item in [*wished, *live]):
            found = {tuple(item.get(key) for key in keys): item for item in live}
            names = [tuple(item.get(key) for key in keys) for item in wished]
            return [found[name] for name in names if name in found]
    return live


def same_quantity(left: object, right: object) -> bool:
    """Whether two Kubernetes quantities mean the same amount."""
    numbers = (_number(left), _number(right))
    return None not in numbers and numbers[0] == numbers[1]


def is_larger(left: object, right: object) -> bool:
    """Whether a Kubernetes quantity is more than another; false where one cannot be read."""
    numbers = _number(left), _number(right)
    return numbers[0] is not None and numbers[1] is not None and numbers[0] > numbers[1]


def _number(value: object) -> Decimal | None:
    match = _QUANTITY.fullmatch(str(value))
    return Decimal(match[1]) * _FACTORS[match[2] or ""] if match else None
