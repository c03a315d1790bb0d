"""Clients who say where they begin in a lite topic, leave and come back, or take it from another.

Who begins behind what is there is given none of it, and all that follows; who begins at an offset,
which is a place in the log, is given what stands there, and all behind. Who comes back to a group
that begins anew is given all of it again. In a group where each lite topic has one client, who
takes it is given all that is kept, and the other one nothing of it from then on, also where that
one names all that it wants.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gantry_cli.client import topics
from gantry_cli.client.session import session
from gantry_protocol.bodies import SubscriptionGroupConfig, encode_body
from gantry_protocol.bodies.lite import OFFSET, POLICY, POLICY_MAX, POLICY_MIN
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.errors import GantryError
from gantry_protocol.lite import LITE_TOPIC, LITE_TYPE
from gantry_protocol.records import decode_offset_msg_id, decode_records
from gantry_protocol.settings.lite import (
    BIND_TOPIC,
    RESET_EXCLUSIVE,
    RESET_UNSUBSCRIBE,
    SUB_MODEL,
)
from gantry_protocol.settings.priority import MESSAGE_TYPE
from sim.kernel.world import Violation
from sim.product.line import Line, send_ext
from sim.product.lites import QUEUES, WITHIN_S, taken_of
from sim.product.workload import Clients

if TYPE_CHECKING:
    from random import Random

    from gantry_cli.client.session import Session
    from gantry_protocol.command import RemotingCommand
    from gantry_protocol.remoting.client import RemotingClient
    from sim.product.cluster import Cluster, Node
    from sim.product.workload import Told

PARENT = "choices"
CHOOSERS, SOLE = "choosers", "sole"
GROUPS = {
    CHOOSERS: {BIND_TOPIC: PARENT, RESET_UNSUBSCRIBE: "true"},
    SOLE: {BIND_TOPIC: PARENT, SUB_MODEL: "Exclusive", RESET_EXCLUSIVE: "true"},
}
BEFORE, AFTER = 3, 2  # messages of a lite topic before somebody subscribes, and after that
SKIPPED = 2  # of those before, by who names an offset
BEGINNINGS: tuple[tuple[str, int, int], ...] = (  # type, value, and messages that are not given
    (POLICY, POLICY_MIN, 0),
    (POLICY, POLICY_MAX, BEFORE),
    (OFFSET, 0, SKIPPED),  # the value is where the next message stands
)
NOTHING_S = 1.0  # for which one who has lost a lite topic asks for it


class LiteChoices(Clients):
    """See the module.

    Args:
        cluster: where.
        watch: is told of every acknowledgement of a producer.
    """

    unsettled = "messages of lite topics that were chosen do not come"

    def __init__(self, cluster: Cluster, watch: Told) -> None:
        super().__init__(cluster)
        self._watch = watch
        self._number = 0
        self._places: dict[str, int] = {}  # of messages, in the log

    def start(self) -> None:
        """Begin."""
        self._busy += 1
        self._cluster.client("lite-chooser", self._run).boot()

    async def _run(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        async with session(self._cluster.name_servers) as client:
            lines = [Line(client, on_request=self._told) for _ in range(2)]
            await self._set_up(lines[0], client)
            while not self._stops:
                await rng.choice([self._choose, self._take_over])(lines, rng)
                await asyncio.sleep(rng.random())
        self._busy -= 1

    async def _set_up(self, line: Line, client: Session) -> None:
        while True:
            with suppress(GantryError):
                await topics.create_topic(
                    client,
                    PARENT,
                    queues=QUEUES,
                    cluster=None,
                    attributes={MESSAGE_TYPE: LITE_TYPE},
                )
                break
        for group, attributes in GROUPS.items():
            config = SubscriptionGroupConfig(group, retry_max_times=1_000, attributes=attributes)
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            await line.insist(code, {}, encode_body(config))

    def _told(self, line: RemotingClient, command: RemotingCommand) -> None:
        if command.code == RequestCode.NOTIFY_UNSUBSCRIBE_LITE:
            self._cluster.world.count("lite lost")

    # ---- stories

    async def _choose(self, lines: Sequence[Line], rng: Random) -> None:
        """Raises Violation: something is given that was skipped."""
        line, _ = lines
        lite = self._new()
        kind, value, skipped = rng.choice(BEGINNINGS)
        keys = await self._send(line, lite, BEFORE, rng)
        if kind == OFFSET:
            value = self._places[keys[skipped]]
        option = {"type": kind, "value": value}
        word = self._word(CHOOSERS, "chooser", "PARTIAL_ADD", [lite])
        await self._say(line, {**word, "offsetOption": option})
        keys += await self._send(line, lite, AFTER, rng)
        found = await self._take(line, CHOOSERS, "chooser", keys[skipped:])
        if found & set(keys[:skipped]):
            raise Violation(f"who begins in {lite} at {option} is given {found} of {keys}")
        self._cluster.world.count(f"lite from {kind}, without {skipped}")
        await self._say(line, self._word(CHOOSERS, "chooser", "PARTIAL_REMOVE", [lite]))
        await self._say(line, self._word(CHOOSERS, "chooser", "PARTIAL_ADD", [lite]))
        await self._take(line, CHOOSERS, "chooser", keys)
        await self._say(line, self._word(CHOOSERS, "chooser", "COMPLETE_REMOVE", []))

    async def _take_over(self, lines: Sequence[Line], rng: Random) -> None:
        """Raises Violation: a client is given what another one has taken."""
        former, latter = lines
        mine, other = self._new(), self._new()
        keys = await self._send(former, mine, BEFORE, rng)
        await self._say(former, self._word(SOLE, "former", "PARTIAL_ADD", [mine]))
        await self._take(former, SOLE, "former", keys)
        await self._say(latter, self._word(SOLE, "latter", "PARTIAL_ADD", [mine]))
        keys += await self._send(latter, mine, AFTER, rng)
        await self._nothing_of(former, "former", mine)
        await self._say(former, self._word(SOLE, "former", "COMPLETE_ADD", [mine, other]))
        others = await self._send(former, other, AFTER, rng)
        if await self._take(former, SOLE, "former", others) - set(others):
            raise Violation(f"who has lost {mine} is given some of it beside {other}")
        await self._take(latter, SOLE, "latter", keys)
        self._cluster.world.count("lite taken over")
        for line, name in ((former, "former"), (latter, "latter")):
            await self._say(line, self._word(SOLE, name, "COMPLETE_REMOVE", []))

    async def _nothing_of(self, line: Line, name: str, lite: str) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + NOTHING_S
        while loop.time() < until_s:
            for taken in await self._pop(line, SOLE, name):
                if taken.place[0] == lite:
                    raise Violation(f"{name} has lost {lite}, and is given {taken}")

    # ---- parts of them

    def _new(self) -> str:
        self._number += 1
        return f"c{self._number}"

    async def _send(self, line: Line, lite: str, count: int, rng: Random) -> list[str]:
        """Send so many, each until it is acknowledged; their keys."""
        keys = []
        for _ in range(count):
            key = f"{rng.getrandbits(128):032X}"
            ext = send_ext(PARENT, key, rng.randrange(QUEUES), f"{LITE_TOPIC}\x01{lite}\x02")
            answer = await line.insist(RequestCode.SEND_MESSAGE_V2, ext, b"choice")
            offset_id = (answer.ext or {})["msgId"]
            self._watch.acknowledged(key, offset_id)
            self._places[key] = decode_offset_msg_id(offset_id)[1]
            keys.append(key)
        return keys

    @staticmethod
    def _word(group: str, name: str, action: str, lites: list[str]) -> dict[str, Any]:
        return {
            "action": action, "clientId": name, "group": group, "topic": PARENT,
            "liteTopicSet": lites,
        }  # fmt: skip

    async def _say(self, line: Line, word: dict[str, Any]) -> None:
        """Until it is heard."""
        body = json.dumps({"subscriptionSet": [word]}).encode()
        await line.insist(RequestCode.LITE_SUBSCRIPTION_CTL, {}, body)

    async def _take(self, line: Line, group: str, name: str, keys: Sequence[str]) -> set[str]:
        """Take and acknowledge until all of these have come; all that did."""
        found: set[str] = set()
        while not found.issuperset(keys):
            for taken in await self._pop(line, group, name):
                found.add(taken.place[1])
                await line.ask(RequestCode.ACK_MESSAGE, taken.ext, within_s=WITHIN_S)
        return found

    async def _pop(self, line: Line, group: str, name: str) -> list[Any]:
        asked = {
            "clientId": name, "consumerGroup": group, "topic": PARENT, "maxMsgNum": 32,
            "invisibleTime": 1_000, "pollTime": 300,
        }  # fmt: skip
        answer = await line.ask(RequestCode.POP_LITE_MESSAGE, asked, within_s=WITHIN_S)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            await asyncio.sleep(0.05)
            return []
        records = decode_records(answer.body)
        return [taken_of(answer, record, group, PARENT) for record in records]
