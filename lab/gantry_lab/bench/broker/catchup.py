"""A replica that lost its disk copies the log, while producers go on.

The clock runs from the controller's first word of the new replica until it is in sync; what it
copied is the log as long as it was when it came. The word comes with heartbeats, every half second.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

from gantry_cli.progress import tally
from gantry_protocol.errors import GantryError

from gantry_lab.bench.broker.throughput import fill
from gantry_lab.bench.results import Latencies, percentile
from gantry_lab.bench.senders import Senders, make_topic

if TYPE_CHECKING:
    from gantry_cli.client.session import Session
    from gantry_protocol.admin import GroupView, MemberView

    from gantry_lab.bench.members import Members
    from gantry_lab.bench.results import Runs
    from gantry_lab.bench.stage import BenchStage

TOPIC = "gantry-bench-catch-up"
LOOK_S = 0.05
COPY_PATIENCE_S = 900.0


async def measure(stage: BenchStage) -> Runs:
    """The figures of each run; every one takes another disk away.

    Raises:
        GantryError: the replica did not come back in time.
    """
    async with stage.group(3) as (members, client):
        size = stage.wish.log_bytes
        await make_topic(client, TOPIC)
        await fill(client, TOPIC, size, tally(stage.say, "bytes written", size))
        return await stage.repeat(partial(_one, members, client, stage.wish.seconds))


async def _one(members: Members, client: Session, seconds: float) -> dict[str, float]:
    async with Senders(client, TOPIC) as senders:
        await senders.flowing()
        await asyncio.sleep(seconds)
        before = p99_ms(senders.times_ms)
        name = await members.lose_replica()
        known = {item.broker_id for item in await _all(members)}
        starting = asyncio.create_task(members.start())
        try:
            copied, took_s, during = await _copied(members, senders, name, known)
            await starting
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        senders.check()
    return {
        "mb_per_s": copied / took_s / 1e6,
        "seconds": took_s,
        "p99_before_ms": before,
        "p99_during_ms": during,
        "ratio": during / before,
    }


async def _copied(
    members: Members, senders: Senders, name: str, known: set[int]
) -> tuple[int, float, float]:
    """Bytes and seconds of the copy to `name`, whose id is new; the producers' p99 in ms."""
    deadline = time.monotonic() + COPY_PATIENCE_S
    begun_s, size = 0.0, 0
    while time.monotonic() < deadline:
        members.check()
        senders.check()
        group = await members.group()
        fresh = None if group is None else _newcomer(group, name, known)
        if group is not None and fresh is not None:
            if not begun_s:
                begun_s = time.monotonic()
                size = max(member.max_offset for member in group.members)
                senders.times_ms = []
            if fresh.broker_id in group.sync_state_set:
                took_s = time.monotonic() - begun_s
                return size, took_s, p99_ms(senders.times_ms)
        await asyncio.sleep(LOOK_S)
    raise GantryError(f"The replica {name} was not in sync within {COPY_PATIENCE_S:.0f} s.")


async def _all(members: Members) -> list[MemberView]:
    group = await members.group()
    return [] if group is None else group.members


def _newcomer(group: GroupView, name: str, known: set[int]) -> MemberView | None:
    for member in group.members:
        if member.pod_uid == name and member.broker_id not in known and member.alive:
            return member
    return None


def p99_ms(times_ms: list[float]) -> float:
    """Of a producer's messages.

    Raises:
        GantryError: there are too few.
    """
    return percentile(Latencies(sorted(times_ms)), 0.99)
