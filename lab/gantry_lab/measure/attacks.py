"""Rates of a producer and a consumer beside each attack: `make attacks`.

A group of three brokers and a controller; the victim and the attack are processes of their own.
All share this machine, so the victim is measured once more beside a neutral process that takes as
much of the processors as the attack did and does nothing. Prints a line of JSON for each attack.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import aiohttp
from gantry_cli.client.session import session

from gantry_lab.bench.broker.throughput import fill
from gantry_lab.bench.members import Members
from gantry_lab.bench.senders import make_topic
from gantry_lab.measure.attack import ATTACKS

TOPIC = "attacked"
FILL_BYTES = 64 << 20
SETTLE_S = 1.0
ROUNDS = 2
NEUTRAL = """
import sys, time
share, end = float(sys.argv[1]), time.monotonic() + float(sys.argv[2])
while (now := time.monotonic()) < end:
    while time.monotonic() < now + 0.01 * share: pass
    time.sleep(0.01 * (1 - share))
"""
_LAG = re.compile(r"^gantry_broker_loop_lag_seconds (\S+)", re.MULTILINE)
_RSS = re.compile(r"^VmHWM:\s+(\d+)", re.MULTILINE)


class Range:
    """The group, its victim, and who attacks it."""

    def __init__(self, members: Members, victim: Process, address: str, seconds: float) -> None:
        self.members = members
        self.victim = victim
        self.address = address
        self.seconds = seconds

    async def victims(self) -> dict[str, object]:
        """The work of the victim from now on."""
        assert self.victim.stdin is not None
        assert self.victim.stdout is not None
        self.victim.stdin.write(b"%f\n" % self.seconds)
        return dict(json.loads(await self.victim.stdout.readline()))

    async def beside(self, *command: str) -> tuple[dict[str, object], bytes]:
        """The victim's work while `command` runs, and that command's word."""
        other = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=PIPE)
        try:
            await asyncio.sleep(SETTLE_S)
            seen = await self.victims()
            said, _ = await other.communicate()
        finally:
            if other.returncode is None:
                other.kill()
                await other.wait()
        return seen, said

    def address_of(self, port: str) -> str:
        """Of one of ``PORTS``."""
        if port == "clients":
            return self.address
        if port in ("ha", "http"):
            return f"127.0.0.1:{self.port(port)}"
        kind = {"control": "remoting", "names": "nameserver", "admin": "http"}.get(port, port)
        return self.members.controller(kind)

    def port(self, name: str) -> str:
        """One that the master has chosen by itself."""
        log = (self.members.data(self.members.master)).with_suffix(".log").read_text("utf-8")
        return str(re.findall(rf"\b{name}=(\d+)", log)[-1])

    async def epoch(self) -> int:
        group = await self.members.group()
        return -1 if group is None else group.master_epoch

    async def lag_s(self) -> float:
        """The longest time for which the master's event loop served nobody, lately."""
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http,
                http.get(f"http://127.0.0.1:{self.port('http')}/metrics") as answer,
            ):
                found = _LAG.search(await answer.text())
        except (aiohttp.ClientError, TimeoutError):
            return 20.0
        return 0.0 if found is None else float(found[1])

    def memory_mb(self) -> int:
        text = Path(f"/proc/{self.members.pid(self.members.master)}/status").read_text()
        found = _RSS.search(text)
        return 0 if found is None else int(found[1]) // 1024

    async def attacked(self, name: str) -> dict[str, object]:
        """The figures of one attack; it and the neutral process take turns."""
        lasts = str(self.seconds + SETTLE_S + 0.5)
        to = self.address_of(ATTACKS[name].port)
        attack = ("-m", "gantry_lab.measure.attack", name, to, TOPIC, lasts)
        found: dict[str, object] = {"attack": name}
        beside, alone, elections, lags = [], [], 0, []
        for _ in range(ROUNDS):
            epoch = await self.epoch()
            seen, said = await self.beside(*attack)
            done = json.loads(said or b"{}")
            lags.append(await self.lag_s())
            await asyncio.sleep(3 * SETTLE_S)
            elections += await self.epoch() - epoch
            share = min(float(done.get("cpu", 1)), 0.99)
            neutral, _ = await self.beside("-c", NEUTRAL, str(share), lasts)
            beside.append(seen)
            alone.append(neutral)
        rates = [
            sum(float(str(item.get("sends_per_s", 0))) for item in them) for them in (beside, alone)
        ]
        found["kept"] = round(rates[0] / rates[1], 2) if rates[1] else None
        found |= {"elections": elections, "lag_s": max(lags), "master_mb": self.memory_mb()}
        return found | {"victim": beside, "neutral": alone, "did": done}


async def measure(names: list[str], seconds: float, replicas: int) -> None:
    """Every attack of `names`, each on a fresh group."""
    for name in names:
        with tempfile.TemporaryDirectory() as made:
            async with (
                Members(Path(made), replicas=replicas) as members,
                session(members.name_servers) as client,
            ):
                await members.start()
                for topic in (TOPIC, f"{TOPIC}-victim"):
                    await make_topic(client, topic)
                await fill(client, TOPIC, FILL_BYTES, lambda _: None)
                queue = (await client.routes.fetch(f"{TOPIC}-victim")).writable[0]
                victim = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "gantry_lab.measure.attack_victim"),
                    *(queue.address, f"{TOPIC}-victim", queue.broker_name),
                    stdin=PIPE,
                    stdout=PIPE,
                )
                try:
                    at = Range(members, victim, queue.address, seconds)
                    await at.victims()
                    print(json.dumps(await at.attacked(name)), flush=True)
                finally:
                    victim.kill()
                    await victim.wait()


def main(seconds: str = "5", replicas: str = "3", *names: str) -> None:
    """See the module; without names, every attack."""
    asyncio.run(measure(list(names) or list(ATTACKS), float(seconds), int(replicas)))


if __name__ == "__main__":
    main(*sys.argv[1:])
