"""Asking producers: the timer of a mastership, and what it does with what the ledger says is due.

A round goes through everything that is due, in slices of a bounded number of bytes, so that neither
the loop nor a producer's connection is filled by many half messages at once. It ends with the table
of open transactions, which carries the counts to the next master and lets both queues be forgotten
below it.

Rules protected: a question counts only when it was sent; a producer that is away for an hour loses
nothing. A half message is given up by ending it like any other, so no answer can bring it back.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import request as make_request
from gantry_protocol.errors import GantryError
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.process import log
from gantry_protocol.records import MessageRecord, find_property
from gantry_protocol.records.properties import REAL_TOPIC
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients import topic_rules
from gantry_broker.clients.core.reading import read_record
from gantry_broker.clients.core.transactions.records import (
    GIVEN_UP_TOPIC,
    GROUP,
    HALF_TOPIC,
    OP_TOPIC,
    OpenTransaction,
    TransactionOutcome,
    check_request,
    table_records,
)
from gantry_broker.clients.creation import TopicCreation
from gantry_broker.clients.sessions import ConsumerMember
from gantry_broker.clients.step_run import Run
from gantry_broker.clients.transactions import Transactions
from gantry_broker.store.contract import SendOutcome
from gantry_broker.store.steps import Steps

SLICE_S = 0.05  # between two slices of a round
SLICE_BYTES = 1024 * 1024  # of half messages: 20 MB/s, which a producer's connection can take
SLICE_COUNT = 256

_log = log.get("transactions")


class Rounds:
    """See the module.

    Args:
        transactions: what is open, and when a round begins.
        producers: the members of a producer group that are connected now.
        commit: remembers a position in the log: group, topic, queue id, offset.
        creation: makes the topic of what is given up.
        may_be_asked: whether a client may see a message of a topic.
    """

    def __init__(
        self,
        transactions: Transactions,
        *,
        producers: Callable[[str], list[ConsumerMember]],
        commit: Callable[[str, str, int, int], bool],
        creation: TopicCreation,
        may_be_asked: Callable[[Connection, str], bool] = lambda conn, topic: True,
    ) -> None:
        self._transactions = transactions
        self._producers = producers
        self._commit = commit
        self._creation = creation
        self._may_be_asked = may_be_asked
        self._due: deque[int] = deque()  # of the round that is under way
        self._in_round = False
        self._writing = False  # a table is not confirmed yet
        self._chosen = 0  # counts up, so that the members of a group take turns
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._wait(self._interval_s)

    @property
    def _interval_s(self) -> float:
        return self._transactions.policy.interval_ms / 1000

    def close(self) -> None:
        """The mastership is over: ask nobody any more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def turn(self) -> Steps[float]:
        """Begin a round, or go on with it; returns how many seconds to wait then."""
        served = self._transactions
        if not served.ready or served.view.accepting_writes() is not None:
            self._due.clear()
            self._in_round = False
            return self._interval_s
        if not self._in_round:
            self._in_round = True
            self._due.extend(served.ledger.due(served.clocks()))
        left_bytes, left_count = SLICE_BYTES, SLICE_COUNT
        while self._due and left_bytes > 0 and left_count > 0:
            left_bytes -= yield from self._look_at(self._due.popleft())
            left_count -= 1
        if self._due:
            return SLICE_S
        self._in_round = False
        self._write_table()
        return self._interval_s

    def _wait(self, delay_s: float) -> None:
        if not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        def failed(error: GantryError) -> None:
            _log.warning("a round broke off", reason=error)
            self._wait(self._interval_s)

        Run(self._transactions.view.store, self.turn(), self._wait, failed).start()

    def _look_at(self, offset: int) -> Steps[int]:
        """Ask for one half message or give it up; returns how many bytes that took."""
        served = self._transactions
        ledger = served.ledger
        row = ledger.find(offset)
        if row is None or ledger.is_ending(offset):
            return 0
        try:
            half = yield from read_record(HALF_TOPIC, 0, offset)
            if self._is_closed or ledger is not served.ledger or not served.ready:
                return 0  # the log did not read meanwhile, and is read again
            if ledger.find(offset) is None or ledger.is_ending(offset):
                return 0  # it was ended meanwhile
            if half is None:
                _log.error("a half message is not in the local log", offset=row.physical)
            elif ledger.is_hopeless(row):
                self._give_up(half)
            else:
                self._ask(half, row)
        except GantryError as error:  # its trouble must not keep the others waiting
            _log.warning("a half message was not asked for", offset=row.physical, reason=error)
            return 0
        return 0 if half is None else half.size

    def _ask(self, half: MessageRecord, row: OpenTransaction) -> None:
        served = self._transactions
        group = find_property(half.properties.encode(), "PGROUP") or ""
        topic = find_property(half.properties.encode(), REAL_TOPIC) or ""
        members = [
            producer
            for producer in self._producers(group)
            if not producer.connection.closed and self._may_be_asked(producer.connection, topic)
        ]
        if not members:
            served.counters.unasked += 1
            return
        header, body = check_request(half, row.checks + 1, served.view.broker_name)
        self._chosen += 1
        members[self._chosen % len(members)].connection.send(
            make_request(RequestCode.CHECK_TRANSACTION_STATE, to_ext(header), body, oneway=True)
        )
        row.checks += 1
        served.counters.checks += 1

    def _give_up(self, half: MessageRecord) -> None:
        served = self._transactions
        if served.view.store.topics.lookup(GIVEN_UP_TOPIC) is None:
            topic = topic_rules.internal_topic(GIVEN_UP_TOPIC)
            self._creation.ensure(topic, lambda refusal: None)  # the next round looks again
            return
        _log.warning("a transaction nobody ends is given up", offset=half.physical_offset)
        served.append_end(half, TransactionOutcome.GIVEN_UP, lambda result: None)

    def _write_table(self) -> None:
        """Let the next master begin here, with the counts of this round."""
        served = self._transactions
        ledger = served.ledger
        if self._writing or not ledger.changed:
            return
        needed = ledger.half_needed
        table = ledger.table()
        host = served.view.store_host

        def written(result: SendOutcome) -> None:
            self._writing = False
            if result.code != ResponseCode.SUCCESS:
                ledger.changed = True
                return
            served.counters.tables += 1
            self._commit(GROUP, HALF_TOPIC, 0, needed)
            self._commit(GROUP, OP_TOPIC, 0, table.op_next)

        self._writing = True
        records = table_records(table.rows, table.half_next, table.op_next, host)
        try:
            served.view.store.append(records, written)
        except GantryError as error:
            self._writing = False
            ledger.changed = True
            _log.warning("the table of transactions was not written", reason=error)
