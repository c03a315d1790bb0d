"""An administrator who replaces controllers, one after the other, while they fail.

A spare one joins with an empty disk and a number of its own, learns, is let vote; then some other,
perhaps the leader, is taken out, goes on running for a while, and becomes a spare one. Each step is
asked for until it is answered as done. What was answered is the membership that every voter has at
the end, and everything that was declared meanwhile is known to all of them.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import gantry_controller.server
from gantry_controller.settings import ControllerSettings
from sim.kernel.world import Violation
from sim.product.cluster import Cluster, Node, ask_leader, supervised
from sim.product.workload import Clients

if TYPE_CHECKING:
    from random import Random

SPARES = 2
PATIENCE_S = 4.0
MEMBERS = "/v1/quorum/members"


class SeatsCluster(Cluster):
    """A quorum, and controllers that wait to be taken in.

    Attributes:
        numbers: of controllers, by name; a disk that is emptied gets another one.
        spares: who is no member.
    """

    def __init__(self, world: Any, **named: Any) -> None:
        super().__init__(world, **named)
        founders = self.controllers
        self.numbers = {node.name: number for number, node in enumerate(founders, start=1)}
        self.spares = [
            self._node(f"10.0.1.{number}", f"controller-{number - 1}", self._controller)
            for number in range(len(founders) + 1, len(founders) + 1 + SPARES)
        ]
        self._peers = ",".join(
            f"{number}={node.machine.address}" for number, node in enumerate(founders, start=1)
        )
        self._next = len(founders) + 1
        for node in self.spares:
            self.number(node)

    @property
    def nodes(self) -> list[Node]:
        return [*super().nodes, *(node for node in self.spares if node.wanted)]

    def number(self, node: Node) -> None:
        """Give a number to a controller whose disk is empty; it does not run."""
        self.numbers[node.name] = self._next
        self._next += 1
        node.wanted = False

    async def _controller(self, node: Node) -> None:
        number = self.numbers[node.name]
        is_founder = f"{number}={node.machine.address}" in self._peers.split(",")
        settings = ControllerSettings(
            name=node.name,
            node_id=number,
            peers=self._peers if is_founder else "",
            join=not is_founder,
            bind=node.machine.address,
            data_dir=node.machine.directory / "data",
            admin_token_file=self.root / "token",
            **self._key,
            **self._controller_settings,
        )
        await supervised(partial(gantry_controller.server.serve, settings))


class Seats(Clients):
    """See the module."""

    unsettled = "members cannot be changed"

    def __init__(self, cluster: SeatsCluster) -> None:
        super().__init__(cluster)

    def start(self) -> None:
        """Begin."""
        self._cluster.client("seats", self._replace).boot()

    @property
    def is_settled(self) -> bool:
        return not self._busy and self._has_one_membership()

    def judge(self) -> None:
        """Raises Violation: a member knows of other members than those that were answered."""
        super().judge()
        if not self._has_one_membership():
            raise Violation(f"the voters are {self._voters()}, asked for were {self._asked_for()}")

    def _asked_for(self) -> list[int]:
        return sorted(self._cluster.numbers[node.name] for node in self._cluster.controllers)

    def _voters(self) -> dict[str, list[int]]:
        found = {}
        for node in self._cluster.controllers:
            controller = self._cluster.controller_of(node)
            found[node.name] = [] if controller is None else list(controller.node.members.voters)
        return found

    def _has_one_membership(self) -> bool:
        return all(voters == self._asked_for() for voters in self._voters().values())

    async def _replace(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        while not self._stops:
            await asyncio.sleep(rng.random() * 2.0)
            await self._take_in(rng, rng.choice(self._cluster.spares))
            if rng.random() < 0.5:
                target = rng.choice([None, *self._asked_for(), 999])
                await self._ask(rng, "POST", "/v1/quorum/transfer", {"target": target})
            if rng.random() < 0.3:
                await self._ask(rng, "PUT", "/v1/quorum/lease", {"enabled": rng.random() < 0.5})
            await self._take_out(rng, rng.choice(self._cluster.controllers))
            self._cluster.world.count("replaced")
        self._busy -= 1

    async def _take_in(self, rng: Random, spare: Node) -> None:
        number, address = self._cluster.numbers[spare.name], spare.machine.address
        spare.wanted = True
        spare.boot()
        wish = {"node": number, "address": address, "learner": True}
        await self._insist(rng, "POST", MEMBERS, wish, "is a member already")
        await self._insist(rng, "POST", f"{MEMBERS}/{number}/promote", None, "is not a learner")
        self._cluster.spares.remove(spare)
        self._cluster.controllers.append(spare)

    async def _take_out(self, rng: Random, victim: Node) -> None:
        cluster = self._cluster
        number = cluster.numbers[victim.name]
        await self._insist(rng, "DELETE", f"{MEMBERS}/{number}", None, "is not a member")
        cluster.controllers.remove(victim)
        cluster.spares.append(victim)
        await asyncio.sleep(rng.choice([0.0, 0.5, 2.0]))  # it may run on, and harm nobody
        victim.kill()
        victim.machine.restore_power()
        victim.machine.volume.wipe()
        cluster.number(victim)

    async def _insist(self, rng: Random, method: str, path: str, body: object, done: str) -> None:
        """Ask until it is answered 200, or that it is so already."""
        while True:
            status, text = await self._ask(rng, method, path, body)
            if status == 200 or (status == 409 and done in text):
                return
            await asyncio.sleep(0.1)

    async def _ask(self, rng: Random, method: str, path: str, body: object) -> tuple[int, str]:
        """The answer of somebody. Raises Violation: it is none that this may have."""
        address = rng.choice(self._cluster.controllers).machine.address
        try:
            async with asyncio.timeout(PATIENCE_S):
                status, data = await ask_leader(address, method, path, body)
        except (OSError, EOFError):  # TimeoutError is one
            return 0, ""
        if status not in (200, 409, 421, 429, 503):
            raise Violation(f"{method} {path} is answered {status}: {data[:300]!r}")
        return status, "" if status == 200 else str(json.loads(data).get("message"))
