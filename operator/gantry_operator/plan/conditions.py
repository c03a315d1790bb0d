"""Conditions: `lastTransitionTime` moves only when the status does."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from gantry_operator.models import Condition, ConditionStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_operator.plan.reasons import Reason


def timestamp(now: dt.datetime) -> str:
    """A moment as the API server writes it: UTC, whole seconds."""
    return now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Conditions:
    """Collects the conditions of one resource, against those it had before."""

    __slots__ = ("_generation", "_new", "_now", "_old")

    def __init__(self, old: Iterable[Condition], generation: int, now: dt.datetime) -> None:
        self._old = {condition.type: condition for condition in old}
        self._generation = generation
        self._now = timestamp(now)
        self._new: list[Condition] = []

    def set(self, name: str, status: ConditionStatus, reason: Reason, message: str) -> None:
        """Adds a condition; each type once."""
        old = self._old.get(name)
        kept = old.last_transition_time if old is not None and old.status == status else self._now
        self._new.append(
            Condition(
                type=name,
                status=status,
                reason=reason.value,
                message=message,
                last_transition_time=kept,
                observed_generation=self._generation,
            )
        )

    def keep(self, name: str) -> None:
        """Carries an old condition over: nothing new is known about it."""
        old = self._old.get(name)
        if old is not None:
            self._new.append(old)

    def result(self) -> tuple[Condition, ...]:
        """All conditions, in the order in which they were set."""
        return tuple(self._new)


def find(conditions: Iterable[Condition], name: str) -> Condition | None:
    """The condition of a type."""
    return next((condition for condition in conditions if condition.type == name), None)
