"""Carries out what the replica core decides, on real disks, sockets and controllers.

The core is fed one event at a time and its effects are carried out in order before the next event,
so an effect that has an immediate result (a cut) cannot overtake its neighbours. Work that can be
shared is shared per turn of the event loop: one flush request and one round of feeding links,
however many sends that turn brought. First come the members that producers wait for, then the
flush request, then replicas that are behind (``ha/feeding.py``).

A master's clients wait for what is confirmed, so it is dispatched at once. On a replica nobody
does: there it is dispatched behind the flush request and the acknowledgement, which others wait
for, and in larger pieces: when ``DISPATCH_BYTES`` are due, at each tick, and before the role or the
log changes. Where replicas serve reads, somebody does: then the master tells them of confirm at
once, and they dispatch in the same turn.

Nothing is decided here. What it refuses: to go on after the disk failed, or after the core asked
for something the store refuses; such an error is handed to ``failed`` and ends the process.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from gantry_protocol.errors import NO_ROOM, GantryError, RecordError
from gantry_protocol.process import log
from gantry_protocol.types import Epoch, Offset

from gantry_broker.control.agent import ControlAgent
from gantry_broker.ha.feeding import Feeder
from gantry_broker.ha.links import ReplicationLinks
from gantry_broker.log import DerivedLostError, DiskFullError
from gantry_broker.log.checked import DamagedError
from gantry_broker.member import lineage_file
from gantry_broker.member.pool import InOrder
from gantry_broker.member.shared_resources import SharedResources
from gantry_broker.queues import MessageStore
from gantry_broker.replica import ReplicaCore, StoredState
from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev
from gantry_broker.replica.effects import Fate
from gantry_broker.replica.messages import Ack, Message, Truncate

DISPATCH_BYTES = 128 * 1024
HELD_BACK_MS = 10_000  # until a master whose log is damaged serves what it can read of it
SAVE_AGAIN_S = 1.0  # a state that found no room on the disk

_log = log.get("replica")


class RoleObserver(Protocol):
    """An observer of the core's roles; all calls come between two events."""

    def promoted(self, epoch: Epoch, start: Offset) -> None:
        """This broker serves from now on."""

    def held_back(self) -> None:
        """It is the master, and does not serve yet: another member may have what is damaged."""

    def demoted(self, writes: Sequence[object]) -> None:
        """It does not any more; ``writes`` waited, and end with it."""

    def drained(self, reason: str) -> None:
        """Nothing more is gained by staying."""

    def stuck_at(self, effect: fx.Stuck) -> None:
        """A person must look."""

    def cut_off(self, effect: fx.CutOff) -> None:
        """Another master may have been elected: take nothing from clients, and let them go."""

    def in_touch(self) -> None:
        """That is over, and this is the master still."""

    def giving_way(self) -> None:
        """Somebody will be asked to take over: append what is only in memory yet."""

    def ticked(self) -> None:
        """Time has passed."""


class ReplicaShell:
    """The event loop around one replica core.

    Args:
        core: decides.
        store: the log and what is derived from it.
        directory: where the lineage file is.
        agent: speaks to the controllers.
        observer: is told of role changes.
        answer: gets writes that ended, once what is confirmed can be read.
        shared: the process's clock and threads.
        failed: called with the error that ends this broker.

    Attributes:
        on_flushed: told of the end of what is on the disk; None while nobody asks.
    """

    def __init__(
        self,
        core: ReplicaCore,
        store: MessageStore,
        directory: Path,
        agent: ControlAgent,
        observer: RoleObserver,
        answer: Callable[[Fate, Sequence[object]], None],
        shared: SharedResources,
        failed: Callable[[BaseException], None],
    ) -> None:
        """Nothing happens before ``start``."""
        self.core = core
        self.links: ReplicationLinks | None = None
        self.on_flushed: Callable[[Offset], None] | None = None
        self.cut_offs = 0
        self.disk_silences = 0
        self.reliefs = 0  # masterships to be given away for want of room
        self._store = store
        self._directory = directory
        self._agent = agent
        self._observer = observer
        self._answer = answer
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._events: deque[ev.Event] = deque()
        self._stepping = False
        self._ended = False
        self._turn_due = False
        self._flush_due = False
        self._newest_state = 0  # token of the state that was to be saved last
        self._disk_is_silent = False
        self._confirmed = store.dispatched  # below is to be dispatched
        self._saver = InOrder(shared.savers)
        self._ticker = shared.ticker
        self._disk_space = shared.disk_space
        self._room = (False, False)
        self._held_back: tuple[Epoch, Offset] | None = None  # a mastership that does not serve yet
        self._held_until_ms = 0
        self._feeder = Feeder(core, store, self._next_turn)

    @property
    def now_ms(self) -> int:
        """The core's clock."""
        return int(self._loop.time() * 1000)

    def start(self, links: ReplicationLinks) -> None:
        """Begin to tick, and to take what the links deliver."""
        self.links = self._feeder.links = links
        links.deliver = self.step
        self._ticker.add(self._tick)

    def stop(self) -> None:
        """Take no more events; what is being saved is saved."""
        self._ended = True
        self._ticker.remove(self._tick)
        self._feeder.stop()
        self._saver.wait()

    # ---- events

    def step(self, event: ev.Event) -> None:
        """Feed one event; from within an effect it waits for the effects before it."""
        self._events.append(event)
        if self._stepping or self._ended:
            return
        self._stepping = True
        try:
            while self._events and not self._ended:
                next_event = self._fitting(self._events.popleft())
                for effect in self.core.step(next_event, self.now_ms):
                    self._carry_out(effect)
        except GantryError as error:
            self.fail(error)
        finally:
            self._stepping = False

    def _fitting(self, event: ev.Event) -> ev.Event:
        """``event``, or the refusal of a link that acknowledges a part of a record.

        The core knows no records; what it confirms is dispatched, and would be found damaged.
        """
        if isinstance(event, ev.Received) and isinstance(event.message, Ack):
            end = event.message.flushed_end
            if end > self.core.log.confirm and self._is_in_a_record(end):
                return ev.LinkRefused(event.link, f"it acknowledges {end}, inside a record")
        return event

    def _is_in_a_record(self, offset: Offset) -> bool:
        log = self._store.log
        return log.log_start < offset < log.end and not log.is_boundary(offset)

    def fail(self, error: BaseException) -> None:
        """The member cannot go on."""
        if not self._ended:
            self._ended = True
            self._failed(error)

    def _tick(self) -> None:
        if self._ended:
            return
        self._look_at_room()
        self.step(ev.Tick())
        self._guarded(self._dispatch)
        self._guarded(self._look_at_damage)
        self._observer.ticked()

    def appended(self, write: object | None = None) -> None:
        """The master's own append has moved the end of the log; ``write`` waits for its fate."""
        self.core.appended(self._store.log.end, write, self.now_ms)
        self._flush_due = True
        self._next_turn()

    # ---- effects

    def _carry_out(self, effect: fx.Effect) -> None:
        links = self.links
        match effect:
            case fx.Send(link=link, message=message):
                self._send(link, message)
            case fx.AppendLog(offset=offset, data=data):
                self._append(offset, data)
            case fx.Feed():
                self._next_turn()
            case fx.ConfirmMoved():
                self._confirm(effect)
            case fx.WritesEnded(fate=fate, writes=writes):
                self._answer(fate, writes)
            case fx.OpenLink(link=link, address=address):
                if links is not None:
                    links.open(link, address)
            case fx.CloseLink(link=link, reason=reason):
                _log.info("link ended", link=link, reason=reason)
                if links is not None:
                    links.close(link)
            case fx.SaveState(token=token, state=state):
                self._save(token, state)
            case fx.CutLog(point=point, reset=reset):
                self._cut(point, reset=reset)
            case _:
                self._carry_out_role(effect)

    def _send(self, link: int, message: Message) -> None:
        if isinstance(message, Truncate) and self._is_in_a_record(message.point):
            reason = f"its log agrees with ours up to {message.point}, inside a record"
            self.step(ev.LinkRefused(link, reason))
        elif self.links is not None:
            self.links.send(link, message)

    def _carry_out_role(self, effect: fx.Effect) -> None:
        agent = self._agent
        match effect:
            case fx.Promoted(epoch=epoch, start=start):
                self._promoted(epoch, start)
            case fx.Demoted(epoch=epoch, writes=writes):
                self._demoted(epoch, writes)
            case fx.Propose():
                _log.info("proposing", set=sorted(effect.sync_state_set), attempt=effect.attempt)
                agent.propose(effect, self.step)
            case fx.SetChanged(sync_state_set=members):
                _log.info("sync-state set", set=sorted(members), epoch=self.core.epoch)
            case fx.AskView(reason=reason):
                _log.debug("asking for the group", reason=reason)
                agent.refresh()
            case fx.AskElection():
                agent.elect()
            case fx.HandOver(target=target, epoch=epoch):
                _log.info("handing over", target=target, epoch=epoch)
                agent.hand_over(effect, self._handed_over)
            case fx.DrainEnded(reason=reason):
                self._observer.drained(reason)
            case fx.DiskSilent() | fx.DiskAnswers() | fx.DiskFull() | fx.DiskHasRoom():
                self._note_disk(effect)
            case fx.CutOff() | fx.InTouch() | fx.Slow():
                self._note_others(effect)
            case fx.Stuck():
                _log.error(effect.code, reason=effect.sentence)
                self._observer.stuck_at(effect)
            case _:
                raise AssertionError(f"unknown effect {effect!r}")

    def _demoted(self, epoch: Epoch, writes: Sequence[object]) -> None:
        _log.info("demoted", epoch=epoch)
        held_back, self._held_back = self._held_back, None
        self._store.drop_mastership()
        if held_back is None:
            self._observer.demoted(writes)

    def _promoted(self, epoch: Epoch, start: Offset) -> None:
        _log.info("promoted", epoch=epoch, start=start, confirm=self.core.log.confirm)
        self._dispatch()
        if self._store.lost:
            raise DerivedLostError(f"nobody can serve from here: {self._store.lost}")
        self._store.take_mastership()
        self._held_back, self._held_until_ms = (epoch, start), self.now_ms + HELD_BACK_MS
        damage = self._store.in_the_way
        if damage is not None:
            _log.error(
                "the log is damaged where its queues are not made yet: another member is to serve",
                file=damage.path,
                start=damage.start,
                end=damage.end,
                reason=damage.reason,
                held_back_ms=HELD_BACK_MS,
            )
            self._observer.held_back()
        self._serve()

    def _serve(self) -> None:
        """Serve as the master; with damage in the way only after a while, and only what is sound.

        Who has the damaged bytes may be among those that attach now. What is told to clients
        without these bytes is not wrong, but it ends too early, and nothing can be written.
        """
        if self._held_back is None:
            return
        if self._store.in_the_way is not None:
            if self.now_ms < self._held_until_ms:
                return
            _log.error("nobody took over: only what stands before the damage is served")
        serving, self._held_back = self._held_back, None
        self._observer.promoted(*serving)

    def _look_at_damage(self) -> None:
        """Go on behind what was damaged and is mended."""
        if self._store.is_way_free:
            self._dispatch()
            if self._store.is_master and self._store.in_the_way is not None:
                self._store.take_mastership()
        self._serve()

    def _note_disk(
        self, effect: fx.DiskSilent | fx.DiskAnswers | fx.DiskFull | fx.DiskHasRoom
    ) -> None:
        if isinstance(effect, fx.DiskFull | fx.DiskHasRoom):
            self._note_room(effect)
            return
        if isinstance(effect, fx.DiskAnswers):
            _log.info("the disk answers again", epoch=self.core.epoch)
            self._disk_is_silent = False
            return
        _log.error("the disk does not answer", waited_ms=effect.waited_ms, reason=effect.sentence)
        self.disk_silences += not self._disk_is_silent
        self._disk_is_silent = True

    def _note_others(self, effect: fx.CutOff | fx.InTouch | fx.Slow) -> None:
        epoch = self.core.epoch
        if isinstance(effect, fx.Slow):
            _log.warning(
                "a slow member left the set, and has to keep up before it comes back",
                broker_id=effect.broker_id,
                waited_ms=effect.recent_ms,
                probation_ms=effect.probation_ms,
            )
            return
        if isinstance(effect, fx.InTouch):
            _log.info("in touch again, and the master still", epoch=epoch)
            self._observer.in_touch()
            return
        self.cut_offs += 1
        _log.error(
            "cut off, so another master may have been elected: taking nothing from clients",
            epoch=epoch,
            silent=list(effect.silent),
            controllers_ms=effect.controllers_ms,
        )
        self._observer.cut_off(effect)

    def _note_room(self, effect: fx.DiskFull | fx.DiskHasRoom) -> None:
        if isinstance(effect, fx.DiskHasRoom):
            _log.info("the disk has room again", epoch=self.core.epoch)
            return
        _log.error("the disk is full", epoch=self.core.epoch, reason=effect.sentence)
        if effect.gives_way:
            self.reliefs += 1
            self._observer.giving_way()

    def _look_at_room(self) -> None:
        """Tell the core what it does not know yet."""
        disk = self._disk_space
        room = (disk.refusing, disk.has_room)
        if room != self._room:
            self._room = room
            self.step(ev.RoomChanged(is_full=disk.refusing, has_room=disk.has_room))

    def _handed_over(self, end: ev.HandOverFinished) -> None:
        self.step(end)

    def _append(self, offset: Offset, data: bytes) -> None:
        """Write the master's bytes; what cannot be written ends the link and changes nothing."""
        if offset != self._store.log.end:
            return  # an earlier batch of this burst was refused
        try:
            self._store.log.append_raw(offset, data)
        except (RecordError, DiskFullError) as error:
            if isinstance(error, DiskFullError):
                self._disk_space.met_full()
            _log.error("the master's bytes were not written", offset=offset, reason=error)
            self.step(ev.LogRefused(self._store.log.end, str(error)))
            return
        self._flush_due = True
        self._next_turn()

    def _confirm(self, moved: fx.ConfirmMoved) -> None:
        self._confirmed = moved.confirm
        if self.core.serving is not None:
            # Whoever is acknowledged finds its record. An error on the way ends the process, and
            # answers nobody: whoever passes clients on asks the next master.
            self._dispatch()
            # What cannot be read here is on the disks of the set: not lost, and not acknowledged.
            is_damaged = self._store.in_the_way and self._store.dispatched < moved.confirm
            self._answer(Fate.LATE if is_damaged else moved.fate, moved.writes)
            if self._store.topics.has_readers:
                for effect in self.core.confirm_news():
                    self._carry_out(effect)
        elif self._is_dispatch_due:
            self._next_turn()

    @property
    def _is_dispatch_due(self) -> bool:
        due_bytes = self._confirmed - self._store.dispatched
        return due_bytes >= (1 if self._store.topics.has_readers else DISPATCH_BYTES)

    def _dispatch(self) -> None:
        """Make visible what is confirmed and not dispatched yet.

        Who finds damage on the way goes on from there once it is repaired.
        Where the rows for it are lost the log goes on, so that a master can be relieved.
        """
        if self._confirmed <= self._store.dispatched:
            return
        try:
            if not self._store.lost:
                self._store.dispatch(self._confirmed)
        except GantryError as error:
            if isinstance(error, DamagedError):
                return  # it is in the way, and whoever is the master with it gives way
            if not self._store.lost:
                raise

    def _cut(self, point: Offset, *, reset: bool) -> None:
        self._dispatch()
        _log.warning("cutting the log", point=point, end=self._store.log.end, reset=reset)
        if reset:
            self._store.reset(point)
        else:
            self._store.truncate(point)
        self.step(ev.LogCut())

    def _save(self, token: int, state: StoredState) -> None:
        """In their order, and nobody waits for them."""
        if self._ended or token < self._newest_state:
            return
        self._newest_state = token
        saving = self._saver.submit(partial(lineage_file.save, self._directory, state))
        future = asyncio.wrap_future(saving, loop=self._loop)
        future.add_done_callback(partial(self._saved, token, state))

    def _saved(self, token: int, state: StoredState, future: "asyncio.Future[None]") -> None:
        """It is durable; or it waits for room, unless a newer one stands for it by then."""
        if future.cancelled() or self._ended:
            return
        error = future.exception()
        if error is None:
            self.step(ev.StateSaved(token))
        elif isinstance(error, OSError) and error.errno in NO_ROOM:
            _log.error("no room for the lineage, asking again", reason=error, wait_s=SAVE_AGAIN_S)
            self._loop.call_later(SAVE_AGAIN_S, self._save, token, state)
        else:
            self.fail(error)

    # ---- once per turn of the loop

    def _next_turn(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        self._guarded(self._work)

    def _guarded(self, work: Callable[[], None]) -> None:
        if self._ended:
            return
        try:
            work()
        except GantryError as error:
            self.fail(error)

    def _work(self) -> None:
        self._feeder.keep_up()
        if self._flush_due:
            self._flush_due = False
            self._store.log.flush_soon(partial(self._flushed, self.core.log.cuts))
        self._feeder.fill()
        if self._is_dispatch_due:
            self._dispatch()

    def _flushed(self, cuts: int, flushed: Offset) -> None:
        if self.on_flushed is not None:
            self.on_flushed(flushed)
        self.step(ev.LogFlushed(flushed, cuts))

    def feed(self) -> None:
        """Send log bytes on every link that can take some; what exceeds its share follows soon."""
        self._feeder.keep_up()
        self._feeder.fill()
