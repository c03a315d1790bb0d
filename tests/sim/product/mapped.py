"""Clients of a mapped topic whose queues move: senders, readers, committers, and who moves them.

All but one know static topics: they name a queue by its number, at whichever group comes to mind,
as a client does whose route is old. One sender is older and sees each group's own queues.

What is acknowledged is at its place, whoever is asked, once, in the order of its sender, and behind
no gap; what was refused is not there. A reader is never led back or past something. A committed
offset stays until the next commit, or until an administrator moves its consumer group back; then it
is the one that was asked for. A cluster that is asked to be even is so, and nothing comes to a
group that is to have none. Once everybody is well all moves come to an end.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from gantry_cli.client.session import session
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.headers.brokeradmin import ResetOffsetRequestHeader
from gantry_protocol.headers.client import PullMessageRequestHeader
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.records import decode_records
from sim.kernel.world import Violation
from sim.product.cluster import CLUSTER, http
from sim.product.line import Line, is_unknown, send_ext
from sim.product.workload import Clients, Rests

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from gantry_cli.client.session import Session
    from gantry_protocol.queue_map import QueueMap
    from sim.product.cluster import Cluster, Node

TOPIC = "mapped"
QUEUES = 4
SENT_TO = 3  # the last queue gets what older clients send, now and then
STATIC, OLDER = 479, 398  # versions of Java's clients
WITHIN_S = 4.0  # longer than a broker lets anybody wait
HAS_SUBSCRIPTION = 4
BATCH = 32
BURST = 15
PATH = f"/v1/clusters/{CLUSTER}/queues/{TOPIC}"
REBALANCE = f"/v1/clusters/{CLUSTER}/queues-rebalance"
MOVES_MAX = 50  # of a queue: below ``SEGMENTS_MAX``

_EMPTY = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)
_NOT_NOW = (
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
)
_WRONG = (ResponseCode.INVALID_PARAMETER, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)

Lines = dict[str, Line]
Row = dict[int, str]
"""Messages by queue offset."""


class Mapped(Clients):
    """See the module.

    Attributes:
        acknowledged: queue and offset of each message that was answered 0.
        refused: messages that were not stored.
        unsure: messages that may be there.
        moves_readers: whether somebody moves consumer groups back.
    """

    unsettled = "clients of the mapped topic do not end"
    moves_readers = True

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.acknowledged: dict[str, tuple[int, int]] = {}
        self.refused: set[str] = set()
        self.unsure: set[str] = set()
        self._is_there = False
        self._read: dict[int, Row] = {number: {} for number in range(QUEUES)}
        self._committed: dict[str, set[int | None]] = {}
        self._rows: dict[str, dict[int, Row]] = {}  # at the end, by who read them

    def start(self) -> None:
        """Begin."""
        self._cluster.client("mover", self._move).boot()
        for number in range(SENT_TO):
            self._client(f"static-{number}", self._send, number, STATIC)
        for number in range(QUEUES):
            self._client(f"reader-{number}", self._follow, number, STATIC)
            self._client(f"place-{number}", self._commit, number, STATIC)
        self._client("older", self._send, -1, OLDER)

    @property
    def is_settled(self) -> bool:
        """All have ended, and nothing moves; then everything is read anew."""
        if self._busy or self._moving():
            return False
        if not self._rows:
            self._rows["asked"] = {}
            for name in self._present:
                self._client(f"last-{name}", self._read_all, name, STATIC)
            self._client("last-older", self._read_all, "", OLDER)
            return False
        return True

    def judge(self) -> None:
        """Raises Violation."""
        super().judge()
        moving = self._moving()
        if moving:
            raise Violation(f"queues {moving} have not come where they are to go")
        rows = [self._comparable(self._rows.get(name)) for name in self._present]
        if None in rows or any(row != rows[0] for row in rows):
            raise Violation(f"groups do not show the same queues: {_differences(rows)}")
        for number, row in (rows[0] or {}).items():
            self._judge_row(number, row)
        everything = [body for row in (rows[0] or {}).values() for body in row.values()]
        missing = {
            body
            for body in self.acknowledged.keys() - set(everything)
            if not self._may_miss(*self.acknowledged[body])
        }
        if missing:
            raise Violation(f"acknowledged and not there: {sorted(missing)[:5]}")
        once = self._once(everything)
        if len(set(once)) != len(once):
            raise Violation("a message that was sent once is there twice")
        strange = set(everything) - self.acknowledged.keys() - self.unsure
        if strange:
            raise Violation(f"refused, and there: {sorted(strange)[:5]}")
        older = self._comparable(self._rows.get(""))
        if older != rows[0]:
            found = _differences([older, rows[0]])
            raise Violation(f"older clients see other messages at all groups: {found}")
        self._cluster.world.note("mapped", len(everything), "messages")

    def _judge_row(self, number: int, row: Row) -> None:
        """Raises Violation: a queue has a gap, or another order than its sender."""
        gaps = self._gaps(number, row)
        if gaps:
            raise Violation(f"queue {number} has gaps before {gaps}: {list(row)[:50]}")
        sent = [body for body in row.values() if body.startswith("static")]
        known = [int(body.split("/")[1]) for body in sent if body in self.acknowledged]
        if known != sorted(known):
            raise Violation(f"queue {number} is out of order: {known}")
        for body, (queue, offset) in self.acknowledged.items():
            if queue == number and not self._is_at(number, row, offset, body):
                raise Violation(
                    f"{body} was acknowledged at {offset} of queue {number}, where there is "
                    f"{row.get(offset)}"
                )
        for offset, body in self._read[number].items():
            if not self._is_at(number, row, offset, body):
                raise Violation(f"{body} was read at {offset} of queue {number}: {row.get(offset)}")

    def _once(self, everything: list[str]) -> list[str]:
        """Those of all messages that are there once."""
        return everything

    def _is_at(self, number: int, row: Row, offset: int, body: str) -> bool:
        return row.get(offset) == body or self._may_miss(number, offset)

    def _may_miss(self, number: int, offset: int) -> bool:
        """Whether what was at an offset of a queue need not be there any more."""
        return False

    def _comparable(self, rows: dict[int, Row] | None) -> dict[int, Row] | None:
        """The part of what was read that everybody must have read alike."""
        return rows

    def _gaps(self, number: int, row: Row) -> list[int]:
        """The offsets in a queue before which some are missing."""
        found = list(row)
        pairs = zip([-1, *found], found, strict=False)
        return [here for before, here in pairs if here != before + 1]

    @property
    def _present(self) -> list[str]:
        return [name for name in self._cluster.groups if self._cluster.has_clients(name)]

    def _any(self, rng: Random, lines: Lines) -> Line:
        """To any group that is there."""
        return lines[rng.choice(self._present)]

    @property
    def leaps(self) -> bool:
        """Whether a group may be away, whose messages are passed over then."""
        return False

    # ---- who moves queues

    def _map(self) -> QueueMap | None:
        """The newest that a controller knows."""
        found = map(self._cluster.controller_of, self._cluster.controllers)
        maps = [one.machine.state.queue_map(CLUSTER, TOPIC) for one in found if one is not None]
        return max((item for item in maps if item), key=lambda item: item.epoch, default=None)

    def _moving(self) -> list[int]:
        known = self._map()
        if known is None:
            return list(range(QUEUES))
        return [number for number, queue in enumerate(known.queues) if queue.target]

    async def _move(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        await self._begin(rng)
        pause_s = rng.choice([0.1, 0.5, 2.0])
        while not self._stops:
            await asyncio.sleep(rng.random() * pause_s)
            known = self._map()
            some = [
                number
                for number in range(QUEUES)
                if rng.random() < 0.5 and (not known or known.queues[number].moves < MOVES_MAX)
            ]
            if rng.random() < 0.2 and len(some) < QUEUES:
                await self._even_out(rng)
                continue
            places = {number: rng.choice(self._cluster.groups) for number in some}
            if await self._put(rng, places):
                self._cluster.world.count("queues-moved")
        self._busy -= 1

    async def _even_out(self, rng: Random) -> None:
        """Have queues spread evenly, perhaps without a group. Raises Violation: they are not."""
        without = rng.choice([[], [], [rng.choice(self._cluster.groups)]])
        is_tried = rng.random() < 0.2
        was_calm = self._cluster.is_whole and not self._moving()  # what moves is left alone
        wish = {"dryRun": is_tried, "without": without}
        address = rng.choice(self._cluster.controllers).machine.address
        try:
            async with asyncio.timeout(WITHIN_S):
                status, body = await http(address, "POST", REBALANCE, wish)
        except (OSError, EOFError):  # TimeoutError is one
            return
        known = self._map()
        if status != 200 or known is None:
            return
        moves = json.loads(body)["moves"]
        goals = {move["queue"]: move["target"] for move in moves}
        if set(goals.values()) & set(without):
            raise Violation(f"queues come to {without}, which is to have none: {moves}")
        spread = Counter(goals.get(at, one.goal) for at, one in enumerate(known.queues))
        counts = [spread[name] for name in self._cluster.groups if name not in without]
        if was_calm and self._cluster.is_whole and max(counts) > min(counts) + 1:
            raise Violation(f"queues are to be spread evenly, and are {spread} after {moves}")
        if not is_tried and any(known.queues[at].goal != name for at, name in goals.items()):
            raise Violation(f"moves {moves} were answered, and the queues are {known.queues}")
        self._cluster.world.count("evened-out")

    async def _begin(self, rng: Random) -> None:
        """Make the topic, and let clients in once it is at each group."""
        while not self._cluster.is_set_up:
            await asyncio.sleep(0.1)
        self._busy += 1
        while not await self._put(rng, {}):
            await asyncio.sleep(0.1)
        async with session(self._cluster.name_servers) as client:
            lines = self._lines(client, STATIC)
            for name in self._present:
                await lines[name].insist(RequestCode.GET_TOPIC_CONFIG, {"topic": TOPIC})
        self._is_there = True

    async def _put(self, rng: Random, places: Mapping[int, str]) -> bool:
        """Whether it was done for certain. Raises Violation: the wish is taken for nonsense."""
        address = rng.choice(self._cluster.controllers).machine.address
        wish = {"queues": QUEUES, "places": {str(number): name for number, name in places.items()}}
        try:
            async with asyncio.timeout(2.0):
                status, body = await http(address, "PUT", PATH, wish)
        except (OSError, EOFError):  # TimeoutError is one
            return False
        if status not in (200, 409, 421, 429, 503):
            raise Violation(f"PUT {PATH} of {wish} is answered {status}: {body[:300]!r}")
        return status == 200

    # ---- clients

    def _client(self, name: str, program: object, what: object, version: int) -> None:
        async def act(node: Node) -> None:
            self._busy += 1
            while not self._is_there:
                await asyncio.sleep(0.1)
            async with session(self._cluster.name_servers) as client:
                rng = self._cluster.world.stream(f"load/{node.name}")
                await program(rng, self._lines(client, version), what)  # type: ignore[operator]
            self._busy -= 1

        self._cluster.client(name, act).boot()

    def _lines(self, client: Session, version: int) -> Lines:
        return {
            name: Line(
                client,
                group=name,
                java_version=version,
                is_there=partial(self._cluster.has_clients, name),
            )
            for name in self._cluster.groups
        }

    async def _send(self, rng: Random, lines: Lines, queue: int) -> None:
        """One message after the other, mostly to the group that took the last one."""
        is_static = queue >= 0
        name, number = rng.choice(list(lines)), 0
        rests = Rests(self._cluster, f"static-{queue}", BURST)
        while not self._stops:
            body = f"static-{queue}/{number}" if is_static else f"older/{number}"
            number += 1
            asked = queue if is_static else rng.randrange(SENT_TO)
            self.unsure.add(body)
            answer = await lines[name].ask(
                RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC, body, asked), body.encode(), WITHIN_S
            )
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                ext = answer.ext or {}
                place = (int(ext["queueId"]), int(ext["queueOffset"]))
                if is_static and place[0] != queue:
                    raise Violation(f"{body} was sent to queue {queue}, and is at {place}")
                self.unsure.discard(body)
                self.acknowledged[body] = place
            elif not is_unknown(answer):
                self.unsure.discard(body)
                self.refused.add(body)
            if answer is None or answer.code or rng.random() < 0.05:
                name = rng.choice(list(lines))
            await asyncio.sleep(rng.choice([0.0, 0.005, 0.05]))
            await rests.after_turn()
            if rng.random() < 0.02:
                await asyncio.sleep(rng.random() * 3.0)  # its queue moves without a message

    async def _follow(self, rng: Random, lines: Lines, queue: int) -> None:
        """A queue, from its beginning on."""
        row = self._read[queue]
        while self._awaits(queue):
            following = max(row, default=-1) + 1
            line = self._any(rng, lines)
            found = await self._pull(line, queue, following, leaps=self.leaps)
            if not found:
                await asyncio.sleep(rng.random() * 0.1)
            row.update(found or {})
            self._was_read(queue, found or {})

    def _awaits(self, queue: int) -> bool:
        """Whether a queue is followed still."""
        return not self._stops

    def _was_read(self, queue: int, row: Row) -> None:
        """Raises Violation: it should not have been there to be read."""

    async def _pull(
        self, line: Line, queue: int, offset: int, *, leaps: bool = False
    ) -> Row | None:
        """What is there from ``offset`` on; None if nobody can say now.

        Args:
            line: of whom to ask.
            queue: its number.
            offset: of the first message.
            leaps: whether a part of the queue may be elsewhere; ``{}`` is only its end then.

        Raises:
            Violation: the answer leads back, or past something.
        """
        header = PullMessageRequestHeader(
            "mapped", TOPIC, queue, offset, BATCH, HAS_SUBSCRIPTION, 0, 0, 0, "*", "TAG"
        )
        answer = await line.ask(RequestCode.PULL_MESSAGE, to_ext(header), within_s=WITHIN_S)
        if answer is None or answer.code in _NOT_NOW:
            return None
        ext = answer.ext or {}
        following = int(ext.get("nextBeginOffset", -1))
        if answer.code == ResponseCode.SUCCESS:
            records = decode_records(answer.body)
            row = {record.queue_offset: record.body.decode() for record in records}
            if (
                list(row) == list(range(offset, offset + len(records)))
                and following == max(row) + 1
            ):
                return row
        elif answer.code in _EMPTY and following == offset:
            return {}
        elif answer.code == ResponseCode.PULL_OFFSET_MOVED and leaps and following > offset:
            return await self._pull(line, queue, following, leaps=True)
        raise Violation(
            f"queue {queue} is asked for {offset} and answered {answer.code} {answer.remark} {ext}"
        )

    async def _commit(self, rng: Random, lines: Lines, queue: int) -> None:
        """How far a group has come: committed and asked for at any broker group."""
        groups: list[str] = []
        rests = Rests(self._cluster, f"place-{queue}", BURST)
        is_known, last = False, 0
        while not self._stops:
            if not is_known:
                groups.append(f"place-{queue}-{len(groups)}")
            last += rng.randrange(3)
            is_known = await self._commit_one(rng, lines, groups[-1], queue, last)
            if is_known:
                await self._look(rng, lines, groups[-1], queue)
                if self.moves_readers and self._read[queue] and rng.random() < 0.2:
                    await self._reset(rng, lines, groups[-1], queue)
                    await self._look(rng, lines, groups[-1], queue)
                    is_known = False  # who consumes follows it before it commits again
            await asyncio.sleep(rng.choice([0.0, 0.02, 0.2]))
            await rests.after_turn()
        await self._finish(rng, lines, groups, queue)

    async def _finish(self, rng: Random, lines: Lines, groups: list[str], queue: int) -> None:
        """What was committed for each of these groups is there at the end."""
        for group in groups:
            await self._look(rng, lines, group, queue)

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
        """Whether the outcome is known. What is committed is looked at for queue ``of`` only."""
        possible = self._committed.setdefault(group, {None}) if of in (None, queue) else set()
        ext = {"consumerGroup": group, "topic": TOPIC, "queueId": queue, "commitOffset": offset}
        line = self._any(rng, lines)
        answer = await line.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext, within_s=WITHIN_S)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            possible.add(offset)
            return False
        possible.clear()
        possible.add(offset)
        self._cluster.world.count("mapped-commit")
        return True

    async def _reset(self, rng: Random, lines: Lines, group: str, queue: int) -> None:
        """An administrator moves a consumer group, at the broker group that has the queue.

        Raises Violation: it is said that there is no such group or place.
        """
        by_time = rng.random() < 0.3
        target = 0 if by_time else rng.randint(0, max(self._read[queue]))
        before, possible = self._map(), self._committed[group]
        place = before.queues[queue].open.group if before else self._cluster.groups[0]
        has_heard = before is not None and self._knows(place, before.epoch)
        header = ResetOffsetRequestHeader(
            TOPIC, group, 1 if by_time else -1, True, queue, -1 if by_time else target
        )
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        answer = await lines[place].ask(code, to_ext(header), within_s=WITHIN_S)
        after = self._map()
        is_known = has_heard and after and before and after.epoch == before.epoch
        if is_known and answer is not None and answer.code in _WRONG:
            raise Violation(f"{group} cannot go to {target} of {before}: {answer.remark}")
        if is_known and answer is not None and answer.code == ResponseCode.SUCCESS:
            possible.clear()
            self._cluster.world.count("mapped-reset")
        possible.add(target)

    def _knows(self, name: str, epoch: int) -> bool:
        """Whether the master of a group has read a map as new as that."""
        master = self._cluster.master(name)
        book = None if master is None else self._cluster.group_of(master, name)._queues
        known = None if book is None else book.of(TOPIC)
        return known is not None and known.epoch >= epoch

    async def _look(self, rng: Random, lines: Lines, group: str, queue: int) -> None:
        """Raises Violation: it is not what was committed."""
        ext = {
            "consumerGroup": group,
            "topic": TOPIC,
            "queueId": queue,
            "setZeroIfNotFound": False,
        }
        codes = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        while True:
            answer = await self._any(rng, lines).ask(RequestCode.QUERY_CONSUMER_OFFSET, ext)
            if answer is not None and answer.code in codes:
                break
            await asyncio.sleep(0.05)
        found = None if answer.code else int((answer.ext or {})["offset"])
        if not self._may_find(group, found):
            known = self._map()
            raise Violation(
                f"the offset of {group} is {found}, and was committed as "
                f"{self._committed[group]}; its queue is {known and known.queues[queue]}"
            )

    def _may_find(self, group: str, offset: int | None) -> bool:
        """Whether a consumer group may be said to have come so far."""
        return offset in self._committed[group]

    # ---- the end

    async def _read_all(self, rng: Random, lines: Lines, name: str) -> None:
        """Every queue from its beginning on, at one group, or as older clients at all of them."""
        rows: dict[int, Row] = {}
        for queue in range(QUEUES):
            found: Row = {}
            for line in [lines[name]] if name else [lines[here] for here in self._present]:
                await self._read_to_the_end(line, queue, found, leaps=not name or self.leaps)
            rows[queue] = dict(sorted(found.items()))
        self._rows[name] = rows

    async def _read_to_the_end(self, line: Line, queue: int, row: Row, *, leaps: bool) -> None:
        offset = 0
        while True:
            found = await self._pull(line, queue, offset, leaps=leaps)
            if found is None:
                await asyncio.sleep(0.05)
            elif not found:
                return
            else:
                if row.keys() & found.keys():
                    raise Violation(f"queue {queue} has {sorted(found)} at two groups")
                row.update(found)
                offset = max(found) + 1


def _differences(rows: list[dict[int, Row] | None]) -> list[tuple[int, int, list[str | None]]]:
    """Queue, offset, and what each has there; the first few."""
    found = []
    for queue in range(QUEUES):
        parts = [(row or {}).get(queue, {}) for row in rows]
        for offset in sorted(set().union(*parts)):
            bodies = [part.get(offset) for part in parts]
            if len(set(bodies)) > 1:
                found.append((queue, offset, bodies))
    return found[:5]
