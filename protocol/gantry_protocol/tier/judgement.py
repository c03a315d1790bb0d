"""The judgement on one broker group's tier, from its objects alone; every reader's verdict is this.

Fed in the order in which a reader comes by them: ``meta.json``, the manifest versions, the listing,
then pack by pack. ``gantry tier verify``, the audit and the checker of experiments differ in how
they fetch (and whether packs are judged in many places at once), never in what they find.

Rules protected: those of ``chain`` (T1, T2, T3, T9, T11, H2, tail), every object that a version
names is there and is the one that was committed (T4), nothing above the confirm offset where that
is known (T6), and a queue's offsets go on from pack to pack. Behind the first version that is wrong
nothing is believed, so no pack of it is judged; where the oldest versions are gone, what is left is
judged all the same.

Nothing here reads, repairs or deletes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import google_crc32c
import msgspec

from gantry_protocol.tier.chain import ChainState, advance, before, empty
from gantry_protocol.tier.damage import ChainError, NewerObject, TierObjectError
from gantry_protocol.tier.findings import FAULT, NOTE, Finding, of_object
from gantry_protocol.tier.footer import MAX_PACK_BYTES, UNIT, Footer
from gantry_protocol.tier.keys import ManKey, MetaKey, PackKey, Shard, parse_key, parse_name
from gantry_protocol.tier.manifests import Append, Claim, PackEntry, Tail, Version, decode_owner
from gantry_protocol.tier.packs import verify_pack


class Listed(msgspec.Struct, frozen=True):
    """A pack as the chain names it, with the version that added it."""

    entry: PackEntry
    v: int
    epoch: int
    inc: int
    writer: str
    at_ms: int


class _Named(msgspec.Struct):
    group: str


_named_decoder = msgspec.json.Decoder(_Named)


def listed(version: Version) -> list[Listed]:
    """The packs that a version adds."""
    if not isinstance(version, Append):
        return []
    return [
        Listed(entry, version.v, version.epoch, version.inc, version.writer, version.at_ms)
        for entry in version.add
    ]


def group_name(data: bytes, place: Shard) -> str:
    """The broker group's name, from meta.json.

    Raises:
        TierObjectError: it is not sound, or of another place.
    """
    try:
        name = _named_decoder.decode(data).group
    except msgspec.MsgspecError:
        name = ""  # the decoder below says what is wrong with it
    return decode_owner(data, place, name).group


class Judgement:
    """Knowledge of one group's tier so far.

    Attributes:
        place: of the group.
        group: its name; empty while meta.json did not tell.
        state: of the chain as far as it is sound.
        packs: those that the sound part names.
        there: of these, those that the listing has and that can be read.
        claims: every claim of the sound part: who uploaded from when on.
        findings: in the order in which they were found.
    """

    def __init__(self, place: Shard) -> None:
        """Nothing is known."""
        self.place = place
        self.group = ""
        self.state: ChainState = empty(place)
        self.packs: list[Listed] = []
        self.there: list[Listed] = []
        self.claims: list[Claim] = []
        self.findings: list[Finding] = []
        self._sound = True
        self._named: set[str] = set()  # packs that any readable version names

    @property
    def faults(self) -> list[Finding]:
        """The findings that are faults."""
        return [finding for finding in self.findings if finding.grade == FAULT]

    def owner(self, data: bytes | None) -> None:
        """Take ``meta.json``; None when there is none."""
        try:
            if data is None:
                key = self.place.key(MetaKey())
                self.findings.append(Finding(FAULT, "T4", key, "it is missing"))
            else:
                self.group = group_name(data, self.place)
        except TierObjectError as error:
            self.findings.append(of_object(error))

    # ---- the chain

    def versions(self, found: Iterable[Version | TierObjectError]) -> None:
        """Take some more versions, in order; an error stands for one that cannot be read.

        The packs are copied once per call, so give many at once.
        """
        good: list[Version] = []
        for item in found:
            if isinstance(item, TierObjectError):
                self._fold(good)
                good = []
                self._fault(of_object(item))
                continue
            if isinstance(item, Append):
                self._named.update(entry.key for entry in item.add)
            if self._sound:
                good.append(item)
        self._fold(good)

    def _fault(self, finding: Finding) -> None:
        self.findings.append(finding)
        self._sound = False

    def _fold(self, versions: Sequence[Version]) -> None:
        if not self._sound or not versions:
            return
        if self.state.v == 0 and versions[0].v > 1:
            self._begin_later(versions[0])
        broken = None
        try:
            self.state = advance(self.state, versions)
        except ChainError as error:
            broken = error
            wrong = next(at for at, item in enumerate(versions) if item.v == error.version)
            versions, first_wrong = versions[:wrong], versions[wrong]
            self.state = advance(self.state, versions)
        for version in versions:
            self.packs += listed(version)
            if isinstance(version, Claim):
                self.claims.append(version)
        if broken is not None:
            self._fault(self._broken(first_wrong, broken))

    def _begin_later(self, first: Version) -> None:
        """The oldest versions are gone: say so, and judge what is there."""
        key = self.place.key(ManKey(1))
        reason = f"version 1 is missing; the next one that is there is {first.v}"
        self.findings.append(Finding(FAULT, "T1", key, reason))
        self.state = before(self.state, first)

    def _broken(self, version: Version, error: ChainError) -> Finding:
        """The finding for a sound version that breaks a rule."""
        rule, _, reason = error.reason.partition(": ")
        missing = self.state.v + 1
        if version.v > missing:
            reason = f"version {missing} is missing; the next one that is there is {version.v}"
            return Finding(FAULT, rule, self.place.key(ManKey(missing)), reason)
        named, offset = self.place.key(ManKey(version.v)), None
        end = self.state.end
        for entry in version.add if isinstance(version, Append) else ():
            if entry.lo != end:
                what = "overlap" if entry.lo < end else "hole"
                named, offset, reason = self.place.key(entry.key), entry.lo, f"{what}: {reason}"
                break
            end = entry.hi
        return Finding(FAULT, rule, named, f"manifest version {version.v}: {reason}", offset=offset)

    def confirmed(self, offset: int) -> None:
        """Compare with the group's confirm offset, read after the versions were (T6)."""
        for pack in self.packs:
            if pack.entry.hi > offset:
                above = max(offset, pack.entry.lo)
                reason = (
                    f"manifest version {pack.v} holds [{pack.entry.lo}, {pack.entry.hi}), the "
                    f"group is confirmed up to {offset}"
                )
                key = self.place.key(pack.entry.key)
                self.findings.append(Finding(FAULT, "T6", key, reason, offset=above))
                return  # the packs behind it are, too

    # ---- the listing

    def objects(self, listing: Iterable[tuple[str, int]]) -> None:
        """Take every object below the group's prefix, after all versions: key and size.

        A size that is not known is 0.
        """
        if self.state.v == 0 and self._sound:
            first = self.place.key(ManKey(1))
            self._fault(Finding(FAULT, "T1", first, "there is no manifest version at all"))
        there: dict[str, int] = {}
        for key, size in listing:
            try:
                name = parse_key(self.place, key)
            except TierObjectError as error:
                self.findings.append(_misplaced(self.place, error))
                continue
            if isinstance(name, PackKey):
                there[str(name)] = size
                if str(name) not in self._named:
                    self.findings.append(self._orphan(name))
        for pack in self.packs:
            fault = self._unreadable(pack, there.get(pack.entry.key))
            if fault is None:
                self.there.append(pack)
            else:
                self.findings.append(fault)

    def _unreadable(self, pack: Listed, size: int | None) -> Finding | None:
        key = self.place.key(pack.entry.key)
        if size is None:
            return missing_pack(self.place, pack)
        most = max(size, pack.entry.size)
        if most > MAX_PACK_BYTES:
            reason = f"it has {most} bytes, at most {MAX_PACK_BYTES} may be"
            return Finding(FAULT, "T4", key, reason, byte=MAX_PACK_BYTES, offset=pack.entry.lo)
        return None

    def _orphan(self, pack: PackKey) -> Finding:
        newest = self.state.pair
        if pack.lo < self.state.base_end:
            reason = f"the version that named it is gone, with all up to version {self.state.base}"
        elif pack.pair < newest:
            reason = f"no version names it; {pack.pair} lost the chain to {newest}, so none will"
        else:
            reason = f"no version names it (yet); it was uploaded by {pack.pair}"
        return Finding(NOTE, "orphan", self.place.key(pack), reason, offset=pack.lo)


def _misplaced(place: Shard, error: TierObjectError) -> Finding:
    """A key of another form; folders that are reserved for later may be there already."""
    finding = of_object(error)
    if isinstance(error, NewerObject) and not error.key.startswith(place.key("pack/")):
        return msgspec.structs.replace(finding, grade=NOTE)
    return finding


# ---- packs


def missing_pack(place: Shard, pack: Listed) -> Finding:
    """The finding for a pack that a version names and that is not there."""
    entry = pack.entry
    reason = f"it is missing; manifest version {pack.v} names it for [{entry.lo}, {entry.hi})"
    return Finding(FAULT, "T4", place.key(entry.key), reason, offset=entry.lo)


def judge_pack(
    data: bytes,
    place: Shard,
    pack: Listed,
    tail: Tail | None,
    *,
    check: Callable[[bytes, Shard, PackKey], Footer] = verify_pack,
) -> Footer | Finding:
    """The footer of a pack in which every byte is what was committed, or the first thing wrong.

    Args:
        data: the whole object.
        place: whose pack it should be.
        pack: as the chain names it.
        tail: the chain's last record; it is compared where it lies in this pack.
        check: does what ``verify_pack`` does, with the same words.
    """
    entry = pack.entry
    key = parse_name(entry.key)
    assert isinstance(key, PackKey), "the chain admits no other"
    try:
        footer = check(data, place, key)
    except TierObjectError as error:
        return of_object(error, offset=entry.lo)
    crc = f"{google_crc32c.value(data):08x}"
    if (len(data), crc) != (entry.size, entry.crc):
        reason = (
            f"it has {len(data)} bytes with sum {crc}, manifest version {pack.v} says "
            f"{entry.size} with {entry.crc}"
        )
        return Finding(FAULT, "T4", place.key(key), reason, byte=0, offset=entry.lo)
    if tail is not None and entry.lo <= tail.at < entry.hi:
        reason = _tail_fault(data, footer, tail)
        if reason:
            return Finding(FAULT, "tail", place.key(key), reason, offset=tail.at)
    return judge_footer(footer, place, pack)


def judge_footer(footer: Footer, place: Shard, pack: Listed) -> Footer | Finding:
    """``footer``, or what of it differs from the manifest."""
    counted = sum(run.count for run in footer.runs)
    if counted == pack.entry.count:
        return footer
    reason = f"it holds {counted} records, manifest version {pack.v} says {pack.entry.count}"
    return Finding(FAULT, "T4", place.key(pack.entry.key), reason, offset=pack.entry.lo)


def _tail_fault(data: bytes, footer: Footer, tail: Tail) -> str:
    """Why the chain's tail is not the record there; empty when it is."""
    for run in footer.runs:
        for position, size, _ in UNIT.iter_unpack(run.units):
            at = run.pos + position
            if int.from_bytes(data[at + 28 : at + 36], "big") == tail.at:
                crc = f"{google_crc32c.value(data[at : at + size]):08x}"
                if (size, crc) == (tail.size, tail.crc):
                    return ""
                return (
                    f"the record at {tail.at} has {size} bytes with sum {crc}, the manifest says "
                    f"{tail.size} with {tail.crc}"
                )
    return f"no record begins at {tail.at}, where the manifest says the last one does"


# ---- queues


def jump(
    key: str, topic: str, queue_id: int, *, first: int, expected: int, byte: int, lo: int
) -> Finding:
    """The finding for a run that does not continue its queue.

    Args:
        key: of the pack.
        topic: whose run it is,
        queue_id: and of which queue.
        first: queue offset of its first record.
        expected: where the run before it ends.
        byte: of the pack where the run begins.
        lo: where the pack begins in the log.
    """
    what = "hole" if first > expected else "overlap"
    reason = (
        f"{what}: queue offset {first} of {topic} queue {queue_id} stands where {expected} belongs"
    )
    return Finding(FAULT, "queue", key, reason, byte=byte, offset=lo)


class Queues:
    """Follows every queue from pack to pack. A queue may begin anew at 0.

    A hole is no finding of its own where a pack in between could not be judged.
    """

    def __init__(self, place: Shard) -> None:
        """Before the first pack."""
        self._place = place
        self._next: dict[tuple[str, int], tuple[int, int]] = {}  # offset, number of the pack
        self._packs = 0
        self._unjudged = -1  # the newest pack that could not be judged

    def unjudged(self) -> None:
        """The next pack in order is missing or damaged."""
        self._unjudged = self._packs
        self._packs += 1

    def take(self, pack: Listed, footer: Footer) -> Iterator[Finding]:
        """The next pack in order."""
        key = self._place.key(pack.entry.key)
        for run in footer.runs:
            queue = (footer.topics[run.topic], run.queue_id)
            expected, before = self._next.get(queue, (run.first_qoff, self._packs))
            hidden = run.first_qoff > expected and before < self._unjudged
            if run.first_qoff not in (expected, 0) and not hidden:
                yield jump(
                    key,
                    *queue,
                    first=run.first_qoff,
                    expected=expected,
                    byte=run.pos,
                    lo=pack.entry.lo,
                )
            self._next[queue] = (run.first_qoff + run.count, self._packs)
        self._packs += 1
