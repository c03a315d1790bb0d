"""Inputs that come several times for each send, read from numbers; pure.

A master's appends, batches, flushes and acknowledgements, a replica's batches and flushes, and
ticks out of which nothing comes are nearly all of a core's inputs. As objects they would cost more
than the core's own work, and a ring would hold a second of them. So those that follow one another
are one step, a run of numbers, as long as only the usual comes of them; each is an input with its
outcome again when somebody asks. What has no usual form here is kept as every other step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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

TICK, APPENDED, FLUSHED, ACKED, SENT, HEARD, ACKING = range(7)


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
    TICK: (2, _made_tick),
    APPENDED: (3, _made_appended),
    FLUSHED: (7, _made_flushed),
    ACKED: (9, _made_ack),
    SENT: (11, _made_sent),
    HEARD: (11, _made_heard),
    ACKING: (8, _made_acking),
}
"""How many numbers a form has, itself included, and the step that it stands for."""
