"""Notices a plan that is carried out again and again without any effect, and holds it back.

Rule protected: the operator never spins. A plan that asks for what the last ones asked for, to the
letter, rests on something that the operator misunderstands: an object that is gone and that nobody
reported as gone, or another program that takes every change back. The steps of a plan carry uids,
versions and epochs, so a plan with an effect is followed by another one or by none.

Such a plan waits longer each time, also if an event brings its resource back meanwhile: what the
other program writes is one. A plan with another step in it waits for nothing.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from gantry_operator.plan.actions import (
    ApplyObject,
    CheckAgain,
    EmitEvent,
    ScaleDown,
    WriteStatus,
)
from gantry_operator.workqueue import FIRST_DELAY_S, MAX_DELAY_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_operator.cache import Key
    from gantry_operator.plan.actions import Action

LIMIT = 5
"""So often in a row a plan may be the same: watches are late now and then."""
FORGET_S = 300.0
"""A plan that was made so long ago is no repetition: somebody undid it meanwhile."""


class _Last(NamedTuple):
    plan: bytes
    times: int
    at_s: float
    until_s: float


class Repeats:
    """The last plan of each resource; bounded by their number."""

    def __init__(self) -> None:
        self._last: dict[tuple[Key, bool], _Last] = {}

    def note(self, key: Key, plan: Sequence[Action], now_s: float) -> int:
        """The number of times in a row that this very plan was carried out, this time included.

        A plan with nothing to do counts as 0 and is no end of a row, nor is one that only tells:
        between two rounds of a fight over a field there is one.
        """
        place, digest = _judged(key, plan)
        if not digest:
            return 0
        last = self._last.get(place)
        again = last is not None and last.plan == digest and now_s - last.at_s < FORGET_S
        count = last.times + 1 if again and last is not None else 1
        delay_s = min(FIRST_DELAY_S * 2.0 ** min(count - LIMIT, 20), MAX_DELAY_S)
        until_s = now_s + delay_s if count > LIMIT else now_s
        self._last[place] = _Last(digest, count, now_s, until_s)
        return count

    def held_s(self, key: Key, plan: Sequence[Action], now_s: float) -> float:
        """The time until this very plan may be carried out once more; 0 for now."""
        place, digest = _judged(key, plan)
        last = self._last.get(place)
        if last is None or last.plan != digest:
            return 0.0
        return max(0.0, last.until_s - now_s)

    def forget(self, key: Key) -> None:
        """The resource is gone."""
        for tells in (False, True):
            self._last.pop((key, tells), None)


def _judged(key: Key, plan: Sequence[Action]) -> tuple[tuple[Key, bool], bytes]:
    """What a plan is compared with, and its digest: of what it does, else of what it tells."""
    done = steps(plan)
    deeds = [step for step in done if not isinstance(step, WriteStatus)]
    compared = deeds or done
    digest = hashlib.blake2b(repr(compared).encode(), digest_size=16).digest() if compared else b""
    return (key, not deeds), digest


def describe(plan: Sequence[Action]) -> str:
    """The steps of a plan in words."""
    return ", ".join(f"{type(step).__name__} {_object(step)}".strip() for step in steps(plan))


def _object(step: Action) -> str:
    if isinstance(step, ApplyObject | ScaleDown):
        return f"{step.manifest['kind']}/{step.manifest['metadata']['name']}"
    return str(getattr(step, "name", ""))


def steps(plan: Sequence[Action]) -> list[Action]:
    """The actions that write something others can see; events are for people."""
    return [action for action in plan if not isinstance(action, CheckAgain | EmitEvent)]
