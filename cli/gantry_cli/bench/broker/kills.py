"""Masters killed one after another under load, and then every acknowledged message read back.

What was acknowledged is compared with what the log holds in the end, not with what a consumer has
seen on the way: a message that a later master lost would have been consumed before. Rule protected:
the next master is killed only after the group is whole again and has acknowledged something since.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError

from gantry_cli.bench.senders import Senders, make_topic
from gantry_cli.client.consumer import Consumer, Received, Start
from gantry_cli.client.gaps import AckTimes
from gantry_cli.client.session import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gantry_cli.bench.members import Members
    from gantry_cli.client.session import Session

TOPIC = "gantry-bench-kills"
READER = "gantry-bench-reader"
RESUME_PATIENCE_S = 30.0
READ_PATIENCE_S = 600.0
LOOK_S = 0.02
TIMES_KEPT = 100_000  # of acknowledgements; the longest gap of all is never forgotten


class Account:
    """What was acknowledged, and what was read."""

    def __init__(self) -> None:
        self.acknowledged: set[str] = set()
        self.times = AckTimes(keep=TIMES_KEPT)
        self.read: Counter[str] = Counter()

    def acknowledge(self, key: str) -> None:
        """A producer was told that this message is safe."""
        self.acknowledged.add(key)
        self.times.add(time.monotonic())

    async def receive(self, received: Received) -> None:
        """A reader got this message."""
        self.read[received.key] += 1

    @property
    def lost(self) -> int:
        """Acknowledged messages that nobody can read."""
        return sum(1 for key in self.acknowledged if not self.read[key])

    @property
    def duplicated(self) -> int:
        """Copies beyond the first: of messages that were sent again, their answer being lost."""
        return sum(count - 1 for count in self.read.values())


async def measure(
    members: Members, count: int, advance: Callable[[], None]
) -> list[dict[str, float]]:
    """Kill `count` masters; one figure for all of them.

    Raises:
        GantryError: the group did not come back, or the log could not be read to its end.
    """
    account = Account()
    gaps = []
    async with session(members.name_servers) as client:
        await make_topic(client, TOPIC)
        async with Senders(client, TOPIC, account.acknowledge) as senders:
            await senders.flowing()
            for _ in range(count):
                gaps.append(await _one(members, senders, account.times))
                advance()
            await members.until_settled()
        await _read_back(client, account)
    return [_figures(account, gaps)]


async def _one(members: Members, senders: Senders, times: AckTimes) -> float:
    """Kill the master, start it again, and see that messages are acknowledged; the gap in ms."""
    await members.until_settled()
    killed_s = time.monotonic()
    await members.kill_master()
    await members.start()
    while (last_s := times.last_s) is None or last_s <= killed_s:
        senders.check()
        if time.monotonic() > killed_s + RESUME_PATIENCE_S:
            raise GantryError(f"Writes did not resume in {RESUME_PATIENCE_S:.0f} s.")
        await asyncio.sleep(LOOK_S)
    gap = times.longest(killed_s)
    return 0.0 if gap is None else gap.ms


async def _read_back(client: Session, account: Account) -> None:
    """Read the topic from its start to its end."""
    reader = Consumer(
        client.routes,
        client.calls,
        TOPIC,
        account.receive,
        group=READER,
        start=Start.EARLIEST,
        commit_interval_s=None,
    )
    reading = asyncio.create_task(reader.run())
    try:
        async with asyncio.timeout(READ_PATIENCE_S):
            while not await reader.at_end():
                if reading.done():
                    reading.result()
                await asyncio.sleep(LOOK_S)
    except TimeoutError as error:
        raise GantryError(f"The log was not read to its end in {READ_PATIENCE_S:.0f} s.") from error
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


def _figures(account: Account, gaps: Iterable[float]) -> dict[str, float]:
    found = list(gaps)
    return {
        "kills": float(len(found)),
        "acknowledged": float(len(account.acknowledged)),
        "lost": float(account.lost),
        "duplicated": float(account.duplicated),
        "gap_ms": max(found),
    }
