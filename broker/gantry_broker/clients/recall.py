"""``Recalls``: messages that wait for their moment are taken back: RecallMessage (370).

Upstream: ``RecallMessageProcessor``, which stores a message of its own for the same moment. Here a
recall is a row in the log, a committed offset of a system group that is named after the message:
its topic, its unique key and its moment, which together tell it from one that is sent again later.
Whoever takes the message up at the end of its step (``delivery``) drops it instead. So a recall
that was answered outlives the master.

The row stays for as long as a step, or until the moment, and some minutes more, since a log that
broke off may hold the message twice; that long by the steady clock of one mastership, and while
timers are late nothing is forgotten.

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
from gantry_protocol.errors import GantryError, HeaderError
from gantry_protocol.headers.client import RecallMessageRequestHeader, RecallMessageResponseHeader
from gantry_protocol.headers.codec import from_ext, to_ext
from gantry_protocol.recall import RecallHandle
from gantry_protocol.records import MessageRecord, decode_properties
from gantry_protocol.records.properties import REAL_TOPIC, TIMER_OUT_MS, UNIQ_KEY
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.settings.delays import MAX_DELAY_MS

from gantry_broker.clients import topic_rules
from gantry_broker.clients.core.delay.levels import STEPS_MS
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import Refusal, SendOutcome
from gantry_broker.store.tables.offsets import GONE, rows_record

TOPIC = "GANTRY_SYS_RECALL"  # of all rows; there are no messages in it
ROWS_MAX = 100_000
FORGET_EVERY_S = 60.0
KEPT_S = 600.0  # beyond the message's step
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
        self._loop = asyncio.get_running_loop()
        until_s = self._loop.time() + STEPS_MS[-1] / 1000 + KEPT_S
        rows = view.store.committed.of_queues(TOPIC, {0})
        self._until_s = {group: until_s for group, _, _ in rows}  # by the steady clock

    def __len__(self) -> int:
        return len(self._until_s)

    def recall(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Serve 370."""
        header = from_ext(RecallMessageRequestHeader, request.ext)
        try:
            handle = RecallHandle.unpack(header.recall_handle)
        except HeaderError as error:
            return reply(request, ResponseCode.ILLEGAL_OPERATION, str(error))
        left_s = handle.due_ms / 1000 - self._clock()
        refusal = self._view.accepting_writes() or self._refusal(header.topic, handle, left_s)
        if refusal is not None:
            return reply(request, *refusal)
        group = _group(handle.topic, handle.unique_key, handle.due_ms)
        row = (group, TOPIC, 0, 1)
        before = GONE if group not in self._until_s else 1
        record = rows_record([row])
        record.store_host = record.born_host = self._view.store_host
        # At once: it may be delivered while this is on its way, and nobody was told yet.
        self._until_s[group] = self._loop.time() + min(left_s, STEPS_MS[-1] / 1000) + KEPT_S
        self._view.store.committed.foresee([row])
        done = partial(self._ended, conn, request, handle.unique_key, group, before)
        try:
            self._view.store.append([record], done)
        except GantryError as error:
            done(SendOutcome(ResponseCode.SYSTEM_ERROR, str(error)))
        return None

    def takes(self, parked: MessageRecord) -> bool:
        """Whether a timer's message was taken back."""
        if not self._until_s:
            return False
        said = decode_properties(parked.properties)
        names = (said.get(REAL_TOPIC, ""), said.get(UNIQ_KEY, ""), said.get(TIMER_OUT_MS, ""))
        return _group(*names) in self._until_s

    def forget_old(self) -> None:
        """Forget what nobody needs any more; to be called while no timer is late."""
        now_s = self._loop.time()
        old = [group for group, until_s in self._until_s.items() if until_s < now_s]
        for group in old:
            del self._until_s[group]
            self._view.store.committed.forget(group, TOPIC, 0)
        if old:
            self._write_soon()

    def _refusal(self, topic: str, handle: RecallHandle, left_s: float) -> Refusal | None:
        if self._view.store.topics.lookup(topic) is None:
            return topic_rules.unknown_topic(topic)
        if handle.topic != topic:
            reason = "topic not match"
        elif handle.broker_name != self._view.broker_name:
            reason = "broker service not match"
        elif not _KEY.fullmatch(handle.unique_key):
            reason = "invalid handle"
        elif not 0 < left_s * 1000 <= MAX_DELAY_MS:
            reason = "timestamp invalid"
        elif len(self._until_s) >= ROWS_MAX:
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
        group: str,
        before: int,
        outcome: SendOutcome,
    ) -> None:
        ext = None
        if outcome.code == ResponseCode.SUCCESS:
            ext = to_ext(RecallMessageResponseHeader(unique_key))
        elif not outcome.may_be_stored:
            self._view.store.committed.take_back([(group, TOPIC, 0, before)])
            if before == GONE:
                self._until_s.pop(group, None)
        if not request.is_oneway:
            conn.reply(request, reply(request, outcome.code, outcome.remark, ext))


def _group(topic: str, unique_key: str, due_ms: int | str) -> str:
    return f"{TOPIC} {due_ms} {unique_key} {topic}"
