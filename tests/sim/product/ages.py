"""Consumer groups that commit once and are never seen again, on brokers whose hours are short.

The offset of such a group is what was committed for as long as the setting promises, over any
change of master, and is gone some time after it: hours in which nobody serves do not count.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_cli.client.session import session
from gantry_protocol.codes import RequestCode, ResponseCode
from sim.kernel.world import SECOND, Violation
from sim.product.line import TOPIC, Line
from sim.product.workload import Clients

if TYPE_CHECKING:
    from sim.product.cluster import Cluster, Node

HOUR_S = 0.25
KEPT_HOURS = 40  # more than those after which a table is looked at (TOUCH_HOURS)
SURELY_US = int((KEPT_HOURS - 2) * HOUR_S * SECOND * 0.95)  # whatever the clocks drift
SETTINGS = {"offsets_kept_hours": KEPT_HOURS}
EVERY_S = 1.0


class Ages(Clients):
    """See the module.

    Attributes:
        committed: when each group was told that its offset is kept, and the offset.
    """

    unsettled = "offsets that nobody uses are not forgotten"

    def __init__(self, cluster: Cluster) -> None:
        self.committed: dict[str, tuple[int, int]] = {}
        super().__init__(cluster)

    def start(self) -> None:
        """Begin."""
        self._cluster.client("ages", self._commit).boot()

    async def _commit(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        tried = 0  # one that was not answered may be carried out behind the next
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            while not self._stops:
                tried += 1
                group, offset = f"age-{tried}", rng.randint(1, 1_000_000)
                answer = await line.ask(
                    RequestCode.UPDATE_CONSUMER_OFFSET, {**_where(group), "commitOffset": offset}
                )
                if answer is not None and answer.code == ResponseCode.SUCCESS:
                    self.committed[group] = (self._cluster.world.now_us, offset)
                    await self._look(line, rng.choice(list(self.committed)))
                await asyncio.sleep(rng.random() * EVERY_S)
            for group in self.committed:
                while await self._look(line, group):
                    await asyncio.sleep(HOUR_S)
                self._cluster.world.count("offset aged")
        self._busy -= 1

    async def _look(self, line: Line, group: str) -> bool:
        """Whether the offset is there. Raises Violation: it went too early, or is another one."""
        since_us, offset = self.committed[group]
        gone = (ResponseCode.QUERY_NOT_FOUND,)
        answer = await line.insist(RequestCode.QUERY_CONSUMER_OFFSET, _where(group), but=gone)
        kept_us = self._cluster.world.now_us - since_us
        if answer.code in gone:
            if kept_us < SURELY_US:
                raise Violation(f"the offset of {group} was forgotten after {kept_us / SECOND} s")
            return False
        if (answer.ext or {})["offset"] != str(offset):
            raise Violation(f"{group} committed {offset}, and is told {answer.ext}")
        return True


def _where(group: str) -> dict[str, object]:
    return {"consumerGroup": group, "topic": TOPIC, "queueId": 0, "setZeroIfNotFound": False}
