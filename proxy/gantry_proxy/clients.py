"""Clients that are connected: their streams of telemetry, heartbeats, ends.

A client opens one stream (Telemetry), tells its settings on it and gets the server's. What the
server wants of a client goes over that stream. Nothing of this is needed by another proxy: a client
whose proxy ends opens a stream to the next one, and tells its settings again.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from gantry_protocol.names import CLIENT_CHARS_MAX

from gantry_proxy.core import refusals
from gantry_proxy.core.refusals import CallRefused
from gantry_proxy.core.resources import group_of, topic_of
from gantry_proxy.core.settings import told
from gantry_proxy.messages import (
    HeartbeatResponse,
    NotifyClientTerminationResponse,
    TelemetryCommand,
)
from gantry_proxy.rpc import client_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gantry_proxy.calls import Masters
    from gantry_proxy.rpc import Call

STREAMS_MAX = 10_000
QUIET_S = 60.0  # a client that is heard no longer is gone; heartbeats come every ten seconds
WAITING_MAX = 64  # of commands for one client


class Stream:
    """A client's stream.

    Attributes:
        commands: for the client; None ends the stream.
        topics: that it sends to, of a producer.
    """

    def __init__(self) -> None:
        self.commands: asyncio.Queue[bytes | None] = asyncio.Queue(WAITING_MAX)
        self.topics: frozenset[str] = frozenset()

    def tell(self, command: Any) -> bool:
        """Have a command sent; False: the client does not take what is there."""
        try:
            self.commands.put_nowait(command.SerializeToString())
        except asyncio.QueueFull:
            return False
        return True


class Clients:
    """See the module.

    Args:
        masters: the broker groups.

    Attributes:
        streams: open streams, by client id; the newest of each.
        has_topics: set when somebody came who sends.
        refused_streams: streams that were too many.
    """

    def __init__(self, masters: Masters) -> None:
        self.streams: dict[str, Stream] = {}
        self.has_topics = asyncio.Event()
        self.refused_streams = 0
        self._open = 0
        self._masters = masters
        self._heard_s: dict[str, float] = {}

    def is_there(self, client: str) -> bool:
        """Whether a client has a stream here, or was heard a moment ago."""
        now_s = asyncio.get_running_loop().time()
        return client in self.streams or now_s - self._heard_s.get(client, -QUIET_S) < QUIET_S

    async def heartbeat(self, wanted: Any, call: Call) -> Any:
        """Heartbeat."""
        self._hear(_named(call))
        response = HeartbeatResponse()
        refusals.write(response.status)
        return response

    async def leave(self, wanted: Any, call: Call) -> Any:
        """NotifyClientTermination."""
        client = _named(call)
        self._heard_s.pop(client, None)
        stream = self.streams.pop(client, None)
        if stream is not None:
            with contextlib.suppress(asyncio.QueueFull):
                stream.commands.put_nowait(None)
        response = NotifyClientTerminationResponse()
        refusals.write(response.status)
        return response

    async def telemetry(self, requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
        """Telemetry: answers settings, and passes commands on until the client goes."""
        client = client_id(call)
        if not client or len(client) > CLIENT_CHARS_MAX or self._open >= STREAMS_MAX:
            self.refused_streams += 1
            code = "TOO_MANY_REQUESTS" if client else "CLIENT_ID_REQUIRED"
            text = "this stream is one too many, or its client has no name"
            yield _status(code, text).SerializeToString()
            return
        stream = Stream()
        self._open += 1
        reading = asyncio.create_task(self._read(client, stream, requests))
        try:
            while (command := await stream.commands.get()) is not None:
                yield command
        finally:
            self._open -= 1
            reading.cancel()
            if self.streams.get(client) is stream:
                del self.streams[client]

    async def _read(self, client: str, stream: Stream, requests: AsyncIterator[bytes]) -> None:
        try:
            async for data in requests:
                command = TelemetryCommand.FromString(data)
                if command.WhichOneof("command") == "settings":
                    stream.tell(await self._settings(client, stream, command.settings))
        except Exception as error:  # noqa: BLE001 - the library's, or a message that does not read
            stream.tell(_status("BAD_REQUEST", str(error)[:256]))
        finally:
            with contextlib.suppress(asyncio.QueueFull):
                stream.commands.put_nowait(None)

    async def _settings(self, client: str, stream: Stream, settings: Any) -> Any:
        """The answer to a client's settings."""
        answer = TelemetryCommand()
        try:
            group = None
            if settings.HasField("subscription"):
                named = settings.subscription
                topics = [topic_of(item.topic) for item in named.subscriptions]
                name = group_of(named.group)
                group = await self._masters.consumer_group(topics[0] if topics else name, name)
            elif settings.HasField("publishing"):
                stream.topics = frozenset(topic_of(item) for item in settings.publishing.topics)
            else:
                raise CallRefused("BAD_REQUEST", "settings of neither a producer nor a consumer")
        except CallRefused as refused:
            refusals.write(answer.status, refused.code, str(refused))
            return answer
        self._hear(client)
        self.streams[client] = stream
        if stream.topics:
            self.has_topics.set()
        refusals.write(answer.status)
        answer.settings.CopyFrom(told(settings, group))
        return answer

    def _hear(self, client: str) -> None:
        self._heard_s.pop(client, None)
        self._heard_s[client] = asyncio.get_running_loop().time()
        if len(self._heard_s) > 2 * STREAMS_MAX:
            del self._heard_s[next(iter(self._heard_s))]


def _named(call: Call) -> str:
    client = client_id(call)
    if not client:
        raise CallRefused(
            "CLIENT_ID_REQUIRED", "the call's metadata name no client (x-mq-client-id)"
        )
    if len(client) > CLIENT_CHARS_MAX:
        raise CallRefused(
            "BAD_REQUEST", f"a client's name has {CLIENT_CHARS_MAX} characters at most"
        )
    return client


def _status(code: str, message: str) -> Any:
    command = TelemetryCommand()
    refusals.write(command.status, code, message)
    return command
