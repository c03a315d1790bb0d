"""The topics a group serves, as its own log says.

The controller commits a topic first; the master then appends a change to the system topic
``GANTRY_SYS_TOPICS``, and every replica applies it when it is confirmed. So the log records which
version of the controller's topic table a broker has, and no second path carries it. Changes are
idempotent: one whose version is not newer is skipped.
"""

import re

import msgspec
from gantry_protocol.errors import BodyError
from gantry_protocol.records import MessageRecord

TOPICS_TOPIC = "GANTRY_SYS_TOPICS"

PERM_READ = 4
PERM_WRITE = 2


class Topic(msgspec.Struct, frozen=True, omit_defaults=True):
    """One topic on this group, with the wire names of upstream's ``TopicConfig``."""

    name: str = msgspec.field(name="topicName")
    read_queues: int = msgspec.field(name="readQueueNums")
    write_queues: int = msgspec.field(name="writeQueueNums")
    perm: int = PERM_READ | PERM_WRITE
    sys_flag: int = msgspec.field(name="topicSysFlag", default=0)
    order: bool = False

    @property
    def readable(self) -> bool:
        """Whether consumers may pull."""
        return bool(self.perm & PERM_READ)

    @property
    def writable(self) -> bool:
        """Whether producers may send."""
        return bool(self.perm & PERM_WRITE)

    @property
    def queues(self) -> int:
        """One past the highest queue id that exists for either side."""
        return max(self.read_queues, self.write_queues)


class TopicChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of the topic table, as it stands in the log.

    Attributes:
        version: the controller's version of the table after this step.
        put: topics that are new or different.
        removed: names of topics that are gone.
    """

    version: int
    put: list[Topic] = []
    removed: list[str] = []


_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")  # upstream's TopicValidator, and a safe file name
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(TopicChange)


def is_topic_name(name: str) -> bool:
    """Whether ``name`` may be a topic."""
    return _NAME.fullmatch(name) is not None


def change_record(change: TopicChange) -> MessageRecord:
    """The record that carries ``change`` to every replica."""
    return MessageRecord(topic=TOPICS_TOPIC, body=_encoder.encode(change))


def decode_change(body: bytes) -> TopicChange:
    """The change in a record of the system topic.

    Raises:
        BodyError: it is none.
    """
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise BodyError(f"a topic change does not read: {error}") from error


class TopicTable:
    """The topics as of the confirmed part of the log.

    Attributes:
        version: the controller's version of what has been applied; 0 before the first change.
    """

    def __init__(self, version: int = 0, topics: list[Topic] | None = None) -> None:
        self.version = version
        self._topics = {topic.name: topic for topic in topics or []}

    def __len__(self) -> int:
        return len(self._topics)

    def lookup(self, name: str) -> Topic | None:
        """The topic, or None when it does not exist (yet)."""
        return self._topics.get(name)

    def all(self) -> list[Topic]:
        """Every topic."""
        return list(self._topics.values())

    def apply(self, change: TopicChange) -> list[str]:
        """Take a confirmed change in; returns the names of topics that vanished by it."""
        if change.version <= self.version:
            return []
        self.version = change.version
        for topic in change.put:
            self._topics[topic.name] = topic
        return [name for name in change.removed if self._topics.pop(name, None) is not None]

    def difference(self, version: int, wanted: list[Topic]) -> TopicChange | None:
        """The change that makes this table ``wanted``; None when the version is not newer."""
        if version <= self.version:
            return None
        names = {topic.name for topic in wanted}
        put = [topic for topic in wanted if self._topics.get(topic.name) != topic]
        removed = sorted(name for name in self._topics if name not in names)
        return TopicChange(version, put, removed)
