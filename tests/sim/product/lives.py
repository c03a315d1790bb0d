"""Topics that are made, used, deleted and begun anew, and what must be gone with each life.

A commit is sent together with the deletion: whichever comes first, no offset of the former life is
there once the deletion is answered, nor in the next life. Places in a queue are never given twice.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from gantry_cli.client.session import session
from gantry_protocol.codes import RequestCode, ResponseCode
from sim.kernel.world import Violation
from sim.product.line import Line, send_ext, topic_ext
from sim.product.workload import Rests

if TYPE_CHECKING:
    from random import Random

    from sim.product.cluster import Cluster, Node

CLIENTS = 2
BURST = 2  # lives, each of which asks for ten things and more
LATE_S = 8  # within which what nobody knows of has come, or never does


class Lives:
    """See the module.

    Attributes:
        lives: topics that were deleted and begun anew.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.lives = 0
        self._cluster = cluster
        self._stops = False
        self._living = 0

    def start(self) -> None:
        """Begin."""
        for number in range(CLIENTS):
            self._cluster.client(f"lives-{number}", self._live).boot()

    def stop_sending(self) -> None:
        """Begin no further life."""
        self._stops = True

    @property
    def is_settled(self) -> bool:
        return not self._living

    def judge(self) -> None:
        """Raises Violation."""
        if self._living:
            raise Violation(f"{self._living} topics are still being changed")

    async def _live(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        async with session(self._cluster.name_servers) as client:
            line, other = Line(client), Line(client)
            topic, used = f"{node.name}-topic", 0
            rests = Rests(self._cluster, node.name, BURST)
            self._living += 1
            while not self._stops:
                used = await self._one(line, other, topic, used, rng)
                self.lives += 1
                self._cluster.world.count("life")
                await rests.after_turn()
            self._living -= 1

    async def _one(self, line: Line, other: Line, topic: str, used: int, rng: Random) -> int:
        """One life of a topic, of which ``used`` places were given; returns how many are now."""
        while not await self._is_made(line, topic):
            await asyncio.sleep(LATE_S)
        where = {"consumerGroup": f"of-{topic}", "topic": topic, "queueId": 0}
        await self._must_be_new(line, topic, where)
        count = rng.randint(1, 4)
        for _ in range(count):
            key = f"{rng.getrandbits(128):032X}"
            answer = await line.insist(RequestCode.SEND_MESSAGE_V2, send_ext(topic, key), b"x")
            place = int((answer.ext or {})["queueOffset"])
            if place < used:
                raise Violation(f"{topic}: place {place} is given again, {used} were given before")
            used = place + 1
        commit = {**where, "commitOffset": used}
        if rng.random() < 0.7:
            await line.insist(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        gone = asyncio.create_task(
            line.insist(
                RequestCode.DELETE_TOPIC_IN_BROKER,
                {"topic": topic},
                but=(ResponseCode.TOPIC_NOT_EXIST,),
            )
        )
        known = True
        while not gone.done() and rng.random() < 0.9:
            committer = rng.choice([line, other])
            commit["commitOffset"] = rng.randint(0, used)
            known &= await committer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit) is not None
            await asyncio.sleep(rng.choice([0.0, 0.001, 0.02]))
        await gone
        await self._must_be_gone(line, topic)
        if not known:  # it may still be on its way, and meet the next life
            other.hang_up()
            await asyncio.sleep(LATE_S)
        return used

    async def _is_made(self, line: Line, topic: str) -> bool:
        """Create it; False if nobody knows, and it may be made at any moment for a while."""
        while True:
            answer = await line.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic))
            if answer is None or answer.code == ResponseCode.SUCCESS:
                return answer is not None
            await asyncio.sleep(0.05)

    async def _must_be_gone(self, line: Line, topic: str) -> None:
        """Raises Violation: an offset of a topic is there that is not.

        The next master tells topics as of what it has confirmed itself, so one may be there again
        for a moment after its deletion was answered.
        """
        while await self._is_there(line, topic):
            await asyncio.sleep(0.05)
        answer = await line.insist(RequestCode.GET_ALL_CONSUMER_OFFSET, {})
        table = json.loads(answer.body)["offsetTable"]
        found = {place: offsets for place, offsets in table.items() if place.startswith(topic)}
        if found and not await self._is_there(line, topic):
            raise Violation(f"{topic} is deleted, and its offsets are there: {found}")

    async def _is_there(self, line: Line, topic: str) -> bool:
        missing = (ResponseCode.TOPIC_NOT_EXIST,)
        answer = await line.insist(RequestCode.GET_TOPIC_CONFIG, {"topic": topic}, but=missing)
        return answer.code == ResponseCode.SUCCESS

    async def _must_be_new(self, line: Line, topic: str, where: dict[str, object]) -> None:
        """Raises Violation: the new topic has an offset of the old one."""
        question = {**where, "setZeroIfNotFound": False}
        missing = (ResponseCode.QUERY_NOT_FOUND, ResponseCode.TOPIC_NOT_EXIST)
        answer = await line.insist(RequestCode.QUERY_CONSUMER_OFFSET, question, but=missing)
        if answer.code == ResponseCode.SUCCESS:
            raise Violation(f"{topic} begins anew, with an offset of its former life: {answer.ext}")
