"""Reads with a filter in SQL, over any store.

A store knows tags only. What it reads passes the filter here, above the storage boundary: so the
local log, the tier, a store behind a link and the log of a replica filter alike, and none of them,
whatever its version, has to know the filter.

Rules protected: the reader goes on behind what was examined, matching or not; and one look is
bounded in records, bytes and terms, so a filter that nothing passes holds nobody up.
"""

import asyncio
from typing import Protocol

from gantry_broker.clients.core.filters.sql import FILTERS
from gantry_broker.store.contract import (
    GetResult,
    GetStatus,
    QueueRead,
    ReadLimits,
    Refusal,
    WasRead,
)

LOOK_BYTES = 1024 * 1024
LATE_S = 1.0  # a store that took so long is not asked again before its reader is answered


class Readable(Protocol):
    """The part of a store that is read."""

    def read(self, wanted: QueueRead, done: WasRead) -> None:
        """Confirmed records of a queue."""


def further(wanted: QueueRead, sql: str, first: GetResult) -> QueueRead | None:
    """The second part of a look, when nothing of the first part passes; None if there is none."""
    if first.status is not GetStatus.NO_MATCHED_MESSAGE or first.next_offset >= first.max_offset:
        return None
    limits = ReadLimits(FILTERS.get(sql).records_max, LOOK_BYTES)
    return QueueRead(wanted.topic, wanted.queue_id, first.next_offset, limits)


def both(wanted: QueueRead, sql: str, first: GetResult, second: GetResult | Refusal) -> GetResult:
    """A look, of its two parts; where the second has no records, the reader hears so next time."""
    if isinstance(second, Refusal) or second.status is not GetStatus.FOUND:
        return first
    return FILTERS.apply(second, sql, wanted.limits)


def read_filtered(store: Readable, wanted: QueueRead, sql: str | None, done: WasRead) -> None:
    """``store.read``, and of that what passes; ``sql`` compiles."""
    if sql is None:
        store.read(wanted, done)
        return
    clock = asyncio.get_running_loop().time
    asked_s = clock()

    def was_read(result: GetResult | Refusal) -> None:
        if isinstance(result, Refusal):
            done(result)
            return
        first = FILTERS.apply(result, sql, wanted.limits)
        more = further(wanted, sql, first) if clock() - asked_s < LATE_S else None
        if more is None:
            done(first)
        else:
            store.read(more, lambda second: done(both(wanted, sql, first, second)))

    store.read(wanted, was_read)
