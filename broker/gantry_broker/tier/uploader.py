"""``Uploader``: the event loop around the upload role.

It feeds the role with what happens (promotions, a confirm offset that rises, ends of calls, time)
and carries out what it asks for, one call at a time. Rule protected: the role decides, nothing
here does; a call that was cancelled still ends in its one event. What it refuses: to hold up the
group. Nothing of the group ever waits for the store.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from random import SystemRandom
from time import time
from typing import Protocol

from gantry_protocol.process import log
from gantry_protocol.tier.chain import ChainState
from gantry_protocol.tier.keys import Pair

from gantry_broker.tier.calls import Calls
from gantry_broker.tier.core import effects as fx
from gantry_broker.tier.core import events as ev
from gantry_broker.tier.core.role import UploadRole
from gantry_broker.tier.core.values import ChainHead, LocalLog, Status

ADVANCE_S = 0.05  # between two looks at a confirm offset that rises all the time

_log = log.get("tier")


class SystemEntropy:
    """Nonces, chance and the date, from the operating system."""

    def __init__(self) -> None:
        """Nothing is drawn yet."""
        self._random = SystemRandom()

    def nonce(self) -> str:
        """128 random bits as hex."""
        return secrets.token_hex(16)

    def chance(self) -> float:
        """A number in [0, 1)."""
        return self._random.random()

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return int(time() * 1000)


class UploadObserver(Protocol):
    """An observer of the upload role."""

    def tier_committed(self, head: ChainHead) -> None:
        """The tier reaches ``head.end`` by our commit."""
        ...

    def tier_fenced(self, own: Pair, by: Pair | None) -> None:
        """Another master holds the chain; somebody should ask the controllers."""
        ...


class Uploader:
    """See the module.

    Args:
        role: decides.
        calls: the store and the log.
        local: the local log as it is now.
        observer: is told of commits and of being fenced.
        failed: called with a fault of ours; uploads would stand still without a word otherwise.
    """

    def __init__(
        self,
        role: UploadRole,
        calls: Calls,
        local: Callable[[], LocalLog],
        observer: UploadObserver,
        failed: Callable[[BaseException], None],
    ) -> None:
        """Nothing happens before a promotion."""
        self.role = role
        self.head: ChainHead | None = None
        self.commits = 0
        self._calls = calls
        self._local = local
        self._observer = observer
        self._failed = failed
        self._events: deque[ev.Event] = deque()
        self._stepping = False
        self._loop = asyncio.get_running_loop()
        self._running: set[asyncio.Task[None]] = set()
        self._call: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._advance: asyncio.TimerHandle | None = None
        self._ended = False

    @property
    def status(self) -> Status:
        """For people."""
        return self.role.status

    @property
    def failures(self) -> Mapping[str, int]:
        """Calls that failed, by the kind of failure."""
        return self._calls.failures

    # ---- what happens

    def promoted(self, pair: Pair) -> None:
        """This broker serves as master under ``pair``."""
        self._step(ev.Promoted(pair=pair, local=self._local()))

    def demoted(self) -> None:
        """It is not the master any more."""
        self._step(ev.Demoted())

    def advanced(self) -> None:
        """The confirm offset rose; looked at a little later, together with what follows."""
        if self._advance is None and not self._ended:
            self._advance = self._loop.call_later(ADVANCE_S, self._look)

    def chain_seen(self, chain: ChainState) -> None:
        """Somebody in this process has read the chain."""
        self._step(ev.HeadSeen(chain.pair, chain))

    async def stop(self) -> None:
        """Demote, and give up what is under way; it may be applied all the same."""
        self._step(ev.Demoted())
        self._ended = True
        for timer in (self._timer, self._advance):
            if timer is not None:
                timer.cancel()
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._calls.settle(holds_pack=False)

    # ---- inside

    def _look(self) -> None:
        self._advance = None
        if self.role.session is not None:
            self._step(ev.LogAdvanced(self._local()))

    def _step(self, event: ev.Event) -> None:
        """Feed one event; from within an effect it waits for the effects before it."""
        self._events.append(event)
        if self._stepping or self._ended:
            return
        self._stepping = True
        try:
            while self._events:
                now_ms = int(self._loop.time() * 1000)
                for effect in self.role.step(self._events.popleft(), now_ms):
                    self._carry_out(effect)
        finally:
            self._stepping = False
            self._calls.settle(holds_pack=self.role.holds_pack)

    def _carry_out(self, effect: fx.Effect) -> None:
        match effect:
            case fx.CancelCalls():
                if self._call is not None:
                    self._call.cancel()
                    self._call = None
            case fx.ArmTimer(at_ms=at_ms):
                self._arm(at_ms)
            case fx.Committed(head=head):
                self.head = head
                self.commits += 1
                self._observer.tier_committed(head)
            case fx.FencedBy(own=own, by=by):
                _log.warning("fenced", own=own, by=by or "a later version")
                self._observer.tier_fenced(own, by)
            case fx.StatusChanged(status=status):
                self._tell(status)
            case _:
                self._begin(effect)

    def _begin(self, call: fx.Call) -> None:
        task = asyncio.create_task(self._run(call))
        self._call = task
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, call: fx.Call) -> None:
        try:
            event = await self._calls.run(call)
        except asyncio.CancelledError:
            event = ev.CallFailed(call.ticket, "it was cancelled")
        except Exception as error:  # noqa: BLE001 -- a fault of ours, handed to the process
            self._failed(error)
            return
        self._step(event)

    def _arm(self, at_ms: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_ms is not None:
            self._timer = self._loop.call_at(at_ms / 1000, self._step, ev.Timer())

    def _tell(self, status: Status) -> None:
        level = _log.warning if status.stalled or status.reason else _log.info
        level("upload", state=status.state.value, reason=status.reason, stalled=status.stalled)
