"""Resets that a consumer has not followed yet.

A consumer that runs knows where it is better than its broker does: it would go on there, and commit
it, whatever was reset meanwhile. So a reset of a group that is being served stays *due* in its
queue: a pull from elsewhere is answered with the new offset (21), and what is committed is ignored,
until the consumer pulls from that offset or commits it.

Rule protected: a due reset is an offset of a group whose name no client can have, so it is written,
replicated, kept in checkpoints and dropped with its topic like any other, and outlives its master.

A reset may be a *request* with a number, which somebody makes again until it is answered. The
number is kept in the same way, written behind the offset: a request that was carried out in a queue
is not carried out there again, whoever is its master.
"""

from gantry_broker.store.tables.offsets import ConsumerOffsets

RESET_MARK = "<reset>"  # upstream's Validators allow neither bracket in a group's name
REQUEST_MARK = "<request>"


def is_mark(group: str) -> bool:
    """Whether ``group`` stands for resets; nobody may commit in its name, or be shown it."""
    return group.startswith((RESET_MARK, REQUEST_MARK))


def is_due(group: str) -> bool:
    """Whether ``group`` stands for due resets."""
    return group.startswith(RESET_MARK)


def owner_of(group: str) -> str:
    """The group that an offset belongs to, be it its own or what a reset left."""
    return group.removeprefix(RESET_MARK).removeprefix(REQUEST_MARK)


def last_request(offsets: ConsumerOffsets, group: str, topic: str, queue_id: int) -> int | None:
    """The number of the last request that was carried out in a queue; None: there was none."""
    return offsets.query(REQUEST_MARK + group, topic, queue_id)


def put_request(
    offsets: ConsumerOffsets, group: str, topic: str, queue_id: int, number: int
) -> bool:
    """Keep that a request was carried out; the offset has to be put before.

    It is written again while it may not last: once that record is confirmed the offset is, too.

    Returns:
        False when there are too many offsets for another one.
    """
    key = (REQUEST_MARK + group, topic, queue_id)
    is_kept = offsets.commit(*key, number)
    offsets.must_write(*key)
    return is_kept


def due_reset(offsets: ConsumerOffsets, group: str, topic: str, queue_id: int) -> int | None:
    """The offset at which ``group`` must go on in a queue; None when it may go on where it is."""
    return offsets.query(RESET_MARK + group, topic, queue_id)


def put_reset(
    offsets: ConsumerOffsets, group: str, topic: str, queue_id: int, offset: int, *, due: bool
) -> None:
    """Let ``group`` go on at ``offset``; with ``due`` a consumer that runs must follow first."""
    offsets.commit(group, topic, queue_id, offset)
    if due:
        offsets.commit(RESET_MARK + group, topic, queue_id, offset)
    else:
        offsets.forget(RESET_MARK + group, topic, queue_id)


def may_commit(
    offsets: ConsumerOffsets, group: str, topic: str, queue_id: int, offset: int
) -> bool:
    """Whether a commit counts; one of the offset that was due ends the reset."""
    if is_mark(group):
        return False
    due = offsets.query(RESET_MARK + group, topic, queue_id)
    if due == offset:
        offsets.forget(RESET_MARK + group, topic, queue_id)
    return due in (None, offset)


def forget_group(offsets: ConsumerOffsets, group: str) -> None:
    """Forget all offsets of a group that is deleted."""
    for name in (group, RESET_MARK + group, REQUEST_MARK + group):
        for row in offsets.of_group(name):
            offsets.forget(*row[:3])
