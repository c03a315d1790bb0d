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
from gantry_protocol.types import Offset

from gantry_broker.clients.topic_rules import unknown_topic
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import (
    FIRST,
    GetResult,
    QueueOffsets,
    QueueQuestion,
    Refusal,
    SendOutcome,
)
from gantry_broker.tables.offsets import OffsetKey
from gantry_broker.tables.resets import may_commit

WRITE_INTERVAL_S = 0.1
# A new group starts at 0, whatever it asked for, while the first message is this close to the end;
# upstream's rule is "still in memory", which is 40 % of the machine's.
_YOUNG_QUEUE_BYTES = 1024 * 1024 * 1024

Written = Callable[[SendOutcome], None]

_log = log.get("offsets")


class OffsetWriter:
    """Writes committed offsets to the log: at most every 100 ms, all that changed at once."""

    def __init__(self, view: GroupView) -> None:
        self._view = view
        self._timer: asyncio.TimerHandle | None = None
        self._is_writing = False
        self._is_closed = False
        self._waiting: list[Written] = []  # for the end of the write after this one

    def soon(self) -> None:
        """Some offset changed."""
        if self._timer is None and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(WRITE_INTERVAL_S, self._due)

    def now(self, done: Written) -> None:
        """Write what has changed, though sends may be refused already; then tell ``done``."""
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
        elif self._view.store.committed.is_dirty:
            self._write()

    def _write(self) -> None:
        offsets = self._view.store.committed
        waiting, self._waiting = self._waiting, []
        records, keys = offsets.take_records()
        for record in records:
            record.store_host = record.born_host = self._view.store_host
        if not records:
            for done in waiting:
                done(SendOutcome(ResponseCode.SUCCESS))
            return
        self._is_writing = True
        try:
            self._view.store.append(records, lambda outcome: self._written(outcome, keys, waiting))
        except GantryError as error:
            outcome = SendOutcome(ResponseCode.SYSTEM_ERROR, str(error))
            self._written(outcome, keys, waiting)

    def _written(self, outcome: SendOutcome, keys: list[OffsetKey], waiting: list[Written]) -> None:
        self._is_writing = False
        if self._is_closed:
            return
        if outcome.code != ResponseCode.SUCCESS:
            _log.warning("offsets were not confirmed, writing them again", reason=outcome.remark)
            self._view.store.committed.put_back(keys)
            self.soon()
        for done in waiting:
            done(outcome)
        if self._waiting:
            self._write()


class Positions:
    """Serves 14, 15 and 29 to 33."""

    def __init__(self, view: GroupView, writer: OffsetWriter) -> None:
        self._store = view.store
        self._writer = writer

    def query(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """14."""
        header = from_ext(QueryConsumerOffsetRequestHeader, request.ext)
        found = self._store.committed.query(header.consumer_group, header.topic, header.queue_id)
        if found is not None:
            return _offset(request, found)
        config = self._store.topics.lookup(header.topic)
        if (
            header.set_zero_if_not_found is False
            or config is None
            or not 0 <= header.queue_id < config.read_queue_nums
        ):
            return _not_found(request)
        question = QueueQuestion(header.topic, header.queue_id)
        self._ask(
            conn,
            request,
            question,
            lambda queue: _offset(request, 0) if _is_young(queue) else _not_found(request),
        )
        return None

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
        if may_commit(self._store.committed, group, topic, queue_id, offset):
            self._store.committed.commit(group, topic, queue_id, offset)
        if self._store.committed.is_dirty:
            self._writer.soon()

    def search(self, conn: Connection, request: RemotingCommand) -> None:
        """29."""
        header = from_ext(SearchOffsetRequestHeader, request.ext)
        question = QueueQuestion(
            header.topic,
            header.queue_id,
            since=header.timestamp,
            upper=header.boundary_type.upper() == "UPPER",
        )
        self._ask(conn, request, question, lambda queue: _offset(request, queue.found or 0))

    def maximum(self, conn: Connection, request: RemotingCommand) -> None:
        """30: confirmed, whatever ``committed`` says; nothing else is ever shown to clients."""
        question = _queue(request)
        self._ask(conn, request, question, lambda queue: _offset(request, queue.max_offset))

    def minimum(self, conn: Connection, request: RemotingCommand) -> None:
        """31."""
        question = _queue(request)
        self._ask(conn, request, question, lambda queue: _offset(request, queue.min_offset))

    def earliest(self, conn: Connection, request: RemotingCommand) -> None:
        """32."""

        def answer(queue: QueueOffsets) -> RemotingCommand:
            stored_at = -1 if queue.stored_at is None else queue.stored_at
            return reply(request, ext={"timestamp": str(stored_at)})

        self._ask(conn, request, _queue(request, FIRST), answer)

    def view(self, conn: Connection, request: RemotingCommand) -> None:
        """33."""
        offset = from_ext(ViewMessageRequestHeader, request.ext).offset

        def was_read(result: GetResult | Refusal) -> None:
            if isinstance(result, Refusal):
                answer = reply(request, *result)
            elif result.count:
                answer = reply(request, body=result.body)
            else:
                remark = f"can not find message by the offset, {offset}"
                answer = reply(request, ResponseCode.SYSTEM_ERROR, remark)
            conn.reply(request, answer)

        self._store.read(Offset(offset), was_read)

    def _ask(
        self,
        conn: Connection,
        request: RemotingCommand,
        question: QueueQuestion,
        answer: Callable[[QueueOffsets], RemotingCommand],
    ) -> None:
        """Answer ``request`` by what the store knows of a queue."""

        def learned(answers: list[QueueOffsets] | Refusal) -> None:
            if isinstance(answers, Refusal):
                conn.reply(request, reply(request, *answers))
            else:
                conn.reply(request, answer(answers[0]))

        self._store.offsets([question], learned)


def _queue(request: RemotingCommand, at: int | None = None) -> QueueQuestion:
    header = from_ext(QueueRequestHeader, request.ext)
    return QueueQuestion(header.topic, header.queue_id, at)


def _is_young(queue: QueueOffsets) -> bool:
    """Whether a new group should not skip the few messages there are."""
    if queue.max_offset == 0:
        return True
    return queue.bytes_held is not None and queue.bytes_held <= _YOUNG_QUEUE_BYTES


def _offset(request: RemotingCommand, offset: int) -> RemotingCommand:
    return reply(request, ext={"offset": str(offset)})


def _not_found(request: RemotingCommand) -> RemotingCommand:
    remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
    return reply(request, ResponseCode.QUERY_NOT_FOUND, remark)
