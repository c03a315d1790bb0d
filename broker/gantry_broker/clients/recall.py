"""``Recalls``: messages that wait for their moment are taken back: RecallMessage (370).

Upstream: ``RecallMessageProcessor``, which stores a message of its own for the same moment. Here a
recall is a row in the log, as a committed offset of ``GANTRY_SYS_RECALL``: its topic is the unique
key of the message, its offset the second at which the message is due. Whoever delivers the message
then (``delivery``) drops it instead. So a recall that was answered outlives the master, and a
message that is at its next step by now is found there. The row stays for an hour beyond that
moment, since a log that broke off may hold the message twice.

What it refuses: a handle that nobody made, or of another broker group; a message that is due by
now, or in more than 40 days; more than ``ROWS_MAX`` recalls at once. Nobody looks for the message
first, so one that was delivered a moment ago, or that never was, is taken back without a word, as
upstream's. A recall that could not be confirmed may be carried out all the same.
"""

import asyncio
import re
from collections.abc import Callable
from functools import partial

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.headers.client import RecallMessageRequestHeader, RecallMessageResponseHeader
from gantry_protocol.headers.codec import from_ext, to_ext
from gantry_protocol.recall import RecallHandle
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients import topic_rules
from gantry_broker.clients.core.delay.levels import MAX_DELAY_MS
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import Refusal, SendOutcome
from gantry_broker.store.tables.offsets import rows_record

GROUP = "GANTRY_SYS_RECALL"
ROWS_MAX = 100_000
FORGET_EVERY_S = 60.0
KEPT_S = 3_600  # beyond its moment: what is late is at most as late as this master may not write
_KEY = re.compile(r"[0-9A-Za-z_\-]{1,127}")


class Recalls:
    """The recalls of one master.

    Args:
        view: the group; it is the master.
        clock: seconds since 1970.
        write_soon: has changed offsets written.

    Attributes:
        taken_back: messages that were dropped, in this mastership.
    """

    def __init__(
        self, view: GroupView, clock: Callable[[], float], write_soon: Callable[[], None]
    ) -> None:
        """Take up what earlier masters were told."""
        self.taken_back = 0
        self._view = view
        self._clock = clock
        self._write_soon = write_soon
        self._keys = {key for _, key, _, _ in view.store.committed.of_group(GROUP)}
        self._may_forget = False
        self._timer = asyncio.get_running_loop().call_later(FORGET_EVERY_S, self._forget_old)

    def __len__(self) -> int:
        return len(self._keys)

    def close(self) -> None:
        """The mastership is over."""
        self._timer.cancel()

    def recall(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Serve 370."""
        header = from_ext(RecallMessageRequestHeader, request.ext)
        handle = RecallHandle.unpack(header.recall_handle)
        refusal = self._view.accepting_writes() or self._refusal(header, handle)
        if refusal is not None:
            return reply(request, *refusal)
        row = (GROUP, handle.unique_key, 0, -(-handle.due_ms // 1000))
        record = rows_record([row])
        record.store_host = record.born_host = self._view.store_host
        # At once: it may be delivered while this is on its way, and nobody was told yet.
        self._keys.add(handle.unique_key)
        self._view.store.committed.foresee([row])
        self._view.store.append([record], partial(self._ended, conn, request, handle.unique_key))
        return None

    def takes(self, unique_key: str | None) -> bool:
        """Whether a message was taken back."""
        return unique_key in self._keys

    def _refusal(self, header: RecallMessageRequestHeader, handle: RecallHandle) -> Refusal | None:
        if self._view.store.topics.lookup(header.topic) is None:
            return topic_rules.unknown_topic(header.topic)
        left_ms = handle.due_ms - int(self._clock() * 1000)
        if handle.topic != header.topic:
            reason = "topic not match"
        elif handle.broker_name != self._view.broker_name:
            reason = "broker service not match"
        elif not _KEY.fullmatch(handle.unique_key):
            reason = "invalid handle"
        elif not 0 < left_ms <= MAX_DELAY_MS:
            reason = "timestamp invalid"
        elif len(self._keys) >= ROWS_MAX:
            return Refusal(
                ResponseCode.SYSTEM_BUSY, f"{ROWS_MAX} messages are being taken back, try later"
            )
        else:
            return None
        return Refusal(ResponseCode.ILLEGAL_OPERATION, f"recall failed, {reason}")

    def _ended(
        self,
        conn: Connection,
        request: RemotingCommand,
        unique_key: str,
        outcome: SendOutcome,
    ) -> None:
        ext = None
        if outcome.code == ResponseCode.SUCCESS:
            ext = to_ext(RecallMessageResponseHeader(unique_key))
        if not request.is_oneway:
            conn.reply(request, reply(request, outcome.code, outcome.remark, ext))

    def _forget_old(self) -> None:
        """Forget rows after their time, and nothing while what is late may still have to come."""
        may_write = self._view.accepting_writes() is None
        if may_write and self._may_forget:
            before_s = int(self._clock()) - KEPT_S
            for _, key, _, due_s in self._view.store.committed.of_group(GROUP):
                if due_s < before_s:
                    self._keys.discard(key)
                    self._view.store.committed.forget(GROUP, key, 0)
                    self._write_soon()
        self._may_forget = may_write
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(FORGET_EVERY_S, self._forget_old)
