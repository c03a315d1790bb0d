"""The status of a resource in one line, for a column of `kubectl get`.

A pure function of the conditions and of a few figures. It holds still as they do: nothing in it
changes while nothing happens. The words before the brackets are few and documented, so that
scripts may look for them; whoever wants to know more reads the conditions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gantry_operator.plan.conditions import STALLED
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gantry_operator.models import Condition

MAX_WORDS = 80
"""Characters of a process's last sentence; the condition has all of it."""
HEALTHY = "Healthy"
_ENDING: dict[str, str] = {
    Reason.DELETING: "Deleting",
    Reason.DRAINING: "Draining",
    Reason.DRAIN_REFUSED: "Draining",
}
_WORDS: dict[str, str] = {
    Reason.ROLLING_UPDATE: "Rolling",
    Reason.REPLACING_FRONTS: "Rolling",
    Reason.CHANGING_SIZE: "Changing size",
    Reason.UNSAFE_SCALE_DOWN: "Not scaled down",
    Reason.UNSAFE_HIBERNATION: "Not hibernated",
    Reason.UNSAFE_FENCE: "Not fenced",
    Reason.VOLUME_EXPANSION_REFUSED: "Volumes not grown",
    Reason.SETTINGS_REFUSED: "Settings not applied",
    Reason.SWITCHOVER_IN_PROGRESS: "Switching over",
    Reason.MOVING_TO_ZONE: "Moving the master",
    Reason.PAUSED_BY_SPEC: "Paused",
    Reason.REPLICA_CATCHING_UP: "Catching up",
    Reason.LAST_IN_SYNC_REPLICA: "Catching up",
    Reason.CONTROLLER_UNREACHABLE: "Unknown (controllers unreachable)",
}
"""Reasons whose own words would not do."""
_WARNS = ("Fenced", "DiskFull", "LogDamaged")
"""Conditions that are there while something is so of which Ready does not speak."""
_KEPT = (Reason.UNSAFE_HIBERNATION, Reason.UNSAFE_FENCE)
"""Steps that are told although they are not under way."""


def headline(
    conditions: Iterable[Condition],
    *,
    extents: Mapping[str, str] | None = None,
    ending: str = "",
    crash: str = "",
) -> str:
    """The line.

    Args:
        conditions: all of them, Ready included.
        extents: by reason, how far what is under way has come, for example 2/3.
        ending: what a deletion waits for, or what is left to be consumed, in a few words.
        crash: the last words of a process that ends again and again.
    """
    known = {condition.type: condition for condition in conditions}
    ready, progressing = known.get("Ready"), known.get("Progressing")
    if ready is None:
        return ""
    ends = _ENDING.get((progressing or ready).reason)
    if ends is not None:
        return f"{ends} ({ending})" if ending else ends
    if ready.status == "True":
        return _words(ready.reason, {}) if "Hibernated" in known else _healthy(known)
    if ready.reason == Reason.POD_CRASHING:
        return f"Crashing: {_shortened(crash)}" if crash else "Crashing"
    accepted = known.get("Accepted")
    if ready.reason in STALLED or (accepted is not None and accepted.status == "False"):
        return f"Refused {ready.reason}"
    return _under_way(ready, progressing, extents or {})


def _under_way(ready: Condition, progressing: Condition | None, extents: Mapping[str, str]) -> str:
    """A step, with what does not work meanwhile; without one, what does not."""
    why = _words(ready.reason, extents)
    if progressing is None or ready.status == "Unknown":
        return why
    if progressing.status != "True" and progressing.reason not in _KEPT:
        return why
    step = _words(progressing.reason, extents)
    # A replica that is away for a step, or comes up, is the step itself.
    itself = (progressing.reason, Reason.REPLICA_CATCHING_UP, Reason.LAST_IN_SYNC_REPLICA)
    return step if ready.reason in itself else f"{step} ({why[:1].lower()}{why[1:]})"


def _healthy(known: dict[str, Condition]) -> str:
    warned = [name for name in _WARNS if name in known]
    tier = known.get("TierHealthy")
    if tier is not None and tier.status == "False":
        warned.append(f"tier {tier.reason}")
    return f"{HEALTHY} ({', '.join(warned)})" if warned else HEALTHY


def _words(reason: str, extents: Mapping[str, str]) -> str:
    """A reason as words, NoMaster as "No master", and how far that has come."""
    parts = re.findall(r"[A-Z]+[^A-Z]*", reason) or [reason]
    words = _WORDS.get(reason) or " ".join([parts[0], *(part.lower() for part in parts[1:])])
    return f"{words} {extents[reason]}" if extents.get(reason) else words


def _shortened(text: str) -> str:
    text = text.removesuffix(".")
    return text if len(text) <= MAX_WORDS else f"{text[: MAX_WORDS - 1]}…"
