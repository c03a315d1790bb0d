"""Unmodified Java push consumers of 5.3.3 divide queues alike, whichever masters hear them.

Two members of a consumer group consume from two broker groups; one of them loses its way to one
master and keeps the other. Both masters must go on naming both members (RIP-18), or the members
divide the queues by two lists: a queue has two owners, or none. Everything is as clients come,
except that they compare the division with a list of a master picked at random every two seconds
instead of twenty, so that ten seconds are enough for a wrong list to be asked for.

What happens is printed. `make interop` runs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from support import java
from support.broker_cluster import eventually
from support.two_groups import FAR, NEAR, TwoGroups

TOPIC, GROUP = "shared", "interop-members"
QUEUES = {NEAR: 2, FAR: 4}
"""In halves by name, as clients divide them, each member has some of FAR's, and one of NEAR's."""
PLACES = frozenset(f"{name}:{number}" for name, count in QUEUES.items() for number in range(count))
REBALANCE_MS = 2_000
PAUSE_MS = 40  # between two messages
SETTLED_S = 5.0  # a division that has lasted so long is the one
CALM_S = 5.0  # from the cut, or from when the master has noticed, until it is watched
WATCHED_S = 10.0
WITHIN_S = 300.0  # whatever is waited for

Division: TypeAlias = tuple[frozenset[str], frozenset[str]]

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(bool(java.MISSING), reason=f"{' and '.join(java.MISSING)} not installed"),
    pytest.mark.timeout(900),
]


class JavaClient:
    """One Java process, and what it has said so far.

    Attributes:
        client_id: of a member; empty until it has started.
        holds: when, and the queues that it held from then on; a change each.
        got: messages that it consumed, by key, and how many times.
        got_from: the same, by broker group.
        acknowledged: keys of the messages that it sent.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.client_id = ""
        self.holds: list[tuple[float, frozenset[str]]] = []
        self.got = Counter[str]()
        self.got_from = Counter[str]()
        self.acknowledged: set[str] = set()
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            match line.decode().split():
                case ["MEMBER", client_id]:
                    self.client_id = client_id
                case ["HOLDS", at_ms, *places]:
                    held = frozenset(places[0].split(",") if places else ())
                    if not self.holds or self.holds[-1][1] != held:
                        self.holds.append((int(at_ms) / 1000, held))
                case ["GOT", key, place, _]:
                    self.got[key] += 1
                    self.got_from[place.partition(":")[0]] += 1
                case ["ACK", key, _, _, _]:
                    self.acknowledged.add(key)


@contextlib.asynccontextmanager
async def started(home: Path, mode: str, *args: object) -> AsyncIterator[JavaClient]:
    process = await asyncio.create_subprocess_exec(
        *("nice", "-n", "5", "java", "-cp", await asyncio.to_thread(java.clients)),
        *(f"-Duser.home={home}", "-Xmx64m", *java.SHORT_LIVED),
        f"-Drocketmq.client.rebalance.waitInterval={REBALANCE_MS}",
        *("dev.gantry.interop.Probe", mode, *map(str, args)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    client = JavaClient(process)
    try:
        yield client
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await client.reading


def divisions(a: JavaClient, b: JavaClient, since_s: float) -> list[tuple[float, Division]]:
    """How they divided the queues at ``since_s`` of the monotonic clock, and each change since."""
    changes = sorted(
        [(at, 0, held) for at, held in a.holds] + [(at, 1, held) for at, held in b.holds]
    )
    now = [frozenset[str](), frozenset[str]()]
    found: list[tuple[float, Division]] = []
    for at, who, held in changes:
        now[who] = held
        if at <= since_s:
            found.clear()
        found.append((at, (now[0], now[1])))
    return found


def is_right(division: Division) -> bool:
    """Whether each queue has exactly one owner."""
    return division[0] | division[1] == PLACES and not division[0] & division[1]


def story(found: list[tuple[float, Division]], since_s: float) -> str:
    """A line for each division, with the queues that have two owners or none."""
    return "\n".join(
        f"  {at - since_s:+7.1f} s: A {','.join(sorted(a))} | B {','.join(sorted(b))}"
        f" | two owners: {','.join(sorted(a & b)) or '-'}"
        f" | none: {','.join(sorted(PLACES - a - b)) or '-'}"
        for at, (a, b) in found
    )


@pytest.mark.parametrize("is_silent", [False, True], ids=["refused", "silent"])
async def test_who_loses_one_of_two_masters_keeps_its_queues(
    tmp_path: Path, record_property: Callable[[str, object], None], is_silent: bool
) -> None:
    async with TwoGroups(tmp_path) as cluster:
        await cluster.create_topic(TOPIC, QUEUES)
        async with (
            started(tmp_path, "member", cluster.name_server, TOPIC, GROUP) as a,
            started(tmp_path, "member", cluster.names.address, TOPIC, GROUP) as b,
        ):
            await eventually(lambda: is_settled(a, b), "they divide the queues", WITHIN_S)
            assert {one.client_id for one in (a, b)} == await cluster.reported(FAR, GROUP)
            settled_s = time.monotonic()
            async with started(tmp_path, "soak", cluster.name_server, TOPIC, PAUSE_MS) as producer:
                await eventually(lambda: is_consuming(a, b), "both consume from both", WITHIN_S)
                cut_s = time.monotonic()
                if is_silent:
                    cluster.silence_way()
                else:
                    await cluster.close_way()
                await forgotten(cluster, b)
                forgotten_s = time.monotonic()
                await asyncio.sleep(CALM_S)
                before, far = a.got.total(), b.got_from[FAR]
                await asyncio.sleep(WATCHED_S)
                assert a.got.total() > before, "nothing is sent or consumed any more"
                assert b.got_from[FAR] == far, "the way is not cut"
                watched_s = time.monotonic()
                if is_silent:
                    cluster.mend_way()
                else:
                    await cluster.open_way()
                await eventually(lambda: b.got_from[FAR] > far, "B is back", WITHIN_S)
                producer.process.send_signal(signal.SIGTERM)
                await producer.reading
            everything = producer.acknowledged
            twice = {key for key in everything if (a.got + b.got)[key] > 1}
            found = divisions(a, b, settled_s)
            print(
                f"\nJAVA the master noticed after {forgotten_s - cut_s:.1f} s, mended after"
                f" {watched_s - cut_s:.1f} s; {len(everything)} acknowledged, {len(twice)} consumed"
                f" twice so far\n{story(found, cut_s)}"
            )
            assert [division for _, division in found] == [found[0][1]], "queues have moved"
            await eventually(
                lambda: everything <= a.got.keys() | b.got.keys(), "all are consumed", WITHIN_S
            )
            await asyncio.sleep(SETTLED_S)
            found = divisions(a, b, settled_s)
            assert [division for _, division in found] == [found[0][1]], "queues have moved"
    twice = {key for key, count in (a.got + b.got).items() if count > 1}
    print(f"JAVA all consumed, {len(twice)} more than once")
    record_property("java_twice", len(twice))
    assert not twice


def is_settled(a: JavaClient, b: JavaClient) -> bool:
    now_s = time.monotonic()
    found = divisions(a, b, now_s)
    at, division = found[-1] if found else (now_s, (frozenset[str](), frozenset[str]()))
    return all(division) and is_right(division) and now_s - at > SETTLED_S


def is_consuming(a: JavaClient, b: JavaClient) -> bool:
    sources = sum((a.got_from, b.got_from), Counter[str]())
    return min(sources[NEAR], a.got_from[FAR], b.got_from[FAR]) > 50


async def forgotten(cluster: TwoGroups, client: JavaClient) -> None:
    """Until the master at the end of the way hears the client no more."""
    async with asyncio.timeout(WITHIN_S):
        while client.client_id in await cluster.reported(FAR, GROUP):
            await asyncio.sleep(0.5)
