"""The side of a replica of a front that reads from it, and the front's."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_broker.ha.wire import Frames
from gantry_broker.remote import messages as wire
from gantry_broker.remote import reader
from gantry_broker.remote.reader import ReplicaConnection
from gantry_broker.remote.reading import UNANSWERED_MAX, ReadSession
from gantry_broker.store.contract import (
    GetResult,
    GetStatus,
    QueueRead,
    ReadLimits,
    Refusal,
    WasRead,
)
from gantry_protocol.errors import WireError

FOUND = GetResult(GetStatus.FOUND, 1, 0, 1, b"record", 1)
WANTED = QueueRead("orders", 0, 0, ReadLimits(32, 1 << 20))


class Host:
    """A replica."""

    def __init__(self) -> None:
        self.is_offered = True
        self.topics_version = 7
        self.answers = True
        self.waiting: list[WasRead] = []

    def read_for_front(self, wanted: QueueRead, done: WasRead) -> bool:
        if self.answers:
            self.waiting.append(done)
        return self.answers


class World:
    """A session, and what it has told."""

    def __init__(self) -> None:
        self.host = Host()
        self.told: list[wire.FromStore] = []
        self.session = ReadSession(self.host, self.told.append)

    def says(self, message: wire.FromFront) -> list[wire.FromStore]:
        """What is told in answer."""
        count = len(self.told)
        self.session.received(message)
        return self.told[count:]


@pytest.fixture
def world() -> World:
    made = World()
    made.session.open()
    return made


def test_it_says_which_topics_it_has_and_whether_it_may_be_asked(world: World) -> None:
    assert world.told[1:] == [wire.Rows(7), wire.State(None, 0, True)]
    world.host.is_offered = False
    world.session.tell_state()
    world.session.tell_state()
    assert world.told[3:] == [wire.State(None, 0, False)]
    assert world.says(wire.Ping()) == [wire.State(None, 0, False)]


def test_newer_topics_are_told_before_what_is_read_with_them(world: World) -> None:
    world.host.topics_version = 8
    assert world.says(wire.Read(1, WANTED)) == [wire.Rows(8)]
    world.host.waiting.pop()(FOUND)
    assert world.told[-1] == wire.WasRead(1, FOUND, None)


def test_what_is_not_here_is_left_to_the_master(world: World) -> None:
    world.host.answers = False
    (answer,) = world.says(wire.Read(1, WANTED))
    assert isinstance(answer, wire.WasRead)
    assert (answer.number, answer.result) == (1, None)
    assert answer.refusal is not None
    world.host.answers = True
    world.says(wire.Read(2, WANTED))
    world.host.waiting.pop()(Refusal(answer.refusal.code, "a damaged record"))
    assert isinstance(world.told[-1], wire.WasRead)
    assert world.told[-1].result is None
    assert world.session.unanswered == 0


def test_nothing_is_stored_here(world: World) -> None:
    with pytest.raises(WireError, match="only read"):
        world.says(wire.AppendRecords(1, []))


def test_what_waits_is_bounded(world: World) -> None:
    for number in range(UNANSWERED_MAX + 1):
        world.says(wire.Read(number, WANTED))
    with pytest.raises(WireError, match="wait for an answer"):
        world.says(wire.Read(-1, WANTED))


def test_an_ended_session_says_nothing(world: World) -> None:
    world.says(wire.Read(1, WANTED))
    count = len(world.told)
    world.session.end()
    world.host.waiting.pop()(FOUND)
    assert len(world.told) == count


class Link:
    """The front's link to a replica; what was sent and why it was closed."""

    def __init__(self) -> None:
        self.sent: list[wire.FromFront] = []
        self.reason = ""

    def send(self, frame: bytes) -> None:
        self.sent += [wire.from_front(one) for one in Frames().feed(frame)]

    def close(self, reason: str) -> None:
        self.reason = reason


class Front:
    """A connection whose link is there."""

    def __init__(self) -> None:
        self.connection = ReplicaConnection("10.0.0.2:10914", "c", "g")
        self.link: Any = Link()
        self.connection._link = self.link
        self.had: list[GetResult | None] = []

    def hears(self, *messages: wire.FromStore) -> None:
        for message in messages:
            for frame in Frames().feed(wire.encode(message)):
                self.connection._received(self.link, frame)

    def reads(self) -> None:
        self.connection.read(WANTED, self.had.append)


@pytest.fixture
async def front() -> Front:
    made = Front()
    made.hears(wire.Rows(7), wire.State(None, 0, True))
    return made


async def test_a_read_is_answered_by_the_replica(front: Front) -> None:
    front.reads()
    (read,) = front.link.sent
    assert (front.connection.topics_version, front.had) == (7, [])
    front.hears(wire.WasRead(read.number, FOUND, None))
    assert (front.had, front.connection.left) == ([FOUND], 0)


async def test_or_left_to_the_master(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "WAITING_MAX", 1)
    front.reads()
    front.reads()  # too many
    assert front.had == [None]
    front.hears(wire.WasRead(front.link.sent[0].number, None, Refusal(1, "")))  # type: ignore[arg-type]
    assert front.had == [None, None]
    front.hears(wire.State(None, 0, False))
    front.reads()
    assert front.had == [None] * 3
    front.hears(wire.State(None, 0, True))
    front.reads()
    front.connection._lost(front.link, "it ended")
    assert (front.had, front.connection.is_open) == ([None] * 4, False)
    front.reads()
    assert front.had == [None] * 5
    assert front.connection.left == 5


async def test_answers_to_nothing_end_the_link(front: Front) -> None:
    with pytest.raises(WireError, match="nothing was asked"):
        front.hears(wire.WasRead(1, FOUND, None))
    front.hears(wire.Farewell("it ends"))
    assert front.link.reason == "it ends"
