"""Frames as RocketMQ's Java client makes them, encoded once and patched in place.

Sends are 310 (320 for a batch) and pulls are 11, each with a JSON header, which is what a Java
client uses unless it is told otherwise. The generator shares its processors with the broker it
measures, so nothing is encoded per request: what differs from one to the next (the unique key, an
offset) is a number of fixed width, overwritten where it stands. What it refuses: to patch a
number that does not fit its place.

Rule protected: no two messages of any templates have one unique key, except where `numbered` is
asked for it. A broker that takes a send for a repeat stores nothing, and answers it all the same.
"""

from __future__ import annotations

import itertools
import re
import time
from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import request
from gantry_protocol.frame import encode
from gantry_protocol.headers.client import PullMessageRequestHeader, SendMessageRequestHeaderV2
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.headers.pop import PopMessageRequestHeader
from gantry_protocol.lite import LITE_TOPIC
from gantry_protocol.records.batch import BatchMessage, encode_batch
from gantry_protocol.records.properties import UNIQ_KEY, WAIT_STORE_MSG_OK, encode_properties

if TYPE_CHECKING:
    from gantry_cli.client.routes import Queue
    from gantry_protocol.command import RemotingCommand

DEFAULT_TOPIC = "TBW102"  # what a Java producer names as the topic to copy
DEFAULT_QUEUES = 4
PRODUCER_GROUP = "gantry-bench-producer"
CONSUMER_GROUP = "gantry-bench-consumer"
PULL_COUNT = 32  # the Java consumer's pullBatchSize
SUSPEND_MS = 15_000
VERSION = 477  # an ordinal of a 5.x client; informational

_KEY = "AC1100010000{:012X}{:08X}"  # 32 hexadecimal digits: address and process, source, number
_LITE_NAME = "s{:08X}"
_KEY_NUMBER = b"0BE9C600"  # stands in a template until it is patched; so do the next two
_OFFSET = b"1234567890123456789"
_QUEUE = b"1023456789"
_BORN = b"9876543210123"
_SOURCES = (  # of each template another, in any process
    number
    for number in itertools.count(int(time.time()) << 16)
    if _KEY_NUMBER not in b"%012X" % number  # or it would be patched, too
)
_ANY_QUEUE, _FROM_FIRST = -1, 0  # upstream's ConsumeInitMode.MIN
_MAY_SUSPEND, _HAS_SUBSCRIPTION = 2, 4


class FrameTemplate:
    """One request with places for numbers; `frame` is the one that was made last."""

    __slots__ = (
        *("_born_at", "_keys", "_offset_at", "_queue_at", "_sent", "_topic_at", "_topic_size"),
        "frame",
    )

    def __init__(self, slot: int, command: RemotingCommand) -> None:
        command.language, command.version, command.opaque = "JAVA", VERSION, slot
        self.frame = bytearray(encode(command))
        self._offset_at = self.frame.find(_OFFSET)
        self._queue_at = self.frame.find(_QUEUE)
        self._born_at = self.frame.find(_BORN)
        topic = (command.ext or {}).get("b", "").encode()
        self._topic_at, self._topic_size = self.frame.find(b'"%b"' % topic) + 1, len(topic)
        self._keys = [match.start() for match in re.finditer(_KEY_NUMBER, self.frame)]
        self._sent = 0

    def next(self) -> bytearray:
        """The frame with other unique keys; the same object each time."""
        frame, number = self.frame, self._sent
        for at in self._keys:
            number += 1
            frame[at : at + 8] = b"%08X" % (number & 0xFFFFFFFF)
        self._sent = number
        return frame

    def numbered(self, number: int) -> bytearray:
        """The frame with this number in all places of keys, so that it may be sent again."""
        digits = b"%08X" % number
        for at in self._keys:
            self.frame[at : at + 8] = digits
        return self.frame

    def at_offset(self, offset: int) -> bytearray:
        """The frame, asking for what stands at `offset` of the queue.

        The number ends with its quotation mark and is followed by blanks, which JSON allows.
        """
        self._put(self._offset_at, len(_OFFSET), offset)
        return self.frame

    def born_at(self, now_ms: int) -> bytearray:
        """The frame, as a client makes it at this time; ms since 1970."""
        self._put(self._born_at, len(_BORN), now_ms)
        return self.frame

    def to(self, topic: str, queue_id: int) -> bytearray:
        """Like `next`, to another queue; topics are of one length."""
        name = topic.encode()
        assert len(name) == self._topic_size, "topics are of one length"
        self.frame[self._topic_at : self._topic_at + len(name)] = name
        self._put(self._queue_at, len(_QUEUE), queue_id)
        return self.next()

    def _put(self, at: int, width: int, number: int) -> None:
        digits = b'%d"' % number
        assert at > 0, "the template has a place for this number"
        assert len(digits) <= width + 1, "the number fits its place"
        self.frame[at : at + width + 1] = digits.ljust(width + 1)


def send(lane: int, topic: str, queue: Queue, body: bytes) -> FrameTemplate:
    """SendMessageV2 (310): one message."""
    ext = _send_ext(topic, queue, _properties(next(_SOURCES)), False)
    return FrameTemplate(lane, request(RequestCode.SEND_MESSAGE_V2, ext, body))


def anywhere(lane: int, topic: str, queue: Queue, body: bytes) -> FrameTemplate:
    """SendMessageV2 (310) whose topic and queue are chosen later (`FrameTemplate.to`)."""
    return send(lane, topic, msgspec.structs.replace(queue, queue_id=int(_QUEUE)), body)


def lite(lane: int, parent: str, queue: Queue, body: bytes) -> FrameTemplate:
    """SendMessageV2 (310) to a lite topic; its number is that of the message (`numbered`)."""
    names = {LITE_TOPIC: lite_name(int(_KEY_NUMBER, 16))}
    properties = _properties(0) + encode_properties(names)
    ext = _send_ext(parent, queue, properties, False)
    return FrameTemplate(lane, request(RequestCode.SEND_MESSAGE_V2, ext, body))


def lite_name(number: int) -> str:
    """The name of a lite topic."""
    return _LITE_NAME.format(number)


def lite_key(number: int) -> str:
    """The unique key of a message of a lite topic, whoever sends it."""
    return _KEY.format(0, number)


def batch(lane: int, topic: str, queue: Queue, body: bytes, count: int) -> FrameTemplate:
    """SendBatchMessage (320): `count` messages with keys of their own."""
    properties = _properties(next(_SOURCES))
    messages = encode_batch(BatchMessage(body, properties) for _ in range(count))
    ext = _send_ext(topic, queue, properties, True)
    return FrameTemplate(lane, request(RequestCode.SEND_BATCH_MESSAGE, ext, messages))


def pull(lane: int, topic: str, queue: Queue) -> FrameTemplate:
    """PullMessage (11) of a consumer that brings its subscription: 32 messages, any tag."""
    header = PullMessageRequestHeader(
        consumer_group=CONSUMER_GROUP,
        topic=topic,
        queue_id=queue.queue_id,
        queue_offset=int(_OFFSET),
        max_msg_nums=PULL_COUNT,
        sys_flag=_MAY_SUSPEND | _HAS_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_ms=SUSPEND_MS,
        sub_version=0,
        subscription="*",
        expression_type="TAG",
        broker_name=queue.broker_name or None,
    )
    return FrameTemplate(lane, request(RequestCode.PULL_MESSAGE, to_ext(header)))


def pop(slot: int, topic: str, group: str, invisible_ms: int) -> FrameTemplate:
    """PopMessage (200050) of up to 32 messages of any queue, from the first one on, any tag.

    As a Java push consumer's, whose time is set by ``born_at``: brokers count the wait from there.
    """
    header = PopMessageRequestHeader(
        consumer_group=group,
        topic=topic,
        queue_id=_ANY_QUEUE,
        max_msg_nums=PULL_COUNT,
        invisible_time=invisible_ms,
        poll_time=SUSPEND_MS,
        born_time=int(_BORN),
        init_mode=_FROM_FIRST,
        exp_type="TAG",
        exp="*",
        order=False,
    )
    return FrameTemplate(slot, request(RequestCode.POP_MESSAGE, to_ext(header)))


def _send_ext(topic: str, queue: Queue, properties: str, is_batch: bool) -> dict[str, str]:
    header = SendMessageRequestHeaderV2(
        producer_group=PRODUCER_GROUP,
        topic=topic,
        default_topic=DEFAULT_TOPIC,
        default_topic_queue_nums=DEFAULT_QUEUES,
        queue_id=queue.queue_id,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties=properties,
        reconsume_times=0,
        unit_mode=False,
        batch=is_batch,
        broker_name=queue.broker_name or None,
    )
    return to_ext(header)


def _properties(source: int) -> str:
    key = _KEY.format(source, int(_KEY_NUMBER, 16))
    return encode_properties({UNIQ_KEY: key, WAIT_STORE_MSG_OK: "true"})
