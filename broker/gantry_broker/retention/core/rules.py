"""Rules of retention: how much of a log is kept, and what may go of its beginning; pure.

A log loses whole files, oldest first, by age (``hours``), by size (``bytes``), and before its time
when the disk is nearly full. Consumed, expired and deleted messages leave the disk in no other way.
Where a tier holds the log, ``tier.core.retention`` decides instead; what both need is here.

Rules protected:

* Nothing goes that is not confirmed, nor what a member of the sync-state set, a parked message or
  an open transaction needs, however full the disk is. A replica outside the set keeps the log from
  ageing while it copies; it does not keep a full disk full, since it can begin anew where the log
  begins then.
* What follows from the log and is in force (topics, consumer offsets, numbers of queues) stands
  behind the cut as a whole, confirmed state (``store.tables.state_records``). Where none is new
  enough the master writes one, ahead of time while the disk fills: a full disk would not take it.
* Whole files only, never the one that is written.

Every member decides for itself, by its own log and disk, and no word of the master is needed: what
goes is confirmed, so every member of the set had it. A replica that ends below where its master's
log begins throws its own away and begins there (``replica.handshake``).
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from gantry_protocol.types import Offset

STATE_SHARE = 4  # the log grows by this many times the last state before another is written
HOUR_MS = 3_600_000
FILES_IN_A_DISK = 16  # at least: the file that is written cannot go, however full the disk is
FILES_IN_A_LOG = 4  # the same for a log that is bounded in bytes


class Keep(msgspec.Struct, frozen=True):
    """Nothing to do.

    Attributes:
        reason: what keeps more on the disk than the retention asks for; empty for nothing.
    """

    reason: str = ""


class WriteState(msgspec.Struct, frozen=True):
    """Append the whole state; once it is confirmed, the log may be trimmed."""


class Trim(msgspec.Struct, frozen=True):
    """Let the log begin at ``to``, where one of its files begins."""

    to: Offset


Decision = Keep | WriteState | Trim


class LogNow(msgspec.Struct, frozen=True, kw_only=True):
    """A log at one moment.

    Attributes:
        starts: where each file of the log begins, oldest first.
        log_start: where the log begins.
        end: where it ends.
        confirm: everything below is confirmed.
        whole_from: where the newest whole state in the confirmed log begins; None without one.
        state_bytes: how long the last state was that this broker wrote.
        state_end: where it ended.
        writes: this is the serving master, and may append.
    """

    starts: Sequence[Offset]
    log_start: Offset
    end: Offset
    confirm: Offset
    whole_from: Offset | None
    state_bytes: int = 0
    state_end: Offset = Offset(0)
    writes: bool = False


class RetentionBounds(NamedTuple):
    """The bounds of a log where there is no tier.

    Attributes:
        hours: files go once all of their messages are older; None keeps them for ever.
        bytes: how much of the confirmed log is kept; None sets no bound.
        gives_way: the oldest files go before their time when the disk is nearly full.
    """

    hours: float | None = None
    bytes: int | None = None
    gives_way: bool = True


class Need(NamedTuple):
    """Somebody needs the log from ``at`` on; ``who`` is for people."""

    at: Offset
    who: str


class Facts(LogNow, frozen=True, kw_only=True):
    """The state of a log without a tier at one moment.

    Attributes:
        kept: how much is to be kept.
        expired_to: where the oldest file begins that holds a message which is young enough.
        disk_is_full: the disk is nearly full.
        disk_fills: it is not far from that.
        needed: by members of the set, parked messages and transactions.
        copied: by replicas outside the set.
    """

    kept: RetentionBounds
    expired_to: Offset
    disk_is_full: bool = False
    disk_fills: bool = False
    needed: Sequence[Need] = ()
    copied: Sequence[Need] = ()


def decide(facts: Facts) -> Decision:
    """The deletion that is due now."""
    due = facts.expired_to
    if facts.kept.bytes is not None:
        due = max(due, file_start(facts, Offset(max(0, facts.confirm - facts.kept.bytes))))
    pressed = facts.disk_is_full and facts.kept.gives_way
    forced = _second(facts) if pressed else facts.log_start
    if max(due, forced) <= facts.log_start:
        return _nothing_due(facts, pressed=pressed)
    needed = min((need.at for need in facts.needed), default=facts.confirm)
    needed = min(needed, facts.confirm)
    copied = min((need.at for need in facts.copied), default=needed)
    allowed = max(min(due, needed, copied), min(forced, needed))
    safe = file_start(facts, allowed)
    if safe > facts.log_start:
        return toward(facts, safe)
    return Keep(_what_holds(facts))


def _second(facts: Facts) -> Offset:
    """Where the log begins once one file more is gone."""
    later = [start for start in facts.starts[:2] if start > facts.log_start]
    return later[0] if later else facts.log_start


def _nothing_due(facts: Facts, *, pressed: bool) -> Decision:
    if pressed:
        return Keep("the disk is nearly full, and all that the log has is the file that is written")
    newest = facts.starts[-1] if facts.starts else facts.log_start
    is_ready = newest == facts.log_start or newest <= (facts.whole_from or 0)
    if facts.disk_fills and facts.kept.gives_way and facts.writes and not is_ready:
        written = _write(facts)
        return written if isinstance(written, WriteState) else Keep()
    return Keep()


def _what_holds(facts: Facts) -> str:
    holds = min((*facts.needed, *facts.copied), default=None)
    if holds is None or facts.confirm < holds.at:
        return f"the log is confirmed up to {facts.confirm} only, and begins at {facts.log_start}"
    return f"{holds.who} needs the log from {holds.at} on, and it begins at {facts.log_start}"


def toward(log: LogNow, safe: Offset) -> Decision:
    """Trim to ``safe``, or as near as a whole state stands behind the cut; or have one written."""
    if log.whole_from is not None:
        described = file_start(log, min(safe, log.whole_from))
        if described > log.log_start:
            return Trim(described)
    return _write(log)


def _write(log: LogNow) -> Decision:
    if not log.writes:
        return Keep("the master has to write the state of the log first")
    if log.end < log.state_end + STATE_SHARE * log.state_bytes:
        return Keep(
            f"the last state has {log.state_bytes} bytes; the next is written when the log has "
            f"grown by {STATE_SHARE} times as much"
        )
    return WriteState()


def file_start(log: LogNow, bound: Offset) -> Offset:
    """The newest start of a file at or below ``bound``."""
    index = bisect_right(log.starts, bound) - 1
    return log.starts[index] if index >= 0 else log.log_start


def bounded_file_bytes(wanted: int, disk_bytes: int, log_bytes: int | None, least: int) -> int:
    """The size of a file: as wanted, unless so few would fit that none could go.

    Args:
        wanted: what is set.
        disk_bytes: of the whole disk.
        log_bytes: how much of the log is kept; None for no bound.
        least: no bound makes it less.
    """
    bound = disk_bytes // FILES_IN_A_DISK
    if log_bytes is not None:
        bound = min(bound, log_bytes // FILES_IN_A_LOG)
    return min(wanted, max(bound, least))
