"""Messages by POP: how many are popped and acknowledged, and how late one comes again.

Topics and consumer groups are fresh, also at a broker that somebody else runs, so it is known how
many messages there are.
"""

from __future__ import annotations

import itertools
import time
from contextlib import closing
from typing import TYPE_CHECKING

from gantry_lab.bench.broker.pop_work import SLOTS, Pops, Timers
from gantry_lab.bench.broker.throughput import HOT_BYTES, SENDERS, TOPIC, fill, load_of
from gantry_lab.bench.results import Latencies, percentile
from gantry_lab.bench.senders import BODY_BYTES
from gantry_lab.bench.stage import CannotRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_cli.client.routes import Queue

    from gantry_lab.bench.broker.target import Brokers
    from gantry_lab.bench.results import Runs
    from gantry_lab.bench.stage import BenchStage

CONSUMERS = SENDERS
GROUP = "gantry-bench-pops"
LEFT_ALONE = 2_000  # messages that nobody acknowledges until they come again
AGAIN_PATIENCE_S = 90.0


async def rates(stage: BenchStage) -> Runs:
    """Messages popped and acknowledged by 64 consumers of one group.

    Raises:
        CannotRun: the brokers' names are not known.
    """
    async with stage.brokers(1) as (target, client):
        topic, queues = await _fresh(target, "pop")
        count = await fill(client, topic, min(HOT_BYTES, stage.wish.log_bytes))
        work = Pops(topic, queues, CONSUMERS, GROUP, count)
        with closing(load_of(work, queues, CONSUMERS, SLOTS)) as load:
            return await stage.repeat(lambda: stage.window(target, load))


async def timers(stage: BenchStage) -> Runs:
    """The lateness of messages that come again, since nobody acknowledged them in their time.

    Raises:
        CannotRun: the brokers' names are not known.
        GantryError: one came before its time, or not all came again.
    """
    numbers = itertools.count()
    async with stage.brokers(1) as (target, client):
        topic, queues = await _fresh(target, "timers")
        count = await fill(client, topic, LEFT_ALONE * BODY_BYTES)

        async def once() -> dict[str, float]:
            work = Timers(topic, queues, CONSUMERS, f"{GROUP}-{next(numbers)}", count)
            with closing(load_of(work, queues, CONSUMERS, SLOTS)) as load:
                await load.finish(AGAIN_PATIENCE_S)
            late_ms = [1000 * late_s for late_s in sorted(work.late_s)]
            return {
                "late_p99_ms": percentile(Latencies(late_ms), 0.99),
                "late_max_ms": late_ms[-1],
                "acknowledged": work.messages,
            }

        return await stage.repeat(once)


async def _fresh(target: Brokers, name: str) -> tuple[str, Sequence[Queue]]:
    """A topic that was not there before, and its queues."""
    topic = f"{TOPIC}-{name}-{time.time_ns() // 1_000_000:x}"
    queues = await target.queues(topic)
    if not all(queue.broker_name for queue in queues):
        raise CannotRun("needs the brokers' names for receipts; give --against a name server")
    return topic, queues
