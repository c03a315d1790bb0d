"""Clients that send what no broker may take, and take back what is not theirs to take back.

It is refused for what it is, whoever is master, and nothing of it is stored.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_cli.client.session import session
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.lite import LITE_TOPIC
from gantry_protocol.recall import RecallHandle
from sim.kernel.world import Violation
from sim.product.cluster import GROUP
from sim.product.line import TOPIC, Line, send_ext
from sim.product.machines import EPOCH_S
from sim.product.workload import Clients

if TYPE_CHECKING:
    from random import Random

    from sim.product.cluster import Node

Asked = tuple[RequestCode, dict[str, object], bytes]
HALF, ROLLED_BACK = 4, 12  # system flags
LATER_MS = 4_000


class BadSenders(Clients):
    """See the module."""

    unsettled = "bad sends are not answered"

    def start(self) -> None:
        """Begin."""
        self._cluster.client("bad-sender", self._send).boot()

    async def _send(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            while not self._stops:
                await asyncio.sleep(rng.random() * 0.3)
                code, ext, body = rng.choice([self._bad_send, self._bad_recall])(rng)
                answer = await line.ask(code, ext, body)
                if answer is not None and answer.code == ResponseCode.SUCCESS:
                    raise Violation(f"{code.name} {ext} with {len(body)} bytes is taken")
                self._cluster.world.count("bad-send")
        self._busy -= 1

    def _bad_send(self, rng: Random) -> Asked:
        """A send with one thing that cannot be."""
        key = f"{rng.getrandbits(128):032X}"
        good = send_ext(TOPIC, key)
        wrong: list[tuple[dict[str, object], bytes]] = [
            ({}, b""),
            ({"b": ""}, b"x"),
            ({"b": "x" * 300}, b"x"),
            ({"b": "no topic"}, b"x"),
            ({"b": "SCHEDULE_TOPIC_XXXX"}, b"x"),
            ({"f": ROLLED_BACK}, b"x"),
            ({"f": HALF, "i": f"{good['i']}TRAN_MSG\x01true\x02"}, b"x"),  # of no producer group
            ({"m": True}, b"no batch"),
            ({"m": True, "b": "%RETRY%workers"}, b"no batch"),
            ({"i": f"{good['i']}{LITE_TOPIC}\x01l0\x02"}, b"x"),  # of a topic that has none
            ({"i": f"{good['i']}LONG\x01{'x' * 40_000}\x02"}, b"x"),
            ({"e": 1_000}, b"x"),
            ({"m": True, "b": "y" * 130}, b"no batch"),
            ({"i": f"{good['i']}TIMER_DEL_UNIQKEY\x01{key}\x02"}, b"x"),
            ({"i": f"{good['i']}TRAN_MSG\x01true\x02DELAY\x011\x02", "f": HALF}, b"x"),
        ]
        more, body = rng.choice(wrong)
        return RequestCode.SEND_MESSAGE_V2, {**good, **more}, body

    def _bad_recall(self, rng: Random) -> Asked:
        """A handle that nobody was given."""
        now_ms = int(EPOCH_S * 1_000) + self._cluster.world.now_us // 1_000
        key = f"{rng.getrandbits(128):032X}"
        handles = [
            "nonsense",
            RecallHandle("nobody", GROUP, now_ms + LATER_MS, key).pack(),
            RecallHandle(TOPIC, "another", now_ms + LATER_MS, key).pack(),
            RecallHandle(TOPIC, GROUP, 1, key).pack(),
            RecallHandle(TOPIC, GROUP, now_ms + LATER_MS, "?").pack(),
        ]
        ext = {"topic": TOPIC, "recallHandle": rng.choice(handles), "producerGroup": "pg"}
        return RequestCode.RECALL_MESSAGE, ext, b""
