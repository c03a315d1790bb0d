"""When a broker may delete the oldest files of its log, and when it must first say what they say.

Pure: facts in, one decision out. Rules protected, each a term of the minimum:

* T10: nothing the tier does not hold. ``committed_end`` is what the upload role vouches for, or
  what a replica read in the chain and compared with its own log; the tier's last record stays,
  because the next master compares it.
* Nothing that could not be read from the tier: ``readable_end`` of this broker's own index.
* Nothing somebody is about to read here: pins.
* Topics, consumer offsets and queue numbers travel in the log. Nothing from the beginning of the
  newest whole, confirmed state on (``queues.state_records``); where there is none that is new
  enough, the master writes one first.
* Whole files only, never the one that is written.

Every member decides for itself, by its own copy of this evidence. No word of the master is needed:
the chain is the same for all, and a version that is in it stays.
"""

from bisect import bisect_right
from collections.abc import Sequence

import msgspec
from gantry_protocol.types import Offset

from gantry_broker.tier.trim import trim_bound

STATE_SHARE = 4  # the log grows by this many times the last state before another is written


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known at one moment.

    Attributes:
        local_bytes: how much of the confirmed log is kept; None keeps everything.
        starts: where each file of the log begins, oldest first.
        log_start: where the log begins.
        end: where it ends.
        confirm: everything below is confirmed.
        committed_end: the tier holds everything below; None while that must not be said.
        tail_at: where the tier's last record begins; None while it has none.
        readable_end: this broker can read the tier up to here.
        whole_from: where the newest whole state in the confirmed log begins; None without one.
        pins: offsets from which somebody was promised the log.
        state_bytes: how long the last state was that this broker wrote.
        state_end: where it ended.
        writes: this is the serving master, and may append.
    """

    local_bytes: int | None
    starts: Sequence[Offset]
    log_start: Offset
    end: Offset
    confirm: Offset
    committed_end: Offset | None
    tail_at: Offset | None
    readable_end: Offset
    whole_from: Offset | None
    pins: tuple[Offset, ...] = ()
    state_bytes: int = 0
    state_end: Offset = Offset(0)
    writes: bool = False


class Keep(msgspec.Struct, frozen=True):
    """Nothing to do.

    Attributes:
        reason: what keeps more on the disk than the local retention asks for; empty for nothing.
    """

    reason: str = ""


class WriteState(msgspec.Struct, frozen=True):
    """Append the whole state; once it is confirmed, the log may be trimmed."""


class Trim(msgspec.Struct, frozen=True):
    """Let the log begin at ``to``, where one of its files begins."""

    to: Offset


Decision = Keep | WriteState | Trim


def decide(facts: Facts) -> Decision:
    """What is to be done now."""
    if facts.local_bytes is None:
        return Keep()
    wanted = _file_start(facts, max(Offset(0), Offset(facts.confirm - facts.local_bytes)))
    if wanted <= facts.log_start:
        return Keep()
    if facts.committed_end is None or facts.tail_at is None:
        return Keep("this broker does not know yet what the tier holds")
    held = min(facts.committed_end, facts.tail_at, facts.readable_end, facts.confirm)
    bound = trim_bound(
        committed_end=Offset(held),
        local_start=facts.log_start,
        retained_from=wanted,
        pins=facts.pins,
    )
    safe = _file_start(facts, bound)
    if safe <= facts.log_start:
        return Keep(
            f"the tier holds the log up to {facts.committed_end} and can be read up to "
            f"{facts.readable_end}, the log is read from {min(facts.pins, default=facts.end)}"
        )
    if facts.whole_from is not None:
        described = _file_start(facts, min(safe, facts.whole_from))
        if described > facts.log_start:
            return Trim(described)
    return _write(facts)


def _write(facts: Facts) -> Decision:
    if not facts.writes:
        return Keep("the master has to write the state of the log first")
    if facts.end < facts.state_end + STATE_SHARE * facts.state_bytes:
        return Keep(
            f"the last state has {facts.state_bytes} bytes; the next is written when the log has "
            f"grown by {STATE_SHARE} times as much"
        )
    return WriteState()


def _file_start(facts: Facts, bound: Offset) -> Offset:
    """The newest start of a file at or below ``bound``."""
    index = bisect_right(facts.starts, bound) - 1
    return facts.starts[index] if index >= 0 else facts.log_start
