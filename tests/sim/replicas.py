"""A simulated broker: the real replica core over a simulated disk, links, and a controller.

Everything the shell of a broker does (carry out effects, keep an identity, register, heartbeat,
poll, feed links) is done here in the simplest way that keeps the shell's promises; what is tested
is the core and the promises. Clients, and the tables they need, are in ``sim.replica_clients``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from gantry_broker.replica import ControllerView, Limits, LogFacts, ReplicaCore
from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev
from gantry_broker.replica.messages import Ack
from gantry_broker.retention.core.rules import Facts, Kept, Need, Trim, decide
from gantry_controller.metadata.events import (
    AlterSyncStateSet,
    ApplyBrokerId,
    ElectMaster,
    Event,
    RegisterBroker,
)
from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import BrokerId, Epoch, Offset
from sim.controller_stub import CLUSTER, NAME, Heartbeat, Notice, Reply, Request
from sim.kernel.world import MS, SECOND, Violation
from sim.replica_clients import ClientObserver, Clients
from sim.replica_disk import SIZE, Identity, ReplicaDisk
from sim.tcp import Tcp

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_broker.replica import StoredState
    from sim.kernel.machine import Host

TICK_US = 20 * MS
HEARTBEAT_US = 300 * MS
POLL_US = SECOND
READ_US = 70 * MS
CHECKPOINT_US = 500 * MS
RETAIN_US = 90 * MS
FILE = 20 * SIZE
CALL_TIMEOUT_US = 500 * MS
UNREGISTERED = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
CONTROL_LINK_BASE = -1_000_000  # below every number the core uses for its own links
SIM_LIMITS = Limits(
    window_bytes=1_000 * SIZE, batch_bytes=40 * SIZE, gather_bytes=8 * SIZE, held_appends=64
)
DEFINITE = {
    ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
    ResponseCode.CONTROLLER_INVALID_MASTER,
    ResponseCode.CONTROLLER_INVALID_REPLICAS,
    ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
}


class Observer(ClientObserver, Protocol):
    """Who checks what brokers do; see ``sim.replica_world``."""

    min_in_sync: int
    cuts: bool

    @property
    def history(self) -> bytearray: ...
    def promoted(self, name: str, core: ReplicaCore, effect: fx.Promoted) -> None: ...
    def confirmed(self, name: str, core: ReplicaCore, old: Offset, data: bytearray) -> None: ...
    def vouched(self, name: str, core: ReplicaCore, ack: Ack) -> None: ...
    def went_back(self, name: str, before: int, after: int) -> None: ...
    def cut(self, name: str, core: ReplicaCore, point: Offset) -> None: ...
    def stuck(self, name: str, effect: fx.Stuck) -> None: ...
    def left(self, name: str) -> None: ...
    def failed(self, name: str) -> None: ...


class Broker:
    """One life of a broker's process.

    Attributes:
        begins_anew: its log is being thrown away.
    """

    def __init__(self, host: Host, observer: Observer, controllers: list[str]) -> None:
        self.host = host
        self.core: ReplicaCore | None = None
        self.disk = ReplicaDisk(host.disk)
        if observer.cuts:
            self.disk.may_be_cut()
        self.incarnation = f"{host.name}/{host.life}"
        self.writing = True
        self._observer = observer
        self._controllers = controllers
        self._facts: LogFacts | None = None
        self._identity: Identity | None = None
        self.clients = Clients(host, self.disk, observer)
        self._calls: dict[int, Callable[[Reply | None], None]] = {}
        self._numbers = 0
        self._control: int | None = None
        self._control_opened = 0
        self._flushing = self._flush_wanted = False
        self._trimming = self._cutting = self.begins_anew = False
        self._later: deque[ev.Event] = deque()
        self._tcp = Tcp(host, opened=self._opened, received=self._received, closed=self._closed)

    # ---- the process

    @property
    def now_ms(self) -> int:
        return self.host.clock_us // MS

    def start(self) -> None:
        self._facts = self.disk.recover()
        self.clients.recovered(self._facts)
        self._identity = self.disk.identity()
        self._every(TICK_US, self._tick)
        self._every(HEARTBEAT_US, self._beat)
        self._every(POLL_US, self._poll)
        self._every(self.host.rng.randint(2, 40) * MS, self._write)
        self._every(READ_US, self._read)
        self._every(CHECKPOINT_US, self.clients.checkpoint)
        if self._observer.cuts:
            self._every(RETAIN_US, self._retain)
        if self._identity is None:
            self._join()
        else:  # a life that was killed may have left it to the page cache
            self.disk.save_identity(self._identity, self._join)

    def _every(self, period_us: int, action: Callable[[], None]) -> None:
        def again() -> None:
            self.host.after(period_us, again)
            action()

        self.host.after(period_us, again)

    def receive(self, source: str, message: object) -> None:
        if self._tcp.receive(source, message):
            return
        if isinstance(message, Notice):
            self._learn(message.view)

    def peer_closed(self, name: str) -> None:
        self._tcp.peer_closed(name)

    def drain(self) -> None:
        """SIGTERM."""
        self.step(ev.DrainRequested())
        self._beat()

    # ---- joining the group

    def _join(self) -> None:
        """Identity first, then registration; every step is repeated until it is answered."""
        identity = self._identity
        if identity is None:
            self._identity = Identity(0, f"{self.host.name};{self.incarnation}")
            self.disk.save_identity(self._identity, self._join)
        elif identity.broker_id == 0:
            self._call(None, self._apply_for)
        else:
            self._register()

    def _again(self) -> None:
        self.host.after(100 * MS, self._join)

    def _apply_for(self, reply: Reply | None) -> None:
        identity = self._identity
        if reply is None or identity is None:
            self._again()
            return
        wanted = reply.next_broker_id
        event = ApplyBrokerId(
            cluster=CLUSTER,
            name=NAME,
            broker_id=BrokerId(wanted),
            check_code=identity.check_code,
        )

        def applied(answer: Reply | None) -> None:
            if answer is None or answer.code != ResponseCode.SUCCESS:
                self._again()
                return
            self._identity = Identity(wanted, identity.check_code)
            self.disk.save_identity(self._identity, self._join)

        self._call(event, applied)

    def _register(self) -> None:
        facts, identity = self._facts, self._identity
        assert facts is not None
        assert identity is not None
        event = RegisterBroker(
            cluster=CLUSTER,
            name=NAME,
            broker_id=BrokerId(identity.broker_id),
            address=self.host.name,
            incarnation=self.incarnation,
            last_epoch=facts.lineage.last_epoch,
        )

        def registered(reply: Reply | None) -> None:
            if reply is None or reply.code != ResponseCode.SUCCESS or reply.view is None:
                self._again()
                return
            if self.core is None:
                self.core = ReplicaCore(
                    me=BrokerId(identity.broker_id),
                    incarnation=self.incarnation,
                    log=facts,
                    now_ms=self.now_ms,
                    limits=SIM_LIMITS,
                )
            self._beat()
            self._learn(reply.view)

        self._call(event, registered)

    # ---- the controller

    def _call(self, event: Event | None, done: Callable[[Reply | None], None]) -> None:
        """Ask the controller; ``done(None)`` when no answer came, whatever the reason."""
        if self._control is None:
            self._control_opened += 1
            self._control = CONTROL_LINK_BASE - self._control_opened
            target = self._controllers[self._control_opened % len(self._controllers)]
            self._tcp.connect(self._control, target)
        self._numbers += 1
        number = self._numbers
        self._calls[number] = done
        asking = None if self.core is None else self.core.me
        self._tcp.send(self._control, Request(number, event, asking, self.incarnation))
        self.host.after(CALL_TIMEOUT_US, lambda: self._answered(number, None))

    def _answered(self, number: int, reply: Reply | None) -> None:
        done = self._calls.pop(number, None)
        if done is None:
            return
        if reply is None and self._control is not None:
            self._tcp.close(self._control)
            self._control = None
        done(reply)

    def _learn(self, view: ControllerView) -> None:
        self.step(ev.ViewLearned(view))

    def _poll(self) -> None:
        asked_ms = self.now_ms

        def answered(reply: Reply | None) -> None:
            self._learned(reply)
            if reply is not None and reply.view is not None:
                self.step(ev.ControllersAnswered(asked_ms))

        if self.core is not None:
            self._call(None, answered)

    def _learned(self, reply: Reply | None) -> None:
        if reply is not None and reply.code == UNREGISTERED:
            self._register()
        elif reply is not None and reply.view is not None:
            self._learn(reply.view)

    def _beat(self) -> None:
        if self.core is None:
            return
        log = self.core.log
        confirmed = log.lineage.entry_at(Offset(log.confirm - 1)) if log.confirm else None
        beat = Heartbeat(
            self.core.me,
            self.incarnation,
            log.lineage.last_epoch,
            log.end,
            self.core.draining,
            log.confirm,
            Epoch(-1) if confirmed is None else confirmed.epoch,
        )
        for name in self._controllers:
            self.host.send(name, beat)

    # ---- events and effects

    def appended(self, end: Offset) -> None:
        """The master's own append has moved the end of the log."""
        core = self.core
        if core is not None:
            core.appended(end)
            self._carry_out(core, fx.Feed())

    def step(self, event: ev.Event) -> None:
        core = self.core
        if core is None:
            return
        before, epoch_before = core.log.confirm, core.epoch
        for effect in core.step(event, self.now_ms):
            self._carry_out(core, effect)
        while self._later:
            self.step(self._later.popleft())
        if core.epoch < epoch_before:
            self._observer.went_back(self.host.name, epoch_before, core.epoch)
        if core.log.confirm != before:
            self._observer.confirmed(self.host.name, core, before, self.disk.log.data)
            self.clients.confirmed(core)

    def _carry_out(self, core: ReplicaCore, effect: fx.Effect) -> None:
        name = self.host.name
        match effect:
            case fx.SaveState(token=token, state=state):
                self._save(token, state)
            case fx.CutLog(point=point, reset=reset):
                self._observer.cut(name, core, point)
                self.clients.cut(point)
                self._cutting = True
                if reset:
                    self._begin_anew(point)
                else:
                    self.disk.cut(point, self._log_cut)
            case fx.AppendLog(offset=offset, data=data):
                self._append(core, offset, data)
            case fx.OpenLink(link=link, address=address):
                self._tcp.connect(link, address)
            case fx.CloseLink(link=link):
                self._tcp.close(link)
            case fx.Send(link=link, message=message):
                if isinstance(message, Ack):
                    self._observer.vouched(name, core, message)
                self._tcp.send(link, message)
            case fx.Feed():
                self._feed(core)
            case fx.Propose():
                self._propose(core, effect)
            case fx.HandOver(target=target, epoch=epoch):
                event = ElectMaster(
                    cluster=CLUSTER,
                    name=NAME,
                    requester=target,
                    designate=True,
                    expected_epoch=epoch,
                )
                self._call(event, self._handed_over)
            case _:
                self._carry_out_rest(core, effect)

    def _carry_out_rest(self, core: ReplicaCore, effect: fx.Effect) -> None:
        name = self.host.name
        match effect:
            case fx.Promoted():
                self.host.note("promoted", effect.epoch, effect.start)
                self._observer.promoted(name, core, effect)
                self.clients.promoted(core)
            case fx.Demoted():
                self.host.note("demoted", effect.epoch)
                self.clients.demoted()
            case fx.AskView():
                self._poll()
            case fx.AskElection():
                event = ElectMaster(
                    cluster=CLUSTER, name=NAME, requester=core.me, incarnation=self.incarnation
                )
                self._call(event, self._learned)
            case fx.Stuck():
                self._observer.stuck(name, effect)
            case fx.DrainEnded(reason=reason):
                self.host.note("left", reason)
                self._observer.left(name)
            case _:
                pass

    def _save(self, token: int, state: StoredState) -> None:
        """A process that cannot save who wrote what has to end."""
        if self.disk.is_full:
            self._observer.failed(self.host.name)
        else:
            self.disk.save(state, lambda: self.step(ev.StateSaved(token)))

    def _append(self, core: ReplicaCore, offset: Offset, data: bytes) -> None:
        if offset != len(self.disk.log.data):
            return  # an earlier batch of this burst was refused
        if self.disk.append(data) != len(data):
            self.host.world.count("disk.refused")
            self._later.append(ev.LogRefused(Offset(len(self.disk.log.data)), "no room"))
            return
        self._flush(core)

    def _flush(self, core: ReplicaCore) -> None:
        """Group commit: one flush at a time; what comes meanwhile shares the next."""
        self._flush_wanted = True
        if self._flushing:
            return
        self._flushing, self._flush_wanted = True, False
        end, cuts = Offset(len(self.disk.log.data)), core.log.cuts

        def flushed() -> None:
            self._flushing = False
            self.step(ev.LogFlushed(end, cuts))
            if self._flush_wanted:
                self._flush(core)

        self.disk.log.sync(flushed)

    def _feed(self, core: ReplicaCore) -> None:
        for link in [] if core.master is None else core.master.links():
            while (batch := core.next_batch(link)) is not None:
                if batch.offset < core.log.log_start:
                    raise Violation(f"cut: {self.host.name} sends {batch.offset}, which is gone")
                end = min(batch.limit, batch.offset + batch.size_hint)
                data = bytes(self.disk.log.data[batch.offset : end])
                self._tcp.send(link, core.sent(link, batch, data))

    # ---- the beginning of the log

    def _begin_anew(self, point: Offset) -> None:
        behind = self.core is not None and self.core.log.end > 0
        self.host.world.count("reset.behind" if behind else "reset.empty")
        below = bytes(self._observer.history[:point])
        self.begins_anew = True
        self.disk.reset(point, below, self._log_cut)

    def _log_cut(self) -> None:
        self._cutting = self.begins_anew = False
        self.step(ev.LogCut())

    def _retain(self) -> None:
        """By the product's own rule; as if a whole state stood everywhere."""
        core = self.core
        if core is None or self._cutting or self.host.rng.random() < 0.5:
            return
        log, rng, master = core.log, self.host.rng, core.master
        needed = () if master is None else master.copying_from(counted=True)
        copied = () if master is None else master.copying_from(counted=False)
        decision = decide(
            Facts(
                kept=Kept(bytes=rng.randint(0, 6 * FILE)),
                starts=[Offset(at) for at in range(log.log_start, log.end + 1, FILE)],
                log_start=log.log_start,
                end=log.end,
                confirm=log.confirm,
                whole_from=log.end,
                expired_to=log.log_start,
                disk_is_full=rng.random() < 0.3,
                needed=[Need(at, "member") for at, _ in needed],
                copied=[Need(at, "replica") for at, _ in copied],
            )
        )
        if isinstance(decision, Trim) and not self._trimming:
            self._trimming = True
            self.disk.trim(decision.to, lambda: self._trimmed(decision.to))

    def _trimmed(self, start: Offset) -> None:
        self._trimming = False
        if self.core is not None and not self._cutting and start > self.core.log.log_start:
            self.host.world.count("trim")
            self.step(ev.LogTrimmed(start))

    def _propose(self, core: ReplicaCore, effect: fx.Propose) -> None:
        event = AlterSyncStateSet(
            cluster=CLUSTER,
            name=NAME,
            master_id=core.me,
            master_epoch=effect.master_epoch,
            new_set=tuple(sorted(effect.sync_state_set)),
            expected_set_epoch=effect.sync_state_set_epoch,
            incarnation=self.incarnation,
        )

        def answered(reply: Reply | None) -> None:
            outcome: ev.Adopted | ev.Refused | ev.Unknown = ev.Unknown()
            if reply is not None and reply.code == ResponseCode.SUCCESS and reply.view is not None:
                outcome = ev.Adopted(reply.view.sync_state_set, reply.view.sync_state_set_epoch)
            elif reply is not None and reply.code in DEFINITE:
                outcome = ev.Refused(reply.code.name)
            self.step(ev.ProposalFinished(effect.attempt, outcome))

        self._call(event, answered)

    def _handed_over(self, reply: Reply | None) -> None:
        accepted = reply is not None and reply.code == ResponseCode.SUCCESS
        self.step(ev.HandOverFinished(accepted=accepted))
        self._learned(reply)

    def _opened(self, link: int) -> None:
        if link > CONTROL_LINK_BASE:
            self.step(ev.LinkOpened(link))

    def _closed(self, link: int) -> None:
        if link > CONTROL_LINK_BASE:
            self.step(ev.LinkClosed(link))
        elif link == self._control:
            self._control = None
            for number in list(self._calls):
                self._answered(number, None)

    def _received(self, link: int, message: object) -> None:
        if isinstance(message, Reply):
            self._answered(message.number, message)
        elif link > CONTROL_LINK_BASE:
            self.step(ev.Received(link, message))  # type: ignore[arg-type]  # ours, never decoded

    # ---- clients

    def _tick(self) -> None:
        self.step(ev.Tick())

    def accepts_writes(self) -> bool:
        """H11, by the product's own word."""
        master = None if self.core is None else self.core.serving
        return master is not None and master.no_writes is None

    def _write(self) -> None:
        core = self.core
        if core is not None and self.writing and self.accepts_writes():
            if self.clients.write(core, self.appended):
                self._flush(core)
            else:
                self.host.world.count("disk.refused")

    def _read(self) -> None:
        if self.core is not None and self.core.serving is not None:
            self.clients.read(self.core)
