"""Requests about lite topics, on one group: 200070, 200071, and questions, 200074 to 200079.

Upstream: ``LiteManagerProcessor`` for the questions. What is not offered: figures of how far groups
are behind (200078), which upstream gathers in memory.
"""

from collections.abc import Callable

from gantry_protocol.bodies import encode_body
from gantry_protocol.bodies.lite import (
    BrokerLiteInfo,
    ClientGroup,
    LiteClientInfo,
    LiteOffsets,
    LiteTopicInfo,
    ParentTopicInfo,
)
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import GantryError
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.headers.lite import (
    LiteClientInfoRequestHeader,
    LiteTopicInfoRequestHeader,
    ParentTopicInfoRequestHeader,
    TriggerLiteDispatchRequestHeader,
)
from gantry_protocol.lite import lite_queue
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients import topic_rules
from gantry_broker.clients.creation import TopicCreation
from gantry_broker.clients.lite import rules
from gantry_broker.clients.lite.book import LiteBook
from gantry_broker.clients.lite.expiring import LiteExpiry
from gantry_broker.clients.lite.popping import LitePopping
from gantry_broker.clients.lite.subscribing import Subscribing
from gantry_broker.clients.offsets import OffsetWriter
from gantry_broker.clients.pop.requests import PopRequests
from gantry_broker.clients.step_run import Run
from gantry_broker.clients.traffic import Traffic
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import LAST, QueueOffsets, QueueQuestion, Refusal
from gantry_broker.store.steps import Steps

NAMES_MAX = 10_000  # of one answer, upstream's
_LOOK_S = 0.05  # between two looks whether all is confirmed
_LOOKS_MAX = 40  # clients wait for 3 s and more
_NOT_CONFIRMED = "what was sent to the topic is not confirmed yet, try again"

Handler = Callable[[Connection, RemotingCommand], RemotingCommand | None]


class LiteRequests:
    """See the module.

    Args:
        view: the group, which is the master.
        pops: requests of POP, whose ledger has what is in flight.
        creation: of topics for dead letters.
        writer: of committed offsets.
        now_ms: the wall clock.
        traffic: counts what goes out.

    Attributes:
        book: the subscriptions.
        subscribing: changes them.
        popping: hands out messages.
        expiry: ends lite topics.
    """

    def __init__(
        self,
        view: GroupView,
        pops: PopRequests,
        creation: TopicCreation,
        writer: OffsetWriter,
        now_ms: Callable[[], int],
        traffic: Traffic,
    ) -> None:
        self._view = view
        self._pops = pops
        self.book = LiteBook(view, writer, self._ready)
        self.popping = LitePopping(view, self.book, pops.book, creation, traffic)
        self.subscribing = Subscribing(view, self.book, writer, self.popping.woken)
        self.popping.heard = self.subscribing.heard
        self.expiry = LiteExpiry(view, writer, now_ms)
        pops.lite_changed = self.popping.changed
        pops.lite_ready = self._ready

    def handlers(self) -> dict[int, Handler]:
        """The handlers of this module's requests."""
        return {
            RequestCode.POP_LITE_MESSAGE: self.popping.pop,
            RequestCode.LITE_SUBSCRIPTION_CTL: self.subscribing.control,
            RequestCode.GET_BROKER_LITE_INFO: self._broker_info,
            RequestCode.GET_PARENT_TOPIC_INFO: self._parent_info,
            RequestCode.GET_LITE_TOPIC_INFO: self._topic_info,
            RequestCode.GET_LITE_CLIENT_INFO: self._client_info,
            RequestCode.TRIGGER_LITE_DISPATCH: self._trigger,
        }

    @property
    def count(self) -> int:
        """Of lite topics that have a message."""
        return self._view.store.lite_count("")

    def connection_closed(self, conn: Connection) -> None:
        """Nobody waits on it, and nobody can be told anything on it."""
        self.popping.polls.drop(conn)
        self.subscribing.connection_closed(conn)

    def close(self) -> None:
        """The mastership is over."""
        self.expiry.close()
        self.subscribing.close()
        self.popping.close()
        self.book.close()

    def _ready(self) -> None:
        """Some log was read, or could not be: look for everybody."""
        if hasattr(self, "subscribing"):  # a log may be read while this is being made
            self.popping.listen()
            self.popping.polls.wake_all()
            self.subscribing.early.serve_all()

    # ---- questions

    def _groups(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, config in self._view.consumers.configs.subscription_group_table.items():
            parent = rules.bind_topic(config)
            if parent is not None:
                found.setdefault(parent, []).append(name)
        return found

    def _broker_info(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        store, registry = self._view.store, self.book.registry
        body = BrokerLiteInfo(
            store_type="gantry",
            max_lmq_num=rules.LITE_TOPICS_MAX,
            current_lmq_num=store.lite_count(""),
            lite_subscription_count=registry.count,
            order_info_count=self._pops.book.ledger.in_flight,
            cq_table_size=store.lite_count(""),
            offset_table_size=len(store.committed),
            event_map_size=sum(len(item.pending) for item in registry.clients.values()),
            topic_meta={
                topic.topic_name: _minutes(rules.expires_after_ms(topic))
                for topic in store.topics.all()
                if rules.is_lite(topic)
            },
            group_meta=self._groups(),
        )
        return reply(request, body=encode_body(body))

    def _parent_info(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        name = from_ext(ParentTopicInfoRequestHeader, request.ext).topic
        refusal = self._refuse(name)
        if refusal is not None:
            return reply(request, *refusal)

        def told() -> RemotingCommand:
            topic = self._view.store.topics.lookup(name)
            body = ParentTopicInfo(
                topic=name,
                ttl=-1 if topic is None else _minutes(rules.expires_after_ms(topic)),
                groups=self._groups().get(name, []),
                lmq_num=self._view.store.lite_count(""),
                lite_topic_count=self._view.store.lite_count(name),
            )
            return reply(request, body=encode_body(body))

        self._once_confirmed(conn, request, name, lambda: conn.reply(request, told()))
        return None

    def _once_confirmed(
        self,
        conn: Connection,
        request: RemotingCommand,
        parent: str,
        answer: Callable[[], None],
    ) -> None:
        """Answer when what is there of a parent is confirmed: the last master's clients know it."""
        topic = self._view.store.topics.lookup(parent)
        assert topic is not None, "or it was refused"

        def looked(is_confirmed: bool) -> None:
            if is_confirmed:
                answer()
            else:
                conn.reply(request, reply(request, ResponseCode.SYSTEM_BUSY, _NOT_CONFIRMED))

        def failed(error: GantryError) -> None:
            conn.reply(request, reply(request, ResponseCode.SYSTEM_ERROR, str(error)))

        Run(self._view.store, _confirmed(parent, topic.write_queue_nums), looked, failed).start()

    def _topic_info(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        header = from_ext(LiteTopicInfoRequestHeader, request.ext)
        refusal = self._refuse(header.parent_topic)
        if refusal is not None:
            return reply(request, *refusal)

        def told(place: QueueOffsets) -> None:
            subscribers = self.book.registry.subscribers(header.parent_topic, header.lite_topic)
            body = LiteTopicInfo(
                parent_topic=header.parent_topic,
                lite_topic=header.lite_topic,
                subscriber=[
                    ClientGroup("*" if item.all else item.key[1], item.key[0])
                    for item in subscribers
                ],
                topic_offset=LiteOffsets(place.min_offset, place.max_offset, place.stored_at or 0),
                sharding_to_broker=True,
            )
            conn.reply(request, reply(request, body=encode_body(body)))

        def failed(error: GantryError) -> None:
            conn.reply(request, reply(request, ResponseCode.SYSTEM_ERROR, str(error)))

        def look() -> None:
            queue = lite_queue(header.parent_topic, header.lite_topic)
            Run(self._view.store, _place_of(queue), told, failed).start()

        self._once_confirmed(conn, request, header.parent_topic, look)
        return None

    def _client_info(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        header = from_ext(LiteClientInfoRequestHeader, request.ext)
        group, parent = header.group, header.parent_topic
        refusal = rules.refuse_group(self._view, group, parent)
        if refusal is not None:
            return reply(request, *refusal)
        key = (group, header.client_id)
        item = self.book.registry.clients.get(key)
        names = [] if item is None else sorted(item.names)
        body = LiteClientInfo(
            parent_topic=parent,
            group=group,
            client_id=header.client_id,
            last_access_time=-1 if item is None else int(self.subscribing.heard_s(key) * 1000),
            last_consume_time=-1,
            lite_topic_count=-1 if item is None else len(names),
            lite_topic_set=names[: max(0, min(header.max_count, NAMES_MAX))],
        )
        return reply(request, body=encode_body(body))

    def _trigger(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        header = from_ext(TriggerLiteDispatchRequestHeader, request.ext)
        for item in self.book.registry.of_group(header.group):
            if header.client_id in (None, "", item.key[1]):
                self.popping.look_again(item)
        return reply(request)

    def _refuse(self, parent: str) -> Refusal | None:
        topic = self._view.store.topics.lookup(parent)
        if topic is None:
            return topic_rules.unknown_topic(parent)
        if not rules.is_lite(topic):
            return Refusal(ResponseCode.INVALID_PARAMETER, f"Topic [{parent}] type not match.")
        return None


def _confirmed(parent: str, queues: int) -> Steps[bool]:
    """Whether all is confirmed that the queues of a parent held as this began; waits a while."""
    questions = [QueueQuestion(parent, number) for number in range(queues)]
    held: list[QueueOffsets] = yield questions
    ends = [queue.next_offset for queue in held]
    for _ in range(_LOOKS_MAX):
        if all(queue.max_offset >= end for queue, end in zip(held, ends, strict=True)):
            return True
        yield _LOOK_S
        held = yield questions
    return False


def _place_of(queue: str) -> Steps[QueueOffsets]:
    (place,) = yield [QueueQuestion(queue, 0, at=LAST)]
    return place  # type: ignore[no-any-return]


def _minutes(after_ms: int | None) -> int:
    return -1 if after_ms is None else after_ms // 60_000
