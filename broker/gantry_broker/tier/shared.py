"""The part that tiers of all groups of a process share: the store's clients, threads, memory.

Each group has a place, a role and a chain of its own. Rule protected: what a process needs for its
tiers has the same bounds for one group as for hundreds. Groups wait for each other outside the
deadlines of calls, in a line, so that a store that is slow is not also told to be silent.

What it refuses: nothing; who finds no room waits.
"""

import asyncio

from gantry_broker.tier.cache import Budget
from gantry_broker.tier.core.reading import RUNS_MAX
from gantry_broker.tier.options import TierOptions, open_tier
from gantry_broker.tier.reader import RunCache, TierReader
from gantry_broker.tier.room import PackRoom
from gantry_broker.tier.stores.calls import RUNNING_MAX, CallStats, DeadlineCalls

PACKS_AT_ONCE = 2
"""Full packs in memory: one that is made, and one that is sent."""

LOOK_EACH_S = 0.1
"""Between two looks at chains, on average: a look is a LIST, which costs money at a store."""


class SharedTier:
    """See the module.

    Args:
        options: of any group of the process; but for their places all are the same.

    Attributes:
        calls: counts of the store's calls, by who makes them.
        uploads: the store, for uploads.
        reads: the store, for reads; neither keeps the other from it.
        line: where uploads wait for their call.
        looks: where chains wait to be followed.
        room: for packs.
        cache: of what was read.
        budget: of what is on its way here.
        rest_s: between two looks at the same chain, at least.
    """

    def __init__(self, options: TierOptions) -> None:
        """Nothing is asked of the store yet."""
        uploads, reads = DeadlineCalls("tier-upload"), DeadlineCalls("tier-read")
        self.calls: dict[str, CallStats] = {"upload": uploads.stats, "read": reads.stats}
        self.uploads = open_tier(options, uploads)
        self.reads = open_tier(options, reads)
        self.line = asyncio.Semaphore(RUNNING_MAX)
        self.looks = asyncio.Semaphore(RUNNING_MAX)
        self.room = PackRoom(PACKS_AT_ONCE * options.limits.pack_bytes)
        self.cache = RunCache()
        self.budget = Budget()
        self.rest_s = options.groups * LOOK_EACH_S
        self._readers: set[TierReader] = set()

    async def close(self) -> None:
        """End all loads; the groups have stopped."""
        await self.cache.close()

    def begins(self, reader: TierReader) -> None:
        """This one indexes a chain from now on."""
        self._readers.add(reader)

    def ends(self, reader: TierReader) -> None:
        """This one does no more."""
        self._readers.discard(reader)

    def runs_left(self) -> int:
        """The number of runs that may still come into the indexes."""
        return RUNS_MAX - sum(reader.index.runs.size for reader in self._readers)
