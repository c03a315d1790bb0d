"""Sends that an earlier master may have stored: answered by the record that is there.

Whoever passes a client on to this master says which sends the last one left unanswered
(``GANTRY_PASSED_ON``). Such a send is not stored again if the log has a record of its topic with
its unique key and its own time of birth, stored at most ``WINDOW_MS`` ago: the client named both,
and a client that sends the same message again of its own accord gives it a new time. Without a
unique key all that the client said must be the same, and the record answers one send only
(``sent_records``). A client that says so itself can only spare itself a copy, so anybody may.

What the last master wrote, and this one has not confirmed yet, counts: a send waits until
everything is confirmed that its queue held when the first one came for it. What was stored later is
of this master, so of another send. Meanwhile what its client says next waits behind it, so that the
order stays.

A master that may not write yet, since too few are in sync, has the send wait, too: who is refused
sends anew, and what the last master wrote may be confirmed all the same. Where too few come to be
in sync while a record is looked for, that record answers nothing: it may be on the master's disk
alone.

A disk that is full does not keep a send from being looked for: what is there is answered.

What it refuses: nothing of its own accord; what is not found is stored. Of a batch whose end was
cut off with the last master's log the rest is stored, behind what is there; one whose records do
not all have a key is stored whole. Where nobody can tell whether it is there, the
answer says so (``MAY_BE_STORED``), since who is plainly refused may send it elsewhere.

The last master may have stored nothing of a mapped topic itself, and have passed the send on to the
group that has the queue. So this one passes on, too, that it may have come before
(``PASSED_AGAIN``), if it has a unique key: one connection carries the sends of many clients, whose
messages without a key could be taken for one another. That group looks for whatever comes later and
is the same, too (``mapped.again``).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import GantryError
from gantry_protocol.records import SCHEDULE_TOPIC, MessageRecord
from gantry_protocol.records.properties import UNIQ_KEY
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.send_answer import MAY_BE_STORED
from gantry_protocol.settings.delays import MAX_LEVELS

from gantry_broker.clients.core.delay.levels import QUEUES
from gantry_broker.clients.mapped.again import Again, digest
from gantry_broker.clients.mapped.before import is_question
from gantry_broker.clients.send import Sender
from gantry_broker.clients.sent_records import Stretch, by_content, by_key, key_of, place_of
from gantry_broker.clients.step_run import Run
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import (
    QueueKey,
    QueueOffsets,
    QueueQuestion,
    Refusal,
    SendOutcome,
    StoredAt,
)

RESENT = "resent"  # in a connection's attrs: its ``Marks``
WINDOW_MS = 10 * 60 * 1000  # a client gives a send up seconds after it first said it
WAIT_S = 2.5  # for what the last master left, or to be allowed to write; clients give a send 3 s
LOOK_S = 0.05  # between two looks whether this master may write
QUEUED_MAX = 4_096  # sends of one connection behind one that waits
_BUSY = "[OVERLOAD]system busy, start flow control for a while"
_ABSENT = (ResponseCode.QUERY_NOT_FOUND, "the send is not in this queue")
_PARTLY = "service not available now. a part of the batch is where its queue was before it moved"
_NOT_YET = "service not available now. what the last master wrote is not confirmed yet"


class Marks(set[int]):
    """Opaques of sends that a master may have stored before; what is known of them goes with them.

    Attributes:
        ends: what each queue held when the first of them was looked for: none is later.
        given: log offsets of the records without a key of its client that have answered one.
    """

    def __init__(self, opaques: Iterable[int]) -> None:
        """None was looked for."""
        super().__init__(opaques)
        self.ends: dict[QueueKey, int] = {}
        self.given: set[int] = set()


def may_have_come_before(conn: Connection, request: RemotingCommand) -> bool:
    """Whether an earlier master may have had this send."""
    return request.opaque in conn.attrs.get(RESENT, ())


def has_keys(request: RemotingCommand) -> bool:
    """Whether the messages of a send can be told from all others, as far as can be seen."""
    ext = request.ext or {}
    properties = ext.get("i") or ext.get("properties") or ""
    return "true" in (ext.get("m"), ext.get("batch")) or f"{UNIQ_KEY}\x01" in properties


class _Turn(msgspec.Struct):
    """One connection whose resent sends are looked up, one after the other.

    Attributes:
        later: what it sent meanwhile.
        until_s: how long it waits for this master to be allowed to write.
    """

    conn: Connection
    later: deque[RemotingCommand]
    until_s: float | None = None


Looked = Callable[[Sequence[StoredAt] | Refusal], None]


class _Lookup:
    """Whether the records of one send are in the log.

    Attributes:
        given_key: of a record that was found: the unique key that a broker gave it.
        sought: the records that the send would store.
        again: of a send that another group's master passed on, its digest.
    """

    def __init__(
        self, view: GroupView, sought: list[MessageRecord], marks: Marks, now_ms: int, again: bytes
    ) -> None:
        self.given_key: str | None = None
        self.again = again
        self._view = view
        self.sought = sought
        self._marks = marks
        self._since_ms = now_ms - WINDOW_MS
        self._queues: list[QueueKey] = []
        self._done: Looked | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._run: Run[Any] | None = None

    def start(self, done: Looked) -> None:
        """``done`` comes once, maybe at once: the places of the first records, maybe of all."""
        self._done = done
        if not self.sought or (len(self.sought) > 1 and not all(map(key_of, self.sought))):
            self._finish([])
            return
        self._queues = self._queues_of(self.sought[0])
        self._ask()

    def end(self) -> None:
        """Tell nobody any more."""
        self._done = None
        self._stop()
        if self._run is not None:
            self._run.cancel()

    def _queues_of(self, record: MessageRecord) -> list[QueueKey]:
        if record.topic == SCHEDULE_TOPIC and record.queue_id < 0:
            return [(SCHEDULE_TOPIC, number) for number in range(MAX_LEVELS, QUEUES)]
        if record.queue_id >= 0:
            return [(record.topic, record.queue_id)]
        topic = self._view.store.topics.lookup(record.topic)
        count = 1 if topic is None else topic.write_queue_nums
        return [(record.topic, number) for number in range(count)]

    def _ask(self) -> None:
        questions = [QueueQuestion(*queue) for queue in self._queues]
        self._view.store.offsets(questions, self._learned)

    def _learned(self, answers: list[QueueOffsets] | Refusal) -> None:
        if self._done is None or self._run is not None:
            return
        if isinstance(answers, Refusal):
            self._finish(answers)
            return
        stretches = []
        for queue, held in zip(self._queues, answers, strict=True):
            end = self._marks.ends.setdefault(queue, held.next_offset)
            stretches.append((queue, held.min_offset, end))
        if all(
            max(held.max_offset, self._view.queues.first_offset(*queue)) >= end
            for held, (queue, _, end) in zip(answers, stretches, strict=True)
        ):
            self._stop()
            self._read(stretches)
        elif self._unsubscribe is None:
            self._unsubscribe = self._view.store.subscribe(lambda offset, queues: self._ask())
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(WAIT_S, self._too_long)

    def _too_long(self) -> None:
        self._finish(Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, _NOT_YET))

    def _read(self, stretches: list[Stretch]) -> None:
        store, first = self._view.store, self.sought[0]
        if key_of(first) is not None:
            self._run = Run(store, by_key(self.sought, self._since_ms), self._finish, self._failed)
        else:
            steps = by_content(first, stretches, self._since_ms, self._marks.given)
            self._run = Run(store, steps, self._found, self._failed)
        self._run.start()

    def _found(self, record: MessageRecord | None) -> None:
        if record is None:
            self._finish([])
            return
        self._marks.given.add(record.physical_offset)
        self.given_key = key_of(record)
        self._finish([place_of(record)])

    def _failed(self, error: GantryError) -> None:
        self._finish(Refusal(ResponseCode.SYSTEM_ERROR, str(error)))

    def _finish(self, found: Sequence[StoredAt] | Refusal) -> None:
        self._stop()
        done, self._done = self._done, None
        if done is not None:
            done(found)

    def _stop(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class ResentSends:
    """See the module.

    Args:
        view: the group; it is the master.
        sender: serves sends.
        clock: seconds since 1970.
        no_room: why nothing more can be stored now; None while it can.

    Attributes:
        found: sends that were answered by a record that was there.
        appended: those that were stored, since none was.
        completed: batches whose rest was stored.
        again: sends that other groups' masters have passed on twice.
    """

    def __init__(
        self,
        view: GroupView,
        sender: Sender,
        clock: Callable[[], float],
        no_room: Callable[[], Refusal | None] = lambda: None,
    ) -> None:
        """Nobody waits."""
        self._closed = False
        self._no_room = no_room
        self.found = 0
        self.appended = 0
        self.completed = 0
        self.again = Again(WINDOW_MS / 1000)
        self._view = view
        self.sender = sender
        self._clock = clock
        self._turns: dict[int, _Turn] = {}  # by connection id
        self._lookups: dict[_Lookup, None] = {}

    def is_sought(self, conn: Connection, request: RemotingCommand) -> bool:
        """Whether ``send`` would look for it, or let it wait behind one that is looked for."""
        is_marked = self.again.has(request) or may_have_come_before(conn, request)
        return is_marked or conn.id in self._turns

    def seek(self, conn: Connection, request: RemotingCommand) -> None:
        """Serve a send of another group's master that has come ``again``, or may have.

        Its connection has the sends of many clients, none of which waits for this one.

        Raises:
            HeaderError, NameRefused: it is malformed.
        """
        self.sender.sought(conn, request)
        now_s, again = asyncio.get_running_loop().time(), digest(request)
        self.again.remember(again, now_s)
        self._seek(conn, request, again, now_s + WAIT_S)

    def _seek(
        self, conn: Connection, request: RemotingCommand, again: bytes, until_s: float
    ) -> None:
        loop = asyncio.get_running_loop()
        if self._closed:
            return  # whoever asked may ask the next master
        is_sought = self.again.is_sought(again)
        if loop.time() < until_s and (is_sought or self._view.accepting_writes() is not None):
            loop.call_later(LOOK_S, self._seek, conn, request, again, until_s)
        elif is_sought:
            refusal = reply(request, ResponseCode.SERVICE_NOT_AVAILABLE, _NOT_YET)
            refusal.ext = {MAY_BE_STORED: "true"}
            conn.reply(request, refusal)
        else:
            sought = self.sender.sought(conn, request)
            self.again.begin(again)
            self._start(conn, request, sought, Marks(()), again)

    def _start(
        self,
        conn: Connection,
        request: RemotingCommand,
        sought: list[MessageRecord],
        marks: Marks,
        again: bytes = b"",
    ) -> None:
        lookup = _Lookup(self._view, sought, marks, int(self._clock() * 1000), again)
        self._lookups[lookup] = None
        lookup.start(partial(self._looked, conn, request, lookup))

    def send(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Serve a send of a client that another master has left sends unanswered."""
        marks: Marks = conn.attrs[RESENT]
        turn = self._turns.get(conn.id)
        if turn is not None:
            if len(turn.later) >= QUEUED_MAX:
                return reply(request, ResponseCode.SYSTEM_BUSY, _BUSY)
            turn.later.append(request)
            return None
        if request.opaque not in marks:
            return self.sender.send(conn, request)
        turn = self._turns[conn.id] = _Turn(conn, deque())
        self._look(turn, request, marks)
        return None

    def connection_closed(self, conn: Connection) -> None:
        """Forget a connection; what is looked up for it is answered to nobody."""
        self._turns.pop(conn.id, None)

    def close(self) -> None:
        """The mastership is over; whoever waits is passed on."""
        self._closed = True
        self._turns.clear()
        for lookup in list(self._lookups):
            lookup.end()
        self._lookups.clear()

    def _look(self, turn: _Turn, request: RemotingCommand, marks: Marks) -> None:
        if self._view.accepting_writes() is not None:
            loop = asyncio.get_running_loop()
            if turn.until_s is None:
                turn.until_s = loop.time() + WAIT_S
            if loop.time() < turn.until_s:
                loop.call_later(LOOK_S, self._look_if, turn, request, marks)
                return
        conn = turn.conn
        marks.discard(request.opaque)
        try:
            sought = self.sender.sought(conn, request)
        except GantryError as error:  # of this send; what came behind it still waits
            conn.reply(request, reply(request, error.answer_code, str(error)))
            self._go_on(conn)
            return
        self._start(conn, request, sought, marks)

    def _looked(
        self,
        conn: Connection,
        request: RemotingCommand,
        lookup: _Lookup,
        stored: Sequence[StoredAt] | Refusal,
    ) -> None:
        if lookup not in self._lookups:
            return
        del self._lookups[lookup]
        self.again.end(lookup.again)
        if conn.closed:
            return  # whoever passed the client on gives it to a master again, maybe to this one
        # Too few may have come to be in sync meanwhile: then what is confirmed is on their disks
        # alone. And a send that may not be written was not looked for.
        stored = self._view.accepting_writes() or stored
        if isinstance(stored, Refusal):
            ext = {MAY_BE_STORED: "true"}
            conn.reply(request, reply(request, stored.code, stored.remark, ext))
        elif len(stored) == len(lookup.sought) > 0:
            self.found += 1
            self.sender.answer_found(conn, request, stored, lookup.given_key)
        elif is_question(request):
            found = (ResponseCode.SERVICE_NOT_AVAILABLE, _PARTLY, {MAY_BE_STORED: "true"})
            conn.reply(request, reply(request, *(found if stored else _ABSENT)))
        elif stored:
            self.completed += 1
            self._complete(conn, request, stored, lookup.sought[len(stored) :])
        else:
            self.appended += 1
            self._store(conn, request)
        self._go_on(conn)

    def _complete(
        self,
        conn: Connection,
        request: RemotingCommand,
        first: Sequence[StoredAt],
        rest: list[MessageRecord],
    ) -> None:
        """Store the records of a batch that the log of the last master does not have any more."""
        for record in rest:
            record.queue_id = first[0].queue_id

        def done(outcome: SendOutcome) -> None:
            if outcome.code == ResponseCode.SUCCESS and outcome.stored:
                self.sender.answer_found(conn, request, [*first, *outcome.stored], None)
            else:
                code, remark = ResponseCode.SERVICE_NOT_AVAILABLE, outcome.remark or _NOT_YET
                conn.reply(request, reply(request, code, remark, {MAY_BE_STORED: "true"}))

        refusal = self._no_room()
        if refusal is None:
            self._view.store.append(rest, done)
        else:
            done(SendOutcome(*refusal))

    def _store(self, conn: Connection, request: RemotingCommand) -> None:
        refusal = self._no_room()
        try:
            answer = (
                self.sender.send(conn, request) if refusal is None else reply(request, *refusal)
            )
        except GantryError as error:  # of this send alone
            answer = reply(request, error.answer_code, str(error))
        if answer is not None:
            conn.reply(request, answer)

    def _go_on(self, conn: Connection) -> None:
        """What the connection said meanwhile, up to the next one that is to be looked up."""
        turn = self._turns.get(conn.id)
        while turn is not None:
            marks = conn.attrs.get(RESENT, ())
            if not turn.later:
                del self._turns[conn.id]
                if not marks:  # only now: what comes meanwhile has to find its place behind
                    conn.attrs.pop(RESENT, None)
                return
            request = turn.later.popleft()
            if request.opaque in marks:
                asyncio.get_running_loop().call_soon(self._look_if, turn, request, marks)
                return
            self._store(conn, request)

    def _look_if(self, turn: _Turn, request: RemotingCommand, marks: Marks) -> None:
        if self._turns.get(turn.conn.id) is turn:
            self._look(turn, request, marks)
