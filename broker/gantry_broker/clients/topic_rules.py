"""Rules for the topics that clients may use, and for what.

Upstream: ``TopicValidator`` (names, forbidden topics) and ``TopicConfigManager`` (automatic
creation through the default topic ``TBW102``, retry and dead-letter topics).
"""

from functools import lru_cache

from gantry_protocol.bodies import TopicConfig
from gantry_protocol.bodies.route import PERM_READ, PERM_WRITE
from gantry_protocol.codes import ResponseCode
from gantry_protocol.names import topic_problem
from gantry_protocol.queue_map import MAPPED, number_of
from gantry_protocol.records import MAX_TOPIC_BYTES, SCHEDULE_TOPIC

from gantry_broker.clients.core.delay.retries import RETRY_PREFIX
from gantry_broker.clients.core.lite.records import LITE_TOPIC
from gantry_broker.clients.core.pop.records import POP_TOPIC
from gantry_broker.store.contract import Refusal
from gantry_broker.store.tables.names import (
    EXPIRED_TOPIC,
    OFFSETS_TOPIC,
    STATE_TOPIC,
    TOPICS_TOPIC,
)

DEFAULT_TOPIC = "TBW102"
DEFAULT_TOPIC_QUEUES = 8  # TBW102 has so many on every group
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"  # in every route; TopicValidator
MAX_QUEUES = 1024

_SYSTEM_GROUPS = ("CID_RMQ_SYS_", "GANTRY_SYS_")  # upstream's prefix, and ours
_READ_WRITE = PERM_READ | PERM_WRITE
_NOT_FOR_CLIENTS = frozenset(
    {
        SCHEDULE_TOPIC,
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        DEFAULT_TOPIC,
        TOPICS_TOPIC,
        OFFSETS_TOPIC,
        STATE_TOPIC,
        POP_TOPIC,
        LITE_TOPIC,
        EXPIRED_TOPIC,
    }
)


def is_retry(topic: str) -> bool:
    """Whether it is some consumer group's retry topic."""
    return topic.startswith(RETRY_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether its consumer offsets say how far the broker itself has come."""
    return group.startswith(_SYSTEM_GROUPS)


def check_name(topic: str) -> Refusal | None:
    """Refuse what is no topic name (29)."""
    problem = topic_problem(topic)
    return None if problem is None else Refusal(ResponseCode.INVALID_PARAMETER, problem)


def system_topics() -> list[str]:
    """The brokers' own topics, in order."""
    return sorted({*_NOT_FOR_CLIENTS, TRACE_TOPIC})


def is_for_clients(topic: str) -> bool:
    """Whether clients send to it; what the broker itself writes is none of their business."""
    return topic not in _NOT_FOR_CLIENTS


def has_queue(topic: TopicConfig, queue_id: int, count: int) -> bool:
    """Whether ``queue_id`` is one of the first ``count`` queues, or holds a segment of one."""
    if MAPPED in topic.attributes:
        queue_id = number_of(queue_id) if queue_id >= 0 else queue_id
    return 0 <= queue_id < count


def check_sendable(topic: str) -> Refusal | None:
    """Refuse to send to what the broker itself writes (16)."""
    if not is_for_clients(topic):
        return Refusal(
            ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden."
        )
    return None


def check_target(topic: str) -> Refusal | None:
    """Both of the above, as every send asks."""
    if len(topic) > MAX_TOPIC_BYTES:  # not to be remembered, it may be of any length
        return check_name(topic)
    return _check_target(topic)


@lru_cache(maxsize=4096)
def _check_target(topic: str) -> Refusal | None:
    return check_name(topic) or check_sendable(topic)


def check_creatable(topic: TopicConfig) -> Refusal | None:
    """Refuse names and queue numbers nobody may create (29)."""
    refusal = check_name(topic.topic_name)
    if refusal is not None:
        return refusal
    name = topic.topic_name
    if not is_for_clients(name):
        remark = f"The topic[{name}] is conflict with system topic."
        return Refusal(ResponseCode.INVALID_PARAMETER, remark)
    for queues in (topic.read_queue_nums, topic.write_queue_nums):
        if not 1 <= queues <= MAX_QUEUES:
            remark = f"A topic has 1 to {MAX_QUEUES} queues, not {queues}."
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
    return None


def check_deletable(topic: str) -> Refusal | None:
    """Refuse names, and what the broker itself needs (29)."""
    if topic in _NOT_FOR_CLIENTS:
        remark = f"The topic[{topic}] is conflict with system topic."
        return Refusal(ResponseCode.INVALID_PARAMETER, remark)
    return check_name(topic)


def internal_topic(name: str, queues: int = 1) -> TopicConfig:
    """A retry or dead-letter topic."""
    return TopicConfig(
        topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=_READ_WRITE
    )


def topic_on_demand(name: str, default_topic: str, wanted_queues: int) -> TopicConfig | None:
    """The topic that a send to an unknown name creates; None when it may not."""
    if is_retry(name) or name == TRACE_TOPIC:
        return internal_topic(name)
    if default_topic != DEFAULT_TOPIC:
        return None
    queues = min(max(wanted_queues, 1), DEFAULT_TOPIC_QUEUES)
    return TopicConfig(
        topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=_READ_WRITE
    )


def unknown_topic(name: str) -> Refusal:
    """UpdateAndCreateTopic (17)."""
    return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!")
