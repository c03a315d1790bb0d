"""A client's one connection to the master of its group: requests as RocketMQ's clients make them.

What nobody knows is told as such: ``None`` is "perhaps it was carried out". A request that could
not be sent is sent again, since nothing has come of it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_cli.client.routes import NameServiceError
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import (
    Busy,
    ConnectError,
    ConnectionClosed,
    RequestTimeout,
    ResolveError,
)
from gantry_protocol.remoting.admission import signed
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.send_answer import MAY_BE_STORED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gantry_cli.client.session import Session
    from gantry_protocol.remoting.client import RequestHandler

TOPIC = "orders"  # whose route leads to the group
WITHIN_S = 1.0
AGAIN_S = 0.05

REFUSALS = (  # nothing was stored, whatever may become of it later
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
)


class Line:
    """See the module.

    Args:
        client: knows the name servers.
        on_request: serves what the broker asks.
        greeting: a heartbeat (34) that each connection begins with, and repeats.
        group: whose master; None for the first of the route.
        java_version: as which one of Java's clients it speaks; None: as another one.
        is_there: whether the group is one that clients are sent to; nobody waits for others.
        user: who signs every request, and the secret; None signs none.
    """

    def __init__(
        self,
        client: Session,
        *,
        on_request: RequestHandler | None = None,
        greeting: tuple[int, bytes] | None = None,
        group: str | None = None,
        java_version: int | None = None,
        is_there: Callable[[], bool] = lambda: True,
        user: tuple[str, bytes] | None = None,
    ) -> None:
        self._is_there = is_there
        self._user = user
        self._java_version = java_version
        self._client = client
        self._on_request = on_request
        self._greeting = greeting
        self._group = group
        self._connection: RemotingClient | None = None

    @property
    def connection(self) -> RemotingClient | None:
        """The present one."""
        return self._connection

    async def ask(
        self,
        code: int,
        ext: Mapping[str, object] | None = None,
        body: bytes = b"",
        within_s: float = WITHIN_S,
    ) -> RemotingCommand | None:
        """The answer; None if it was sent and nobody knows what became of it."""
        texts = {name: _text(value) for name, value in (ext or {}).items()}
        while True:
            command = self._signed(request(code, texts, body))
            if self._java_version is not None:
                command.language, command.version = "JAVA", self._java_version
            try:
                connection = await self._connected()
                answer = await connection.call(command, within_s)
            except (NameServiceError, ResolveError, ConnectError, Busy):
                if not self._is_there():
                    return None
                await asyncio.sleep(AGAIN_S)
                continue
            except (RequestTimeout, ConnectionClosed):
                self.hang_up()
                return None
            if answer.code in (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NO_PERMISSION):
                self.hang_up()  # perhaps it is not the master any more
            return answer

    async def insist(
        self, code: int, ext: Mapping[str, object], body: bytes = b"", but: tuple[int, ...] = ()
    ) -> RemotingCommand:
        """Ask until the answer is 0, or one of ``but``; for what may be done again."""
        while True:
            answer = await self.ask(code, ext, body)
            if answer is not None and answer.code in (ResponseCode.SUCCESS, *but):
                return answer
            await asyncio.sleep(AGAIN_S)

    def hang_up(self) -> None:
        """End the connection; the next request makes a new one."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    async def _connected(self) -> RemotingClient:
        if self._connection is None or self._connection.closed:
            route = await self._client.routes.fetch(TOPIC)
            queues = (*route.writable, *route.readable)
            wanted = [one for one in queues if self._group in (None, one.broker_name)]
            if not wanted:
                raise NameServiceError("there is no master")
            made = RemotingClient(on_request=self._on_request)
            self._connection = await made.connect(wanted[0].address, WITHIN_S)
            if self._greeting is not None:
                code, body = self._greeting
                await made.call(self._signed(request(code, {}, body)), WITHIN_S)
        return self._connection

    def _signed(self, command: RemotingCommand) -> RemotingCommand:
        return command if self._user is None else signed(command, *self._user)


def is_unknown(answer: RemotingCommand | None) -> bool:
    """Whether a send may have been stored although it was not acknowledged."""
    if answer is None or MAY_BE_STORED in (answer.ext or {}):
        return True
    return answer.code != ResponseCode.SUCCESS and answer.code not in REFUSALS


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def send_ext(topic: str, key: str, queue_id: int = 0, more: str = "") -> dict[str, object]:
    """The header of 310."""
    properties = f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02{more}"
    return {
        "a": "pg", "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": 0, "g": 1_700_000_000_000,
        "h": 0, "i": properties, "j": 0, "k": False, "m": False, "n": "g",
    }  # fmt: skip


def topic_ext(topic: str, queues: int = 1) -> dict[str, object]:
    """The header of 17."""
    return {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues,
        "writeQueueNums": queues, "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0,
        "order": False,
    }  # fmt: skip
