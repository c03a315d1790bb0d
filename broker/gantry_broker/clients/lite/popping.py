"""PopLiteMessage (200070): messages of the lite topics to which a client subscribes.

Upstream: ``PopLiteMessageProcessor`` and ``LiteEventDispatcher``. What is in flight is the ledger
of POP (ADR 0078): a lite topic is a queue there, taken in order, one batch at a time. So
acknowledgements, times, tries and dead letters are those of POP, and outlive the master as they do.

Which lite topics to look at is known of each client: those in which something came, was
acknowledged, or became visible again since it was looked at last. A new master begins with all that
a client takes, when that client asks; so a start looks at nothing, however many lite topics there
are, and what comes from then on is handed out at once.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator
from functools import partial

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import GantryError
from gantry_protocol.headers.codec import from_ext, to_ext
from gantry_protocol.headers.lite import PopLiteMessageRequestHeader, PopLiteMessageResponseHeader
from gantry_protocol.lite import is_lite_queue, lite_queue, parent_and_lite
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.types import Offset

from gantry_broker.clients.core.lite.registry import ClientKey, Subscriber
from gantry_broker.clients.core.pop.receipts import ORDERED
from gantry_broker.clients.core.pop.records import QueueId
from gantry_broker.clients.creation import TopicCreation
from gantry_broker.clients.lite import rules
from gantry_broker.clients.lite.book import LiteBook
from gantry_broker.clients.lite.pace import Pace
from gantry_broker.clients.pop.book import PopBook
from gantry_broker.clients.pop.polls import Place, Poll, Polls
from gantry_broker.clients.pop.requests import INVISIBLE_MAX_MS
from gantry_broker.clients.pop.taking import MAX_BYTES, MAX_COUNT, Taken, Taking, WantedMessages
from gantry_broker.clients.step_run import Run
from gantry_broker.clients.traffic import Traffic
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import Confirmed, QueueKey, Refusal, SendOutcome
from gantry_broker.store.steps import Steps

LOOKS = 64  # at lite topics, before others have their turn
SLICE_S = 0.002  # between two slices of so many looks, which take half of it
PENDING_MAX = 10_000  # that a client of a wildcard group keeps; beyond them it looks at all
PAGE = 256
REST_S = 0.1  # between two looks at what is visible and cannot be handed out
_EARLY_S = 0.001  # a message is visible in the millisecond after its time

Found = list[tuple[str, Taken]]  # names of queues, and what was taken of them


class LitePopping:
    """See the module.

    Args:
        view: the group, which is the master.
        book: the subscriptions.
        pops: what is in flight.
        creation: of topics for dead letters.
        traffic: counts what goes out.

    Attributes:
        heard: is told of clients that ask.
        polls: requests that wait.
        taking: takes messages.
        looks: looks at lite topics for messages.
    """

    def __init__(
        self,
        view: GroupView,
        book: LiteBook,
        pops: PopBook,
        creation: TopicCreation,
        traffic: Traffic,
    ) -> None:
        self.looks = 0
        self.heard: Callable[[ClientKey], None] = lambda key: None
        self._view = view
        self._book = book
        self._pops = pops
        self._traffic = traffic
        self._loop = asyncio.get_running_loop()
        self.polls = Polls(_Silent(), lambda place: None)
        self.taking = Taking(view, pops, creation, self._unlocked)
        self._pace = Pace(SLICE_S)
        self._timers: dict[QueueId, asyncio.TimerHandle] = {}  # where something is in flight
        self._unsubscribe: Callable[[], None] | None = None  # while nobody subscribes

    def close(self) -> None:
        """The mastership is over."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        for timer in self._timers.values():
            timer.cancel()
        self.polls.close()

    # ---- what may be there

    def woken(self, key: ClientKey) -> None:
        """There may be something for a client."""
        self.listen()
        self.polls.wake(_place(key))

    def listen(self) -> None:
        """Hear of messages while somebody subscribes, so that others' sends cost nothing."""
        if self._book.registry.clients:
            if self._unsubscribe is None:
                self._unsubscribe = self._view.store.subscribe(self._arrived)
        elif self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def changed(self, queue: QueueId) -> None:
        """Something of a lite topic was acknowledged, put off or became visible for a group."""
        self._arm(queue)
        parent, name = parent_and_lite(queue.topic)
        for item in self._book.registry.subscribers(parent, name):
            if item.key[0] == queue.group:
                self._offer(item, name)

    def look_again(self, item: Subscriber) -> None:
        """Look at all that a client takes."""
        item.scan = None
        self.woken(item.key)

    def _arrived(self, confirm: Offset, keys: Collection[QueueKey]) -> None:
        for topic, _ in keys:
            if is_lite_queue(topic):
                parent, name = parent_and_lite(topic)
                for item in self._book.registry.subscribers(parent, name):
                    self._offer(item, name)

    def _offer(self, item: Subscriber, name: str) -> None:
        if item.all and len(item.pending) >= PENDING_MAX:
            item.scan = None
        else:
            item.pending[name] = None
        self.polls.wake(_place(item.key))

    def _unlocked(self, place: Place) -> None:
        self.changed(QueueId(place.group, place.topic, 0))

    def _arm(self, queue: QueueId) -> None:
        """Look again when the next message in flight becomes visible."""
        timer = self._timers.pop(queue, None)
        if timer is not None:
            timer.cancel()
        held = self._pops.ledger.queues.get(queue)
        due_ms = None if held is None else held.next_due_ms()
        if due_ms is not None:
            now_s, due_s = self._loop.time(), due_ms / 1000 + _EARLY_S
            if due_s <= now_s:  # it waits for something else: a topic, or the log
                due_s = now_s + REST_S
            self._timers[queue] = self._loop.call_at(due_s, self._visible, queue)

    def _visible(self, queue: QueueId) -> None:
        self._timers.pop(queue, None)
        parent, name = parent_and_lite(queue.topic)
        for item in self._book.registry.subscribers(parent, name):
            if item.key[0] == queue.group:
                self._offer(item, name)

    # ---- PopLiteMessage

    def pop(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """PopLiteMessage (200070)."""
        header = from_ext(PopLiteMessageRequestHeader, request.ext)
        refusal = self._refuse(header)
        if refusal is not None:
            return reply(request, *refusal)
        key = (header.consumer_group, header.client_id)
        self.heard(key)
        poll = Poll(conn, request, _place(key), partial(self._serve, header), self._found_nothing)

        def served(has_found: bool) -> None:
            if has_found or conn.closed:
                return
            if header.poll_time <= 0 or request.is_oneway:
                poll.give_up(poll)
            elif not self.polls.park(poll, header.poll_time / 1000):
                remark = "too many requests wait for messages"
                self._answer(poll, reply(request, ResponseCode.POLLING_FULL, remark))
            elif is_late:
                self.polls.wake(poll.place)  # what came meanwhile, behind the look, woke nobody

        is_late = False
        poll.serve(poll, served)
        is_late = True
        return None

    def _refuse(self, header: PopLiteMessageRequestHeader) -> Refusal | None:
        if header.max_msg_num > MAX_COUNT:
            remark = f"{header.max_msg_num} messages at once are too many, {MAX_COUNT} may be"
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if not 0 < header.invisible_time <= INVISIBLE_MAX_MS:
            remark = f"invisibleTime {header.invisible_time} is not in 1 to {INVISIBLE_MAX_MS}"
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        group, parent = header.consumer_group, header.topic
        return rules.refuse_group(self._view, group, parent) or self._view.accepting_writes()

    def _serve(
        self, header: PopLiteMessageRequestHeader, poll: Poll, served: Callable[[bool], None]
    ) -> None:
        refusal = self._refuse(header)
        failure = self._book.failure or self._pops.failure
        if refusal is None and failure:
            refusal = Refusal(ResponseCode.SYSTEM_ERROR, failure)
        if refusal is None and self._pops.is_behind:
            remark = "[OVERLOAD]too many pops wait for the log"
            refusal = Refusal(ResponseCode.SYSTEM_BUSY, remark)
        if refusal is not None:
            self._end(poll, reply(poll.request, *refusal))
            served(True)
            return
        key = (header.consumer_group, header.client_id)
        item = self._book.registry.clients.get(key)
        if not (self._book.ready and self._pops.ready) or item is None:
            served(False)
            return
        if item.parent != header.topic:
            served(False)
            return
        answer = _LiteAnswer(self, poll, header)

        def taken(found: Found) -> None:
            self._pace.over(answer)
            if found:
                self.polls.forget(poll)
                answer.taken(found)
            served(bool(found))

        def failed(error: GantryError) -> None:
            self._pace.over(answer)
            self._end(poll, reply(poll.request, error.answer_code, str(error)))
            served(True)

        Run(self._view.store, self._take(header, item, answer), taken, failed).start()

    def _take(
        self, header: PopLiteMessageRequestHeader, item: Subscriber, answer: "_LiteAnswer"
    ) -> Steps[Found]:
        """Messages of one lite topic after the other, until there are enough.

        Or some, after a slice: who has waited for one need not wait for more.

        Raises:
            GantryError: nothing was found, and the store does not say what some of them holds.
        """
        found: Found = []
        group, attempt = header.consumer_group, header.attempt_id or ""
        count, size_bytes = max(header.max_msg_num, 1), MAX_BYTES
        tries = self._view.consumers.config(group).retry_max_times
        seen: set[str] = set()
        left, is_scanning = LOOKS, False  # looks of this slice
        while count > 0 and size_bytes > 0:
            name = _offered(item, seen)
            if name is None:
                name = self._scanned(item, seen)
                if name is None:
                    break
                left, is_scanning = left if is_scanning else 0, True
            if left == 0:
                if found:
                    item.pending[name] = None  # for the next request
                    break
                yield from self._pace.slice(answer)
                left = LOOKS
                if not item.all and name not in item.names:
                    continue  # the client has left it meanwhile
            left -= 1
            seen.add(name)
            queue = QueueId(group, lite_queue(item.parent, name), 0)
            try:
                if not self._may_find(queue, attempt):
                    continue
                wanted = WantedMessages(
                    group=group,
                    topic=queue.topic,
                    count=count,
                    invisible_ms=header.invisible_time,
                    codes=None,
                    sql=None,
                    from_end=False,
                    ordered=True,
                    attempt=attempt,
                    tries=tries,
                )
                place = Place(queue.topic, group, 0)
                stored = partial(answer.stored, queue.topic)
                popped_ms = found[0][1].popped_ms if found else None
                taken = yield from self.taking.take(wanted, [0], place, stored, popped_ms)
            except GantryError:
                item.pending[name] = None
                if found:
                    break
                raise
            for one in taken:
                found.append((queue.topic, one))
                count -= len(one.messages)
                size_bytes -= len(one.body)
            self._arm(queue)
        return found

    def _may_find(self, queue: QueueId, attempt: str) -> bool:
        """Whether a pop of a lite topic may find a message; if not, who waits is told later."""
        self.looks += 1
        end = self._view.store.lite_end(queue.topic)
        if end is None:
            return False  # it has not begun, or has ended, whatever is in flight
        at = self._view.store.committed.query(*queue)
        held = self._pops.ledger.queues.get(queue)
        if held is None:
            return at is None or at < end
        if at != self._pops.committed.get(queue):
            return True  # somebody has moved the group
        if not held.held:
            return held.next < end
        if attempt and held.attempt == attempt:
            return True  # its answer was lost
        steady_ms = self._pops.clocks().steady_ms
        if not held.is_blocked(steady_ms) and held.visible(steady_ms, 1):
            return True
        self._arm(queue)
        return False

    def _scanned(self, item: Subscriber, seen: Collection[str]) -> str | None:
        """The next lite topic of all that a client takes; None when it has been through."""
        if item.scan is None:
            item.scan = self._scan(item)
        return next((name for name in item.scan if name not in seen), None)

    def _scan(self, item: Subscriber) -> Iterator[str]:
        """All that a client takes; one request goes on where the one before has stopped."""
        names = list(item.names)
        while names:
            name = names.pop()
            if name in item.names:  # it may have left it since
                yield name
        after = ""
        while item.all and (page := self._view.store.lite_topics(item.parent, after, PAGE)):
            yield from (topic.name for topic in page)
            after = page[-1].name

    # ---- answers

    def handed_out(self, poll: Poll, header: PopLiteMessageRequestHeader, found: Found) -> None:
        """Answer with what is confirmed to be in flight."""
        taken = [item for _, item in found]
        counts = ";".join(str(message.count - 1) for item in taken for message in item.messages)
        answer = PopLiteMessageResponseHeader(
            pop_time=taken[0].popped_ms,
            invisible_time=header.invisible_time,
            revive_qid=ORDERED,
            order_count_info=counts,
        )
        body = b"".join(item.body for item in taken)
        count = sum(len(item.messages) for item in taken)
        self._traffic.got(header.consumer_group, header.topic, count)
        ext = to_ext(answer)
        self._answer(poll, reply(poll.request, ResponseCode.SUCCESS, "FOUND", ext, body))

    def refused(self, poll: Poll, outcome: SendOutcome) -> None:
        """Answer that nothing is in flight: the log did not take it."""
        self._answer(poll, reply(poll.request, outcome.code, outcome.remark))

    def _found_nothing(self, poll: Poll) -> None:
        self._answer(poll, reply(poll.request, ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE"))

    def _end(self, poll: Poll, answer: RemotingCommand) -> None:
        self.polls.forget(poll)
        self._answer(poll, answer)

    def _answer(self, poll: Poll, answer: RemotingCommand) -> None:
        if not poll.connection.closed and not poll.request.is_oneway:
            poll.connection.reply(poll.request, answer)


class _LiteAnswer:
    """The answer to one PopLiteMessage, until every record that it stands on is confirmed."""

    def __init__(
        self, popping: LitePopping, poll: Poll, header: PopLiteMessageRequestHeader
    ) -> None:
        self._popping = popping
        self._poll = poll
        self._header = header
        self._found: Found | None = None
        self._outcomes: dict[str, SendOutcome] = {}

    def stored(self, queue: str, _: int, outcome: SendOutcome) -> None:
        """Messages that were taken of a lite topic are confirmed to be in flight, or are not."""
        self._outcomes[queue] = outcome
        self._try()

    def taken(self, found: Found) -> None:
        """Everything was taken."""
        self._found = found
        self._try()

    def _try(self) -> None:
        if self._found is None or any(queue not in self._outcomes for queue, _ in self._found):
            return
        sound = [
            item for item in self._found if self._outcomes[item[0]].code == ResponseCode.SUCCESS
        ]
        for queue, _ in self._found:
            if self._outcomes[queue].code != ResponseCode.SUCCESS:
                self._popping.changed(QueueId(self._header.consumer_group, queue, 0))
        if sound:
            self._popping.handed_out(self._poll, self._header, sound)
        else:
            self._popping.refused(self._poll, self._outcomes[self._found[0][0]])


class _Silent:
    """A store that tells of nothing: who waits here is woken by name."""

    def subscribe(
        self, confirmed: Confirmed, topics: Collection[str] | None = None
    ) -> Callable[[], None]:
        """Tell of nothing."""
        return lambda: None


def _place(key: ClientKey) -> Place:
    """The line of a client's requests."""
    group, client_id = key
    return Place(client_id, group, 0)


def _offered(item: Subscriber, seen: Collection[str]) -> str | None:
    """The next lite topic in which something may be, each once in a request."""
    name = next(iter(item.pending), None)
    if name is None or name in seen:
        return None
    del item.pending[name]
    return name
