"""Holding requests that come faster than their tenant's quota allows.

A client that waits for its answers slows down by itself when answers come late, so what is too
fast is held and served in its turn; only who sends without waiting, or holds too much here, is
refused (215, flow control). One tenant's requests keep their order. Reads are paid afterwards, when
their size is known: the next pull waits until they are.

Everything is bounded: how long a request is held, how many are, and their bytes.
"""

import asyncio
import heapq
import itertools
from typing import NamedTuple

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import GantryError
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.server import Handler
from gantry_protocol.settings.quotas import Quotas

from gantry_broker.clients.quotas import Meter, tenant_of

SEND_PATIENCE_S = 1.0  # Java gives a send 3 s
PULL_PATIENCE_S = 10.0  # and a pull at least this
HELD_MAX = 20_000
HELD_MAX_BYTES = 64 * 1024 * 1024

SENDS: dict[int, str] = {  # and the name of the topic in their headers
    RequestCode.SEND_MESSAGE: "topic",
    RequestCode.SEND_MESSAGE_V2: "b",
    RequestCode.SEND_BATCH_MESSAGE: "b",
}
_PULLS: frozenset[int] = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
_SIZE_BYTES = 4


class _Held(NamedTuple):
    due_s: float
    number: int
    conn: Connection
    request: RemotingCommand
    handler: Handler | None  # None: its time was over before its turn came


class Throttle:
    """Stands between the connections and the handlers of sends and pulls.

    Args:
        quotas: of the group's tenants.

    Attributes:
        held_total: requests that had to wait, ever.
        refused_total: requests that were refused, ever.
    """

    def __init__(self, quotas: Quotas) -> None:
        self.held_total = 0
        self.refused_total = 0
        self._meter = Meter(quotas)
        self._held: list[_Held] = []
        self._held_bytes = 0
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._held)

    def serve(
        self, conn: Connection, request: RemotingCommand, handler: Handler
    ) -> RemotingCommand | None:
        """Serve ``request`` now, later, or refuse it; a ``Handler`` but for its last argument."""
        name = SENDS.get(request.code)
        if name is None and request.code not in _PULLS:
            return handler(conn, request)
        tenant = tenant_of((request.ext or {}).get(name or "topic", ""))
        now_s = asyncio.get_running_loop().time()
        self._serve_due(now_s)  # they were here first
        if name is None:
            wait_s = self._meter.read_wait_s(tenant, now_s)
            if wait_s > PULL_PATIENCE_S:
                return self._hold(conn, request, None, now_s + PULL_PATIENCE_S)
        else:
            count = message_count(request)
            granted = self._meter.send(tenant, count, len(request.body), now_s, SEND_PATIENCE_S)
            if granted is None:
                return self._refuse(request)
            wait_s = granted
        if wait_s <= 0:
            return handler(conn, request)
        return self._hold(conn, request, handler, now_s + wait_s)

    def change(self, quotas: Quotas) -> None:
        """Other quotas from now on; who is held already is served when that was promised."""
        self._meter.change(quotas)

    def has_read(self, topic: str, size_bytes: int) -> None:
        """A pull has returned so much."""
        now_s = asyncio.get_running_loop().time()
        self._meter.read(tenant_of(topic), size_bytes, now_s)

    def close(self) -> None:
        """This broker serves no more: send everybody on."""
        if self._timer is not None:
            self._timer.cancel()
        held, self._held = self._held, []
        for item in held:
            remark = "service not available now. this broker is not the master of its group"
            answer = reply(item.request, ResponseCode.SERVICE_NOT_AVAILABLE, remark)
            item.conn.reply(item.request, answer)

    def _hold(
        self, conn: Connection, request: RemotingCommand, handler: Handler | None, due_s: float
    ) -> RemotingCommand | None:
        size_bytes = len(request.body)
        if len(self._held) >= HELD_MAX or self._held_bytes + size_bytes > HELD_MAX_BYTES:
            return self._refuse(request)
        self.held_total += 1
        self._held_bytes += size_bytes
        heapq.heappush(self._held, _Held(due_s, next(self._numbers), conn, request, handler))
        self._arm()
        return None

    def _refuse(self, request: RemotingCommand) -> RemotingCommand:
        self.refused_total += 1
        remark = "the tenant of this topic is over its quota, start flow control for a while"
        return reply(request, ResponseCode.FLOW_CONTROL, remark)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(self._held[0].due_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self._serve_due(asyncio.get_running_loop().time())
        if self._held:
            self._arm()

    def _serve_due(self, now_s: float) -> None:
        while self._held and self._held[0].due_s <= now_s:
            one = heapq.heappop(self._held)
            self._held_bytes -= len(one.request.body)
            if one.conn.closed:
                continue
            answer = self._refuse(one.request) if one.handler is None else _served(one)
            if answer is not None:
                one.conn.reply(one.request, answer)


def _served(one: _Held) -> RemotingCommand | None:
    assert one.handler is not None
    try:
        return one.handler(one.conn, one.request)
    except GantryError as error:  # as the server answers what a handler raises
        return reply(one.request, error.answer_code, str(error))


def message_count(request: RemotingCommand) -> int:
    """The number of messages in a send; what cannot be read is one, and refused later."""
    ext = request.ext or {}
    if "true" not in (ext.get("m"), ext.get("batch")):
        return 1
    body, at, count = request.body, 0, 0
    while at + _SIZE_BYTES <= len(body):
        size = int.from_bytes(body[at : at + _SIZE_BYTES], "big")
        if size < _SIZE_BYTES:
            break
        at += size
        count += 1
    return max(count, 1)
