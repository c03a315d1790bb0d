"""A person who finds controllers with damaged logs, and starts them once with ``--rejoin``.

A byte of a log rots while its controller is down. It does not start then, however often it is
tried, and says so. With ``--rejoin`` the files are put aside as they are, and the others fill it
until it counts as a voter again. A sound log is never put aside.

One at a time, as the page says: the person looks a second after the start, and goes by what the
leader says, which must be so.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from gantry_controller.node.rejoin import RejoinRefused
from gantry_protocol.errors import CorruptionError
from sim.kernel.world import Violation
from sim.product.cluster import http
from sim.product.workload import Clients

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from sim.product.cluster import Cluster, Node

WITHIN_S = 2.0
LOOKS_AFTER_S = 1.0
ASIDE = "raft.damaged-*"


class Damages(Clients):
    """See the module."""

    unsettled = "a controller does not come back"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._put_aside: dict[Path, tuple[int, int]] = {}  # damaged files, and the byte that rotted

    def start(self) -> None:
        """Begin."""
        self._cluster.client("damages", self._damage).boot()

    def judge(self) -> None:
        """Raises Violation: something that was put aside has changed, or is gone."""
        super().judge()
        for path, (at, byte) in self._put_aside.items():
            if not path.is_file() or path.read_bytes()[at : at + 1] != bytes([byte]):
                raise Violation(f"{path} was put aside, and is not what it was")

    async def _damage(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        while not self._stops:
            await asyncio.sleep(rng.random() * 2.0)
            victim = rng.choice(self._cluster.controllers)
            if not await self._all_count(rng):
                continue
            if rng.random() < 0.3:
                await self._must_be_refused(victim)
            else:
                await self._one(victim, rng)
        self._busy -= 1

    async def _one(self, victim: Node, rng: Random) -> None:
        """From the damage until it counts."""
        victim.kill()
        victim.machine.restore_power()
        folder = victim.machine.directory / "data" / "raft"
        path, at, byte = _flip(folder, rng)
        victim.machine.volume.write_back(path)  # what rots is on the disk, not above it
        await self._until_it_ends(victim, CorruptionError)
        before = set(folder.parent.glob(ASIDE))
        self._cluster.rejoins.add(victim.name)
        while not (set(folder.parent.glob(ASIDE)) - before):
            victim.boot()
            await asyncio.sleep(0.1)
        kept = (set(folder.parent.glob(ASIDE)) - before).pop()
        self._put_aside[kept / path.name] = (at, byte)
        self._cluster.rejoins.discard(victim.name)
        self._cluster.world.count("put-aside")
        await asyncio.sleep(LOOKS_AFTER_S)
        while not (await self._all_count(rng) and self._runs(victim)):
            await asyncio.sleep(0.1)
        if not self._cluster.controller_of(victim).node.is_voter:
            raise Violation(f"{victim.name} is said to count, and does not")
        self._cluster.world.count("rejoined")

    async def _must_be_refused(self, victim: Node) -> None:
        """A sound log, and the flag all the same."""
        before = set((victim.machine.directory / "data").glob(ASIDE))
        victim.kill()
        self._cluster.rejoins.add(victim.name)
        await self._until_it_ends(victim, RejoinRefused)
        self._cluster.rejoins.discard(victim.name)
        if set((victim.machine.directory / "data").glob(ASIDE)) != before:
            raise Violation(f"a sound log of {victim.name} is put aside")
        self._cluster.world.count("rejoin-refused")

    async def _until_it_ends(self, victim: Node, how: type[Exception]) -> None:
        """Its machine starts it again and again; once it must end so, and it never runs well."""
        seen = len(victim.exits)
        while not any(isinstance(one, how) for one in victim.exits[seen:]):
            victim.boot()
            await asyncio.sleep(0.1)
            if self._runs(victim):
                raise Violation(f"{victim.name} runs, and should end with {how.__name__}")

    def _runs(self, victim: Node) -> bool:
        controller = self._cluster.controller_of(victim)
        return controller is not None and bool(controller.node._running)

    async def _all_count(self, rng: Random) -> bool:
        """Whether the leader says that every controller is a voter that counts."""
        address = rng.choice(self._cluster.controllers).machine.address
        try:
            async with asyncio.timeout(WITHIN_S):
                status, text = await http(address, "GET", "/v1/quorum")
        except (OSError, EOFError):  # TimeoutError is one
            return False
        if status != 200:
            return False
        view = json.loads(text)
        peers = view["peers"]
        others = [one for one in peers if one["id"] != view["leaderId"]]
        return view["nodeId"] == view["leaderId"] and all(
            one["role"] == "voter" and one["counted"] and one["matchIndex"] for one in others
        )


def _flip(folder: Path, rng: Random) -> tuple[Path, int, int]:
    """Flip a bit in the first half of the oldest file of a log; the file, the place, the byte."""
    path = min(folder.glob("wal-*"))
    data = bytearray(path.read_bytes())
    written = len(data.rstrip(b"\0"))
    at = rng.randint(written // 4, written // 2)
    data[at] ^= 16
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([data[at]]))
    return path, at, data[at]
