"""Consumers by POP of a mapped topic, whose queues move between broker groups meanwhile.

They ask all broker groups, as clients do that know no map, and each is given what stands there. The
rules are those of ``poppers``; a job is the same wherever its queue is now. One group begins with
what is new: from the first job of a queue that it is given it is owed all that follow, whatever the
queue does. In the group that takes queues in order no job is handed out for the first time before
those in front of it are acknowledged, in whichever broker groups they are.

One group comes once queues have moved, and wants what is new: nothing that was there before it came
is handed out to it.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from gantry_cli.client.session import session
from gantry_protocol.codes import RequestCode, ResponseCode
from sim.kernel.world import Violation
from sim.product import mapped
from sim.product.line import Line, send_ext
from sim.product.mapped import QUEUES, STATIC, Mapped
from sim.product.poppers import BODY, Place, Poppers, Receipt
from sim.product.workload import Clients

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from gantry_cli.client.session import Session
    from sim.product.cluster import Cluster, Node
    from sim.product.workload import Told

NEW, ORDERED = "any", "ordered"
LATE = "late"
COMES_S = (3.0, 9.0)  # when somebody late does, since the topic is there


class Mover(Mapped):
    """Moves the queues of the mapped topic, and nothing else."""

    unsettled = "queues do not come where they are to go"

    def start(self) -> None:
        """Begin."""
        self._cluster.client("mover", self._move).boot()

    @property
    def is_there(self) -> bool:
        """Whether each group has the topic."""
        return self._is_there

    @property
    def is_settled(self) -> bool:
        return not self._busy and not self._moving()

    def judge(self) -> None:
        """Raises Violation: some move has not ended."""
        Clients.judge(self)
        if self._moving():
            raise Violation(f"queues {self._moving()} have not come where they are to go")


class MovedPoppers(Poppers):
    """See the module.

    Args:
        cluster: where.
        watch: of the first broker group; nobody tells it of the others.
        mover: makes the topic.
    """

    topic = mapped.TOPIC
    queues = (-1, -1, *range(QUEUES))
    hasty = (LATE,)

    def __init__(self, cluster: Cluster, watch: Told, mover: Mover) -> None:
        super().__init__(cluster, watch)
        self._mover = mover
        self._jobs[LATE] = {}
        self._before_late: set[Place] | None = None  # what was there when that group came

    def _make_topic(self) -> None:
        """The mover does so."""

    def start(self) -> None:
        """Begin."""
        for number in range(QUEUES):

            async def send(node: Node, number: int = number) -> None:
                await self._send_to(node, number)

            self._cluster.client(f"jobs-{number}", send).boot()
        self._start_consumers((NEW, ORDERED))
        self._start_consumers((LATE,), members=1)

    def _begins_at(self, group: str) -> int:
        return 1 if group in (NEW, LATE) else 0

    def _missing(self) -> list[tuple[str, Place]]:
        """What was not done, of that which a group is owed."""
        first: dict[tuple[str, int], int] = {}
        for group in (NEW, LATE):
            for number, offset in self._jobs[group]:
                first[group, number] = min(offset, first.get((group, number), offset))
        return [
            (group, place)
            for group in (NEW, ORDERED, LATE)
            for place in self._sent
            if not (group in (NEW, LATE) and place[1] < first.get((group, place[0]), place[1] + 1))
            and not self._is_done(group, place)
        ]

    def _is_done(self, group: str, place: Place) -> bool:
        job = self._jobs[group].get(place)
        return job is not None and bool(job.done_us or job.maybe_done)

    async def _before_asking(
        self, group: str, lines: Sequence[tuple[str, Line]], rng: Random
    ) -> None:
        if group == LATE and self._before_late is None:
            while not self._mover.is_there:
                await asyncio.sleep(0.1)
            await asyncio.sleep(rng.uniform(*COMES_S))
            self._before_late = set(self._sent)

    def _given(self, group: str, receipt: Receipt, asked_us: int, invisible_ms: int) -> None:
        """Raises Violation: it was there before a group came that wants what is new."""
        if group == LATE and self._before_late and receipt.place in self._before_late:
            raise Violation(f"it was there before {LATE} came, and is handed out: {receipt}")
        super()._given(group, receipt, asked_us, invisible_ms)

    def _lines_of(self, client: Session) -> list[tuple[str, Line]]:
        return [(name, Line(client, group=name)) for name in self._cluster.groups]

    def _judge_order(self, receipt: Receipt) -> None:
        """Raises Violation: one in front of it is not acknowledged, and not of the same answer."""
        super()._judge_order(receipt)
        number, offset = receipt.place
        for place in self._sent:
            if place[0] != number or place[1] >= offset or (ORDERED, place) in self._acked:
                continue
            if self._jobs[ORDERED][place].pop_ms != int(receipt.pop_ms):
                raise Violation(f"{receipt} comes before {place} is acknowledged")

    async def _send_to(self, node: Node, number: int) -> None:
        """One job after the other, for one queue, by any broker group."""
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        while not self._mover.is_there:
            await asyncio.sleep(0.1)
        async with session(self._cluster.name_servers) as client:
            lines = [Line(client, group=name, java_version=STATIC) for name in self._cluster.groups]
            for count in itertools.count():
                if self._stops:
                    break
                await self._send_one(rng.choice(lines), number, f"job-{number}-{count}")
                await asyncio.sleep(rng.random() * 0.45)
        self._busy -= 1

    async def _send_one(self, line: Line, number: int, key: str) -> None:
        begun_us = self._cluster.world.now_us
        answer = await line.ask(
            RequestCode.SEND_MESSAGE_V2, send_ext(self.topic, key, number), BODY, 4.0
        )
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return
        ext = answer.ext or {}
        place = (int(ext["queueId"]), int(ext["queueOffset"]))
        self._sent.append(place)
        self._begun_us[place] = begun_us
