"""Clients that are connected: their streams of telemetry, heartbeats, ends.

A client opens one stream (Telemetry), tells its settings on it and gets the server's. What the
server wants of a client goes over that stream. Nothing of this is needed by another proxy: a client
whose proxy ends opens a stream to the next one, and tells its settings again.

A stream is judged by what its client has said on it last, and again when users change: one whose
user may that no longer is ended, with a status. A user reaches no client but its own.
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
from gantry_proxy.rpc import client_id, client_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from gantry_proxy.access import CallGate
    from gantry_proxy.calls import Masters
    from gantry_proxy.rpc import Call, ClientKey

STREAMS_MAX = 10_000
QUIET_S = 60.0  # a client that is heard no longer is gone; heartbeats come every ten seconds
WAITING_MAX = 64  # of commands for one client
JUDGED_AT_ONCE = 64  # streams, before others have their turn


class Stream:
    """A client's stream.

    Args:
        call: that opened it.

    Attributes:
        call: as given.
        commands: for the client; None ends the stream.
        topics: that it sends to, of a producer.
        said: the last settings that were let in.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self.commands: asyncio.Queue[bytes | None] = asyncio.Queue(WAITING_MAX)
        self.topics: frozenset[str] = frozenset()
        self.said = TelemetryCommand()

    def tell(self, command: Any) -> bool:
        """Have a command sent; False: the client does not take what is there."""
        try:
            self.commands.put_nowait(command.SerializeToString())
        except asyncio.QueueFull:
            return False
        return True

    def end(self, command: Any = None) -> None:
        """Have it ended, behind a last command; what its client has not taken is dropped."""
        while not self.commands.empty():
            self.commands.get_nowait()
        if command is not None:
            self.tell(command)
        self.commands.put_nowait(None)


class Clients:
    """See the module.

    Args:
        masters: the broker groups.
        gate: judges clients.

    Attributes:
        streams: streams that have told their settings; the newest of each client.
        has_topics: set when somebody came who sends.
        left: is told of each client that says that it goes.
        refused_streams: streams that were too many.
        ended_streams: streams that were ended since their user may no longer have them.
    """

    def __init__(self, masters: Masters, gate: CallGate) -> None:
        self.streams: dict[ClientKey, Stream] = {}
        self.has_topics = asyncio.Event()
        self.left: Callable[[Stream], None] = lambda stream: None
        self.refused_streams = self.ended_streams = 0
        self._open: set[Stream] = set()
        self._masters = masters
        self._gate = gate
        self._changed = asyncio.Event()
        self._heard_s: dict[ClientKey, float] = {}

    def is_there(self, client: ClientKey) -> bool:
        """Whether a client has a stream here, or was heard a moment ago."""
        now_s = asyncio.get_running_loop().time()
        return client in self.streams or now_s - self._heard_s.get(client, -QUIET_S) < QUIET_S

    def senders(self, topic: str) -> list[Stream]:
        """Streams of clients that send to a topic, and may."""
        return [
            stream
            for stream in self.streams.values()
            if topic in stream.topics and self._gate.may_be_asked(stream.call, topic)
        ]

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
            self.left(stream)
            with contextlib.suppress(asyncio.QueueFull):
                stream.commands.put_nowait(None)
        response = NotifyClientTerminationResponse()
        refusals.write(response.status)
        return response

    async def telemetry(self, requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
        """Telemetry: answers settings, and passes commands on until the client goes."""
        client = client_id(call)
        if not client or len(client) > CLIENT_CHARS_MAX or len(self._open) >= STREAMS_MAX:
            self.refused_streams += 1
            code = "TOO_MANY_REQUESTS" if client else "CLIENT_ID_REQUIRED"
            text = "this stream is one too many, or its client has no name"
            yield _status(code, text).SerializeToString()
            return
        stream = Stream(call)
        try:
            self._gate.admit("Telemetry", stream.said, call)
        except CallRefused as refused:
            yield _status(refused.code, str(refused)).SerializeToString()
            return
        self._open.add(stream)
        reading = asyncio.create_task(self._read(stream, requests))
        try:
            while (command := await stream.commands.get()) is not None:
                yield command
        finally:
            self._open.discard(stream)
            reading.cancel()
            if self.streams.get(client_key(call)) is stream:
                del self.streams[client_key(call)]

    async def _read(self, stream: Stream, requests: AsyncIterator[bytes]) -> None:
        try:
            async for data in requests:
                command = TelemetryCommand.FromString(data)
                self._gate.admit("Telemetry", command, stream.call)
                if command.WhichOneof("command") == "settings":
                    stream.said = command
                    stream.tell(await self._settings(stream, command.settings))
        except CallRefused as refused:
            stream.end(_status(refused.code, str(refused)))
        except Exception as error:  # noqa: BLE001 - the library's, or a message that does not read
            stream.tell(_status("BAD_REQUEST", str(error)[:256]))
        finally:
            with contextlib.suppress(asyncio.QueueFull):
                stream.commands.put_nowait(None)

    async def _settings(self, stream: Stream, settings: Any) -> Any:
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
        client = client_key(stream.call)
        self._hear(client)
        self.streams[client] = stream
        if stream.topics:
            self.has_topics.set()
        refusals.write(answer.status)
        answer.settings.CopyFrom(told(settings, group))
        return answer

    # ---- users change

    def users_changed(self) -> None:
        """Judge all streams again, soon."""
        self._changed.set()

    async def run(self) -> None:
        """Judge streams again whenever users have changed, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            for place, stream in enumerate(tuple(self._open)):
                self._judge_again(stream)
                if place % JUDGED_AT_ONCE == JUDGED_AT_ONCE - 1:
                    await asyncio.sleep(0)

    def _judge_again(self, stream: Stream) -> None:
        try:
            self._gate.admit("Telemetry", stream.said, stream.call)
        except CallRefused as refused:
            self.ended_streams += 1
            if self.streams.get(client_key(stream.call)) is stream:
                del self.streams[client_key(stream.call)]
            stream.end(_status(refused.code, str(refused)))

    def _hear(self, client: ClientKey) -> None:
        self._heard_s.pop(client, None)
        self._heard_s[client] = asyncio.get_running_loop().time()
        if len(self._heard_s) > 2 * STREAMS_MAX:
            del self._heard_s[next(iter(self._heard_s))]


def _named(call: Call) -> ClientKey:
    client = client_id(call)
    if not client:
        raise CallRefused(
            "CLIENT_ID_REQUIRED", "the call's metadata name no client (x-mq-client-id)"
        )
    if len(client) > CLIENT_CHARS_MAX:
        raise CallRefused(
            "BAD_REQUEST", f"a client's name has {CLIENT_CHARS_MAX} characters at most"
        )
    return client_key(call)


def _status(code: str, message: str) -> Any:
    command = TelemetryCommand()
    refusals.write(command.status, code, message)
    return command
