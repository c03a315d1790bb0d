"""Writes through one member of a group: the words for what the replica core decides.

May a write be accepted (``Mastership.no_writes``), and what becomes of it (``PendingWrites``), is
decided there (H11); here it gets its place in the log, and its answer. Everything that was stored
and is not acknowledged ends in 12: with the places of its records while this is the master, without
them from then on, because nobody here knows whether they stay.

Rule protected: a table that is known in part only is neither compared with the controllers' nor
written to.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import ResponseCode
from gantry_protocol.process import log
from gantry_protocol.queue_map import MAPPED
from gantry_protocol.records import MessageRecord
from gantry_protocol.types import Offset

from gantry_broker.clients.view import Created
from gantry_broker.control.requests import TakeoverReport
from gantry_broker.log import DiskFullError, LogFailedError
from gantry_broker.member.repeats import Repeats, place_of
from gantry_broker.member.takeover import Takeover
from gantry_broker.queues import MessageStore
from gantry_broker.replica.effects import Fate
from gantry_broker.replica.master import Mastership
from gantry_broker.replica.values import NoWrites
from gantry_broker.store.contract import Appended, Records, Refusal, SendOutcome, StoredAt
from gantry_broker.store.stored import FOLLOWED_MS, StoreClock

if TYPE_CHECKING:
    from gantry_broker.member.shell import ReplicaShell
    from gantry_broker.member.topic_sync import TopicSync

_NOT_MASTER = Refusal(
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "service not available now. this broker is not the master of its group",
)
_NOT_WHOLE = Refusal(
    ResponseCode.SYSTEM_BUSY,
    "this broker has not confirmed yet all that it found in its log",
)
_CUT_OFF = Refusal(
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "service not available now. this broker is cut off, and may be the master no more",
)
_REFUSALS = {
    NoWrites.LEAVING: Refusal(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "service not available now. this broker is handing its mastership over",
    ),
    NoWrites.CUT_OFF: _CUT_OFF,
    NoWrites.NO_DISK: Refusal(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "service not available now. this broker's disk does not answer",
    ),
    NoWrites.TOO_FEW: Refusal(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough"),
}
ANSWERS_MAX = 1_024  # stretches of answered records, each of ``_STEP_MS`` at least: four minutes
_STEP_MS = 250
_CONFIRMED = ResponseCode.SUCCESS  # to look a member up costs a tenth of a microsecond
# What whoever is not acknowledged is told, and whether with the places of its records.
_UNCONFIRMED = {
    Fate.TOO_FEW: ("stored and replicated, while the in-sync replicas were not enough", True),
    Fate.LATE: ("stored, and not confirmed by enough replicas in time", True),
    Fate.DEPOSED: ("stored, and this broker lost its mastership before it was confirmed", False),
    Fate.CUT_OFF: ("stored, and this broker was cut off before it was confirmed", False),
}
# Of clocks that are never set, the one that goes on while a machine sleeps, where there is one.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_log = log.get("group")


def steady_ms() -> int:
    """By a clock that is never set."""
    return time.clock_gettime_ns(_STEADY) // 1_000_000


class Answers:
    """The times at which this process answered writes of its masterships with 0, roughly."""

    def __init__(self) -> None:
        """Nothing is answered."""
        # First log offset, offset behind the last, when at the latest; in the order of the log.
        self._stretches: deque[tuple[int, int, int]] = deque(maxlen=ANSWERS_MAX)
        self._is_broken = True

    def add(self, start: int, end: int, now_ms: int) -> None:
        """Note that what stands between two log offsets was answered now, the latest so far."""
        last = self._stretches[-1] if self._stretches else None
        if self._is_broken or last is None or now_ms >= last[2] + _STEP_MS:
            self._stretches.append((start, end, now_ms))
        else:
            self._stretches[-1] = (last[0], end, now_ms)
        self._is_broken = False

    def refused(self) -> None:
        """Note that what comes next in the log was not answered 0."""
        self._is_broken = True

    def at(self, offset: int) -> int | None:
        """The time by which the record at a log offset was answered; None if it was not."""
        for start, end, at_ms in reversed(self._stretches):
            if start <= offset < end:
                return at_ms
        return None


class GroupWrites:
    """See the module.

    Args:
        store: the member's store.
        met_full: called when a record found no room on the disk.
        wall: seconds since 1970.
        steady: ms by a clock that is never set.

    Attributes:
        confirmed: records whose writes were answered 0, ever.
        unconfirmed: records whose writes were answered 12, ever.
        leaving: it has been asked to leave.
        answers: what was answered here.
        repeats: finds sends that came before.
        topics: changes topics with the controllers; None before the member has started.
        clock: tells store times.
    """

    def __init__(
        self,
        store: MessageStore,
        met_full: Callable[[], None],
        wall: Callable[[], float] = time.time,
        steady: Callable[[], int] = steady_ms,
    ) -> None:
        """Nothing is under way."""
        self.clock = StoreClock(int(wall() * 1000), steady())
        self._wall, self._steady = wall, steady
        self._clock_is_off = False
        self.confirmed = 0
        self.unconfirmed = 0
        self.leaving = False
        self.topics: TopicSync | None = None
        self._store = store
        self.answers = Answers()
        self.repeats = Repeats(store, self.answers.at)
        self._met_full = met_full
        self._shell: ReplicaShell | None = None  # while this member serves
        self._takeover: Takeover | None = None  # likewise
        self._topics_due = False  # the state of the log was not whole when they were to be read

    def begin(self, shell: "ReplicaShell") -> None:
        """The member serves from now on; ``shell`` carries out what its core decides."""
        self._shell = shell
        self._takeover = Takeover(self._store)

    def takeover(self, confirm: Offset) -> TakeoverReport | None:
        """The times between which nobody wrote, by a serving master; None by others."""
        found = self._takeover
        return None if found is None or self.mastership is None else found.report(confirm)

    @property
    def mastership(self) -> Mastership | None:
        """The mastership under which this member serves; None while it does not.

        Not before the effect of a promotion is carried out, nor after the core has ended it.
        """
        shell = self._shell
        return None if shell is None else shell.core.serving

    @property
    def takes_requests(self) -> bool:
        """Whether clients are served here: by the serving master, unless it is cut off."""
        master = self.mastership
        return master is not None and not master.cut_off

    @property
    def waiting(self) -> int:
        """Writes whose fate is not decided yet."""
        master = self.mastership
        return 0 if master is None else len(master.pending)

    def accepting(self) -> Refusal | None:
        """None when a send may be appended (H11); whoever sends asks this, once."""
        master = self.mastership
        if master is None:
            return _NOT_MASTER
        reason = master.no_writes
        if reason is not None:
            return _REFUSALS[reason]
        return self._refused_for_damage() or (None if self._store.is_whole else _NOT_WHOLE)

    def _refused_for_damage(self) -> Refusal | None:
        """Where a part of the log cannot be read nobody knows which numbers its records have."""
        damage = self._store.in_the_way
        if damage is None:
            return None
        return Refusal(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"service not available now. {damage.path} is damaged (log offsets {damage.start} to"
            f" {damage.end}), and no member of the set with these bytes has taken over yet",
        )

    def append(self, records: Records, done: Appended, once: int | None = None) -> None:
        """Store and replicate; ``done(outcome)`` comes exactly once, maybe at once.

        It does not ask whether a send may be accepted: what belongs to the state is appended as
        long as there is a mastership for it. ``once``: see ``RecordStore.append``.

        Raises:
            RecordError: a record cannot be stored; ``done`` is not called.
            DiskFullError: there is no room; ``done`` is not called.
        """
        shell = self._shell
        if shell is None or shell.core.serving is None:
            done(SendOutcome(_NOT_MASTER.code, _NOT_MASTER.remark))
            return
        refusal = self._refused_for_damage()
        if refusal is not None:
            done(SendOutcome(refusal.code, refusal.remark))
            return
        now_ms = self.clock.now_ms(int(self._wall() * 1000), self._steady())
        marks, ways, is_known = self._store.recent.look(records, once)
        if is_known and once is not None:
            there = self.repeats.find(records, marks, ways, now_ms)
            if there is not None:
                is_one_send = once >= 0  # a front's are many
                records, done = self._rest(shell, list(records), there, done, is_one_send)
                marks, ways, _ = self._store.recent.look(records, once)
                if not records:
                    return
        try:
            stored = self._store.put(records, now_ms=now_ms, marks=marks, ways=ways)
        except DiskFullError:
            # The file may have been ended by a blank before the next one found no room. Who did not
            # know of that blank would later count it as bytes of the next epoch.
            shell.appended()
            self._met_full()
            raise
        except LogFailedError as error:
            # Of several records some may be written: only a new start can tell. Until then this
            # member would refuse every send, and nobody else would be elected.
            shell.fail(error)
            done(SendOutcome(ResponseCode.FLUSH_SLAVE_TIMEOUT, str(error)))
            return
        shell.appended((stored, done))

    def _rest(
        self,
        shell: "ReplicaShell",
        records: list[MessageRecord],
        there: Sequence[MessageRecord | None],
        done: Appended,
        is_one_send: bool,
    ) -> tuple[list[MessageRecord], Appended]:
        """What of a send is not ``there`` and is to be stored, and what to do when it has ended.

        Where nothing is left, the send is answered when all of it is confirmed. What is there and
        not confirmed waits like an append of now: all below the end of the log is confirmed by
        then.
        """
        found = [record for record in there if record is not None]
        missing = [sent for sent, record in zip(records, there, strict=True) if record is None]
        if is_one_send and missing and not self._is_mapped(missing[0].topic):
            for sent in missing:
                sent.queue_id = found[0].queue_id

        def ended(outcome: SendOutcome) -> None:
            places: list[StoredAt] = []
            if outcome.code == _CONFIRMED:
                put = iter(outcome.stored)
                places = [next(put) if record is None else place_of(record) for record in there]
            done(SendOutcome(outcome.code, outcome.remark, places, found))

        master, confirm = shell.core.serving, shell.core.log.confirm
        if not missing:
            if any(record.physical_offset + record.size > confirm for record in found):
                shell.appended(([], ended))
            elif master is not None and master.has_enough:
                ended(SendOutcome(_CONFIRMED))
            else:
                ended(SendOutcome(ResponseCode.FLUSH_SLAVE_TIMEOUT, _UNCONFIRMED[Fate.TOO_FEW][0]))
        return missing, ended

    def _is_mapped(self, name: str) -> bool:
        """Whether queues of a topic may take messages elsewhere by now."""
        topic = self._store.topics.lookup(name)
        return topic is not None and MAPPED in topic.attributes

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
        master = self.mastership
        if master is None or self.topics is None:
            return _NOT_MASTER
        if master.cut_off:
            return _CUT_OFF
        return None if self._store.knows_its_topics else _NOT_WHOLE

    # ---- what becomes of them

    def ended(self, fate: Fate, writes: Sequence[Any]) -> None:
        """Answer writes whose fate the core has decided."""
        if fate is not Fate.CONFIRMED:
            self.answers.refused()
        else:
            first = last = None
            for stored, _ in writes:
                if stored:  # a repeat has stored nothing
                    first, last = first or stored[0], stored[-1]
            if first is not None and last is not None:
                self.answers.add(first.offset, last.offset + last.size, self.clock.at_ms)
        if fate is Fate.CONFIRMED:
            for stored, done in writes:
                self.confirmed += len(stored)
                done(SendOutcome(_CONFIRMED, None, stored))
            return
        self.unconfirmed += sum(len(stored) for stored, _ in writes)
        remark, with_places = _UNCONFIRMED[fate]
        for stored, done in writes:
            places = stored if with_places else []
            done(SendOutcome(ResponseCode.FLUSH_SLAVE_TIMEOUT, remark, places))

    def ticked(self) -> None:
        """Follow the wall clock."""
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
        if self.topics is None or self.mastership is None:
            return
        self._topics_due = not self._store.knows_its_topics  # a part is compared with nothing
        if not self._topics_due:
            self.topics.catch_up(version)

    @property
    def topics_due(self) -> bool:
        """Whether ``catch_up_topics`` is to be called again when more is confirmed."""
        return self._topics_due

    def end(self) -> None:
        """The mastership is over: nothing is taken, and no topic is waited for any longer."""
        self._shell, self._takeover = None, None
        if self.topics is not None:
            self.topics.end()
