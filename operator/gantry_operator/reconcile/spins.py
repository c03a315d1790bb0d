"""Notices a resource that is looked at again and again although nothing about it changes.

Rule protected: the operator never spins, whatever it does meanwhile. `repeats` compares what looks
do; here what they read is compared. So a look that writes something else each time, such as the
time of day, is noticed, and one that does nothing and asks for the next look at once.

Looks are a row while they read the same, and each comes soon after one that may be its cause: that
one wrote something, or asked for a look soon. Timed looks are no row, nor are attempts that wait
longer each time, nor looks that find nothing to do and are brought by events about other resources.

What counts as read is what others say. What the operator writes itself (status, finalizers, owned
objects apart from their status, its labels of pods) and what it remembers are left out: else each
of its own writes would be a change. Figures that move by themselves, such as offsets and the age of
a heartbeat, are left out, too: whoever waits for one looks at a pace.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec
from gantry_protocol.admin_client.outcomes import Unreachable
from pydantic import BaseModel

from gantry_operator.workqueue import FIRST_DELAY_S, MAX_DELAY_S

if TYPE_CHECKING:
    from gantry_operator.cache import Key
    from gantry_operator.models.base import Metadata
    from gantry_operator.plan.entities import EntityObserved
    from gantry_operator.plan.observed import Observed, PodView

LIMIT = 5
"""So often a look may be repeated without a change: writes of ours take a few looks to settle."""
SOON_S = 1.0
"""A look that comes later than this after another one was not caused by it."""
_OWN = frozenset(
    {"previous", "live_status", "refusals", "refusal", "refused_drains", "refused_growth"}
)
"""Fields that hold what the operator wrote or remembers."""
_PARSED = frozenset({"group", "entity", "controllers", "meta", "told", "following", "status"})
"""Fields that follow from the resource, whose generation is read, or from the others."""
_MOVING = frozenset(
    {
        "applied_index",
        "check_after_s",
        "commit_index",
        "committed_offset",
        "confirm_offset",
        "confirmed_offset",
        "digest",
        "digest_index",
        "lag_ms",
        "last_contact_ms",
        "last_heartbeat_age_ms",
        "log_start",
        "match_index",
        "max_offset",
        "snapshot_index",
    }
)


class Look(msgspec.Struct, frozen=True):
    """One look at a resource.

    Attributes:
        at_s: its end, by the event loop's clock.
        read: fingerprint of what it read (`fingerprint`).
        causes: it wrote something, or asked for another look soon, so it may be what brings it.
    """

    at_s: float
    read: bytes
    causes: bool


class Row(msgspec.Struct, frozen=True):
    """The looks at a resource up to the last one.

    Attributes:
        last: the last one.
        repeats: how many looks in a row, this one included, read what the one before had read.
        wait_s: how long the next one should wait; 0 up to `LIMIT` repeats.
    """

    last: Look
    repeats: int = 0
    wait_s: float = 0.0

    @property
    def spins(self) -> bool:
        """Whether the resource is looked at in vain."""
        return self.repeats > LIMIT


def follow(row: Row | None, look: Look) -> Row:
    """The row with one more look, or a new one."""
    if row is None or not row.last.causes or row.last.read != look.read:
        return Row(look)
    if look.at_s - row.last.at_s > SOON_S + row.wait_s:
        return Row(look)
    repeats = row.repeats + 1
    wait_s = FIRST_DELAY_S * 2.0 ** min(repeats - LIMIT, 20) if repeats > LIMIT else 0.0
    return Row(look, repeats, min(wait_s, MAX_DELAY_S))


class Spins:
    """The row of each resource; bounded by their number."""

    def __init__(self) -> None:
        self._rows: dict[Key, Row] = {}

    def note(self, key: Key, look: Look) -> Row:
        """Takes in a look that has ended."""
        row = self._rows[key] = follow(self._rows.get(key), look)
        return row

    def forget(self, key: Key) -> None:
        """The resource is gone."""
        self._rows.pop(key, None)


def fingerprint(seen: Observed | EntityObserved) -> bytes:
    """Of what others say about a resource, as an observation has it."""
    fields = {name: getattr(seen, name) for name in seen.__struct_fields__}
    controllers = fields.get("controllers")
    said: list[Any] = [_wish(seen.meta), controllers and _wish(controllers.metadata)]
    said += [_of_owned(name, body) for name, body in sorted(fields.pop("objects", {}).items())]
    said += [_of_pod(pod) for pod in fields.pop("pods", ())]
    said += [_still(fields[name]) for name in sorted(fields.keys() - _OWN - _PARSED)]
    return hashlib.blake2b(repr(said).encode(), digest_size=16).digest()


def _wish(meta: Metadata) -> tuple[Any, ...]:
    return meta.uid, meta.generation, meta.deletion_timestamp, sorted(meta.annotations.items())


def _of_owned(name: tuple[str, str], body: dict[str, Any]) -> tuple[Any, ...]:
    meta = body["metadata"]
    return name, meta.get("uid"), meta.get("deletionTimestamp"), body.get("status")


def _of_pod(pod: PodView) -> PodView:
    return msgspec.structs.replace(pod, resource_version="", role=None, traffic=True)


def _still(value: Any) -> Any:
    """A value without the figures that move by themselves, and without words about a silence."""
    match value:
        case Unreachable():
            return "Unreachable"
        case msgspec.Struct():
            names = type(value).__struct_fields__
        case BaseModel():
            names = tuple(type(value).model_fields)
        case list() | tuple():
            return [_still(item) for item in value]
        case _:
            return value
    return [type(value).__name__, *(_still(getattr(value, n)) for n in names if n not in _MOVING)]
