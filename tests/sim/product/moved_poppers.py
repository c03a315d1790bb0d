"""Consumers by POP of a mapped topic, whose queues move between broker groups meanwhile.

They ask all broker groups, as clients do that know no map, and each is given what stands there. The
rules are those of ``poppers``; a job is the same wherever its queue is now. One group begins with
what is new: from the first job of a queue that it is given it is owed all that follow, whatever the
queue does. In the group that takes queues in order no job is handed out for the first time before
those in front of it are acknowledged, in whichever broker groups they are.

One group comes once queues have moved, and wants what is new: nothing that was there before it came
is handed out to it. One is moved back now and then, by an administrator: it is owed all that stands
behind that place, in whichever broker groups, once more.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, NamedTuple

from gantry_cli.client.session import session
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.headers.brokeradmin import ResetOffsetRequestHeader
from gantry_protocol.headers.codec import to_ext
from sim.kernel.world import Violation
from sim.product import mapped
from sim.product.line import Line, send_ext
from sim.product.mapped import QUEUES, STATIC, Mapped
from sim.product.poppers import BODY, WITHIN_S, Job, Place, Poppers, Receipt
from sim.product.workload import Clients

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from gantry_cli.client.session import Session
    from sim.product.cluster import Cluster, Node
    from sim.product.workload import Told

NEW, ORDERED = "any", "ordered"
LATE, BACK = "late", "back"
COMES_S = (3.0, 9.0)  # when somebody late does, since the topic is there
BACK_EACH = 0.5  # turns of one that is moved back


class Holders(NamedTuple):
    """The broker groups that have parts of a queue, by the map of an epoch."""

    groups: frozenset[str]
    epoch: int


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

    def holders(self, number: int) -> Holders | None:
        """Of a queue that does not move; None: it does, or some of them do not know it yet."""
        known = self._map()
        if known is None or known.queues[number].target:
            return None
        groups = {segment.group for segment in known.queues[number].segments}
        if not all(self._knows(name, known.epoch) for name in groups):
            return None
        return Holders(frozenset(groups), known.epoch)

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
    hasty = (LATE, BACK)

    def __init__(self, cluster: Cluster, watch: Told, mover: Mover) -> None:
        super().__init__(cluster, watch)
        self._mover = mover
        self._jobs |= {LATE: {}, BACK: {}}
        self._led_back: set[Place] = set()  # jobs that may come more than once
        self._left_out: set[Place] = set()  # jobs in front of a place that it was moved to
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
        self._start_consumers((LATE, BACK), members=1)

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
            for group in (NEW, ORDERED, LATE, BACK)
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
        if group == BACK and self._sent and not self._stops and rng.random() < BACK_EACH:
            await self._go_back(dict(lines), rng)

    async def _go_back(self, lines: dict[str, Line], rng: Random) -> None:
        """Have a group take a queue from an earlier place on.

        What stands before that place and is not done may be left out from then on. What stands
        behind it is owed again, whatever is in flight or acknowledged, if all groups that have a
        part of the queue say that it is done.
        """
        number, target = rng.choice(self._sent)
        jobs = self._jobs[BACK]
        asked = [place for place in {*self._sent, *jobs} if place[0] == number]
        is_clear = all(self._is_over((number, at)) for at in range(target + 1))  # nothing in flight
        self._left_out.difference_update(place for place in asked if place[1] >= target)
        self._led_back.update(place for place in asked if place[1] >= target)
        for place in asked:
            jobs[place] = Job(maybe_done=place[1] < target or self._is_done(BACK, place))
        header = to_ext(ResetOffsetRequestHeader(self.topic, BACK, -1, True, number, target))
        holders = self._mover.holders(number)
        is_done = holders is not None
        for name, line in lines.items():  # as administrators' tools do
            code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
            answer = await line.ask(code, header, within_s=WITHIN_S)
            if holders is not None and name in holders.groups:
                is_done &= answer is not None and answer.code == ResponseCode.SUCCESS
        if is_done and self._mover.holders(number) == holders:
            self._left_out.update((number, at) for at in range(target))
            self._cluster.world.count("popped-back" if is_clear else "popped-on")
            for place in asked:
                jobs[place].maybe_done = place[1] < target

    async def _acknowledge(self, line: Line, group: str, receipts: list[Receipt]) -> None:
        """One that is moved back leaves some in flight, so that others behind them are done."""
        if group == BACK and not self._stops:
            receipts = [one for one in receipts if one.before or one.offset % 3]
        if receipts:
            await super()._acknowledge(line, group, receipts)

    def _is_over(self, place: Place) -> bool:
        """Whether a job is surely not in flight, of the group that is moved back."""
        job = self._jobs[BACK].get(place)
        return place in self._left_out or (job is not None and job.done_us is not None)

    def _given(self, group: str, receipt: Receipt, asked_us: int, invisible_ms: int) -> None:
        """Raises Violation: it was there before a group came that wants what is new."""
        if group == LATE and self._before_late and receipt.place in self._before_late:
            raise Violation(f"it was there before {LATE} came, and is handed out: {receipt}")
        if group == BACK and receipt.place in self._led_back:
            self._jobs[BACK][receipt.place] = Job()
            self._left_out.discard(receipt.place)
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
