"""Fails a test in which an operator repeats a plan that has no effect."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pytest
from gantry_operator.cache import Key
from gantry_operator.plan.actions import Action
from gantry_operator.reconcile import worker
from gantry_operator.reconcile.repeats import LIMIT, Repeats, describe


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

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "Repeats", Watched)
        yield found
    assert found == [], "a reconcile repeats without a change"
