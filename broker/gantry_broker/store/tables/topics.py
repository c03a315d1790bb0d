"""The topics a group serves, as its own log says.

The controller commits a topic first; the master then appends a change to the system topic
``GANTRY_SYS_TOPICS``, and every replica applies it when it is confirmed. So the log records which
version of the controller's topic table a broker has, and no second path carries it. Changes are
idempotent: one whose version is not newer is skipped.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.errors import BodyError
from gantry_protocol.records import MessageRecord
from gantry_protocol.settings.readers import READERS, readers_of

from gantry_broker.store.tables.names import TOPICS_TOPIC


class TopicChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of the topic table, as it stands in the log.

    Attributes:
        version: the controller's version of the table after this step.
        put: topics that are new or different.
        removed: names of topics that are gone; one that is also put begins anew, empty.
    """

    version: int
    put: list[TopicConfig] = []
    removed: list[str] = []


_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")  # upstream's TopicValidator, and a safe file name
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(TopicChange)


@lru_cache(maxsize=65_536)
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

    def __init__(self, version: int = 0, topics: list[TopicConfig] | None = None) -> None:
        self.version = version
        self._topics: dict[str, TopicConfig] = {}
        self._with_readers: set[str] = set()  # names of topics that several members serve
        self._changed: dict[str, TopicConfig | None] = {}  # since ``take_changed``; None: gone
        self._put(topics or [])
        self._changed.clear()

    def __len__(self) -> int:
        return len(self._topics)

    @property
    def has_readers(self) -> bool:
        """Whether reads of some topic are served by several members."""
        return bool(self._with_readers)

    @property
    def most_readers(self) -> int:
        """The readers of the queue that has most."""
        return max(
            (readers_of(self._topics[name].attributes).most for name in self._with_readers),
            default=1,
        )

    def lookup(self, name: str) -> TopicConfig | None:
        """The topic, or None when it does not exist (yet)."""
        return self._topics.get(name)

    def all(self) -> list[TopicConfig]:
        """Every topic."""
        return list(self._topics.values())

    def apply(self, change: TopicChange) -> list[str]:
        """Take a confirmed change in; returns the names of topics that ended by it.

        They are named also where this table never had them, since the log began later here.
        """
        if change.version <= self.version:
            return []
        self.version = change.version
        for name in change.removed:
            self._topics.pop(name, None)
            self._with_readers.discard(name)
            self._changed[name] = None
        self._put(change.put)
        return change.removed

    def complete(self, version: int, topics: list[TopicConfig]) -> None:
        """Take in topics of a whole table; nothing new for one that saw every change.

        Args:
            version: of that table; an older one says nothing.
            topics: some or all of its topics.
        """
        if version < self.version:
            return
        self.version = version
        self._put(topics)

    def take_changed(self) -> dict[str, TopicConfig | None]:
        """The topics that changed since the last call; None: it is gone."""
        changed, self._changed = self._changed, {}
        return changed

    def difference(
        self, version: int, wanted: list[TopicConfig], since: Mapping[str, int] | None = None
    ) -> TopicChange | None:
        """The change that makes this table ``wanted``; None when the version is not newer.

        Args:
            version: of the controllers' table.
            wanted: its topics.
            since: the version at which each of them was created. One that is known here, and was
                created after our version, was deleted in between, however alike it looks.
        """
        if version <= self.version:
            return None
        since = since or {}
        names = {topic.topic_name for topic in wanted}
        anew = {name for name in self._topics if since.get(name, 0) > self.version}
        put = [
            topic
            for topic in wanted
            if topic.topic_name in anew or self._topics.get(topic.topic_name) != topic
        ]
        removed = sorted(name for name in self._topics if name not in names or name in anew)
        return TopicChange(version, put, removed)

    def _put(self, topics: list[TopicConfig]) -> None:
        for topic in topics:
            name = topic.topic_name
            self._topics[name] = self._changed[name] = topic
            if READERS in topic.attributes and readers_of(topic.attributes).most > 1:
                self._with_readers.add(name)
            else:
                self._with_readers.discard(name)
