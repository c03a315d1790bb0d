"""Strangers who connect to any port and send what is no request, or half of one, or none at all.

Some say what only a master may say, about a group that is there.

They are answered with a refusal or cut off, and harm nobody: a fault of the product's own that they
meet ends the run (``bindings``), and so does an answer that calls their nonsense done.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import request
from gantry_protocol.errors import GantryError
from gantry_protocol.frame import FrameDecoder, encode
from sim.kernel.world import Violation
from sim.product.cluster import CLUSTER, GROUP

if TYPE_CHECKING:
    from random import Random

    from sim.product.cluster import Cluster, Node

CONTROLLER_PORTS = (9876, 9878, 9879, 9880)
BROKER_PORTS = (10911, 10912, 10913)
PATIENCE_S = 1.0
CODES = (
    10,
    11,
    34,
    36,
    37,
    41,
    105,
    200,
    310,
    320,
    1001,
    1002,
    1003,
    1004,
    1011,
    1012,
    1013,
    31001,
    31002,
    31003,
    31004,
    31005,
    31007,
    31008,
    31009,
    31010,
    31011,
    31012,
    9_999,
)
OF_MASTERS = (1001, 31001, 31009, 31011)  # whoever sends one says that it is the master


class Strangers:
    """See the module."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def start(self) -> None:
        """Begin, and never end."""
        self._cluster.client("stranger", self._come).boot()

    async def _come(self, node: Node) -> None:
        rng = self._cluster.world.stream("stranger")
        while True:
            await asyncio.sleep(rng.random() * 0.4)
            asked = rng.choice([*self._cluster.controllers, *self._cluster.brokers])
            is_controller = asked in self._cluster.controllers
            port = rng.choice(CONTROLLER_PORTS if is_controller else BROKER_PORTS)
            with suppress(OSError, EOFError):  # TimeoutError is one
                async with asyncio.timeout(PATIENCE_S):
                    await self._say(asked.machine.address, port, rng)

    async def _say(self, address: str, port: int, rng: Random) -> None:
        reader, writer = await asyncio.open_connection(address, port)
        try:
            writer.write(_nonsense(rng))
            self._cluster.world.count("stranger")
            data = await reader.read(64 * 1024)
        finally:
            writer.transport.abort()
        with suppress(GantryError):
            for answer in FrameDecoder(expect_preamble=False).feed(data):
                if answer.is_response and answer.code == ResponseCode.SUCCESS:
                    raise Violation(f"{address}:{port} takes nonsense: {answer}")


def _claim(rng: Random) -> dict[str, str]:
    """What a broker would say that takes itself for the master of a group."""
    broker_id, epoch = str(rng.randrange(5)), str(rng.choice([0, 1, 2, 99]))
    return {
        "clusterName": CLUSTER,
        "brokerName": GROUP,
        "brokerId": broker_id,
        "masterBrokerId": broker_id,
        "masterEpoch": epoch,
        "incarnation": "nobody",
    }


def _nonsense(rng: Random) -> bytes:
    """What somebody might send."""
    body = rng.randbytes(rng.choice([0, 1, 40]))
    command = encode(request(rng.choice(CODES), {"queueId": "x", "topic": ""}, body))
    claim = encode(request(rng.choice(OF_MASTERS), _claim(rng), rng.choice([body, b"{}"])))
    header = json.dumps({"code": "ten", "flag": [], "opaque": 2**70}).encode()
    return rng.choice(
        [
            b"",
            rng.randbytes(rng.choice([1, 8, 500])),
            command,
            command,
            claim,
            claim,
            command[: rng.randrange(len(command))],
            len(header + body).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body,
            (2**31 - 1).to_bytes(4, "big") + b"x",
            b"\xff" * 8,
            b"GET /" + b"x" * 9_000 + b" HTTP/1.1\r\n\r\n",
            b"POST /v1/groups/c/g/elect HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
            b"PUT /v1/groups/c/g HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n{",
            b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + command,
            b"PROXY nonsense\r\n",
        ]
    )
