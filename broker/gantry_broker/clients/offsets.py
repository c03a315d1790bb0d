"""Positions: committed offsets of groups, ends and times of queues."""

import asyncio
import time
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
from gantry_protocol.queue_map import MAPPED
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.types import Offset

from gantry_broker.clients.mapped.places import IF_NONE_KEPT
from gantry_broker.clients.newcomers import Newcomers
from gantry_broker.clients.topic_rules import has_queue, unknown_topic
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import (
    FIRST,
    GetResult,
    QueueOffsets,
    QueueQuestion,
    Refusal,
    SendOutcome,
)
from gantry_broker.store.tables.offsets import OFFSETS_MAX, OffsetKey
from gantry_broker.store.tables.resets import may_commit

FIRST_KEPT = "gantryFirstKept"
"""In answers about times in mapped topics, from group to group: the first offset that is left."""

WRITE_INTERVAL_S = 0.1  # commits that nobody waits for are being written by then
GATHER_S = 0.005  # between two writes for commits that are waited for
RETRY_MAX_S = 5.0  # between two writes that are refused
# A new group starts at 0, whatever it asked for, while the first message is this close to the end;
# upstream's rule is "still in memory", which is 40 % of the machine's.
_YOUNG_QUEUE_BYTES = 1024 * 1024 * 1024
_TOO_MANY = f"[OVERLOAD]{OFFSETS_MAX} offsets are kept, there is no room for another one"
_KEPT = SendOutcome(ResponseCode.SUCCESS)
_NOT_KEPT = SendOutcome(ResponseCode.SYSTEM_ERROR, "no record can carry this offset")
_ENDED = SendOutcome(
    ResponseCode.SERVICE_NOT_AVAILABLE, "this broker lost its mastership, the offset may not last"
)

Written = Callable[[SendOutcome], None]

_log = log.get("offsets")


class OffsetWriter:
    """Writes committed offsets to the log, many at once, one write under way at a time.

    A commit that somebody waits for is answered when it is confirmed, so a kill takes nothing back
    that was answered 0. Such commits gather for ``GATHER_S``, all others for ``WRITE_INTERVAL_S``.

    Attributes:
        failed: writes that were not confirmed, and are tried again.
    """

    def __init__(self, view: GroupView) -> None:
        self.failed = 0
        self._view = view
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0  # of the timer
        self._not_before_s = 0.0
        self._retry_s = 0.0
        self._is_writing = False
        self._is_closed = False
        self._by_key: dict[OffsetKey, list[Written]] = {}  # for one commit to be confirmed
        self._waiting: list[Written] = []  # for all of them

    def soon(self) -> None:
        """Some offset changed."""
        self._arm(WRITE_INTERVAL_S)

    def confirmed(self, key: OffsetKey, done: Written) -> None:
        """Tell ``done`` once what is committed at ``key`` is confirmed, or why it is not."""
        if self._view.store.committed.must_write(*key):
            self._by_key.setdefault(key, []).append(done)
            self._arm(GATHER_S)
        else:
            done(_KEPT)

    def now(self, done: Written) -> None:
        """Write what has changed, though sends may be refused already; then tell ``done``."""
        self._waiting.append(done)
        if not self._is_writing:
            self._write()

    def close(self) -> None:
        """Write no more; nobody knows what becomes of what is waited for."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._tell_all(_ENDED)

    def _arm(self, delay_s: float) -> None:
        """Write in ``delay_s`` at the latest, unless writes are refused."""
        if self._is_closed:
            return
        due_s = max(self._loop.time() + delay_s, self._not_before_s)
        if self._timer is not None:
            if self._due_s <= due_s:
                return
            self._timer.cancel()
        self._due_s = due_s
        self._timer = self._loop.call_at(due_s, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._is_writing:
            return  # what is dirty by its end is written then
        refusal = self._view.accepting_writes()
        if refusal is None:
            self._write()
            return
        self._tell_all(SendOutcome(refusal.code, refusal.remark))
        if self._view.store.committed.is_dirty:
            self.soon()

    def _write(self) -> None:
        offsets = self._view.store.committed
        dropped = offsets.unwritable
        records, keys = offsets.take_records()
        for record in records:
            record.store_host = record.born_host = self._view.store_host
        waiting = [done for key in keys for done in self._by_key.pop(key, ())]
        if records and not offsets.is_dirty:
            waiting += self._waiting
            self._waiting = []
        if offsets.unwritable != dropped:
            _log.error("offsets that no record can carry are dropped", ever=offsets.unwritable)
            for key in [key for key in self._by_key if not offsets.must_write(*key)]:
                waiting += self._by_key.pop(key)
        if not records:
            for done in waiting:
                done(_NOT_KEPT)
            self._go_on()
            return
        self._is_writing = True
        try:
            self._view.store.append(records, lambda outcome: self._written(outcome, keys, waiting))
        except GantryError as error:
            outcome = SendOutcome(ResponseCode.SYSTEM_ERROR, str(error))
            self._written(outcome, keys, waiting)

    def _written(self, outcome: SendOutcome, keys: list[OffsetKey], waiting: list[Written]) -> None:
        self._is_writing = False
        for done in waiting:
            done(outcome)
        if self._is_closed:
            return
        if outcome.code == ResponseCode.SUCCESS:
            self._retry_s = 0.0
            self._go_on()
            return
        self.failed += 1
        self._retry_s = min(max(2 * self._retry_s, WRITE_INTERVAL_S), RETRY_MAX_S)
        self._not_before_s = self._loop.time() + self._retry_s
        _log.warning("offsets were not confirmed, writing them again", reason=outcome.remark)
        self._view.store.committed.put_back(keys, stored=outcome.may_be_stored)
        self._tell_all(outcome)
        self.soon()

    def _go_on(self) -> None:
        """Write what has become dirty meanwhile, as soon as somebody waits for it."""
        if not self._view.store.committed.is_dirty:
            self._tell_all(_KEPT)
        elif self._waiting:
            self._write()
        else:
            self._arm(GATHER_S if self._by_key else WRITE_INTERVAL_S)

    def _tell_all(self, outcome: SendOutcome) -> None:
        waiting, self._waiting = self._waiting, []
        by_key, self._by_key = self._by_key, {}
        for done in [*waiting, *(item for several in by_key.values() for item in several)]:
            done(outcome)


class Positions:
    """Serves queries and commits of offsets, and questions about the ends of queues."""

    def __init__(
        self,
        view: GroupView,
        writer: OffsetWriter,
        newcomers: Newcomers,
        has_members: Callable[[str], bool],
    ) -> None:
        self._store = view.store
        self._writer = writer
        self._newcomers = newcomers
        self._has_members = has_members

    def query(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """QueryConsumerOffset (14)."""
        header = from_ext(QueryConsumerOffsetRequestHeader, request.ext)
        found = self._store.committed.query(header.consumer_group, header.topic, header.queue_id)
        if found is not None:
            return _offset(request, found)
        config = self._store.topics.lookup(header.topic)
        if (
            header.set_zero_if_not_found is False
            or config is None
            or not has_queue(config, header.queue_id, config.read_queue_nums)
        ):
            return _not_found(request)
        question = QueueQuestion(header.topic, header.queue_id)
        self._ask(
            conn,
            request,
            question,
            lambda queue: _offset(request, 0) if is_young(queue) else _not_found(request),
        )
        return None

    def update(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """UpdateConsumerOffset (15). Any group may commit: groups appear, and are not created.

        0 is answered when the commit is confirmed. Most clients do not ask for an answer.
        """
        header = from_ext(UpdateConsumerOffsetRequestHeader, request.ext)
        topic = self._store.topics.lookup(header.topic)
        if topic is None:
            return reply(request, *unknown_topic(header.topic))
        is_one = has_queue(topic, header.queue_id, topic.read_queue_nums)
        if not is_one or header.commit_offset < 0:
            remark = f"queue {header.queue_id} or offset {header.commit_offset} is illegal"
            return reply(request, ResponseCode.INVALID_PARAMETER, remark)
        key = (header.consumer_group, header.topic, header.queue_id)
        is_wanted = IF_NONE_KEPT not in (request.ext or {})
        if is_wanted or self._store.committed.query(*key) is None:
            refusal = self.refuse_new(conn, *key)
            if refusal is not None:
                return reply(request, *refusal)
            if not self.commit(*key, header.commit_offset):
                return reply(request, ResponseCode.SYSTEM_BUSY, _TOO_MANY)
        if request.is_oneway:
            return None

        def written(outcome: SendOutcome) -> None:
            conn.reply(request, reply(request, outcome.code, outcome.remark))

        self._writer.confirmed(key, written)
        return None

    def refuse_new(self, conn: Connection, group: str, topic: str, queue_id: int) -> Refusal | None:
        """The reason why an unknown group may not commit here now; None if it may, or is known."""
        known = self._store.committed.query(group, topic, queue_id)
        if known is not None or self._has_members(group):
            return None
        return self._newcomers.refuse(conn, time.monotonic())

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Remember how far a group has come, now here and soon in the log.

        Returns:
            False when there are too many offsets for another one.
        """
        is_kept = True
        if may_commit(self._store.committed, group, topic, queue_id, offset):
            is_kept = self._store.committed.commit(group, topic, queue_id, offset)
        if self._store.committed.is_dirty:
            self._writer.soon()
        return is_kept

    def search(self, conn: Connection, request: RemotingCommand) -> None:
        """SearchOffsetByTimestamp (29)."""
        header = from_ext(SearchOffsetRequestHeader, request.ext)
        question = QueueQuestion(
            header.topic,
            header.queue_id,
            since=header.timestamp,
            upper=header.boundary_type.upper() == "UPPER",
        )
        config = self._store.topics.lookup(header.topic)
        is_mapped = config is not None and MAPPED in config.attributes

        def answer(queue: QueueOffsets) -> RemotingCommand:
            found = {"offset": str(queue.found or 0)}
            if is_mapped:
                found[FIRST_KEPT] = str(queue.min_offset)
            return reply(request, ext=found)

        self._ask(conn, request, question, answer)

    def maximum(self, conn: Connection, request: RemotingCommand) -> None:
        """GetMaxOffset (30): the confirmed end, whatever ``committed`` says."""
        question = _queue(request)
        self._ask(conn, request, question, lambda queue: _offset(request, queue.max_offset))

    def minimum(self, conn: Connection, request: RemotingCommand) -> None:
        """GetMinOffset (31)."""
        question = _queue(request)
        self._ask(conn, request, question, lambda queue: _offset(request, queue.min_offset))

    def earliest(self, conn: Connection, request: RemotingCommand) -> None:
        """GetEarliestMsgStoretime (32)."""

        def answer(queue: QueueOffsets) -> RemotingCommand:
            stored_at = -1 if queue.stored_at is None else queue.stored_at
            return reply(request, ext={"timestamp": str(stored_at)})

        self._ask(conn, request, _queue(request, FIRST), answer)

    def view(self, conn: Connection, request: RemotingCommand) -> None:
        """ViewMessageById (33)."""
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


def is_young(queue: QueueOffsets) -> bool:
    """Whether a new group should not skip the few messages there are."""
    if queue.max_offset == 0:
        return True
    return queue.bytes_held is not None and queue.bytes_held <= _YOUNG_QUEUE_BYTES


def _offset(request: RemotingCommand, offset: int) -> RemotingCommand:
    return reply(request, ext={"offset": str(offset)})


def _not_found(request: RemotingCommand) -> RemotingCommand:
    remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
    return reply(request, ResponseCode.QUERY_NOT_FOUND, remark)
