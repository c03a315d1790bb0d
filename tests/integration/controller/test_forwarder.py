"""Requests passed on to a leader over loopback: order, bounds, and nothing twice."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gantry_controller.remoting import forwarder as module
from gantry_controller.remoting.forwarder import FORWARDED, Forwarder
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.errors import Busy, ConnectError, ConnectionClosed
from gantry_protocol.quorum_key import KeyFile
from gantry_protocol.remoting.key_requests import KeyRequests
from gantry_protocol.remoting.server import Connection, RemotingServer
from gantry_protocol.types import NodeId
from support.patience import PATIENCE_S

TWO, THREE = NodeId(2), NodeId(3)


class Leader:
    """A server that notes what it is asked and answers, unless it is told to be silent."""

    def __init__(self) -> None:
        self.asked: list[RemotingCommand] = []
        self.silent = False
        self.server = RemotingServer(self._handle)
        self.port = 0

    def _handle(self, _: Connection, command: RemotingCommand) -> RemotingCommand | None:
        self.asked.append(command)
        return None if self.silent else reply(command, remark=f"from {self.port}")


class Collector:
    """What came back, and a way to wait for it."""

    def __init__(self) -> None:
        self.outcomes: list[RemotingCommand | Exception] = []

    def __call__(self, outcome: RemotingCommand | Exception) -> None:
        self.outcomes.append(outcome)

    async def wait(self, count: int) -> list[RemotingCommand | Exception]:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.outcomes) < count:
                await asyncio.sleep(0.001)
        return self.outcomes


@pytest.fixture
async def leaders() -> AsyncIterator[dict[NodeId, Leader]]:
    leaders = {TWO: Leader(), THREE: Leader()}
    for leader in leaders.values():
        leader.port = await leader.server.start("127.0.0.1", 0)
    yield leaders
    for leader in leaders.values():
        await leader.server.stop(grace_s=0)


@pytest.fixture
async def forwarder(leaders: dict[NodeId, Leader]) -> AsyncIterator[Forwarder]:
    forwarder = Forwarder(lambda node: f"127.0.0.1:{leaders[node].port}")
    yield forwarder
    await forwarder.close()


async def test_passes_everything_on_once_and_marks_it(
    forwarder: Forwarder, leaders: dict[NodeId, Leader]
) -> None:
    done = Collector()
    for number in range(50):
        forwarder.forward(TWO, request(1004, {"n": str(number)}, b"body"), done)
    outcomes = await done.wait(50)
    assert all(isinstance(one, RemotingCommand) for one in outcomes)
    asked = leaders[TWO].asked
    assert [one.ext for one in asked] == [{"n": str(n), FORWARDED: "1"} for n in range(50)]
    assert {(one.code, one.body) for one in asked} == {(1004, b"body")}
    assert leaders[TWO].server.stats.accepted == 1


async def test_follows_the_leader(forwarder: Forwarder, leaders: dict[NodeId, Leader]) -> None:
    done = Collector()
    forwarder.forward(TWO, request(1004), done)
    await done.wait(1)
    forwarder.forward(THREE, request(1004), done)
    outcomes = await done.wait(2)
    remarks = [one.remark for one in outcomes if isinstance(one, RemotingCommand)]
    assert remarks == [f"from {leaders[node].port}" for node in (TWO, THREE)]


async def test_what_waits_for_a_former_leader_goes_to_no_other(
    forwarder: Forwarder, leaders: dict[NodeId, Leader]
) -> None:
    """Nor does what is for the next one reach the former one, which is being connected to."""
    former, done = Collector(), Collector()
    forwarder.forward(TWO, request(1004), former)
    await asyncio.sleep(0)  # the connection to it is under way
    forwarder.forward(THREE, request(1004), done)
    assert [type(one) for one in former.outcomes] == [Busy]
    (answer,) = await done.wait(1)
    assert isinstance(answer, RemotingCommand)
    assert answer.remark == f"from {leaders[THREE].port}"
    assert leaders[TWO].asked == []


async def test_the_leader_is_shown_the_key_before_anything_else(
    leaders: dict[NodeId, Leader], tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text("the-key-of-this-quorum")
    keys = KeyRequests(KeyFile(file))
    believed: list[bool] = []

    def handle(connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        if command.code == RequestCode.GANTRY_SHOW_KEY:
            return keys.handle(connection, command)
        believed.append(connection.believed)
        return reply(command)

    leaders[TWO].server.handler = handle
    forwarder = Forwarder(lambda node: f"127.0.0.1:{leaders[node].port}", KeyFile(file))
    done = Collector()
    forwarder.forward(TWO, request(1004), done)
    await done.wait(1)
    await forwarder.close()
    assert believed == [True]


async def test_what_waits_for_a_connection_fails_with_it(
    forwarder: Forwarder, leaders: dict[NodeId, Leader]
) -> None:
    await leaders[TWO].server.stop(grace_s=0)
    done = Collector()
    for _ in range(3):
        forwarder.forward(TWO, request(1004), done)
    outcomes = await done.wait(3)
    assert all(isinstance(one, ConnectError) and one.refused for one in outcomes)
    assert forwarder.failed == 3


async def test_waiting_requests_are_bounded(
    forwarder: Forwarder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 2)
    done = Collector()
    for _ in range(3):
        forwarder.forward(TWO, request(1004), done)
    assert [type(one) for one in done.outcomes] == [Busy]
    await done.wait(3)


async def test_answer_lost_with_the_connection_is_not_asked_for_again(
    forwarder: Forwarder, leaders: dict[NodeId, Leader]
) -> None:
    leaders[TWO].silent = True
    done = Collector()
    forwarder.forward(TWO, request(1013), done)
    async with asyncio.timeout(PATIENCE_S):
        while not leaders[TWO].asked:
            await asyncio.sleep(0.001)
    await leaders[TWO].server.stop(grace_s=0)
    (outcome,) = await done.wait(1)
    assert isinstance(outcome, ConnectionClosed)
    assert len(leaders[TWO].asked) == 1


async def test_reconnects_after_the_connection_broke(
    forwarder: Forwarder, leaders: dict[NodeId, Leader]
) -> None:
    done = Collector()
    forwarder.forward(TWO, request(1004), done)
    await done.wait(1)
    for connection in list(leaders[TWO].server.connections.values()):
        connection.abort()
    await asyncio.sleep(0.05)
    forwarder.forward(TWO, request(1004), done)
    assert all(isinstance(one, RemotingCommand) for one in await done.wait(2))


async def test_closing_ends_what_waits() -> None:
    forwarder = Forwarder(lambda _: "127.0.0.1:1")
    done = Collector()
    forwarder.forward(TWO, request(1004), done)
    await forwarder.close()
    assert len(done.outcomes) == 1
    assert isinstance(done.outcomes[0], Exception)
