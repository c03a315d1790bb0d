"""Writes through one member of a group: who may write, and who waits to be answered.

Rules protected: a record is accepted only by the serving master of the current epoch with enough
in-sync members, *before* it is appended (H11); the answer 0 follows confirm (``appends``); a table
that is known in part only is neither compared with the controllers' nor written to.

What it refuses: a send while the mastership is being handed over, or not there at all, and while
the disk does not answer; anything, while another master may have been elected.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import ResponseCode
from gantry_protocol.process import log
from gantry_protocol.types import Offset

from gantry_broker.clients.view import Created
from gantry_broker.log import DiskFullError
from gantry_broker.member.appends import PendingAppends
from gantry_broker.queues import MessageStore
from gantry_broker.replica.master import Mastership
from gantry_broker.store.clock import FOLLOWED_MS, StoreClock
from gantry_broker.store.contract import Appended, Records, Refusal, SendOutcome

if TYPE_CHECKING:
    from gantry_broker.member.topic_sync import TopicSync

_NOT_MASTER = Refusal(
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "service not available now. this broker is not the master of its group",
)
_LEAVING = Refusal(
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "service not available now. this broker is handing its mastership over",
)
_NOT_WHOLE = Refusal(
    ResponseCode.SYSTEM_BUSY,
    "this broker has not confirmed yet what was said before its log begins",
)
_NO_DISK = Refusal(
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "service not available now. this broker's disk does not answer",
)
_CUT_OFF = Refusal(
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "service not available now. this broker is cut off, and may be the master no more",
)
_TOO_FEW = Refusal(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
# Of clocks that are never set, the one that goes on while a machine sleeps, where there is one.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_log = log.get("group")


def steady_ms() -> int:
    """By a clock that is never set."""
    return time.clock_gettime_ns(_STEADY) // 1_000_000


class WritingMember(Protocol):
    """What writes need of their group's member."""

    @property
    def mastership(self) -> Mastership | None:
        """The mastership under which it serves; None while it does not."""

    @property
    def leaving(self) -> bool:
        """Whether it has been asked to leave."""

    def appended(self) -> None:
        """Records were appended: flush them, and feed the replicas."""

    def met_full(self) -> None:
        """A record found no room on the disk."""


def admission(mastership: Mastership | None, *, leaving: bool, is_whole: bool) -> Refusal | None:
    """None when a send may be appended now (H11).

    Args:
        mastership: under which clients are served, None for none.
        leaving: the process was asked to leave.
        is_whole: the state of the log is known from its beginning on.
    """
    if mastership is None:
        return _NOT_MASTER
    if leaving or mastership.drain is not None:
        return _LEAVING
    if mastership.cut_off:
        return _CUT_OFF
    if mastership.disk_is_silent:
        return _NO_DISK
    if not mastership.has_enough:
        return _TOO_FEW
    return None if is_whole else _NOT_WHOLE


class GroupWrites:
    """See the module.

    Args:
        member: whose writes these are.
        store: its store.
        wall: seconds since 1970.
        steady: ms by a clock that is never set.

    Attributes:
        pending: sends that wait for their records to be confirmed.
        topics: changes topics with the controllers; None before the member has started.
        clock: tells store times.
    """

    def __init__(
        self,
        member: WritingMember,
        store: MessageStore,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], int] = steady_ms,
    ) -> None:
        """Nothing is under way."""
        self.clock = StoreClock(int(wall() * 1000), steady())
        self._wall, self._steady = wall, steady
        self._clock_is_off = False
        self.pending = PendingAppends()
        self.topics: TopicSync | None = None
        self._member = member
        self._store = store
        self._loop = asyncio.get_running_loop()  # to ask for it is a system call
        self._topics_due = False  # the state of the log was not whole when they were to be read

    def accepting(self) -> Refusal | None:
        """None when a send may be appended (H11)."""
        member = self._member
        return admission(member.mastership, leaving=member.leaving, is_whole=self._store.is_whole)

    def append(self, records: Records, done: Appended) -> None:
        """Store and replicate; ``done(outcome)`` comes exactly once, maybe at once.

        Raises:
            RecordError: a record cannot be stored; ``done`` is not called.
            DiskFullError: there is no room; ``done`` is not called.
        """
        if self._member.mastership is None:
            done(SendOutcome(_NOT_MASTER.code, _NOT_MASTER.remark))
            return
        now_ms = self.clock.now_ms(int(self._wall() * 1000), self._steady())
        try:
            stored = self._store.put(records, now_ms=now_ms)
        except DiskFullError:
            # The file may have been ended by a blank before the next one found no room. Who did not
            # know of that blank would later count it as bytes of the next epoch.
            self._member.appended()
            self._member.met_full()
            raise
        self.pending.add(stored, done, self._loop.time())
        self._member.appended()

    def create_topic(self, topic: TopicConfig, done: Created, *, if_absent: bool) -> None:
        """Create or change a topic: by the controllers first, then by a record in the log."""
        refusal = self._topics_refused()
        if self.topics is None or refusal is not None:
            done(refusal)
        else:
            self.topics.create(topic, done, if_absent=if_absent)

    def delete_topic(self, topic: str, done: Created) -> None:
        """Delete a topic here: by the controllers first, then by a record in the log."""
        refusal = self._topics_refused()
        if self.topics is None or refusal is not None:
            done(refusal)
        else:
            self.topics.delete(topic, done)

    def _topics_refused(self) -> Refusal | None:
        if self._member.mastership is None or self.topics is None:
            return _NOT_MASTER
        if self._member.mastership.cut_off:
            return _CUT_OFF
        return None if self._store.is_whole else _NOT_WHOLE

    # ---- what becomes of them

    def confirmed(self, confirm: Offset, mastership: Mastership) -> None:
        """Answer the sends whose records are confirmed."""
        self.pending.confirm(confirm, enough_in_sync=mastership.has_enough)

    def ticked(self) -> None:
        """Answer the sends that have waited long enough; follow the wall clock."""
        self.pending.expire(self._loop.time())
        self.clock.now_ms(int(self._wall() * 1000), self._steady())
        is_off = abs(self.clock.ahead_ms) > FOLLOWED_MS
        if is_off != self._clock_is_off:
            self._clock_is_off = is_off
            if is_off:
                _log.warning(
                    "the wall clock jumped, store times follow it slowly",
                    ahead_ms=self.clock.ahead_ms,
                )
            else:
                _log.info("store times are those of the wall clock again")

    def catch_up_topics(self, version: int) -> None:
        """Read the controllers' topics if they are newer than ours, once ours are all known."""
        if self.topics is None or self._member.mastership is None:
            return
        self._topics_due = not self._store.is_whole  # a part of a table is compared with nothing
        if not self._topics_due:
            self.topics.catch_up(version)

    @property
    def topics_due(self) -> bool:
        """Whether ``catch_up_topics`` is to be called again when more is confirmed."""
        return self._topics_due

    def cut_off(self) -> None:
        """Another master may have been elected: who waits is to ask that one."""
        self.pending.end("stored, and this broker was cut off before it was confirmed")

    def end(self) -> None:
        """The mastership is over: nobody waits for an answer any longer."""
        self.pending.end()
        if self.topics is not None:
            self.topics.end()
