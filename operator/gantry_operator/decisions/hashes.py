"""Hashes of objects that held a secret, replaced by those of the objects without it; pure.

Each owned object carries a hash of its manifest. In a copy of an observation the manifest holds no
secret, so its hash is another one, and the live object would seem to differ from the wish. Whoever
knows the original as well as the copy can say which hash became which: that of the present wish. A
hash of an older wish stays as it was, and so differs from both, as it did.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import msgspec

from gantry_operator import names
from gantry_operator.plan import plan
from gantry_operator.plan.actions import ApplyObject
from gantry_operator.plan.entities import EntityObserved

if TYPE_CHECKING:
    import datetime as dt

    from gantry_operator.decisions.codec import Seen
    from gantry_operator.plan.observed import Observed

_HASH = re.compile(r"[0-9a-f]{16}")


def hashes_of(original: Seen, copy: Seen, now: dt.datetime) -> dict[str, str]:
    """The hashes in what is wished for the original, each with that of the copy at its place."""
    if isinstance(original, EntityObserved) or isinstance(copy, EntityObserved):
        return {}
    found: dict[str, str] = {}
    others = _wishes(copy, now)
    for place, manifest in _wishes(original, now).items():
        _pair(found, manifest, others.get(place))
    return found


def _wishes(seen: Observed, now: dt.datetime) -> dict[tuple[str, str], Any]:
    """All manifests; an object is applied if its hash is not that of the wish."""
    bare = {place: _without_hash(body) for place, body in seen.objects.items()}
    actions = plan(cast("Any", msgspec.structs.replace(seen, objects=bare)), now, announces=False)
    manifests = [action.manifest for action in actions if isinstance(action, ApplyObject)]
    return {(one["kind"], one["metadata"]["name"]): one for one in manifests}


def _without_hash(body: dict[str, Any]) -> dict[str, Any]:
    meta = body["metadata"]
    annotations = dict(meta.get("annotations") or {})
    annotations.pop(names.ANNOTATION_APPLIED, None)
    return body | {"metadata": meta | {"annotations": annotations}}


def _pair(found: dict[str, str], one: Any, other: Any) -> None:
    if isinstance(one, dict) and isinstance(other, dict):
        for key, part in one.items():
            _pair(found, part, other.get(key))
    elif isinstance(one, list) and isinstance(other, list):
        for part, counterpart in zip(one, other, strict=False):
            _pair(found, part, counterpart)
    elif one != other and _is_hash(one) and _is_hash(other):
        found[one] = other


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and _HASH.fullmatch(value) is not None
