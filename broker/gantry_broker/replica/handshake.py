"""The handshake of a replica: where it has to cut its log, and when it must rather not.

Rule protected (H8 of the data plane): the truncation point is the last common (epoch, start) and
then the nearer end, so that afterwards the replica's log is a prefix of the master's. The replica
makes the cut durable before its first acknowledgement in the new epoch: an acknowledgement vouches
for every byte below it.

The guard: the replica itself checks the point against the confirm offset it knows. Every master
is elected from the sync-state set, every member of which holds everything below confirm, so a
point below confirm proves that somebody broke that rule. Then the only copy of acknowledged
records may be this one, and it is kept.
"""

from gantry_protocol.types import Epoch, EpochEntry, Offset

from gantry_broker.replica.lineage import Lineage, LineageError, LogFacts, consistent_point
from gantry_broker.replica.messages import Hello, Truncate


def answer_hello(hello: Hello, mine: LogFacts, epoch: Epoch, incarnation: str) -> Truncate | str:
    """The master's answer: the cut that makes the replica's log a prefix of ours, or a refusal.

    Returns:
        ``Truncate``, or one sentence why this replica cannot be served.
    """
    try:
        theirs = Lineage(hello.lineage)
    except LineageError as error:
        return f"its lineage is damaged: {error}"
    if theirs.last_epoch > epoch:
        return f"its lineage reaches epoch {theirs.last_epoch}, ours is {epoch}"
    if not 0 <= hello.log_start <= hello.end:
        return f"its log starts at {hello.log_start} and ends at {hello.end}"
    point, reset = _common_end(hello, theirs, mine)
    entry = mine.lineage.entry_at(point)
    if entry is None:
        return f"our lineage does not cover {point}"
    return Truncate(epoch=epoch, incarnation=incarnation, point=point, entry=entry, reset=reset)


def _common_end(hello: Hello, theirs: Lineage, mine: LogFacts) -> tuple[Offset, bool]:
    """The truncation point, and whether the replica has to start over there."""
    found = consistent_point(theirs, hello.end, mine.lineage, mine.end)
    common = Offset(0) if found is None else found
    is_stale = False
    if hello.end == hello.log_start and common < hello.end:
        # An empty log: nothing in it can be wrong. A lineage beside it that says otherwise is that
        # of the log before; the process ended between throwing that away and saving the new one.
        common, is_stale = hello.end, bool(theirs.cut(hello.end).entries)
    point = min(common, hello.end, mine.end)
    if point < mine.log_start or point < hello.log_start:
        return mine.log_start, True
    return point, is_stale


def refuse_truncate(message: Truncate, mine: LogFacts) -> str | None:
    """The reason why the replica must not cut its log as told; None when it may."""
    if message.point < mine.confirm:
        return (
            f"the master of epoch {message.epoch} asks to cut the log at {message.point}, "
            f"below the confirm offset {mine.confirm}"
        )
    if not message.reset and not mine.log_start <= message.point <= mine.end:
        return f"{message.point} is outside the log [{mine.log_start}, {mine.end})"
    return None


def lineage_after(message: Truncate, mine: LogFacts) -> Lineage:
    """The replica's lineage once the cut is made, with the entry that covers the next byte.

    Raises:
        LineageError: the master's entry contradicts what remains of ours.
    """
    kept = Lineage() if message.reset else mine.lineage.cut(message.point)
    return continued(kept, message.entry)


def continued(lineage: Lineage, entry: EpochEntry) -> Lineage:
    """``lineage`` with ``entry`` as its newest line; unchanged when it already is.

    Raises:
        LineageError: ``entry`` is not newer than what starts below it.
    """
    return lineage if lineage.last == entry else lineage.with_epoch(entry)
