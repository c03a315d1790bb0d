"""``UploadSession``: the upload of one mastership, from reading the head to its newest pack.

Thrown away with the epoch; only the chain, as far as it is known, goes on to the next. The order::

    the head is read -> an open commit is resolved -> claim -> compare the log -> packs, for ever

Rules protected:

* Nothing at or above ``min(confirm, flushed)`` is uploaded (H9, T6).
* Nothing is appended before our claim is the newest version (T9). It is the fence: a version is
  written once, and every author builds on the newest one he has read.
* Nothing else is done while the outcome of a commit is unknown, and its bytes never change.
* A pack's key is used for one attempt; a failed one is cut again under another nonce.
* Nobody claims a tier that belongs to another group.

Decisions are level-triggered: ``next`` looks at what is known and names the one call that is
missing; ``take`` learns from the end of a call and says when the session cannot just go on.
"""

from collections.abc import Iterator
from enum import Enum, auto
from typing import Protocol

import msgspec
from gantry_protocol.tier.chain import ChainState, advance, append, before, claim
from gantry_protocol.tier.damage import ChainError
from gantry_protocol.tier.keys import Pair
from gantry_protocol.tier.manifests import Version
from gantry_protocol.tier.packs import BuiltPack
from gantry_protocol.types import Offset

from gantry_broker.tier.core import effects as fx
from gantry_broker.tier.core import events as ev
from gantry_broker.tier.core.beginning import not_owned
from gantry_broker.tier.core.commit import Commit, CommitStage
from gantry_broker.tier.core.reconcile import mismatch
from gantry_broker.tier.core.values import ChainHead, LocalLog, State, TierLimits

PACK_END_BYTES = 12  # footer length, its sum, magic


class Entropy(Protocol):
    """Clocks and chance, which the machine cannot make itself; a simulation passes seeded ones."""

    def nonce(self) -> str:
        """128 random bits as 32 lower-case hex digits; never the same twice."""

    def chance(self) -> float:
        """A number in [0, 1)."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; for people, never decided upon."""


class Wait(msgspec.Struct, frozen=True):
    """Try again after a while, and read the head first; ``reason`` is a clause for people."""

    reason: str


class Fence(msgspec.Struct, frozen=True):
    """Somebody with a higher pair holds the chain; ``by`` is None when he was not seen himself."""

    by: Pair | None


class Halt(msgspec.Struct, frozen=True):
    """A person must look; repeating it will not help."""

    sentence: str


Verdict = Wait | Fence | Halt


class _Packed(Enum):
    """What is known of the pack in hand."""

    CUT = auto()
    DOUBTFUL = auto()
    STORED = auto()


class UploadSession:
    """See the module.

    Attributes:
        pair: who commits.
        local: the master's log, as last told.
        chain: the chain as far as it has been read or written.
        commit: the version on its way; None when there is none.
        checked: whether the log was compared with the chain and continues it.
        head: what was committed last, until somebody takes it.
    """

    def __init__(
        self,
        pair: Pair,
        local: LocalLog,
        chain: ChainState,
        *,
        owner: str,
        writer: str,
        entropy: Entropy,
        limits: TierLimits,
        tickets: Iterator[int],
    ) -> None:
        """Begin with the head to be read."""
        self._owner = owner
        self.pair = pair
        self.local = local
        self.chain = chain
        self.commit: Commit | None = None
        self.checked = False
        self.head: ChainHead | None = None
        self._writer = writer
        self._entropy = entropy
        self._limits = limits
        self._tickets = tickets
        self._stale = True
        self._pack: BuiltPack | None = None
        self._pack_end = b""  # kept, since the pack's memory is freed once it was sent
        self._packed = _Packed.CUT
        self._doubt = ""  # what the store said to the create whose outcome is not known
        self._waiting_ms: int | None = None
        self._read_ms = 0

    # ---- what others may read

    @property
    def claimed(self) -> bool:
        """Whether the newest version that is known is ours."""
        return self.chain.v > 0 and self.chain.pair == self.pair

    @property
    def state(self) -> State:
        """The progress of the session."""
        if not self.claimed:
            return State.CLAIMING
        return State.UPLOADING if self.checked else State.RECONCILING

    @property
    def has_work(self) -> bool:
        """Whether anything waits for the store."""
        return self.state is not State.UPLOADING or self.local.limit > self.chain.end

    @property
    def holds_pack(self) -> bool:
        """Whether a pack was cut that is still to be sent."""
        return self._pack is not None and self._packed is _Packed.CUT

    def deadline_ms(self) -> int | None:
        """The time of an idle session's next own step; None before it uploads."""
        if self.state is not State.UPLOADING:
            return None
        head_ms = self._read_ms + self._limits.head_ms
        if self._waiting_ms is None:
            return head_ms
        return min(head_ms, self._waiting_ms + self._limits.linger_ms)

    def expire(self, now_ms: int) -> None:
        """Time has passed: the head may be due."""
        if now_ms >= self._read_ms + self._limits.head_ms:
            self._stale = True

    def doubt(self, chain: ChainState) -> None:
        """Take whatever was known of the head for old.

        Args:
            chain: as another reader has folded it; gone on with where it reaches further, and no
                version of ours is on its way.
        """
        self._stale = True
        if self.commit is None and chain.v > self.chain.v:
            self.chain, self.checked = chain, False

    # ---- what is missing

    def next(self, now_ms: int) -> fx.Call | Halt | None:
        """The one call that is missing; None when there is nothing to do now."""
        if self._stale:
            self._read_ms = now_ms
            return fx.ReadVersions(next(self._tickets), self.chain.v, self._limits.versions)
        if self.commit is None and self._pack is not None:
            return self._store(self._pack)
        if self.commit is None and not self.claimed:
            reason = not_owned(self.chain, self._owner)
            if reason:
                return Halt(reason)
            self.commit = Commit(self._claim())
        if self.commit is not None:
            return self._go_on(self.commit)
        return self._upload(now_ms) if self.checked else self._reconcile(now_ms)

    def _go_on(self, commit: Commit) -> fx.Call:
        v, ticket = commit.version.v, next(self._tickets)
        match commit.stage:
            case CommitStage.UNSENT:
                return fx.CreateVersion(ticket, v, commit.data)
            case CommitStage.UNKNOWN:
                return fx.ReadVersion(ticket, v)
            case CommitStage.OURS:
                return fx.ListAfter(ticket, v)

    def _claim(self) -> Version:
        return claim(
            self.chain,
            pair=self.pair,
            writer=self._writer,
            nonce=self._entropy.nonce(),
            at_ms=self._entropy.wall_ms(),
            start=None if self.chain.v else self.local.log_start,
        )

    def _reconcile(self, now_ms: int) -> fx.Call | Halt | None:
        sentence = mismatch(self.chain, self.local)
        if sentence is not None:
            return Halt(sentence)
        tail = self.chain.tail
        if tail is None or tail.at < self.local.log_start:
            self.checked = True
            return self._upload(now_ms)
        return fx.ReadTail(next(self._tickets), Offset(tail.at), tail.size)

    def _upload(self, now_ms: int) -> fx.Call | None:
        """Cut a pack when enough waits, or waits long enough."""
        waiting = self.local.limit - self.chain.end
        if waiting <= 0:
            self._waiting_ms = None
            return None
        if self._waiting_ms is None:
            self._waiting_ms = now_ms
        ripe = now_ms >= self._waiting_ms + self._limits.linger_ms
        if waiting < self._limits.pack_bytes and not ripe:
            return None
        return fx.CutPack(
            ticket=next(self._tickets),
            lo=Offset(self.chain.end),
            limit=self.local.limit,
            target_bytes=self._limits.pack_bytes,
            lineage=self.local.lineage.entries,
            pair=self.pair,
            nonce=self._entropy.nonce(),
        )

    def _store(self, pack: BuiltPack) -> fx.Call:
        ticket, key = next(self._tickets), pack.entry.key
        match self._packed:
            case _Packed.CUT:
                return fx.StorePack(ticket, key, pack.data)
            case _Packed.DOUBTFUL:
                return fx.FindPack(ticket, key, pack.entry.size, self._pack_end)
            case _Packed.STORED:
                self._pack = None
                self.commit = Commit(self._append(pack))
                return self._go_on(self.commit)

    def _append(self, pack: BuiltPack) -> Version:
        return append(
            self.chain,
            [pack.entry],
            lineage=self.local.lineage.entries,
            tail=pack.tail,
            writer=self._writer,
            nonce=self._entropy.nonce(),
            at_ms=self._entropy.wall_ms(),
        )

    # ---- what ends

    def take(self, call: fx.Call, event: ev.Result) -> Verdict | None:
        """The end of ``call``; None to go on with ``next``."""
        match event:
            case ev.CallRefused(sentence=sentence):
                return Halt(sentence)
            case ev.CallFailed(reason=reason):
                return self._failed(reason)
            case ev.Created():
                return self._put(call, created=True)
            case ev.Maybe(reason=reason):
                self._doubt = reason
                return self._put(call, created=False)
            case ev.VersionsRead(versions=versions):
                assert isinstance(call, fx.ReadVersions)
                return self._read(versions, more=len(versions) >= call.limit)
            case ev.VersionRead(found=found):
                return self._resolved(found)
            case ev.Listed(found=later):
                return Fence(None) if later else self._committed()
            case ev.PackCut(pack=pack):
                return self._cut(pack)
            case ev.PackFound(found=stored):
                return self._found(stored=stored)
            case ev.TailRead(crc=crc):
                return self._compared(crc)
            case _:
                raise AssertionError(f"unknown event {event!r}")

    def _failed(self, reason: str) -> Verdict:
        """Nothing is known of it; an open commit is resolved by the head that is read after."""
        self._pack = None
        return Wait(reason)

    def _put(self, call: fx.Call, *, created: bool) -> Verdict | None:
        if isinstance(call, fx.StorePack):
            self._packed = _Packed.STORED if created else _Packed.DOUBTFUL
            return None
        assert self.commit is not None
        self.commit.stage = CommitStage.OURS if created else CommitStage.UNKNOWN
        return None

    # ---- the chain

    def _read(self, versions: tuple[Version, ...], *, more: bool) -> Verdict | None:
        """Take versions that follow ours; an open commit is resolved by them first."""
        fence = self._higher(versions)
        if fence is not None:
            return fence
        self._stale = more
        commit = self.commit
        if commit is not None and not versions:
            commit.stage = CommitStage.UNSENT
        if not versions:
            return None
        if commit is not None and commit.is_mine(versions[0]) and len(versions) == 1:
            return self._committed()
        self.commit = self._pack = None
        self.checked = False
        return self._fold(versions)

    def _higher(self, versions: tuple[Version, ...]) -> Fence | None:
        highest = max((version.pair for version in versions), default=self.pair)
        return Fence(highest) if highest > self.pair else None

    def _fold(self, versions: tuple[Version, ...]) -> Halt | Wait | None:
        """Take versions in.

        The oldest ones may be gone for good: what is needed of them is in the next one. One that is
        missing in between is waited for; a claim above it would make the hole last.
        """
        chain, first = self.chain, versions[0]
        if chain.v == 0 and first.v > 1:
            chain = before(chain, first)
        sound = [version for at, version in enumerate(versions) if version.v == chain.v + 1 + at]
        try:
            self.chain = advance(chain, sound)
        except ChainError as error:
            return Halt(str(error))
        if len(sound) == len(versions):
            return None
        self._stale = True
        return Wait(
            f"version {self.chain.v + 1} of the manifest is missing, version "
            f"{versions[len(sound)].v} is there; it is asked for again"
        )

    def _resolved(self, found: Version | None) -> Verdict | None:
        """What is in the slot of our commit."""
        commit = self.commit
        assert commit is not None
        if found is None:
            return Wait(f"the store neither took the version nor shows it: {self._doubt}")
        if commit.is_mine(found):
            commit.stage = CommitStage.OURS
            return None
        self.commit = None
        self._stale = True
        return self._higher((found,))

    def _committed(self) -> Verdict | None:
        """Our version is there and the newest: it counts."""
        commit, self.commit = self.commit, None
        assert commit is not None
        verdict = self._fold((commit.version,))
        if verdict is None:
            self.head = ChainHead(v=self.chain.v, pair=self.chain.pair, end=Offset(self.chain.end))
            self._waiting_ms = None
        return verdict

    # ---- packs and the log

    def _cut(self, pack: BuiltPack) -> Verdict | None:
        entry = pack.entry
        assert self.chain.end == entry.lo < entry.hi <= self.local.limit, "a pack within bounds"
        self._pack, self._packed = pack, _Packed.CUT
        self._pack_end = pack.data[-PACK_END_BYTES:]
        return None

    def _found(self, *, stored: bool) -> Verdict | None:
        if stored:
            self._packed = _Packed.STORED
            return None
        self._pack = None
        return Wait(f"the store neither took the pack nor shows it: {self._doubt}")

    def _compared(self, crc: str) -> Verdict | None:
        tail = self.chain.tail
        assert tail is not None
        if crc != tail.crc:
            return Halt(
                f"the record at {tail.at} has the sum {tail.crc} in the tier and {crc} in this "
                f"broker's log: they are different histories; keep both and compare them"
            )
        self.checked = True
        return None
