"""A reset of a group that pops a mapped topic, at two real broker groups that have a part each."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_cli.client.progress import Target, plan_reset, reset
from gantry_cli.client.session import session
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import GantryError
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import send_command
from support.patience import PATIENCE_S
from support.pops import POP, named, receipts
from support.two_groups import FAR, NEAR, TwoGroups, answered

from .test_mapped_topics import TOPIC, as_java, moved

GROUP = "poppers"
FIRST, LATER = ("a", "b", "c"), ("d", "e", "f")  # before the queue moves, and after


class Member:
    """Pops from one broker group, and acknowledges there."""

    def __init__(self, client: RemotingClient, name: str) -> None:
        self._client, self._name = client, name

    async def ask(self, code: int, **ext: object) -> RemotingCommand:
        asked = request(code, {name: str(value) for name, value in ext.items()})
        return await self._client.call(as_java(asked), PATIENCE_S)

    async def pop(self) -> dict[str, str]:
        """The bodies of what was handed out, and the receipt of each."""
        own: dict[str, object] = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
        answer = await self.ask(RequestCode.POP_MESSAGE, **{**POP, **own, "pollTime": 2_000})
        found = {} if answer.code == ResponseCode.POLLING_TIMEOUT else receipts(answer)
        return {body: text.replace("broker-a", self._name) for body, text in found.items()}

    async def ack(self, receipt: str) -> int:
        own = {"consumerGroup": GROUP, "topic": TOPIC}
        return (await self.ask(RequestCode.ACK_MESSAGE, **{**named(receipt), **own})).code

    async def reset(self, offset: int) -> RemotingCommand:
        return await self.ask(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            topic=TOPIC, group=GROUP, timestamp=-1, isForce=True, queueId=0, offset=offset,
        )  # fmt: skip


async def test_a_reset_brings_back_what_is_acknowledged_in_each_group(tmp_path: Path) -> None:
    async with TwoGroups(tmp_path) as cluster:
        for address in cluster.masters.values():
            await answered(address, request(RequestCode.GET_BROKER_RUNTIME_INFO))
        await moved(cluster, dict.fromkeys(range(4), NEAR))
        for place, bodies in ((NEAR, FIRST), (FAR, LATER)):
            await moved(cluster, {0: place})
            for body in bodies:
                command = as_java(send_command(body.encode(), TOPIC, 0))
                await answered(cluster.masters[place], command)
        clients = {
            name: await RemotingClient().connect(address)
            for name, address in cluster.masters.items()
        }
        try:
            near, far = (Member(clients[name], name) for name in (NEAR, FAR))
            before: dict[str, str] = {}
            for member, bodies in ((near, FIRST), (far, LATER)):
                found = await member.pop()
                assert list(found) == list(bodies)
                for body in bodies[1:]:  # the first one is in flight
                    assert await member.ack(found[body]) == 0
                before |= found

            # An offset of the first part: the group of the later one has all of its own again.
            for member in (near, far):
                assert (await member.reset(2)).code == 0
            assert list(await near.pop()) == ["c"]
            assert list(await far.pop()) == list(LATER)
            assert await far.ack(before["d"]) == ResponseCode.NO_MESSAGE

            # One of the later part: what the other group has is done.
            for member in (near, far):
                assert (await member.reset(4)).code == 0
            assert await near.pop() == {}
            assert list(await far.pop()) == ["e", "f"]

            # One that no group has is refused by the one that would have it.
            assert (await far.reset(7)).code == ResponseCode.INVALID_PARAMETER

            # The command line names the ends itself.
            async with session((cluster.name_server,)) as tool:
                for offset, ends in ((2, {NEAR: 2, FAR: 3}), (5, {NEAR: 3, FAR: 5})):
                    target = Target(offset=offset)
                    moves = await plan_reset(tool, GROUP, TOPIC, target, queue=0)
                    assert {move.broker_group: move.after for move in moves} == ends
                    await reset(tool, GROUP, moves)
                with pytest.raises(GantryError, match="Offset 7 is not in queue 0"):
                    await plan_reset(tool, GROUP, TOPIC, Target(offset=7), queue=0)
            assert list(await far.pop()) == ["f"]
        finally:
            for client in clients.values():
                client.close()
