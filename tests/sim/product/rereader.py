"""A consumer that begins anywhere, again and again: at the beginning, at an offset, at a time.

Whatever the log's old part lies on by then, a disk or the tier, a place in a queue holds the
message that it held before, and none is skipped. At the end all that there is is read once more,
from the first place that queues are said to have: every acknowledged message is at its place.

Where messages expire, places below that first one are gone for good (``expires``), also for the
consumer that had not got there.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING

from gantry_cli.client.session import session
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.headers.client import PullMessageRequestHeader
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.records import decode_properties, decode_records
from gantry_protocol.records.properties import UNIQ_KEY
from sim.kernel.world import Violation
from sim.product.line import Line
from sim.product.workload import TOPIC, Clients

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from gantry_protocol.command import RemotingCommand
    from sim.product.cluster import Cluster, Node
    from sim.product.workload import Workload

QUEUES = 2
BATCH = 32
HAS_SUBSCRIPTION = 4


class Rereader(Clients):
    """See the module.

    Args:
        cluster: where.
        workload: whose messages these are.
        expires: whether messages may go.
        first_kept: the first place of a queue that may not go; None for any that a broker names.

    Attributes:
        seen: what was found at a place: queue and offset.
        lowest: the first place of each queue, at the end.
    """

    def __init__(
        self,
        cluster: Cluster,
        workload: Workload,
        *,
        expires: bool = False,
        first_kept: Callable[[int], int] | None = None,
    ) -> None:
        self.seen: dict[tuple[int, int], tuple[str, int]] = {}
        self.lowest: dict[int, int] = {}
        super().__init__(cluster)
        self._workload = workload
        self._expires = expires
        self._first_kept = first_kept

    def start(self) -> None:
        """Begin."""
        self._cluster.client("rereader", self._reread).boot()

    def judge(self) -> None:
        """Raises Violation: a message is not where it was acknowledged."""
        if self._busy:
            raise Violation(f"the log cannot be read again, {len(self.seen)} messages were")
        for key, message in self._workload.ledger._messages.items():
            at = message.acknowledged_at
            if at is None or at.queue_offset < self.lowest[at.queue_id]:
                continue
            found = self.seen.get((at.queue_id, at.queue_offset))
            if found is None or found[0] != key:
                raise Violation(f"{key} was acknowledged at {at}, and there is {found}")

    async def _reread(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            while not self._stops:
                await asyncio.sleep(rng.choice([0.05, 0.3, 1.0]))
                queue_id = rng.randrange(QUEUES)
                first = await self._begin(line, queue_id, rng)
                await self._read(line, queue_id, first, batches=3)
            while self._workload.sending:
                await asyncio.sleep(0.1)
            self.seen.clear()
            for queue_id in range(QUEUES):
                self.lowest[queue_id] = await self._bound(
                    line, RequestCode.GET_MIN_OFFSET, queue_id
                )
                await self._read(line, queue_id, self.lowest[queue_id])
                self._check_kept(queue_id, self.lowest[queue_id])
        self._expire()
        self._busy -= 1

    def _expire(self) -> None:
        """What is gone need not be consumed any more."""
        ledger = self._workload.ledger
        for key, message in ledger._messages.items() if self._expires else ():
            at = message.acknowledged_at
            if at and not message.consumed_at and at.queue_offset < self.lowest[at.queue_id]:
                self._cluster.world.count("expired")
                ledger.consume(key, at)

    async def _begin(self, line: Line, queue_id: int, rng: Random) -> int:
        where = {"topic": TOPIC, "queueId": queue_id}
        end = await self._bound(line, RequestCode.GET_MAX_OFFSET, queue_id)
        if rng.random() < 0.3:
            now_ms = int(self._cluster.brokers[0].machine.wall_s() * 1000)
            at = {**where, "timestamp": now_ms - rng.randrange(15_000)}
            answer = await line.insist(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, at)
            return int((answer.ext or {})["offset"])
        return rng.choice([0, 0, rng.randint(0, end)])

    async def _bound(self, line: Line, code: RequestCode, queue_id: int) -> int:
        answer = await line.insist(code, {"topic": TOPIC, "queueId": queue_id})
        return int((answer.ext or {})["offset"])

    async def _read(
        self, line: Line, queue_id: int, offset: int, batches: int | None = None
    ) -> None:
        """Read on from ``offset``, so many batches or up to the end that there is now."""
        end = await self._bound(line, RequestCode.GET_MAX_OFFSET, queue_id)
        while offset < end and batches != 0:
            answer = await line.ask(RequestCode.PULL_MESSAGE, _pull(queue_id, offset), within_s=8.0)
            if answer is None:
                continue
            if answer.code == ResponseCode.SUCCESS:
                offset = self._take(queue_id, offset, answer)
                batches = None if batches is None else batches - 1
            elif answer.code == ResponseCode.PULL_OFFSET_MOVED:
                offset = self._moved(queue_id, offset, answer)
                if batches is not None:
                    return
            else:
                await asyncio.sleep(0.1)

    def _moved(self, queue_id: int, offset: int, answer: RemotingCommand) -> int:
        """The place to go on at. Raises Violation: places were passed over that are not gone."""
        ext = answer.ext or {}
        following, low = int(ext["nextBeginOffset"]), int(ext["minOffset"])
        if self._first_kept is not None:  # who looks at its bucket only knows what it shows
            low = following
        if following > offset and not (self._expires and following <= low):
            raise Violation(f"queue {queue_id} is asked for {offset} and goes on at {ext}")
        if following > offset:
            self._check_kept(queue_id, following)
        self.lowest[queue_id] = max(self.lowest.get(queue_id, 0), low)
        return following

    def _check_kept(self, queue_id: int, place: int) -> None:
        """Raises Violation: a queue is said to begin at ``place``, and there is more before it."""
        if self._first_kept is not None and place > (first := self._first_kept(queue_id)):
            raise Violation(f"queue {queue_id} begins at {place}, and has all from {first} on")

    def _take(self, queue_id: int, offset: int, answer: RemotingCommand) -> int:
        """Compare what came; the next place. Raises Violation."""
        for record in decode_records(answer.body):
            if record.queue_offset < offset:
                continue  # a broker may begin before what was asked for
            if record.queue_offset != offset:
                raise Violation(f"queue {queue_id} skips from {offset} to {record.queue_offset}")
            key = decode_properties(record.properties).get(UNIQ_KEY, "")
            found = (key, zlib.crc32(record.body))
            before = self.seen.setdefault((queue_id, offset), found)
            if before != found:
                raise Violation(f"place {offset} of queue {queue_id} had {before}, has {found}")
            offset += 1
        self._cluster.world.count("reread")
        return offset


def _pull(queue_id: int, offset: int) -> dict[str, str]:
    header = PullMessageRequestHeader(
        "rereader", TOPIC, queue_id, offset, BATCH, HAS_SUBSCRIPTION, 0, 0, 0, "*", "TAG"
    )
    return to_ext(header)
