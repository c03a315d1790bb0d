"""Everything the upload role can want done: the only outputs of ``UploadRole.step``.

An effect with a ``ticket`` is a call. It ends in exactly one event with the same ticket, even when
it is cancelled or its deadline passes; at most one call that is not cancelled is under way. The
others are final. Calls of the store have a deadline: 20 s for a pack, 5 s for everything else.
"""

from mmap import mmap

import msgspec
from gantry_protocol.tier.keys import Pair
from gantry_protocol.types import EpochEntry, Offset

from gantry_broker.tier.core.values import ChainHead, Status


class CheckMeta(msgspec.Struct, frozen=True):
    """See to it that the prefix is ours (``meta.json``, create or compare): ``MetaChecked``."""

    ticket: int


class ReadVersions(msgspec.Struct, frozen=True):
    """LIST ``man/`` after version ``after`` and GET up to ``limit`` versions: ``VersionsRead``."""

    ticket: int
    after: int
    limit: int


class CreateVersion(msgspec.Struct, frozen=True):
    """Put ``data`` under version ``v`` if nothing is there: ``Created``, ``Maybe``, a failure."""

    ticket: int
    v: int
    data: bytes


class ReadVersion(msgspec.Struct, frozen=True):
    """GET version ``v``, to resolve who wrote it: ``VersionRead``."""

    ticket: int
    v: int


class ListAfter(msgspec.Struct, frozen=True):
    """LIST ``man/`` after version ``v``, one key: ``Listed``."""

    ticket: int
    v: int


class CutPack(msgspec.Struct, frozen=True):
    """Make a pack of the local log from ``lo`` on: ``PackCut``; ``CallFailed`` if it rotted.

    Attributes:
        limit: whole records up to here may go into it, and none beyond.
        target_bytes: stop at the first record that reaches this; at least one record goes in.
        lineage: the whole lineage of the log.
        pair, nonce: go into the key.
    """

    ticket: int
    lo: Offset
    limit: Offset
    target_bytes: int
    lineage: tuple[EpochEntry, ...]
    pair: Pair
    nonce: str


class StorePack(msgspec.Struct, frozen=True):
    """Put the pack's bytes if nothing is there: ``Created``, ``Maybe``, a failure.

    However it ends, ``data`` cannot be read afterwards.
    """

    ticket: int
    key: str
    data: bytes | mmap


class FindPack(msgspec.Struct, frozen=True):
    """Look for the object ``key`` with this size and end: ``PackFound``.

    A key is never used twice, so what is there under it is ours. Size and end are compared all the
    same: they cost nothing with the same range GET.
    """

    ticket: int
    key: str
    size: int
    end: bytes


class ReadTail(msgspec.Struct, frozen=True):
    """Read [at, at + size) of the local log, and sum it: ``TailRead``.

    A failure if the log was trimmed meanwhile; ``LogAdvanced`` with the new start has to follow.
    """

    ticket: int
    at: Offset
    size: int


class CancelCalls(msgspec.Struct, frozen=True):
    """Cancel what is under way, and clean nothing up: it may have been applied, or may yet be."""


class ArmTimer(msgspec.Struct, frozen=True):
    """Say ``Timer`` at ``at_ms``, and forget an earlier wish; None forgets it without another."""

    at_ms: int | None


class Committed(msgspec.Struct, frozen=True):
    """The tier reaches ``head.end``: the hint for replicas, and the bound of local trimming."""

    head: ChainHead


class FencedBy(msgspec.Struct, frozen=True):
    """Somebody with a higher pair holds the chain: ask the controller who is master.

    Attributes:
        by: None when only a later version was seen, not its author.
    """

    own: Pair
    by: Pair | None


class StatusChanged(msgspec.Struct, frozen=True):
    """For people: state, reason and whether somebody must look."""

    status: Status


StoreCall = (
    CheckMeta | ReadVersions | CreateVersion | ReadVersion | ListAfter | StorePack | FindPack
)
Call = StoreCall | CutPack | ReadTail
Effect = Call | CancelCalls | ArmTimer | Committed | FencedBy | StatusChanged
