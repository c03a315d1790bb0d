"""An administrator of the quorum: declares groups one after the other, and remembers the answers.

What was answered 200 is in the state of every controller from then on, in the order of the answers;
what was not may be. Reads are linearizable: a group that was declared before a read began is in it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sim.kernel.world import Violation
from sim.product.cluster import CLUSTER, ask_leader
from sim.product.workload import Rests

if TYPE_CHECKING:
    from sim.product.cluster import Cluster, Node
    from sim.product.watch import Watch

CLIENTS = 10
BURST = 8
PATIENCE_S = 8.0  # an answer that comes late must be right, too


class Wishes:
    """See the module.

    Attributes:
        declared: names of groups, and how many members each was last declared to have.
    """

    def __init__(self, cluster: Cluster, watch: Watch) -> None:
        self.declared: dict[str, int] = {}
        self._cluster = cluster
        self._watch = watch
        self._stops = False

    def start(self) -> None:
        """Begin."""
        for number in range(CLIENTS):
            self._cluster.client(f"administrator-{number}", self._declare).boot()

    def stop(self) -> None:
        """Declare nothing more."""
        self._stops = True

    async def _declare(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"wishes/{node.name}")
        turn, rests = 0, Rests(self._cluster, node.name, BURST)
        while not self._stops:
            turn += 1
            await rests.after_turn()
            await asyncio.sleep(rng.random() * 0.02)
            name, replicas = f"{node.name}-{turn}", rng.randint(1, 5)
            wish = {"uid": name, "replicas": replicas, "minInSyncReplicas": 1}
            address = rng.choice(self._cluster.controllers).machine.address
            path = f"/v1/groups/{CLUSTER}/{name}"
            if await self._ask(address, "PUT", path, wish) is None:
                continue
            self.declared[name] = replicas
            self._watch.acks += 1
            if rng.random() < 0.7:
                continue
            other = rng.choice(self._cluster.controllers).machine.address
            found = await self._ask(other, "GET", path)
            if found == 404:
                raise Violation(f"{other} does not know {name}, which was declared before")

    async def _ask(self, address: str, method: str, path: str, body: object = None) -> int | None:
        """The status of an answer that means something; None for "ask again"."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                status, _ = await ask_leader(address, method, path, body)
        except (OSError, EOFError):  # TimeoutError is one
            await asyncio.sleep(0.05)
            return None
        if status in (200, 404):
            return status
        await asyncio.sleep(0.02)
        return None

    def judge(self) -> None:
        """Everything that was declared is known to every controller.

        Raises:
            Violation: something is missing.
        """
        for node in self._cluster.controllers:
            controller = self._cluster.controller_of(node)
            if controller is None:
                raise Violation(f"{node.name} does not run")
            known = {group.name: group for group in controller.machine.state.groups.values()}
            for name, replicas in self.declared.items():
                group = known.get(name)
                if group is None or group.declaration.replicas != replicas:
                    raise Violation(f"{node.name} does not hold {name} as it was declared: {group}")
