"""A group with a mapped topic: the test is its controllers, and the masters of other groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from gantry_broker.clients import ClientProcessor
from gantry_broker.clients.claim import Claim
from gantry_broker.clients.core.delay.levels import DelayLevels
from gantry_broker.clients.mapped.book import QueueBook
from gantry_broker.clients.mapped.maps import ClusterMaps
from gantry_protocol.bodies import TopicConfig, encode_body
from gantry_protocol.bodies.queue_maps import QueueMaps
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.queue_map import MAPPED, MappedQueue, QueueMap, Segment
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.types import BrokerId, Epoch, Index
from support.group_view import FakeConnection, FakeGroup
from support.patience import PATIENCE_S

TOPIC = "mapped"
LEVELS = DelayLevels.parse("30ms 60ms")
STATIC, OLDER = 479, 398  # versions of Java's clients
HERE, THERE, BEYOND = "broker-a", "broker-b", "broker-c"
SERVING = {HERE: "a:1", THERE: "b:1", BEYOND: "c:1"}


class OtherMasters:
    """They note what they are asked; the test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, RemotingCommand, Callable[[Outcome], None]]] = []

    def ask(
        self,
        group: str,
        command: RemotingCommand,
        done: Callable[[Outcome], None],
        timeout_s: float,
    ) -> None:
        self.asked.append((group, command, done))

    def answer(self, code: int, ext: dict[str, str] | None = None, place: int = -1) -> None:
        _, command, done = self.asked.pop(place)
        done(reply(command, code, "", ext))


class MappedGroup:
    """Group ``HERE`` of a cluster, with the topic and without its map yet."""

    def __init__(self, directory: Path, queues: int = 4, *, has_topic: bool = True) -> None:
        self.group = FakeGroup(directory)
        self.masters = OtherMasters()
        self.controllers = self.group.controllers
        self.maps = ClusterMaps(self.group.cluster, self.controllers)
        self.book = QueueBook(self.group, self.maps, self.masters, self.controllers)  # type: ignore[arg-type]
        self.group.queues = self.book
        self.group.messages.first_offset = self.maps.first_offset
        self._queues = queues
        if has_topic:
            self.add_topic()
        self.processor = ClientProcessor(self.group, levels=LEVELS)
        self.connection = FakeConnection()
        self._opaque = 100

    def close(self) -> None:
        self.processor.close()
        self.book.end()
        self.group.messages.log.close()

    def add_topic(self) -> None:
        config = TopicConfig(
            topic_name=TOPIC,
            read_queue_nums=self._queues,
            write_queue_nums=self._queues,
            attributes={MAPPED: "true"},
        )
        self.group.add_topic(config)

    # ---- the controllers

    async def begin(self, epoch: int = 1) -> None:
        """The mastership begins, and the maps are asked for."""
        self.book.began(Claim(BrokerId(1), Epoch(epoch), "i"))
        self.book.serve(self.processor._queues_changed, self.processor.mapped._commit_here)
        await self.question()

    async def question(self) -> tuple[RemotingCommand, Callable[[Outcome], None]]:
        """The newest question for maps."""
        return await self._asked(RequestCode.GANTRY_GET_QUEUE_MAPS)

    async def seal(self) -> tuple[RemotingCommand, Callable[[Outcome], None]]:
        """The newest report of ends."""
        return await self._asked(RequestCode.GANTRY_SEAL_QUEUES)

    async def release(self) -> tuple[RemotingCommand, Callable[[Outcome], None]]:
        """The newest report of segments of which nothing is left."""
        return await self._asked(RequestCode.GANTRY_RELEASE_SEGMENTS)

    async def _asked(self, code: RequestCode) -> tuple[RemotingCommand, Callable[[Outcome], None]]:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for item in reversed(self.controllers.asked):
                    if item[0].code == code:
                        self.controllers.asked.remove(item)
                        return item
                await asyncio.sleep(0.001)

    def tell(self, *queues: MappedQueue, epoch: int = 1, **named: object) -> None:
        """News of the topic's map, however it came to be asked for."""
        maps = {TOPIC: QueueMap(epoch, Index(epoch), queues)} if queues else {}
        known = {"index": epoch, "ended": 0, "maps": maps, "masters": SERVING, **named}
        told = QueueMaps(**known)  # type: ignore[arg-type]
        self.maps._answered(reply(request(1), body=encode_body(told)), set(self.maps._unread))

    # ---- clients

    def ask(
        self,
        code: int,
        ext: dict[str, object],
        body: bytes = b"x",
        version: int = STATIC,
    ) -> RemotingCommand:
        """The request; ``answer`` has what came of it."""
        asked = request(code, {name: str(value) for name, value in ext.items()}, body)
        self._opaque += 1
        asked.opaque, asked.language, asked.version = self._opaque, "JAVA", version
        answer = self.processor(self.connection, asked)  # type: ignore[arg-type]
        if answer is not None:
            self.connection.reply(asked, answer)
        return asked

    def answer(self, asked: RemotingCommand) -> RemotingCommand | None:
        """The one answer, or None."""
        found = [response for to, response in self.connection.replies if to is asked]
        assert len(found) <= 1, found
        return found[0] if found else None

    def code(self, asked: RemotingCommand) -> int | None:
        """The code of the answer."""
        answer = self.answer(asked)
        return None if answer is None else int(answer.code)


def at(group: str, number: int = 0, target: str = "") -> MappedQueue:
    """A queue that never moved."""
    return MappedQueue((Segment(group, 0, number),), target)
