"""A controller with 100,000 groups: its snapshot, its restart, its memory.

The follower that is restarted has a snapshot of all groups and a few entries behind it. Killed, not
stopped, so that nothing is tidied up. What it refuses: to time a restart that read the log instead.
"""

from __future__ import annotations

import asyncio
import math
from time import perf_counter
from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError

from gantry_lab.bench.controller.throughput import CALM, THREE, prepare

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gantry_lab.bench.controller.quorum import ProcessQuorum
    from gantry_lab.bench.results import Runs
    from gantry_lab.bench.stage import BenchStage

SNAPSHOT = "/v1/quorum/snapshot"
SNAPSHOT_PATIENCE_S = 30.0
RESTART_PATIENCE_S = 60.0
ASK_S = 0.02
OK, BUSY = 200, 409


async def restarts(stage: BenchStage, groups: int) -> Runs:
    """Seconds from the start of the process until it has applied all that was committed then.

    Raises:
        GantryError: there was no snapshot, or it did not come back.
    """
    async with stage.quorum(CALM) as quorum:
        await prepare(quorum, range(groups), replicas=THREE, registered=1)
        fresh = iter(range(groups, groups + stage.steps))

        async def once() -> dict[str, float]:
            await prepare(quorum, [next(fresh)], replicas=THREE)  # something new to be in it
            view = await quorum.settled()
            node = next(item for item in quorum.nodes if item != quorum.leading)
            pause_ms = await _snapshot(quorum, node)
            await quorum.kill(node)
            begun = perf_counter()
            await quorum.start(node)
            await _applied(quorum, node, view.commit_index)
            seconds = perf_counter() - begun
            return {"seconds": seconds, "rss_mb": quorum.rss_mb(node), "pause_p99_ms": pause_ms}

        return await stage.repeat(once)


async def _snapshot(quorum: ProcessQuorum, node: int) -> float:
    """Have one taken by `node`; the bound of 99 % of the times its loop stood still, in ms."""
    deadline = perf_counter() + SNAPSHOT_PATIENCE_S
    while (status := await quorum.admin("POST", SNAPSHOT, node=node)) != OK:
        if status != BUSY or perf_counter() > deadline:  # one that it takes by itself goes first
            raise GantryError(f"POST {SNAPSHOT} was answered with {status}.")
        await asyncio.sleep(ASK_S)
    return 1000 * bound_of(await quorum.counts(node, "snapshot_slice_seconds_bucket", "le"), 0.99)


def bound_of(buckets: Mapping[str, float], share: float) -> float:
    """The smallest bound of a histogram's buckets that this share of what it counted is within.

    Raises:
        GantryError: it counted nothing, or too much beyond its last bound.
    """
    total = buckets.get("+Inf", 0.0)
    for bound, count in sorted((float(bound), count) for bound, count in buckets.items()):
        if total and count >= share * total and math.isfinite(bound):
            return bound
    raise GantryError(f"The pauses {dict(buckets)} have no bound.")


async def _applied(quorum: ProcessQuorum, node: int, index: int) -> None:
    deadline = perf_counter() + RESTART_PATIENCE_S
    while perf_counter() < deadline:
        quorum.check()
        view = await quorum.view(node)
        if view is not None and view.applied_index >= index:
            return
        await asyncio.sleep(ASK_S)
    raise GantryError(f"Controller {node} was not back within {RESTART_PATIENCE_S:.0f} s.")
