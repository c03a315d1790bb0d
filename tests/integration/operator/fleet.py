"""A fleet of broker groups and its operator: what a restart costs, one changed key, standing still.

The operator is a process of its own, with the real caches, queue and workers; the API server is
ours, pods are objects that become Ready at once, and the quorum is a stand-in that answers from
them. So what is measured is the operator, and the API server's share is in every time. It makes the
first fifty groups; all others are copies of the first (`fleet_copies`), about which an operator
that starts has nothing to write. What is measured of memory and times is this second operator.

    make bench-operator              5,000 groups
    make bench-operator GROUPS=300   a few minutes

It prints one line of JSON, and what it does meanwhile to standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import platform
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from unittest import mock

import aiohttp
from gantry_cli.progress import estimated
from gantry_lab.bench.ports import free_ports
from gantry_operator.api.kinds import BROKER_GROUP, STATEFULSET
from gantry_operator.quorums import directory
from gantry_operator.server import serve
from gantry_operator.settings import OperatorSettings
from gantry_protocol.admin_client.quorum import Endpoint
from gantry_protocol.process import runtime
from integration.operator.fleet_copies import HOUSEKEEPING, Founder
from integration.operator.operator_world import ROOT, World
from integration.operator.quorum_double import FakeQuorum
from support.pretend_cluster import PretendCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from gantry_local.apiserver.store import Event
    from gantry_protocol.member_tls.asking import Trust

BORN = 50  # groups that an operator makes; others are copies of the first
KEYS = 20  # that are changed, one after the other
STILL_S = 10.0
LOOK_S = 0.05
QUIET_S = 2.0
BIRTH_S, COPY_S, START_S = 0.3, 0.05, 0.05  # that a group takes, about
LEAST_S, PATIENCE = 120.0, 20.0  # and times as long as it takes, at most
KEY_S = 600.0
IMAGE = "gantry:test"
SPINS = (
    "gantry_operator_repeated_reconciles_total",
    "gantry_operator_reconciles_without_change_total",
)


class Fleet(World):
    """Many groups of one quorum, and what is written about them."""

    def __init__(self, cluster: PretendCluster, quorum: FakeQuorum, kubeconfig: Path) -> None:
        super().__init__(cluster, quorum, kubeconfig)
        self.writes = 0
        self.ready: set[str] = set()
        self.templates: dict[str, float] = {}  # when a StatefulSet was last changed
        self.heard_s = 0.0  # when anything was
        cluster.registry.store.subscribe(self._note, name="fleet")

    def _note(self, event: Event) -> None:
        (_, plural), (_, name) = event.record.resource, event.record.key
        self.writes += plural not in HOUSEKEEPING
        self.heard_s = time.monotonic()
        if plural == STATEFULSET.plural:
            self.templates[name] = time.monotonic()
        elif plural == BROKER_GROUP.plural:
            (set.add if self.is_true("Ready", name) else set.discard)(self.ready, name)


class Process:
    """An operator, a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self._port = port

    async def metrics(self) -> dict[str, float]:
        """Sums over all labels but the kind; empty while it does not answer."""
        url = f"http://127.0.0.1:{self._port}/metrics"
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                text = await answer.text()
        except aiohttp.ClientError:
            return {}
        found: dict[str, float] = {}
        for line in text.splitlines():
            if line.startswith("gantry_operator_"):
                name, _, value = line.rpartition(" ")
                kind = re.search(r'kind="(\w+)"', name)
                key = name.partition("{")[0] + (f" {kind[1]}" if kind else "")
                found[key] = found.get(key, 0.0) + float(value)
        return found

    def memory_mb(self, field: str = "VmRSS") -> float:
        """The memory that it has."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        (found,) = re.findall(rf"{field}:\s+(\d+) kB", status)
        return int(found) / 1024

    def peak_mb(self) -> float:
        """The most memory that it has had."""
        return self.memory_mb("VmHWM")

    def cpu_s(self) -> float:
        """Processor seconds until now."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii")
        ticks = fields.rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


@contextlib.asynccontextmanager
async def operator(world: World) -> AsyncIterator[Process]:
    """A process with an operator in it, which is told to end afterwards."""
    (port,) = free_ports(1)
    facts = (str(world.kubeconfig), str(world.quorum.port), str(port))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __spec__.name, "serve", *facts, stdin=asyncio.subprocess.PIPE
    )
    try:
        yield Process(process, port)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


def run_operator(kubeconfig: str, quorum_port: int, http_port: int) -> NoReturn:
    """The operator's process; every controller is the stand-in."""

    def endpoint(pod: str, _host: str, _port: int, trust: Trust | None) -> Endpoint:
        return Endpoint(pod, "127.0.0.1", quorum_port, trust)

    async def run(stop: asyncio.Event) -> None:
        serving = asyncio.create_task(serve(settings, stop))
        await asyncio.to_thread(sys.stdin.read)  # until who measures has had enough, or has ended
        stop.set()
        await serving

    settings = OperatorSettings(kubeconfig=Path(kubeconfig), http_port=http_port, image=IMAGE)
    with mock.patch.object(directory, "Endpoint", endpoint):
        raise SystemExit(runtime.run(run))


async def measure(folder: Path, groups: int) -> dict[str, Any]:
    """The figures of a fleet."""
    window, born, keys = 40 * groups, min(BORN, groups), min(KEYS, groups)
    async with PretendCluster(window=window) as cluster, FakeQuorum(cluster) as quorum:
        cluster.load(ROOT / "crds")
        world = Fleet(cluster, quorum, cluster.write_kubeconfig(folder / "kubeconfig"))
        world.example("controllergroup.yaml")
        birth_s, copy_s, start_s = born * BIRTH_S, groups * COPY_S, groups * START_S + 5 * STILL_S
        with estimated(birth_s + copy_s + start_s) as shown:
            began = time.monotonic()
            async with operator(world):
                await _born(world, born)
                shown.part("born", 1, birth_s)()
                born_s = time.monotonic() - began
                await asyncio.sleep(STILL_S)  # what its last writes brought back
            await _copied(world, range(born, groups))
            shown.part("copied", 1, copy_s)()
            restarted = await _restarted(
                world, groups, keys, shown.part("restart, and keys", 1 + keys, start_s)
            )
        return {
            "case": "operator-fleet",
            "groups": groups,
            "python": platform.python_version(),
            "born": {"groups": born, "s": round(born_s, 1)},
            **restarted,
        }


async def _born(world: Fleet, groups: int) -> None:
    async with asyncio.timeout(LEAST_S + PATIENCE * BIRTH_S * groups):
        for number in range(groups):
            world.group(name_of(number))
        while len(world.ready) < groups:
            await asyncio.sleep(LOOK_S)


async def _copied(world: Fleet, groups: range) -> None:
    """More groups, as if the operator had made them."""
    founder = Founder(world, name_of(0), IMAGE)
    gc.collect()
    gc.disable()  # nothing of a copy is garbage, and to look for some takes longer than to copy
    for number in groups:
        founder.settle(name_of(number), number)
        await asyncio.sleep(0)
    while world.heard_s > time.monotonic() - QUIET_S:  # controllers look at what is new
        await asyncio.sleep(LOOK_S)
    gc.freeze()
    gc.enable()


async def _restarted(
    world: Fleet, groups: int, keys: int, done: Callable[[], None]
) -> dict[str, Any]:
    before, began = world.writes, time.monotonic()
    async with operator(world) as process:
        async with asyncio.timeout(LEAST_S + PATIENCE * START_S * groups):
            while await _looked_at(process) < groups:
                await asyncio.sleep(LOOK_S)
        done()
        looked_s, cpu_s, peak_mb = time.monotonic() - began, process.cpu_s(), process.peak_mb()
        await asyncio.sleep(STILL_S)
        writes = world.writes - before
        still = await _still(world, process)
        seen_s = []
        for number in range(keys):
            seen_s.append(await _key(world, number * groups // keys))
            done()
        await asyncio.sleep(STILL_S)
        found = await process.metrics()
        return {
            "restart": {"s": round(looked_s, 1), "cpu_s": round(cpu_s, 1), "writes": writes},
            "standing_still": still,
            "changed_key_s": {
                "min": round(min(seen_s), 3),
                "median": round(statistics.median(seen_s), 3),
                "max": round(max(seen_s), 3),
                "runs": keys,
            },
            "memory_mb": {"restart": round(peak_mb), "peak": round(process.peak_mb())},
            "hot_loops": sum(value for key, value in found.items() if key.split()[0] in SPINS),
        }


async def _still(world: Fleet, process: Process) -> dict[str, float]:
    writes, cpu_s = world.writes, process.cpu_s()
    await asyncio.sleep(STILL_S)
    share = (process.cpu_s() - cpu_s) / STILL_S
    memory_mb = round(process.memory_mb())
    return {"writes": world.writes - writes, "processor": round(share, 3), "memory_mb": memory_mb}


async def _looked_at(process: Process) -> float:
    """Groups that were looked at since the start; 0 while others wait."""
    found = await process.metrics()
    if found.get("gantry_operator_queue_depth", 1.0):
        return 0.0
    return found.get(f"gantry_operator_reconciles_total {BROKER_GROUP.kind}", 0.0)


async def _key(world: Fleet, number: int) -> float:
    """Seconds from a changed key of a group to the StatefulSet that has it."""
    name = name_of(number)
    began = time.monotonic()
    world.patch(BROKER_GROUP, name, {"spec": {"config": {"lock_wait_s": str(number % 50 + 1)}}})
    async with asyncio.timeout(KEY_S):
        while world.templates[f"{name}-broker"] < began:
            await asyncio.sleep(0.002)
    return world.templates[f"{name}-broker"] - began


def name_of(number: int) -> str:
    """A group's."""
    return f"g{number:05}"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command")
    parser.add_argument("--groups", type=int, default=5000, help="how many (default 5000)")
    one = commands.add_parser("serve", help="an operator; for the measurement itself")
    one.add_argument("kubeconfig")
    one.add_argument("quorum_port", type=int)
    one.add_argument("http_port", type=int)
    args = parser.parse_args()
    if args.command == "serve":
        run_operator(args.kubeconfig, args.quorum_port, args.http_port)
    if args.groups < 1:
        parser.error("--groups must be 1 or more")
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(measure(Path(folder), args.groups))))


if __name__ == "__main__":
    main()
