"""One mastership: everything a master knows and does in one epoch, thrown away with the epoch.

Rules protected:

* Confirm (H5). ``confirm = min over counted members of what is on their disk``, the master's own
  flushed end included; counted is the old set and every proposed one (``syncset``); a member that
  has not acknowledged in this epoch counts as 0; and confirm never falls, because a lower minimum
  is ignored: what was on every disk once is on every disk that may be elected since.
* Acknowledgements of another epoch cannot be mixed in: a ``Mastership`` is made for one epoch, and
  a link belongs to it only through a Hello of that epoch.
* A batch never crosses an epoch boundary, so that one lineage entry describes all its bytes (H4).
* A write is acknowledged only when confirm covers its last byte *and* the sync-state set has the
  minimum of members at that moment (H11, ``PendingWrites``). Everything else that was appended ends
  unacknowledged: confirmed while too few were in sync, after ``REPLICATION_TIMEOUT_MS``, or at once
  when the mastership ends or is in doubt, because from then on nobody here knows whether the bytes
  stay. Each write ends exactly once.

What it refuses: a Hello of an older epoch (the replica must first learn of this one), an
acknowledgement of bytes that were never sent, and any write once it is leaving.
"""

from collections import deque

import msgspec
from gantry_protocol.types import BrokerId, Epoch, EpochEntry, Offset

from gantry_broker.replica.drain import Drain
from gantry_broker.replica.effects import (
    AskView,
    CloseLink,
    ConfirmMoved,
    Effect,
    Fate,
    Feed,
    Send,
    SetChanged,
    Slow,
    WritesEnded,
)
from gantry_broker.replica.events import ProposalFinished, Refused, Unknown
from gantry_broker.replica.handshake import answer_hello
from gantry_broker.replica.lineage import LogFacts
from gantry_broker.replica.membership import Joiner, in_sync_target, wanted_set
from gantry_broker.replica.messages import Ack, Append, Farewell, Hello, Truncate
from gantry_broker.replica.pace import held_by
from gantry_broker.replica.syncset import Member, SyncStateSet
from gantry_broker.replica.values import ControllerView, Limits, NoWrites

REPLICATION_TIMEOUT_MS = 3_000  # upstream's syncFlushTimeout for replication


class Batch(msgspec.Struct, frozen=True):
    """A range of the log that may be sent on one link now.

    Attributes:
        limit: end of the range; whole records up to here may go. Also bounds a single record that
            is larger than ``size_hint``.
        size_hint: bytes to aim at.
    """

    offset: Offset
    limit: Offset
    size_hint: int
    entry: EpochEntry


class PendingWrites:
    """The writes of one mastership that wait: which of them end now.

    A write is whatever the shell needs in order to answer it. The queue belongs to one mastership,
    so a write cannot be judged by the confirm offset of another. It has no bound of its own: its
    length is bounded by what the connections of clients may have under way.

    They stand in the order of their bytes, and of their deadlines, so everything looks at the front
    only.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        """Nobody waits."""
        # The end of its bytes, until when it waits, itself. A plain tuple: one is made per send.
        self._waiting: deque[tuple[Offset, int, object]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, end: Offset, now_ms: int, write: object) -> None:
        """``write`` was appended, and ends at ``end``."""
        self._waiting.append((end, now_ms + REPLICATION_TIMEOUT_MS, write))

    def confirmed(self, confirm: Offset) -> list[object]:
        """Those that end at or below ``confirm``."""
        waiting, ended = self._waiting, list[object]()
        while waiting and waiting[0][0] <= confirm:
            ended.append(waiting.popleft()[2])
        return ended

    def late(self, now_ms: int) -> list[object]:
        """Those that have waited long enough."""
        waiting, ended = self._waiting, list[object]()
        while waiting and waiting[0][1] <= now_ms:
            ended.append(waiting.popleft()[2])
        return ended

    def end(self) -> list[object]:
        """All of them."""
        ended = [write for _, _, write in self._waiting]
        self._waiting.clear()
        return ended


class Mastership:
    """The master of one epoch.

    Attributes:
        pending: writes whose fate is not decided yet.
        disk_is_silent: its own disk does not answer, so it takes no write.
        cut_off: another one may have been elected (``contact``), so it takes nothing at all.
    """

    def __init__(
        self,
        me: BrokerId,
        incarnation: str,
        view: ControllerView,
        log: LogFacts,
        limits: Limits,
        now_ms: int,
    ) -> None:
        """Begin the epoch of ``view`` at the current end of the log."""
        self.me = me
        self.epoch: Epoch = view.master_epoch
        self.start = log.end
        self.set = SyncStateSet(me, view, limits)
        self.members: dict[BrokerId, Member] = {}
        self.drain: Drain | None = None
        self.pending = PendingWrites()
        self.disk_is_silent = False
        self.cut_off = False
        self._woke_ms: int | None = None
        self._incarnation = incarnation
        self._view = view
        self._log = log
        self._limits = limits
        self._by_link: dict[int, Member] = {}
        self._joiner = Joiner(limits)
        self._track_members(now_ms)

    # ---- the group's view

    @property
    def in_sync(self) -> int:
        """Members of the set that the controller is known to hold."""
        return len(self.set.members)

    @property
    def counted(self) -> frozenset[BrokerId]:
        """Everybody confirm waits for."""
        joiner = self._joiner.broker_id
        return self.set.counted if joiner is None else self.set.counted | {joiner}

    @property
    def min_in_sync(self) -> int:
        """Members the set must have for a write to be accepted."""
        return max(self._view.min_in_sync, 1)

    @property
    def has_enough(self) -> bool:
        """Whether a write may be accepted, and one that is confirmed acknowledged (H11)."""
        return self.in_sync >= self.min_in_sync

    @property
    def no_writes(self) -> NoWrites | None:
        """The reason why no write may be accepted now; None when one may (H11)."""
        if self.drain is not None:
            return NoWrites.LEAVING
        if self.cut_off:
            return NoWrites.CUT_OFF
        if self.disk_is_silent:
            return NoWrites.NO_DISK
        return None if self.has_enough else NoWrites.TOO_FEW

    def end_writes(self, fate: Fate) -> list[WritesEnded]:
        """All that wait end like that."""
        ended = self.pending.end()
        return [WritesEnded(fate, ended)] if ended else []

    def copying_from(self, *, counted: bool) -> list[tuple[Offset, BrokerId]]:
        """From where on replicas read the log that confirm waits for, or does not."""
        waited_for = self.counted
        return [
            (member.sent, member.broker_id)
            for member in self.members.values()
            if member.link is not None and (member.broker_id in waited_for) is counted
        ]

    def links_below(self, start: Offset) -> list[int]:
        """Links of replicas that go on from bytes below ``start``."""
        return [link for link, member in self._by_link.items() if member.sent < start]

    def silent(self, now_ms: int) -> tuple[BrokerId, ...]:
        """Those who may be in the controllers' set and are not heard; see ``contact``."""
        others = sorted(self.set.counted - {self.me})
        if self._woke_ms is not None and now_ms - self._woke_ms < 2 * self._limits.link_closed_ms:
            return tuple(others)  # what arrives now may have been said before we stood still
        return tuple(
            other for other in others if self.members[other].is_silent(now_ms, self._limits)
        )

    def heirs(self) -> list[BrokerId]:
        """Members that could go on at once while our own disk does not answer, the best first.

        Members that stay and have made durable what we have not; all of what we appended, if any
        of them has it all.
        """
        flushed = self._log.flushed
        return _best([member for member in self._staying() if member.acked > flushed])

    def heirs_with_room(self) -> list[BrokerId]:
        """Members that stay and could go on while our own disk is full, the best first."""
        return _best([member for member in self._staying() if member.has_room])

    def _staying(self) -> list[Member]:
        staying = self.set.members - self._view.draining - {self.me}
        return [
            member
            for broker_id, member in self.members.items()
            if broker_id in staying and member.streaming and not member.draining
        ]

    def holders(self) -> list[BrokerId]:
        """Members that could go on at once with all that was acknowledged, the furthest first."""
        staying = self.set.members - self._view.draining - {self.me}
        able = [
            member
            for broker_id, member in self.members.items()
            if broker_id in staying and member.streaming and not member.draining
        ]
        able.sort(key=lambda member: (-member.acked, member.broker_id))
        return [member.broker_id for member in able]

    def learn(self, view: ControllerView, now_ms: int) -> list[Effect]:
        """A newer description of the same epoch."""
        self._view = view
        before = self.set.members
        if not self.set.adopt(view.sync_state_set, view.sync_state_set_epoch):
            return []
        fenced = [link for link, member in self._by_link.items() if member.broker_id in view.fenced]
        ended = [effect for link in fenced for effect in self._dismiss(link, "fenced", now_ms)]
        return [*ended, *self._set_changed(before, now_ms)]

    def _set_changed(self, before: frozenset[BrokerId], now_ms: int) -> list[Effect]:
        """Every replica is told at once whether it is counted on."""
        self._track_members(now_ms)
        slow = self._note_paces(before, now_ms)
        told: list[Effect] = [
            Send(link, self._heartbeat(member, now_ms))
            for link, member in self._by_link.items()
            if member.streaming
        ]
        return [SetChanged(self.set.members), *slow, *told, *self.review(now_ms)]

    def _note_paces(self, before: frozenset[BrokerId], now_ms: int) -> list[Effect]:
        """Who joined begins anew; who was let go since everybody waited for it is watched."""
        for broker_id in self.set.members - before - {self.me}:
            self.members[broker_id].pace.joined(now_ms)
        slow: list[Effect] = []
        for broker_id in sorted(before - self.set.members - {self.me}):
            member = self.members[broker_id]
            if member.link is None or member.draining or member.has_lost:
                continue  # gone, or on its way
            pace, recent_ms = member.pace, member.pace.recent_ms
            pace.left(now_ms)
            if pace.is_out(now_ms):
                slow.append(Slow(broker_id, recent_ms, pace.out_until_ms - now_ms))
        return slow

    def _track_members(self, now_ms: int) -> None:
        for broker_id in sorted(self.set.members - {self.me}):  # in one order, also in a replay
            if broker_id not in self.members:
                self.members[broker_id] = Member(broker_id, now_ms, self._limits)

    # ---- links

    def hello(self, link: int, hello: Hello, now_ms: int) -> list[Effect]:
        """A replica of this epoch asks to follow: tell it where to cut its log."""
        if hello.broker_id == self.me:
            reason = "a replica with our own id: two processes use copies of one volume"
            return self._dismiss(link, reason, now_ms)
        answer = answer_hello(hello, self._log, self.epoch, self._incarnation)
        if not isinstance(answer, Truncate):
            return self._dismiss(link, answer, now_ms)
        new = Member(hello.broker_id, now_ms, self._limits)
        member = self.members.setdefault(hello.broker_id, new)
        effects: list[Effect] = []
        if member.link is not None:
            self._by_link.pop(member.link, None)
            effects.append(CloseLink(member.link, "the replica opened another link"))
        member.greeted(link, answer.point, self._log.confirm, draining=hello.draining)
        self._by_link[link] = member
        return [*effects, Send(link, answer), *self.review(now_ms)]

    def _dismiss(self, link: int, reason: str, now_ms: int) -> list[Effect]:
        self.closed(link, now_ms)
        return [Send(link, Farewell(epoch=self.epoch, reason=reason)), CloseLink(link, reason)]

    def ack(self, link: int, ack: Ack, now_ms: int) -> list[Effect]:
        """A replica's flushed end; the first one of a link asks for the stream."""
        member = self._by_link.get(link)
        if member is None or ack.epoch != self.epoch:
            reason = f"an acknowledgement of epoch {ack.epoch} without a Hello"
            return self._dismiss(link, reason, now_ms)
        begins = not member.streaming
        wrong = member.acknowledged(ack.flushed_end, self._log.end, now_ms)
        if wrong is not None:
            return self._dismiss(link, wrong, now_ms)
        member.draining, member.has_room = ack.draining, ack.has_room
        effects = self.advance()
        if begins:
            effects += [Send(link, self._heartbeat(member, now_ms)), Feed()]
        elif member.sent < self._log.end:
            effects.append(Feed())
        stays = member.broker_id in self.set.members and not member.draining
        if stays and not begins and self.drain is None:
            return effects  # what else may follow from it can wait for the next tick
        return effects + self.review(now_ms)

    def closed(self, link: int, now_ms: int) -> None:
        """A link of a replica is gone."""
        member = self._by_link.pop(link, None)
        if member is not None:
            member.lost(now_ms)

    def links(self) -> list[int]:
        """Every link of this mastership."""
        return list(self._by_link)

    def links_by_need(self) -> tuple[list[int], list[int]]:
        """Links of members that ``confirm`` waits for, and of the others, the closest first."""
        counted = self.counted
        waited_for: list[int] = []
        behind: list[int] = []
        for link, member in self._by_link.items():
            (waited_for if member.broker_id in counted else behind).append(link)
        behind.sort(key=lambda link: -self._by_link[link].sent)
        return waited_for, behind

    # ---- the stream

    def next_batch(self, link: int) -> Batch | None:
        """The next range to send on ``link``; None when nothing may be sent now."""
        member = self._by_link.get(link)
        if member is None or not member.streaming or member.sent >= self._log.end:
            return None
        on_its_way, due = member.sent - member.acked, self._log.end - member.sent
        if on_its_way >= self._limits.window_bytes:
            return None
        if on_its_way and due < self._limits.gather_bytes:
            return None  # its acknowledgement asks again
        entry = self._log.lineage.entry_at(member.sent)
        assert entry is not None, f"no lineage entry covers {member.sent}"
        boundary = self._log.lineage.boundary_after(member.sent)
        limit = self._log.end if boundary is None else min(boundary, self._log.end)
        return Batch(
            offset=member.sent, limit=limit, size_hint=self._limits.batch_bytes, entry=entry
        )

    def sent(self, link: int, batch: Batch, data: bytes, now_ms: int) -> Append:
        """The message for ``data``, which the caller sends at once."""
        member = self._by_link[link]
        assert batch.offset == member.sent, "batches are sent in order"
        assert batch.offset + len(data) <= batch.limit, "a batch ends at its limit"
        member.sent = Offset(batch.offset + len(data))
        member.sent_ms = now_ms
        return self._append(member, batch.entry, batch.offset, data)

    def _append(self, member: Member, entry: EpochEntry, offset: Offset, data: bytes) -> Append:
        return Append(
            epoch=self.epoch,
            entry=entry,
            offset=offset,
            confirm=self._log.confirm,
            in_sync=member.broker_id in self.set.members,
            data=data,
        )

    def _heartbeat(self, member: Member, now_ms: int) -> Append:
        """An empty batch; it carries the epoch, confirm and membership while nothing is written."""
        member.sent_ms = now_ms
        entry = self._log.lineage.entry_at(member.sent)
        assert entry is not None, f"no lineage entry covers {member.sent}"
        return self._append(member, entry, member.sent, b"")

    def confirm_news(self, now_ms: int) -> list[Effect]:
        """Confirm, for members that would hear of it with the next heartbeat only."""
        return [
            Send(link, self._heartbeat(member, now_ms))
            for link, member in self._by_link.items()
            if member.streaming
            and member.sent == self._log.end
            and member.broker_id in self.set.members
        ]

    # ---- decisions

    def advance(self) -> list[Effect]:
        """Raise confirm to what every counted member has on its disk."""
        # Our own disk is one of them: what we have only in memory dies with this process, and an
        # election may choose us again.
        lowest = self._log.flushed
        # Old and proposed set together (H5): the controllers may have adopted a proposal whose
        # answer is on its way, and may elect out of either. Who has said nothing in this epoch
        # counts as nothing, for what it said in an older one may have been cut since.
        for broker_id in self.counted - {self.me}:
            member = self.members.get(broker_id)
            lowest = min(lowest, Offset(0) if member is None else member.acked)
        if not self._log.confirm_up_to(lowest):
            return []
        # Whether enough are in sync is asked here, at the very rise that ends these writes (H11). A
        # set that shrinks lets confirm rise, too, and later the set may have grown again.
        confirm = self._log.confirm
        fate = Fate.CONFIRMED if self.has_enough else Fate.TOO_FEW
        return [ConfirmMoved(confirm, fate, self.pending.confirmed(confirm))]

    def review(self, now_ms: int) -> list[Effect]:
        """Decide again on the set and on leaving; cheap, and safe to call after anything."""
        effects = self.advance()
        wanted = wanted_set(
            self.set.members,
            self.members,
            self._log,
            me=self.me,
            epoch_start=self.start,
            min_in_sync=self.min_in_sync,
            now_ms=now_ms,
            limits=self._limits,
        )
        proposal = self.set.plan(wanted, now_ms)
        if proposal is not None:
            effects.append(proposal)
        joins_at = max(self._log.confirm, self.start)
        self._joiner.review(self.set.counted, self.members, joins_at, now_ms)
        return effects + self._review_drain(now_ms)

    def _review_drain(self, now_ms: int) -> list[Effect]:
        if self.drain is None:
            return []
        if self.in_sync == 1 and not self._by_link:
            return self.drain.nobody_else()
        best = in_sync_target(
            self.set.members,
            self.members,
            me=self.me,
            draining=self._view.draining | self.drain.refused,
            preferred=self._view.preferred,
        )
        return self.drain.step(best, self._log, self.epoch, now_ms)

    def proposal_finished(self, event: ProposalFinished, now_ms: int) -> list[Effect]:
        """The controller answered a proposal, or did not."""
        effects: list[Effect] = []
        match event.outcome:
            case Refused(reason=reason):
                effects.append(AskView(f"the sync-state set was refused: {reason}"))
            case Unknown():
                effects.append(AskView("the outcome of a sync-state set change is unknown"))
        before = self.set.members
        if self.set.finished(event, now_ms):
            effects += self._set_changed(before, now_ms)
        return effects + self.advance()

    def begin_drain(self, now_ms: int) -> list[Effect]:
        """Stop accepting writes, for the rest of this epoch."""
        if self.drain is None:
            self.drain = Drain(now_ms, self._limits)
        return self.review(now_ms)

    def excuse(self, pause_ms: int, now_ms: int) -> None:
        """This process stood still for so long; that is no silence of the members."""
        if pause_ms >= self._limits.silence_ms:
            self._woke_ms = now_ms
        for member in self.members.values():
            member.excuse(pause_ms)

    def _look_at_paces(self, now_ms: int) -> None:
        """What the minimum of members hold would be confirmed, if nobody else were waited for."""
        end = self._log.end
        watched = [item for item in self.members.values() if item.acked < end or item.pace.is_noted]
        if not watched:
            return  # mostly, and there may be a thousand groups
        counted = self.counted
        others = [self.members[item].acked for item in counted & self.members.keys()]
        held = held_by(self.min_in_sync, [self._log.flushed, *others])
        for member in watched:
            acked = member.acked if member.streaming else held  # who is away is not slow
            waited_for = member.broker_id in counted
            member.pace.look(acked, held, now_ms, waited_for=waited_for)

    def tick(self, now_ms: int) -> list[Effect]:
        """Time passed."""
        self._look_at_paces(now_ms)
        effects: list[Effect] = [
            Send(link, self._heartbeat(member, now_ms))
            for link, member in self._by_link.items()
            if member.streaming and now_ms - member.sent_ms >= self._limits.heartbeat_ms
        ]
        effects += self.review(now_ms)
        late = self.pending.late(now_ms)  # behind review: what is confirmed by now is not late
        return [*effects, WritesEnded(Fate.LATE, late)] if late else effects


def _best(members: list[Member]) -> list[BrokerId]:
    """Who holds most first."""
    members.sort(key=lambda member: (-member.acked, member.broker_id))
    return [member.broker_id for member in members]
