"""A thousand masters die in the same instant: until every group has a new one.

Each master has a connection to every controller and an address of its own. They die together: the
connections are cut, the addresses refuse. The survivors of a group share a listener, and count as
told when NotifyBrokerRoleChanged names a newer epoch there; those that were not told are asked
about with GetReplicaInfo. So the figure ends when the last group's survivors know, or could know,
their new master.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from time import perf_counter
from typing import TYPE_CHECKING, cast

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import FrameError, GantryError, RemotingError
from gantry_protocol.frame import FrameDecoder, encode
from gantry_protocol.hosts import split_address
from gantry_protocol.remoting.client import RemotingClient

from gantry_lab.bench.controller.throughput import PREPARE_PATIENCE_S, THREE
from gantry_lab.bench.controller.work import Births, Widenings, heartbeat, name
from gantry_lab.bench.load import FrameLoad

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_lab.bench.controller.target import Controllers
    from gantry_lab.bench.results import Runs
    from gantry_lab.bench.stage import BenchStage

HOST = "127.0.0.1"
SLOTS = 64
LIMIT_S = 120.0
HEARD_S = 60.0
ASK_S = 0.25  # between two looks at groups that were not told
FIRST_EPOCH = 1


async def failovers(stage: BenchStage, groups: int) -> Runs:
    """Seconds until the last group has a new master; each run has groups of its own.

    Raises:
        GantryError: a group has none within `LIMIT_S`; says how many.
    """
    firsts = iter(range(0, stage.steps * groups, groups))
    async with stage.controllers() as target:

        async def once() -> dict[str, float]:
            first = next(firsts)
            disaster = Disaster(target, range(first, first + groups))
            try:
                await disaster.prepare()
                return {"seconds": await disaster.strike()}
            finally:
                await disaster.close()

        return await stage.repeat(once)


class MassListener(asyncio.Protocol):
    """One broker's port: takes role changes, oneway, and answers what wants an answer."""

    def __init__(self, told: Callable[[int], None]) -> None:
        self._told = told
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A controller has something to say."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """The epoch of each role change."""
        assert self._transport is not None
        try:
            commands = self._decoder.feed(data)
        except FrameError:
            self._transport.abort()
            return
        for command in commands:
            if command.code == RequestCode.NOTIFY_BROKER_ROLE_CHANGED:
                self._told(int((command.ext or {}).get("masterEpoch", "0")))
            if not command.is_oneway:
                self._transport.write(encode(RemotingCommand(opaque=command.opaque, flag=1)))


class Disaster:
    """One run; ``close`` it in the end."""

    def __init__(self, target: Controllers, groups: range) -> None:
        self._target = target
        self._groups = groups
        self._masters: dict[int, asyncio.Server] = {}
        self._survivors: dict[int, asyncio.Server] = {}
        self._lines: list[asyncio.Transport] = []  # the masters' connections
        self._calm: list[asyncio.Transport] = []  # the survivors'
        self._waiting: set[int] = set()
        self._all = asyncio.Event()

    async def prepare(self) -> None:
        """Every group in sync, every master on connections of its own.

        Raises:
            GantryError: a controller refused.
        """
        loop = asyncio.get_running_loop()
        for group in self._groups:
            self._masters[group] = await loop.create_server(asyncio.Protocol, HOST, 0)
            self._survivors[group] = await loop.create_server(
                lambda group=group: MassListener(lambda epoch: self._told(group, epoch)),  # type: ignore[misc]
                HOST,
                0,
            )
        births = Births(SLOTS, self._groups, replicas=THREE, address=self._address)
        leader = await self._target.leader()
        with closing(FrameLoad(births, [leader], SLOTS)) as load:
            await load.finish(PREPARE_PATIENCE_S)
            for address in await self._target.members():
                await self._beat(address)
            await self._heard(leader)
            load.work = Widenings(SLOTS, self._groups)
            await load.finish(PREPARE_PATIENCE_S)

    async def strike(self) -> float:
        """Kill the masters; seconds until the last group has a new one.

        Raises:
            GantryError: that takes too long.
        """
        self._waiting = set(self._groups)
        begun = perf_counter()
        for line in self._lines:
            line.abort()
        for server in self._masters.values():
            server.close()
        asking = asyncio.create_task(self._ask())
        try:
            async with asyncio.timeout(LIMIT_S):
                await self._all.wait()
        except TimeoutError:
            raise GantryError(
                f"{len(self._waiting)} of {len(self._groups)} groups had no new master within "
                f"{LIMIT_S:.0f} s."
            ) from None
        finally:
            asking.cancel()
            await asyncio.wait([asking])
        return perf_counter() - begun

    async def close(self) -> None:
        """End what is left."""
        for line in (*self._lines, *self._calm):
            line.abort()
        for server in (*self._masters.values(), *self._survivors.values()):
            server.close()

    # ---- inside

    def _address(self, group: int, broker_id: int) -> str:
        servers = self._masters if broker_id == 1 else self._survivors
        return f"{HOST}:{servers[group].sockets[0].getsockname()[1]}"

    async def _beat(self, address: str) -> None:
        """One heartbeat each, for long: what is measured does not wait for time to pass."""
        loop = asyncio.get_running_loop()
        host, port = split_address(address)
        calm, _ = await loop.create_connection(asyncio.Protocol, host, port)
        self._calm.append(calm)
        for group in self._groups:
            line, _ = await loop.create_connection(asyncio.Protocol, host, port)
            self._lines.append(line)
            line.write(heartbeat(0, group, 1, self._address(group, 1)))
            for broker_id in (2, 3):
                calm.write(heartbeat(0, group, broker_id, self._address(group, broker_id)))

    async def _heard(self, leader: str) -> None:
        """Until the leader counts every replica as alive (1006).

        Raises:
            GantryError: that takes too long.
        """
        names = json.dumps([name(group) for group in self._groups]).encode()
        client = RemotingClient()
        await client.connect(leader)
        try:
            async with asyncio.timeout(HEARD_S):
                while True:
                    question = request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=names)
                    answer = await client.call(question, HEARD_S)
                    if answer.body.count(b'"alive":true') == THREE * len(self._groups):
                        return
                    await asyncio.sleep(ASK_S)
        except TimeoutError:
            message = f"The leader did not hear every broker within {HEARD_S:.0f} s."
            raise GantryError(message) from None
        finally:
            client.close()

    def _told(self, group: int, epoch: int) -> None:
        if epoch > FIRST_EPOCH:
            self._waiting.discard(group)
            if not self._waiting:
                self._all.set()

    async def _ask(self) -> None:
        """GetReplicaInfo about groups whose survivors were not told."""
        while True:
            await asyncio.sleep(ASK_S)
            client = RemotingClient()
            try:
                await client.connect(await self._target.leader())
                waiting = sorted(self._waiting)
                for start in range(0, len(waiting), SLOTS):
                    part = waiting[start : start + SLOTS]
                    await asyncio.gather(*(self._look(client, group) for group in part))
            except (RemotingError, GantryError):
                continue  # asked again
            finally:
                client.close()

    async def _look(self, client: RemotingClient, group: int) -> None:
        ext = {"brokerName": name(group)}
        answer = await client.call(request(RequestCode.CONTROLLER_GET_REPLICA_INFO, ext))
        found = answer.ext or {}
        if answer.code == ResponseCode.SUCCESS and "masterBrokerId" in found:
            self._told(group, int(found["masterEpoch"]))
