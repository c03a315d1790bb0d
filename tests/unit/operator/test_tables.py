"""Tables of clusters: read once for all, told what changed, and never older than an own write."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any, cast

import pytest
from gantry_operator.api.errors import Denied
from gantry_operator.api.kinds import CONTROLLER_GROUP, TOPIC
from gantry_operator.cache import Cache, Key, Subject
from gantry_operator.heard import Listener
from gantry_operator.metrics import Metrics
from gantry_operator.reconcile.entities import Entities
from gantry_operator.reconcile.tables import FRESH_S, Tables
from gantry_operator.reconcile.worker import Reconciler
from gantry_operator.workqueue import WorkQueue
from gantry_protocol.admin_client.errors import AdminRefusedError, QuorumUnreachableError
from gantry_protocol.admin_client.outcomes import Unreachable
from gantry_protocol.admin_topics import PAGE_MAX, TopicList, TopicVariant, TopicView
from prometheus_client import CollectorRegistry
from unit.operator.fake_admin import FakeDirectory
from unit.operator.fake_api import FakeApi

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
HERE = ("mq", "gantry")


class Topics:
    """Controllers that hold topics."""

    def __init__(self) -> None:
        self.stamp = 0
        self.held: dict[str, TopicView] = {}
        self.asked: list[str] = []
        self.failure: Exception | None = None
        self.before_answer = asyncio.Event()
        self.before_answer.set()

    def put(self, name: str, queues: int = 8) -> TopicView:
        self.stamp += 1
        variant = TopicVariant(read_queues=queues, write_queues=queues, perm=6)
        self.held[name] = TopicView(name=name, variants=[variant])
        return self.held[name]

    async def topics(self, known: str = "", after: str = "") -> TopicList:
        self.asked.append(f"read {known or 'all'} {after}".strip())
        if self.failure is not None:
            raise self.failure
        stamp = str(self.stamp)
        names = sorted(name for name in self.held if name > after)
        page = [self.held[name] for name in names[:PAGE_MAX]]
        more = len(names) > PAGE_MAX
        await self.before_answer.wait()
        if known == stamp:
            return TopicList(stamp=stamp, unchanged=True)
        return TopicList(stamp=stamp, groups=["a"], topics=page, more=more)

    async def put_topic(self, name: str, wish: Any) -> TopicView:
        self.asked.append(f"put {name}")
        return self.put(name, wish.write_queues)

    async def delete_topic(self, name: str) -> None:
        self.asked.append(f"delete {name}")
        self.stamp += 1
        self.held.pop(name, None)


class World:
    """Some resources, and the parts of an operator that look at them."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.cache = Cache()
        self.queue: WorkQueue[Key] = WorkQueue()
        self.listener = Listener(self.cache, self.queue)
        self.admin = Topics()
        directory = cast("Any", FakeDirectory(cast("Any", self.admin)))
        self.metrics = Metrics(CollectorRegistry())
        self.tables = Tables(directory, self.metrics)
        self.entities = Entities(self.api, self.cache, directory, self.tables, self.metrics)
        self.have(CONTROLLER_GROUP, "gantry")

    def have(self, kind: Any, name: str, created: str = "", **spec: Any) -> None:
        meta = {"generation": 1, "creationTimestamp": created}
        self.listener.hear(kind, "ADDED", self.api.have(kind, name, metadata=meta, spec=spec))

    async def settle(self) -> int:
        """Looks until nothing is due; the number of looks."""
        looks = 0
        while len(self.queue):
            key = await self.queue.get()
            if key.kind == TOPIC.kind:
                looks += 1
                outcome = await self.entities.look(key, lambda: NOW)
                if outcome.again:
                    self.queue.add(key)
            self.queue.done(key)
        return looks

    def reads(self) -> list[str]:
        return [line for line in self.admin.asked if line.startswith("read")]

    def writes(self) -> list[str]:
        return [line for line in self.admin.asked if not line.startswith("read")]


async def test_three_thousand_topics_are_read_at_once_and_nothing_is_written() -> None:
    world = World()
    for number in range(3_000):
        world.admin.put(f"t{number:04}")
        world.have(TOPIC, f"t{number:04}")
    await world.settle()
    assert world.writes() == []
    pages = len(world.reads())
    assert pages == 3
    statuses = sum(call.startswith("status") for call in world.api.calls)
    assert statuses == 3_000
    for key in sorted(world.cache.names(TOPIC)):
        world.queue.add(Key(TOPIC.kind, *key))
    assert await world.settle() == 3_000
    assert sum(call.startswith("status") for call in world.api.calls) == statuses
    assert (len(world.reads()), world.writes()) == (pages, [])


async def test_who_reads_again_names_what_is_known() -> None:
    world = World()
    world.admin.put("t")
    for _ in range(3):
        await world.tables.topics(*HERE)
    assert world.reads() == ["read all"]
    await asyncio.sleep(FRESH_S + 1)
    held = await world.tables.topics(*HERE)
    assert world.reads() == ["read all", "read 1"]
    assert not isinstance(held, Unreachable)
    assert list(held.topics) == ["t"]


async def test_what_others_change_brings_its_resource_back_and_no_other() -> None:
    world = World()
    for name in ("a", "b"):
        world.have(TOPIC, name, queues=8)
    await world.settle()
    await world.tables.look(world.cache, world.queue.add)
    assert len(world.queue) == 0
    world.admin.put("a", 4)
    await asyncio.sleep(FRESH_S + 1)
    await world.tables.topics(*HERE)  # somebody else's look reads it first
    await world.tables.look(world.cache, world.queue.add)
    assert len(world.queue) == 1
    world.admin.asked.clear()
    await world.settle()
    assert world.writes() == ["put a"]
    assert world.admin.held["a"].variants[0].write_queues == 8


async def test_an_answer_from_before_an_own_write_does_not_undo_it() -> None:
    world = World()
    world.admin.put("t", 8)
    await world.tables.topics(*HERE)
    world.admin.put("u", 8)
    await asyncio.sleep(FRESH_S + 1)
    world.admin.before_answer.clear()
    reading = asyncio.create_task(world.tables.topics(*HERE))
    await asyncio.sleep(0.1)
    world.tables.wrote(TOPIC.kind, *HERE, "t", None)
    world.tables.wrote(TOPIC.kind, *HERE, "v", world.admin.put("v"))
    world.admin.before_answer.set()
    held = await reading
    assert not isinstance(held, Unreachable)
    assert sorted(held.topics) == ["u", "v"]


async def test_a_change_between_an_own_write_and_its_answer_is_seen() -> None:
    world = World()
    ours = world.admin.put("t", 8)
    await world.tables.topics(*HERE)
    world.admin.put("t", 2)
    await asyncio.sleep(FRESH_S + 1)
    world.admin.before_answer.clear()
    reading = asyncio.create_task(world.tables.topics(*HERE))
    await asyncio.sleep(0.1)
    world.tables.wrote(TOPIC.kind, *HERE, "t", ours)
    world.admin.before_answer.set()
    await reading
    await asyncio.sleep(FRESH_S + 1)
    held = await world.tables.topics(*HERE)
    assert not isinstance(held, Unreachable)
    assert held.topics["t"] == world.admin.held["t"]


async def test_silence_and_older_controllers_are_values() -> None:
    world = World()
    world.admin.failure = QuorumUnreachableError("nobody")
    assert await world.tables.topics(*HERE) == Unreachable("nobody")
    world.admin.failure = AdminRefusedError(404, "HTTP_404", "no such route")
    found = await world.tables.topics(*HERE)
    assert isinstance(found, Unreachable)
    assert "older version" in found.reason
    world.have(TOPIC, "t")
    await world.settle()
    body = world.api.find(TOPIC, "t")
    assert body is not None
    (_, ready) = body["status"]["conditions"]
    assert (ready["status"], ready["reason"]) == ("Unknown", "ControllerUnreachable")


async def test_the_oldest_of_several_counts_whoever_was_heard_first() -> None:
    world = World()
    world.have(TOPIC, "young", "2026-11-21T11:00:00Z", topicName="T")
    world.have(TOPIC, "old", "2026-11-21T10:00:00Z", topicName="T")
    place = Subject(TOPIC.kind, "T")
    assert world.cache.claimants(*HERE, place) == ["old", "young"]
    await world.settle()
    old = world.api.find(TOPIC, "old")
    assert old is not None
    world.listener.hear(TOPIC, "DELETED", old)
    assert world.cache.claimants(*HERE, place) == ["young"]
    assert await world.settle() >= 1
    young = world.api.find(TOPIC, "young")
    assert young is not None
    assert young["status"]["conditions"][1]["reason"] == "InPlace"


async def test_a_table_that_no_resource_needs_is_let_go() -> None:
    world = World()
    world.have(TOPIC, "t")
    await world.settle()
    assert world.tables._tables
    body = world.api.find(TOPIC, "t")
    assert body is not None
    world.listener.hear(TOPIC, "DELETED", body)
    await world.tables.look(world.cache, world.queue.add)
    assert world.tables._tables == {}
    assert world.cache.clusters() == []


async def test_a_refusal_is_told_once_and_tried_again() -> None:
    world = World()
    world.have(TOPIC, "t")

    async def refuse(name: str, _: Any) -> TopicView:
        world.admin.asked.append(f"put {name}")
        raise AdminRefusedError(409, "INVALID_PARAMETER", "too many topics")

    world.admin.put_topic = refuse  # type: ignore[method-assign]
    await world.settle()
    body = world.api.find(TOPIC, "t")
    assert body is not None
    ready = body["status"]["conditions"][1]
    assert ready["reason"] == "RefusedByControllers"
    assert "too many topics" in ready["message"]
    assert world.writes() == ["put t", "put t"]
    outcome = await world.entities.look(Key(TOPIC.kind, "mq", "t"), lambda: NOW)
    assert (outcome.again, outcome.check_after_s) == (False, 10.0)


async def test_a_finalizer_that_is_refused_is_told_once_and_tried_again() -> None:
    """By a webhook, for example; the topic is not made, since its deletion might forget it."""
    world, key = World(), Key(TOPIC.kind, "mq", "t")
    world.have(TOPIC, "t", deletionPolicy="Delete")
    world.api.refuse("merge", TOPIC, Denied(403, "Forbidden", "frozen until Monday"))
    await world.settle()
    body = world.api.find(TOPIC, "t")
    assert body is not None
    accepted = body["status"]["conditions"][0]
    words = "The API server refuses its finalizer: frozen until Monday"
    assert (accepted["reason"], accepted["message"]) == ("ApiRefused", words)
    assert world.writes() == []
    outcome = await world.entities.look(key, lambda: NOW)
    assert (outcome.again, outcome.check_after_s) == (False, 10.0)
    world.api.fault = lambda *_: None
    world.queue.add(key)
    await world.settle()
    assert world.writes() == ["put t"]
    body = world.api.find(TOPIC, "t")
    assert body is not None
    assert body["status"]["conditions"][0]["reason"] == "Valid"


async def test_a_deletion_just_before_a_status_is_written_brings_the_resource_back() -> None:
    """The answer to the write has it, so the event that would tell of it is no news."""
    world = World()
    world.admin.put("t")
    world.have(TOPIC, "t", deletionPolicy="Delete")
    write = world.api.apply_status

    async def write_late(kind: Any, status: Any) -> Any:
        deleted = {"generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z"}
        now = world.api.find(TOPIC, "t")
        assert now is not None
        world.api.have(TOPIC, "t", metadata=now["metadata"] | deleted, spec=now["spec"])
        world.api.apply_status = write  # type: ignore[method-assign]
        return await write(kind, status)

    key = Key(TOPIC.kind, "mq", "t")
    world.api.apply_status = write_late  # type: ignore[method-assign]
    while world.api.apply_status is write_late:
        await world.tables.look(world.cache, world.queue.add)
        outcome = await world.entities.look(key, lambda: NOW)
    assert outcome.again
    kept = world.cache.get(TOPIC, "mq", "t")
    assert kept is not None
    assert "deletionTimestamp" in kept["metadata"]


async def test_looks_that_wait_for_nothing_let_others_have_their_turns() -> None:
    world = World()
    for number in range(50):
        world.admin.put(f"t{number:02}")
        world.have(TOPIC, f"t{number:02}")
    await world.settle()
    for key in sorted(world.cache.names(TOPIC)):
        world.queue.add(Key(TOPIC.kind, *key))
    unused = cast("Any", None)
    reconciler = Reconciler(
        world.queue, unused, unused, unused, world.metrics, unused, entities=world.entities
    )
    left: list[int] = []

    async def another() -> None:
        while len(world.queue):
            left.append(len(world.queue))
            await asyncio.sleep(0)

    worker = asyncio.create_task(reconciler.work())
    await another()
    worker.cancel()
    assert len(left) >= 50


async def test_a_standby_asks_and_tells_nothing() -> None:
    world = World()
    world.have(TOPIC, "t")
    unused = cast("Any", None)
    reconciler = Reconciler(
        world.queue,
        unused,
        unused,
        unused,
        world.metrics,
        unused,
        leads=lambda: False,
        entities=world.entities,
    )
    await reconciler.reconcile(Key(TOPIC.kind, "mq", "t"))
    assert (world.admin.asked, world.api.calls) == ([], [])
