"""The state of a tier: the fold of its manifest versions, each checked against the one before it.

Rules protected (``docs/tier-format.md``): versions follow each other without a hole and know their
predecessor (T1); at most one claim per pair, and only the newest claim's pair appends (T9); a take
is a claim far above the others, so that no epoch of two groups is the same (T9); the end
never falls (T2); packs lie end to end (T3), so with the key's own offsets no key is added twice
(T11); the lineage rises and says what each entry says (H2).

What it refuses: to go on after a version that breaks one of them. It never repairs a chain.
Nothing here knows a store; who reads, folds.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

import msgspec

from gantry_protocol.tier.damage import ChainError
from gantry_protocol.tier.keys import CLASS_FOR_EVER, Pair, Shard, parse_name
from gantry_protocol.tier.keys import PackKey as _PackKey
from gantry_protocol.tier.manifests import (
    NO_CRC,
    Append,
    Claim,
    PackEntry,
    Tail,
    Take,
    Version,
    seal,
)
from gantry_protocol.types import Epoch, EpochEntry, Offset

TAKE_EPOCHS = 10_000
"""By how much a take is above the newest epoch in the chain. The former group may have had masters
since, that committed nothing; what they wrote must not pass for what the new group writes."""


class ChainState(msgspec.Struct, frozen=True):
    """The sum of the versions 1 … v.

    Attributes:
        shard: whose chain it is.
        v: the newest version; 0 before the first.
        crc: its sum, the next version's ``prev_crc``.
        pair: who claimed last; only that one may append.
        writer, nonce: of the newest version.
        start, end: the tier holds [start, end).
        tail: the last record below ``end``; None while there is none.
        lineage: who wrote what, as far as ``end``.
        packs: all entries that are known, by offset; they cover [first, end) exactly.
        base: the newest version that was gone when the fold began; 0 when none was.
        base_end: where the tier ended by that version; 0 when none was gone.
        taker: the group that took the chain last; empty before the first take, and where that may
            be gone with the oldest versions.
        taken_v: the version of that take; 0 without one.
    """

    shard: str
    v: int = 0
    crc: str = NO_CRC
    pair: Pair = Pair(0, 0)
    writer: str = ""
    nonce: str = ""
    start: int = 0
    end: int = 0
    tail: Tail | None = None
    lineage: tuple[EpochEntry, ...] = ()
    packs: tuple[PackEntry, ...] = ()
    base: int = 0
    base_end: int = 0
    taker: str = ""
    taken_v: int = 0

    @property
    def owner(self) -> str:
        """The uid of the group whose masters may claim; empty when it is not known any more."""
        return self.taker or ("" if self.base else self.shard)

    @property
    def first(self) -> int:
        """The beginning of the known packs: ``start``, or above it if older versions are gone."""
        return max(self.start, self.base_end)

    def pack_at(self, offset: int) -> PackEntry | None:
        """The pack that holds the byte at ``offset``; None outside [first, end)."""
        if not self.first <= offset < self.end:
            return None
        return self.packs[bisect_right(self.packs, offset, key=lambda entry: entry.lo) - 1]


def empty(place: Shard) -> ChainState:
    """The state before the first version."""
    return ChainState(shard=place.uid)


def before(state: ChainState, first: Version) -> ChainState:
    """The state before ``first``, where all versions before it are gone, as ``first`` says it.

    Start, end and tail are in every version, so the chain goes on behind a beginning that was
    removed. What the removed versions said of packs and lineage is not known any more.

    Args:
        state: the empty one.
        first: the oldest version that is there, not the first of all.
    """
    assert state.v == 0 < first.v - 1
    pair, end, tail = Pair(0, 0), first.end, first.tail
    if isinstance(first, Append):
        pair, end = first.pair, first.add[0].lo
        tail = None if sum(entry.count for entry in first.add) else first.tail
    return msgspec.structs.replace(
        state,
        v=first.v - 1,
        crc=first.prev_crc,
        pair=pair,
        start=first.start,
        end=end,
        tail=tail,
        base=first.v - 1,
        base_end=end,
    )


def fold(place: Shard, versions: Iterable[Version]) -> ChainState:
    """The state after ``versions``, which begin with the first.

    Raises:
        ChainError: the first version that breaks a rule.
    """
    return advance(empty(place), versions)


def apply(state: ChainState, version: Version) -> ChainState:
    """The state after one more version.

    Raises:
        ChainError: it breaks a rule; ``state`` is as it was.
    """
    return advance(state, (version,))


def advance(state: ChainState, versions: Iterable[Version]) -> ChainState:
    """The state after some more versions; the packs are copied once, not once per version.

    Raises:
        ChainError: the first version that breaks a rule; ``state`` is as it was.
    """
    packs = list(state.packs)
    for version in versions:
        state = _after(state, version)
        if isinstance(version, Append):
            packs.extend(version.add)
    return msgspec.structs.replace(state, packs=tuple(packs))


def claim(
    state: ChainState, *, pair: Pair, writer: str, nonce: str, at_ms: int, start: int | None = None
) -> Claim:
    """The version with which ``pair`` takes the chain over.

    Args:
        state: the head, as read.
        pair: of the claimant.
        writer: of the claimant, for people.
        nonce: new for this attempt.
        at_ms: the clock, for people.
        start: where the tier begins; only for the first version of all, and needed there.
    """
    assert (start is not None) == (state.v == 0)
    return seal(
        Claim(
            shard=state.shard,
            v=state.v + 1,
            prev_crc=state.crc,
            epoch=pair.epoch,
            inc=pair.inc,
            writer=writer,
            nonce=nonce,
            at_ms=at_ms,
            start=state.start if start is None else start,
            end=state.end if start is None else start,
            tail=state.tail,
        )
    )


def take(state: ChainState, *, owner: str, writer: str, nonce: str, at_ms: int) -> Take:
    """The version with which another group takes the chain over.

    Args:
        state: the head, as read; not the empty one.
        owner: uid of that group.
        writer: its broker, for people.
        nonce: new for this attempt.
        at_ms: the clock, for people.
    """
    assert state.v
    return seal(
        Take(
            shard=state.shard,
            v=state.v + 1,
            prev_crc=state.crc,
            epoch=state.pair.epoch + TAKE_EPOCHS,
            inc=0,
            writer=writer,
            nonce=nonce,
            at_ms=at_ms,
            start=state.start,
            end=state.end,
            tail=state.tail,
            owner=owner,
        )
    )


def append(
    state: ChainState,
    packs: Sequence[PackEntry],
    *,
    lineage: Iterable[EpochEntry],
    tail: Tail | None,
    writer: str,
    nonce: str,
    at_ms: int,
) -> Append:
    """The version that adds ``packs`` under the pair of the newest claim.

    Args:
        state: the head, which holds the writer's own claim.
        packs: at least one; the first begins at the tier's end.
        lineage: the whole lineage of the writer's log; what the chain lacks is taken from it.
        tail: the last record in ``packs``; None when they hold only blanks.
        writer: for people.
        nonce: new for this attempt.
        at_ms: the clock, for people.
    """
    end = packs[-1].hi
    return seal(
        Append(
            shard=state.shard,
            v=state.v + 1,
            prev_crc=state.crc,
            epoch=state.pair.epoch,
            inc=state.pair.inc,
            writer=writer,
            nonce=nonce,
            at_ms=at_ms,
            start=state.start,
            end=end,
            tail=state.tail if tail is None else tail,
            lineage_add=[
                (entry.epoch, entry.start_offset)
                for entry in lineage
                if entry.start_offset < end
                and (not (state.lineage or state.base) or entry.start_offset >= state.end)
            ],
            add=list(packs),
        )
    )


def _after(state: ChainState, version: Version) -> ChainState:
    """``state`` moved on, but for its packs."""
    _check_order(state, version)
    if isinstance(version, Claim):
        _check_claim(state, version)
        lineage = state.lineage
        if isinstance(version, Take):
            _check_take(state, version)
            state = msgspec.structs.replace(state, taker=version.owner, taken_v=version.v)
    else:
        _check_append(state, version)
        lineage = _longer_lineage(state, version)
        for entry in version.add:
            _check_epochs(lineage, version, entry)
    _check_tail(state, version)
    return msgspec.structs.replace(
        state,
        v=version.v,
        crc=version.crc32c,
        pair=version.pair,
        writer=version.writer,
        nonce=version.nonce,
        start=version.start,
        end=version.end,
        tail=version.tail,
        lineage=lineage,
    )


def _require(version: Version, rule: str, holds: bool, reason: str) -> None:
    if not holds:
        raise ChainError(version.v, f"{rule}: {reason}")


def _check_order(state: ChainState, version: Version) -> None:
    _require(
        version,
        "T1",
        version.shard == state.shard,
        f"it is of shard {version.shard}, the chain of {state.shard}",
    )
    _require(version, "T1", version.v == state.v + 1, f"it follows version {state.v}")
    _require(
        version,
        "T1",
        version.prev_crc == state.crc,
        f"it was derived from a version with sum {version.prev_crc}, the one before it has "
        f"{state.crc}",
    )
    _require(
        version, "T1", version.pair >= state.pair, f"pair {version.pair} comes after {state.pair}"
    )


def _check_claim(state: ChainState, version: Claim) -> None:
    _require(version, "T9", version.pair > state.pair, f"pair {version.pair} claimed before")
    if state.v == 0:
        _require(
            version,
            "T2",
            version.start == version.end,
            f"the first claim begins with [{version.start}, {version.end}), which nobody uploaded",
        )
        return
    _require(
        version,
        "T2",
        (version.start, version.end) == (state.start, state.end),
        f"a claim changes [{state.start}, {state.end}) to [{version.start}, {version.end})",
    )


def _check_take(state: ChainState, version: Take) -> None:
    _require(version, "T9", state.v > 0, "nobody takes a tier that is empty")
    _require(
        version,
        "T9",
        version.epoch >= state.pair.epoch + TAKE_EPOCHS,
        f"it takes the tier in epoch {version.epoch}, the newest claim is of {state.pair.epoch}: "
        f"less than {TAKE_EPOCHS} above it",
    )
    _require(version, "T9", version.owner != state.owner, f"{version.owner} owns the tier already")


def _check_append(state: ChainState, version: Append) -> None:
    _require(
        version,
        "T9",
        version.pair == state.pair,
        f"pair {version.pair} appends, the newest claim is of {state.pair}",
    )
    _require(
        version,
        "T2",
        version.start == state.start,
        f"an append moves the start from {state.start} to {version.start}",
    )
    end = state.end
    for entry in version.add:
        _require(
            version,
            "T3",
            entry.lo == end,
            f"{entry.key} begins at {entry.lo}, the tier ends at {end}",
        )
        _require(version, "T3", entry.hi > entry.lo, f"{entry.key} ends at {entry.hi}")
        _check_key(version, entry)
        end = entry.hi
    _require(
        version,
        "T2",
        version.end == end,
        f"it says it ends at {version.end}, its packs end at {end}",
    )


def _check_key(version: Append, entry: PackEntry) -> None:
    key = parse_name(entry.key)
    _require(version, "T11", isinstance(key, _PackKey), f"{entry.key!r} is no name of a pack")
    assert isinstance(key, _PackKey)
    _require(
        version,
        "T11",
        (key.lo, key.hi, key.cls) == (entry.lo, entry.hi, entry.cls),
        f"{entry.key} is listed as [{entry.lo}, {entry.hi}) of class {entry.cls}",
    )
    _require(
        version,
        "T11",
        key.pair == version.pair,
        f"{entry.key} was written by {key.pair}, and is added by {version.pair}",
    )
    _require(
        version,
        "T3",
        key.cls == CLASS_FOR_EVER,
        f"{entry.key} is of class {key.cls}, which this version of the software does not know",
    )


def _longer_lineage(state: ChainState, version: Append) -> tuple[EpochEntry, ...]:
    lineage = list(state.lineage)
    floor = state.end if lineage or state.base else 0
    if state.base and not lineage:
        if version.lineage_add and version.lineage_add[0][1] <= floor:
            floor = 0  # the first append of all says everything
        else:
            oldest = version.add[0]  # where its epoch began is gone
            lineage.append(EpochEntry(Epoch(oldest.epoch_first), Offset(oldest.lo)))
    for epoch, start in version.lineage_add:
        last = lineage[-1] if lineage else EpochEntry(Epoch(-1), Offset(-1))
        _require(
            version,
            "H2",
            epoch > last.epoch and start > last.start_offset,
            f"epoch {epoch} from {start} follows epoch {last.epoch} from {last.start_offset}",
        )
        _require(
            version,
            "H2",
            floor <= start < version.end,
            f"epoch {epoch} from {start} is added, the tier grows from {floor} to {version.end}",
        )
        lineage.append(EpochEntry(Epoch(epoch), Offset(start)))
    _require(
        version,
        "H2",
        bool(lineage) and lineage[0].start_offset <= state.first,
        f"no epoch is known for the start {state.first}",
    )
    _require(
        version,
        "H2",
        lineage[-1].epoch <= version.epoch,
        f"epoch {lineage[-1].epoch} wrote into a tier that epoch {version.epoch} extends",
    )
    return tuple(lineage)


def _check_epochs(lineage: tuple[EpochEntry, ...], version: Append, entry: PackEntry) -> None:
    said = (entry.epoch_first, entry.epoch_last)
    wrote = (_epoch_at(lineage, entry.lo), _epoch_at(lineage, entry.hi - 1))
    _require(
        version,
        "H2",
        said == wrote,
        f"{entry.key} is listed as of epochs {said[0]} to {said[1]}, the lineage says "
        f"{wrote[0]} to {wrote[1]}",
    )


def _epoch_at(lineage: tuple[EpochEntry, ...], offset: int) -> int:
    index = bisect_right(lineage, offset, key=lambda entry: entry.start_offset) - 1
    return lineage[index].epoch if index >= 0 else -1


def _check_tail(state: ChainState, version: Version) -> None:
    tail = version.tail
    records = sum(entry.count for entry in version.add) if isinstance(version, Append) else 0
    if records == 0:
        _require(
            version, "tail", tail == state.tail, f"no record is added, the tail moves to {tail}"
        )
        return
    _require(version, "tail", tail is not None, "records are added, and no last one is named")
    assert tail is not None
    _require(
        version,
        "tail",
        state.end <= tail.at and tail.at + tail.size <= version.end,
        f"the last record is said to be at {tail.at} with {tail.size} bytes, the tier grows from "
        f"{state.end} to {version.end}",
    )
