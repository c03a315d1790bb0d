"""Messages per second in and out, their latency, whose CPU they cost; what quotas keep apart."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING

from gantry_lab.bench.broker.target import ProcessGroup
from gantry_lab.bench.broker.work import FILL_LANES, Fill, Pulls, Sends, Work
from gantry_lab.bench.load import FrameLoad

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gantry_cli.client.routes import Queue
    from gantry_cli.client.session import Session

    from gantry_lab.bench.results import Runs
    from gantry_lab.bench.stage import BenchStage
    from gantry_lab.bench.tls import Trust

SENDERS = 64
READERS = 16
TOPIC = "gantry-bench"
HOT_BYTES = 256 << 20
FILL_PATIENCE_S = 1800.0
FLOODING, QUIET = "a", "b"  # tenants: what stands before the first % of a topic's name
FLOOD_SENDERS = 256  # held for half a second each: below the patience beyond which they are refused
QUIET_SENDERS = 8
FLOOD_PER_S = 500
QUOTAS = {"GANTRY_QUOTAS": f'{{"tenants":{{"{FLOODING}":{{"sendsPerSecond":{FLOOD_PER_S}}}}}}}'}


def load_of(
    work: Work,
    queues: Sequence[Queue],
    lanes: int,
    outstanding: int = 1,
    trust: Trust | None = None,
) -> FrameLoad:
    """Lane `n` is connected to the broker of queue `n` modulo their number."""
    addresses = [queues[lane % len(queues)].address for lane in range(lanes)]
    return FrameLoad(work, addresses, lanes, outstanding, trust)


async def fill(
    client: Session, topic: str, size: int, told: Callable[[int], None] = lambda _: None
) -> int:
    """Send batches until `size` bytes of bodies are acknowledged; `told` hears of each.

    Returns:
        How many messages were.

    Raises:
        GantryError: batches were refused or not acknowledged.
    """
    queues = (await client.routes.fetch(topic)).writable
    work = Fill(topic, queues, size, told)
    with closing(load_of(work, queues, FILL_LANES)) as load:
        await load.finish(FILL_PATIENCE_S)
    return work.messages


async def sends(stage: BenchStage, replicas: int, batch: int = 1) -> Runs:
    """Messages of 1 KiB by 64 clients, one request outstanding each."""
    async with stage.brokers(replicas) as (target, _):
        queues = await target.queues(TOPIC)
        with closing(load_of(Sends(TOPIC, queues, SENDERS, batch), queues, SENDERS)) as load:
            return await stage.repeat(lambda: stage.window(target, load))


async def pulls(stage: BenchStage) -> Runs:
    """Pulls of what was just written, by 16 consumers, each again and again."""
    async with stage.brokers(1) as (target, client):
        queues = await target.queues(TOPIC)
        await fill(client, TOPIC, min(HOT_BYTES, stage.wish.log_bytes))
        work = Pulls(TOPIC, queues, READERS, once=False)
        with closing(load_of(work, queues, READERS)) as load:
            return await stage.repeat(lambda: stage.window(target, load))


async def quotas(stage: BenchStage) -> Runs:
    """Effects on a tenant of another that sends as fast as it can, where quotas are set.

    Its clients send by themselves, then beside those of the other, whose quota is far below what
    they try; one after the other in each run, so that a machine that slows down slows both.
    """
    async with stage.group(1, QUOTAS) as (members, client):
        target = ProcessGroup(members, client)

        async def of(tenant: str, senders: int) -> FrameLoad:
            topic = f"{tenant}%{TOPIC}"
            queues = await target.queues(topic)
            return load_of(Sends(topic, queues, senders), queues, senders)

        with (
            closing(await of(FLOODING, FLOOD_SENDERS)) as flood,
            closing(await of(QUIET, QUIET_SENDERS)) as quiet,
        ):

            async def once() -> dict[str, float]:
                alone = await stage.window(target, quiet)
                async with asyncio.TaskGroup() as both:
                    beside = both.create_task(stage.window(target, quiet))
                    flooded = both.create_task(stage.window(target, flood))
                found = beside.result()
                return {
                    "p99_before_ms": alone["p99_ms"],
                    "p99_ms": found["p99_ms"],
                    "ratio": found["p99_ms"] / alone["p99_ms"],
                    "messages_per_s": found["messages_per_s"],
                    "flood_per_s": flooded.result()["messages_per_s"],
                }

            return await stage.repeat(once)
