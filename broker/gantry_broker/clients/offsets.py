"""Positions: 14 and 15 (how far a group has come), 29 to 33 (what a queue holds)."""

import asyncio
from collections.abc import Callable

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import GantryError
from gantry_protocol.headers.client import (
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.process import log
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients.tier_pulls import TierReads
from gantry_broker.clients.topic_rules import unknown_topic
from gantry_broker.clients.view import GroupView, SendOutcome
from gantry_broker.queues import MessageStore
from gantry_broker.queues.offsets import OffsetKey
from gantry_broker.tier.locate import Queue
from gantry_broker.tier.reading import Local

WRITE_INTERVAL_S = 0.1
# A new group starts at 0, whatever it asked for, while the first message is this close to the end;
# upstream's rule is "still in memory", which is 40 % of the machine's.
_YOUNG_QUEUE_BYTES = 1024 * 1024 * 1024

_log = log.get("offsets")


class OffsetWriter:
    """Writes committed offsets to the log: at most every 100 ms, all that changed at once."""

    def __init__(self, view: GroupView) -> None:
        self._view = view
        self._timer: asyncio.TimerHandle | None = None
        self._is_writing = False
        self._is_closed = False
        self._waiting: list[Callable[[], None]] = []  # for the end of the write after this one

    def soon(self) -> None:
        """Some offset changed."""
        if self._timer is None and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(WRITE_INTERVAL_S, self._due)

    def now(self, done: Callable[[], None]) -> None:
        """Write what has changed, though sends may be refused already; then call ``done``."""
        self._waiting.append(done)
        if not self._is_writing:
            self._write()

    def close(self) -> None:
        """Write no more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.clear()

    def _due(self) -> None:
        self._timer = None
        if self._is_writing or self._view.accepting_writes() is not None:
            self.soon()
        elif self._view.store.offsets.is_dirty:
            self._write()

    def _write(self) -> None:
        offsets = self._view.store.offsets
        waiting, self._waiting = self._waiting, []
        records, keys = offsets.take_records()
        for record in records:
            record.store_host = record.born_host = self._view.store_host
        if not records:
            for done in waiting:
                done()
            return
        self._is_writing = True
        try:
            self._view.append(records, lambda outcome: self._written(outcome, keys, waiting))
        except GantryError as error:
            outcome = SendOutcome(ResponseCode.SYSTEM_ERROR, str(error))
            self._written(outcome, keys, waiting)

    def _written(
        self, outcome: SendOutcome, keys: list[OffsetKey], waiting: list[Callable[[], None]]
    ) -> None:
        self._is_writing = False
        if self._is_closed:
            return
        if outcome.code != ResponseCode.SUCCESS:
            _log.warning("offsets were not confirmed, writing them again", reason=outcome.remark)
            self._view.store.offsets.put_back(keys)
            self.soon()
        for done in waiting:
            done()
        if self._waiting:
            self._write()


class Positions:
    """Serves 14, 15 and 29 to 33."""

    def __init__(
        self, view: GroupView, writer: OffsetWriter, tier: TierReads | None = None
    ) -> None:
        self._view = view
        self._writer = writer
        self._tier = tier

    @property
    def _store(self) -> MessageStore:
        return self._view.store

    def query(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """14."""
        header = from_ext(QueryConsumerOffsetRequestHeader, request.ext)
        found = self._store.offsets.query(header.consumer_group, header.topic, header.queue_id)
        if found is None and header.set_zero_if_not_found is not False:
            found = self._start_of_young_queue(header.topic, header.queue_id)
        if found is None:
            remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
            return reply(request, ResponseCode.QUERY_NOT_FOUND, remark)
        return reply(request, ext={"offset": str(found)})

    def _start_of_young_queue(self, topic: str, queue_id: int) -> int | None:
        """0 where a new group should not skip the few messages there are, else None."""
        config = self._store.topics.lookup(topic)
        if config is None or not 0 <= queue_id < config.read_queue_nums:
            return None
        if self._store.local_min_offset(topic, queue_id) != 0:
            return None
        behind_bytes = self._store.bytes_behind(topic, queue_id, 0)
        return 0 if behind_bytes is None or behind_bytes <= _YOUNG_QUEUE_BYTES else None

    def update(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """15; any group may commit, since groups are not created but simply appear."""
        header = from_ext(UpdateConsumerOffsetRequestHeader, request.ext)
        topic = self._store.topics.lookup(header.topic)
        if topic is None:
            return reply(request, *unknown_topic(header.topic))
        if not 0 <= header.queue_id < topic.read_queue_nums or header.commit_offset < 0:
            remark = f"queue {header.queue_id} or offset {header.commit_offset} is illegal"
            return reply(request, ResponseCode.INVALID_PARAMETER, remark)
        self.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        return reply(request)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember how far a group has come, now here and soon in the log."""
        self._store.offsets.commit(group, topic, queue_id, offset)
        if self._store.offsets.is_dirty:
            self._writer.soon()

    def search(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """29."""
        header = from_ext(SearchOffsetRequestHeader, request.ext)
        found = self._store.offset_at_time(
            header.topic,
            header.queue_id,
            header.timestamp,
            upper=header.boundary_type.upper() == "UPPER",
        )
        found = self._earlier(header.topic, header.queue_id, header.timestamp, found)
        return reply(request, ext={"offset": str(found)})

    def _earlier(self, topic: str, queue_id: int, timestamp: int, found: int) -> int:
        """``found`` in the local log, or a run of the tier that may have an earlier one."""
        first = self._store.min_offset(topic, queue_id)
        low = self._store.local_min_offset(topic, queue_id)
        if self._tier is None or first == low or found > low:
            return found
        local = Local(self._store.log.log_start, low)
        earlier = self._tier.since(Queue(topic, queue_id), timestamp, local)
        return found if earlier is None else max(first, min(found, earlier))

    def maximum(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """30: confirmed, whatever ``committed`` says; nothing else is ever shown to clients."""
        header = from_ext(QueueRequestHeader, request.ext)
        found = self._store.max_offset(header.topic, header.queue_id)
        return reply(request, ext={"offset": str(found)})

    def minimum(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """31."""
        header = from_ext(QueueRequestHeader, request.ext)
        found = self._store.min_offset(header.topic, header.queue_id)
        return reply(request, ext={"offset": str(found)})

    def earliest(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """32."""
        header = from_ext(QueueRequestHeader, request.ext)
        first = self._store.min_offset(header.topic, header.queue_id)
        found = self._store.store_time(header.topic, header.queue_id, first)
        local = self._store.local_min_offset(header.topic, header.queue_id)
        if self._tier is not None and first < local:
            found = self._tier.earliest(Queue(header.topic, header.queue_id))
        return reply(request, ext={"timestamp": str(-1 if found is None else found)})

    def view(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """33."""
        header = from_ext(ViewMessageRequestHeader, request.ext)
        found = self._store.view(header.offset)
        if found is None:
            remark = f"can not find message by the offset, {header.offset}"
            return reply(request, ResponseCode.SYSTEM_ERROR, remark)
        return reply(request, body=found)
