"""Masters killed one after another under load, and then every acknowledged message read back.

What was acknowledged is compared with what the log holds in the end, not with what a consumer has
seen on the way: a message that a later master lost would have been consumed before. Rule protected:
the next master is killed only after the group is whole again and has acknowledged something since.
A loss is no figure: it ends the measurement, and leaves the directories of all three.

Producers repeat a send whose answer was lost, under its first key, to whoever is the master then.
The group is to store it once (ADR 0086), so how many answers were lost stands beside how many
messages are there twice: without the first, the second would say nothing.

Nothing waits for a time to pass. Every hundred masters a fresh group takes over, whose account is
its own; so a finished round stays true whatever happens to the next one.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
from gantry_cli.client.consumer import Consumer, ReceivedRecord, Start
from gantry_cli.client.gaps import AckTimes
from gantry_protocol.errors import GantryError

from gantry_lab.bench.senders import Senders, make_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gantry_cli.client.session import Session

    from gantry_lab.bench.members import Members
    from gantry_lab.bench.results import Runs
    from gantry_lab.bench.stage import BenchStage

TOPIC = "gantry-bench-kills"
READER = "gantry-bench-reader"
RESUME_PATIENCE_S = 30.0
READ_PATIENCE_S = 600.0
LOOK_S = 0.02
ROUND = 100  # masters of one group
SOME = 3  # lost keys that are named
TIMES_KEPT = 100_000  # of acknowledgements; the longest gap of all is never forgotten


class Account:
    """The messages that were acknowledged, and those that were read."""

    def __init__(self) -> None:
        self.acknowledged: set[str] = set()
        self.times = AckTimes(keep=TIMES_KEPT)
        self.read: Counter[str] = Counter()

    def acknowledge(self, key: str) -> None:
        """A producer was told that this message is safe."""
        self.acknowledged.add(key)
        self.times.add(time.monotonic())

    async def receive(self, received: ReceivedRecord) -> None:
        """A reader got this message."""
        self.read[received.key] += 1

    @property
    def lost(self) -> set[str]:
        """Acknowledged messages that nobody can read."""
        return {key for key in self.acknowledged if not self.read[key]}

    @property
    def duplicated(self) -> int:
        """Copies beyond the first, whether or not the message was acknowledged."""
        return sum(count - 1 for count in self.read.values())


class Round(msgspec.Struct, frozen=True):
    """One group's masters, and what became of what it had acknowledged."""

    kills: int
    acknowledged: int
    lost_answers: int
    duplicated: int
    gap_ms: float


class Rounds:
    """The finished rounds; with a file they outlive this process, so that the next goes on.

    Args:
        path: a line for each; None: nothing is kept.

    Raises:
        GantryError: the file holds something else.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.all: list[Round] = []
        if path is not None and path.exists():
            try:
                self.all = _ROUNDS.decode_lines(path.read_bytes())
            except msgspec.MsgspecError as error:
                raise GantryError(f"{path} holds no rounds of kills: {error}.") from error

    def add(self, one: Round) -> None:
        """A round is over."""
        self.all.append(one)
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(one) + b"\n")

    def close(self) -> dict[str, float]:
        """The figures of all rounds; the next measurement begins anew."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        return {
            "kills": float(sum(item.kills for item in self.all)),
            "acknowledged": float(sum(item.acknowledged for item in self.all)),
            "lost": 0.0,
            "lost_answers": float(sum(item.lost_answers for item in self.all)),
            "duplicated": float(sum(item.duplicated for item in self.all)),
            "gap_ms": max(item.gap_ms for item in self.all),
        }


_ROUNDS = msgspec.json.Decoder(Round)


async def measure(stage: BenchStage) -> Runs:
    """Kill masters, a hundred of each group; one figure for all of them.

    Raises:
        GantryError: a group did not come back, its log could not be read to its end, or an
            acknowledged message is not in it.
    """
    stage.own()
    rounds, count = Rounds(stage.wish.rounds), stage.steps
    done = sum(item.kills for item in rounds.all)
    for _ in range(min(done, count)):
        stage.advance()
    while done < count:
        async with stage.group(3) as (members, client):
            one = await _round(members, client, min(ROUND, count - done), stage.advance)
        rounds.add(one)
        done += one.kills
        stage.say(f"{done} masters killed, longest gap {max(r.gap_ms for r in rounds.all):.0f} ms")
    return [rounds.close()]


async def _round(
    members: Members, client: Session, count: int, advance: Callable[[], None]
) -> Round:
    account = Account()
    gaps = []
    await make_topic(client, TOPIC)
    async with Senders(client, TOPIC, account.acknowledge) as senders:
        await senders.flowing()
        for _ in range(count):
            gaps.append(await _one(members, senders, account.times))
            advance()
        await members.until_settled()
    await _read_back(client, account)
    if account.lost:
        some = ", ".join(sorted(account.lost)[:SOME])
        raise GantryError(
            f"{len(account.lost)} of {len(account.acknowledged)} acknowledged messages are lost, "
            f"among them {some}."
        )
    return Round(
        kills=count,
        acknowledged=len(account.acknowledged),
        lost_answers=senders.lost_answers,
        duplicated=account.duplicated,
        gap_ms=max(gaps),
    )


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
