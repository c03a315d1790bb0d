"""The trace of a change of master, of which two processes have parts: the leader, the new master.

Its ids follow from the group and the new master epoch, so that nobody has to tell anybody: an epoch
is given once. The leader of the controllers has the root and what led to the election, the new
master what it did with it. All times are in whole milliseconds, like those in `status.lastFailover`
of a BrokerGroup: `noticeMs` is `notice`, `electionMs` is `decide` and `commit`, and `resumeMs` runs
from the end of `commit` to that of `first write`.
"""

import hashlib

import msgspec

from gantry_protocol.tracing.spans import Span, Value, child_id

_MS = 1_000_000  # ns
NOTICE, DECIDE, COMMIT, PROMOTE, FIRST_WRITE = range(1, 6)


class Change(msgspec.Struct, frozen=True):
    """A change of master; `epoch` is the new one's."""

    cluster: str
    group: str
    epoch: int

    @property
    def ids(self) -> tuple[int, int]:
        """The ids of the trace and of its root."""
        named = "\0".join(("master", self.cluster, self.group, str(self.epoch)))
        made = hashlib.sha256(named.encode()).digest()
        return int.from_bytes(made[:16]) or 1, int.from_bytes(made[16:24]) or 1

    @property
    def attributes(self) -> dict[str, Value]:
        """The group and the epoch, as each of its spans names them."""
        return {
            "gantry.cluster": self.cluster,
            "gantry.broker_group": self.group,
            "gantry.master_epoch": self.epoch,
        }

    def part(self, number: int, name: str, start_ms: int, end_ms: int) -> Span:
        """One of its parts; clocks of two nodes may have it end before it begins, and it is 0."""
        trace_id, root = self.ids
        return Span(
            name=name,
            trace_id=trace_id,
            span_id=child_id(root, number),
            parent_id=root,
            start_ns=start_ms * _MS,
            end_ns=max(start_ms, end_ms) * _MS,
            attributes=self.attributes,
        )


def seen_by_the_leader(
    change: Change,
    name: str,
    reason: str,
    *,
    heard_ms: int | None,
    noticed_ms: int | None,
    proposed_ms: int | None,
    elected_ms: int,
) -> list[Span]:
    """The root, and its parts before the new master hears of it; times in ms since 1970.

    Args:
        change: of master.
        name: of the root: what kind of change it is.
        reason: why there was an election; may be empty.
        heard_ms: when the old master was heard last; None if it never was.
        noticed_ms: when it was held to be gone; None if it was not.
        proposed_ms: when the election was decided on; None if somebody else asked for it.
        elected_ms: when a majority had it.
    """
    trace_id, root = change.ids
    if proposed_ms is not None:  # the others come from a clock of their own, rounded
        proposed_ms = min(max(proposed_ms, noticed_ms or proposed_ms), elected_ms)
    starts = [at for at in (heard_ms, noticed_ms, proposed_ms) if at is not None]
    spans = [
        Span(
            name=name,
            trace_id=trace_id,
            span_id=root,
            start_ns=min(*starts, elected_ms, elected_ms) * _MS,
            end_ns=elected_ms * _MS,
            attributes={**change.attributes, **({"gantry.reason": reason} if reason else {})},
        )
    ]
    if heard_ms is not None and noticed_ms is not None:
        spans.append(change.part(NOTICE, "notice", heard_ms, noticed_ms))
    if noticed_ms is not None:
        decided_ms = elected_ms if proposed_ms is None else proposed_ms
        spans.append(change.part(DECIDE, "decide", noticed_ms, decided_ms))
    if proposed_ms is not None:
        spans.append(change.part(COMMIT, "commit", proposed_ms, elected_ms))
    return spans


def promoted(change: Change, told_ms: int, promoted_ms: int) -> Span:
    """From the moment the new master heard of its epoch to that at which it serves under it."""
    return change.part(PROMOTE, "promote", told_ms, promoted_ms)


def first_write(change: Change, promoted_ms: int, first_ms: int) -> Span:
    """From there to the store time of the first record that was confirmed."""
    return change.part(FIRST_WRITE, "first write", promoted_ms, first_ms)
