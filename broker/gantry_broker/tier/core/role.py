"""``UploadRole``: whether this broker uploads its group's log to the tier, as a pure machine.

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
    an active one       foreign, newer, damaged, a broken chain,
                        the tier belongs to another group        -> HALTED

Active are CLAIMING, RECONCILING, UPLOADING and BACKOFF; what is done in them is in ``session``.
Rules protected here:

* Whoever sees a higher (epoch, inc) stops for good: no upload, no deletion, no local trim.
* Demotion cancels and cleans nothing: a cancelled put may land later, and then what it names must
  be there.
* The end of a cancelled call says nothing.
"""

from itertools import count

from gantry_protocol.tier.chain import ChainState
from gantry_protocol.tier.keys import Pair
from gantry_protocol.types import Offset

from gantry_broker.tier.core import effects as fx
from gantry_broker.tier.core import events as ev
from gantry_broker.tier.core.backoff import Backoff
from gantry_broker.tier.core.session import Entropy, Fence, Halt, UploadSession, Verdict, Wait
from gantry_broker.tier.core.values import (
    ACTIVE,
    DEFAULT_LIMITS,
    ChainHead,
    LocalLog,
    State,
    Status,
    TierLimits,
)

WORKING = ACTIVE - {State.BACKOFF}


class UploadRole:
    """The upload role of one process; see the module.

    Attributes:
        state: see the module.
        own: the pair of the newest promotion; None before the first.
        seen: the highest pair that ever fenced us or was spoken of.
        session: the upload of the current mastership; None while there is none.
        trouble: why the last call failed, until something is committed or nothing waits; for
            people.
    """

    def __init__(
        self,
        *,
        shard: str,
        writer: str,
        entropy: Entropy,
        limits: TierLimits = DEFAULT_LIMITS,
        owner: str = "",
    ) -> None:
        """A role that waits for a promotion.

        Args:
            shard: the group's name in the tier.
            writer: this broker, for people.
            entropy: nonces, chance and the date.
            limits: how much at once, how long to wait.
            owner: uid of the broker group, where it took the tier of another one over; empty for
                the shard.
        """
        self._owner = owner or shard
        self.state = State.STANDBY
        self.own: Pair | None = None
        self.seen: Pair | None = None
        self.session: UploadSession | None = None
        self.trouble = ""
        self._chain = ChainState(shard=shard)  # of earlier sessions, and of other readers
        self._writer = writer
        self._entropy = entropy
        self._limits = limits
        self._backoff = Backoff(limits)
        self._tickets = count(1)
        self._call: fx.Call | None = None
        self._proven = False
        self._reason = ""
        self._now_ms = 0
        self._wake_ms = 0
        self._since_ms: int | None = None  # the last progress while something waits
        self._armed_ms: int | None = None
        self._status = Status(state=self.state)

    # ---- what others may read

    @property
    def chain(self) -> ChainState:
        """The chain as far as it has been read or written."""
        return self._chain if self.session is None else self.session.chain

    @property
    def claimed(self) -> bool:
        """Whether the newest version that is known is ours, of this mastership."""
        return self.session is not None and self.session.claimed

    @property
    def holds_pack(self) -> bool:
        """Whether a pack was cut that is still to be sent."""
        return self.session is not None and self.session.holds_pack

    @property
    def committed_end(self) -> Offset | None:
        """Up to where the local log may be trimmed; None while that must not be decided."""
        session = self.session
        if session is None or not session.claimed or not session.checked:
            return None
        return Offset(session.chain.end)

    def end_for_trim(self, hint: ChainHead | None) -> Offset | None:
        """As ``committed_end``; a broker that does not upload goes by what its master tells.

        Args:
            hint: the newest head this broker was told of; ``HeadSeen`` with its pair came before,
                so that a deposed master does not trim by the head of the one who fenced it.
        """
        if self.state is not State.STANDBY:
            return self.committed_end
        return None if hint is None else hint.end

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
                if self.session is not None:
                    self.session.local = local
                return self._next()
            case ev.HeadSeen(pair=pair, chain=chain):
                self._adopt(chain)
                return self._spoken_of(pair)
            case ev.Timer():
                return self._timer()
            case _:
                return self._ended(event)

    def _promoted(self, pair: Pair, local: LocalLog) -> list[fx.Effect]:
        if self.state is State.HALTED or (self.own is not None and pair <= self.own):
            return []
        effects = self._end_session()
        self.own = pair
        if self.seen is not None and self.seen > pair:
            return effects + self._fenced(self.seen)
        self.session = UploadSession(
            pair,
            local,
            self._chain,
            owner=self._owner,
            writer=self._writer,
            entropy=self._entropy,
            limits=self._limits,
            tickets=self._tickets,
        )
        self._backoff.reset()
        self._since_ms = None
        self._enter(State.CLAIMING)
        return effects + self._next()

    def _demoted(self) -> list[fx.Effect]:
        if self.state in {State.HALTED, State.STANDBY, State.DRAINING}:
            return []
        call = self._call
        effects = self._end_session()
        self._call = call
        self._enter(State.STANDBY if call is None else State.DRAINING)
        self._wake_ms = self._now_ms + self._limits.drain_ms
        return effects

    def _adopt(self, chain: ChainState | None) -> None:
        """What another reader of this process has folded need not be read again.

        At a promotion, or by a session that waits: what it would read next may be gone for good.
        """
        if chain is not None and chain.v > self._chain.v:
            self._chain = chain

    def _spoken_of(self, pair: Pair) -> list[fx.Effect]:
        if self.seen is None or pair > self.seen:
            self.seen = pair
        if self.session is None or pair <= self.session.pair:
            return []
        return self._fenced(pair)

    def _timer(self) -> list[fx.Effect]:
        self._armed_ms = None  # one that came early is armed again
        if self.state is State.DRAINING and self._now_ms >= self._wake_ms:
            self._call = None
            self._enter(State.STANDBY)
        if self.session is not None and self.state is State.BACKOFF:
            if self._now_ms < self._wake_ms:
                return []
            self.session.doubt(self._chain)
            self._enter(self.session.state)
        elif self.session is not None:
            self.session.expire(self._now_ms)
        return self._next()

    def _ended(self, event: ev.Result) -> list[fx.Effect]:
        call = self._call
        if call is None or event.ticket != call.ticket:
            return []  # of a call that was cancelled
        self._call = None
        session = self.session
        if session is None:
            assert self.state is State.DRAINING, "only a demoted role waits without a session"
            self._enter(State.STANDBY)
            return []
        if isinstance(event, ev.MetaChecked):
            self._proven = True
            return self._next()
        effects = self._judge(session.take(call, event))
        if session.head is not None:
            effects.insert(0, fx.Committed(session.head))
            session.head = None
            self._backoff.reset()
            self._since_ms, self.trouble = None, ""
        return effects

    # ---- decisions

    def _judge(self, verdict: Verdict | None) -> list[fx.Effect]:
        match verdict:
            case None:
                return self._next()
            case Wait(reason=reason):
                self.trouble = reason
                self._wake_ms = self._now_ms + self._backoff.next_ms(self._entropy.chance())
                self._enter(State.BACKOFF, reason)
                return []
            case Fence(by=by):
                return self._fenced(by)
            case Halt(sentence=sentence):
                effects = self._end_session()
                self._enter(State.HALTED, sentence)
                return effects

    def _next(self) -> list[fx.Effect]:
        """Ask for what is missing; nothing while a call or a wait is under way."""
        session = self.session
        if session is None or self._call is not None or self.state not in WORKING:
            return []
        decision = session.next(self._now_ms) if self._proven else fx.CheckMeta(next(self._tickets))
        self._enter(session.state)
        if isinstance(decision, Halt):
            return self._judge(decision)
        self._call = decision
        return [] if decision is None else [decision]

    def _fenced(self, by: Pair | None) -> list[fx.Effect]:
        assert self.own is not None
        effects = self._end_session()
        if by is not None and (self.seen is None or by > self.seen):
            self.seen = by
        whom = "a later version" if by is None else f"epoch {by.epoch}, start {by.inc}"
        self._enter(
            State.FENCED,
            f"{whom} is in the chain; this broker uploaded for epoch {self.own.epoch}, start "
            f"{self.own.inc}, and stops until it is elected again",
        )
        return [*effects, fx.FencedBy(own=self.own, by=by)]

    def _end_session(self) -> list[fx.Effect]:
        """Keep what was read of the chain, and forget everything that was planned."""
        self._adopt(self.chain)
        self.session = None
        if self._call is None:
            return []
        self._call = None
        return [fx.CancelCalls()]

    def _enter(self, state: State, reason: str = "") -> None:
        self.state, self._reason = state, reason

    # ---- what people and the timer are told

    def _report(self) -> list[fx.Effect]:
        session = self.session
        work = session is not None and session.has_work
        if not work:
            self._since_ms, self.trouble = None, ""
        elif self._since_ms is None:
            self._since_ms = self._now_ms
        alarm_ms = None if self._since_ms is None else self._since_ms + self._limits.alarm_ms
        stalled = alarm_ms is not None and self._now_ms >= alarm_ms
        effects: list[fx.Effect] = []
        status = Status(state=self.state, reason=self._reason, stalled=stalled)
        if status != self._status:
            self._status = status
            effects.append(fx.StatusChanged(status))
        deadlines = [self._deadline_ms(), None if stalled else alarm_ms]
        armed_ms = min((deadline for deadline in deadlines if deadline is not None), default=None)
        if armed_ms != self._armed_ms:
            self._armed_ms = armed_ms
            effects.append(fx.ArmTimer(armed_ms))
        return effects

    def _deadline_ms(self) -> int | None:
        if self.state in {State.BACKOFF, State.DRAINING}:
            return self._wake_ms
        if self.session is None or self._call is not None:
            return None
        return self.session.deadline_ms()
