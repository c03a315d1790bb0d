"""Everything that can happen to the upload role: the only inputs of ``UploadRole.step``.

Events with a ``ticket`` end the call that was asked for under it. The end of a call that has been
cancelled comes too, and is told apart by its ticket.
"""

import msgspec
from gantry_protocol.tier.chain import ChainState
from gantry_protocol.tier.keys import Pair
from gantry_protocol.tier.manifests import Version
from gantry_protocol.tier.packs import BuiltPack

from gantry_broker.tier.core.values import LocalLog


class Promoted(msgspec.Struct, frozen=True):
    """This broker serves as master under ``pair``; its first record went to the end of ``local``.

    Attributes:
        pair: the master epoch, and the boot counter of this process.
    """

    pair: Pair
    local: LocalLog


class Demoted(msgspec.Struct, frozen=True):
    """This broker is not the master any more."""


class LogAdvanced(msgspec.Struct, frozen=True):
    """Confirm, flushed or end of the master's log rose, or its start."""

    local: LocalLog


class HeadSeen(msgspec.Struct, frozen=True):
    """Somebody speaks of a head of the chain written under ``pair``: a heartbeat, a reader.

    Attributes:
        chain: up to that head, from somebody who folded it out of the store; None from others.
    """

    pair: Pair
    chain: ChainState | None = None


class Timer(msgspec.Struct, frozen=True):
    """The armed moment has come; an early or repeated one does no harm."""


class MetaChecked(msgspec.Struct, frozen=True):
    """The prefix is ours, made or found."""

    ticket: int


class VersionsRead(msgspec.Struct, frozen=True):
    """Every version there is after the one asked for, up to the limit, by rising number."""

    ticket: int
    versions: tuple[Version, ...]


class VersionRead(msgspec.Struct, frozen=True):
    """The contents of the slot; None when there is nothing."""

    ticket: int
    found: Version | None


class Created(msgspec.Struct, frozen=True):
    """The object was not there and is there now, by this very call."""

    ticket: int


class Maybe(msgspec.Struct, frozen=True):
    """Anything else the store may have answered: the object is there or not, ours or not.

    Attributes:
        reason: what it answered, in a sentence for people.
    """

    ticket: int
    reason: str = ""


class Listed(msgspec.Struct, frozen=True):
    """The listing of later versions has ended: there is one, or none."""

    ticket: int
    found: bool


class PackCut(msgspec.Struct, frozen=True):
    """A pack of the local log, not stored yet."""

    ticket: int
    pack: BuiltPack


class PackFound(msgspec.Struct, frozen=True):
    """The search for a pack has ended: it is there, whole, or not."""

    ticket: int
    found: bool


class TailRead(msgspec.Struct, frozen=True):
    """The sum of the local bytes, in the manifest's notation."""

    ticket: int
    crc: str


class CallFailed(msgspec.Struct, frozen=True):
    """Deadline, error, throttling, cancellation: whether it was applied is unknown.

    Attributes:
        reason: one clause for people.
    """

    ticket: int
    reason: str


class CallRefused(msgspec.Struct, frozen=True):
    """The object that was read is foreign, newer or damaged. Repeating it will not help.

    Attributes:
        sentence: names the object and what is wrong with it.
    """

    ticket: int
    sentence: str


Result = (
    MetaChecked
    | VersionsRead
    | VersionRead
    | Created
    | Maybe
    | Listed
    | PackCut
    | PackFound
    | TailRead
    | CallFailed
    | CallRefused
)
Event = Promoted | Demoted | LogAdvanced | HeadSeen | Timer | Result
