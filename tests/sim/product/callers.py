"""Clients that wait for replies, and others who send these: request and reply.

A reply that was answered 0 is one that its client has taken, whoever is master by then. One that
its client does not take, or for a client that is nowhere, or that names none, is refused.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_cli.client.session import session
from gantry_protocol.bodies import encode_body
from gantry_protocol.bodies.client import HeartbeatData, ProducerData
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import reply
from gantry_protocol.records import decode_properties
from gantry_protocol.records.properties import REPLY_TO_CLIENT, UNIQ_KEY
from sim.kernel.world import Violation
from sim.product.line import Line, send_ext
from sim.product.workload import Clients

if TYPE_CHECKING:
    from gantry_protocol.command import RemotingCommand
    from gantry_protocol.remoting.client import RemotingClient
    from sim.product.cluster import Cluster, Node

CALLER, NOBODY = "caller", "nobody"
REPLIES = "c_REPLY_TOPIC"
HEARTBEAT = encode_body(HeartbeatData(CALLER, [ProducerData("callers")], []))
HEARTBEAT_S = 1.0
WITHIN_S = 4.0  # longer than a client is waited for


class Callers(Clients):
    """See the module."""

    unsettled = "replies are not answered"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._taken: set[str] = set()  # replies that their client has got

    def start(self) -> None:
        """Begin."""
        self._cluster.client(CALLER, self._wait).boot()
        self._cluster.client("replier", self._reply).boot()

    async def _wait(self, node: Node) -> None:
        """Be there, and take what comes."""
        greeting = (RequestCode.HEART_BEAT, HEARTBEAT)
        async with session(self._cluster.name_servers) as client:
            line = Line(client, on_request=self._given, greeting=greeting)
            while True:
                await line.ask(greeting[0], {}, greeting[1])
                await asyncio.sleep(HEARTBEAT_S)

    def _given(self, line: RemotingClient, command: RemotingCommand) -> RemotingCommand | None:
        if command.code != RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            return None
        found = decode_properties((command.ext or {}).get("properties", ""))
        if int(found[UNIQ_KEY].rpartition("-")[2]) % 3 == 0:
            return reply(command, ResponseCode.SYSTEM_ERROR, "nobody waits for it any more")
        self._taken.add(found[UNIQ_KEY])
        return reply(command)

    async def _reply(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        number = 0
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            while not self._stops:
                await asyncio.sleep(rng.random() * 0.3)
                number += 1
                key, whose = f"{node.name}-{number}", rng.choice([CALLER, CALLER, NOBODY, ""])
                named = f"{REPLY_TO_CLIENT}\x01{whose}\x02" if whose else ""
                ext = send_ext(REPLIES, key, 0, named)
                code = RequestCode.SEND_REPLY_MESSAGE_V2
                answer = await line.ask(code, ext, b"reply", WITHIN_S)
                if answer is None or answer.code != ResponseCode.SUCCESS:
                    continue
                if key not in self._taken:
                    raise Violation(f"a reply to {whose!r} is answered 0, and nobody has it")
                self._cluster.world.count("replied")
        self._busy -= 1
