"""Kills of our proxies and of the master while clients that speak gRPC consume.

Two proxies stand before a group; an official Java client sends, one consumes as a push consumer,
and one as a simple consumer that leaves each tenth message unacknowledged at first. The proxy that
most clients are connected to is killed, or the master, and the next kill waits until everything
flows again. In the end all that was acknowledged must have been handed out, all that was left must
have come again, and the brokers must count nothing as not done.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from gantry_cli.client import brokers
from gantry_cli.client.gaps import AckTimes
from gantry_cli.client.progress import progress
from gantry_cli.client.session import Session
from gantry_protocol.errors import GantryError

from gantry_lab.bench.members import Members
from gantry_lab.measure import grpc_account as account
from gantry_lab.measure.grpc_account import Producing, Taking
from gantry_lab.measure.grpc_programs import JavaProcess, Proxies, client

TOPIC = "gantry-bench-kills"
PUSHED, TAKEN = "bench-push", "bench-simple"
RESUME_PATIENCE_S = 120.0
STILL_S = 180.0  # without news the rest counts as lost: thrice the time of a message in flight
LOOK_S = 0.05
REST_PATIENCE_S = 900.0
REST_LOOK_S = 1.0
PAUSE_MS = 20  # of the producer
FLOWING = 5  # messages after which a stream goes on again
PERIOD_S = (0.2, 1.2)  # between a whole group and the next kill
SEED = 7


class Consumption:
    """A producer, a push consumer and a simple consumer; proxies and masters die under them.

    Args:
        members: the group.
        proxies: two or more.
        client: asks the group how much is not done.
        directory: for the programs; it exists.

    Attributes:
        gaps: by metric, the longest times in ms without a message after each kill.
    """

    def __init__(
        self, members: Members, proxies: Proxies, client: Session, directory: Path
    ) -> None:
        self.producing = Producing()
        self.consumers = {
            PUSHED: Taking(knows_answers=False),
            TAKEN: Taking(knows_answers=True),
        }
        self._members = members
        self._proxies = proxies
        self._client = client
        self._directory = directory
        self._times = {"produce": AckTimes(), "push": AckTimes(), "careless": AckTimes()}
        self._programs: dict[str, JavaProcess] = {}
        self._random = random.Random(SEED)
        self.gaps: dict[str, list[float]] = defaultdict(list)

    async def run(self, kills: int, step: Callable[[], None]) -> int:
        """Kill so often, and wait for the rest.

        Args:
            kills: of a proxy and the master in turn.
            step: called after each.

        Returns:
            Messages of both consumer groups that the brokers do not count as done in the end.

        Raises:
            GantryError: something did not go on after a kill, or a process ended by itself.
        """
        notes = {
            "push": (self.consumers[PUSHED].note, PUSHED),
            "careless": (self.consumers[TAKEN].note, TAKEN),
            "produce": (self.producing.note, PAUSE_MS),
        }
        async with AsyncExitStack() as stack:
            for role, (note, last) in notes.items():
                program = client(
                    self._directory / role,
                    self._hears(role, note),
                    *(role, self._proxies.endpoints, TOPIC, last),
                )
                self._programs[role] = await stack.enter_async_context(program)
            await self._flows("at first")
            for victim in account.victims(kills):
                await self._kill(victim)
                step()
            producer = self._programs.pop("produce")
            await producer.end()
            return await self._rest()

    def figures(self) -> dict[str, int]:
        """The account of all messages so far, by metric."""
        acknowledged, consumers = self.producing.acknowledged, self.consumers.values()
        return {
            "acknowledged": len(acknowledged),
            "refused": self.producing.refused,
            "lost": sum(one.lost(acknowledged) for one in consumers),
            "left": sum(one.left for one in consumers),
            "not_again": sum(len(one.owed) for one in consumers),
            "again": sum(one.again for one in consumers),
            "after_done": self.consumers[TAKEN].after_done,
        }

    def _hears(self, role: str, note: Callable[[str, str], bool]) -> Callable[[list[str]], None]:
        times = self._times[role]

        def heard(words: list[str]) -> None:
            if len(words) > 1 and note(words[0], words[1]):
                times.add(time.monotonic())

        return heard

    async def _kill(self, victim: account.Victim) -> None:
        """Kill it, start it again, and wait until everything flows."""
        await self._members.until_settled()
        await asyncio.sleep(self._random.uniform(*PERIOD_S))
        killed_s = time.monotonic()
        async with asyncio.timeout(RESUME_PATIENCE_S):
            if victim == "proxy":
                number = await self._proxies.busiest()
                killed_s = time.monotonic()
                await self._proxies.kill(number)
                await self._proxies.start(number)
            else:
                epoch = await self._members.kill_master()
                killed_s = self._members.killed_s
                while (await self._members.start()).master_epoch == epoch:
                    await asyncio.sleep(LOOK_S)  # nobody has noticed yet that it is gone
        await self._flows(f"after a kill of a {victim}")
        for role, metric in (("push", f"{victim}_gap_ms"), ("produce", f"{victim}_write_gap_ms")):
            gap = self._times[role].longest(killed_s)
            assert gap is not None, "it flowed before and after"
            self.gaps[metric].append(gap.ms)

    async def _flows(self, when: str) -> None:
        """Until every program goes on."""
        wanted = {role: len(times) + FLOWING for role, times in self._times.items()}
        deadline_s = time.monotonic() + RESUME_PATIENCE_S
        while behind := [role for role, count in wanted.items() if len(self._times[role]) < count]:
            self._check()
            if time.monotonic() > deadline_s:
                still = " and ".join(behind)
                raise GantryError(f"{still}: nothing in {RESUME_PATIENCE_S:.0f} s {when}.")
            await asyncio.sleep(LOOK_S)

    async def _rest(self) -> int:
        """Until all is consumed and done, or nothing happens any more."""
        acknowledged, seen = self.producing.acknowledged, -1
        begun_s = moved_s = time.monotonic()
        while True:
            lag = await self._lag()
            waits = [one.waits(acknowledged) for one in self.consumers.values()]
            if not lag and not any(waits):
                return 0
            heard = sum(len(times) for times in self._times.values()) - lag
            if heard != seen:
                seen, moved_s = heard, time.monotonic()
            now_s = time.monotonic()
            if now_s > moved_s + STILL_S or now_s > begun_s + REST_PATIENCE_S:
                return lag
            await asyncio.sleep(REST_LOOK_S)
            self._check()

    async def _lag(self) -> int:
        """Messages of both consumer groups that brokers count as not done."""
        found = await brokers.broker_groups(self._client.routes)
        rows = [await progress(self._client, found, group, TOPIC) for group in (PUSHED, TAKEN)]
        return sum(row.lag for of_group in rows for row in of_group)

    def _check(self) -> None:
        self._members.check()
        self._proxies.check()
        for program in self._programs.values():
            program.check()
