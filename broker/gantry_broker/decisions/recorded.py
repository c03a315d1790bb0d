"""A replica core whose steps are recorded: the one place at which inputs meet it.

Each input is taken as the core takes it; what it was given and what came out are kept in a
``StepRing``, without messages (``told``). A stretch begins between two inputs.

What comes several times for each send is kept as numbers, which ``dense`` reads back.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

import msgspec
from gantry_protocol.steps.plain import raised
from gantry_protocol.steps.ring import RUN

from gantry_broker.decisions import dense
from gantry_broker.decisions.state import state_of
from gantry_broker.decisions.told import EFFECT_BYTES, append_told, effects_told, event_told
from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev
from gantry_broker.replica.core import ReplicaCore
from gantry_broker.replica.messages import Ack, Append

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gantry_protocol.steps.ring import StepRing
    from gantry_protocol.types import Offset

    from gantry_broker.replica.master import Batch

PASS_STEPS: Final = 16
"""Steps between two looks at the ring's bounds."""
_NUMBERS_A_STEP: Final = 40  # as large as another step
_CONFIRMED: Final = fx.Fate.CONFIRMED  # an attribute of an enum costs as much as all else here
_NOTHING: Final = (0, 0, 0)
_FED: Final = (0, 0, 1)
_encode = msgspec.json.Encoder().encode
_step = ReplicaCore.step  # what each send passes is found by the shortest way
_appended = ReplicaCore.appended
_sent = ReplicaCore.sent


class RecordedReplica(ReplicaCore):
    """A core with a ring.

    Args:
        ring: takes the steps in.
        time: the time of day as text.
        **start: as ``ReplicaCore`` has it.
    """

    def __init__(self, *, ring: StepRing, time: Callable[[], str], **start: Any) -> None:
        """The ring's first stretch of this core begins with it."""
        super().__init__(**start)
        self._ring = ring
        self._time = time
        self._is_recorded = True
        self._left = PASS_STEPS  # steps until the next look at the bounds
        self._size = 0  # of these, besides what each one takes
        self._run: list[int] | None = None  # of the last step, while it may grow
        try:
            ring.restart()
            self._begin()
        except Exception as error:  # noqa: BLE001 - no decision waits for its own record
            self._end(error)

    # ---- inputs

    def step(self, event: ev.Event, now_ms: int) -> list[fx.Effect]:
        """See ``ReplicaCore``."""
        try:
            effects = _step(self, event, now_ms)
        except Exception as error:
            self._failed("step", (event, now_ms), error)
            raise
        if self._is_recorded:
            try:
                numbers = step_in_numbers(event, now_ms, effects)
                run = self._run
                if numbers is not None and run is not None and len(run) < dense.RUN_MAX:
                    run.extend(numbers)  # mostly
                elif numbers is not None:
                    self._begin_run(numbers)
                else:
                    self._size += EFFECT_BYTES * len(effects)
                    self._keep("step", (event_told(event), now_ms), effects_told(effects))
            except Exception as error:  # noqa: BLE001 - as above
                self._end(error)
        return effects

    def appended(self, end: Offset, write: object | None = None, now_ms: int = 0) -> None:
        """See ``ReplicaCore``."""
        try:
            _appended(self, end, write, now_ms)
        except Exception as error:
            self._failed("appended", (end, dense.BLANK if write is None else now_ms), error)
            raise
        if self._is_recorded:
            try:
                numbers = (dense.APPENDED, end, dense.BLANK if write is None else now_ms)
                run = self._run
                if run is not None and len(run) < dense.RUN_MAX:
                    run.extend(numbers)
                else:
                    self._begin_run(numbers)
            except Exception as error:  # noqa: BLE001 - as above
                self._end(error)

    def sent(self, link: int, batch: Batch, data: bytes) -> Append:
        """See ``ReplicaCore``."""
        try:
            message = _sent(self, link, batch, data)
        except Exception as error:
            self._failed("sent", (link, batch, len(data)), error)
            raise
        if self._is_recorded:
            try:
                numbers = batch_in_numbers(link, batch, len(data), message)
                run = self._run
                if numbers is not None and run is not None and len(run) < dense.RUN_MAX:
                    run.extend(numbers)
                elif numbers is not None:
                    self._begin_run(numbers)
                else:
                    self._size += EFFECT_BYTES
                    self._keep("sent", (link, batch, len(data)), append_told(message))
            except Exception as error:  # noqa: BLE001 - as above
                self._end(error)
        return message

    def confirm_news(self) -> list[fx.Effect]:
        """See ``ReplicaCore``."""
        effects = super().confirm_news()
        self._made("confirm_news", effects)
        return effects

    def stopped(self) -> list[fx.WritesEnded]:
        """See ``ReplicaCore``."""
        effects = super().stopped()
        self._made("stopped", effects)
        return effects

    # ---- inside

    def _made(self, kind: str, effects: Any) -> None:
        if self._is_recorded:
            try:
                self._size += EFFECT_BYTES * len(effects)
                self._keep(kind, None, effects_told(effects))
            except Exception as error:  # noqa: BLE001 - as above
                self._end(error)

    def _begin_run(self, numbers: tuple[int, ...]) -> None:
        """Keep an input as numbers, and those of its kind right behind it."""
        run = list(numbers)  # a list grows eight times as fast as an array
        self._keep(RUN, run, None)
        steps = self._ring.steps
        if steps and steps[-1][1] is run:  # no stretch has begun since
            self._run = run

    def _keep(self, kind: str, given: Any, outcome: Any) -> None:
        run, self._run = self._run, None
        steps = self._ring.steps
        if run is not None:  # it is as long as it will be
            steps[-1] = (RUN, array("q", run), None, None)
            self._size += 8 * len(run)
            self._left -= len(run) // _NUMBERS_A_STEP
        steps.append((kind, given, None, outcome))
        self._left -= 1
        if self._left <= 0:
            self._left = PASS_STEPS
            size, self._size = self._size, 0
            if self._ring.passed(size):
                self._begin()

    def _begin(self) -> None:
        self._ring.begin(self._time(), _encode(state_of(self)))

    def _failed(self, kind: str, given: Any, error: Exception) -> None:
        if self._is_recorded:
            try:
                if kind == "step":
                    given = (event_told(given[0]), given[1])
                self._keep(kind, given, raised(error))
            except Exception as inner:  # noqa: BLE001 - as above
                self._end(inner)

    def _end(self, error: Exception) -> None:
        """Nothing is recorded from here on."""
        self._is_recorded = False
        self._run = None
        self._ring.end(f"{type(error).__name__}: {error}")


# Inputs as numbers, which `dense` reads back


def batch_in_numbers(link: int, batch: Batch, size: int, message: Append) -> tuple[int, ...] | None:
    """A batch that was sent; None: its message is not the usual one."""
    entry = batch.entry
    if message.entry is not entry or message.offset != batch.offset:
        return None
    return (
        dense.SENT, link, batch.offset, batch.limit, batch.size_hint, entry.epoch,
        entry.start_offset, size, message.epoch, message.confirm, message.in_sync,
    )  # fmt: skip


def step_in_numbers(
    event: Any, now_ms: int, effects: Sequence[fx.Effect]
) -> tuple[int, ...] | None:
    """An event and what came out; None: it has no usual form."""
    kind = type(event)
    if kind is ev.Received:
        message = event.message
        kind = type(message)
        if kind is Ack:
            out = _moved(effects) if effects else _NOTHING
            if out is None:
                return None
            flags = message.draining + 2 * message.has_room
            return (
                dense.ACKED,
                event.link,
                message.epoch,
                message.flushed_end,
                flags,
                now_ms,
                *out,
            )
        if kind is Append:
            return _heard(event.link, message, now_ms, effects)
        return None
    if kind is ev.LogFlushed:
        out = _moved(effects) if effects else _NOTHING
        if out is not None:
            return (dense.FLUSHED, event.flushed, event.cuts, now_ms, *out)
        return _acking(event, now_ms, effects)
    return (dense.TICK, now_ms) if kind is ev.Tick and not effects else None


def _moved(effects: Sequence[fx.Effect]) -> tuple[int, int, int] | None:
    """Confirm, how many writes end with it plus one, and whether there is more to send."""
    first, count = effects[0], len(effects)
    if type(first) is fx.Feed:
        return _FED if count == 1 else None
    if type(first) is not fx.ConfirmMoved or first.fate is not _CONFIRMED:
        return None
    if count == 1:
        return first.confirm, 1 + len(first.writes), 0
    if count == 2 and type(effects[1]) is fx.Feed:
        return first.confirm, 1 + len(first.writes), 1
    return None


def _heard(
    link: int, message: Append, now_ms: int, effects: Sequence[fx.Effect]
) -> tuple[int, ...] | None:
    """Bytes of the master, which are written as they are."""
    count, size = len(effects), len(message.data)
    if not size or not count:
        return None
    first, confirm = effects[0], -1
    if type(first) is not fx.AppendLog or first.offset != message.offset or len(first.data) != size:
        return None
    if count > 1:
        second = effects[1]
        if count > 2 or type(second) is not fx.ConfirmMoved or second.writes:
            return None
        if second.fate is not _CONFIRMED:
            return None
        confirm = second.confirm
    entry = message.entry
    return (
        dense.HEARD, link, message.epoch, entry.epoch, entry.start_offset, message.offset,
        message.confirm, message.in_sync, size, now_ms, confirm,
    )  # fmt: skip


def _acking(
    event: ev.LogFlushed, now_ms: int, effects: Sequence[fx.Effect]
) -> tuple[int, ...] | None:
    """A replica's flush, which is acknowledged."""
    first = effects[0]
    if len(effects) != 1 or type(first) is not fx.Send or type(first.message) is not Ack:
        return None
    ack = first.message
    return (
        dense.ACKING, event.flushed, event.cuts, now_ms, first.link, ack.epoch, ack.flushed_end,
        ack.draining + 2 * ack.has_room,
    )  # fmt: skip
