"""Deletion of a log's oldest files, and what must be said first of what they say.

Pure: facts in, one decision out. Rules protected, each a term of the minimum:

* T10: nothing the tier does not hold. ``committed_end`` is what the upload role vouches for, or
  what a replica read in the chain and compared with its own log; the tier's last record stays,
  because the next master compares it.
* Nothing that could not be read from the tier: ``readable_end`` of this broker's own index.
* Nothing somebody is about to read here: pins.
* Topics, consumer offsets and queue numbers travel in the log. Nothing from the beginning of the
  newest whole, confirmed state on (``store.tables.state_records``); where there is none that is new
  enough, the master writes one first.
* Whole files only, never the one that is written.

Every member decides for itself, by its own copy of this evidence. No word of the master is needed:
the chain is the same for all, and a version that is in it stays.
"""

from gantry_protocol.types import Offset

from gantry_broker.retention.core.rules import Decision, Keep, LogNow, file_start, toward
from gantry_broker.tier.core.trim import trim_bound


class Facts(LogNow, frozen=True, kw_only=True):
    """The state at one moment.

    Attributes:
        local_bytes: how much of the confirmed log is kept; None keeps everything.
        committed_end: the tier holds everything below; None while that must not be said.
        tail_at: where the tier's last record begins; None while it has none.
        readable_end: this broker can read the tier up to here.
        pins: offsets from which somebody was promised the log.
    """

    local_bytes: int | None
    committed_end: Offset | None
    tail_at: Offset | None
    readable_end: Offset
    pins: tuple[Offset, ...] = ()


def decide(facts: Facts) -> Decision:
    """The trim that is due now."""
    if facts.local_bytes is None:
        return Keep()
    wanted = file_start(facts, max(Offset(0), Offset(facts.confirm - facts.local_bytes)))
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
    safe = file_start(facts, bound)
    if safe <= facts.log_start:
        return Keep(
            f"the tier holds the log up to {facts.committed_end} and can be read up to "
            f"{facts.readable_end}, the log is read from {min(facts.pins, default=facts.end)}"
        )
    return toward(facts, safe)
