"""The comparison of a new master's log with what the tier holds; pure.

On every clean winner ``log_start <= T <= end``, and lineage and bytes below T are the tier's: the
tier holds only what was confirmed (T6), and whoever may be elected has all of that (H5, H7).
Gantry elects nobody else, so a difference is evidence of damage, of a volume from elsewhere, or of
a bug. Repairing it would choose which copy to destroy; a person has to (ADR 0012).
"""

from gantry_protocol.tier.chain import ChainState
from gantry_protocol.types import EpochEntry, Offset

from gantry_broker.replica.lineage import Lineage
from gantry_broker.tier.core.values import LocalLog


def lineage_of(lineage: Lineage, start: Offset, end: Offset) -> tuple[EpochEntry, ...]:
    """The lineage of [start, end): the entry that covers ``start``, and those that begin inside."""
    if start >= end:
        return ()
    covering = lineage.entry_at(start)
    inside = [entry for entry in lineage.entries if start < entry.start_offset < end]
    return tuple(inside) if covering is None else (covering, *inside)


def mismatch(chain: ChainState, local: LocalLog) -> str | None:
    """The reason why this log does not continue the chain, in one sentence; None when it may.

    The last record below the tier's end is compared by the caller: that takes a read.
    """
    tier_end = Offset(chain.end)
    if local.log_start > tier_end:
        return (
            f"the tier ends at {tier_end} but this broker's log starts at {local.log_start}: "
            f"[{tier_end}, {local.log_start}) is lost to the tier; start a broker that still has it"
        )
    if local.end < tier_end:
        return (
            f"the tier ends at {tier_end} but this broker's log ends at {local.end}: it lacks "
            f"confirmed records; look for the volume of an earlier master before you write more"
        )
    start = max(Offset(chain.first), local.log_start)
    theirs = lineage_of(Lineage(chain.lineage), start, tier_end)
    ours = lineage_of(local.lineage, start, tier_end)
    if chain.base:  # where the oldest epoch began stood in a version that is gone
        theirs, ours = _clamped(theirs, start), _clamped(ours, start)
    if theirs != ours:
        return (
            f"in [{start}, {tier_end}) the tier was written by {_listed(theirs)} and this broker's "
            f"log by {_listed(ours)}: they are different histories; keep both and compare them"
        )
    return None


def _clamped(entries: tuple[EpochEntry, ...], start: Offset) -> tuple[EpochEntry, ...]:
    """The entries, none of them before ``start``."""
    return tuple(EpochEntry(entry.epoch, max(entry.start_offset, start)) for entry in entries)


def _listed(entries: tuple[EpochEntry, ...]) -> str:
    return (
        ", ".join(f"epoch {entry.epoch} from {entry.start_offset}" for entry in entries) or "nobody"
    )
