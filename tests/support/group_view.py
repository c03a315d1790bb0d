"""A group as its clients see it, on a real store; confirmation is the test's to give."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from gantry_broker.clients.claim import Claim
from gantry_broker.clients.consumers import Consumers
from gantry_broker.clients.elsewhere import Elsewhere
from gantry_broker.clients.locks import QueueLocks
from gantry_broker.clients.mapped.book import QueueBook
from gantry_broker.clients.mapped.maps import ClusterMaps
from gantry_broker.clients.mapped.masters import OtherMasters
from gantry_broker.clients.view import Created
from gantry_broker.member.local_store import LocalStore
from gantry_broker.member.repeats import Repeats, place_of
from gantry_broker.queues import MessageStore
from gantry_broker.retention.core.pins import Pins, pins
from gantry_broker.retention.trimming import LogTrim
from gantry_broker.store.contract import (
    Appended,
    Records,
    Refusal,
    SendOutcome,
    Store,
    StoredAt,
)
from gantry_broker.store.tables.topics import TopicChange, change_record
from gantry_broker.tier.waits import TierReads
from gantry_protocol.bodies import MessageQueue, TopicConfig
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.frame import FrameDecoder
from gantry_protocol.records import MessageRecord, RecordRun, decode_records
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.remoting.turns import Turns
from gantry_protocol.types import Offset
from support import stores

_numbers = itertools.count(1)


class NoControllers:
    """The controllers of a `FakeGroup`: they note what they are asked and answer when told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[RemotingCommand, Callable[[Outcome], None]]] = []

    def ask(
        self,
        command: RemotingCommand,
        done: Callable[[Outcome], None],
        timeout_s: float,
        held_s: float = 0.0,
    ) -> None:
        self.asked.append((command, done))


class LocksInMemory:
    """A `LockBook` of a master whose controllers keep no locks."""

    def __init__(self) -> None:
        self._locks = QueueLocks(lambda group, client_id: True)
        self._locks.by_quorum = False

    def began(self, claim: Claim) -> None:
        """Nothing is read from anybody."""

    def end(self) -> None:
        """The test is over anyway."""

    def lock(
        self,
        group: str,
        client_id: str,
        queues: list[MessageQueue],
        connection: int,
        owns: Callable[[list[MessageQueue]], None],
    ) -> None:
        self._locks.lock(group, client_id, queues, connection)
        owns(self._locks.owned(group, client_id, queues))

    def unlock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], connection: int
    ) -> None:
        self._locks.unlock(group, client_id, queues, connection)

    def is_held(self, group: str) -> bool:
        return self._locks.is_held(group)

    def learn(self, queues: Collection[MessageQueue]) -> None:
        """There is nobody to ask."""

    def knows(self, queue: MessageQueue) -> bool:
        return True


class NoMaps(ClusterMaps):
    """The maps of a cluster that has no mapped topic; each master knows that, unless told not to.

    Attributes:
        are_read: whether it does.
    """

    are_read = True

    def is_known_to(self, group: str) -> bool:
        return self.are_read or super().is_known_to(group)


class FakeGroup:
    """Implements `GroupView`: appends are confirmed at once unless `holding`."""

    broker_name = "broker-a"
    cluster = "DefaultCluster"
    store_host = ("10.0.0.2", 10911)

    def __init__(self, directory: Path) -> None:
        self.messages: MessageStore = stores.open_store(directory)
        self.tier: TierReads | None = None
        self.trimmed: list[int] = []
        self.needed: tuple[Offset, ...] = ()
        trims = LogTrim(self.messages, self)
        self.local = LocalStore(self.messages, self.append, lambda: self.tier, trims)
        self.store: Store = self.local
        self.controllers = NoControllers()
        self.consumers = Consumers(
            self.cluster,
            self.broker_name,
            self.controllers,
            Elsewhere(self.cluster, NoControllers()),
        )
        maps = NoMaps(self.cluster, self.controllers)
        self.queues = QueueBook(self, maps, OtherMasters(maps), self.controllers)
        self.consumers.locks = LocksInMemory()  # type: ignore[assignment]  # there is no quorum
        self.refusal: Refusal | None = None
        self.topic_refusal: Refusal | None = None
        self.append_error: Exception | None = None
        self.repeats: Repeats | None = None  # every send is stored
        self.holding = False
        self.holding_topics = False
        self.now_ms = 1_700_000_000_000
        self.created: list[TopicConfig] = []
        self.controllers_know: dict[str, TopicConfig] = {}
        self.appended: list[list[MessageRecord]] = []
        self._held: list[tuple[list[StoredAt], Appended]] = []
        self._held_topics: list[tuple[TopicConfig, Created]] = []
        self._version = 0

    serving = takes_requests = True

    def pins(self) -> Pins:
        return pins(transactions=self.needed, parked=None)

    def log_trimmed(self, start: Offset) -> None:
        self.trimmed.append(start)

    def accepting_writes(self) -> Refusal | None:
        return self.refusal

    def append(self, records: Records, done: Appended, once: int | None = None) -> None:
        if self.append_error is not None:
            raise self.append_error
        self.now_ms += 1
        if self.repeats is not None and once is not None:
            marks, ways, is_known = self.messages.recent.look(records, once)
            there = self.repeats.find(records, marks, ways, self.now_ms) if is_known else None
            there = there or [None]
            if all(there):
                found = [record for record in there if record is not None]
                places = [place_of(record) for record in found]
                done(SendOutcome(ResponseCode.SUCCESS, None, places, found))
                return
        stored = self.messages.put(records, now_ms=self.now_ms)
        self._held.append((stored, done))
        if isinstance(records, RecordRun):
            size = stored[-1].end - stored[0].offset
            records = decode_records(self.messages.log.read(stored[0].offset, size))
        self.appended.append(records)
        if not self.holding:
            self.confirm()

    def confirm(self) -> None:
        """Everything appended so far is confirmed."""
        stores.confirm(self.messages)
        self._end(SendOutcome(ResponseCode.SUCCESS))

    def give_up(self) -> None:
        """Everything that waits is stored and nobody knows whether it stays."""
        self._end(SendOutcome(ResponseCode.FLUSH_SLAVE_TIMEOUT, "not confirmed in time"))

    def doubt(self) -> None:
        """The mastership is in doubt: nobody knows, and who sent it should ask the next master."""
        held, self._held = self._held, []
        for _, done in held:
            done(SendOutcome(ResponseCode.FLUSH_SLAVE_TIMEOUT, "cut off"))

    def _end(self, outcome: SendOutcome) -> None:
        held, self._held = self._held, []
        for stored, done in held:
            done(SendOutcome(outcome.code, outcome.remark, stored))

    def create_topic(self, topic: TopicConfig, done: Created, *, if_absent: bool) -> None:
        if self.topic_refusal is not None:
            done(self.topic_refusal)
            return
        self.created.append(topic)
        known = self.controllers_know if if_absent else {}
        self._held_topics.append((known.get(topic.topic_name, topic), done))
        if not self.holding_topics:
            self.release_topics()

    def delete_topic(self, topic: str, done: Created) -> None:
        if self.topic_refusal is not None:
            done(self.topic_refusal)
            return
        self._version += 1
        change = change_record(TopicChange(self._version, [], [topic]))
        self.messages.put([change], now_ms=self.now_ms)
        stores.confirm(self.messages)
        done(None)

    def release_topics(self) -> None:
        """What was asked for exists now."""
        held, self._held_topics = self._held_topics, []
        for topic, done in held:
            self.add_topic(topic)
            done(None)

    def add_topic(self, topic: TopicConfig) -> None:
        """As if the controller had committed it."""
        self._version += 1
        change = change_record(TopicChange(self._version, [topic]))
        self.messages.put([change], now_ms=self.now_ms)
        stores.confirm(self.messages)


class FakeConnection:
    """Keeps what is sent to it."""

    def __init__(self, peer: str = "10.1.1.1:5000") -> None:
        self.id = next(_numbers)
        self.peer = peer
        self.proxied = False
        self.attrs: dict[str, Any] = {}
        self.closed = False
        self.heard_s = 0.0
        self.turns = Turns()
        self.replies: list[tuple[RemotingCommand, RemotingCommand]] = []
        self.sent: list[RemotingCommand] = []
        self.words: dict[int, dict[str, str] | None] = {}

    def reply(self, request: RemotingCommand, response: RemotingCommand) -> None:
        if not self.closed:
            self.replies.append((request, response))

    def reply_frame(self, request: RemotingCommand, frame: bytes) -> None:
        (response,) = FrameDecoder().feed(frame)
        self.reply(request, response)

    def reword(self, request: RemotingCommand, ext: dict[str, str]) -> None:
        self.words.setdefault(id(request), request.ext)
        request.ext = ext

    def send(self, command: RemotingCommand) -> None:
        self.sent.append(command)

    def close(self) -> None:
        self.closed = True

    def answer_to(self, request: RemotingCommand) -> RemotingCommand:
        """The one answer to `request`."""
        (answer,) = [response for asked, response in self.replies if asked is request]
        assert answer.opaque == request.opaque
        return answer
