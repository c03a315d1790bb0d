"""Conditions: `lastTransitionTime` moves only when the status does."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from gantry_operator.models import Condition, ConditionStatus
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable


def timestamp(now: dt.datetime) -> str:
    """A moment as the API server writes it: UTC, whole seconds."""
    return now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_NOT_CARRIED_OUT = frozenset(
    {
        Reason.UNSAFE_SCALE_DOWN,
        Reason.UNSAFE_HIBERNATION,
        Reason.UNSAFE_FENCE,
        Reason.VOLUME_EXPANSION_REFUSED,
        Reason.SETTINGS_REFUSED,
        Reason.PAUSED_BY_SPEC,
        Reason.WAITING_FOR_APPROVAL,
    }
)
"""Nothing is under way with these, and the spec may wish something else than there is."""
STALLED = frozenset(
    {
        Reason.INVALID_SPEC,
        Reason.IMMUTABLE_FIELD,
        Reason.CLUSTER_HAS_FRONTS,
        Reason.VOLUMES_UNCLEAR,
        Reason.NAME_TAKEN,
        Reason.API_REFUSED,
        Reason.POD_CRASHING,
        Reason.ANOTHER_OWNS_IT,
        Reason.EXISTS_OTHERWISE,
        Reason.QUEUES_WOULD_SHRINK,
        Reason.HAS_QUEUE_MAP,
        Reason.REFUSED_BY_CONTROLLERS,
    }
)
"""Reasons that waiting does not cure. What is only not there yet, such as a ControllerGroup that is
applied together with its groups, is none of them: whoever waits would give up too early."""
_READY = (
    ("Accepted", "True"),
    ("Available", "True"),
    ("GroupsServed", "True"),
    ("FullyReplicated", "True"),
    ("Progressing", "False"),
)
"""What Ready stands for, the cause before its effects."""
_CRASHING = (_READY[0], _READY[-1])
"""The same while processes end in errors, which is the cause of all the rest."""


class Conditions:
    """Collects the conditions of one resource, against those it had before."""

    __slots__ = ("_generation", "_new", "_now", "_old")

    def __init__(self, old: Iterable[Condition], generation: int, now: dt.datetime) -> None:
        self._old = {condition.type: condition for condition in old}
        self._generation = generation
        self._now = timestamp(now)
        self._new: list[Condition] = []

    def set(self, name: str, status: ConditionStatus, reason: str, message: str) -> None:
        """Adds a condition; each type once."""
        old = self._old.get(name)
        kept = old.last_transition_time if old is not None and old.status == status else self._now
        self._new.append(
            Condition(
                type=name,
                status=status,
                reason=str(reason),
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

    def sum_up(self) -> None:
        """Adds Ready: True while all the others are as they should be, else the first that is not.

        Standard tools wait for this one, and for no other: it is True only for the present spec,
        carried out in full, by what serves, or asleep as the spec wishes. Processes that end in
        errors are the cause of what else is amiss.
        """
        known = {condition.type: condition for condition in self._new}
        asleep, accepted = known.get("Hibernated"), known.get("Accepted")
        if asleep is not None and asleep.status == "True" and _is_true(accepted):
            return self.conclude("True", Reason.HIBERNATED, asleep.message)
        for name, wished in _CRASHING if crashing(self._new) else _READY:
            found = known.get(name)
            if found is None or found.status == wished:
                continue
            status: ConditionStatus = "Unknown" if found.status == "Unknown" else "False"
            return self.conclude(status, found.reason, found.message)
        for found in self._new:
            if found.reason in _NOT_CARRIED_OUT:
                return self.conclude("False", found.reason, found.message)
        return self.conclude("True", Reason.AS_WISHED, "It serves, as its spec wishes.")

    def conclude(self, status: ConditionStatus, reason: str, message: str) -> None:
        """Sets Ready, and while it is False what kstatus reads: Stalled or Reconciling.

        Neither is there while nothing is under way that anybody could wait for, nor while it is
        not known: then they read Ready, and wait.
        """
        self.set("Ready", status, reason, message)
        if status != "False" or reason in _NOT_CARRIED_OUT:
            return
        name = "Stalled" if reason in STALLED else "Reconciling"
        self.set(name, "True", reason, message)

    def result(self) -> tuple[Condition, ...]:
        """All conditions, in the order in which they were set."""
        return tuple(self._new)


def _is_true(condition: Condition | None) -> bool:
    return condition is not None and condition.status == "True"


def find(conditions: Iterable[Condition], name: str) -> Condition | None:
    """The condition of a type."""
    return next((condition for condition in conditions if condition.type == name), None)


def crashing(conditions: Iterable[Condition]) -> bool:
    """Whether they tell that processes end in errors."""
    progressing = find(conditions, "Progressing")
    return progressing is not None and progressing.reason == Reason.POD_CRASHING
