"""A harness for the upload role: one role, a store of versions and packs, and answers on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import google_crc32c
from gantry_broker.replica import Lineage
from gantry_broker.tier.core import effects as fx
from gantry_broker.tier.core import events as ev
from gantry_broker.tier.core.role import UploadRole
from gantry_broker.tier.core.values import LocalLog, TierLimits
from gantry_protocol.tier import chain
from gantry_protocol.tier.keys import CLASS_FOR_EVER, PackKey, Pair, shard
from gantry_protocol.tier.manifests import PackEntry, Tail, Version, decode_version, encode
from gantry_protocol.tier.packs import BuiltPack
from gantry_protocol.types import Epoch, EpochEntry, Offset

if TYPE_CHECKING:
    from collections.abc import Callable

PLACE = shard("c", "u")
RECORD = 10
LIMITS = TierLimits(
    pack_bytes=100,
    linger_ms=1_000,
    retry_min_ms=100,
    retry_max_ms=2_000,
    alarm_ms=10_000,
    drain_ms=500,
    versions=4,
    head_ms=5_000,
)


def crc_of(data: bytes) -> str:
    return f"{google_crc32c.value(data):08x}"


def lineage(*pairs: tuple[int, int]) -> Lineage:
    return Lineage(EpochEntry(Epoch(epoch), Offset(start)) for epoch, start in pairs)


def local(
    end: int,
    *,
    confirm: int | None = None,
    flushed: int | None = None,
    log_start: int = 0,
    who: Lineage | None = None,
) -> LocalLog:
    """A log that ends at ``end``, all of it confirmed unless said otherwise."""
    return LocalLog(
        log_start=Offset(log_start),
        end=Offset(end),
        flushed=Offset(end if flushed is None else flushed),
        confirm=Offset(end if confirm is None else confirm),
        lineage=lineage((1, 0)) if who is None else who,
    )


def log_bytes(size: int) -> bytes:
    return bytes(index * 7 % 251 for index in range(size))


def built(data: bytes, key: PackKey, who: tuple[EpochEntry, ...]) -> BuiltPack:
    """A pack whose object is the log's bytes; its last ten are its last record."""
    first = [one.epoch for one in who if one.start_offset <= key.lo][-1]
    last = [one.epoch for one in who if one.start_offset < key.hi][-1]
    entry = PackEntry(
        key=str(key),
        lo=key.lo,
        hi=key.hi,
        cls=key.cls,
        epoch_first=first,
        epoch_last=last,
        size=len(data),
        crc=crc_of(data),
        count=len(data) // RECORD,
        min_ts=0,
        max_ts=0,
    )
    tail = Tail(at=key.hi - RECORD, size=RECORD, crc=crc_of(data[-RECORD:]))
    return BuiltPack(key=key, data=data, entry=entry, tail=tail)


class Numbers:
    """Nonces 1, 2, 3 …, and a chance that is always a half."""

    def __init__(self, first: int) -> None:
        self._next = first

    def nonce(self) -> str:
        self._next += 1
        return f"{self._next:032x}"

    def chance(self) -> float:
        return 0.5

    def wall_ms(self) -> int:
        return 1_700_000_000_000


class Bucket:
    """Versions by number and packs by key; several harnesses may share one."""

    def __init__(self) -> None:
        self.versions: dict[int, bytes] = {}
        self.packs: dict[str, bytes] = {}

    def read(self, v: int) -> Version | None:
        data = self.versions.get(v)
        return None if data is None else decode_version(data, PLACE, v)

    def state(self) -> chain.ChainState:
        versions = [decode_version(self.versions[v], PLACE, v) for v in sorted(self.versions)]
        return chain.fold(PLACE, versions)


class Harness:
    """One upload role; every call waits until the test answers it.

    Attributes:
        call: the call under way, if any.
        said: every other effect so far.
        asked: every call so far.
    """

    def __init__(
        self, bucket: Bucket | None = None, *, seed: int = 0, size: int = 1_000, owner: str = ""
    ) -> None:
        self.bucket = Bucket() if bucket is None else bucket
        self.role = UploadRole(
            shard=PLACE.uid,
            writer=f"broker-{seed}",
            entropy=Numbers(seed << 64),
            limits=LIMITS,
            owner=owner,
        )
        self.log = log_bytes(size)
        self.now_ms = 0
        self.call: fx.Call | None = None
        self.said: list[fx.Effect] = []
        self.asked: list[fx.Call] = []

    # ---- events

    def step(self, event: ev.Event) -> None:
        for effect in self.role.step(event, self.now_ms):
            match effect:
                case fx.CancelCalls():
                    self.call = None
                    self.said.append(effect)
                case (
                    fx.ArmTimer()
                    | fx.Committed()
                    | fx.FencedBy()
                    | fx.StatusChanged()
                ):  # fmt: skip
                    self.said.append(effect)
                case _:
                    assert self.call is None, f"{effect} while {self.call} is under way"
                    self.call = effect
                    self.asked.append(effect)

    def promote(self, epoch: int, log: LocalLog, *, inc: int = 1) -> None:
        self.step(ev.Promoted(Pair(epoch, inc), log))

    def advance(self, log: LocalLog) -> None:
        self.step(ev.LogAdvanced(log))

    def wait(self, ms: int) -> None:
        """Let time pass; the timer comes if it was armed for then."""
        self.now_ms += ms
        armed = [effect.at_ms for effect in self.said if isinstance(effect, fx.ArmTimer)]
        if armed and armed[-1] is not None and armed[-1] <= self.now_ms:
            self.step(ev.Timer())

    def end(self, make: Callable[[int], ev.Result]) -> fx.Call:
        """End the call under way with ``make(ticket)``; returns the call."""
        call = self.call
        assert call is not None, "no call is under way"
        self.call = None
        self.step(make(call.ticket))
        return call

    def fail(self) -> fx.Call:
        return self.end(lambda ticket: ev.CallFailed(ticket, "the store answered 503"))

    # ---- honest answers

    def answer(self) -> fx.Call:
        """End the call under way as a sound store and log would."""
        result = self.outcome()
        return self.end(lambda _ticket: result)

    def apply(self) -> None:
        """Let the call under way take effect, without an answer."""
        call = self.call
        self.outcome()
        assert self.call is call

    def run(self, until: type[fx.Call] | None = None) -> None:
        """Answer everything, up to the first call of the kind ``until``."""
        while self.call is not None and not (until is not None and isinstance(self.call, until)):
            self.answer()

    def outcome(self) -> ev.Result:
        call, bucket = self.call, self.bucket
        assert call is not None
        ticket = call.ticket
        match call:
            case fx.CheckMeta():
                return ev.MetaChecked(ticket)
            case fx.ReadVersions(after=after, limit=limit):
                numbers = [v for v in sorted(bucket.versions) if v > after][:limit]
                read = (bucket.read(v) for v in numbers)
                return ev.VersionsRead(ticket, tuple(one for one in read if one is not None))
            case fx.CreateVersion(v=v, data=data):
                if v in bucket.versions:
                    return ev.Maybe(ticket, "it may exist")
                bucket.versions[v] = data
                return ev.Created(ticket)
            case fx.ReadVersion(v=v):
                return ev.VersionRead(ticket, bucket.read(v))
            case fx.ListAfter(v=v):
                return ev.Listed(ticket, any(one > v for one in bucket.versions))
            case fx.CutPack():
                return self._cut(call)
            case fx.StorePack(key=key, data=data):
                if key in bucket.packs:
                    return ev.Maybe(ticket, "it may exist")
                bucket.packs[key] = data
                return ev.Created(ticket)
            case fx.FindPack(key=key, size=size, end=end):
                found = bucket.packs.get(key, b"")
                return ev.PackFound(ticket, len(found) == size and found.endswith(end))
            case fx.ReadTail(at=at, size=size):
                return ev.TailRead(ticket, crc_of(self.log[at : at + size]))

    def _cut(self, call: fx.CutPack) -> ev.PackCut:
        wanted = -(-call.target_bytes // RECORD) * RECORD
        hi = min(call.lo + wanted, call.limit)
        key = PackKey(call.pair, call.lo, hi, CLASS_FOR_EVER, call.nonce)
        return ev.PackCut(call.ticket, built(self.log[call.lo : hi], key, call.lineage))

    # ---- what others do

    def claimed_by(self, epoch: int, inc: int = 1) -> Version:
        """Somebody else claims the chain."""
        state = self.bucket.state()
        version = chain.claim(
            state,
            pair=Pair(epoch, inc),
            writer="other",
            nonce=f"{epoch:031x}f",
            at_ms=0,
            start=None if state.v else 0,
        )
        self.bucket.versions[version.v] = encode(version)
        return version
