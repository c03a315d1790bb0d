"""A store that answers what it is asked a moment later, as one in another process does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any

from gantry_broker.store.contract import (
    Appended,
    Confirmed,
    Learned,
    QueueQuestion,
    Read,
    Records,
    Store,
    Taken,
    WasRead,
)
from gantry_broker.store.tables.offsets import ConsumerOffsets
from gantry_broker.store.tables.topics import TopicTable

LATE_S = 0.001


class LateStore:
    """Reads and questions are answered as of now, `LATE_S` later; the rest is passed on."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def topics(self) -> TopicTable:
        return self._store.topics

    @property
    def committed(self) -> ConsumerOffsets:
        return self._store.committed

    def append(self, records: Records, done: Appended, *, once: int | None = None) -> None:
        self._store.append(records, done, once=once)

    def read(self, wanted: Read, done: WasRead) -> None:
        self._store.read(wanted, _later(done))

    def offsets(self, questions: Sequence[QueueQuestion], done: Learned) -> None:
        self._store.offsets(questions, _later(done))

    def subscribe(
        self, confirmed: Confirmed, topics: Collection[str] | None = None
    ) -> Callable[[], None]:
        return self._store.subscribe(confirmed, topics)

    def snapshot(self, done: Taken) -> None:
        self._store.snapshot(_later(done))


def _later(done: Callable[[Any], None]) -> Callable[[Any], None]:
    loop = asyncio.get_running_loop()
    return lambda answer: (loop.call_later(LATE_S, done, answer), None)[1]
