"""Requests of POP: messages taken, acknowledged, hidden for longer, and asked for.

PopMessage (200050), AckMessage (200051), BatchAckMessage (200151), Notification (200054),
ChangeMessageInvisibleTime (200053) and PollingInfo (200055). Checks and codes are upstream's
(``PopMessageProcessor``, ``AckMessageProcessor``, ``ChangeInvisibleTimeProcessor``,
``NotificationProcessor``). A receipt that is over is answered 208, also where upstream answers 0
and does nothing: its message was handed out to somebody else. How long a request waits is counted
from its arrival, so clocks of clients do not matter. Nobody is answered before what earlier masters
wrote was read: whoever names a receipt waits for it, too (``EarlyRequests``).
"""

import itertools
from collections.abc import Callable
from functools import partial

from gantry_protocol.bodies import SubscriptionData, TopicConfig, decode_request
from gantry_protocol.bodies.pop import BatchAcks
from gantry_protocol.bodies.route import PERM_READ
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import BodyError, GantryError
from gantry_protocol.headers.codec import from_ext, to_ext
from gantry_protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    NotificationRequestHeader,
    NotificationResponseHeader,
    PollingInfoRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from gantry_protocol.lite import is_lite_queue, lite_queue
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.settings.priority import factor_of

from gantry_broker.clients import subscription, topic_rules
from gantry_broker.clients.core.pop.ledger import DeliveryState
from gantry_broker.clients.core.pop.queue_order import queue_order
from gantry_broker.clients.core.pop.receipts import (
    BATCH_MAX,
    ORDERED,
    bits,
    message_offsets,
    order_counts,
    parse_receipt,
    start_offsets,
)
from gantry_broker.clients.core.pop.records import Acked, Changed, Event, InFlight, QueueId
from gantry_broker.clients.creation import TopicCreation
from gantry_broker.clients.offsets import OffsetWriter
from gantry_broker.clients.pop.book import PopBook
from gantry_broker.clients.pop.early import NOT_READ, EarlyRequests, Serve
from gantry_broker.clients.pop.parts import Parts
from gantry_broker.clients.pop.polls import ANY_QUEUE, Place, Poll, Polls
from gantry_broker.clients.pop.taking import MAX_COUNT, Taken, Taking, WantedMessages
from gantry_broker.clients.pull import RefuseNew
from gantry_broker.clients.pull_reads import HasRead
from gantry_broker.clients.step_run import Run
from gantry_broker.clients.traffic import Traffic
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import Refusal, SendOutcome

INVISIBLE_MAX_MS = 3 * 24 * 3600 * 1000
_FROM_END = 1  # ConsumeInitMode.MAX


class PopRequests:
    """See the module.

    Args:
        view: the group, which is the master.
        creation: of topics for dead letters.
        writer: of committed offsets.
        now_ms: the wall clock.
        traffic: counts what goes out.
        refuse_new: says why a group that is new in a queue may not be served.
        has_read: is told what goes out; None where nobody wants to know.

    Attributes:
        book: what is in flight.
        parts: of mapped queues, as this group holds them.
        taking: takes messages.
        polls: requests that wait.
        early: requests by receipts that wait until the log was read.
        acked: messages that were acknowledged.
        changed: messages whose invisible time was changed.
        over: receipts that were over or unknown.
        lite_changed: is told of each queue of a lite topic in which something was acknowledged or
            put off.
        lite_ready: is told when the log was read, or something was taken back.
    """

    def __init__(
        self,
        view: GroupView,
        creation: TopicCreation,
        writer: OffsetWriter,
        now_ms: Callable[[], int],
        traffic: Traffic,
        refuse_new: RefuseNew,
        has_read: HasRead | None = None,
    ) -> None:
        self.acked = self.changed = self.over = 0
        self.lite_changed: Callable[[QueueId], None] = lambda queue_id: None
        self.lite_ready: Callable[[], None] = lambda: None
        self._view = view
        self._traffic = traffic
        self._has_read = has_read
        self._refuse_new = refuse_new
        self._turn = itertools.count()
        self.polls = Polls(view.store, self._next_due_s)
        self.early = EarlyRequests()
        self.book = PopBook(view, writer, now_ms, self._book_changed)
        self.taking = Taking(view, self.book, creation, self.polls.wake)
        self.parts = Parts(view, self.book, self.polls.wake, self.taking.groups.add)

    def close(self) -> None:
        """The mastership is over."""
        self.polls.close()
        self.parts.close()
        self.early.close()
        self.book.close()

    def _book_changed(self) -> None:
        """The log was read, or could not be, or something was taken back."""
        self.polls.wake_all()
        self.lite_ready()
        self.early.serve_all()

    def queues_changed(self, topics: set[str]) -> None:
        """The maps of these topics changed."""
        self.parts.forget(topics)
        for topic in topics:
            self.polls.wake_topic(topic)

    # ---- PopMessage

    def pop(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """PopMessage (200050)."""
        header = from_ext(PopMessageRequestHeader, request.ext)
        refusal = self._refuse_pop(header)
        if refusal is not None:
            return reply(request, *refusal)
        try:
            wished = self._subscription(header)
        except BodyError as error:
            return reply(request, ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        wanted = WantedMessages(
            group=header.consumer_group,
            topic=header.topic,
            count=max(header.max_msg_nums, 1),
            invisible_ms=header.invisible_time,
            codes=subscription.wanted_codes(wished),
            sql=subscription.wanted_sql(wished),
            from_end=header.init_mode == _FROM_END,
            ordered=bool(header.order),
            attempt=header.attempt_id or "",
            tries=self._view.consumers.config(header.consumer_group).retry_max_times,
        )
        place = _place(header)
        refusal = self._refuse_new_group(conn, place)
        if refusal is not None:
            return reply(request, *refusal)
        serve = partial(self._serve_pop, wanted)
        self._begin(Poll(conn, request, place, serve, self._found_nothing), header.poll_time)
        return None

    def _refuse_new_group(self, conn: Connection, place: Place) -> Refusal | None:
        """The reason why a group that nobody knows may not begin to pop here now."""
        topic = self._view.store.topics.lookup(place.topic)
        assert topic is not None, "or the pop was refused"
        query = self._view.store.committed.query
        queue_ids = self.parts.held(topic, range(topic.read_queue_nums))
        if any(query(place.group, place.topic, at) is not None for at in queue_ids):
            return None
        return self._refuse_new(conn, place.group, place.topic, 0)

    def _begin(self, poll: Poll, wait_ms: int) -> None:
        """Serve a request now, or when there is something."""

        def served(has_found: bool) -> None:
            if has_found or poll.connection.closed:
                return
            if wait_ms <= 0 or poll.request.is_oneway:
                poll.give_up(poll)
            elif not self.polls.park(poll, wait_ms / 1000):
                remark = "too many requests wait for messages"
                self.answer(poll, reply(poll.request, ResponseCode.POLLING_FULL, remark))
            elif is_late:
                self.polls.wake(poll.place)  # what came meanwhile, behind the look, woke nobody

        is_late = False
        poll.serve(poll, served)
        is_late = True

    def _refuse_pop(
        self, header: PopMessageRequestHeader | NotificationRequestHeader
    ) -> Refusal | None:
        """The reason why nobody may pop so."""
        topic = self._view.store.topics.lookup(header.topic)
        if isinstance(header, PopMessageRequestHeader):
            if header.max_msg_nums > MAX_COUNT:
                remark = f"{header.max_msg_nums} messages at once are too many, {MAX_COUNT} may be"
                return Refusal(ResponseCode.INVALID_PARAMETER, remark)
            if not 0 < header.invisible_time <= INVISIBLE_MAX_MS:
                remark = f"invisibleTime {header.invisible_time} is not in 1 to {INVISIBLE_MAX_MS}"
                return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if topic is None:
            return topic_rules.unknown_topic(header.topic)
        if not topic.perm & PERM_READ:
            remark = f"the topic[{header.topic}] peeking message is forbidden"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        if header.queue_id >= topic.read_queue_nums:
            remark = (
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}]"
                f" topicConfig.readQueueNums:[{topic.read_queue_nums}]"
            )
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if not self._view.consumers.config(header.consumer_group).consume_enable:
            remark = f"subscription group no permission, {header.consumer_group}"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        return self._view.accepting_writes()

    @staticmethod
    def _subscription(
        header: PopMessageRequestHeader | NotificationRequestHeader,
    ) -> SubscriptionData:
        """The subscription in a request.

        Raises:
            BodyError: the filter does not read, or is of a kind that is not offered.
        """
        if not header.exp:
            return subscription.parse(header.topic, None)
        if not subscription.is_known(header.exp_type):
            raise BodyError(f"the filter type {str(header.exp_type)[:64]!r} is not supported")
        return subscription.parse(header.topic, header.exp, header.exp_type)

    def _queue_ids(
        self, topic: TopicConfig, place: Place, *, from_end: bool, ordered: bool
    ) -> list[int]:
        """The queues to look at, in order."""
        numbers = [place.queue_id]
        if place.queue_id == ANY_QUEUE:
            attributes = self._view.consumers.config(place.group).attributes
            factor = 0 if ordered else factor_of(attributes)
            count = topic.read_queue_nums
            numbers = queue_order(topic.attributes, count, next(self._turn), factor)
        return self.parts.to_take(topic, place.group, numbers, from_end=from_end, ordered=ordered)

    def _serve_pop(
        self, wanted: WantedMessages, poll: Poll, served: Callable[[bool], None]
    ) -> None:
        refusal = self._refusal_now(poll.place)
        if refusal is not None:
            self._end(poll, reply(poll.request, *refusal))
            served(True)
            return
        topic = self._view.store.topics.lookup(wanted.topic)
        if topic is None or not self.book.ready:
            served(False)
            return
        answer = _Answer(self, poll, wanted)

        def taken(found: list[Taken]) -> None:
            if found:
                self.polls.forget(poll)
                answer.taken(found)
            served(bool(found))

        def failed(error: GantryError) -> None:
            self._end(poll, reply(poll.request, error.answer_code, str(error)))
            served(True)

        queue_ids = self._queue_ids(
            topic, poll.place, from_end=wanted.from_end, ordered=wanted.ordered
        )
        steps = self.taking.take(wanted, queue_ids, poll.place, answer.stored)
        Run(self._view.store, steps, taken, failed).start()

    def _refusal_now(self, place: Place) -> Refusal | None:
        """The reason why a request that may have waited cannot be served."""
        refusal = self._view.accepting_writes()
        if refusal is not None:
            return refusal
        topic = self._view.store.topics.lookup(place.topic)
        if topic is None or place.queue_id >= topic.read_queue_nums:
            return topic_rules.unknown_topic(place.topic)
        if self.book.failure:
            return Refusal(ResponseCode.SYSTEM_ERROR, self.book.failure)
        if self.book.is_behind:
            return Refusal(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]too many pops wait for the log")
        return None

    def handed_out(self, poll: Poll, wanted: WantedMessages, found: list[Taken]) -> None:
        """Answer with what is confirmed to be in flight."""
        count = sum(len(item.messages) for item in found)
        body = b"".join(item.body for item in found)
        pairs = [(item.queue_id, item.messages) for item in found]
        header = PopMessageResponseHeader(
            pop_time=found[0].popped_ms,
            invisible_time=wanted.invisible_ms,
            revive_qid=ORDERED if wanted.ordered else 0,
            rest_num=sum(item.rest for item in found),
            start_offset_info=start_offsets(pairs),
            msg_offset_info=message_offsets(pairs),
            order_count_info=(order_counts(pairs) or None) if wanted.ordered else None,
        )
        self._traffic.got(wanted.group, wanted.topic, count)
        if self._has_read is not None:
            self._has_read(wanted.topic, len(body))
        self.answer(poll, reply(poll.request, ResponseCode.SUCCESS, "FOUND", to_ext(header), body))

    # ---- acknowledgements

    def ack(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """AckMessage (200051)."""
        return self.once_read(conn, request, self._ack)

    def batch_ack(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """BatchAckMessage (200151): receipts that are over are passed over, as upstream does."""
        return self.once_read(conn, request, self._batch_ack)

    def change(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """ChangeMessageInvisibleTime (200053)."""
        return self.once_read(conn, request, self._change)

    def once_read(
        self, conn: Connection, request: RemotingCommand, serve: Serve
    ) -> RemotingCommand | None:
        """Serve a request that changes what is in flight, when it is known what is."""
        if self.book.is_being_read and self._barred() is None:
            return self.early.wait(conn, request, serve)
        return serve(conn, request)

    def _ack(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        header = from_ext(AckMessageRequestHeader, request.ext)
        held = self._held(header)
        if isinstance(held, Refusal):
            return reply(request, *held)
        queue_id = _queue_of(header)

        def done(outcome: SendOutcome) -> None:
            if not request.is_oneway:
                conn.reply(request, reply(request, outcome.code, outcome.remark))
            self._changed(queue_id, self.polls.wake_queue)

        if held is None:
            self.book.settled(done)
        else:
            self.acked += 1
            self.book.record([Acked(queue_id, [header.offset])], done)
        return None

    def _changed(self, queue_id: QueueId, tell: Callable[[str, str, int], None]) -> None:
        if is_lite_queue(queue_id.topic):
            self.lite_changed(queue_id)
        else:
            tell(queue_id.topic, queue_id.group, queue_id.queue_id)

    def _batch_ack(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        body = decode_request(BatchAcks, request.body)
        refusal = self._barred() or self._not_read() or self._view.accepting_writes()
        if refusal is not None:
            return reply(request, *refusal)
        events: list[Event] = []
        count = 0
        for item in body.acks:
            queue_id = QueueId(item.group, item.topic, item.queue_id)
            offsets = [item.start_offset + bit for bit in bits(item.offsets)]
            count += len(offsets)
            if count > BATCH_MAX:
                raise BodyError(f"one request acknowledges at most {BATCH_MAX} messages")
            current = [
                offset
                for offset in offsets
                if self.book.ledger.state(queue_id, offset, item.popped_ms) is DeliveryState.CURRENT
            ]
            self.over += len(offsets) - len(current)
            if current:
                self.acked += len(current)
                events.append(Acked(queue_id, current))
        if not body.acks:
            return reply(request, ResponseCode.NO_MESSAGE, "no message is named")

        def done(outcome: SendOutcome) -> None:
            if not request.is_oneway:
                conn.reply(request, reply(request, outcome.code, outcome.remark))
            for item in body.acks:
                self.polls.wake_queue(item.topic, item.group, item.queue_id)

        self.book.record(events, done)
        return None

    def _change(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        header = from_ext(ChangeInvisibleTimeRequestHeader, request.ext)
        if not 0 <= header.invisible_time <= INVISIBLE_MAX_MS:
            remark = f"invisibleTime {header.invisible_time} is not in 0 to {INVISIBLE_MAX_MS}"
            return reply(request, ResponseCode.INVALID_PARAMETER, remark)
        held = self._held(header)
        if isinstance(held, Refusal):
            return reply(request, *held)
        if held is None:
            remark = "the message is acknowledged"
            return reply(request, ResponseCode.NO_MESSAGE, remark)
        queue_id = _queue_of(header)
        revive = parse_receipt(header.extra_info).revive_queue
        popped_ms = max(self.book.clocks().wall_ms, held.popped_ms + 1)
        invisible_ms = header.invisible_time
        if header.renew:  # the delivery stays the same one
            invisible_ms += popped_ms - held.popped_ms
            popped_ms = held.popped_ms
        event = Changed(queue_id, InFlight(header.offset, popped_ms, invisible_ms, held.count))

        def done(outcome: SendOutcome) -> None:
            ext = None
            if outcome.code == ResponseCode.SUCCESS:
                self.changed += 1
                answer = ChangeInvisibleTimeResponseHeader(popped_ms, invisible_ms, revive)
                ext = to_ext(answer)
            if not request.is_oneway:
                conn.reply(request, reply(request, outcome.code, outcome.remark, ext))
            self._changed(queue_id, self.polls.rearm)

        self.book.record([event], done)
        return None

    def _held(
        self, header: AckMessageRequestHeader | ChangeInvisibleTimeRequestHeader
    ) -> InFlight | Refusal | None:
        """The message that a receipt names; None if it is done."""
        try:
            receipt = parse_receipt(header.extra_info)
        except BodyError as error:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error))
        named = (receipt.broker_name, receipt.queue_id, receipt.offset)
        if named != (self._view.broker_name, header.queue_id, header.offset):
            remark = f"the receipt {header.extra_info[:128]!r} is of another message"
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        if self._view.store.topics.lookup(header.topic) is None:
            return topic_rules.unknown_topic(header.topic)
        refusal = self._barred() or self._not_read() or self._view.accepting_writes()
        if refusal is not None:
            return refusal
        queue_id = _queue_of(header)
        state = self.book.state(queue_id, receipt.offset, receipt.popped_ms)
        if state is DeliveryState.CURRENT:
            return self.book.ledger.queues[queue_id].held[receipt.offset].message
        if state is DeliveryState.DONE:
            return None
        self.over += 1
        why = "handed out again since" if state is DeliveryState.OVER else "not handed out"
        remark = f"message {receipt.offset} of queue {receipt.queue_id} was {why}"
        return Refusal(ResponseCode.NO_MESSAGE, remark)

    def _barred(self) -> Refusal | None:
        """The reason why nothing may be written here, unless it passes as the log is read.

        A master that has not confirmed its log yet is busy (2); what is in that log it cannot say.
        """
        refusal = self._view.accepting_writes()
        is_passing = refusal is not None and refusal.code == ResponseCode.SYSTEM_BUSY
        return None if is_passing else refusal

    def _not_read(self) -> Refusal | None:
        """The reason why nobody knows what became of a receipt: an earlier master may have it done.

        So it is no code that says that nothing was done (2).
        """
        if self.book.failure:
            return Refusal(ResponseCode.SYSTEM_ERROR, self.book.failure)
        return None if self.book.ready else Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, NOT_READ)

    # ---- questions

    def notification(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Notification (200054): answered when a PopMessage would find something."""
        header = from_ext(NotificationRequestHeader, request.ext)
        refusal = self._refuse_pop(header)
        if refusal is not None:
            return reply(request, *refusal)
        try:
            self._subscription(header)
        except BodyError as error:
            return reply(request, ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        place = _place(header)

        def tell(poll: Poll, *, has_message: bool) -> None:
            ext = to_ext(NotificationResponseHeader(has_message))
            self._end(poll, reply(poll.request, ext=ext))

        def serve(poll: Poll, served: Callable[[bool], None]) -> None:
            topic = self._view.store.topics.lookup(header.topic)
            if topic is None or not self.book.ready:
                served(False)
                return

            def found(has_message: bool) -> None:
                if has_message:
                    tell(poll, has_message=True)
                served(has_message)

            def failed(error: GantryError) -> None:
                self._end(poll, reply(poll.request, ResponseCode.SYSTEM_ERROR, str(error)))
                served(True)

            steps = self.taking.has_some(
                header.consumer_group,
                header.topic,
                self._queue_ids(topic, place, from_end=False, ordered=bool(header.order)),
                ordered=bool(header.order),
            )
            Run(self._view.store, steps, found, failed).start()

        give_up = partial(tell, has_message=False)
        self._begin(Poll(conn, request, place, serve, give_up), header.poll_time)
        return None

    def polling_info(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """PollingInfo (200055)."""
        header = from_ext(PollingInfoRequestHeader, request.ext)
        count = self.polls.count(header.topic, header.consumer_group)
        return reply(request, ext={"pollingNum": str(count)})

    # ---- waiting

    def _next_due_s(self, place: Place) -> float | None:
        topic, group, queue_id = place
        config = self._view.store.topics.lookup(topic)
        if config is None:
            return None
        numbers = range(config.read_queue_nums) if queue_id < 0 else (queue_id,)
        queue_ids = self.parts.held(config, numbers)
        queues = (self.book.ledger.queues.get(QueueId(group, topic, at)) for at in queue_ids)
        due = [queue.next_due_ms() for queue in queues if queue is not None]
        first = min((at for at in due if at is not None), default=None)
        return None if first is None else (first + 1) / 1000  # when it is so in whole ms, too

    def _found_nothing(self, poll: Poll) -> None:
        self.answer(poll, reply(poll.request, ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE"))

    def _end(self, poll: Poll, answer: RemotingCommand) -> None:
        self.polls.forget(poll)
        self.answer(poll, answer)

    def answer(self, poll: Poll, answer: RemotingCommand) -> None:
        """Answer a request, if anybody is there who wants it."""
        if not poll.connection.closed and not poll.request.is_oneway:
            poll.connection.reply(poll.request, answer)


def _queue_of(header: AckMessageRequestHeader | ChangeInvisibleTimeRequestHeader) -> QueueId:
    """The queue of a receipt; a lite topic is one."""
    topic = lite_queue(header.topic, header.lite_topic) if header.lite_topic else header.topic
    return QueueId(header.consumer_group, topic, header.queue_id)


def _place(header: PopMessageRequestHeader | NotificationRequestHeader) -> Place:
    return Place(header.topic, header.consumer_group, max(header.queue_id, ANY_QUEUE))


class _Answer:
    """The answer to one PopMessage, until every record that it stands on is confirmed."""

    def __init__(self, requests: PopRequests, poll: Poll, wanted: WantedMessages) -> None:
        self._requests = requests
        self._poll = poll
        self._wanted = wanted
        self._found: list[Taken] | None = None
        self._outcomes: dict[int, SendOutcome] = {}

    def stored(self, queue_id: int, outcome: SendOutcome) -> None:
        """Messages that were taken of a queue are confirmed to be in flight, or are not."""
        self._outcomes[queue_id] = outcome
        self._try()

    def taken(self, found: list[Taken]) -> None:
        """Everything was taken."""
        self._found = found
        self._try()

    def _try(self) -> None:
        if self._found is None or len(self._outcomes) < len(self._found):
            return
        sound = [
            item
            for item in self._found
            if self._outcomes[item.queue_id].code == ResponseCode.SUCCESS
        ]
        if sound:
            self._requests.handed_out(self._poll, self._wanted, sound)
            return
        outcome = self._outcomes[self._found[0].queue_id]
        answer = reply(self._poll.request, outcome.code, outcome.remark)
        self._requests.answer(self._poll, answer)
