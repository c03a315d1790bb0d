"""``TierReader``: follows the chain of the group's tier, and reads records from its packs.

Every member follows, so that whoever becomes master next can answer at once. Rules protected: the
event loop never waits for the store; a footer and a run are decoded and compared with their sums in
a thread; a flipped byte is named with object and offset and never served; all memory is bounded
(``reading.RUNS_MAX``, ``cache``).

What it refuses: to guess. A store that does not answer, a chain that breaks a rule, a pack that is
damaged or not there: each is an answer of its own, with its reason, and none is for ever. What
cannot be read is asked for again (``losses``), and the rest is served.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from gantry_protocol.process import log
from gantry_protocol.tier.chain import ChainState
from gantry_protocol.tier.damage import ChainError, MissingObject, TierObjectError
from gantry_protocol.tier.footer import Footer
from gantry_protocol.tier.keys import Shard
from gantry_protocol.tier.manifests import PackEntry
from gantry_protocol.tier.packs import raw_records
from gantry_protocol.types import Offset

from gantry_broker.tier.cache import Budget, SharedCache
from gantry_broker.tier.core.locate import Found, Gone, Queue, RunPlace
from gantry_broker.tier.core.losses import Patience
from gantry_broker.tier.core.reading import (
    Answer,
    LoadedRun,
    Local,
    TierIndex,
    Trouble,
    Wanted,
    pick,
)
from gantry_broker.tier.core.report import Readable
from gantry_broker.tier.stores.contract import Store, StoreError
from gantry_broker.tier.stores.packs import read_footer, read_run
from gantry_broker.tier.stores.versions import (
    AT_ONCE,
    first_pack,
    first_version,
    later_numbers,
    read_versions,
)

FOLLOW_MAX_S = 10.0  # between two looks at the chain; one LIST each
FOLLOW_MIN_S = 0.1
TROUBLE_S = 5.0  # until the next look after one that failed and brought nothing new
VERSIONS = 256  # read at once
FOOTERS = 4  # read at once
DAMAGED_S = 30.0  # a damaged run is not fetched again so soon
DAMAGED_MAX = 64  # runs remembered so
STUCK_TIMES = 3  # looks at the chain that end at the same pack, before they go on without it
SILENT_S = 30.0  # a chain that cannot be followed for so long is complained of
SAY_S = 10.0  # between two lines of the log about what cannot be read

_log = log.get("tier")

RunCache = SharedCache[tuple[str, int], LoadedRun]
"""Runs by pack and number; no two packs of a store have one name."""


class ReaderStats:
    """Counts for the metrics."""

    __slots__ = ("behind", "fetched_bytes", "found", "gone", "refused", "served_bytes", "trouble")

    def __init__(self) -> None:
        self.found = 0
        self.gone = 0
        self.behind = 0
        self.trouble = 0
        self.refused = 0
        self.served_bytes = 0
        self.fetched_bytes = 0


class TierReader:
    """See the module.

    Args:
        store: where the tier is; its calls are bounded apart from those of the uploads.
        place: the group's place in it.
        follow_s: between two looks at the chain.
        moved: called when the chain has a newer version.
        failed: called with a fault of ours; reads would stand still without a word otherwise.
        patience: how long nothing is concluded from an object that is not there.
        seen: why there must be versions in the store; empty where there may be none yet.
        cache: of runs, and the bound of what is on its way; None: its own.
        budget: likewise.
        looks: where it waits to follow the chain; None: it never waits.
        rest_s: between two looks at the chain, at least.
        has_room: see ``TierIndex``.

    Attributes:
        index: what is known of the tier.
        stats: counts.
        reason: why the chain is not followed; empty while it is.
    """

    def __init__(
        self,
        store: Store,
        place: Shard,
        *,
        follow_s: float,
        moved: Callable[[ChainState], None],
        failed: Callable[[BaseException], None],
        patience: Patience | None = None,
        seen: Callable[[], str] = lambda: "",
        cache: RunCache | None = None,
        budget: Budget | None = None,
        looks: asyncio.Semaphore | None = None,
        rest_s: float = 0.0,
        has_room: Callable[[], bool] | None = None,
    ) -> None:
        """Nothing is read before ``start``."""
        self._patience = patience or Patience()
        self._has_room = has_room
        self.index = TierIndex(place, has_room=has_room, patience=self._patience)
        self.stats = ReaderStats()
        self.cache = cache or RunCache()
        self.budget = budget or Budget()
        self._owns_cache = cache is None
        self.reason = ""
        self._store = store
        self._place = place
        self._follow_s = max(min(max(follow_s, FOLLOW_MIN_S), FOLLOW_MAX_S), rest_s)
        self._looks = looks or asyncio.Semaphore()
        self._moved = moved
        self._seen = seen
        self._failed = failed
        self._damaged: dict[tuple[str, int], tuple[float, Trouble]] = {}
        self._unfollowed_s: float | None = None  # the clock when it could not be followed first
        self._said, self._said_s = "", -SAY_S
        self._oldest_due_s = _now_s() + self._patience.oldest_s
        self._stuck = ("", 0)
        self._poked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to follow the chain."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End everything that is under way."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._owns_cache:
            await self.cache.close()

    def poke(self) -> None:
        """The chain has probably moved: look now."""
        self._poked.set()

    # ---- following

    async def _run(self) -> None:
        while True:
            self._poked.clear()
            known = self._progress
            try:
                async with self._looks:
                    await self._ask_again()
                    await self._catch_up()
                self._tell("")
                wait_s = self._follow_s
            except (StoreError, TierObjectError, ChainError, OSError, ValueError) as error:
                self._tell(str(error) or type(error).__name__)
                wait_s = TROUBLE_S if self._progress == known else self._follow_s
            except Exception as error:  # noqa: BLE001 -- a fault of ours, handed to the process
                self._failed(error)
                return
            due_s = self.index.losses.next_due_s - _now_s()
            wait_s = min(wait_s, max(due_s, self._patience.first_s / 2))
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._poked.wait()

    @property
    def _progress(self) -> tuple[int, Offset]:
        return self.index.chain.v, self.index.covered

    def _tell(self, reason: str) -> None:
        if reason and reason != self.reason:
            _log.warning("the tier cannot be followed", reason=reason)
        self.reason = reason
        if not reason:
            self._unfollowed_s = None
        elif self._unfollowed_s is None:
            self._unfollowed_s = _now_s()
        said, now_s = self.readable.complaint, _now_s()
        if said != self._said and now_s >= self._said_s + SAY_S:
            self._said, self._said_s = said, now_s
            if said:
                _log.warning("the tier cannot be read as a whole", reason=said)
            else:
                _log.info("the tier can be read as a whole again")

    @property
    def readable(self) -> Readable:
        """The part of the tier that can be read here."""
        lasts = self._unfollowed_s is not None and _now_s() >= self._unfollowed_s + SILENT_S
        return judged(self.index, self.reason if lasts else "")

    @property
    def readable_end(self) -> Offset:
        """Up to where the tier can be read, for whoever deletes what is in it.

        Its beginning while it cannot be followed: what is remembered of a store that shows nothing
        now, since it is not mounted or was emptied, is no reason to delete the other copy.
        """
        return Offset(self.index.chain.start) if self.reason else self.index.readable_end

    async def _catch_up(self) -> None:
        """Follow the chain to its end, a few versions after the other.

        What was followed stays so if the next call fails: a store that fails now and then would
        never let a reader that is far behind catch up otherwise.
        """
        store, place = self._store, self._place
        while numbers := await later_numbers(
            store, place, self.index.chain.v, VERSIONS, seen=self._seen()
        ):
            await self._begin_at(numbers[0])
            for at in range(0, len(numbers), AT_ONCE):
                versions = await read_versions(store, place, numbers[at : at + AT_ONCE])
                known = self.index.chain.v
                try:
                    self.index.follow(versions)
                finally:  # a hole or a version that is wrong hides what is behind it, no more
                    if self.index.chain.v > known:
                        self._moved(self.index.chain)
                    await self._read_footers()
        await self._read_footers()

    async def _begin_at(self, v: int) -> None:
        """Follow the chain from its oldest version on, ``v``, where all that was read is gone.

        A broker that could not follow for longer than a rule of the bucket keeps objects: as after
        a start of the process, what is left says what it needs.
        """
        known = self.index.chain.v
        if 0 < known < v - 1 and await first_version(self._store, self._place) == v:
            self._begin_again(removed_below=self.index.losses.removed_below)

    async def _read_footers(self) -> None:
        """Take in the packs that are new, in their order."""
        while entries := self.index.missing(FOOTERS):
            footers = await asyncio.gather(*map(self._footer, entries), return_exceptions=True)
            for entry, footer in zip(entries, footers, strict=True):
                if isinstance(footer, TierObjectError):
                    absent = isinstance(footer, MissingObject)
                    self.index.skip(entry, str(footer), _now_s(), absent=absent)
                elif isinstance(footer, StoreError) and self._is_stuck(entry):
                    self.index.skip(entry, str(footer), _now_s(), absent=True)
                elif isinstance(footer, BaseException):
                    raise footer
                else:
                    self.index.take(entry, footer)

    def _is_stuck(self, entry: PackEntry) -> bool:
        """Whether the store, which lists, does not give this one object again and again."""
        key, times = self._stuck
        self._stuck = (entry.key, times + 1 if key == entry.key else 1)
        return self._stuck[1] >= STUCK_TIMES

    async def _footer(self, entry: PackEntry) -> Footer:
        return await read_footer(self._store, self._place, entry)

    # ---- what could not be read

    async def _ask_again(self) -> None:
        """Ask for what could not be read, as far as it is due."""
        losses, now_s = self.index.losses, _now_s()
        for lost in losses.due(now_s):
            losses.asked_again += 1
            try:
                self.index.regain(lost.entry, await self._footer(lost.entry))
            except (TierObjectError, StoreError, OSError) as error:
                absent = isinstance(error, MissingObject | StoreError | OSError)
                losses.note(lost.entry, str(error), now_s, absent=absent, indexed=False)
        await self._ask_for_the_oldest(now_s)
        if self._lacks_its_beginning() and losses.look_is_due(now_s):
            await self._look()

    async def _ask_for_the_oldest(self, now_s: float) -> None:
        """Find out what a rule of the bucket removes, as a reader of it would.

        Old records are mostly read by nobody, or from the cache, which needs no store.
        """
        if now_s < self._oldest_due_s:
            return
        self._oldest_due_s = now_s + self._patience.oldest_s
        index = self.index
        entry = index.oldest
        if entry is None:
            return
        try:
            await self._footer(entry)
        except TierObjectError as error:
            index.lost(entry, str(error), now_s, absent=isinstance(error, MissingObject))
        except (StoreError, OSError) as error:  # no answer says nothing of this pack
            _log.info("the oldest pack was not answered for", pack=entry.key, reason=error)

    def _lacks_its_beginning(self) -> bool:
        index = self.index
        first = index.losses.first
        return bool(
            index.chain.base
            or index.losses.removed_below
            or index.losses.in_doubt
            or (first is not None and first.absent)
        )

    async def _look(self) -> None:
        """List what there is of the oldest objects; see ``losses``."""
        index = self.index
        chain = index.chain
        oldest = await first_version(self._store, self._place) if chain.base else None
        if oldest is not None and oldest <= chain.base:
            self._begin_again(removed_below=0)
            return
        known = {entry.key: entry.lo for entry in chain.packs}
        there = await first_pack(self._store, self._place, known)
        first_there = None if there is None else known[there]
        if oldest is not None and not known:  # the versions that are there say so
            first_there = chain.end
        before = index.losses.removed_below
        if not index.losses.looked(first_there, chain.start, _now_s()):
            return
        if index.losses.removed_below < before:
            self._begin_again(removed_below=index.losses.removed_below)
        else:
            index.remove_below(index.losses.removed_below)

    def _begin_again(self, *, removed_below: int) -> None:
        """Something that was missing is back: read everything anew, in its order."""
        self.index = TierIndex(self._place, has_room=self._has_room, patience=self._patience)
        self.index.losses.removed_below = removed_below

    # ---- reading

    async def read(self, queue: Queue, wanted: Wanted, local: Local) -> Answer:
        """Records that the local log does not have any more.

        Args:
            queue: whose.
            wanted: which.
            local: what the local log has.
        """
        found = self.index.find(queue, wanted.offset, local)
        if isinstance(found, Found):
            return await self._from_run(found.place, wanted)
        if isinstance(found, Gone):
            self.stats.gone += 1
            return found
        if found.lasting:
            self.stats.refused += 1
            return found
        if self.index.covered >= local.log_start:  # something is missing, and asked for in time
            self.stats.trouble += 1
            return found
        self.stats.behind += 1
        self.poke()
        return Trouble(f"{found.reason} ({self.reason})") if self.reason else found

    def since(self, queue: Queue, timestamp: int, local: Local) -> int | None:
        """An offset at or before the first record stored at ``timestamp`` (ms) or later.

        None when everything that the tier has of the queue is older.
        """
        index = self.index
        lost = index.losses.first
        if (lost is not None and not lost.indexed) or index.covered < local.log_start:
            return 0
        if index.chain.first > index.readable_from:
            return 0
        return self.index.runs.since(queue, timestamp)

    def earliest(self, queue: Queue) -> int | None:
        """The store time of the tier's first record of the queue, ms; None if unknown."""
        return self.index.runs.earliest(queue)

    def first(self, queue: Queue, offset: int, local: Local) -> int:
        """The offset that a reader at ``offset`` is sent on to; itself where it is not."""
        found = self.index.find(queue, offset, local)
        return found.next_valid if isinstance(found, Gone) else offset

    async def _from_run(self, place: RunPlace, wanted: Wanted) -> Answer:
        key = (place.pack, place.run)
        now_s, index = _now_s(), self.index  # another one may take its place meanwhile
        entry = index.entry(place.pack)
        until_s, known = self._damaged.get(key, (0.0, None))
        if known is not None and now_s < until_s:
            self.stats.refused += 1
            return known
        try:
            run = await self.cache.get(key, lambda: self._load(entry, place.run))
        except MissingObject as error:
            self.stats.trouble += 1
            index.lost(entry, str(error), now_s)
            self.poke()
            return Trouble(f"{error} It is asked for again.")
        except TierObjectError as error:
            self.stats.refused += 1
            _log.error("the tier is damaged", reason=error)
            return self._remember(key, now_s + DAMAGED_S, Trouble(str(error), lasting=True))
        except (StoreError, OSError, ValueError) as error:
            self.stats.trouble += 1
            return Trouble(str(error) or type(error).__name__)
        answer = pick(run, place, wanted)
        self.stats.found += 1
        self.stats.served_bytes += len(answer.body)
        return answer

    def _remember(self, key: tuple[str, int], until_s: float, trouble: Trouble) -> Trouble:
        self._damaged.pop(key, None)
        while len(self._damaged) >= DAMAGED_MAX:
            del self._damaged[next(iter(self._damaged))]
        self._damaged[key] = (until_s, trouble)
        return trouble

    async def _load(self, entry: PackEntry, number: int) -> LoadedRun:
        """Fetch a whole run: its sum covers nothing less."""
        footer = await self._footer(entry)
        run = footer.runs[number]
        async with self.budget.take(run.length):
            data = await read_run(self._store, self._place, footer, run)
            self.stats.fetched_bytes += len(data)
            await asyncio.to_thread(_check, data, footer, number, self._place)
        return LoadedRun(data, run.units)


def judged(index: TierIndex, reason: str) -> Readable:
    """The part of a tier that cannot be read.

    Args:
        index: what is known.
        reason: why the chain has not been followed for a while; empty while it is.
    """
    if reason:
        return Readable(f"the tier is not followed: {reason}")
    first = index.losses.first
    if first is not None:
        entry, count = first.entry, len(index.losses.packs)
        return Readable(
            f"{count} of {len(index.chain.packs)} packs cannot be read and are asked for again, "
            f"first [{entry.lo}, {entry.hi}): {first.reason}"
        )
    chain, begins = index.chain, index.readable_from
    if chain.first > begins:
        return Readable(
            f"the manifest's versions up to {chain.base} are missing and are asked for again, and "
            f"with them what is known of [{chain.start}, {chain.first})"
        )
    if begins > chain.start:
        return Readable(
            f"the oldest objects were removed from the store: [{chain.start}, {begins}) is lost "
            f"unless they are restored; the rest is served",
            is_shortened=True,
        )
    return Readable()


def _now_s() -> float:
    return monotonic()


def _check(data: bytes, footer: Footer, run: int, place: Shard) -> None:
    """Compare every record with the footer.

    Raises:
        DamagedObject: names the pack and the byte.
    """
    for _ in raw_records(data, footer, footer.runs[run], place):
        pass
