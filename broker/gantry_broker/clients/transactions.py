"""Transactions of one mastership: two queues become a ledger, EndTransaction becomes records.

Rules protected:

* A transaction ends once. The first op record that is confirmed decides; a repeated 37 is answered
  as done and changes nothing, whatever it says. What an outcome entails is appended with its op
  record at once (upstream collects op records for 3 s and resolves twice meanwhile).
* The log alone says what is open. The ledger is only fed what is confirmed, so what a master knows
  is what its successor finds: from the newest table of open transactions on.
* A cut between two masters can part an op record from the message it commits, and only the last
  one in the log. The next master looks before anything else is ended, and appends both again.
* A read that fails ends the service of transactions, and of nothing else, until all is read again:
  as a new master does, so what was on its way when it failed is waited for first. It is tried again
  at growing intervals, for as long as the mastership lasts.

What it refuses: to end anything before it has read all that its predecessors wrote.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection

import msgspec
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import GantryError
from gantry_protocol.headers.client import EndTransactionRequestHeader
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.process import log
from gantry_protocol.records import MessageRecord
from gantry_protocol.records.layout import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.types import Offset

from gantry_broker.clients.access import MayTouch, taken_judgement
from gantry_broker.clients.core.clocks import Clocks
from gantry_broker.clients.core.delay.levels import DelayLevels
from gantry_broker.clients.core.delay.parked import park
from gantry_broker.clients.core.reading import (
    MissingRecordsError,
    first_behind,
    first_needed,
    inherited,
    read_record,
    read_slice,
)
from gantry_broker.clients.core.transactions.ledger import Ledger, Policy
from gantry_broker.clients.core.transactions.records import (
    GROUP,
    HALF_TOPIC,
    OP_TOPIC,
    Ended,
    OpenTransaction,
    TableReader,
    TransactionOutcome,
    immunity_ms,
    parse_op,
    refuse_end,
    resolution,
    target,
)
from gantry_broker.clients.step_run import Run
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import QueueKey, QueueQuestion, Refusal, SendOutcome
from gantry_broker.store.steps import AppendRequest, Steps

HELD_MAX = 1024  # 37 that come before the log has been read
RETRY_FIRST_S = 0.5  # between a read that failed and the next; twice as long after each
RETRY_MAX_S = 60.0
_WAIT_S = 0.05  # before an append that was refused is made again
_NOTHING_SAID = 0
_MAY_BE_STORED = (
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
_OUTCOMES = {
    TRANSACTION_COMMIT: TransactionOutcome.COMMIT,
    TRANSACTION_ROLLBACK: TransactionOutcome.ROLLBACK,
}
_QUEUES = ((HALF_TOPIC, 0), (OP_TOPIC, 0))
_QUESTIONS = [QueueQuestion(*key) for key in _QUEUES]

_log = log.get("transactions")


class Counters(msgspec.Struct):
    """Counters of one mastership.

    Attributes:
        ended: by outcome, those that were ended here.
        repeated: 37 for transactions that had ended.
        refused_ends: 37 that were refused or could not be held.
        refused_halves: half messages refused, since too many were open.
        checks: 39 that were sent.
        unasked: half messages whose producer was not there in a round.
        tables: tables of open transactions that were confirmed.
        failures: how often the log did not read; it is read again.
    """

    ended: dict[TransactionOutcome, int] = msgspec.field(
        default_factory=lambda: dict.fromkeys(TransactionOutcome, 0)
    )
    repeated: int = 0
    refused_ends: int = 0
    refused_halves: int = 0
    checks: int = 0
    unasked: int = 0
    tables: int = 0
    failures: int = 0


class Transactions:
    """See the module.

    Args:
        view: the group, which is the master.
        policy: when producers are asked, and how many transactions may be open.
        now_ms: the wall clock.
        levels: of delays.

    Attributes:
        ledger: what is open, as far as the log has been read.
        counters: what happened.
        failure: why transactions are not served; empty while they are.
    """

    def __init__(
        self, view: GroupView, policy: Policy, now_ms: Callable[[], int], levels: DelayLevels
    ) -> None:
        self.view = view
        self._levels = levels
        self.ledger = Ledger(policy)
        self.counters = Counters()
        self.failure = ""
        self.policy = policy
        self._now_ms = now_ms
        self._held: deque[tuple[Connection, RemotingCommand, MayTouch]] = deque()
        self._last_ended: tuple[int, Ended] | None = None  # where the newest op record stands
        self._was_read = False
        self._is_closed = False
        self._run: Run[None] | None = None  # reads the queues
        self._retry_s = RETRY_FIRST_S
        self._retry: asyncio.TimerHandle | None = None
        self._has_news = False  # something was confirmed meanwhile
        self._unsubscribe = view.store.subscribe(self._arrived, {HALF_TOPIC, OP_TOPIC})
        self._begin(self._read_log())

    def tune(self, policy: Policy) -> None:
        """Another policy from now on; who is to be asked at some time already is asked then."""
        self.policy = self.ledger.policy = policy

    def close(self) -> None:
        """The mastership is over."""
        self._unsubscribe()
        self._is_closed = True
        self._held.clear()
        if self._run is not None:
            self._run.cancel()
        if self._retry is not None:
            self._retry.cancel()

    @property
    def ready(self) -> bool:
        """Whether everything that earlier masters wrote has been read."""
        return self._was_read and not self.failure

    # ---- requests

    def refuse_half(self) -> Refusal | None:
        """The reason why no further transaction may begin now; None when one may."""
        if self.failure:
            return Refusal(ResponseCode.SYSTEM_ERROR, self.failure)
        if self.ledger.is_full:
            self.counters.refused_halves += 1
            remark = f"[OVERLOAD]{len(self.ledger)} transactions are open, no further one may begin"
            return Refusal(ResponseCode.SYSTEM_BUSY, remark)
        return None

    def end(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Serve 37."""
        return self._serve(conn, request, taken_judgement(conn))

    def _serve(
        self, conn: Connection, request: RemotingCommand, may_end: MayTouch
    ) -> RemotingCommand | None:
        claim = from_ext(EndTransactionRequestHeader, request.ext)
        if claim.commit_or_rollback == _NOTHING_SAID:
            return reply(request)
        outcome = _OUTCOMES.get(claim.commit_or_rollback)
        if outcome is None:
            remark = f"commitOrRollback {claim.commit_or_rollback} is neither 8 nor 12 nor 0"
            return self._refuse(request, ResponseCode.SYSTEM_ERROR, remark)
        refusal = self.view.accepting_writes()
        if refusal is not None:
            return self._refuse(request, *refusal)
        if self.failure:
            return self._refuse(request, ResponseCode.SYSTEM_ERROR, self.failure)
        if not self.ready:
            return self._hold(conn, request, may_end)

        def ended(answer: RemotingCommand | None) -> None:
            if answer is not None:
                conn.reply(request, answer)

        def failed(error: GantryError) -> None:
            conn.reply(request, self._refuse(request, ResponseCode.SYSTEM_ERROR, str(error)))

        Run(
            self.view.store, self._end(conn, request, claim, outcome, may_end), ended, failed
        ).start()
        return None

    def _hold(
        self, conn: Connection, request: RemotingCommand, may_end: MayTouch
    ) -> RemotingCommand | None:
        if len(self._held) >= HELD_MAX:
            remark = "what earlier masters wrote of transactions is being read"
            return self._refuse(request, ResponseCode.SYSTEM_BUSY, remark)
        self._held.append((conn, request, may_end))
        return None

    def _end(
        self,
        conn: Connection,
        request: RemotingCommand,
        claim: EndTransactionRequestHeader,
        outcome: TransactionOutcome,
        may_end: MayTouch,
    ) -> Steps[RemotingCommand | None]:
        offset = claim.tran_state_table_offset
        if offset >= self.ledger.half_next and self._run is not None:
            return self._hold(conn, request, may_end)  # its half message is being read
        known = 0 <= offset < self.ledger.half_next
        half = (yield from read_record(HALF_TOPIC, 0, offset)) if known else None
        if self._is_closed:
            return self._refuse(request, ResponseCode.SERVICE_NOT_AVAILABLE, "no longer the master")
        if not self.ready:  # the log did not read meanwhile, so what has ended is not known
            return self._hold(conn, request, may_end)
        if half is not None and not may_end(target(half, TransactionOutcome.COMMIT)[0]):
            half = None  # the client could name any
        if half is None:
            remark = "Find prepared transaction message failed"
            return self._refuse(request, ResponseCode.SYSTEM_ERROR, remark)
        refusal = refuse_end(half, claim, self._now_ms())
        if self.ledger.has_ended(offset) and (
            refusal is None or refusal[0] is ResponseCode.ILLEGAL_OPERATION
        ):
            self.counters.repeated += 1
            return reply(request, remark="this transaction has ended; its first outcome holds")
        if refusal is not None:
            return self._refuse(request, *refusal)
        if self.ledger.is_ending(offset):
            remark = "the outcome of this transaction is being confirmed"
            return self._refuse(request, ResponseCode.SYSTEM_BUSY, remark)

        def done(result: SendOutcome) -> None:
            if not request.is_oneway:
                conn.reply(request, reply(request, result.code, result.remark))

        try:
            self.append_end(half, outcome, done)
        except GantryError as error:
            return self._refuse(request, ResponseCode.SYSTEM_ERROR, str(error))
        return None

    def _refuse(self, request: RemotingCommand, code: int, remark: str) -> RemotingCommand:
        self.counters.refused_ends += 1
        return reply(request, code, remark)

    def append_end(
        self, half: MessageRecord, outcome: TransactionOutcome, done: Callable[[SendOutcome], None]
    ) -> None:
        """End the open transaction of ``half``; ``done`` comes once, when that is confirmed or not.

        Raises:
            GantryError: nothing was stored, and the transaction is open; ``done`` is not called.
        """
        offset = half.queue_offset
        records = resolution(half, outcome, self.view.store_host)
        self._follow_moves(records)
        self.ledger.begin_end(offset)

        def appended(result: SendOutcome) -> None:
            if result.code == ResponseCode.SUCCESS:
                self.counters.ended[outcome] += 1
                self.ledger.confirm_end(offset)
            elif result.code not in _MAY_BE_STORED:
                self.ledger.cancel_end(offset)
            done(result)

        try:
            self.view.store.append(records, appended)
        except GantryError:
            self.ledger.cancel_end(offset)
            raise

    def _follow_moves(self, records: list[MessageRecord]) -> None:
        """Have what is committed to a queue that has moved go to one that is here.

        Where there is none it waits like a delayed message: delivery passes those on.
        """
        for place, record in enumerate(records[1:], start=1):
            queue_id = self.view.queues.deliverable(record.topic, record.queue_id)
            if queue_id is None:
                records[place] = park(record, 1, self._levels)
            else:
                record.queue_id = queue_id

    # ---- the log

    def _arrived(self, confirm: Offset, queues: Collection[QueueKey]) -> None:
        """Transactions have begun or ended."""
        if self._run is not None:
            self._has_news = True
        elif self.ready:
            self._begin(self._follow())

    def _begin(self, steps: Steps[None]) -> None:
        """Read the queues."""
        self._has_news = False
        self._run = Run(self.view.store, steps, self._was_read_to_end, self._fail)
        self._run.start()

    def _was_read_to_end(self, _: None) -> None:
        self._run = None
        if not self._was_read:
            self._was_read = True
            self.failure, self._retry_s = "", RETRY_FIRST_S
            _log.info("transactions read", open=len(self.ledger), half=self.ledger.half_next)
        if self._has_news:
            self._begin(self._follow())
            return
        held, self._held = self._held, deque()
        for conn, request, may_end in held:
            answer = self._serve(conn, request, may_end)
            if answer is not None:
                conn.reply(request, answer)

    def _fail(self, error: GantryError) -> None:
        """Serve no transaction until everything is read again."""
        self._run = None
        self._was_read = False
        self.failure = str(error)
        self.counters.failures += 1
        _log.error("transactions are not served", reason=error, again_in_s=self._retry_s)
        self._retry = asyncio.get_running_loop().call_later(self._retry_s, self._read_again)
        self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)
        held, self._held = self._held, deque()
        for conn, request, _ in held:
            conn.reply(request, self._refuse(request, ResponseCode.SYSTEM_ERROR, self.failure))

    def _read_again(self) -> None:
        self._retry = None
        self._last_ended = None
        self._begin(self._read_log())

    def _read_log(self) -> Steps[None]:
        """All that earlier masters wrote, in slices; first it must be confirmed."""
        half, op = yield from inherited(_QUESTIONS)
        committed = self.view.store.committed
        tables = TableReader()
        at = start = first_needed(committed, GROUP, OP_TOPIC, op)
        while at < op.max_offset:
            entries = yield from read_slice(OP_TOPIC, at)
            tables.take(parse_op(entry.peek.properties, entry.body) for entry in entries)
            at += len(entries)
            yield 0.0
        self.ledger = Ledger(self.policy, tables.found)
        if tables.found is None and committed.query(GROUP, OP_TOPIC, 0) is not None:
            raise MissingRecordsError(
                f"The table of open transactions is not in {OP_TOPIC} from record {start} on, where"
                " the log says it is. Restore this broker from a replica that has it."
            )
        if tables.found is None:
            self.ledger.half_next = first_needed(committed, GROUP, HALF_TOPIC, half)
            self.ledger.op_next = start
        yield from self._follow()
        yield from self._mend()

    def clocks(self) -> Clocks:
        """Now."""
        return Clocks(self._now_ms(), int(asyncio.get_running_loop().time() * 1000))

    def _follow(self) -> Steps[None]:
        """Take in what is confirmed; half messages first, since op records speak of them."""
        half, op = yield _QUESTIONS
        while self.ledger.half_next < half.max_offset:
            for entry in (yield from read_slice(HALF_TOPIC, self.ledger.half_next)):
                found = entry.peek
                self.ledger.take_half(
                    OpenTransaction(
                        found.queue_offset,
                        found.physical_offset,
                        found.store_timestamp,
                        immunity_ms(found.properties),
                    ),
                    self.clocks(),
                )
            if self.ledger.half_next < half.max_offset:
                yield 0.0
        while self.ledger.op_next < op.max_offset:
            for entry in (yield from read_slice(OP_TOPIC, self.ledger.op_next)):
                parsed = parse_op(entry.peek.properties, entry.body)
                ended = parsed if isinstance(parsed, Ended) else None
                self.ledger.take_ended(entry.peek.queue_offset, ended)
                if ended is not None:
                    self._last_ended = (entry.peek.physical_offset, ended)
            if self.ledger.op_next < op.max_offset:
                yield 0.0

    def _mend(self) -> Steps[None]:
        """Append again what a cut between two masters took from the last op record."""
        if self._last_ended is None:
            return
        physical, ended = self._last_ended
        if ended.outcome is None or ended.outcome is TransactionOutcome.ROLLBACK:
            return
        for offset in ended.offsets:
            half = yield from read_record(HALF_TOPIC, 0, offset)
            if half is None:
                continue
            follows = yield from first_behind(*target(half, ended.outcome), physical)
            if follows is None or follows.prepared_transaction_offset != half.physical_offset:
                _log.info("outcome appended again", offset=half.physical_offset)
                again = AppendRequest(resolution(half, ended.outcome, self.view.store_host))
                while (yield again).code == ResponseCode.SERVICE_NOT_AVAILABLE:
                    yield _WAIT_S
