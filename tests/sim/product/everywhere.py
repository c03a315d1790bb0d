"""Members of a consumer group that consume from all broker groups, and lose connections to some.

Each member keeps a connection to the master of every group, heartbeats on it, and asks who else is
a member (38), as RocketMQ's clients do. Now and then it stays away from one master for a while: as
long as another one hears it, it is a member at each. At the end one member never comes back to one
of the masters, and one has left for good: all masters name the same members, and all who stayed.
The one who left may still be named: a connection that was reset while the network was cut stays
open at the broker until its client has been silent for two minutes.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from gantry_cli.client.session import session
from gantry_protocol.bodies import (
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    SubscriptionData,
    decode_body,
    encode_body,
)
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.errors import GantryError
from sim.kernel.world import Violation
from sim.product.line import TOPIC, Line

if TYPE_CHECKING:
    from gantry_protocol.command import RemotingCommand
    from gantry_protocol.remoting.client import RemotingClient
    from sim.product.cluster import Cluster, Node

MEMBERS = 4
NAME = "everywhere"
HEARTBEAT_S = 1.0
SAME_FOR_S = 5.0


class Everywhere:
    """See the module."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stops = False
        self._names = [f"member-{number}" for number in range(MEMBERS)]
        # By who asks and whom: the answer, and since when it has been the same.
        self._told: dict[tuple[str, str], tuple[list[str], int]] = {}

    def start(self) -> None:
        """Begin."""
        for name in self._names:
            self._cluster.client(name, self._consume).boot()

    def stop_sending(self) -> None:
        """From now on only what is said in the module is missing."""
        self._stops = True

    @property
    def is_settled(self) -> bool:
        return self._stops and bool(self._groups()) and not self._differing()

    def judge(self) -> None:
        """Raises Violation: two masters name other members."""
        if not self.is_settled:
            raise Violation(f"masters do not agree on {self._staying()}: {self._differing()}")

    def _staying(self) -> list[str]:
        return self._names[:-1]

    def _groups(self) -> list[str]:
        """The groups that have the topic; one that was declared after it has not."""
        found = map(self._cluster.controller_of, self._cluster.controllers)
        return next(
            ([name for _, name in one.machine.state.groups_with(TOPIC)] for one in found if one), []
        )

    def _is_away(self, member: str, group: str) -> bool:
        """Whether, at the end, a member has no connection to the master of a group."""
        first, *others = self._groups()
        return bool(others) and (member, group) == (self._names[0], first)

    def _differing(self) -> dict[tuple[str, str], list[str]]:
        """What is told at the end, unless that is the same everywhere; empty once it is."""
        settled_us = self._cluster.world.now_us - SAME_FOR_S * 1e6
        told = {
            (member, group): self._told.get((member, group), ([], sys.maxsize))
            for member in self._staying()
            for group in self._groups()
            if not self._is_away(member, group)
        }
        lists = {tuple(names) for names, _ in told.values()}
        if len(lists) == 1 and lists.pop()[: len(self._staying())] == tuple(self._staying()):
            told = {who: answer for who, answer in told.items() if answer[1] > settled_us}
        return {who: names for who, (names, _) in told.items()}

    async def _consume(self, node: Node) -> None:
        async with session(self._cluster.name_servers) as client:
            data = HeartbeatData(
                node.name,
                consumer_data_set=[
                    ConsumerData(NAME, subscription_data_set=[SubscriptionData(TOPIC)])
                ],
            )
            heartbeat = encode_body(data)
            lines = {
                group: Line(
                    client,
                    on_request=_heard,
                    greeting=(RequestCode.HEART_BEAT, heartbeat),
                    group=group,
                )
                for group in self._cluster.groups
            }
            async with asyncio.TaskGroup() as tasks:
                for group, line in lines.items():
                    tasks.create_task(self._speak(node, group, line, heartbeat))

    async def _speak(self, node: Node, group: str, line: Line, heartbeat: bytes) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}/{group}")
        while True:
            leaves = self._stops and node.name not in self._staying()
            if leaves or (self._stops and self._is_away(node.name, group)):
                line.hang_up()
                return
            if not self._stops and rng.random() < 0.1:
                self._cluster.world.count("member-away")
                line.hang_up()
                await asyncio.sleep(rng.choice([0.5, 3.0, 8.0]))
            try:
                await line.ask(RequestCode.HEART_BEAT, {}, heartbeat)
                answer = await line.ask(
                    RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": NAME}
                )
            except GantryError:
                line.hang_up()
                continue
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                self._tells(node.name, group, answer.body)
            await asyncio.sleep(HEARTBEAT_S * (0.5 + rng.random()))

    def _tells(self, member: str, group: str, body: bytes) -> None:
        now_us = self._cluster.world.now_us
        told = sorted(decode_body(ConsumerIdList, body).consumer_id_list)
        known, since_us = self._told.get((member, group), ([], now_us))
        self._told[member, group] = (told, since_us if told == known else now_us)


def _heard(line: RemotingClient, request: RemotingCommand) -> RemotingCommand | None:
    """NotifyConsumerIdsChanged (40) is for the next round."""
    return None
