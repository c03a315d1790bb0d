"""Topics between the controllers and the log: creations, deletions, a second life of a name."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gantry_broker.clients.claim import Claim
from gantry_broker.member import topic_sync
from gantry_broker.member.local_store import LocalStore
from gantry_broker.member.topic_sync import TopicSync
from gantry_broker.store.contract import ReadLimits, Refusal, SendOutcome
from gantry_broker.store.tables.topics import TopicChange, change_record
from gantry_protocol.bodies import TopicConfig, TopicConfigTable, decode_body, encode_body
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import ConnectError
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.types import BrokerId, Epoch
from msgspec.structs import replace
from support import stores

CLAIM = Claim(BrokerId(2), Epoch(8), "i")
T = TopicConfig("T", 1, 1)


class Host:
    """A group whose appends are confirmed when the test says so."""

    cluster, broker_name, store_host = "c", "g", ("10.0.0.2", 10911)

    def __init__(self, directory: Path) -> None:
        self.messages = stores.open_store(directory)
        self.store = LocalStore(self.messages, self.append, lambda: None)
        self._waiting: list[Callable[[SendOutcome], None]] = []

    def append(self, records, done, once=None) -> None:
        stores.put(self.messages, *records)
        self._waiting.append(done)

    def confirm(self) -> None:
        stores.confirm(self.messages)
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(SendOutcome(ResponseCode.SUCCESS))


class Controllers:
    """The table, and changes of it that are committed at once."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicConfig] = {}
        self.since: dict[str, int] = {}
        self.version = 0
        self.away = False
        self.is_partial = False
        self.reports: list[list[str]] = []

    def ask(self, command: RemotingCommand, done: Callable[[Outcome], None], _: float) -> None:
        if self.away:
            done(ConnectError("nobody", refused=True))
        elif command.code == RequestCode.GANTRY_REPORT_TOPICS:
            signed = [command.ext[one] for one in ("brokerId", "masterEpoch", "incarnation")]
            assert signed == ["2", "8", "i"]
            told = decode_body(TopicConfigTable, command.body).topic_config_table
            self.reports.append(list(told))
            self.topics = {**told, **self.topics}
            self.version += 1
            self.is_partial = command.ext["more"] == "true"
            done(reply(command))
        elif command.code == RequestCode.GET_ALL_TOPIC_CONFIG and self.is_partial:
            done(reply(command, ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, "not yet"))
        elif command.code == RequestCode.GET_ALL_TOPIC_CONFIG:
            body = TopicConfigTable(
                dict(self.topics), topics_version=self.version, topics_since=self.since
            )
            done(reply(command, body=encode_body(body)))
        else:
            assert (command.ext["clusterName"], command.ext["brokerName"]) == ("c", "g")
            self.version += 1
            self.topics.pop(command.ext["topic"], None)
            if command.code == RequestCode.UPDATE_AND_CREATE_TOPIC:
                self.topics[T.topic_name] = T
            done(reply(command, ext={"topicsVersion": str(self.version)}))


class World:
    def __init__(self, directory: Path) -> None:
        self.host, self.controllers = Host(directory), Controllers()
        self.sync = TopicSync(self.host, self.controllers, lambda: True, lambda: CLAIM)  # type: ignore[arg-type]
        self.heard: list[Refusal | None] = []

    def create(self) -> None:
        self.sync.create(T, self.heard.append, if_absent=False)

    def send(self, body: bytes) -> None:
        stores.put(self.host.messages, stores.message("T", body=body))

    def read(self) -> bytes:
        store = self.host.messages
        return store.get("T", 0, store.min_offset("T", 0), ReadLimits(32, 1 << 20)).body


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.host.messages.close()


def test_a_topic_that_was_deleted_and_created_unseen_begins_anew(world: World) -> None:
    world.create()
    world.host.confirm()
    world.send(b"old")
    stores.confirm(world.host.messages)
    world.controllers.version = 5  # gone at 4, back at 5, before anybody looked
    world.controllers.since = {"T": 5}
    world.sync.catch_up(5)
    world.host.confirm()
    assert world.host.store.topics.version == 5
    assert world.read() == b""
    world.send(b"new")
    stores.confirm(world.host.messages)
    world.controllers.version = 6
    world.sync.catch_up(6)
    world.host.confirm()
    assert b"new" in world.read(), "it is the same one from then on"


def test_a_quorum_that_adopts_is_told_the_topics_of_the_log(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_sync, "TOPICS_PER_REPORT", 1)
    world.create()
    world.host.confirm()
    world.send(b"kept")
    late = TopicChange(2, [replace(T, topic_name="late")])  # of the last master, not confirmed yet
    stores.put(world.host.messages, change_record(late))
    made_since = replace(T, topic_name="made")
    world.controllers.topics, world.controllers.version = {"made": made_since}, 7 << 32
    world.controllers.is_partial = True
    world.sync.catch_up(7 << 32)
    assert world.controllers.reports == [], "more may be on its way to the table"
    world.host.confirm()
    assert world.controllers.reports == [["T"], ["late"]]
    world.host.confirm()
    assert world.host.store.topics.version == world.controllers.version
    assert sorted(one.topic_name for one in world.host.store.topics.all()) == ["T", "late", "made"]
    assert b"kept" in world.read()


async def test_what_could_not_be_read_is_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_sync, "RETRY_S", 0.0)
    world.controllers.away = True
    world.controllers.topics, world.controllers.version = {"T": T}, 5
    world.sync.catch_up(5)
    world.controllers.away = False
    await asyncio.sleep(0.01)
    world.host.confirm()
    assert world.host.store.topics.lookup("T") == T


def test_a_deletion_is_over_once_it_is_confirmed_in_the_log(world: World) -> None:
    world.create()
    world.host.confirm()
    world.heard.clear()
    world.sync.delete("T", world.heard.append)
    assert world.heard == []
    assert world.host.store.topics.lookup("T") is not None
    world.host.confirm()
    assert world.heard == [None]
    assert world.host.store.topics.lookup("T") is None


def test_what_cannot_be_deleted_now_says_why(world: World) -> None:
    world.controllers.away = True
    world.sync.delete("T", world.heard.append)
    (refusal,) = world.heard
    assert refusal is not None
    assert refusal.code == ResponseCode.SYSTEM_BUSY


def test_the_next_topic_of_the_name_is_empty_and_goes_on_with_the_numbers(world: World) -> None:
    world.create()
    world.host.confirm()
    world.send(b"first life")
    world.sync.delete("T", world.heard.append)
    world.send(b"between the end and its confirmation")
    world.host.confirm()
    world.create()
    world.host.confirm()
    store = world.host.messages
    assert (store.min_offset("T", 0), store.max_offset("T", 0), world.read()) == (2, 2, b"")
    world.send(b"second life")
    world.host.confirm()
    assert b"second life" in world.read()
    assert world.heard == [None, None, None]


def test_commits_do_not_follow_the_end_of_a_topic(world: World) -> None:
    world.create()
    world.host.confirm()
    world.sync.delete("T", world.heard.append)
    world.host.store.committed.commit("g", "T", 0, 1)
    assert world.host.store.committed.take_records() == ([], [])
    world.host.confirm()
    assert world.host.store.committed.all() == []


def test_changes_that_wait_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_sync, "MAX_WAITING", 1)
    controllers = Controllers()
    host = Host(tmp_path)
    sync = TopicSync(host, controllers, lambda: True, lambda: CLAIM)
    refusals: list[Refusal | None] = []
    sync.create(T, refusals.append, if_absent=True)
    sync.create(TopicConfig("U", 1, 1), refusals.append, if_absent=True)
    assert [one and one.code for one in refusals] == [ResponseCode.SYSTEM_BUSY]
    sync.end()
    host.messages.close()


def test_who_asked_under_a_former_mastership_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The send that waits for the topic is another master's by now; here it would be stored too."""
    late: list[Callable[[], None]] = []
    with monkeypatch.context() as patched:
        ask = world.controllers.ask
        patched.setattr(world.controllers, "ask", lambda *asked: late.append(lambda: ask(*asked)))
        world.create()
    world.sync.end()
    world.create()
    world.host.confirm()
    assert world.heard == [None]
    (answer,) = late
    answer()
    world.host.confirm()
    assert [one and one.code for one in world.heard] == [None, ResponseCode.SERVICE_NOT_AVAILABLE]


async def test_a_dear_table_is_read_again_after_a_pause(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of many new topics wants a reading; one of thousands must not be all that happens."""
    readings: list[RemotingCommand] = []
    ask = world.controllers.ask

    def counted(command: RemotingCommand, done: Any, timeout_s: float) -> None:
        if command.code == RequestCode.GET_ALL_TOPIC_CONFIG:
            readings.append(command)
        ask(command, done, timeout_s)

    monkeypatch.setattr(world.controllers, "ask", counted)
    used = itertools.count()
    monkeypatch.setattr(topic_sync, "thread_time", lambda: next(used) * 0.005)
    world.create()
    world.controllers.version = 7
    world.sync.catch_up(7)
    world.host.confirm()
    assert len(readings) == 1, "the next one waits for ten times as long as this one took"
    async with asyncio.timeout(30):
        while len(readings) < 2:
            await asyncio.sleep(0.005)
    world.host.confirm()
    assert world.host.store.topics.version == 7


def test_controllers_are_told_what_shall_become_of_attributes(world: World) -> None:
    asked: list[RemotingCommand] = []
    world.controllers.ask = lambda command, done, _: asked.append(command)  # type: ignore[method-assign]
    change = {"+message.type": "FIFO", "-reserve.time": ""}
    world.sync.create(replace(T, attributes=change), world.heard.append, if_absent=False)
    world.create()
    with_change, without = asked
    assert with_change.ext["attributes"] == "+message.type=FIFO,-reserve.time"
    assert "attributes" not in without.ext
