"""Administrators who ask all there is to ask: brokers by their admin codes, controllers by theirs.

Every answer is one that the request may have, and reads as what its tool reads. Most questions are
sound, some are nonsense, and a fault of the product's own behind any of them ends the run
(``bindings``). What is listed is there: topics that were made, offsets that lie in their queues,
a message under its key and under its id once it is acknowledged.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from gantry_cli.client.producer import Producer, SendFailedError
from gantry_cli.client.session import session
from gantry_controller.requests import REMOTING
from gantry_protocol.bodies import (
    CheckClientRequestBody,
    ConsumerConnections,
    GroupList,
    KVTable,
    MessageQueue,
    OffsetWrapper,
    ProducerConnections,
    SubscriptionData,
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigTable,
    TopicList,
    TopicOffset,
    decode_body,
    decode_queue_table,
    encode_body,
)
from gantry_protocol.bodies.inspection import (
    BrokerStats,
    GroupSubscription,
    ProducerTable,
    QueueEntries,
    TimeSpans,
)
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import request
from gantry_protocol.errors import GantryError
from gantry_protocol.records import decode_offset_msg_id, decode_properties, decode_records
from gantry_protocol.records.properties import UNIQ_KEY
from sim.kernel.world import Violation
from sim.product.cluster import GROUP
from sim.product.line import Line
from sim.product.workload import Clients

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from gantry_protocol.command import RemotingCommand
    from sim.product.cluster import Cluster, Node
    from sim.product.workload import Told

TOPIC = "orders"
NONSENSE = ("", "nobody", "a b", "%RETRY%", "x" * 300, "-1", "\x01\x02", "ü")
TOO_FEW = "in-sync replicas not enough"
ALWAYS = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
    }
)
PATIENCE_S = 12.0  # with a member that does not answer what is passed on to it


class _Question(NamedTuple):
    """One question.

    Attributes:
        ext: its header.
        reads: what reads the body of an answer of 0, and looks at it.
        but: other codes that it may be answered with.
        body: of the request.
        writes: it is refused while the group has too few members in sync.
    """

    code: RequestCode
    ext: dict[str, object]
    reads: Callable[[bytes], object] = lambda _: None
    but: tuple[ResponseCode, ...] = ()
    body: bytes = b""
    writes: bool = False

    def may_be_refused(self, answer: RemotingCommand) -> bool:
        """Whether an answer other than 0 is one that it may have."""
        if self.writes and answer.remark == TOO_FEW:
            return answer.code == ResponseCode.SYSTEM_ERROR
        return answer.code in ALWAYS or answer.code in self.but


class Questions(Clients):
    """See the module.

    Args:
        cluster: where.
        watch: is told of every acknowledgement.
        group: a consumer group with members.
        member: one of them.
    """

    unsettled = "questions are not answered"

    def __init__(
        self, cluster: Cluster, watch: Told, *, group: str = "gantry", member: str = "nobody"
    ) -> None:
        self.answers: dict[int, int] = {}
        super().__init__(cluster)
        self._watch = watch
        self._group, self._member = group, member
        self._ids: list[str] = []  # of messages that were acknowledged

    def start(self) -> None:
        """Begin."""
        self._cluster.client("questions", self._ask).boot()
        self._cluster.client("found-again", self._send).boot()

    # ---- messages that are looked for

    async def _send(self, node: Node) -> None:
        """Send, and find it by its keys and by its id."""
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            producer = Producer(client.routes, client.calls)
            while not self._stops:
                name = f"{rng.getrandbits(64):016x}"
                message = producer.message(TOPIC, b"found again", keys=name, tags="found")
                with suppress(SendFailedError):
                    result = await producer.send(message)
                    self._watch.acknowledged(message.key, result.offset_id)
                    self._ids = [*self._ids[-20:], result.offset_id]
                    await self._find(line, message.key, name)
                    await self._find(line, message.key, message.key, unique=True)
                    await self._view(line, message.key, result.offset_id)
                await asyncio.sleep(rng.choice([0.1, 0.4]))
        self._busy -= 1

    async def _find(self, line: Line, key: str, sought: str, *, unique: bool = False) -> None:
        """12, until it is found: the next master tells what it has confirmed itself."""
        ext = {
            "topic": TOPIC, "key": sought, "maxNum": 8, "beginTimestamp": 0,
            "endTimestamp": 2**62, "_UNIQUE_KEY_QUERY": unique,
        }  # fmt: skip
        while True:
            answer = await line.insist(
                RequestCode.QUERY_MESSAGE, ext, but=(ResponseCode.QUERY_NOT_FOUND,)
            )
            if answer.code == ResponseCode.SUCCESS:
                break
            await asyncio.sleep(0.1)
        found = [
            decode_properties(record.properties).get(UNIQ_KEY)
            for record in decode_records(answer.body)
        ]
        self._cluster.world.count("found-by-key")
        if set(found) != {key}:
            raise Violation(f"{sought} leads to {found}, not to {key}")

    async def _view(self, line: Line, key: str, offset_id: str) -> None:
        """Raises Violation: another message stands under its id."""
        place = {"offset": decode_offset_msg_id(offset_id)[1]}
        answer = await line.ask(RequestCode.VIEW_MESSAGE_BY_ID, place)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return  # the next master has not confirmed it yet
        found = [
            decode_properties(record.properties).get(UNIQ_KEY)
            for record in decode_records(answer.body)
        ]
        self._cluster.world.count("found-by-id")
        if found != [key]:
            raise Violation(f"{offset_id} leads to {found}, not to {key}")

    # ---- brokers

    async def _ask(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            while not self._stops:
                await asyncio.sleep(rng.random() * 0.1)
                if rng.random() < 0.3:
                    with suppress(GantryError):
                        code = rng.choice(NAMES)
                        answer = await client.routes.ask(request(code, _of_names(rng)))
                        self._judge_names(code, answer)
                    continue
                question = rng.choice(self._questions(rng))
                if rng.random() < 0.2 and question.ext:
                    await self._ask_nonsense(line, question, rng)
                    continue
                is_new = not self._ids  # the topic, which its brokers may not know yet
                answer = await line.ask(question.code, question.ext, question.body, PATIENCE_S)
                if answer is None or (is_new and _lacks_topic(answer)):
                    continue
                self._judge_answer(question, answer)
        self._busy -= 1

    async def _ask_nonsense(self, line: Line, question: _Question, rng: Random) -> None:
        """Any answer is fine, so long as it is one."""
        ext = dict(question.ext)
        ext[rng.choice(list(ext))] = rng.choice(NONSENSE)
        answer = await line.ask(question.code, ext, question.body, PATIENCE_S)
        if answer is not None:
            self._cluster.world.count("nonsense")

    def _judge_answer(self, question: _Question, answer: RemotingCommand) -> None:
        """Raises Violation: it is none."""
        self.answers[question.code] = self.answers.get(question.code, 0) + 1
        self._cluster.world.count("answered")
        if answer.code != ResponseCode.SUCCESS and not question.may_be_refused(answer):
            raise Violation(f"{question} is answered {answer.code}: {answer.remark}")
        if answer.code == ResponseCode.SUCCESS:
            try:
                question.reads(answer.body)
            except GantryError as error:
                raise Violation(f"{question} is answered {answer.body[:200]!r}: {error}") from error

    def _questions(self, rng: Random) -> list[_Question]:
        code, but = RequestCode, ResponseCode
        queue = {"topic": TOPIC, "queueId": rng.randrange(2)}
        of_group = {"topic": TOPIC, "group": self._group}
        wanted = SubscriptionData(TOPIC, rng.choice(["*", "a || b"]))
        offline = (but.CONSUMER_NOT_ONLINE, but.CONSUME_MSG_TIMEOUT, but.SYSTEM_ERROR)
        member = {"consumerGroup": self._group, "clientId": self._member}
        message = {"msgId": rng.choice(self._ids)} if self._ids else {}
        return [
            _Question(code.GET_ALL_TOPIC_CONFIG, {}, self._has_topic),
            _Question(code.GET_TOPIC_CONFIG, {"topic": TOPIC}, _reads(TopicConfig)),
            _Question(code.GET_TOPIC_STATS_INFO, {"topic": TOPIC}, _stats),
            _Question(code.GET_CONSUME_STATS, {"consumerGroup": self._group}, _progress),
            _Question(
                code.GET_BROKER_CONSUME_STATS,
                {"isOrder": rng.random() < 0.3},
                _reads(dict[str, Any]),
            ),
            _Question(code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": TOPIC}, _reads(GroupList)),
            _Question(code.QUERY_TOPICS_BY_CONSUMER, {"group": self._group}, _reads(TopicList)),
            _Question(
                code.GET_PRODUCER_CONNECTION_LIST,
                {"producerGroup": rng.choice(["workers-producers", "parked"])},
                _reads(ProducerConnections),
                (but.SYSTEM_ERROR,),
            ),
            _Question(
                code.GET_CONSUMER_CONNECTION_LIST,
                {"consumerGroup": self._group},
                _reads(ConsumerConnections),
                (but.CONSUMER_NOT_ONLINE,),
            ),
            _Question(code.GET_BROKER_RUNTIME_INFO, {}, _reads(KVTable)),
            _Question(code.GET_BROKER_CONFIG, {}),
            _Question(code.UPDATE_BROKER_CONFIG, {}, body=b"flushDiskType=ASYNC_FLUSH\n"),
            _Question(code.UPDATE_BROKER_CONFIG, {}, body=b"brokerConfigPath=x\n"),
            _Question(code.TRIGGER_DELETE_FILES, {}),
            _Question(code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, {}, _reads(TopicList)),
            _Question(code.GET_ALL_MESSAGE_REQUEST_MODE, {}, _reads(dict[str, Any])),
            _Question(code.GET_ALL_DELAY_OFFSET, {}, _reads(dict[str, Any])),
            _Question(code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, {}, _reads(dict[str, Any])),
            _Question(code.EXPORT_ROCKSDB_CONFIG_TO_JSON, {}),
            _Question(
                code.UPDATE_AND_GET_GROUP_FORBIDDEN,
                {**of_group, "readable": rng.random() < 0.5},
                _reads(dict[str, Any]),
            ),
            _Question(
                code.SET_MESSAGE_REQUEST_MODE,
                {},
                but=(but.SYSTEM_ERROR, but.INVALID_PARAMETER, but.TOPIC_NOT_EXIST),
                body=encode_body(
                    {
                        "topic": rng.choice([TOPIC, "%RETRY%x", "nobody"]),
                        "consumerGroup": self._group,
                        "mode": rng.choice(["PULL", "POP", "PUSH"]),
                    }
                ),
            ),
            _Question(
                code.QUERY_CONSUME_TIME_SPAN,
                of_group,
                _reads(TimeSpans),
                (but.TOPIC_NOT_EXIST,),  # as long as this master has not heard of it
            ),
            _Question(
                code.QUERY_CONSUME_QUEUE,
                {**queue, "index": rng.randrange(50), "count": 8, "consumerGroup": self._group},
                _reads(QueueEntries),
            ),
            _Question(code.QUERY_SUBSCRIPTION_BY_CONSUMER, of_group, _reads(GroupSubscription)),
            _Question(code.GET_ALL_PRODUCER_INFO, {}, _reads(ProducerTable)),
            _Question(
                code.VIEW_BROKER_STATS_DATA,
                {
                    "statsName": rng.choice(["TOPIC_PUT_NUMS", "GROUP_GET_NUMS", "X"]),
                    "statsKey": rng.choice([TOPIC, f"{TOPIC}@{self._group}"]),
                },
                _reads(BrokerStats),
                (but.SYSTEM_ERROR,),
            ),
            _Question(
                code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                of_group,
                _reads(dict[str, Any]),
                (but.SYSTEM_ERROR,),
            ),
            _Question(code.GET_CONSUMER_RUNNING_INFO, member, _reads(dict[str, Any]), offline),
            _Question(
                code.CONSUME_MESSAGE_DIRECTLY,
                {**member, **message},
                _reads(dict[str, Any]),
                offline,
            ),
            _Question(
                code.CHECK_CLIENT_CONFIG,
                {},
                body=encode_body(CheckClientRequestBody("me", self._group, wanted)),
            ),
            _Question(code.GET_ALL_CONSUMER_OFFSET, {}, _reads(dict[str, Any])),
            _Question(code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}, _reads(SubscriptionGroupTable)),
            _Question(code.GET_MIN_OFFSET, queue),
            _Question(code.GET_MAX_OFFSET, queue),
            _Question(code.GET_EARLIEST_MSG_STORETIME, queue),
            _Question(
                code.SEARCH_OFFSET_BY_TIMESTAMP,
                {
                    **queue,
                    "timestamp": rng.choice([0, 1_767_225_600_000 + rng.randrange(60_000), 2**50]),
                    "boundaryType": rng.choice(["LOWER", "UPPER"]),
                },
            ),
            _Question(
                code.CLONE_GROUP_OFFSET,
                {"srcGroup": self._group, "destGroup": "clone", "topic": TOPIC, "offline": True},
                writes=True,
            ),
        ]

    def _has_topic(self, body: bytes) -> None:
        """A topic that was made is there; for a moment the next master may not know of it yet."""
        table = decode_body(TopicConfigTable, body).topic_config_table
        if self._cluster.is_at_peace and self._cluster.is_whole and TOPIC not in table:
            raise Violation(f"{TOPIC} is not among the topics: {sorted(table)}")

    # ---- controllers

    def _judge_names(self, code: RequestCode, answer: RemotingCommand) -> None:
        """Raises Violation: a request is answered as its row does not allow."""
        self._cluster.world.count("names-answered")
        if not REMOTING[code].allows(answer.code):
            raise Violation(f"{code.name} is answered {answer.code}: {answer.remark}")
        if answer.code == ResponseCode.SUCCESS and answer.body[:1] == b"{":
            decode_body(dict[str, Any], answer.body)


NAMES = (
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.GET_TOPICS_BY_CLUSTER,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    RequestCode.GET_BROKER_MEMBER_GROUP,
    RequestCode.GET_KV_CONFIG,
    RequestCode.GET_KVLIST_BY_NAMESPACE,
    RequestCode.GET_NAMESRV_CONFIG,
    RequestCode.GET_UNIT_TOPIC_LIST,
    RequestCode.QUERY_DATA_VERSION,
)


def _lacks_topic(answer: RemotingCommand) -> bool:
    """Whether a topic is not there; of a queue that is said with the code of any fault."""
    is_missing = (answer.remark or "").endswith(f"@{TOPIC} is not exist!")
    return answer.code == ResponseCode.TOPIC_NOT_EXIST or is_missing


def _of_names(rng: Random) -> dict[str, str]:
    """A header with what any of ``NAMES`` may need."""
    return {
        "topic": rng.choice([TOPIC, "TBW102", "nobody"]),
        "cluster": rng.choice(["c", "nobody"]),
        "clusterName": "c",
        "brokerName": rng.choice([GROUP, "nobody"]),
        "namespace": "n",
        "key": "k",
    }


def _reads(kind: Any) -> Callable[[bytes], object]:
    return lambda body: decode_body(kind, body)


def _stats(body: bytes) -> None:
    for queue, offsets in decode_queue_table(body, TopicOffset).items():
        _lies(queue, offsets.min_offset, offsets.max_offset)


def _progress(body: bytes) -> None:
    for queue, seen in decode_queue_table(body, OffsetWrapper).items():
        _lies(queue, 0, seen.broker_offset)


def _lies(queue: MessageQueue, first: int, end: int) -> None:
    if not 0 <= first <= end:
        raise Violation(f"{queue} has messages from {first} to {end}")
