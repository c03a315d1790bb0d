"""The storage process's side of one broker that serves clients from its store.

A session carries requests to the group's own ``LocalStore`` and answers them, and tells of what
happens in between: confirmations with the records of state among them, and whether writes are
accepted. It adds no state of its own and knows no socket.

Rules protected: a request is answered once, and 0 only by the store itself; an append of anything
but state is checked against the group's rules here (H11), whatever the broker believed; what is
told stands in the order in which it became true, so a broker that parks a pull misses nothing.
"""

from collections.abc import Callable, Collection
from typing import Protocol, assert_never

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import RecordError, WireError
from gantry_protocol.records import MessageRecord, decode_records
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.types import Offset

from gantry_broker.clients.consumers import CALL_TIMEOUT_S, Claim
from gantry_broker.clients.view import GroupView
from gantry_broker.remote import messages as wire
from gantry_broker.remote.topic_ends import TopicEnds
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
from gantry_broker.store.tables.offsets import (
    GONE,
    OffsetKey,
    OffsetRow,
    decode_rows,
    encode_rows,
)
from gantry_broker.store.tables.topics import decode_change

UNANSWERED_MAX = 20_000  # a broker holds its clients back long before
PIECES_MAX = 32  # of an append; a broker sends 64 MB at most at once
_CHANGES = ReadLimits(max_count=64, max_bytes=1024 * 1024)
_STATE_TOPICS = (TOPICS_TOPIC, OFFSETS_TOPIC)  # whose records change the tables of a broker


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

    def ask(
        self, command: RemotingCommand, done: Callable[[Outcome], None], timeout_s: float
    ) -> None:
        """Pass something on to the controllers; ``done`` comes once, maybe at once."""


class Session:
    """See the module.

    Args:
        host: the group, which is the serving master.
        send: takes each message for the broker.
        disk_is_full: whether messages are to be refused for want of room.

    Attributes:
        unanswered: requests, until they are answered.
    """

    def __init__(
        self,
        host: StoreHost,
        send: Callable[[wire.FromStore], None],
        disk_is_full: Callable[[], bool] = lambda: False,
    ) -> None:
        """Nothing is said before ``open``."""
        self._disk_is_full = disk_is_full
        self._host = host
        self._view = host.view
        self._store = host.view.store
        self._send = send
        self.unanswered = 0
        self._said: wire.State | None = None
        self._partial: list[wire.AppendRecords] = []  # pieces of one append that has not come whole
        self._ends = TopicEnds()
        self._next: dict[str, int] = {}  # first record of state that was not told, by topic
        # Offsets that the tables at the beginning had from records which were not confirmed, and
        # the first record of offsets behind them.
        self._foreseen: dict[OffsetKey, int] = {}
        self._foreseen_to = 0
        self._unsubscribe: Callable[[], None] = lambda: None
        self._ended = False

    @property
    def stale_rows(self) -> int:
        """Committed offsets that were left out because their topic had ended, in this session."""
        return self._ends.stale_rows

    def open(self) -> None:
        """Say who serves, the tables, and the state; from then on tell what happens.

        Raises:
            WireError: the tables cannot be had now.
        """
        claim = self._host.claim
        self._send(wire.Welcome(claim.epoch, claim.broker_id, claim.incarnation))
        self._store.snapshot(self._tables)
        self._store.offsets([QueueQuestion(topic, 0) for topic in _STATE_TOPICS], self._positions)
        self._unsubscribe = self._store.subscribe(self._confirmed)
        self.tell_state(again=True)

    def end(self) -> None:
        """Answer and tell nothing more; what was appended goes its way."""
        self._ended = True
        self._unsubscribe()

    def tell_state(self, *, again: bool = False) -> None:
        """Say whether writes are accepted, if that is news or ``again``."""
        state = wire.State(
            self._view.accepting_writes(), self._host.subscriptions_version, self._disk_is_full()
        )
        if again or state != self._said:
            self._said = state
            self._tell(state)

    def received(self, message: wire.FromBroker) -> None:
        """Serve one message.

        Raises:
            WireError: a broker does not say that now.
        """
        if self.unanswered >= UNANSWERED_MAX:
            raise WireError(f"More than {UNANSWERED_MAX} requests wait for an answer.")
        match message:
            case wire.AppendRecords():
                self._append(message)
            case wire.Read():
                self._read(message)
            case wire.Ask():
                self._ask(message)
            case wire.Trim(number=number, below=below):
                answer = self._answer()
                self._store.trim(below, lambda refusal: answer(wire.Done(number, refusal)))
            case wire.ChangeTopic():
                self._change_topic(message)
            case wire.Question():
                self._question(message)
            case wire.Ping():
                self.tell_state(again=True)
            case wire.Hello():
                raise WireError("A second Hello came.")
            case _:
                assert_never(message)

    # ---- requests

    def _append(self, message: wire.AppendRecords) -> None:
        if message.more or self._partial:
            whole = self._gather(message)
            if whole is None:
                return
            message = whole
        refusal = None
        if any(record.topic not in SYSTEM_TOPICS for record in message.records):
            refusal = self._view.accepting_writes()
        if refusal is not None:
            self._tell(wire.Appended(message.number, refusal.code, refusal.remark, []))
            return
        self._ends.heard(message.topics_version)
        records = self._ends.without_stale(message.records, self._store.committed)
        before = self._foresee(records)
        answer = self._answer()

        def done(outcome: SendOutcome) -> None:
            if not outcome.stored:
                self._store.committed.take_back(before)
            answer(
                wire.Appended(message.number, outcome.code, outcome.remark, list(outcome.stored))
            )

        try:
            self._store.append(records, done)
        except RecordError as error:
            done(SendOutcome(ResponseCode.MESSAGE_ILLEGAL, str(error)))

    def _gather(self, message: wire.AppendRecords) -> wire.AppendRecords | None:
        """The whole append once its last piece is here; pieces of two are never mixed."""
        if self._partial and self._partial[0].number != message.number:
            raise WireError("Another append came between the pieces of one.")
        self._partial.append(message)
        if len(self._partial) > PIECES_MAX:
            raise WireError(f"An append of more than {PIECES_MAX} pieces came.")
        if message.more:
            return None
        pieces, self._partial = self._partial, []
        records = [record for piece in pieces for record in piece.records]
        return wire.AppendRecords(message.number, records, topics_version=message.topics_version)

    def _foresee(self, records: list[MessageRecord]) -> list[OffsetRow]:
        """Know the offsets in ``records`` at once, as any master knows what is in its log.

        A state that is written before they are confirmed must not say less. Returns what was known.
        """
        committed = self._store.committed
        before: list[OffsetRow] = []
        for record in records:
            if record.topic == OFFSETS_TOPIC:
                rows = decode_rows(record.body)
                for group, topic, queue_id, _ in rows:
                    known = committed.query(group, topic, queue_id)
                    before.append((group, topic, queue_id, GONE if known is None else known))
                committed.foresee(rows)
        return before

    def _read(self, message: wire.Read) -> None:
        answer = self._answer()
        wanted = message.queue or message.key or message.offset
        if wanted is None:
            raise WireError("A read names neither a queue nor a key nor an offset.")

        def was_read(result: GetResult | Refusal) -> None:
            if isinstance(result, Refusal):
                answer(wire.WasRead(message.number, None, result))
            else:
                answer(wire.WasRead(message.number, result, None))

        self._store.read(wanted, was_read)

    def _ask(self, message: wire.Ask) -> None:
        answer = self._answer()

        def learned(answers: list[QueueOffsets] | Refusal) -> None:
            if isinstance(answers, Refusal):
                answer(wire.Learned(message.number, None, answers))
            else:
                answer(wire.Learned(message.number, answers, None))

        self._store.offsets(message.questions, learned)

    def _change_topic(self, message: wire.ChangeTopic) -> None:
        answer = self._answer()

        def done(refusal: Refusal | None) -> None:
            answer(wire.Done(message.number, refusal))

        if message.topic is None:
            self._view.delete_topic(message.name, done)
        else:
            self._view.create_topic(message.topic, done, if_absent=message.if_absent)

    def _question(self, message: wire.Question) -> None:
        answer = self._answer()

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, RemotingCommand):
                answer(
                    wire.Reply(
                        message.number, outcome.code, outcome.remark, outcome.ext, outcome.body
                    )
                )
            else:
                answer(wire.Reply(message.number, None, str(outcome)))

        self._host.ask(request(message.code, message.ext, message.body), done, CALL_TIMEOUT_S)

    def _answer(self) -> Callable[[wire.FromStore], None]:
        self.unanswered += 1

        def answer(message: wire.FromStore) -> None:
            self.unanswered -= 1
            self._tell(message)

        return answer

    def _tell(self, message: wire.FromStore) -> None:
        if not self._ended:
            self._send(message)

    # ---- what happens

    def _tables(self, snapshot: Snapshot | Refusal) -> None:
        if isinstance(snapshot, Refusal):
            raise WireError(f"The tables cannot be had: {snapshot.remark}.")
        version, step = snapshot.topics_version, wire.ROWS_MAX
        self._tell(wire.Rows(version))
        for at in range(0, len(snapshot.topics), step):
            self._tell(wire.Rows(version, topics=snapshot.topics[at : at + step]))
        for at in range(0, len(snapshot.committed), step):
            self._tell(wire.Rows(version, committed=snapshot.committed[at : at + step]))

    def _positions(self, queues: list[QueueOffsets] | Refusal) -> None:
        if isinstance(queues, Refusal):
            raise WireError(f"The queues of state cannot be read: {queues.remark}.")
        for topic, queue in zip(_STATE_TOPICS, queues, strict=True):
            self._next[topic] = queue.max_offset
            if topic == OFFSETS_TOPIC and queue.next_offset > queue.max_offset:
                self._foreseen, self._foreseen_to = self._store.committed.newer(), queue.next_offset

    def _confirmed(self, confirm: Offset, queues: Collection[QueueKey]) -> None:
        found: list[tuple[int, str, bytes]] = []
        for topic in _STATE_TOPICS:
            if (topic, 0) in queues:
                self._read_changes(topic, found)
        changes = [(topic, body) for _, topic, body in sorted(found)]
        for topic, body in changes:
            if topic == TOPICS_TOPIC:
                self._ends.confirmed(decode_change(body))
        for at in range(0, len(changes), _CHANGES.max_count):
            self._tell(wire.Confirmed(confirm, [], changes[at : at + _CHANGES.max_count]))
        told = list(queues)
        for at in range(0, len(told) or 1, wire.QUEUES_MAX):
            self._tell(wire.Confirmed(confirm, told[at : at + wire.QUEUES_MAX]))

    def _read_changes(self, topic: str, found: list[tuple[int, str, bytes]]) -> None:
        """The records of state that were not told yet; they are in the log of this process."""

        def was_read(result: GetResult | Refusal) -> None:
            if isinstance(result, Refusal):
                raise WireError(f"The records of state do not read: {result.remark}.")
            found.extend(
                (record.physical_offset, topic, self._as_told(record))
                for record in decode_records(result.body)
            )
            self._next[topic] = result.next_offset
            if result.status is GetStatus.FOUND:
                self._read_changes(topic, found)

        self._store.read(QueueRead(topic, 0, self._next[topic], _CHANGES), was_read)

    def _as_told(self, record: MessageRecord) -> bytes:
        """What a record of state says, without taking back what the tables said before it.

        They were told with all that this master's log held. What stood there unconfirmed is read
        later, record by record: an offset that is told as of then would fall back until the last
        of them, and messages that were delivered would be delivered again.
        """
        if record.topic != OFFSETS_TOPIC or not self._foreseen:
            return record.body
        if record.queue_offset >= self._foreseen_to:
            self._foreseen = {}
            return record.body
        rows = decode_rows(record.body)
        return encode_rows([(*row[:3], self._foreseen.get(row[:3], row[3])) for row in rows])
