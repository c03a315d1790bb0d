"""What one tenant notices of another that sends as fast as it can, where quotas are set.

Eight clients of the tenant `b` send by themselves, then beside 256 of the tenant `a`, whose quota
is far below what they try. The figure is the p99 of `b`, beside `a` and divided by that alone; both
are measured in each run, one after the other, so that a machine that slows down slows both.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError

from gantry_lab.bench.broker.load import Load
from gantry_lab.bench.broker.throughput import TOPIC
from gantry_lab.bench.broker.work import Sends

if TYPE_CHECKING:
    from gantry_lab.bench.broker.target import Target
    from gantry_lab.bench.figures import Runs
    from gantry_lab.bench.suite import Plan

FLOODING, QUIET = "a", "b"  # tenants: what stands before the first % of a topic's name
FLOOD_SENDERS = 256  # held for half a second each: below the patience beyond which they are refused
QUIET_SENDERS = 8
FLOOD_PER_S = 500
QUOTAS = {"GANTRY_QUOTAS": f'{{"tenants":{{"{FLOODING}":{{"sendsPerSecond":{FLOOD_PER_S}}}}}}}'}


async def measure(target: Target, plan: Plan) -> Runs:
    """The figures of each run, by metric, on a group with `QUOTAS`."""
    flood = await _load(target, FLOODING, FLOOD_SENDERS)
    try:
        quiet = await _load(target, QUIET, QUIET_SENDERS)
    except BaseException:
        flood.close()
        raise
    try:
        return await plan.repeat(lambda: _run(plan, quiet, flood))
    finally:
        quiet.close()
        flood.close()


async def _load(target: Target, tenant: str, senders: int) -> Load:
    topic = f"{tenant}%{TOPIC}"
    queues = await target.queues(topic)
    addresses = [queues[lane % len(queues)].address for lane in range(senders)]
    return Load(Sends(topic, queues, senders), addresses, senders)


async def _run(plan: Plan, quiet: Load, flood: Load) -> dict[str, float]:
    alone = await quiet.window(plan.warmup_s, plan.seconds, _nothing)
    async with asyncio.TaskGroup() as both:
        beside = both.create_task(quiet.window(plan.warmup_s, plan.seconds, _nothing))
        flooded = both.create_task(flood.window(plan.warmup_s, plan.seconds, _nothing))
    seen = beside.result()
    if not (alone.operations and seen.operations):
        raise GantryError("No request was answered; measure longer with --seconds.")
    alone_ms, beside_ms = alone.p_ms(0.99), seen.p_ms(0.99)
    return {
        "p99_before_ms": alone_ms,
        "p99_ms": beside_ms,
        "ratio": beside_ms / alone_ms,
        "messages_per_s": seen.per_second,
        "flood_per_s": flooded.result().per_second,
    }


def _nothing() -> None:
    """Nobody's processors are looked at."""
