"""``UploadRole``: who uploads a broker group's log to the tier, as a deterministic machine.

Events in, effects out; no I/O, no clock, no randomness of its own. One call of the store or of the
local log at a time, so one pack in memory at most. The states::

    any but HALTED      promoted, a higher pair than before      -> CLAIMING
    any but HALTED      demoted                                  -> DRAINING, then STANDBY
    an active one       a higher pair is seen anywhere           -> FENCED
    CLAIMING            our claim is the newest version          -> RECONCILING
    RECONCILING         our log continues the tier               -> UPLOADING
    RECONCILING         it does not, see ``reconcile``           -> HALTED
    an active one       a call failed, its outcome is unknown    -> BACKOFF
    BACKOFF             timer: the head is read again            -> the state it came from
    an active one       foreign, newer, damaged, a broken chain  -> HALTED

Active are CLAIMING, RECONCILING, UPLOADING and BACKOFF. Rules protected:

* Nothing at or above ``min(confirm, flushed)`` is uploaded (H9, T6).
* A claim comes first: before it is the newest version, nothing is appended (T9). It is the fence:
  a version is written once, and every author builds on the newest one he has read.
* An unknown outcome is resolved before anything else is done (``commit``).
* Whoever sees a higher (epoch, inc) stops for good: no upload, no deletion, no local trim.
* Demotion cancels and cleans nothing: a cancelled put may land later, and then what it names must
  be there.
* A pack's key is used for one attempt; a failed one is cut again under another nonce (R4).

Decisions are level-triggered: every event ends in ``_next``, which looks at what is known and asks
for the one thing that is missing.
"""

from typing import Protocol

from gantry_protocol.tier.chain import ChainState, advance, append, claim
from gantry_protocol.tier.damage import ChainError
from gantry_protocol.tier.keys import Pair
from gantry_protocol.tier.manifests import Version
from gantry_protocol.tier.packs import BuiltPack
from gantry_protocol.types import Offset

from gantry_broker.tier import effects as fx
from gantry_broker.tier import events as ev
from gantry_broker.tier.backoff import Backoff
from gantry_broker.tier.commit import Commit, Stage
from gantry_broker.tier.reconcile import mismatch
from gantry_broker.tier.values import ACTIVE, DEFAULT_LIMITS, Head, Limits, LocalLog, State, Status

PACK_END_BYTES = 12  # footer length, its sum, magic


class Entropy(Protocol):
    """What the machine cannot make itself; a simulation passes seeded ones."""

    def nonce(self) -> str:
        """128 random bits as 32 lower-case hex digits; never the same twice."""

    def chance(self) -> float:
        """A number in [0, 1)."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; for people, never decided upon."""


class UploadRole:
    """The upload role of one process; see the module.

    Attributes:
        state: see the module.
        own: the pair of the newest promotion; None before the first.
        seen: the highest pair ever seen in the chain or spoken of.
        chain: the chain as far as it has been read or written.
    """

    def __init__(
        self, *, shard: str, writer: str, entropy: Entropy, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        """A role that waits for a promotion."""
        self.state = State.STANDBY
        self.own: Pair | None = None
        self.seen: Pair | None = None
        self.chain = ChainState(shard=shard)
        self._writer = writer
        self._entropy = entropy
        self._limits = limits
        self._backoff = Backoff(limits)
        self._local: LocalLog | None = None
        self._ticket = 0
        self._call: fx.Call | None = None
        self._proven = False
        self._reset()
        self._now_ms = 0
        self._status = Status(state=self.state)
        self._reason = ""
        self._armed_ms: int | None = None

    def _reset(self) -> None:
        """Forget the reign: what was read stays, what was planned goes."""
        self._stale = True
        self._checked = False
        self._commit: Commit | None = None
        self._pack: BuiltPack | None = None
        self._wake_ms = 0
        self._head_ms = 0
        self._waiting_ms: int | None = None
        self._progress_ms = 0

    # ---- what others may read

    @property
    def claimed(self) -> bool:
        """Whether the newest version that is known is ours."""
        return self.own is not None and self.chain.v > 0 and self.chain.pair == self.own

    @property
    def committed_end(self) -> Offset | None:
        """Up to where the local log may be trimmed; None while that must not be decided."""
        working = self.state in ACTIVE and self.claimed and self._checked
        return Offset(self.chain.end) if working else None

    @property
    def status(self) -> Status:
        """For people."""
        return self._status

    # ---- inputs

    def step(self, event: ev.Event, now_ms: int) -> list[fx.Effect]:
        """Take one event at ``now_ms`` (milliseconds, never falling) and decide."""
        self._now_ms = max(now_ms, self._now_ms)
        effects = self._take(event)
        return effects + self._report()

    def _take(self, event: ev.Event) -> list[fx.Effect]:
        match event:
            case ev.Promoted(pair=pair, local=local):
                return self._promoted(pair, local)
            case ev.Demoted():
                return self._demoted()
            case ev.LogAdvanced(local=local):
                self._local = local
                return self._next()
            case ev.HeadSeen(pair=pair):
                return self._sight(pair) or self._next()
            case ev.Timer():
                return self._timer()
            case _:
                return self._ended(event)

    def _promoted(self, pair: Pair, local: LocalLog) -> list[fx.Effect]:
        if self.state is State.HALTED or (self.own is not None and pair <= self.own):
            return []
        effects = self._cancel()
        self._reset()
        self._backoff.reset()
        self.own, self._local = pair, local
        self._progress_ms = self._now_ms
        self._enter(State.CLAIMING)
        if self.seen is not None and self.seen > pair:
            return effects + self._fenced(self.seen)
        return effects + self._next()

    def _demoted(self) -> list[fx.Effect]:
        if self.state in {State.HALTED, State.STANDBY, State.DRAINING}:
            return []
        waits = self._call is not None
        self._reset()
        self._enter(State.DRAINING if waits else State.STANDBY)
        self._wake_ms = self._now_ms + self._limits.drain_ms
        return [fx.CancelCalls()] if waits else []

    def _timer(self) -> list[fx.Effect]:
        if self.state is State.DRAINING and self._now_ms >= self._wake_ms:
            self._call = None
            self._enter(State.STANDBY)
        elif self.state is State.BACKOFF and self._now_ms >= self._wake_ms:
            self._stale = True
            self._enter(self._working_state())
        elif self.state is State.UPLOADING and self._now_ms >= self._head_ms:
            self._stale = True
        return self._next()

    # ---- how a reign ends, or waits

    def _enter(self, state: State, reason: str = "") -> None:
        self.state, self._reason = state, reason

    def _working_state(self) -> State:
        if not self.claimed:
            return State.CLAIMING
        return State.UPLOADING if self._checked else State.RECONCILING

    def _cancel(self) -> list[fx.Effect]:
        if self._call is None:
            return []
        self._call = None
        return [fx.CancelCalls()]

    def _sight(self, pair: Pair) -> list[fx.Effect]:
        """Note a pair of the chain; a higher one than our own ends the reign."""
        if self.seen is None or pair > self.seen:
            self.seen = pair
        if self.own is None or pair <= self.own or self.state not in ACTIVE:
            return []
        return self._fenced(pair)

    def _fenced(self, by: Pair | None) -> list[fx.Effect]:
        assert self.own is not None
        effects = self._cancel()
        self._reset()
        whom = "a later version" if by is None else f"epoch {by.epoch}, start {by.inc}"
        self._enter(
            State.FENCED,
            f"{whom} is in the chain; this broker uploaded for epoch {self.own.epoch}, start "
            f"{self.own.inc}, and stops until it is elected again",
        )
        return [*effects, fx.FencedBy(own=self.own, by=by)]

    def _halt(self, sentence: str) -> list[fx.Effect]:
        effects = self._cancel()
        self._reset()
        self._enter(State.HALTED, sentence)
        return effects

    def _wait(self, reason: str) -> list[fx.Effect]:
        self._wake_ms = self._now_ms + self._backoff.next_ms(self._entropy.chance())
        self._enter(State.BACKOFF, reason)
        return []

    # ---- what ends

    def _ended(self, event: ev.Result) -> list[fx.Effect]:
        call = self._call
        if call is None or event.ticket != call.ticket:
            return []  # of a call that was cancelled
        self._call = None
        if self.state is State.DRAINING:
            self._enter(State.STANDBY)
            return []
        match event:
            case ev.CallRefused(sentence=sentence):
                return self._halt(sentence)
            case ev.CallFailed(reason=reason):
                return self._failed(call, reason)
            case ev.MetaChecked():
                self._proven = True
                return self._next()
            case ev.VersionsRead(versions=versions):
                return self._read(call, versions)
            case ev.Created() | ev.Maybe():
                return self._put(call, created=isinstance(event, ev.Created))
            case _:
                return self._answered(event)

    def _answered(self, event: ev.Result) -> list[fx.Effect]:
        match event:
            case ev.VersionRead(found=found):
                return self._resolved(found)
            case ev.Listed(found=found):
                return self._fenced(None) if found else self._committed()
            case ev.PackCut(pack=pack):
                return self._cut(pack)
            case ev.PackFound(found=found):
                return self._commit_pack() if found else self._drop_pack("the pack is not there")
            case ev.TailRead(crc=crc):
                return self._tail(crc)
            case _:
                raise AssertionError(f"unknown event {event!r}")

    def _failed(self, call: fx.Call, reason: str) -> list[fx.Effect]:
        """What the call was for is as unknown as before; a pack is cut again under another key."""
        if isinstance(call, fx.CreateVersion) and self._commit is not None:
            self._commit.stage = Stage.UNKNOWN
        if isinstance(call, fx.StorePack | fx.FindPack):
            self._pack = None
        return self._wait(reason)

    def _put(self, call: fx.Call, *, created: bool) -> list[fx.Effect]:
        if isinstance(call, fx.StorePack):
            return self._commit_pack() if created else self._find_pack(call)
        assert isinstance(call, fx.CreateVersion)
        assert self._commit is not None
        self._commit.stage = Stage.OURS if created else Stage.UNKNOWN
        return self._next()

    # ---- the chain

    def _read(self, call: fx.Call, versions: tuple[Version, ...]) -> list[fx.Effect]:
        """Take versions that were read; resolve our own commit by them (R3)."""
        assert isinstance(call, fx.ReadVersions)
        effects = self._sight_all(versions)
        if effects:
            return effects
        self._stale = len(versions) >= call.limit
        commit = self._commit
        if versions and commit is not None:
            mine = commit.is_mine(versions[0])
            self._commit = None
            if mine and len(versions) == 1:
                self._commit = commit
                commit.stage = Stage.OURS
                return self._committed()
        elif commit is not None:
            commit.stage = Stage.UNSENT
        if versions:
            self._checked = False
        return self._fold(versions) or self._next()

    def _sight_all(self, versions: tuple[Version, ...]) -> list[fx.Effect]:
        pairs = [version.pair for version in versions]
        return self._sight(max(pairs)) if pairs else []

    def _fold(self, versions: tuple[Version, ...]) -> list[fx.Effect]:
        try:
            self.chain = advance(self.chain, versions)
        except ChainError as error:
            return self._halt(str(error))
        return []

    def _resolved(self, found: Version | None) -> list[fx.Effect]:
        commit = self._commit
        assert commit is not None
        if found is None:
            commit.stage = Stage.UNSENT
            return self._wait("the store neither took the version nor shows it")
        if commit.is_mine(found):
            commit.stage = Stage.OURS
            return self._next()
        effects = self._sight(found.pair)
        if effects:
            return effects
        self._commit = None
        self._stale, self._checked = True, False
        self._enter(self._working_state())
        return self._next()

    def _committed(self) -> list[fx.Effect]:
        """Our version is there and the newest: it counts."""
        commit, self._commit = self._commit, None
        assert commit is not None
        effects = self._fold((commit.version,))
        if effects:
            return effects
        self._sight(commit.version.pair)
        self._backoff.reset()
        self._progress_ms = self._now_ms
        self._head_ms = self._now_ms + self._limits.head_ms
        self._waiting_ms = None
        return [fx.Committed(self._head()), *self._next()]

    def _head(self) -> Head:
        return Head(v=self.chain.v, pair=self.chain.pair, end=Offset(self.chain.end))

    # ---- packs

    def _cut(self, pack: BuiltPack) -> list[fx.Effect]:
        assert self._local is not None
        entry = pack.entry
        assert self.chain.end == entry.lo < entry.hi <= self._local.limit, "a pack within bounds"
        self._pack = pack
        return self._ask(fx.StorePack(self._new_ticket(), entry.key, pack.data))

    def _find_pack(self, call: fx.StorePack) -> list[fx.Effect]:
        end = call.data[-PACK_END_BYTES:]
        return self._ask(fx.FindPack(self._new_ticket(), call.key, len(call.data), end))

    def _drop_pack(self, reason: str) -> list[fx.Effect]:
        self._pack = None
        return self._wait(reason)

    def _commit_pack(self) -> list[fx.Effect]:
        pack, self._pack = self._pack, None
        assert pack is not None
        assert self._local is not None
        version = append(
            self.chain,
            [pack.entry],
            lineage=self._local.lineage.entries,
            tail=pack.tail,
            writer=self._writer,
            nonce=self._entropy.nonce(),
            at_ms=self._entropy.wall_ms(),
        )
        self._commit = Commit(version)
        return self._next()

    # ---- what is missing

    def _new_ticket(self) -> int:
        self._ticket += 1
        return self._ticket

    def _ask(self, call: fx.Call) -> list[fx.Effect]:
        assert self._call is None, "one call at a time"
        self._call = call
        return [call]

    def _next(self) -> list[fx.Effect]:
        """Ask for the one thing that is missing; nothing while a call or a wait is under way."""
        if self._call is not None or self.state not in ACTIVE or self.state is State.BACKOFF:
            return []
        self._enter(self._working_state())
        if not self._proven:
            return self._ask(fx.CheckMeta(self._new_ticket()))
        if self._stale:
            self._head_ms = self._now_ms + self._limits.head_ms
            return self._ask(
                fx.ReadVersions(self._new_ticket(), self.chain.v, self._limits.versions)
            )
        if self._commit is not None:
            return self._go_on_committing(self._commit)
        if not self.claimed:
            return self._claim()
        if not self._checked:
            return self._reconcile()
        return self._upload()

    def _go_on_committing(self, commit: Commit) -> list[fx.Effect]:
        v, ticket = commit.version.v, self._new_ticket()
        match commit.stage:
            case Stage.UNSENT:
                return self._ask(fx.CreateVersion(ticket, v, commit.data))
            case Stage.UNKNOWN:
                return self._ask(fx.ReadVersion(ticket, v))
            case Stage.OURS:
                return self._ask(fx.ListAfter(ticket, v))

    def _claim(self) -> list[fx.Effect]:
        assert self.own is not None
        assert self._local is not None
        version = claim(
            self.chain,
            pair=self.own,
            writer=self._writer,
            nonce=self._entropy.nonce(),
            at_ms=self._entropy.wall_ms(),
            start=None if self.chain.v else self._local.log_start,
        )
        self._commit = Commit(version)
        return self._next()

    def _reconcile(self) -> list[fx.Effect]:
        assert self._local is not None
        sentence = mismatch(self.chain, self._local)
        if sentence is not None:
            return self._halt(sentence)
        tail = self.chain.tail
        if tail is None or tail.at < self._local.log_start:
            return self._reconciled()
        return self._ask(fx.ReadTail(self._new_ticket(), Offset(tail.at), tail.size))

    def _tail(self, crc: str) -> list[fx.Effect]:
        tail = self.chain.tail
        assert tail is not None
        if crc != tail.crc:
            return self._halt(
                f"the record at {tail.at} has the sum {tail.crc} in the tier and {crc} in this "
                f"broker's log: they are different histories; keep both and compare them"
            )
        return self._reconciled()

    def _reconciled(self) -> list[fx.Effect]:
        self._checked = True
        self._progress_ms = self._now_ms
        self._enter(State.UPLOADING)
        return self._next()

    def _upload(self) -> list[fx.Effect]:
        """Cut a pack when enough waits, or waits long enough."""
        local, own = self._local, self.own
        assert local is not None
        assert own is not None
        waiting = local.limit - self.chain.end
        if waiting <= 0:
            self._waiting_ms = None
            return []
        if self._waiting_ms is None:
            self._waiting_ms = self._now_ms
        ripe = self._now_ms >= self._waiting_ms + self._limits.linger_ms
        if waiting < self._limits.pack_bytes and not ripe:
            return []
        return self._ask(
            fx.CutPack(
                ticket=self._new_ticket(),
                lo=Offset(self.chain.end),
                limit=local.limit,
                target_bytes=self._limits.pack_bytes,
                lineage=local.lineage.entries,
                pair=own,
                nonce=self._entropy.nonce(),
            )
        )

    # ---- what people and the timer are told

    def _has_work(self) -> bool:
        if self.state not in ACTIVE:
            return False
        if not self.claimed or not self._checked:
            return True
        assert self._local is not None
        return self._commit is not None or self._local.limit > self.chain.end

    def _report(self) -> list[fx.Effect]:
        effects: list[fx.Effect] = []
        work = self._has_work()
        if not work:
            self._progress_ms = self._now_ms
        alarm_ms = self._progress_ms + self._limits.alarm_ms
        stalled = work and self._now_ms >= alarm_ms
        status = Status(state=self.state, reason=self._reason, stalled=stalled)
        if status != self._status:
            self._status = status
            effects.append(fx.StatusChanged(status))
        wanted = self._deadlines()
        if work and not stalled:
            wanted.append(alarm_ms)
        armed_ms = min(wanted, default=None)
        if armed_ms != self._armed_ms:
            self._armed_ms = armed_ms
            effects.append(fx.ArmTimer(armed_ms))
        return effects

    def _deadlines(self) -> list[int]:
        if self.state in {State.BACKOFF, State.DRAINING}:
            return [self._wake_ms]
        if self.state is not State.UPLOADING or self._call is not None:
            return []
        if self._waiting_ms is None:
            return [self._head_ms]
        return [self._head_ms, self._waiting_ms + self._limits.linger_ms]
