"""``ReplicaCore``: one replica of one broker group as a deterministic machine.

Events in, effects out; no I/O, no clock, no randomness. The roles::

    IDLE       a view names another master                   -> FOLLOWING
    IDLE       a view names this start of this broker        -> PROMOTING
    PROMOTING  (epoch, start) is durable                     -> MASTER
    any        a view of a newer epoch                       -> IDLE, then as above
    any        a view names this broker as fenced            -> FENCED, until one does not
    any        lineage newer than the group, or a cut below
               confirm: a person must look                   -> STUCK

A master, promoted or about to be, whose disk does not answer asks for another one (``stall``). So
does one whose disk is full, and one whose log is damaged, which it can repair as a replica only.

Rules protected here:

* One master per epoch (H1, incarnation): an epoch is served only by the start of the process it was
  given to. A broker that restarts finds its old epoch still on record and does not serve under it.
* Epochs never fall: a view of an older epoch is ignored, however late it arrives. At the first view
  of all, an older epoch means that the controller has lost its memory: ``ControllerBehind``.
* A master appends only after (epoch, start) is durable (H4): PROMOTING accepts no write.
* A role change never overtakes a cut of the log; it waits for it.
* A fenced member takes no byte: it follows nobody, its master refuses it, its log stays as it was.
"""

from gantry_protocol.types import BrokerId, Epoch, EpochEntry, Offset

from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev
from gantry_broker.replica.contact import is_cut_off
from gantry_broker.replica.drain import Departure
from gantry_broker.replica.effects import Fate
from gantry_broker.replica.following import Following, Stage
from gantry_broker.replica.lineage import LogFacts
from gantry_broker.replica.master import Batch, Mastership
from gantry_broker.replica.messages import Ack, Append, Farewell, Hello, Message, Truncate
from gantry_broker.replica.saver import Saver
from gantry_broker.replica.stall import (
    GIVES_WAY,
    PATIENCE_MAX,
    STAYS_FULL,
    DamageRelief,
    DiskWatch,
    Relief,
    Room,
)
from gantry_broker.replica.values import DEFAULT_LIMITS, ControllerView, Limits, Role

ASK_ELECTION_MS = 300
WAITING_HELLOS_MAX = 16
REFUSED_WAIT_MS = 1_000  # bytes that did not get into the log will hardly do so at once


class ReplicaCore:
    """One replica; see the module's description."""

    def __init__(
        self,
        *,
        me: BrokerId,
        incarnation: str,
        log: LogFacts,
        now_ms: int,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """A replica that knows its own log and nothing of the group yet."""
        self.me = me
        self.incarnation = incarnation
        self.log = log
        self.role = Role.IDLE
        self.view: ControllerView | None = None
        self.master: Mastership | None = None
        self.following: Following | None = None
        self.draining = False
        self.stuck: fx.Stuck | None = None
        self._limits = limits
        self._saver = Saver()
        self._promotion_token = 0
        self._cutting: fx.CutLog | None = None
        self._deferred: ControllerView | None = None
        self._waiting: dict[int, Hello] = {}
        self._links_opened = 0
        self._now_ms = now_ms
        self._controllers_ms = now_ms  # when they were last known to speak to us
        self._ask_election_at_ms = now_ms
        self._departure = Departure(limits)
        self.disk = DiskWatch(limits, now_ms)
        self.disk_says = ""
        self._damage = DamageRelief()
        self.room = Room(is_full=False, has_room=False)
        self.room_says = ""
        self._relief = Relief(limits)
        self._promotion_patience_ms = limits.disk_wait_ms

    # ---- what others may read

    @property
    def epoch(self) -> Epoch:
        """The newest epoch this replica has acted in."""
        return self.log.epoch

    @property
    def serving(self) -> Mastership | None:
        """The mastership under which clients are served; None while this is not the master."""
        return self.master if self.role is Role.MASTER else None

    @property
    def streaming(self) -> bool:
        """Whether this replica is attached to the master and receives its log."""
        return self.following is not None and self.following.stage is Stage.STREAMING

    def controllers_silent_ms(self, now_ms: int) -> int:
        """The time since the controllers were last known to speak to us."""
        return now_ms - self._controllers_ms

    def confirm_news(self) -> list[fx.Effect]:
        """See ``Mastership.confirm_news``."""
        return [] if self.serving is None else self.serving.confirm_news(self._now_ms)

    def next_batch(self, link: int) -> Batch | None:
        """The next range to send on ``link``; see ``Mastership.next_batch``."""
        return None if self.master is None else self.master.next_batch(link)

    def sent(self, link: int, batch: Batch, data: bytes) -> Append:
        """The message that carries ``data``; see ``Mastership.sent``."""
        assert self.master is not None
        return self.master.sent(link, batch, data, self._now_ms)

    # ---- inputs

    def appended(self, end: Offset, write: object | None = None, now_ms: int = 0) -> None:
        """The master has appended up to ``end``; the log's facts are never older than the log.

        Args:
            end: of the log.
            write: whose bytes end there, and whose fate an effect tells; None for a blank, which
                ends a file.
            now_ms: from when on it waits. Not the time of the last event: a process that stood
                still would find it late at once.
        """
        master = self.serving
        assert master is not None, "only a serving master appends"
        self.log.appended(end)
        if write is not None:
            master.pending.add(end, now_ms, write)

    def stopped(self) -> list[fx.WritesEnded]:
        """The process ends: nobody here will know what becomes of the writes that wait."""
        return [] if self.master is None else self.master.end_writes(Fate.DEPOSED)

    def step(self, event: ev.Event, now_ms: int) -> list[fx.Effect]:
        """Take one event at ``now_ms`` (milliseconds, never falling) and decide."""
        gap_ms = now_ms - self._now_ms
        self._now_ms = max(now_ms, self._now_ms)
        if self.role is Role.STUCK:
            return []
        if gap_ms > self._limits.pause_ms:
            self._excuse(gap_ms)
        match event:
            case ev.Received(link=link, message=message):
                return self._received(link, message)
            case ev.LogFlushed(flushed=flushed, cuts=cuts):
                return self._flushed() if self.log.flush_done(flushed, cuts) else []
            case ev.LogRefused(end=end, reason=reason):
                return self._append_refused(end, reason)
            case ev.Tick():
                return self._tick()
            case ev.ViewLearned(view=view):
                return self._learn(view)
            case ev.StateSaved(token=token):
                return self._saved(token)
            case ev.LogCut():
                return self._cut_done()
            case ev.LinkOpened() | ev.LinkClosed():
                return self._link_event(event)
            case _:
                return self._other_event(event)

    def _other_event(self, event: ev.Event) -> list[fx.Effect]:
        match event:
            case ev.ControllersAnswered(asked_ms=asked_ms):
                self._controllers_ms = max(self._controllers_ms, min(asked_ms, self._now_ms))
                return self._look_around()
            case ev.LinkRefused(link=link, reason=reason):
                return self._forget_link(link, reason)
            case ev.LogTrimmed(start=start):
                return self._trimmed(start)
            case ev.RoomChanged(is_full=is_full, has_room=has_room):
                self.room = Room(is_full, has_room)
                if self.following is not None:
                    self.following.has_room = has_room
                return []
            case ev.DrainRequested():
                return self._begin_drain()
            case ev.LogDamaged(start=start):
                if self.serving is not None:
                    self._damage.found(start)
                return []
            case ev.ProposalFinished():
                master = self.master
                return [] if master is None else master.proposal_finished(event, self._now_ms)
            case ev.HandOverFinished():
                self._hand_over_finished(event)
                return []
            case _:
                raise AssertionError(f"unknown event {event!r}")

    def _hand_over_finished(self, end: ev.HandOverFinished) -> None:
        drain = None if self.master is None else self.master.drain
        if drain is not None:
            drain.finished(end, self._now_ms)
            return
        self._relief.finished(end, self._now_ms)
        if not end.accepted:
            self._damage.refused()

    def _trimmed(self, start: Offset) -> list[fx.Effect]:
        """The log begins later now; who still needs what is gone has to call again, and reset."""
        self.log.trimmed(start)
        below = [] if self.master is None else self.master.links_below(start)
        reason = f"the log begins at {start} now, and this replica has not come that far"
        return [effect for link in below for effect in self._forget_link(link, reason)]

    # ---- links

    def _received(self, link: int, message: Message) -> list[fx.Effect]:
        following = self.following
        if following is not None and following.link == link:
            match message:
                case Append():
                    return following.append(message, self._now_ms)
                case Truncate():
                    return self._remember_cut(following.truncate(message, self._now_ms))
                case Farewell():
                    return [fx.CloseLink(link, message.reason), *following.closed(self._now_ms)]
                case _:
                    return following.leave(
                        f"a {type(message).__name__} from the master", self._now_ms
                    )
        match message:
            case Hello():
                return self._hello(link, message)
            case Ack() if self.master is not None:
                return self.master.ack(link, message, self._now_ms)
            case _:
                return self._forget_link(link, f"a {type(message).__name__} out of turn")

    def _hello(self, link: int, hello: Hello) -> list[fx.Effect]:
        """Serve it, let it wait for our own promotion, or send it back to ask the controller."""
        if self.view is not None and hello.broker_id in self.view.fenced:
            return self._forget_link(link, f"broker {hello.broker_id} is fenced")
        if self.serving is not None and hello.epoch == self.epoch:
            return self.serving.hello(link, hello, self._now_ms)
        promoting = self.role is Role.PROMOTING and hello.epoch == self.epoch
        if (promoting or hello.epoch > self.epoch) and len(self._waiting) < WAITING_HELLOS_MAX:
            self._waiting[link] = hello
            return [] if promoting else [fx.AskView(f"a replica knows of epoch {hello.epoch}")]
        return self._forget_link(link, f"not the master of epoch {hello.epoch}")

    def _forget_link(self, link: int, reason: str) -> list[fx.Effect]:
        self._waiting.pop(link, None)
        if self.master is not None:
            self.master.closed(link, self._now_ms)
        return [
            fx.Send(link, Farewell(epoch=self.epoch, reason=reason)),
            fx.CloseLink(link, reason),
        ]

    def _link_event(self, event: ev.LinkOpened | ev.LinkClosed) -> list[fx.Effect]:
        following = self.following
        mine = following is not None and following.link == event.link
        if isinstance(event, ev.LinkOpened):
            if following is None or not mine:
                return [fx.CloseLink(event.link, "no longer wanted")]
            return following.opened(self._now_ms)
        self._waiting.pop(event.link, None)
        if following is not None and mine:
            return following.closed(self._now_ms)
        if self.master is not None:
            self.master.closed(event.link, self._now_ms)
        return []

    # ---- roles

    def _learn(self, view: ControllerView) -> list[fx.Effect]:
        if self._cutting is not None:
            # The next role begins at the log's end, which is about to become another one: it waits
            # for the cut. Only the newest view is kept, since the others would change nothing then.
            if self._deferred is None or self._deferred.is_older_than(view):
                self._deferred = view
            return []
        if view.master_epoch < self.epoch:
            # Of the views of one process an older one is merely late. The first one cannot be late:
            # what this volume has acted in, the controllers no longer know.
            return self._behind(view) if self.view is None else []
        known = self.view
        # The same epoch must not begin twice: a second Mastership of it would start elsewhere.
        if known is not None and known.same_mastership(view):
            return self._learn_more(known, view)
        self.view = view
        # First the old role ends, its writes with it: from here on nobody can be acknowledged under
        # the old epoch. Then the epoch rises, before anything is sent or saved in the new role, for
        # Hello and StoredState carry it; a Hello of the old epoch is refused from here on.
        effects = self._end_role("a newer epoch began")
        self.log.epoch = view.master_epoch
        if view.master_id is None or self.role is Role.FENCED:
            return effects
        if view.master_id != self.me:
            return effects + self._follow(view)
        if view.master_incarnation == self.incarnation:
            return effects + self._promote(view)
        # An earlier start of this broker won, and is gone. What it appended and did not flush may
        # be gone with it while replicas have it, under this epoch: nobody serves that again (H1).
        # IDLE asks for an election.
        return effects

    def _learn_more(self, known: ControllerView, view: ControllerView) -> list[fx.Effect]:
        """Another view of the same epoch: the set may have changed, the master may not."""
        if view.sync_state_set_epoch < known.sync_state_set_epoch:
            return []
        self.view = view
        fenced = self.me in view.fenced
        if fenced or self.role is Role.FENCED:
            ended = self._end_role("this member is fenced")
            return ended if fenced else ended + self._follow(view)
        if self.master is not None:
            return self.master.learn(view, self._now_ms)
        moved = view.master_ha_address != known.master_ha_address
        if self.role is Role.FOLLOWING and moved:
            return self._end_role("the master's address changed") + self._follow(view)
        return []

    def _behind(self, view: ControllerView) -> list[fx.Effect]:
        return self._stick(
            "ControllerBehind",
            f"this replica has acted in epoch {self.epoch} but the controller knows the group only "
            f"up to epoch {view.master_epoch}; restore the controller's data, or empty this volume "
            f"if its records are not needed",
        )

    def _stick(self, code: str, sentence: str) -> list[fx.Effect]:
        effects = self._end_role(sentence)
        self.role = Role.STUCK
        self.stuck = fx.Stuck(code, sentence)
        return [*effects, self.stuck]

    def _end_role(self, reason: str) -> list[fx.Effect]:
        """Forget everything that belongs to the epoch that ends."""
        links: list[int] = []
        effects: list[fx.Effect] = []
        if self.master is not None:
            links += self.master.links()
            if self.role is Role.MASTER:
                effects.append(fx.Demoted(self.master.epoch, self.master.pending.end()))
        if self.following is not None and self.following.link is not None:
            links.append(self.following.link)
        self.master = self.following = None
        self._promotion_token = 0
        self._forget_relief()
        self._damage.forget()
        fenced = self.view is not None and self.me in self.view.fenced
        self.role = Role.FENCED if fenced else Role.IDLE
        return effects + [fx.CloseLink(link, reason) for link in links]

    def _forget_relief(self) -> None:
        """A promotion that was given away is no hint that another disk is faster.

        If all are as slow, passing the epoch round gets nobody anywhere: wait longer each time.
        """
        if self.role is Role.PROMOTING and self._relief.has_asked:
            longest_ms = PATIENCE_MAX * self._limits.disk_wait_ms
            self._promotion_patience_ms = min(2 * self._promotion_patience_ms, longest_ms)
        self._relief = Relief(self._limits)

    def _follow(self, view: ControllerView) -> list[fx.Effect]:
        self.role = Role.FOLLOWING
        self.following = Following(
            self.me, self.incarnation, view, self.log, self._saver, self._limits, self._now_ms
        )
        self.following.draining = self.draining
        self.following.has_room = self.room.has_room
        if self.draining:
            self._departure.begin(self._now_ms)
        waiting, self._waiting = self._waiting, {}
        effects = [
            effect
            for link in waiting
            for effect in self._forget_link(link, f"broker {view.master_id} is the master")
        ]
        return effects + self._reopen()

    def _reopen(self) -> list[fx.Effect]:
        if self.following is None or self._cutting is not None or self.disk.is_silent:
            return []  # a cut would wait for the disk, and everything else for the cut
        effects = self.following.reopen(-self._links_opened - 1, self._now_ms)
        if effects:
            self._links_opened += 1
        return effects

    def _promote(self, view: ControllerView) -> list[fx.Effect]:
        """Make (epoch, end) durable first; until then nothing is written and nobody is answered."""
        self.role = Role.PROMOTING
        # The epoch begins at the end of the log, not at what is flushed or confirmed: bytes behind
        # those were written under an older epoch, and must be found under that one in the lineage
        # (H3). They are confirmed with the first acknowledgements of this epoch.
        self.log.begin_epoch(EpochEntry(view.master_epoch, self.log.end))
        # It starts at the same end as its line: PROMOTING takes no write in between.
        self.master = Mastership(
            self.me, self.incarnation, view, self.log, self._limits, self._now_ms
        )
        # Saved last, when the state holds both the epoch and its line. Only this very save makes it
        # the master (``_saved``): an earlier one that ends now says nothing of this epoch (H4).
        save = self._saver.save(self.log.stored())
        self._promotion_token = save.token
        return [save]

    # ---- what ends

    def _saved(self, token: int) -> list[fx.Effect]:
        self._saver.done(token)
        if self.following is not None:
            return self.following.saved(token, self._now_ms)
        if self.master is None or token != self._promotion_token:
            return []
        self._promotion_token = 0
        self._promotion_patience_ms = self._limits.disk_wait_ms
        self.role = Role.MASTER
        master = self.master
        # First of all: the store learns which numbers come next before a Hello, a drain or a review
        # can confirm anything.
        effects: list[fx.Effect] = [fx.Promoted(master.epoch, master.start)]
        waiting, self._waiting = self._waiting, {}
        for link, hello in waiting.items():
            effects += self._hello(link, hello)
        if self.draining:
            effects += master.begin_drain(self._now_ms)
        return effects + master.review(self._now_ms)

    def _remember_cut(self, effects: list[fx.Effect]) -> list[fx.Effect]:
        """Note an outgoing cut; a refusal that is dangerous to retry sticks."""
        for effect in effects:
            if isinstance(effect, fx.CutLog):
                self._cutting = effect
            elif isinstance(effect, fx.Stuck):
                kept = [other for other in effects if other is not effect]
                return kept + self._stick(effect.code, effect.sentence)
        return effects

    def _cut_done(self) -> list[fx.Effect]:
        cut, self._cutting = self._cutting, None
        if cut is None:
            return []
        # The facts follow the disk, never the other way round: until now they told of bytes that
        # may still have been there after a power cut. ``cut`` counts, so flushes that were asked
        # for before it are not believed.
        self.log.cut(cut.point, reset=cut.reset)
        # The handshake goes on before the deferred view: if that ends this role, what it has begun
        # (a save of the lineage that fits the cut log) is as valid for the next one.
        effects = [] if self.following is None else self.following.cut_done()
        deferred, self._deferred = self._deferred, None
        return effects if deferred is None else effects + self._learn(deferred)

    def _flushed(self) -> list[fx.Effect]:
        if self.following is not None:
            return self.following.flushed()
        return [] if self.serving is None else self.serving.advance()

    def _append_refused(self, end: Offset, reason: str) -> list[fx.Effect]:
        """Bytes did not get into our log: forget them, and ask for them again later."""
        self.log.append_refused(end)
        if self.following is None or self.following.link is None:
            return []
        return self.following.leave(reason, self._now_ms, wait_ms=REFUSED_WAIT_MS)

    # ---- time and leaving

    def _excuse(self, pause_ms: int) -> None:
        """Ticks come every few milliseconds: so long a gap means that this process stood still."""
        self.disk.excuse(pause_ms)
        if self.master is not None:
            self.master.excuse(pause_ms, self._now_ms)
        if self.following is not None:
            self.following.excuse(pause_ms)

    def _tick(self) -> list[fx.Effect]:
        effects = self._look_at_disk() + self._look_at_room() + self._look_around()
        if self.serving is not None:
            effects += self.serving.tick(self._now_ms)
        if self.following is not None:
            effects += self.following.tick(self._now_ms)
        return effects + self._reopen() + self._ask_election() + self._replica_drain()

    def _look_around(self) -> list[fx.Effect]:
        """Step back while another master may have been elected, and say so once."""
        master = self.serving
        if master is None:
            return []
        controllers_ms = self._now_ms - self._controllers_ms
        if controllers_ms < self._limits.cut_off_ms and not master.cut_off:
            return []  # mostly
        silent = master.silent(self._now_ms)
        cut_off = is_cut_off(controllers_ms, silent, self._limits)
        if cut_off == master.cut_off:
            return []
        master.cut_off = cut_off
        if not cut_off:
            return [fx.InTouch()]
        return [fx.CutOff(silent, controllers_ms), *master.end_writes(Fate.CUT_OFF)]

    def _look_at_disk(self) -> list[fx.Effect]:
        """Say once what is done about a disk that does not answer, and do it."""
        self.disk.look(self.log, self._saver, self._now_ms)
        heirs: list[BrokerId] = []
        says = ""
        if self._damage.is_due and self.serving is not None and self.serving.drain is None:
            heirs = self._damage.heirs(self.serving.holders())
        if self.disk.is_silent:
            heirs = self._heirs()
            says = _what_is_done(heirs, is_master=self.master is not None)
        if self.master is not None:
            self.master.disk_is_silent = self.disk.is_silent
        effects: list[fx.Effect] = []
        if says != self.disk_says:
            said = fx.DiskSilent(self.disk.waited_ms, says) if says else fx.DiskAnswers()
            effects.append(said)
            self.disk_says = says
        for hand_over in self._relief.step(heirs, self.epoch, self._now_ms):
            if not self.disk.is_silent:
                self._damage.asked_for(hand_over.target)
            effects.append(hand_over)
        return effects

    def _look_at_room(self) -> list[fx.Effect]:
        """A master without room says so, and gives way to a member that has some.

        It asks once all that was written is confirmed: nobody's write is to end for this.
        """
        master = self.serving
        heirs: list[BrokerId] = []
        says = ""
        if master is not None and master.drain is None and self.room.is_full:
            heirs = [] if self.disk.is_silent else master.heirs_with_room()
            says = GIVES_WAY if heirs else STAYS_FULL
        if says != self.room_says:  # what is in memory only is written before anybody is asked
            self.room_says = says
            if says:
                return [fx.DiskFull(says, gives_way=bool(heirs))]
            return [] if self.room.is_full else [fx.DiskHasRoom()]
        if not heirs or self.log.confirm < self.log.end:
            return []
        return [*self._relief.step(heirs, self.epoch, self._now_ms)]

    def _heirs(self) -> list[BrokerId]:
        """Who is to be asked to take over; a master that leaves sees to that by itself."""
        if self.view is None or self.master is None or self.master.drain is not None:
            return []
        if self.role is Role.MASTER:
            return self.master.heirs()
        if self.disk.waited_ms < self._promotion_patience_ms:
            return []
        return sorted(self.view.sync_state_set - self.view.draining - {self.me})

    def _ask_election(self) -> list[fx.Effect]:
        if self.view is None or self.role is not Role.IDLE or self.draining:
            return []
        if self._now_ms < self._ask_election_at_ms or self._cutting is not None:
            return []
        self._ask_election_at_ms = self._now_ms + ASK_ELECTION_MS
        return [fx.AskElection()]

    def _begin_drain(self) -> list[fx.Effect]:
        if self.draining:
            return []
        self.draining = True
        self._departure.begin(self._now_ms)
        if self.serving is not None:
            return self.serving.begin_drain(self._now_ms)
        effects = [] if self.following is None else self.following.begin_drain()
        return effects + self._replica_drain()

    def _replica_drain(self) -> list[fx.Effect]:
        """A leaving replica goes once the master no longer counts on it, or soon anyway."""
        if self.master is not None:
            return []
        counted_on = self.following is not None and self.following.in_sync is not False
        return self._departure.step(self._now_ms, counted_on=counted_on)


def _what_is_done(heirs: list[BrokerId], *, is_master: bool) -> str:
    if heirs:
        return "a member that is in sync is asked to take over"
    if is_master:
        return "no member that is in sync can take over, so it stays the master and takes no write"
    return "it follows the master again once the disk answers"
