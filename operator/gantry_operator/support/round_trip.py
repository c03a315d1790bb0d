"""One message to a broker group and back, over a connection that somebody else has made.

The message goes to a topic of the probe's own, which no consumer has subscribed to, and is read at
the place that its acknowledgement names: by no consumer group's progress, so nothing is committed.
What it leaves is that message, until the retention of the log takes it, and the topic.

Times are those of the caller. `way_s` is how long the quickest of a few requests took that cost the
broker nothing; what a send takes beyond it is the broker's.

What it refuses: to repeat a send. One attempt is one message, whatever becomes of it.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import TYPE_CHECKING, Final

import msgspec
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import RemotingError, WireError
from gantry_protocol.headers.client import (
    PullMessageRequestHeader,
    QueueRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from gantry_protocol.headers.codec import from_ext, to_ext
from gantry_protocol.records import decode_records, encode_properties
from gantry_protocol.records.properties import WAIT_STORE_MSG_OK
from gantry_protocol.remoting.admission import signed
from gantry_protocol.remoting.client import RemotingClient, Sign
from gantry_protocol.tls.process import NO_TLS, Tls

if TYPE_CHECKING:
    import socket

TOPIC: Final = "gantry-probe"
GROUP: Final = "gantry-probe"
"""Of the consumer that reads it, and of the producer."""
BODY_BYTES: Final = 128
CALL_TIMEOUT_S: Final = 5.0
WAYS: Final = 3
READS_MAX, READ_PAUSE_S = 20, 0.1
"""A message is confirmed a moment before its queue has it."""
_TEMPLATE: Final = "TBW102"
_STORED: Final = frozenset(
    {
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
_NOT_YET: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY})


class ShownIdentity(msgspec.Struct, frozen=True):
    """The identity that a client shows.

    Attributes:
        user: a name and its secret, which sign each request; None signs none.
        tls: none, or whom it believes.
    """

    user: tuple[str, bytes] | None = None
    tls: Tls = NO_TLS


class Tripped(msgspec.Struct, frozen=True):
    """The course of a message, as far as it came.

    Attributes:
        way_s: of a request that asks for nothing; None if none was answered.
        sent_s: from the send to its acknowledgement; None if there was none.
        read_s: from there until it was read; None if it was not.
        code: of the answer that was a refusal; None for another reason, or none.
        why: it came no further; empty if it is back.
        stored: whether it is stored all the same, or may be.
    """

    way_s: float | None = None
    sent_s: float | None = None
    read_s: float | None = None
    code: int | None = None
    why: str = ""
    stored: bool = False


async def round_trip(near: socket.socket, broker_name: str, who: ShownIdentity) -> Tripped:
    """A message over a connected socket, which is closed in the end.

    Each answer is waited for `CALL_TIMEOUT_S`. A cancellation closes the connection; the message
    may be stored.
    """
    client = RemotingClient(sign=None if who.user is None else _signing(*who.user))
    client.address = broker_name
    context = who.tls.for_client()
    name = None if context is None else who.tls.server_name or "localhost"
    try:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            await asyncio.get_running_loop().create_connection(
                lambda: client, sock=near, ssl=context, server_hostname=name
            )
    except (OSError, TimeoutError) as error:
        return Tripped(why=f"no TLS was agreed on ({type(error).__name__}: {error})")
    try:
        return await _Trip(client, broker_name).run()
    finally:
        client.abort()


class _Trip:
    def __init__(self, client: RemotingClient, broker_name: str) -> None:
        self._client = client
        self._broker_name = broker_name
        self._found = Tripped()
        self._key = uuid.uuid4().hex.upper()
        self._body = f"gantry probe {self._key}".ljust(BODY_BYTES).encode()

    async def run(self) -> Tripped:
        try:
            await self._measure_way()
            if not self._found.why:
                await self._send_and_read()
        except (RemotingError, WireError) as error:
            self._is(why=str(error).removesuffix("."))
        return self._found

    def _is(self, **changes: object) -> None:
        self._found = msgspec.structs.replace(self._found, **changes)

    async def _call(
        self, code: RequestCode, header: msgspec.Struct, body: bytes = b""
    ) -> RemotingCommand:
        return await self._client.call(request(code, to_ext(header), body), CALL_TIMEOUT_S)

    async def _measure_way(self) -> None:
        took: list[float] = []
        for _ in range(WAYS):
            begun_s = time.monotonic()
            answer = await self._call(RequestCode.GET_MAX_OFFSET, QueueRequestHeader(TOPIC, 0))
            took.append(time.monotonic() - begun_s)
            if answer.code == ResponseCode.NO_PERMISSION:
                self._refused(answer)
                return
        self._is(way_s=min(took))

    async def _send_and_read(self) -> None:
        header = SendMessageRequestHeaderV2(
            producer_group=GROUP,
            topic=TOPIC,
            default_topic=_TEMPLATE,
            default_topic_queue_nums=1,
            queue_id=0,
            sys_flag=0,
            born_timestamp=time.time_ns() // 1_000_000,
            flag=0,
            properties=encode_properties({WAIT_STORE_MSG_OK: "true"}),
            reconsume_times=0,
            broker_name=self._broker_name,
        )
        self._is(stored=True)  # once it is on its way nobody knows, until an answer says otherwise
        begun_s = time.monotonic()
        answer = await self._call(RequestCode.SEND_MESSAGE_V2, header, self._body)
        acknowledged_s = time.monotonic()
        if answer.code != ResponseCode.SUCCESS:
            self._refused(answer)
            return
        self._is(sent_s=acknowledged_s - begun_s)
        at = from_ext(SendMessageResponseHeader, answer.ext)
        if await self._read(at.queue_id, at.queue_offset):
            self._is(read_s=time.monotonic() - acknowledged_s)

    def _refused(self, answer: RemotingCommand) -> None:
        why = " ".join((answer.remark or "no reason given").split())[:300]
        self._is(code=answer.code, why=why, stored=answer.code in _STORED)

    async def _read(self, queue_id: int, offset: int) -> bool:
        header = PullMessageRequestHeader(
            consumer_group=GROUP,
            topic=TOPIC,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=1,
            sys_flag=0x4,  # the subscription is here; it does not wait, and commits nothing
            commit_offset=0,
            suspend_timeout_ms=0,
            sub_version=0,
            subscription="*",
            expression_type="TAG",
            broker_name=self._broker_name,
        )
        for _ in range(READS_MAX):
            answer = await self._call(RequestCode.PULL_MESSAGE, header)
            if answer.code == ResponseCode.SUCCESS:
                records = decode_records(answer.body)
                if any(one.queue_offset == offset and one.body == self._body for one in records):
                    return True
                self._is(why=f"another message is at offset {offset} of its queue")
                return False
            if answer.code not in _NOT_YET:
                self._refused(answer)
                self._is(stored=True)
                return False
            await asyncio.sleep(READ_PAUSE_S)
        self._is(why=f"its queue does not have it {READS_MAX * READ_PAUSE_S:.0f} s later")
        return False


def _signing(user: str, secret: bytes) -> Sign:
    return lambda command: signed(command, user, secret)
