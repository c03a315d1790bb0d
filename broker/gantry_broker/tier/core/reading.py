"""A broker's knowledge of its tier for readers, and where an offset is answered from; pure.

A ``TierIndex`` folds the chain and takes in the footers of its packs in the chain's order, so it
always covers one range [start, covered) of the log without a hole. Rules protected:

* Every offset of a queue is answered from exactly one place: below the first that the local log
  has, from the tier; from there on, from the local log. Never silence: a record, the next offset
  that exists, or why neither can be said now.
* "It is not there" is only said by an index that covers everything the local log no longer has.
* Only records whose run matches its sum are served, and each is the one that was asked for.

What it refuses: more runs than ``RUNS_MAX``, in all indexes of a process. ``readable_end`` stays
where it is then; since a log is trimmed only below it (``retention``), what is not in the index is
still on the disk.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import msgspec
from gantry_protocol.tier.chain import ChainState, advance, before, empty
from gantry_protocol.tier.damage import ChainError
from gantry_protocol.tier.footer import UNIT, Footer
from gantry_protocol.tier.keys import PackKey, Shard, parse_name
from gantry_protocol.tier.manifests import PackEntry, Version
from gantry_protocol.types import Offset

from gantry_broker.tier.core.locate import Found, Gone, Queue, RunIndex, RunPlace
from gantry_broker.tier.core.losses import Losses, Lost, Patience

RUNS_MAX = 2_000_000  # about 400 MB; 16,000 packs of 64 MiB (1 TB) with 125 busy queues each
SCAN_ENTRIES = 800  # looked at for one answer, as in a consume queue
SCAN_PER_MESSAGE = 20


class Messages(msgspec.Struct, frozen=True):
    """Records, or none that pass the filter.

    Attributes:
        body: whole records, one after the other, as the log had them.
        count: how many.
        next_offset: where the reader goes on.
    """

    body: bytes
    count: int
    next_offset: int


class Trouble(msgspec.Struct, frozen=True):
    """Nothing can be said now.

    Attributes:
        reason: one sentence for people.
        lasting: asking again does not help; an object is damaged or missing.
    """

    reason: str
    lasting: bool = False


Answer = Messages | Gone | Trouble


class Local(msgspec.Struct, frozen=True):
    """The extent of the local log at the moment of the question.

    Attributes:
        log_start: where it begins.
        minimum: the first queue offset it can serve of the queue in question.
    """

    log_start: Offset
    minimum: int


class Wanted(msgspec.Struct, frozen=True):
    """The wish of a reader.

    Attributes:
        offset: queue offset to begin at.
        max_count: records; the first always goes out.
        max_bytes: of records.
        codes: tag codes to deliver; None delivers everything.
    """

    offset: int
    max_count: int
    max_bytes: int
    codes: frozenset[int] | None


class LoadedRun(msgspec.Struct, frozen=True):
    """The bytes of a run that were compared with its sum, and where its records are in them."""

    data: bytes
    units: bytes

    @property
    def weight(self) -> int:
        """Bytes of memory."""
        return len(self.data) + len(self.units)


class TierIndex:
    """See the module.

    Attributes:
        chain: as far as it was read.
        runs: of the packs below ``covered``.
        losses: what of the packs below ``covered`` cannot be read.
    """

    def __init__(
        self,
        place: Shard,
        *,
        has_room: Callable[[], bool] | None = None,
        patience: Patience | None = None,
    ) -> None:
        """An index of nothing.

        Args:
            place: of the group.
            has_room: whether more runs may come in; None: as long as here are fewer than
                ``RUNS_MAX``.
            patience: see ``Losses``.
        """
        self.chain: ChainState = empty(place)
        self.runs = RunIndex()
        self.losses = Losses(patience or Patience())
        self._has_room = has_room or (lambda: self.runs.size < RUNS_MAX)
        self._taken = 0  # packs of the chain whose runs are in the index

    @property
    def covered(self) -> Offset:
        """The end up to which the packs were taken in, or skipped."""
        packs = self.chain.packs
        return Offset(packs[self._taken].lo if self._taken < len(packs) else self.chain.end)

    @property
    def readable_end(self) -> Offset:
        """Everything from ``readable_from`` up to here can be read through the index.

        No further than its beginning while that is missing, and not known to be removed.
        """
        if self.chain.first > max(self.chain.start, self.losses.removed_below):
            return Offset(self.chain.start)
        lost = self.losses.first
        return self.covered if lost is None else Offset(min(lost.entry.lo, self.covered))

    @property
    def readable_from(self) -> Offset:
        """The known beginning of the tier: above its start once that was removed."""
        return Offset(max(self.chain.start, self.losses.removed_below))

    @property
    def oldest(self) -> PackEntry | None:
        """The first pack that was taken in and is not removed, and not known to be lost."""
        taken = islice(self.chain.packs, self._taken)
        removed_below = self.losses.removed_below
        entry = next((entry for entry in taken if entry.hi > removed_below), None)
        return None if entry is None or entry.key in self.losses.packs else entry

    @property
    def is_full(self) -> bool:
        """Whether no more runs may come in."""
        return not self._has_room()

    @property
    def waiting(self) -> int:
        """Packs that are in the chain and not in the index."""
        return len(self.chain.packs) - self._taken

    def follow(self, versions: Iterable[Version]) -> None:
        """Take in later versions of the chain, or its first ones as far as they are there.

        Raises:
            ChainError: one breaks a rule; those before it were taken in.
        """
        versions = list(versions)
        if versions and self.chain.v == 0 and versions[0].v > 1:
            self.chain = before(self.chain, versions[0])
        whole = next(
            (at for at, version in enumerate(versions) if version.v != self.chain.v + 1 + at),
            len(versions),
        )
        self.chain = advance(self.chain, versions[:whole])
        if whole < len(versions):
            missing, found = self.chain.v + 1, versions[whole].v
            raise ChainError(
                missing, f"T1: it is missing, the next one that is there is version {found}"
            )

    def missing(self, most: int) -> tuple[PackEntry, ...]:
        """The next packs whose footers are wanted."""
        if self.is_full:
            return ()
        return self.chain.packs[self._taken : self._taken + most]

    def take(self, entry: PackEntry, footer: Footer) -> None:
        """Take in the runs of the pack that comes next."""
        assert entry == self.chain.packs[self._taken], "packs come in the order of the chain"
        for queue, place in _places(entry, footer):
            self.runs.add(queue, place)
        self._taken += 1

    def skip(self, entry: PackEntry, reason: str, now_s: float, *, absent: bool) -> None:
        """Go on without the pack that comes next; its records are refused until it is read."""
        assert entry == self.chain.packs[self._taken], "packs come in the order of the chain"
        self._taken += 1
        self._note(entry, reason, now_s, absent=absent, indexed=False)

    def lost(self, entry: PackEntry, reason: str, now_s: float, *, absent: bool = True) -> None:
        """A pack that was taken in is not there when it is read, or is not what it was."""
        self._note(entry, reason, now_s, absent=absent, indexed=True)

    def _note(
        self, entry: PackEntry, reason: str, now_s: float, *, absent: bool, indexed: bool
    ) -> None:
        """What counts as removed is not asked for one by one."""
        if entry.hi > self.losses.removed_below:
            self.losses.note(entry, reason, now_s, absent=absent, indexed=indexed)

    def regain(self, entry: PackEntry, footer: Footer) -> None:
        """A pack that could not be read can be read now."""
        lost = self.losses.packs.get(entry.key)
        if lost is not None and not lost.indexed:
            for queue, place in _places(entry, footer):
                self.runs.insert(queue, place)
        self.losses.read(entry.key)

    def remove_below(self, offset: int) -> None:
        """The packs below ``offset`` were removed from the store: answer as if they never were."""
        keys = [entry.key for entry in self.chain.packs[: self._taken] if entry.hi <= offset]
        self.runs.drop_packs(keys)
        self.losses.drop(keys)

    def entry(self, key: str) -> PackEntry:
        """The chain's entry of a pack in the index."""
        name = parse_name(key)
        assert isinstance(name, PackKey), "the chain checked it"
        found = self.chain.pack_at(name.lo)
        assert found is not None, "a chain loses no pack"
        return found

    def find(self, queue: Queue, offset: int, local: Local) -> Found | Gone | Trouble:
        """The place of a record that the local log does not have.

        Args:
            queue: whose record.
            offset: below ``local.minimum``.
            local: what the local log has.
        """
        found = self.runs.locate(queue, offset)
        if isinstance(found, Found):
            lost = self.losses.packs.get(found.place.pack)
            return found if lost is None else _trouble(lost)
        earlier, later = self.runs.around(queue, offset)
        lost = self.losses.first_hidden(earlier, later)
        if lost is not None:
            return _trouble(lost, " The record may be in it.")
        if earlier is None and self.chain.first > self.readable_from:
            return Trouble(
                f"the manifest's versions up to {self.chain.base} are missing, and what they hold "
                f"of [{self.chain.start}, {self.chain.first}) is not known; they are asked for "
                f"again"
            )
        if self.covered < local.log_start:
            return Trouble(self._behind(local.log_start))
        if isinstance(found, Gone):
            return Gone(next_valid=min(found.next_valid, local.minimum))
        return Gone(next_valid=local.minimum)

    def _behind(self, log_start: Offset) -> str:
        if self.is_full:
            return f"indexes of tiers are full: {self.runs.size} runs of this one are in memory"
        return (
            f"the tier was read up to {self.covered} so far, this broker's log begins at "
            f"{log_start}; {self.waiting} packs wait"
        )


def _places(entry: PackEntry, footer: Footer) -> Iterator[tuple[Queue, RunPlace]]:
    """Where the runs of a pack are."""
    for index, run in enumerate(footer.runs):
        place = RunPlace(
            first=run.first_qoff,
            count=run.count,
            pack=entry.key,
            run=index,
            min_ts=run.min_ts,
            max_ts=run.max_ts,
        )
        yield Queue(footer.topics[run.topic], run.queue_id), place


def _trouble(lost: Lost, more: str = "") -> Trouble:
    """Absent may pass by itself; what is damaged stays so until somebody restores it."""
    again = "" if lost.absent else " Restore the object from a copy."
    return Trouble(f"{lost.reason}{more}{again} It is asked for again.", lasting=not lost.absent)


def pick(run: LoadedRun, place: RunPlace, wanted: Wanted) -> Messages:
    """The records of ``run`` that are wanted, as a read of a consume queue would give them."""
    entries = max(SCAN_ENTRIES, wanted.max_count * SCAN_PER_MESSAGE)
    first = wanted.offset - place.first
    stop = min(place.count, first + entries)
    parts: list[bytes] = []
    total_bytes = 0
    at = first
    units = memoryview(run.units)[first * UNIT.size : stop * UNIT.size]
    for position, size, code in UNIT.iter_unpack(units):
        if wanted.codes is None or code in wanted.codes:
            too_much = total_bytes + size > wanted.max_bytes or len(parts) >= wanted.max_count
            if parts and too_much:
                break
            parts.append(run.data[position : position + size])
            total_bytes += size
        at += 1
    return Messages(body=b"".join(parts), count=len(parts), next_offset=place.first + at)
