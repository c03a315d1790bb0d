"""The client's connections over real sockets: what they reuse, and what they never use again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from gantry_cli.client.calls import Connections
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.errors import ConnectError, ConnectionClosed, RequestTimeout
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.server import RemotingServer
from support.patience import PATIENCE_S


class Echo:
    """A server that answers with the number of the connection, or not at all."""

    def __init__(self) -> None:
        self.silent = False
        self.server = RemotingServer(self.handle)
        self.address = ""

    def handle(self, conn: Connection, command: RemotingCommand) -> RemotingCommand | None:
        return None if self.silent else reply(command, remark=str(conn.id))

    def cut_all(self) -> None:
        for conn in list(self.server.connections.values()):
            conn.close()


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    found = Echo()
    port = await found.server.start("127.0.0.1", 0)
    found.address = f"127.0.0.1:{port}"
    yield found
    await found.server.stop()


@pytest.fixture
async def calls() -> AsyncIterator[Connections]:
    found = Connections()
    yield found
    await found.close()


def ping() -> RemotingCommand:
    return request(RequestCode.HEART_BEAT)


async def test_calls_share_one_connection(echo: Echo, calls: Connections) -> None:
    answers = await asyncio.gather(*(calls.call(echo.address, ping(), 5) for _ in range(20)))
    assert len({answer.remark for answer in answers}) == 1


async def test_connection_that_did_not_answer_is_not_used_again(
    echo: Echo, calls: Connections
) -> None:
    first = await calls.call(echo.address, ping(), 5)
    echo.silent = True
    with pytest.raises(RequestTimeout):
        await calls.call(echo.address, ping(), 0.05)
    echo.silent = False
    second = await calls.call(echo.address, ping(), 5)
    assert first.remark != second.remark


async def test_time_out_of_one_call_ends_the_others_on_its_connection(
    echo: Echo, calls: Connections
) -> None:
    """They would otherwise wait for the same silent process until their own time-outs."""
    echo.silent = True
    long_poll = asyncio.create_task(calls.call(echo.address, ping(), 60))
    with pytest.raises(RequestTimeout):
        await calls.call(echo.address, ping(), 0.05)
    with pytest.raises(ConnectionClosed):
        await asyncio.wait_for(long_poll, PATIENCE_S)


async def test_cut_connection_is_replaced_by_the_next_call(echo: Echo, calls: Connections) -> None:
    first = await calls.call(echo.address, ping(), 5)
    echo.cut_all()
    second = None
    while second is None:
        with suppress(ConnectionClosed):  # the cut may arrive before or after a request leaves
            second = await calls.call(echo.address, ping(), 5)
    assert second.remark != first.remark


async def test_nobody_listening_is_told_apart_from_silence(calls: Connections) -> None:
    with pytest.raises(ConnectError) as caught:
        await calls.call("127.0.0.1:1", ping(), 1)
    assert caught.value.refused
