"""Pulls on their way: read, parked while there is nothing, read again, answered.

A pull that finds nothing is parked in the very turn in which the store says so. A store tells of
records after it answered reads that they missed, so none is waited for that has come already. One
that finds no room to wait hears 2 (system busy), as any request that is too many: clients ask again
after a while (Java after 1 s or 3 s); after 19, "nothing yet", they would ask at once, for ever.

An offset between the confirmed end and the end of a queue is waited for. Upstream's answer (21,
"offset illegal") would make a consumer that has just moved to a new master go back.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from gantry_protocol.bodies import SubscriptionData
from gantry_protocol.bodies.route import MASTER_ID
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.headers.client import PullMessageRequestHeader
from gantry_protocol.remoting.connection import Connection
from msgspec.structs import replace

from gantry_broker.clients import subscription as subscriptions
from gantry_broker.clients.filtered import Readable, read_filtered
from gantry_broker.clients.parking import ParkedPull, Parking
from gantry_broker.clients.pulled import PulledOffsets
from gantry_broker.clients.traffic import Traffic
from gantry_broker.store.contract import (
    Confirmed,
    GetResult,
    GetStatus,
    QueueRead,
    ReadLimits,
    Refusal,
    WasRead,
)

HasRead = Callable[[str, int], None]  # a topic, bytes of its records
Suggest = Callable[[ParkedPull, GetResult], int]
"""The broker id of the member that a consumer is to ask next, by the pull and its result."""

_MAY_SUSPEND = 2
_MAX_COUNT = 32  # upstream's limits while data is in memory
_MAX_BYTES = 256 * 1024
_NO_ROOM = Refusal(
    ResponseCode.SYSTEM_BUSY,
    "[OVERLOAD]too many pulls wait for messages, start flow control for a while",
)

_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_IN_TIER: ResponseCode.PULL_RETRY_IMMEDIATELY,
}

_ENDS_WAITING = (GetStatus.FOUND, GetStatus.OFFSET_IN_TIER)


class Followed(Readable, Protocol):
    """The part of a ``Store`` that pulls need."""

    def subscribe(self, confirmed: Confirmed) -> Callable[[], None]:
        """Tell of each rise of confirm; returns how to end it."""


def _the_master(pull: ParkedPull, result: GetResult) -> int:
    return MASTER_ID


class PullReader:
    """See the module.

    Args:
        store: that is read.
        traffic: counts what goes out.
        has_read: is told what pulls return; None where nobody wants to know.
        suggest: says in each answer whom to ask next.

    Attributes:
        pulled: how far groups have pulled.
        parking: pulls that wait.
        read_bytes: of records that went out, ever.
    """

    def __init__(
        self,
        store: Followed,
        traffic: Traffic,
        has_read: HasRead | None = None,
        suggest: Suggest = _the_master,
    ) -> None:
        self._has_read = has_read
        self._suggest = suggest
        self._store = store
        self._traffic = traffic
        self.read_bytes = 0
        self.pulled = PulledOffsets()
        self.parking = Parking(self._read_again, self._give_up)
        self._unsubscribe = store.subscribe(self.parking.arrived)

    def close(self) -> None:
        """Send parked pulls back to ask again, and listen no more."""
        self._unsubscribe()
        self.parking.release()
        self.parking.close()

    def begin(
        self,
        conn: Connection,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        subscription: SubscriptionData,
    ) -> None:
        """Read for a pull that may be served; it is answered now or later."""
        pull = ParkedPull(
            connection=conn,
            request=request,
            wanted=QueueRead(
                header.topic,
                header.queue_id,
                header.queue_offset,
                ReadLimits(min(max(header.max_msg_nums, 1), _MAX_COUNT), _MAX_BYTES),
                subscriptions.wanted_codes(subscription),
            ),
            asked_offset=header.queue_offset,
            sql=subscriptions.wanted_sql(subscription),
        )
        wait_s = header.suspend_timeout_ms / 1000 if may_wait(request, header) else 0.0
        self._read(pull, partial(self._was_read, pull, wait_s))

    def _read(self, pull: ParkedPull, done: WasRead) -> None:
        read_filtered(self._store, pull.wanted, pull.sql, done)

    def _was_read(self, pull: ParkedPull, wait_s: float, result: GetResult | Refusal) -> None:
        """Answer a pull, or let it wait where there may be something later."""
        if (
            isinstance(result, GetResult)
            and wait_s > 0
            and _is_nothing_yet(pull, result)
            and not pull.connection.closed
        ):
            pull.last = result
            if not self.parking.park(pull, wait_s):
                self._send(pull, _NO_ROOM)
        else:
            self._send(pull, result)

    def _send(self, pull: ParkedPull, result: GetResult | Refusal) -> None:
        if isinstance(result, GetResult) and result.count:
            group = (pull.request.ext or {})["consumerGroup"]
            self.pulled.note(group, *pull.key, result.next_offset)
            self._traffic.got(group, pull.wanted.topic, result.count)
            self.read_bytes += len(result.body)
            if self._has_read is not None:
                self._has_read(pull.wanted.topic, len(result.body))
        self._answer(pull, result)

    def _answer(self, pull: ParkedPull, result: GetResult | Refusal) -> None:
        if not pull.connection.closed:
            pull.connection.reply(pull.request, self._worded(pull, result))

    def _worded(self, pull: ParkedPull, result: GetResult | Refusal) -> RemotingCommand:
        """All four numbers on every answer that is not a refusal: Java unboxes them."""
        if isinstance(result, Refusal):
            return reply(pull.request, *result)
        suggested = self._suggest(pull, result)
        ext = positions(result.next_offset, result.min_offset, result.max_offset, suggested)
        code = _CODES[result.status]
        if _is_nothing_yet(pull, result):
            code = ResponseCode.PULL_NOT_FOUND
        return reply(pull.request, code, result.remark or result.status.name, ext, result.body)

    def send_back(self, pull: ParkedPull, remark: str) -> None:
        """Have a parked pull ask the master, from the same place."""
        assert pull.last is not None, "a pull is parked when the store has said something"
        self.parking.forget(pull)
        ext = positions(pull.asked_offset, pull.last.min_offset, pull.last.max_offset)
        answer = reply(pull.request, ResponseCode.PULL_RETRY_IMMEDIATELY, remark, ext)
        pull.connection.reply(pull.request, answer)

    def _read_again(self, pull: ParkedPull) -> None:
        """Records came to the queue of a parked pull."""
        pull.is_reading = True
        self._read(pull, partial(self._was_read_again, pull))

    def _was_read_again(self, pull: ParkedPull, result: GetResult | Refusal) -> None:
        pull.is_reading = False
        if not pull.number:
            return  # it was answered or dropped meanwhile
        if pull.connection.closed:
            self.parking.forget(pull)
        elif isinstance(result, Refusal) or _ends_waiting(result):
            self.parking.forget(pull)
            self._send(pull, result)
        else:
            pull.last = result
            if result.status is GetStatus.NO_MATCHED_MESSAGE:
                pull.wanted.offset = result.next_offset  # examined once is enough
            if pull.has_news:
                pull.has_news = False
                self._read_again(pull)

    def _give_up(self, pull: ParkedPull) -> None:
        """Answer a pull whose time is over: nothing came, or nothing that it wants."""
        assert pull.last is not None, "a pull is parked when the store has said something"
        result = pull.last
        if pull.wanted.offset > pull.asked_offset:
            result = replace(
                result, status=GetStatus.NO_MATCHED_MESSAGE, next_offset=pull.wanted.offset
            )
        self._answer(pull, result)


def _ends_waiting(result: GetResult) -> bool:
    """Whether there is something, or more than one look examines: the client asks again at once."""
    is_cut = result.status is GetStatus.NO_MATCHED_MESSAGE and (
        result.next_offset < result.max_offset
    )
    return is_cut or result.status in _ENDS_WAITING


def _is_nothing_yet(pull: ParkedPull, result: GetResult) -> bool:
    """19: there may be something later."""
    if result.status is GetStatus.NO_MESSAGE_IN_QUEUE:
        return pull.wanted.offset == 0
    return result.status is GetStatus.OFFSET_OVERFLOW_ONE


def may_wait(request: RemotingCommand, header: PullMessageRequestHeader) -> bool:
    """Whether a pull that finds nothing is to wait."""
    is_asked = bool(header.sys_flag & _MAY_SUSPEND) and header.suspend_timeout_ms > 0
    return is_asked and not request.is_oneway


def positions(
    next_offset: int, min_offset: int, max_offset: int, suggested: int = MASTER_ID
) -> dict[str, str]:
    """The part of every answer to a pull that is about its queue, and whom to ask next."""
    return {
        "nextBeginOffset": str(next_offset),
        "minOffset": str(min_offset),
        "maxOffset": str(max_offset),
        "suggestWhichBrokerId": str(suggested),
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }
