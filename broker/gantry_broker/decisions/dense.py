"""Inputs that come several times for each send, as numbers; pure.

A master's appends, batches, flushes and acknowledgements, a replica's batches and flushes, and
ticks out of which nothing comes are nearly all of a core's inputs. As objects they would cost more
than the core's own work, and a ring would hold a second of them. So those that follow one another
are one step, a run of numbers, as long as only the usual comes of them; each is an input with its
outcome again when somebody asks. What has no usual form here is kept as every other step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gantry_protocol.types import Epoch, EpochEntry, Offset

from gantry_broker.decisions.told import hollow
from gantry_broker.replica.effects import AppendLog, ConfirmMoved, Effect, Fate, Feed, Send
from gantry_broker.replica.events import LogFlushed, Received, Tick
from gantry_broker.replica.master import Batch
from gantry_broker.replica.messages import Ack, Append

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gantry_protocol.steps.replay import Item

BLANK: Final = -1
"""Instead of a time: an append for which nobody waits."""
RUN_MAX: Final = 512
"""Numbers of one run, 8 bytes each; the last input may exceed it."""

_TICK, APPENDED, _FLUSHED, _ACKED, _SENT, _HEARD, _ACKING = range(7)
_CONFIRMED: Final = Fate.CONFIRMED  # an attribute of an enum costs as much as all else here
_NOTHING: Final = (0, 0, 0)
_FED: Final = (0, 0, 1)


def sent(link: int, batch: Batch, size: int, message: Append) -> tuple[int, ...] | None:
    """A batch that was sent; None: its message is not the usual one."""
    entry = batch.entry
    if message.entry is not entry or message.offset != batch.offset:
        return None
    return (
        _SENT, link, batch.offset, batch.limit, batch.size_hint, entry.epoch, entry.start_offset,
        size, message.epoch, message.confirm, message.in_sync,
    )  # fmt: skip


def stepped(event: Any, now_ms: int, effects: Sequence[Effect]) -> tuple[int, ...] | None:
    """An event and what came out; None: it has no usual form."""
    kind = type(event)
    if kind is Received:
        message = event.message
        kind = type(message)
        if kind is Ack:
            out = _moved(effects)
            if out is None:
                return None
            flags = message.draining + 2 * message.has_room
            return (_ACKED, event.link, message.epoch, message.flushed_end, flags, now_ms, *out)
        if kind is Append:
            return _heard(event.link, message, now_ms, effects)
        return None
    if kind is LogFlushed:
        out = _moved(effects)
        if out is not None:
            return (_FLUSHED, event.flushed, event.cuts, now_ms, *out)
        return _acking(event, now_ms, effects)
    return (_TICK, now_ms) if kind is Tick and not effects else None


def _moved(effects: Sequence[Effect]) -> tuple[int, int, int] | None:
    """Confirm, how many writes end with it plus one, and whether there is more to send."""
    if not effects:
        return _NOTHING
    first, count = effects[0], len(effects)
    if type(first) is Feed:
        return _FED if count == 1 else None
    if type(first) is not ConfirmMoved or first.fate is not _CONFIRMED:
        return None
    if count == 1:
        return first.confirm, 1 + len(first.writes), 0
    if count == 2 and type(effects[1]) is Feed:
        return first.confirm, 1 + len(first.writes), 1
    return None


def _heard(
    link: int, message: Append, now_ms: int, effects: Sequence[Effect]
) -> tuple[int, ...] | None:
    """Bytes of the master, which are written as they are."""
    count, size = len(effects), len(message.data)
    if not size or not count:
        return None
    first, confirm = effects[0], -1
    if type(first) is not AppendLog or first.offset != message.offset or len(first.data) != size:
        return None
    if count > 1:
        second = effects[1]
        if count > 2 or type(second) is not ConfirmMoved or second.writes:
            return None
        if second.fate is not _CONFIRMED:
            return None
        confirm = second.confirm
    entry = message.entry
    return (
        _HEARD, link, message.epoch, entry.epoch, entry.start_offset, message.offset,
        message.confirm, message.in_sync, size, now_ms, confirm,
    )  # fmt: skip


def _acking(event: LogFlushed, now_ms: int, effects: Sequence[Effect]) -> tuple[int, ...] | None:
    """A replica's flush, which is acknowledged."""
    first = effects[0]
    if len(effects) != 1 or type(first) is not Send or type(first.message) is not Ack:
        return None
    ack = first.message
    return (
        _ACKING, event.flushed, event.cuts, now_ms, first.link, ack.epoch, ack.flushed_end,
        ack.draining + 2 * ack.has_room,
    )  # fmt: skip


def items(run: Sequence[int]) -> Iterator[Item]:
    """Each input of a run with its outcome, as a step of its own.

    Raises:
        TypeError: these numbers are no run.
        LookupError: nor are these.
    """
    numbers = list(run)
    place = 0
    while place < len(numbers):
        length, made = _MADE[numbers[place]]
        yield made(*numbers[place + 1 : place + length])
        place += length


def _made_tick(now_ms: int) -> Item:
    return ("step", (Tick(), now_ms), None, None)


def _made_appended(end: int, now_ms: int) -> Item:
    return ("appended", (end, now_ms), None, None)


def _made_flushed(flushed: int, cuts: int, now_ms: int, *out: int) -> Item:
    return ("step", (LogFlushed(Offset(flushed), cuts), now_ms), None, _effects(*out))


def _made_ack(link: int, epoch: int, end: int, flags: int, now_ms: int, *out: int) -> Item:
    event = Received(link, _ack(epoch, end, flags))
    return ("step", (event, now_ms), None, _effects(*out))


def _ack(epoch: int, end: int, flags: int) -> Ack:
    return Ack(Epoch(epoch), Offset(end), bool(flags & 1), bool(flags & 2))


def _effects(confirm: int, writes: int, fed: int) -> list[Effect] | None:
    found: list[Effect] = []
    if writes:
        found.append(ConfirmMoved(Offset(confirm), Fate.CONFIRMED, range(writes - 1)))
    return [*found, Feed()] if fed else found or None


def _made_sent(
    link: int,
    offset: int,
    limit: int,
    size_hint: int,
    line: int,
    start: int,
    size: int,
    epoch: int,
    confirm: int,
    in_sync: int,
) -> Item:
    entry = EpochEntry(Epoch(line), Offset(start))
    batch = Batch(Offset(offset), Offset(limit), size_hint, entry)
    message = Append(Epoch(epoch), entry, batch.offset, Offset(confirm), bool(in_sync))
    return ("sent", (link, batch, size), None, message)


def _made_heard(
    link: int,
    epoch: int,
    line: int,
    start: int,
    offset: int,
    confirm: int,
    in_sync: int,
    size: int,
    now_ms: int,
    moved: int,
) -> Item:
    entry, data = EpochEntry(Epoch(line), Offset(start)), hollow(size)
    message = Append(Epoch(epoch), entry, Offset(offset), Offset(confirm), bool(in_sync), data)
    outcome: list[Effect] = [AppendLog(message.offset, data)]
    if moved >= 0:
        outcome.append(ConfirmMoved(Offset(moved)))
    return ("step", (Received(link, message), now_ms), None, outcome)


def _made_acking(
    flushed: int, cuts: int, now_ms: int, link: int, epoch: int, end: int, flags: int
) -> Item:
    event = LogFlushed(Offset(flushed), cuts)
    return ("step", (event, now_ms), None, [Send(link, _ack(epoch, end, flags))])


_MADE: Final[dict[int, tuple[int, Callable[..., Item]]]] = {
    _TICK: (2, _made_tick),
    APPENDED: (3, _made_appended),
    _FLUSHED: (7, _made_flushed),
    _ACKED: (9, _made_ack),
    _SENT: (11, _made_sent),
    _HEARD: (11, _made_heard),
    _ACKING: (8, _made_acking),
}
"""How many numbers a form has, itself included, and the step that it stands for."""
