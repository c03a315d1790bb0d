"""Proof that a fault bit, and that its heal took: what is measured, and what it must say. Pure.

The rule protected here: an experiment whose fault did nothing is no survived experiment. Each
verdict is a sentence that says why the fault is not proved, or empty.
"""

from __future__ import annotations

import math
import re
from statistics import median
from typing import TYPE_CHECKING, Literal

import msgspec

from gantry_chaos.core.actions import Command  # noqa: TC001 -- msgspec reads it

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHARE_PACKETS_MIN = 100  # fewer say little about a probability
SHARE_SIGMAS = 6.0
SLOW_SHARE = 0.5  # of the latency asked for, at least, must be seen by a connecting client


class Counters(msgspec.Struct, frozen=True, tag=True):
    """During the fault: the rules have matched packets.

    Attributes:
        commands: print the counters, one per namespace.
        probability: of a rule that rolls dice; None: every matched packet is struck.
    """

    commands: tuple[Command, ...]
    probability: float | None = None


class Connects(msgspec.Struct, frozen=True, tag=True):
    """Before, during and after the fault: attempts to connect, from a source to a target.

    Attributes:
        commands: print `ok MILLISECONDS` or `failed REASON`.
        expect: during the fault all attempts fail, or they take longer by about `latency_s`.
    """

    commands: tuple[Command, ...]
    expect: Literal["failure", "delay"]
    latency_s: float = 0.0


class Replaced(msgspec.Struct, frozen=True, tag=True):
    """Before and after the fault: each name belongs to another process, or to none."""

    names: tuple[str, ...]


Probe = Counters | Connects | Replaced


class RuleCount(msgspec.Struct, frozen=True):
    """One rule of a chain: packets it matched, and its target (empty: it only counts)."""

    packets: int
    target: str


_ROW = re.compile(r"^\s*(\d+)\s+\d+\s+(?:(DROP|NFQUEUE)\s+)?(?:all|0)\s", re.MULTILINE)


def counts(text: str) -> list[RuleCount]:
    """The rules in what `iptables -L CHAIN -v -x -n` prints."""
    return [RuleCount(int(packets), target) for packets, target in _ROW.findall(text)]


def counters_verdict(probe: Counters, texts: Sequence[str]) -> str:
    """Whether rules matched, and about as often as they should."""
    rows = [row for text in texts for row in counts(text)]
    struck = sum(row.packets for row in rows if row.target)
    if struck == 0:
        return f"None of {len(rows)} rules matched a packet: there was no traffic to strike."
    if probe.probability is None:
        return ""
    seen = sum(row.packets for row in rows if not row.target)
    expected = probe.probability
    if seen < SHARE_PACKETS_MIN:
        return f"Only {seen} packets passed, {SHARE_PACKETS_MIN} are needed to prove a loss."
    allowed = SHARE_SIGMAS * math.sqrt(expected * (1 - expected) / seen)
    if abs(struck / seen - expected) > allowed:
        return f"{struck} of {seen} packets were dropped where {expected:.1%} were asked for."
    return ""


class Attempt(msgspec.Struct, frozen=True):
    """One attempt to connect; None: it failed."""

    took_ms: float | None


def attempt(text: str) -> Attempt:
    """Read what a command of `Connects` printed; anything unexpected is no success."""
    word, _, rest = text.strip().partition(" ")
    try:
        return Attempt(float(rest) if word == "ok" else None)
    except ValueError:
        return Attempt(None)


def connects_verdict(probe: Connects, before: Sequence[Attempt], during: Sequence[Attempt]) -> str:
    """Whether connecting worked before and did not, or took longer, during the fault."""
    fine = [item.took_ms for item in before if item.took_ms is not None]
    if len(fine) < len(before) or not fine:
        return "Connecting failed already before the fault, so it proves nothing."
    passed = [item.took_ms for item in during if item.took_ms is not None]
    if probe.expect == "failure":
        if passed:
            return f"{len(passed)} of {len(during)} attempts to connect went through the partition."
        return ""
    if not passed:
        return "Nothing connected during the delay, which is a partition rather than a delay."
    slower_ms = median(passed) - median(fine)
    wanted_ms = probe.latency_s * 1000 * SLOW_SHARE
    if slower_ms < wanted_ms:
        return (
            f"Connecting took {slower_ms:.1f} ms longer during the fault, "
            f"{wanted_ms:.0f} ms were expected."
        )
    return ""


def healed_verdict(after: Sequence[Attempt]) -> str:
    """Whether everything connects again."""
    failed = sum(1 for item in after if item.took_ms is None)
    return f"{failed} of {len(after)} attempts to connect failed after the heal." if failed else ""


def replaced_verdict(probe: Replaced, before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Whether every target's process is another one now, or none.

    Args:
        probe: the targets.
        before: identity by name: a pod's uid, or a container's id.
        after: the same; a name that is missing is gone.
    """
    same = [name for name in probe.names if name in before and before[name] == after.get(name)]
    unknown = [name for name in probe.names if name not in before]
    if unknown:
        return f"It is not known who {', '.join(unknown)} was before the fault."
    return f"{', '.join(same)} still runs as the same process." if same else ""
