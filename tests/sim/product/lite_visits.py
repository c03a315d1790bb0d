"""Lite topics that end by themselves, and somebody who asks all there is to ask about lite topics.

A lite topic of a parent with a time ends so long after its last message, and not before; in the end
all of them have. Who asks is told where a lite topic ends, at least behind all that was
acknowledged there, and of a client what it may take, nothing that it has surely left. What means
nothing is refused, and changes nothing.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING

from gantry_cli.client import topics
from gantry_cli.client.session import session
from gantry_protocol.bodies import decode_body
from gantry_protocol.bodies.lite import (
    BrokerLiteInfo,
    LiteClientInfo,
    LiteTopicInfo,
    ParentTopicInfo,
)
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.errors import GantryError
from gantry_protocol.lite import LITE_TOPIC, LITE_TYPE
from gantry_protocol.settings.lite import EXPIRATION
from gantry_protocol.settings.priority import MESSAGE_TYPE
from sim.kernel.world import MS, Violation
from sim.product.line import Line, send_ext
from sim.product.lites import ALL, CLIENTS, GROUPS, LITES, PARENT, QUEUES, WITHIN_S, Lites
from sim.product.workload import Clients

if TYPE_CHECKING:
    from random import Random

    from gantry_protocol.bodies.codec import Body
    from sim.product.cluster import Cluster, Node
    from sim.product.workload import Told

VISITS = "visits"
PLACES = [f"v{number}" for number in range(5)]
MINUTE_MS = 3_000  # in these runs
SWEEP_S = 1.0
LATE_US = 200_000  # a question may take so long
BRIEF_WORDS: tuple[tuple[str, str, str, list[str]], ...] = (  # action, group, parent, lite topics
    ("PARTIAL_ADD", ALL, PARENT, ["l0"]),  # which takes all
    ("SOMETHING", "agents", PARENT, ["l0"]),
    ("PARTIAL_ADD", "nobody", PARENT, ["l0"]),
    ("PARTIAL_ADD", "agents", "orders", ["l0"]),
    ("PARTIAL_ADD", "agents", PARENT, ["no name\x01"]),
    ("PARTIAL_ADD", "agents", PARENT, ["l0"]),  # from a place that there is not
    ("PARTIAL_ADD", "agents", PARENT, [f"many-{number}" for number in range(2_500)]),
)


class LiteVisits(Clients):
    """See the module.

    Args:
        cluster: where.
        watch: is told of every acknowledgement of a producer.
        lites: about whose lite topics is asked.
    """

    unsettled = "lite topics whose time is over do not end"

    def __init__(self, cluster: Cluster, watch: Told, lites: Lites) -> None:
        super().__init__(cluster)
        self._watch = watch
        self._lites = lites
        self._kept_us = int(MINUTE_MS * MS * (1 - 2 * cluster.drift))

    def start(self) -> None:
        """Begin."""
        self._cluster.client("visitor", self._visit).boot()
        self._cluster.client("lite-asker", self._ask_about).boot()

    # ---- lite topics that end

    async def _visit(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            await self._make_parent(client)
            number, last_us = 0, dict[str, int]()
            while not self._stops:
                lite = rng.choice(PLACES)
                for _ in range(rng.randint(1, 4)):
                    number += 1
                    key = f"{node.name}-{number}"
                    named = f"{LITE_TOPIC}\x01{lite}\x02"
                    ext = send_ext(VISITS, key, rng.randrange(QUEUES), named)
                    asked_us = self._cluster.world.now_us
                    answer = await line.ask(RequestCode.SEND_MESSAGE_V2, ext, b"visit")
                    if answer is not None and answer.code == ResponseCode.SUCCESS:
                        self._watch.acknowledged(key, (answer.ext or {})["msgId"])
                        last_us[lite] = asked_us
                await asyncio.sleep(rng.random() * 1.5)
                await self._look(line, rng.choice(PLACES), last_us)
            await self._see_them_end(line)
        self._busy -= 1

    async def _make_parent(self, client: object) -> None:
        while True:
            with suppress(GantryError):
                await topics.create_topic(
                    client,  # type: ignore[arg-type]
                    VISITS,
                    queues=QUEUES,
                    cluster=None,
                    attributes={MESSAGE_TYPE: LITE_TYPE, EXPIRATION: "1"},
                )
                return

    async def _look(self, line: Line, lite: str, last_us: dict[str, int]) -> None:
        """Raises Violation: a lite topic has ended before its time."""
        since_us = last_us.get(lite, -self._kept_us)
        found = await self._info(line, VISITS, lite)
        age_us = self._cluster.world.now_us - since_us + LATE_US
        if found is None or age_us > self._kept_us or not self._cluster.clocks_agree:
            return
        self._cluster.world.count("visited")
        if found.topic_offset.max_offset <= found.topic_offset.min_offset:
            raise Violation(f"{lite} has ended {age_us} us after its last message: {found}")

    async def _see_them_end(self, line: Line) -> None:
        """Until none is left."""
        while True:
            answer = await line.insist(RequestCode.GET_PARENT_TOPIC_INFO, {"topic": VISITS})
            if not decode_body(ParentTopicInfo, answer.body).lite_topic_count:
                break
            await asyncio.sleep(0.5)
        self._cluster.world.count("visits-over")

    async def _info(self, line: Line, parent: str, lite: str) -> LiteTopicInfo | None:
        """What a master says of a lite topic; None if nobody does."""
        ext = {"parentTopic": parent, "liteTopic": lite}
        answer = await line.ask(RequestCode.GET_LITE_TOPIC_INFO, ext, within_s=WITHIN_S)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return None
        return decode_body(LiteTopicInfo, answer.body)

    # ---- questions

    async def _ask_about(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            while not (self._stops or self._lites.is_set_up):
                await asyncio.sleep(0.1)
            while not self._stops:
                await asyncio.sleep(rng.random() * 0.3)
                match rng.choice(["lite", "lite", "client", "client", "all", *3 * ["nonsense"]]):
                    case "lite":
                        await self._ask_of_lite(line, rng.choice(LITES))
                    case "client":
                        await self._ask_of_client(line, rng)
                    case "all":
                        await self._ask_of_all(line)
                    case "nonsense":
                        await self._ask_nonsense(line, rng)
        self._busy -= 1

    async def _ask_of_lite(self, line: Line, lite: str) -> None:
        """Raises Violation: something that was acknowledged is not there."""
        least = self._lites.acknowledged(lite)
        found = await self._info(line, PARENT, lite)
        if found is None:
            return
        self._cluster.world.count("asked of lites")
        place = found.topic_offset
        if not 0 <= place.min_offset <= place.max_offset or place.max_offset < least:
            raise Violation(f"{least} were acknowledged in {lite}, and it is {found}")
        strangers = {one.group for one in found.subscriber} - GROUPS.keys()
        if strangers:
            raise Violation(f"{strangers} are said to take {lite}")

    async def _ask_of_client(self, line: Line, rng: Random) -> None:
        """Raises Violation: a client is said to take what it has left."""
        group = rng.choice([name for name in GROUPS if name != ALL])
        name = f"lite-{group}-{rng.randrange(CLIENTS[group])}"
        left = self._lites.surely_left(group, name)
        if rng.random() < 0.3:
            code, woken = RequestCode.TRIGGER_LITE_DISPATCH, {"group": group, "clientId": name}
            await self._answer(line, code, woken if rng.random() < 0.5 else {"group": group})
        ext = {"parentTopic": PARENT, "group": group, "clientId": name}
        body = await self._answer(line, RequestCode.GET_LITE_CLIENT_INFO, ext)
        if body is None:
            return
        self._cluster.world.count("asked of clients")
        wrong = left & set(decode_body(LiteClientInfo, body).lite_topic_set)
        wrong &= self._lites.surely_left(group, name)  # it has not come back meanwhile
        if wrong:
            raise Violation(f"{name} has left {wrong}, and is said to take them")

    async def _ask_of_all(self, line: Line) -> None:
        """Raises Violation: a figure is below what is known."""
        lites = sum(self._lites.acknowledged(lite) > 0 for lite in LITES)
        body = await self._answer(line, RequestCode.GET_PARENT_TOPIC_INFO, {"topic": PARENT})
        if body is not None:
            found = decode_body(ParentTopicInfo, body)
            if found.lite_topic_count < lites or set(found.groups) - GROUPS.keys():
                raise Violation(f"{PARENT} has {lites} lite topics for {list(GROUPS)}: {found}")
        body = await self._answer(line, RequestCode.GET_BROKER_LITE_INFO, {})
        if body is not None and decode_body(BrokerLiteInfo, body).current_lmq_num < lites:
            raise Violation(f"there are {lites} lite topics at least: {body!r}")

    async def _ask_nonsense(self, line: Line, rng: Random) -> None:
        """Raises Violation: what means nothing is called done."""
        action, group, parent, lites = rng.choice(BRIEF_WORDS)
        word = {
            "action": action, "clientId": "nobody", "group": group, "topic": parent,
            "liteTopicSet": lites,
        }  # fmt: skip
        if word["liteTopicSet"] == ["l0"] and group == "agents":
            word["offsetOption"] = {"type": "NOWHERE", "value": 1}
        words = rng.choice([[], [word], [word], [word], [word] * 40])
        wish: Body | dict[str, object] = {"subscriptionSet": words}
        bodies = [b"", *3 * [json.dumps(wish).encode()]]
        asked = [(RequestCode.LITE_SUBSCRIPTION_CTL, {}, body) for body in bodies]
        asked += [
            (RequestCode.GET_PARENT_TOPIC_INFO, {"topic": name}, b"") for name in ("orders", "none")
        ]
        code, ext, body = rng.choice(asked)
        answer = await line.ask(code, ext, body, WITHIN_S)
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            raise Violation(f"{code.name} {ext} {body!r} is answered {answer}")
        self._cluster.world.count("lite nonsense")

    async def _answer(self, line: Line, code: RequestCode, ext: dict[str, str]) -> bytes | None:
        answer = await line.ask(code, ext, within_s=WITHIN_S)
        is_answer = answer is not None and answer.code == ResponseCode.SUCCESS
        return answer.body if is_answer and answer is not None else None
