"""The storage process's side of one front that serves clients from its store.

A session carries requests to the group's own ``LocalStore`` and answers them, and tells of what
happens in between: confirmations, with changes of topics and resets among them, and whether writes
are accepted. It adds no state of its own and knows no socket.

Rules protected: a request is answered once, and 0 only by the store itself; every append is checked
against the group's rules here (H11), whatever the front believed; what is told stands in the order
in which it became true, so a front that parks a pull misses nothing. Of consumer offsets a front is
told due resets alone: it commits none, and asks for none.
"""

import itertools
from collections.abc import Callable, Collection
from typing import Protocol, assert_never

from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import RecordError, WireError
from gantry_protocol.records import MessageRecord, decode_records
from gantry_protocol.types import Offset

from gantry_broker.clients.claim import Claim
from gantry_broker.clients.topic_rules import check_target
from gantry_broker.clients.traced_sends import OpenSends
from gantry_broker.clients.view import GroupView
from gantry_broker.remote import messages as wire
from gantry_broker.remote.traced_appends import TracedAppends
from gantry_broker.store.contract import (
    GetResult,
    GetStatus,
    QueueKey,
    QueueOffsets,
    QueueQuestion,
    QueueRead,
    ReadLimits,
    Refusal,
    SendOutcome,
    Snapshot,
)
from gantry_broker.store.tables.names import OFFSETS_TOPIC, SYSTEM_TOPICS, TOPICS_TOPIC
from gantry_broker.store.tables.offsets import decode_rows, encode_rows
from gantry_broker.store.tables.resets import RESET_MARK, is_due

UNANSWERED_MAX = 20_000  # as many as a front has under way when it holds its clients back
_numbers = itertools.count(1)
_CHANGES = ReadLimits(max_count=64, max_bytes=1024 * 1024)
_STATE_TOPICS = (TOPICS_TOPIC, OFFSETS_TOPIC)  # whose records change the tables of a front


class StoreHost(Protocol):
    """The group behind a session."""

    @property
    def view(self) -> GroupView:
        """The group as its own clients would see it."""

    @property
    def claim(self) -> Claim:
        """By what it is the master."""

    @property
    def subscriptions_version(self) -> int:
        """The version of the subscription groups that the controllers named last."""

    @property
    def is_offered(self) -> bool:
        """Whether fronts may serve sends and pulls by themselves now."""

    def moved(self, said: wire.Ping) -> None:
        """Count what clients sent and were given through a front."""


class Session:
    """See the module.

    Args:
        host: the group, which is the serving master.
        send: takes each message for the front.
        traced: says where sends of this mastership are traced now; None where they are not.

    Attributes:
        unanswered: requests, until they are answered.
    """

    def __init__(
        self,
        host: StoreHost,
        send: Callable[[wire.FromStore], None],
        traced: Callable[[], OpenSends | None] = lambda: None,
    ) -> None:
        """Nothing is said before ``open``."""
        self._traced_now = traced
        self._traced: TracedAppends | None = None  # once there was something to trace
        self._host = host
        self._view = host.view
        self._store = host.view.store
        self._send = send
        self.unanswered = 0
        self._number = -next(_numbers)  # connections of clients have positive ones
        self._said: wire.State | None = None
        self._next: dict[str, int] = {}  # first record of state that was not told, by topic
        self._unsubscribe: Callable[[], None] = lambda: None
        self._ended = False

    def open(self) -> None:
        """Say who serves, the tables, and the state; from then on tell what happens.

        Raises:
            WireError: the tables cannot be had now.
        """
        self._send(wire.Welcome(self._host.claim.epoch, *self._view.store_host))
        self._store.snapshot(self._tables)
        self._store.offsets([QueueQuestion(topic, 0) for topic in _STATE_TOPICS], self._positions)
        self._unsubscribe = self._store.subscribe(self._confirmed)
        self.tell_state(again=True)

    def end(self) -> None:
        """Answer and tell nothing more; what was appended goes its way."""
        self._ended = True
        self._unsubscribe()
        if self._traced is not None:
            self._traced.close()

    def tell_state(self, *, again: bool = False) -> None:
        """Say whether writes are accepted, if that is news or ``again``."""
        state = wire.State(
            self._view.accepting_writes(), self._host.subscriptions_version, self._host.is_offered
        )
        if again or state != self._said:
            self._said = state
            self._tell(state)

    def received(self, message: wire.FromFront) -> None:
        """Serve one message.

        Raises:
            WireError: a front does not say that now.
        """
        if self.unanswered > UNANSWERED_MAX:
            raise WireError(f"More than {UNANSWERED_MAX} requests wait for an answer.")
        match message:
            case wire.AppendRecords():
                self._append(message)
            case wire.Read():
                self._read(message)
            case wire.Ping():
                self._host.moved(message)
                self.tell_state(again=True)
            case wire.Hello():
                raise WireError("A second Hello came.")
            case _:
                assert_never(message)

    # ---- requests

    def _append(self, message: wire.AppendRecords) -> None:
        """Append the sends of a frame in one go, unless something is wrong with one of them."""
        number, records = message.number, message.records
        if message.parents:
            self._trace(message)
        refusal = self._view.accepting_writes()
        if refusal is not None:
            self._tell(wire.Appended(number, len(records), refusal.code, refusal.remark, []))
        elif any(check_target(record.topic) is not None for record in records):
            self._one_by_one(number, records)
        else:
            self._append_all(number, records)

    def _trace(self, message: wire.AppendRecords) -> None:
        sends = self._traced_now()
        if sends is not None:
            self._traced = self._traced or TracedAppends(sends)
            self._traced.arrived(message)

    def _append_all(self, number: int, records: list[MessageRecord]) -> None:
        count = len(records)
        answer = self._answer(count)

        def done(outcome: SendOutcome) -> None:
            stored = list(outcome.stored)
            answer(wire.Appended(number, count, outcome.code, outcome.remark, stored))

        try:
            self._store.append(records, done, once=self._number)
            if self._traced is not None:
                self._traced.appended(number, count)
        except RecordError as error:  # none is stored
            if count > 1:
                self.unanswered -= count
                self._one_by_one(number, records)
            else:
                remark = f"the message is illegal, {error}"
                done(SendOutcome(ResponseCode.MESSAGE_ILLEGAL, remark))

    def _one_by_one(self, number: int, records: list[MessageRecord]) -> None:
        """Give each send an outcome of its own; a topic of this broker's own has other writers."""
        for at, record in enumerate(records, number):
            refusal = check_target(record.topic)
            if refusal is None:
                self._append_all(at, [record])
            else:
                self._tell(wire.Appended(at, 1, refusal.code, refusal.remark, []))

    def _read(self, message: wire.Read) -> None:
        answer = self._answer()

        def was_read(result: GetResult | Refusal) -> None:
            if isinstance(result, Refusal):
                answer(wire.WasRead(message.number, None, result))
            else:
                answer(wire.WasRead(message.number, result, None))

        self._store.read(message.queue, was_read)

    def _answer(self, count: int = 1) -> Callable[[wire.FromStore], None]:
        self.unanswered += count

        def answer(message: wire.FromStore) -> None:
            self.unanswered -= count
            self._tell(message)

        return answer

    def _tell(self, message: wire.FromStore) -> None:
        if self._ended:
            return
        if self._traced is None or not isinstance(message, wire.Appended):
            self._send(message)
        else:
            self._traced.confirmed(message)
            self._send(message)
            self._traced.answered(message)

    # ---- what happens

    def _tables(self, snapshot: Snapshot | Refusal) -> None:
        if isinstance(snapshot, Refusal):
            raise WireError(f"The tables cannot be had: {snapshot.remark}.")
        version, step = snapshot.topics_version, wire.ROWS_MAX
        self._tell(wire.Rows(version))
        for at in range(0, len(snapshot.topics), step):
            self._tell(wire.Rows(version, topics=snapshot.topics[at : at + step]))
        resets = [row for row in snapshot.committed if is_due(row[0])]
        for at in range(0, len(resets), step):
            self._tell(wire.Rows(version, resets=resets[at : at + step]))

    def _positions(self, queues: list[QueueOffsets] | Refusal) -> None:
        if isinstance(queues, Refusal):
            raise WireError(f"The queues of state cannot be read: {queues.remark}.")
        for topic, queue in zip(_STATE_TOPICS, queues, strict=True):
            self._next[topic] = queue.max_offset

    def _confirmed(self, confirm: Offset, queues: Collection[QueueKey]) -> None:
        found: list[tuple[int, str, bytes]] = []
        for topic in _STATE_TOPICS:
            if (topic, 0) in queues:
                self._read_changes(topic, found)
        changes = [(topic, body) for _, topic, body in sorted(found)]
        for at in range(0, len(changes), _CHANGES.max_count):
            self._tell(wire.Confirmed(confirm, [], changes[at : at + _CHANGES.max_count]))
        told = [key for key in queues if key[0] not in SYSTEM_TOPICS]
        if any(topic == OFFSETS_TOPIC for topic, _ in changes):
            told.append((OFFSETS_TOPIC, 0))  # pulls that wait here may have been reset
        for at in range(0, len(told), wire.QUEUES_MAX):
            self._tell(wire.Confirmed(confirm, told[at : at + wire.QUEUES_MAX]))

    def _read_changes(self, topic: str, found: list[tuple[int, str, bytes]]) -> None:
        """The records of state that were not told yet; they are in the log of this process."""

        def was_read(result: GetResult | Refusal) -> None:
            if isinstance(result, Refusal):
                raise WireError(f"The records of state do not read: {result.remark}.")
            for record in decode_records(result.body):
                body = record.body if topic == TOPICS_TOPIC else _resets_in(record.body)
                if body:
                    found.append((record.physical_offset, topic, body))
            self._next[topic] = result.next_offset
            if result.status is GetStatus.FOUND:
                self._read_changes(topic, found)

        self._store.read(QueueRead(topic, 0, self._next[topic], _CHANGES), was_read)


def _resets_in(body: bytes) -> bytes:
    """The rows of a record of offsets that are about resets; empty without any.

    A front was told at the beginning of those that were not confirmed yet, too, and hears of them
    again one by one. Until the last of them it may take a reset for followed that is due, or the
    other way around: it answers a pull as it would have a moment earlier, or leaves it to the
    master.
    """
    if RESET_MARK.encode() not in body:
        return b""
    rows = [row for row in decode_rows(body) if is_due(row[0])]
    return encode_rows(rows) if rows else b""
