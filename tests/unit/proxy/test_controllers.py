"""The proxy's way to the controllers: one that believes it, and that it believes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.errors import RemotingError
from gantry_protocol.quorum_key import KeyFile, write_key
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.key_requests import KeyRequests
from gantry_protocol.remoting.reads import REDIRECTS
from gantry_protocol.remoting.server import RemotingServer
from gantry_proxy.controllers import Controllers

GET = RequestCode.GANTRY_GET_ACCESS


class Controller:
    """A controller with a key, which answers ``code``."""

    def __init__(self, key: KeyFile, code: int = ResponseCode.SUCCESS) -> None:
        self.code = code
        self.asked: list[RemotingCommand] = []
        self._keys = KeyRequests(key)
        self._server = RemotingServer(self._handle)
        self.address = ""

    def _handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        if command.code == RequestCode.GANTRY_SHOW_KEY:
            return self._keys.handle(connection, command)
        assert connection.believed
        self.asked.append(command)
        return reply(command, self.code, self.address)

    async def start(self) -> None:
        self.address = f"127.0.0.1:{await self._server.start('127.0.0.1', 0)}"

    async def stop(self) -> None:
        await self._server.stop(0)


@pytest.fixture
async def started() -> AsyncIterator[list[Controller]]:
    made: list[Controller] = []
    yield made
    for controller in made:
        await controller.stop()


async def asked(controllers: Controllers) -> Outcome:
    done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    controllers.ask(request(GET, {"clusterName": "c"}), done.set_result, 5.0)
    return await done


async def serving(started: list[Controller], *controllers: Controller) -> list[str]:
    for controller in controllers:
        await controller.start()
        started.append(controller)
    return [controller.address for controller in controllers]


async def test_one_that_cannot_answer_is_followed_by_the_next(
    started: list[Controller], tmp_path: Path
) -> None:
    key, other = KeyFile(write_key(tmp_path / "key")), KeyFile(write_key(tmp_path / "other"))
    stranger = Controller(other)
    older = Controller(key, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    follower = Controller(key, ResponseCode.CONTROLLER_NOT_LEADER)
    right = Controller(key)
    addresses = await serving(started, stranger, older, follower, right)
    controllers = Controllers(["127.0.0.1:1", *addresses], key)
    for _ in range(2):
        answer = await asked(controllers)
        assert isinstance(answer, RemotingCommand)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, right.address)
    assert (len(older.asked), len(follower.asked), len(right.asked)) == (1, 1, 2), "it stays there"
    assert stranger.asked == []
    assert all((command.ext or {})[REDIRECTS] == "true" for command in right.asked)
    await controllers.close()


async def test_nobody_is_asked_for_ever(started: list[Controller], tmp_path: Path) -> None:
    key = KeyFile(write_key(tmp_path / "key"))
    older = Controller(key, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    (address,) = await serving(started, older)
    controllers = Controllers([address], key)
    answer = await asked(controllers)
    assert isinstance(answer, RemotingCommand)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    await older.stop()
    assert isinstance(await asked(controllers), RemotingError)
    assert key.file is not None
    key.file.unlink()
    await older.start()
    lost = Controllers([older.address], key)
    assert isinstance(await asked(lost), RemotingError), "a key that cannot be read is shown nobody"
    await controllers.close()
    await lost.close()


async def test_a_question_under_way_ends_with_the_process(tmp_path: Path) -> None:
    key, gone = KeyFile(write_key(tmp_path / "key")), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # to the end
        writer.close()
        await writer.wait_closed()
        gone.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    controllers = Controllers([f"127.0.0.1:{port}"], key)
    came: list[Outcome] = []
    controllers.ask(request(GET), came.append, 5.0)
    while controllers._client is None or controllers._client.closed:
        await asyncio.sleep(0.001)
    await controllers.close()
    await gone.wait()
    assert came == []
    server.close()
    await server.wait_closed()
