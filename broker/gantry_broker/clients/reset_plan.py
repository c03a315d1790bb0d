"""The plan of an offset reset: where it leads, and which are refused; decisions only.

Upstream: ``AdminBrokerProcessor.resetOffsetInner``. Different from it, what makes no sense is
refused in words (29) instead of being rounded to something nobody asked for.
"""

from collections.abc import Mapping
from typing import NamedTuple

from gantry_protocol.codes import ResponseCode

from gantry_broker.store.contract import Refusal

END = -1  # as a timestamp


class Wish(NamedTuple):
    """The request of an administrator.

    Attributes:
        queue_id: None means every queue.
        timestamp: store time in ms, or ``END``; of no meaning beside ``offset``.
        offset: an offset of the one queue.
        is_force: also forward; otherwise a group that is further back stays there.
    """

    queue_id: int | None
    timestamp: int
    offset: int | None
    is_force: bool


class QueueNow(NamedTuple):
    """A queue as it is.

    Attributes:
        minimum, maximum: the first offset served, and one past the last.
        at_time: the offset for the wish's timestamp.
        committed: where the group is; None when it never was there.
        has_before, goes_on: what is below ``minimum``, or from ``maximum`` on, is in another broker
            group, which says whether there is such an offset.
    """

    minimum: int
    maximum: int
    at_time: int
    committed: int | None
    has_before: bool = False
    goes_on: bool = False


class ResetMove(NamedTuple):
    """The way of a consumer group in a queue.

    Attributes:
        offset: where it goes on.
        again: from there on everything is consumed again; higher where the group is further back,
            and stays there.
    """

    offset: int
    again: int


def check(wish: Wish, queues: int) -> Refusal | None:
    """Refuse a wish for a topic with so many queues that none of them could fulfil."""
    if wish.queue_id is not None and not 0 <= wish.queue_id < queues:
        return _illegal(f"queue {wish.queue_id} does not exist, there are {queues}")
    if wish.offset is not None and wish.queue_id is None:
        return _illegal(f"offset {wish.offset} needs the queue that it is an offset of")
    if wish.offset is None and wish.timestamp < END:
        return _illegal(f"{wish.timestamp} is no time: write ms since 1970, or {END} for the end")
    return None


def plan(wish: Wish, queues: Mapping[int, QueueNow]) -> dict[int, ResetMove] | Refusal:
    """Moves by queue id, each within its queue; refused as a whole or not at all.

    An offset that is in another broker group leads to the end of what is here that is next to it:
    all of it is done, or comes again.
    """
    moves = {}
    for queue_id, now in queues.items():
        if wish.offset is not None and not _is_in(now, wish.offset):
            return _illegal(
                f"offset {wish.offset} is not in queue {queue_id}, which has {now.minimum} to"
                f" {now.maximum}"
            )
        moves[queue_id] = _move(wish, now)
    return moves


def _is_in(now: QueueNow, offset: int) -> bool:
    """Whether there may be such an offset, here or elsewhere."""
    is_below, is_above = offset < now.minimum, offset > now.maximum
    return offset >= 0 and (now.has_before or not is_below) and (now.goes_on or not is_above)


def unknown_group(group: str) -> Refusal:
    """Refuse a group that nobody has ever heard of: it was mistyped."""
    return Refusal(
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        f"the consumer group {group} has no members, no offsets and no setting here",
    )


def _move(wish: Wish, now: QueueNow) -> ResetMove:
    wanted = now.at_time if wish.offset is None else wish.offset
    if wish.offset is None and wish.timestamp == END:
        wanted = now.maximum
    wanted = min(max(wanted, now.minimum), now.maximum)
    if wish.is_force or now.committed is None or now.committed >= wanted:
        return ResetMove(wanted, wanted)
    return ResetMove(now.committed, wanted)


def _illegal(remark: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, f"the offset is not reset: {remark}")
