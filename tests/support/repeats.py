"""Fails a test in which an operator spins.

It repeats a plan that has no effect, or looks at a resource again and again without a change.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pytest
from gantry_operator.cache import Key
from gantry_operator.plan.actions import Action
from gantry_operator.reconcile import worker
from gantry_operator.reconcile.repeats import LIMIT, Repeats, describe
from gantry_operator.reconcile.spins import Look, Row, Spins


@contextlib.contextmanager
def nothing_repeats() -> Iterator[list[str]]:
    """Holds for every operator of this process that starts inside.

    A test that wants a repetition takes it out of the list.
    """
    found: list[str] = []

    class Watched(Repeats):
        def note(self, key: Key, plan: Sequence[Action], now_s: float) -> int:
            count = super().note(key, plan, now_s)
            if count > LIMIT:
                found.append(f"{key.kind} {key.name}, {count} times: {describe(plan)}")
            return count

    class WatchedSpins(Spins):
        def note(self, key: Key, look: Look) -> Row:
            row = super().note(key, look)
            if row.spins:
                found.append(f"{key.kind} {key.name}, {row.repeats} times without a change")
            return row

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "Repeats", Watched)
        patch.setattr(worker, "Spins", WatchedSpins)
        yield found
    assert found == [], "a reconcile repeats without a change"
