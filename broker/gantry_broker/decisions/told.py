"""Inputs and outputs of the replica core, as far as its decisions rest on them; pure.

The core reads no byte of a message but counts them, and knows nothing of a write but that it waits.
So of bytes the size is kept, and of writes the number. All of this is made while the core runs,
several times for each send, so it keeps references to frozen values and leaves the work to whoever
reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gantry_protocol.steps.plain import Hollow

from gantry_broker.replica.effects import AppendLog, ConfirmMoved, Demoted, Effect, WritesEnded
from gantry_broker.replica.events import Received
from gantry_broker.replica.messages import Append, Message, Range

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gantry_broker.replica.events import Event

EFFECT_BYTES: Final = 150
"""What an output takes in memory, about, besides its step (``ring.STEP_BYTES``)."""


def hollow(size: int) -> Any:
    """As many bytes, of which nothing is known."""
    return Hollow(size) if size else b""


def event_told(event: Event) -> Event:
    """An event as it is kept: without the bytes of its message."""
    if type(event) is not Received:
        return event
    message = event.message
    if (type(message) is Append or type(message) is Range) and message.data:
        return Received(event.link, _message_told(message))
    return event


def _message_told(message: Append | Range) -> Message:
    if isinstance(message, Append):
        return append_told(message, hollow(len(message.data)))
    return Range(message.start, hollow(len(message.data)), message.reason)


def append_told(message: Append, data: Any = b"") -> Append:
    """A batch, with other bytes."""
    return Append(
        message.epoch, message.entry, message.offset, message.confirm, message.in_sync, data
    )


def effects_told(effects: Sequence[Effect]) -> list[Effect] | None:
    """The output of an event as it is kept; None for none at all."""
    if not effects:
        return None
    return [
        _HOLDERS[type(one)](one) if type(one) in _HOLDERS else one  # mostly not
        for one in effects
    ]


def _count(writes: Sequence[object]) -> Any:
    """As many writes, and none of them."""
    return range(len(writes))


_HOLDERS: Final[dict[type[Any], Callable[[Any], Effect]]] = {
    AppendLog: lambda one: AppendLog(one.offset, hollow(len(one.data))),
    ConfirmMoved: lambda one: ConfirmMoved(one.confirm, one.fate, _count(one.writes)),
    Demoted: lambda one: Demoted(one.epoch, _count(one.writes)),
    WritesEnded: lambda one: WritesEnded(one.fate, _count(one.writes)),
}
"""Effects that hold on to messages, or to who waits for them."""
