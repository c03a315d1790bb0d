"""``TierReader``: follows the chain of the group's tier, and reads records from its packs.

Every member follows, so that whoever becomes master next can answer at once. Rules protected: the
event loop never waits for the store; a footer and a run are decoded and compared with their sums in
a thread; a flipped byte is named with object and offset and never served; all memory is bounded
(``reading.RUNS_MAX``, ``cache``).

What it refuses: to guess. A store that does not answer, a chain that breaks a rule, a pack that is
damaged: each is an answer of its own, with its reason.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from gantry_protocol.process import log
from gantry_protocol.tier.chain import ChainState
from gantry_protocol.tier.damage import ChainError, TierObjectError
from gantry_protocol.tier.footer import Footer
from gantry_protocol.tier.keys import Shard
from gantry_protocol.tier.manifests import PackEntry
from gantry_protocol.tier.packs import raw_records

from gantry_broker.tier.cache import Budget, SharedCache
from gantry_broker.tier.locate import Found, Gone, Queue, RunPlace
from gantry_broker.tier.reading import (
    Answer,
    LoadedRun,
    Local,
    TierIndex,
    Trouble,
    Wanted,
    pick,
)
from gantry_broker.tier.stores.contract import Store, StoreError
from gantry_broker.tier.stores.packs import read_footer, read_run
from gantry_broker.tier.stores.versions import read_later

FOLLOW_MAX_S = 10.0  # between two looks at the chain; one LIST each
FOLLOW_MIN_S = 0.1
TROUBLE_S = 5.0  # until the next look after one that failed
VERSIONS = 256  # read at once
FOOTERS = 4  # read at once
DAMAGED_S = 30.0  # a damaged run is not fetched again so soon
DAMAGED_MAX = 64  # runs remembered so

_log = log.get("tier")


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
    ) -> None:
        """Nothing is read before ``start``."""
        self.index = TierIndex(place)
        self.stats = ReaderStats()
        self.cache: SharedCache[tuple[str, int], LoadedRun] = SharedCache()
        self.budget = Budget()
        self.reason = ""
        self._store = store
        self._place = place
        self._follow_s = min(max(follow_s, FOLLOW_MIN_S), FOLLOW_MAX_S)
        self._moved = moved
        self._failed = failed
        self._damaged: dict[tuple[str, int], tuple[float, Trouble]] = {}
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
        await self.cache.close()

    def poke(self) -> None:
        """The chain has probably moved: look now."""
        self._poked.set()

    # ---- following

    async def _run(self) -> None:
        while True:
            self._poked.clear()
            try:
                await self._catch_up()
                self._tell("")
                wait_s = self._follow_s
            except (StoreError, TierObjectError, ChainError, OSError, ValueError) as error:
                self._tell(str(error) or type(error).__name__)
                wait_s = TROUBLE_S
            except Exception as error:  # noqa: BLE001 -- a fault of ours, handed to the process
                self._failed(error)
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._poked.wait()

    def _tell(self, reason: str) -> None:
        if reason and reason != self.reason:
            _log.warning("the tier cannot be followed", reason=reason)
        self.reason = reason

    async def _catch_up(self) -> None:
        index = self.index
        while versions := await read_later(self._store, self._place, index.chain.v, VERSIONS):
            index.follow(versions)
            self._moved(index.chain)
            await self._read_footers()
        await self._read_footers()

    async def _read_footers(self) -> None:
        """Take in the packs that are new, in their order."""
        while entries := self.index.missing(FOOTERS):
            footers = await asyncio.gather(*map(self._footer, entries), return_exceptions=True)
            for entry, footer in zip(entries, footers, strict=True):
                if isinstance(footer, TierObjectError):
                    _log.error("the tier is damaged", reason=footer)
                    self.index.skip(entry, str(footer))
                elif isinstance(footer, BaseException):
                    raise footer
                else:
                    self.index.take(entry, footer)

    async def _footer(self, entry: PackEntry) -> Footer:
        return await read_footer(self._store, self._place, entry)

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
        self.stats.behind += 1
        self.poke()
        return Trouble(f"{found.reason} ({self.reason})") if self.reason else found

    def since(self, queue: Queue, timestamp: int, local: Local) -> int | None:
        """An offset at or before the first record stored at ``timestamp`` (ms) or later.

        None when everything that the tier has of the queue is older.
        """
        if self.index.skipped or self.index.covered < local.log_start:
            return 0
        return self.index.runs.since(queue, timestamp)

    def earliest(self, queue: Queue) -> int | None:
        """When the first record that the tier has of the queue was stored, ms; None if unknown."""
        return self.index.runs.earliest(queue)

    async def _from_run(self, place: RunPlace, wanted: Wanted) -> Answer:
        key = (place.pack, place.run)
        now_s = asyncio.get_running_loop().time()
        until_s, known = self._damaged.get(key, (0.0, None))
        if known is not None and now_s < until_s:
            self.stats.refused += 1
            return known
        try:
            run = await self.cache.get(key, lambda: self._load(place))
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

    async def _load(self, place: RunPlace) -> LoadedRun:
        """Fetch a whole run: its sum covers nothing less."""
        footer = await self._footer(self.index.entry(place.pack))
        run = footer.runs[place.run]
        async with self.budget.take(run.length):
            data = await read_run(self._store, self._place, footer, run)
            self.stats.fetched_bytes += len(data)
            await asyncio.to_thread(_check, data, footer, place.run, self._place)
        return LoadedRun(data, run.units)


def _check(data: bytes, footer: Footer, run: int, place: Shard) -> None:
    """Compare every record with the footer.

    Raises:
        DamagedObject: names the pack and the byte.
    """
    for _ in raw_records(data, footer, footer.runs[run], place):
        pass
