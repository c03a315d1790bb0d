"""The real upload role in a simulated broker: what the shell around it has to do, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import google_crc32c
from gantry_broker.tier.core import effects as fx
from gantry_broker.tier.core import events as ev
from gantry_broker.tier.core.role import UploadRole
from gantry_broker.tier.core.trim import trim_bound
from gantry_broker.tier.core.values import Head, Limits, LocalLog, State
from gantry_protocol.tier.keys import CLASS_FOR_EVER, ManKey, PackKey, Pair, Shard, shard
from gantry_protocol.tier.manifests import PackEntry, Tail, decode_version
from gantry_protocol.tier.packs import BuiltPack
from gantry_protocol.types import Epoch, Offset
from sim.kernel.world import MS
from sim.replica_disk import SIZE, epoch_at
from sim.replicas import Broker
from sim.tier.store import Failed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_broker.replica import effects as replica_fx
    from gantry_broker.replica import events as replica_ev
    from gantry_broker.replica.core import ReplicaCore
    from gantry_protocol.types import EpochEntry
    from sim.kernel.machine import Host
    from sim.kernel.world import Timer
    from sim.tier.world import TierObserver

PLACE: Shard = shard("c", "u")
SIM_LIMITS = Limits(
    pack_bytes=200 * SIZE,
    linger_ms=50,
    retry_min_ms=10,
    retry_max_ms=400,
    alarm_ms=10_000,
    drain_ms=300,
    versions=8,
    head_ms=700,
)


def raw_pack(
    log: bytes | bytearray, key: PackKey, lineage: Sequence[EpochEntry], record_bytes: int = SIZE
) -> BuiltPack:
    """A pack whose object is the log's bytes: what is in it can be compared at a glance."""
    data = bytes(log[key.lo : key.hi])
    assert len(data) == key.hi - key.lo
    last = data[-record_bytes:]
    first = [one.epoch for one in lineage if one.start_offset <= key.lo]
    epochs = [one.epoch for one in lineage if one.start_offset < key.hi]
    entry = PackEntry(
        key=str(key),
        lo=key.lo,
        hi=key.hi,
        cls=key.cls,
        epoch_first=first[-1],
        epoch_last=epochs[-1],
        size=len(data),
        crc=crc_of(data),
        count=len(data) // record_bytes,
        min_ts=0,
        max_ts=0,
    )
    tail = Tail(at=key.hi - len(last), size=len(last), crc=crc_of(last))
    return BuiltPack(key=key, data=data, entry=entry, tail=tail)


def crc_of(data: bytes) -> str:
    """A sum in the manifest's notation."""
    return f"{google_crc32c.value(data):08x}"


class SeededEntropy:
    """Chance of one life of a process."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def nonce(self) -> str:
        return f"{self._host.rng.getrandbits(128):032x}"

    def chance(self) -> float:
        return self._host.rng.random()

    def wall_ms(self) -> int:
        return self._host.world.now_us // MS


class TierBroker(Broker):
    """A broker with an upload role.

    Attributes:
        trimmed: the log's bytes below are gone as far as the tier is concerned. They are kept on
            the simulated disk, because the simulated replication always starts at 0.
    """

    def __init__(self, host: Host, observer: TierObserver, controllers: list[str]) -> None:
        super().__init__(host, observer, controllers)
        self.tier_observer = observer
        self.role = UploadRole(
            shard=PLACE.uid,
            writer=f"{host.name}/{host.life}",
            entropy=SeededEntropy(host),
            limits=SIM_LIMITS,
        )
        self._timer: Timer | None = None
        self._told: LocalLog | None = None

    @property
    def trimmed(self) -> Offset:
        return self.tier_observer.trimmed(self.host.name)

    # ---- what the replica core says

    def step(self, event: replica_ev.Event) -> None:
        super().step(event)
        core = self.core
        if core is not None and core.serving is not None and self._told is not None:
            local = self._local(core)
            if local != self._told:
                self._told = local
                self.upload(ev.LogAdvanced(local))

    def _carry_out_rest(self, core: ReplicaCore, effect: replica_fx.Effect) -> None:
        super()._carry_out_rest(core, effect)
        kind = type(effect).__name__
        if kind == "Promoted":
            self._told = self._local(core)
            self.upload(ev.Promoted(Pair(core.epoch, self.host.life), self._told))
        elif kind == "Demoted":
            self._told = None
            self.upload(ev.Demoted())

    def _local(self, core: ReplicaCore) -> LocalLog:
        log = core.log
        return LocalLog(
            log_start=self.trimmed,
            end=log.end,
            flushed=log.flushed,
            confirm=log.confirm,
            lineage=log.lineage,
        )

    # ---- the upload role

    def upload(self, event: ev.Event) -> None:
        before = self.role.state
        effects = self.role.step(event, self.now_ms)
        if self.role.state is not before:
            self.host.note("tier", before.value, self.role.state.value)
            self.host.world.count(f"tier.{self.role.state.value}")
        if self.role.state is State.HALTED and before is not State.HALTED:
            self.tier_observer.halted(self.host.name, self.role.status.reason)
        for effect in effects:
            self._carry_out_tier(effect)

    def _carry_out_tier(self, effect: fx.Effect) -> None:
        match effect:
            case fx.ArmTimer(at_ms=at_ms):
                self._arm(at_ms)
            case fx.Committed(head=head):
                self.tier_observer.committed(self.host.name, self.role)
                self.host.note("tier-head", head.v, head.end)
            case fx.FencedBy():
                self._poll()
            case fx.StatusChanged(status=status):
                if status.stalled:
                    self.host.world.count("tier.stalled")
            case fx.CancelCalls():
                pass  # a request that is on its way cannot be called back
            case _:
                self._call_out(effect)

    def trim(self, hint: Head | None, share: float) -> None:
        """Local retention: delete a share of what the tier holds already."""
        if hint is not None:
            self.upload(ev.HeadSeen(hint.pair))
        start = self.trimmed
        bound = trim_bound(
            committed_end=self.role.end_for_trim(hint),
            local_start=start,
            retained_from=Offset(start if self.core is None else self.core.log.end),
        )
        target = Offset(start + int((bound - start) * share) // SIZE * SIZE)
        if target > start:
            self.tier_observer.trim_to(self.host.name, target)

    def _arm(self, at_ms: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_ms is not None:
            delay_us = max(at_ms * MS - self.host.clock_us, 0) + 1
            self._timer = self.host.after(delay_us, lambda: self.upload(ev.Timer()))

    def _call_out(self, call: fx.Call) -> None:
        store, host, ticket = self.tier_observer.store, self.host, call.ticket
        match call:
            case fx.CheckMeta():
                host.after(0, lambda: self.upload(ev.MetaChecked(ticket)))
            case fx.CreateVersion(v=v, data=data):
                self._create(ticket, PLACE.key(ManKey(v)), data)
            case fx.StorePack(key=key, data=data):
                self._create(ticket, PLACE.key(key), data)
            case fx.CutPack():
                host.after(MS, lambda: self._cut(call))
            case fx.ReadTail(at=at, size=size):
                data = bytes(self.disk.log.data[at : at + size])
                gone = Failed("it was trimmed meanwhile") if at < self.trimmed else None
                host.after(MS, lambda: self._end(ticket, gone or ev.TailRead(ticket, crc_of(data))))
            case _:
                store.read(host, lambda: self._find(call), lambda got: self._end(ticket, got))

    def _create(self, ticket: int, key: str, data: bytes) -> None:
        def done(answer: object) -> None:
            match answer:
                case Failed():
                    self._end(ticket, answer)
                case True:
                    self.upload(ev.Created(ticket))
                case _:
                    self.upload(ev.Maybe(ticket, "no answer"))

        self.tier_observer.store.create(self.host, key, data, done)

    def _end(self, ticket: int, answer: object) -> None:
        if isinstance(answer, Failed):
            self.upload(ev.CallFailed(ticket, str(answer)))
        else:
            self.upload(answer)  # type: ignore[arg-type]  # made by _find

    def _find(self, call: fx.Call) -> ev.Result:
        """What the store holds when the request arrives."""
        store = self.tier_observer.store
        match call:
            case fx.ReadVersions(ticket=ticket, after=after, limit=limit):
                keys = store.keys_after(PLACE.key("man/"), PLACE.key(ManKey(after)), limit)
                numbers = [int(key[-20:]) for key in keys]
                read = [
                    decode_version(store.objects[key], PLACE, v)
                    for key, v in zip(keys, numbers, strict=True)
                ]
                return ev.VersionsRead(ticket, tuple(read))
            case fx.ReadVersion(ticket=ticket, v=v):
                data = store.objects.get(PLACE.key(ManKey(v)))
                found = None if data is None else decode_version(data, PLACE, v)
                return ev.VersionRead(ticket, found)
            case fx.ListAfter(ticket=ticket, v=v):
                keys = store.keys_after(PLACE.key("man/"), PLACE.key(ManKey(v)), 1)
                return ev.Listed(ticket, bool(keys))
            case fx.FindPack(ticket=ticket, key=key, size=size, end=end):
                data = store.objects.get(store.name(PLACE.key(key)), b"")
                return ev.PackFound(ticket, len(data) == size and data.endswith(end))
            case _:
                raise AssertionError(f"not a read: {call!r}")

    def _cut(self, call: fx.CutPack) -> None:
        assert call.lo >= self.trimmed, "reads below the start of the log"
        wanted = -(-call.target_bytes // SIZE) * SIZE
        hi = Offset(min(call.limit, call.lo + wanted))
        log = self.disk.log.data
        assert epoch_at(log, call.lo) >= Epoch(1)
        key = PackKey(call.pair, call.lo, hi, CLASS_FOR_EVER, call.nonce)
        self.upload(ev.PackCut(call.ticket, raw_pack(log, key, call.lineage)))
