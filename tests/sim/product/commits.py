"""Consumer groups that commit how far they have come, and ask for it.

A commit that was answered 0 is what every later query says, until the next commit: offsets never go
back by themselves, and never turn into "not found", which would make a consumer jump to the end. A
group whose commit nobody knows the outcome of is left; at the end it has one of the two.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_cli.client.session import session
from gantry_protocol.codes import RequestCode, ResponseCode
from sim.kernel.world import Violation
from sim.product.line import TOPIC, Line
from sim.product.workload import Clients, Rests

if TYPE_CHECKING:
    from sim.product.cluster import Cluster, Node

CLIENTS = 2
BURST = 10


class Commits(Clients):
    """See the module.

    Attributes:
        committed: what each group may have committed last; None is nothing.
    """

    unsettled = "offsets cannot be asked for"

    def __init__(self, cluster: Cluster) -> None:
        self.committed: dict[str, set[int | None]] = {}
        super().__init__(cluster)

    def start(self) -> None:
        """Begin."""
        for number in range(CLIENTS):
            self._cluster.client(f"commits-{number}", self._commit).boot()

    async def _commit(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        groups: list[str] = []
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            line, rests = Line(client), Rests(self._cluster, node.name, BURST)
            known = False
            while not self._stops:
                if not known:
                    groups.append(f"{node.name}-{len(groups)}")
                known = await self._step(line, groups[-1], rng.randint(0, 1_000_000))
                await asyncio.sleep(rng.choice([0.0, 0.01, 0.2]))
                await rests.after_turn()
            for group in groups:
                await self._look(line, group)
        self._busy -= 1

    async def _step(self, line: Line, group: str, offset: int) -> bool:
        """Commit, and ask; whether the outcome is known."""
        where = {"consumerGroup": group, "topic": TOPIC, "queueId": 0}
        possible = self.committed.setdefault(group, {None})
        commit = {**where, "commitOffset": offset}
        answer = await line.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            possible.add(offset)
            return False
        self.committed[group] = {offset}
        self._cluster.world.count("commit")
        await self._look(line, group)
        return True

    async def _look(self, line: Line, group: str) -> None:
        """Raises Violation: it is not what was committed."""
        where = {"consumerGroup": group, "topic": TOPIC, "queueId": 0, "setZeroIfNotFound": False}
        missing = (ResponseCode.QUERY_NOT_FOUND,)
        answer = await line.insist(RequestCode.QUERY_CONSUMER_OFFSET, where, but=missing)
        found = None if answer.code else int((answer.ext or {})["offset"])
        possible = self.committed[group]
        if found not in possible:
            raise Violation(f"the offset of {group} is {found}, and was committed as {possible}")
