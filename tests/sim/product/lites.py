"""Clients of lite topics: some send to them, others subscribe to some, take messages, let go.

Three groups read the same lite topics: one shares them, in one each has a single client at a time,
and one takes all of them. A subscription that was answered 0 is never repeated, so whoever is the
master later has to know it. What was acknowledged with 0 is handed out to nobody who asks after
that. A lite topic hands out one batch to a group, in order: nothing else of it is handed out before
that is acknowledged or its invisible time is over. A client is given nothing of a lite topic that
it has left, or lost. At the end each group has done every message that a producer was acknowledged.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from gantry_cli.client import topics
from gantry_cli.client.session import session
from gantry_protocol.bodies import SubscriptionGroupConfig, encode_body
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.errors import GantryError
from gantry_protocol.lite import LITE_TOPIC, LITE_TYPE
from gantry_protocol.records import decode_properties, decode_records
from gantry_protocol.settings.lite import BIND_TOPIC, SUB_MODEL, WILDCARD
from gantry_protocol.settings.priority import MESSAGE_TYPE
from sim.kernel.world import MS, Violation
from sim.product.cluster import GROUP
from sim.product.line import Line, send_ext
from sim.product.workload import Clients

if TYPE_CHECKING:
    from random import Random

    from gantry_cli.client.session import Session
    from gantry_protocol.command import RemotingCommand
    from gantry_protocol.records import MessageRecord
    from sim.product.cluster import Cluster, Node
    from sim.product.workload import Told

PARENT, QUEUES = "sessions", 2
SHARED, ALONE, ALL = "agents", "owners", "auditors"
GROUPS = {
    SHARED: {BIND_TOPIC: PARENT},
    ALONE: {BIND_TOPIC: PARENT, SUB_MODEL: "Exclusive"},
    ALL: {BIND_TOPIC: PARENT, WILDCARD: "true"},
}
CLIENTS = {SHARED: 2, ALONE: 2, ALL: 2}
LITES = [f"l{number}" for number in range(9)]
FIRST = 3  # of them are there at the beginning
INVISIBLE_MS = (300, 1_000, 4_000)
WITHIN_S = 4.0
TRIES = 1_000  # nothing becomes a dead letter
# Of an acknowledgement: whoever is busy has done nothing, nor has a master before it.
REFUSED = (ResponseCode.NO_MESSAGE, ResponseCode.SYSTEM_BUSY)

Place = tuple[str, str]  # a lite topic, and the key of a message


class _Message(msgspec.Struct):
    """A message as one group sees it.

    Attributes:
        done_us: when an acknowledgement was answered 0; None before.
        maybe_done: nobody knows what became of an acknowledgement, and it was not handed out since.
        is_asked: an acknowledgement is on its way, or was, since it was handed out.
        pop_ms: the pop time of the newest receipt, by the master's wall clock.
        free_us: it is handed out to nobody else before, by the clock of a master that stays.
        free_ms: the same by the wall clock, for another master.
    """

    done_us: int | None = None
    maybe_done: bool = False
    is_asked: bool = False
    pop_ms: int = 0
    free_us: int = 0
    free_ms: int = 0


class _Wish(msgspec.Struct):
    """What a client said last of a lite topic.

    Attributes:
        is_in: whether it takes it.
        asked_us: when it said so.
        told_us: when that was answered 0; None while nobody knows whether it was heard.
    """

    is_in: bool
    asked_us: int
    told_us: int | None = None


class Taken(NamedTuple):
    """A message that a client was handed out, and its receipt."""

    place: Place
    pop_ms: int
    ext: dict[str, object]


class Lites(Clients):
    """See the module.

    Args:
        cluster: where.
        watch: is told of every acknowledgement of a producer.
    """

    unsettled = "messages of lite topics are not done"

    def __init__(self, cluster: Cluster, watch: Told) -> None:
        super().__init__(cluster)
        self._watch = watch
        self._is_set_up = False
        self._sent: dict[str, dict[Place, int]] = defaultdict(dict)  # acknowledged: where it stands
        self._messages: dict[str, dict[Place, _Message]] = {group: {} for group in GROUPS}
        self._wishes: dict[tuple[str, str], dict[str, _Wish]] = defaultdict(dict)
        self._claims: dict[str, dict[str, _Wish]] = defaultdict(dict)  # of lite topics that one has

    def start(self) -> None:
        """Begin."""
        self._cluster.client("lite-sender", self._send).boot()
        for group, count in CLIENTS.items():
            for number in range(count):

                async def run(node: Node, group: str = group, number: int = number) -> None:
                    await self._consume(node, group, is_first=number == 0)

                self._cluster.client(f"lite-{group}-{number}", run).boot()

    @property
    def is_settled(self) -> bool:
        return not self._busy and not self._missing()

    def judge(self) -> None:
        """Raises Violation: some group has not done all."""
        super().judge()
        missing = self._missing()
        if missing:
            known = [(*one, self._messages[one[0]].get(one[1])) for one in missing]
            raise Violation(f"{len(missing)} of lite topics are not done: {known[:3]}")

    def _missing(self) -> list[tuple[str, Place]]:
        return [
            (group, place)
            for group, messages in self._messages.items()
            for sent in self._sent.values()
            for place in sent
            if not ((found := messages.get(place)) and (found.done_us or found.maybe_done))
        ]

    # ---- what is known by now

    @property
    def is_set_up(self) -> bool:
        """Whether the lite topics' parent is there."""
        return self._is_set_up

    def acknowledged(self, lite: str) -> int:
        """How many messages of a lite topic were acknowledged to their producer."""
        return len(self._sent[lite])

    def surely_left(self, group: str, name: str) -> set[str]:
        """Lite topics that a client does not take, and was answered so."""
        wishes = self._wishes[group, name]
        return {
            lite for lite, wish in wishes.items() if not wish.is_in and wish.told_us is not None
        }

    # ---- sending

    async def _send(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        number = 0
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            await self._set_up(line, client)
            while not self._stops:
                number += 1
                lite = rng.choice(LITES[: FIRST + number // 20])
                key = f"{node.name}-{len(node.exits)}-{number}"
                ext = send_ext(PARENT, key, rng.randrange(QUEUES), f"{LITE_TOPIC}\x01{lite}\x02")
                answer = await line.ask(RequestCode.SEND_MESSAGE_V2, ext, b"lite")
                if answer is not None and answer.code == ResponseCode.SUCCESS:
                    assert answer.ext is not None
                    offset_id = answer.ext["msgId"]
                    self._watch.acknowledged(key, offset_id)
                    self._sent[lite][lite, key] = int(offset_id[-16:], 16)
                await asyncio.sleep(rng.random() * 0.2)
        self._busy -= 1

    async def _set_up(self, line: Line, client: Session) -> None:
        """The parent, and the groups."""
        while not self._is_set_up:
            with suppress(GantryError):
                await topics.create_topic(
                    client,
                    PARENT,
                    queues=QUEUES,
                    cluster=None,
                    attributes={MESSAGE_TYPE: LITE_TYPE},
                )
                self._is_set_up = True
        for group, attributes in GROUPS.items():
            config = SubscriptionGroupConfig(group, retry_max_times=TRIES, attributes=attributes)
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            await line.insist(code, {}, encode_body(config))

    # ---- subscribing

    async def _subscribe(
        self,
        line: Line,
        group: str,
        name: str,
        lites: list[str],
        *,
        is_in: bool,
        is_all: bool = False,
    ) -> bool:
        """Take some, or no more; whether that was heard.

        Args:
            line: the way to the master.
            group, name: of the client.
            lites: that it takes, or leaves.
            is_in: whether it takes them.
            is_all: it takes these only, or leaves all.
        """
        action = "PARTIAL_ADD" if is_in else "PARTIAL_REMOVE"
        if group == ALL:
            action, lites = "COMPLETE_ADD", []
        elif is_all:
            action = "COMPLETE_ADD" if is_in else "COMPLETE_REMOVE"
        asked_us = self._cluster.world.now_us
        wishes = self._wishes[group, name]
        told = LITES if is_all and group != ALL else lites
        for lite in told:
            wishes[lite] = _Wish(is_in and lite in lites, asked_us)
            if is_in and group == ALONE:
                self._claims[lite][name] = wishes[lite]
        word = {
            "action": action, "clientId": name, "group": group, "topic": PARENT,
            "liteTopicSet": lites,
        }  # fmt: skip
        body = json.dumps({"subscriptionSet": [word]}).encode()
        answer = await line.ask(RequestCode.LITE_SUBSCRIPTION_CTL, {}, body, WITHIN_S)
        is_heard = answer is not None and answer.code == ResponseCode.SUCCESS
        if is_heard:
            for lite in told:
                wishes[lite].told_us = self._cluster.world.now_us
            self._cluster.world.count("subscribed" if is_in else "left")
        return is_heard

    def _lacking(self, group: str, name: str) -> list[str]:
        """Lite topics that a client does not surely take."""
        return [lite for lite in LITES if not self._has_surely(group, name, lite)]

    def _has_surely(self, group: str, name: str, lite: str) -> bool:
        wish = self._wishes[group, name].get(lite)
        if wish is None or not wish.is_in or wish.told_us is None:
            return False
        return not any(
            other.told_us is None or other.told_us > wish.asked_us
            for other in self._claims_of_others(group, name, lite)
        )

    def _claims_of_others(self, group: str, name: str, lite: str) -> list[_Wish]:
        """The last wishes of other clients to have a lite topic that one client has."""
        if group != ALONE:
            return []
        return [claim for other, claim in self._claims[lite].items() if other != name]

    # ---- consuming

    async def _consume(self, node: Node, group: str, *, is_first: bool) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            while not self._is_set_up:
                await asyncio.sleep(0.1)
            takes_all = False
            while True:
                if group != ALL:
                    await self._choose(line, group, node.name, rng, is_first=is_first)
                elif not takes_all:
                    takes_all = await self._subscribe(line, group, node.name, [], is_in=True)
                for taken in await self._pop(line, group, node.name, rng):
                    await self._work(line, group, taken, rng)

    async def _choose(
        self, line: Line, group: str, name: str, rng: Random, *, is_first: bool
    ) -> None:
        """Change what is taken; in the end one takes all, and says of each only what it has to."""
        if self._stops:
            if is_first and (lacking := self._lacking(group, name)):
                await self._subscribe(line, group, name, lacking, is_in=True)
            return
        if rng.random() < 0.3:
            lites = [lite for lite in LITES if rng.random() < 0.4]
            is_in = rng.random() < 0.7
            is_all = rng.random() < 0.3 and not (is_in and group == ALONE)  # what it lost stays so
            await self._subscribe(line, group, name, lites, is_in=is_in, is_all=is_all)

    async def _pop(self, line: Line, group: str, name: str, rng: Random) -> list[Taken]:
        """Take some. Raises Violation: these were not to be handed out now."""
        invisible_ms = rng.choice(INVISIBLE_MS)
        asked_us = self._cluster.world.now_us
        asked = {
            "clientId": name, "consumerGroup": group, "topic": PARENT,
            "maxMsgNum": rng.choice([1, 4, 32]), "invisibleTime": invisible_ms,
            "pollTime": rng.choice([0, 500, 2_000]),
        }  # fmt: skip
        answer = await line.ask(RequestCode.POP_LITE_MESSAGE, asked, within_s=WITHIN_S)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            await asyncio.sleep(rng.random() * 0.1)
            return []
        found = [taken_of(answer, record, group) for record in decode_records(answer.body)]
        for taken in found:
            self._judge_subscription(group, name, taken.place[0], asked_us)
        for taken in found:
            self._judge_batch(group, taken, found)
        for taken in found:
            self._given(group, taken, asked_us, invisible_ms)
        return found

    def _judge_subscription(self, group: str, name: str, lite: str, asked_us: int) -> None:
        """Raises Violation: the client has left it, or another one has it."""
        if group == ALL:
            return
        wish = self._wishes[group, name].get(lite)
        if wish is None:
            raise Violation(f"{name} never took {lite}")
        if not wish.is_in and wish.told_us is not None and asked_us > wish.told_us:
            raise Violation(f"{name} has left {lite}: {wish}, asked at {asked_us}")
        for other in self._claims_of_others(group, name, lite):
            has_lost = other.told_us is not None and asked_us > other.told_us
            if has_lost and other.asked_us > (wish.told_us or self._cluster.world.now_us):
                raise Violation(f"{name} has lost {lite}: {wish}, {other}, asked at {asked_us}")

    def _judge_batch(self, group: str, taken: Taken, batch: list[Taken]) -> None:
        """Raises Violation: it is out of turn, or something in front of it is in flight."""
        now_us = self._cluster.world.now_us
        messages = self._messages[group]
        mine = {one.place for one in batch}
        lite, _ = taken.place
        own = messages.get(taken.place)
        if own is not None and taken.pop_ms < own.pop_ms:
            return  # an answer that was long on its way
        sent = self._sent[lite]
        for place, at in sent.items():
            if place in mine:
                continue
            other = messages.get(place)
            if other is None:
                is_before = taken.place in sent and at < sent[taken.place]
                if is_before and own is None:
                    raise Violation(f"{group}: {taken.place} comes before {place}")
            elif (
                not other.is_asked
                and other.pop_ms < taken.pop_ms < other.free_ms
                and now_us < other.free_us
            ):
                raise Violation(f"{group}: {taken} while {place} is in flight: {other}")

    def _given(self, group: str, taken: Taken, asked_us: int, invisible_ms: int) -> None:
        """Raises Violation: it is done, or somebody has it."""
        now_us = self._cluster.world.now_us
        found = self._messages[group].setdefault(taken.place, _Message())
        if found.done_us is not None and asked_us > found.done_us:
            raise Violation(f"{group}: done at {found.done_us}, and handed out: {taken}")
        if taken.pop_ms < found.pop_ms:
            return  # an answer that was long on its way: somebody else has got it since
        if now_us < found.free_us and taken.pop_ms < found.free_ms:
            raise Violation(f"{group}: handed out to two: {found}, {taken}")
        least_us = int(invisible_ms * MS * (1 - 2 * self._cluster.drift)) - MS
        found.maybe_done = found.is_asked = False  # an older receipt does nothing any more
        found.pop_ms = taken.pop_ms
        found.free_us, found.free_ms = asked_us + least_us, taken.pop_ms + invisible_ms
        self._cluster.world.count("lite popped")

    async def _work(self, line: Line, group: str, taken: Taken, rng: Random) -> None:
        """Acknowledge it, or forget it."""
        if rng.random() < 0.1 and not self._stops:
            return
        await asyncio.sleep(rng.choice([0.0, 0.0, 0.01, 0.1]))
        found = self._messages[group][taken.place]
        found.is_asked = True
        answer = await line.ask(RequestCode.ACK_MESSAGE, taken.ext, within_s=WITHIN_S)
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            found.done_us = found.done_us or self._cluster.world.now_us
            self._cluster.world.count("lite acked")
        elif answer is None or answer.code not in REFUSED:
            found.maybe_done = True


def taken_of(
    answer: RemotingCommand, record: MessageRecord, group: str, parent: str = PARENT
) -> Taken:
    """A message of an answer. Raises Violation: it is of no lite topic."""
    ext = answer.ext or {}
    properties = decode_properties(record.properties)
    lite = properties.get(LITE_TOPIC)
    if lite is None or record.topic != parent:
        raise Violation(f"no message of a lite topic: {record}")
    receipt = (
        f"{record.queue_offset} {ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']} 0"
        f" {GROUP} {record.queue_id} {record.queue_offset} {record.physical_offset}"
    )
    named: dict[str, object] = {
        "consumerGroup": group,
        "topic": parent,
        "liteTopic": lite,
        "queueId": record.queue_id,
        "offset": record.queue_offset,
        "extraInfo": receipt,
    }
    return Taken((lite, properties["UNIQ_KEY"]), int(ext["popTime"]), named)
