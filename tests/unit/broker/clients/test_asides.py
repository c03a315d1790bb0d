"""Requests that a process answers itself while their connection is passed on to a master."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from gantry_broker.clients.resent import RESENT
from gantry_broker.clients.routing import Pipe
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.errors import RemotingError
from gantry_protocol.frame import FrameDecoder
from gantry_protocol.remoting import splice
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.glance import Glimpse
from support.patience import PATIENCE_S
from support.routed_member import READ, WRITE, Member, ask, until


class Front(Member):
    """Answers sends itself, at once or when it is told to."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.waits = False
        self.taken: list[tuple[Connection, RemotingCommand]] = []
        self.router.aside = self._aside

    def _aside(self, pipe: Pipe, glimpse: Glimpse) -> bool:
        if glimpse.code != WRITE or pipe.epoch != self.epoch:
            return False
        (command,) = FrameDecoder(expect_preamble=False).feed(glimpse.frame)
        pipe.connection.entrust(command)
        self.taken.append((pipe.connection, command))
        if not self.waits:
            self.answer()
        return True

    def answer(self) -> None:
        for conn, command in self.taken:
            conn.reply(command, reply(command, remark=self.name))
        self.taken = []


class Master(Member):
    """Remembers what it was given."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.given: list[tuple[int, bool]] = []

    def _serve(self, conn: Connection, command: RemotingCommand) -> RemotingCommand:
        marks = conn.attrs.get(RESENT, ())
        self.given.append((command.code, command.opaque in marks))
        return super()._serve(conn, command)


@pytest.fixture
async def front() -> AsyncIterator[Front]:
    made = Front("front")
    made.epoch = 3
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def masters() -> AsyncIterator[tuple[Master, Master]]:
    one, other = Master("one"), Master("other")
    for master in (one, other):
        await master.start()
        master.become_master()
    yield one, other
    await one.stop()
    await other.stop()


async def led(front: Front, master: Master) -> RemotingClient:
    """A client that the front leads to ``master``."""
    front.follow(master.address)
    client = await front.client()
    assert await ask(client) == master.name
    master.given.clear()
    return client


async def test_what_is_taken_is_answered_here_and_the_rest_by_the_master(
    front: Front, masters: tuple[Master, Master]
) -> None:
    client = await led(front, masters[0])
    assert [await ask(client, WRITE), await ask(client)] == ["front", "one"]
    assert masters[0].given == [(READ, False)]


async def test_what_waits_here_when_the_master_dies_goes_to_the_next_one_with_a_mark(
    front: Front, masters: tuple[Master, Master]
) -> None:
    one, other = masters
    client = await led(front, one)
    front.waits = True
    sent = asyncio.create_task(ask(client, WRITE))
    await until(lambda: bool(front.taken))
    await one.stop()
    front.epoch = 4
    front.follow(other.address)
    assert await sent == "other"
    assert other.given == [(WRITE, True)]
    front.answer()  # what comes late is told to nobody
    assert await ask(client) == "other"


async def test_what_waits_here_when_the_store_is_lost_goes_to_the_same_master(
    front: Front, masters: tuple[Master, Master]
) -> None:
    client = await led(front, masters[0])
    front.waits = True
    sent = asyncio.create_task(ask(client, WRITE))
    await until(lambda: bool(front.taken))
    front.router.aside = None
    front.router.take_back()
    assert await sent == "one"
    assert masters[0].given == [(WRITE, True)]


async def test_a_client_without_anything_waiting_here_stays_where_it_is(
    front: Front, masters: tuple[Master, Master]
) -> None:
    client = await led(front, masters[0])
    front.router.aside = None
    front.router.take_back()
    assert await ask(client, WRITE) == "one"
    assert front.router.spliced_total == 1


async def test_a_process_that_ends_answers_first_and_does_not_wait_longer(
    front: Front, masters: tuple[Master, Master], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantry_broker.clients.routing.CUT_WITHIN_S", 30.0)
    client = await led(front, masters[0])
    front.waits = True
    sent = asyncio.create_task(ask(client, WRITE))
    await until(lambda: bool(front.taken))
    ended = asyncio.create_task(front.router.cut_all())
    await asyncio.sleep(0.05)
    assert not ended.done()
    front.answer()
    assert await sent == "front"
    async with asyncio.timeout(PATIENCE_S):
        await ended
    with pytest.raises(RemotingError):
        await ask(client)


async def test_a_former_master_is_left_once_what_waits_here_is_answered(
    front: Front, masters: tuple[Master, Master], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantry_broker.clients.routing.MOVE_WITHIN_S", 5.0)
    one, other = masters
    client = await led(front, one)
    front.waits = True
    sent = asyncio.create_task(ask(client, WRITE))
    await until(lambda: bool(front.taken))
    front.epoch = 4
    front.follow(other.address)
    later = asyncio.create_task(ask(client, WRITE))
    await asyncio.sleep(0.05)
    assert len(front.taken) == 1, "it is led to no master of this epoch"
    front.answer()
    assert [await sent, await later] == ["front", "other"]
    assert other.given == [(WRITE, False)]


async def test_one_client_has_a_share_of_the_loop_at_a_time(
    front: Front, masters: tuple[Master, Master], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splice, "SHARE_S", 0.0)  # each request is a share
    client = await led(front, masters[0])
    before = front.server.turns.put_off
    answers = await asyncio.gather(*(ask(client, WRITE) for _ in range(20)))
    assert answers == ["front"] * 20
    assert front.server.turns.put_off - before >= 15
    assert masters[0].given == []


async def test_what_was_put_off_is_for_the_next_master(
    front: Front, masters: tuple[Master, Master], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splice, "SHARE_S", 0.0)
    one, other = masters
    client = await led(front, one)
    monkeypatch.setattr(front.server.turns, "wait", lambda *_, **__: None)  # its turn never comes
    sent = [asyncio.create_task(ask(client, WRITE)) for _ in range(3)]
    await until(lambda: front.server.stats.requests >= 2)
    front.epoch = 4
    front.follow(other.address)
    answers = [await task for task in sent]
    assert sorted(answers) == ["front", "other", "other"]
    assert other.given == [(WRITE, False)] * 2


async def test_a_oneway_request_is_taken_and_answered_by_nobody(
    front: Front, masters: tuple[Master, Master]
) -> None:
    client = await led(front, masters[0])
    front.waits = True
    client.oneway(request(RequestCode.SEND_MESSAGE_V2))
    await until(lambda: bool(front.taken))
    front.answer()
    assert await ask(client) == "one"
    assert masters[0].given == [(READ, False)]
