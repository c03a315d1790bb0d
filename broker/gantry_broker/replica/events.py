"""Everything that can happen to a replica: the only inputs of ``ReplicaCore.step``.

Links are numbered by whoever opens them: incoming ones get positive numbers from the listener,
outgoing ones negative numbers from the core. A number is never used twice in a process.
"""

import msgspec
from gantry_protocol.types import BrokerId, Offset

from gantry_broker.replica.messages import Message
from gantry_broker.replica.values import ControllerView


class ViewLearned(msgspec.Struct, frozen=True):
    """The controller described the group; views may arrive late, twice and out of order."""

    view: ControllerView


class ControllersAnswered(msgspec.Struct, frozen=True):
    """Their leader answered a question about this group; what it said was told before this.

    Attributes:
        asked_ms: when the question was asked. At that moment or later they spoke to us: an answer
            that was long on its way says nothing of the present.
    """

    asked_ms: int


class LinkOpened(msgspec.Struct, frozen=True):
    """The link that ``OpenLink`` asked for is connected."""

    link: int


class LinkClosed(msgspec.Struct, frozen=True):
    """A link, either way, is gone; also when it could not be opened."""

    link: int


class Received(msgspec.Struct, frozen=True):
    """A message arrived on a link."""

    link: int
    message: Message


class LinkRefused(msgspec.Struct, frozen=True):
    """A message on a replica's link, or the answer that it needs, does not fit the log."""

    link: int
    reason: str


class LogRefused(msgspec.Struct, frozen=True):
    """The disk or the log refused the master's bytes.

    Attributes:
        end: where the log really ends.
    """

    end: Offset
    reason: str


class LogTrimmed(msgspec.Struct, frozen=True):
    """The log begins at ``start`` now; what was below is in the tier."""

    start: Offset


class LogFlushed(msgspec.Struct, frozen=True):
    """Everything below ``flushed`` is on the disk.

    Attributes:
        cuts: ``LogFacts.cuts`` when this flush was asked for. A flush of bytes that have been cut
            since says nothing about the bytes that took their place.
    """

    flushed: Offset
    cuts: int


class LogCut(msgspec.Struct, frozen=True):
    """The cut that ``CutLog`` asked for is durable."""


class StateSaved(msgspec.Struct, frozen=True):
    """The state that ``SaveState`` carried under this token is durable."""

    token: int


class Adopted(msgspec.Struct, frozen=True):
    """The controller accepted the proposal; this is the set now."""

    sync_state_set: frozenset[BrokerId]
    sync_state_set_epoch: int


class Refused(msgspec.Struct, frozen=True):
    """The controller refused this very attempt: it has not changed and will not change anything."""

    reason: str


class Unknown(msgspec.Struct, frozen=True):
    """No answer: the attempt may have been applied, or may be applied later."""


class ProposalFinished(msgspec.Struct, frozen=True):
    """The end of one ``Propose``; every attempt ends exactly once."""

    attempt: int
    outcome: Adopted | Refused | Unknown


class LogDamaged(msgspec.Struct, frozen=True):
    """A range of our log is not what was flushed; as a replica we could have it again.

    Attributes:
        start: of the range.
    """

    start: Offset


class DrainRequested(msgspec.Struct, frozen=True):
    """This process is to leave."""


class HandOverFinished(msgspec.Struct, frozen=True):
    """The designated election is over.

    Attributes:
        accepted: the target was elected.
        answered: the controllers' leader said so, or that it does not elect it; otherwise nobody
            that leads could be asked, or the answer is lost.
    """

    accepted: bool
    answered: bool = True


class RoomChanged(msgspec.Struct, frozen=True):
    """The room on this disk has changed.

    Attributes:
        is_full: no message finds room, or is to.
        has_room: it is far from full; between the two it is neither.
    """

    is_full: bool
    has_room: bool


class Tick(msgspec.Struct, frozen=True):
    """Time has passed; comes about every 20 ms."""


Event = (
    ViewLearned
    | ControllersAnswered
    | LinkOpened
    | LinkClosed
    | Received
    | LinkRefused
    | LogRefused
    | LogTrimmed
    | LogFlushed
    | LogCut
    | StateSaved
    | ProposalFinished
    | LogDamaged
    | DrainRequested
    | HandOverFinished
    | RoomChanged
    | Tick
)
