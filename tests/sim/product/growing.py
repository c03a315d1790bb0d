"""A cluster that grows and shrinks under the clients of a mapped topic.

A broker group comes later than the others, and is given its share of the queues. Sometimes one is
retired at once then, as by somebody who deletes a namespace, and is back once its queues have begun
anew elsewhere: all that it holds is read again. While it is away nobody knows how far consumer
groups had come there; they are told how far they had come elsewhere. At last one goes for good. It
is drained first: its queues move, consumer groups read to the end, and it says that nothing is
left; what they committed is known elsewhere afterwards.
"""

from __future__ import annotations

import asyncio
import json
import math
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from gantry_broker.clients.mapped.maps import WAIT_S
from gantry_protocol.codes import RequestCode, ResponseCode
from sim.kernel.world import Violation
from sim.product.cluster import CLUSTER, http
from sim.product.mapped import QUEUES, TOPIC, WITHIN_S, Lines, Mapped, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random

    from gantry_protocol.queue_map import Segment
    from sim.product.cluster import Cluster, Node
    from sim.product.line import Line
    from sim.product.workload import Load

AGAIN_S = 0.3
COMES_WITHIN_S, GOES_WITHIN_S = 5.0, 8.0
PATIENCE_S = 2.0
LOOKS = 50
KNOWN_WITHIN_S = WAIT_S + 1.0  # that a group went or is back: they ask even without news


class _Taken(NamedTuple):
    """A commit that was answered well, and the segments of its queue that may have taken it.

    They are those that begin from ``first`` to ``last``: nobody says which one it was, and the
    queue may have moved meanwhile.
    """

    queue: int
    offset: int
    first: int
    last: float


class Growing(Mapped):
    """See the module.

    Args:
        cluster: nobody has its last group yet.
        before: who must have ended before a group goes for good.

    Attributes:
        gone: the group that went for good; empty while none did.
    """

    moves_readers = False

    def __init__(self, cluster: Cluster, before: Sequence[Load]) -> None:
        super().__init__(cluster)
        self.gone = ""
        self._before = before
        self._newcomer = cluster.groups[-1]
        rng = cluster.world.stream("growing")
        self._is_dropped = rng.random() < 0.3  # somebody is retired without a drain
        self._is_back = not self._is_dropped
        self._has_left = False
        self._away = ""  # who is retired, and not known by everybody to be back
        self._taken: dict[str, list[_Taken]] = {}  # by consumer group, in the order of commits
        self._leaves_late = rng.random() < 0.5  # once consumer groups have read all and are away
        self._unread = set(range(QUEUES))  # whose groups have not read all, or not lately

    @property
    def leaps(self) -> bool:
        """Whether a group may be away, whose messages are passed over then."""
        return self._is_dropped or bool(self.gone)

    # ---- who has groups come and go

    async def _move(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        await self._begin(rng)
        await asyncio.sleep(rng.random() * COMES_WITHIN_S)
        await self._come()
        await asyncio.sleep(rng.random() * GOES_WITHIN_S)
        if self._is_dropped:
            await self._go_and_return(rng, rng.choice(self._cluster.groups))
            self._is_back = True
        await self._leave(rng, rng.choice(self._cluster.groups))
        self._has_left = True
        self._busy -= 1
        self.unsettled = "clients of the mapped topic do not end"

    async def _come(self) -> None:
        """The newcomer is there, and has its share at last. Raises Violation: it is another."""
        name = self._newcomer
        await self._until(lambda: self._cluster.is_whole, "all stands")
        await self._cluster.declare(name)
        self._cluster.late.discard(name)
        for node in self._cluster.brokers:
            node.terminate()  # and starts again, with one group more
            await self._until(partial(self._hosts, node, name), f"{node.name} has {name}")
        await self._until(lambda: self._cluster.master(name) is not None, f"{name} has a master")
        await self._until(lambda: self._has_its_share(name), f"{name} has its share")
        known = self._map()
        share = sum(queue.goal == name for queue in known.queues) if known else -1
        if share != QUEUES // len(self._cluster.groups):
            raise Violation(f"{name} is new, and is given {share} of {QUEUES} queues")
        self._cluster.world.count("newcomer")

    def _hosts(self, node: Node, name: str) -> bool:
        return self._cluster.group_of(node, name) is not None

    def _are_others_done(self) -> bool:
        return self._stops and all(load.is_settled for load in self._before)

    async def _leave(self, rng: Random, name: str) -> None:
        """A drain to its end, and a group that goes; sometimes it ends first, and begins anew."""
        path = f"/v1/groups/{CLUSTER}/{name}"
        if self._leaves_late:
            await self._until(self._are_others_done, "other clients end")
            await self._until(lambda: not self._unread, "consumer groups read to the end")
        while True:
            await self._insist(rng, "PUT", f"{path}/drain", {})
            if rng.random() < 0.7:
                break
            await asyncio.sleep(rng.random() * PATIENCE_S)
            await self._insist(rng, "DELETE", f"{path}/drain")
        await self._until(lambda: not self._queues_at(name), f"queues leave {name}")
        self._cluster.world.count("drained")
        await self._until(self._are_others_done, "other clients end")
        self.unsettled = f"{name} is never drained"
        looks = count(1)
        while not await self._is_drained(rng, path):
            if not next(looks) % LOOKS:  # something came after they had read
                self._unread.update(range(QUEUES))
            await asyncio.sleep(AGAIN_S)
        self._cluster.left.add(name)
        self.gone = name
        await self._insist(rng, "POST", f"{path}/retire", {"uid": self._cluster.uid(name)})
        await asyncio.sleep(KNOWN_WITHIN_S)
        self._cluster.world.count("left")

    async def _go_and_return(self, rng: Random, name: str) -> None:
        """A group that is retired with all that it has, until others have its queues."""
        self._away = name
        self._cluster.left.add(name)
        wish = {"uid": self._cluster.uid(name)}
        await self._insist(rng, "POST", f"/v1/groups/{CLUSTER}/{name}/retire", wish)
        await self._until(lambda: not self._queues_at(name), f"queues leave {name}")
        self._cluster.world.count("begun-anew")
        await asyncio.sleep(rng.random() * PATIENCE_S)
        await self._cluster.declare(name)
        self._cluster.left.discard(name)
        await self._until(lambda: self._cluster.master(name) is not None, f"{name} has a master")
        await self._until(lambda: self._cluster.is_at_peace, "faults end")  # or news is late
        await asyncio.sleep(KNOWN_WITHIN_S)
        self._away = ""

    async def _is_drained(self, rng: Random, path: str) -> bool:
        """Whether its master says that nothing is left, and the leader that no queue is there."""
        status, body = await self._ask(rng, "GET", path, None)
        if status != 200:
            return False
        drains = [member["drain"] for member in json.loads(body)["members"]]
        self.unsettled = f"{path} is never drained: {drains}"
        return any(drain and drain["done"] for drain in drains)

    async def _insist(self, rng: Random, method: str, path: str, wish: object = None) -> None:
        """Ask until it is done. Raises Violation: the wish is taken for nonsense."""
        while True:
            status, body = await self._ask(rng, method, path, wish)
            if status == 200:
                return
            if status not in (0, 409, 421, 429, 503):
                raise Violation(f"{method} {path} is answered {status}: {body[:300]!r}")
            await asyncio.sleep(AGAIN_S)

    async def _ask(self, rng: Random, method: str, path: str, wish: object) -> tuple[int, bytes]:
        """Status and body; 0 without an answer."""
        address = rng.choice(self._cluster.controllers).machine.address
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await http(address, method, path, wish)
        except (OSError, EOFError):  # TimeoutError is one
            return 0, b""

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        self.unsettled = f"it does not come about that {what}"
        while not holds():
            await asyncio.sleep(AGAIN_S)

    def _has_its_share(self, name: str) -> bool:
        """Whether the newest state that somebody knows has struck a newcomer off."""
        found = map(self._cluster.controller_of, self._cluster.controllers)
        states = [one.machine.state for one in found if one is not None and one.node._running]
        newest = max(states, key=lambda state: int(state.index), default=None)
        return newest is not None and (CLUSTER, name) not in newest.newcomers

    def _queues_at(self, name: str) -> list[int]:
        """The queues that a group has, or is to have."""
        known = self._map()
        return [
            number
            for number, queue in enumerate(known.queues if known else ())
            if name in (queue.open.group, queue.target)
        ]

    # ---- clients

    async def _finish(self, rng: Random, lines: Lines, groups: list[str], queue: int) -> None:
        """Consumer groups read to the end: all the time, or once and again if a drain waits.

        While no drain can wait for them they commit nothing more: what a group that is away has
        taken is to be told again once it is back.
        """
        while not self._has_left:
            if self._is_back and queue in self._unread:
                has_read = await self._read_all_of(rng, lines, groups, queue)
                if has_read and self._leaves_late:
                    self._unread.discard(queue)
            await asyncio.sleep(AGAIN_S)
        await super()._finish(rng, lines, groups, queue)

    async def _read_all_of(self, rng: Random, lines: Lines, groups: list[str], queue: int) -> bool:
        """Whether each of these groups has committed the end of each queue."""
        is_known = True
        for number in range(QUEUES):
            end = await self._end(self._any(rng, lines), number)
            if end is None:
                return False
            for group in groups:
                is_known &= await self._commit_one(rng, lines, group, number, end, of=queue)
        return is_known

    async def _end(self, line: Line, number: int) -> int | None:
        """Of a queue; None if nobody can say now."""
        ext = {"topic": TOPIC, "queueId": number}
        answer = await line.ask(RequestCode.GET_MAX_OFFSET, ext, within_s=WITHIN_S)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return None
        return int((answer.ext or {})["offset"])

    async def _commit_one(
        self,
        rng: Random,
        lines: Lines,
        group: str,
        queue: int,
        offset: int,
        *,
        of: int | None = None,
    ) -> bool:
        """See there; and remember who may have taken it."""
        first = min(self._open_starts(queue), default=0)
        is_known = await super()._commit_one(rng, lines, group, queue, offset, of=of)
        if is_known and of in (None, queue):
            last = max(self._open_starts(queue), default=math.inf)
            self._taken.setdefault(group, []).append(_Taken(queue, offset, first, last))
        return is_known

    def _open_starts(self, queue: int) -> Iterator[int]:
        """The beginnings of a queue's open segment, by the maps that brokers serve by now."""
        for node in self._cluster.brokers:
            for name in self._cluster.groups:
                group = self._cluster.group_of(node, name)
                book = None if group is None else group._queues
                known = None if book is None else book.of(TOPIC)
                if known is not None:
                    yield known.queues[queue].open.start

    # ---- the end

    def _may_miss(self, number: int, offset: int) -> bool:
        known = self._map()
        return bool(self.gone and known) and self.gone == known.queues[number].holder(offset).group

    def _comparable(self, rows: dict[int, Row] | None) -> dict[int, Row] | None:
        """What went with its group is read by nobody, by some, or by all."""
        return rows and {
            number: {at: body for at, body in row.items() if not self._may_miss(number, at)}
            for number, row in rows.items()
        }

    def _may_find(self, group: str, offset: int | None) -> bool:
        if super()._may_find(group, offset):
            return True
        return bool(self._away) and offset in self._found_elsewhere(group)

    def _found_elsewhere(self, group: str) -> set[int | None]:
        """What a consumer group may be told while a broker group is away with what it took.

        That is the newest offset that another one took: a consumer that goes on there misses
        nothing. None if there is no such offset.
        """
        found: set[int | None] = set()
        for taken in reversed(self._taken.get(group, [])):
            by = self._takers(taken)
            if by != {self._away}:
                found.add(taken.offset)
            if by and self._away not in by:
                return found
        return found | {None}

    def _takers(self, taken: _Taken) -> set[str]:
        """The broker groups one of which took a commit; empty if nobody can say any more."""
        known = self._map()
        segments: Sequence[Segment] = known.queues[taken.queue].segments if known else ()
        return {
            segment.group
            for segment in segments
            if segment.group and taken.first <= segment.start <= taken.last
        }

    def _gaps(self, number: int, row: Row) -> list[int]:
        known = self._map()
        segments: Sequence[Segment] = known.queues[number].segments if known else ()
        starts = {segment.start for segment in segments} if self.leaps else set()
        return [offset for offset in super()._gaps(number, row) if offset not in starts]
