"""Real controllers in one process on loopback, and a scripted broker that speaks to them.

``Quorum`` starts, kills and restarts nodes; ``WireBroker`` is a broker of ours without a log: one
connection to each controller, heartbeats on all of them, a listener for role changes.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
from gantry_controller.server import Controller
from gantry_controller.settings import ControllerSettings
from gantry_lab.bench.ports import free_ports
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import RemotingError
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.remoting.server import Connection, RemotingServer
from support.patience import PATIENCE_S

TOKEN = "integration"
CLUSTER = "c"
NAME = "broker-a"
GROUP = {"clusterName": CLUSTER, "brokerName": NAME}


async def until(condition: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """Waits until ``condition()`` holds."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.005)


class Quorum:
    """The nodes of one quorum, by number."""

    def __init__(
        self,
        directory: Path,
        size: int = 3,
        make: type[Controller] = Controller,
        **settings: Any,
    ) -> None:
        self._make = make
        self.running: dict[int, Controller] = {}
        ports = free_ports(4 * size)
        chunks = [ports[4 * index : 4 * index + 4] for index in range(size)]
        peers = ",".join(
            f"{number}=127.0.0.1:{raft}:{remoting}:{http}"
            for number, (raft, remoting, http, _) in enumerate(chunks, start=1)
        )
        token = directory / "token"
        token.write_text(TOKEN + "\n")
        self.settings = {
            number: ControllerSettings(
                name=f"c-controller-{number - 1}",
                peers=peers,
                cluster_uid="uid",
                data_dir=directory / f"node-{number}",
                admin_token_file=token,
                raft_port=raft,
                remoting_port=remoting,
                http_port=http,
                nameserver_port=nameserver,
                allow_unauthenticated=True,  # tests speak to it as Java brokers do
                **{"election_timeout_ms": 200, **settings},
            )
            for number, (raft, remoting, http, nameserver) in enumerate(chunks, start=1)
        }

    async def start(self, *numbers: int) -> None:
        for number in numbers or tuple(self.settings):
            controller = self._make(self.settings[number])
            self.running[number] = controller
            await controller.start()

    async def stop(self, *numbers: int) -> None:
        """Ends nodes; to the others it looks like a kill, since nothing is handed over.

        A founder that came late does not vote before it is admitted (``raft.admission``). Those who
        stay wait for that, or one that is stopped then would leave a quorum of one.
        """
        if numbers:
            staying = [one for number, one in self.running.items() if number not in numbers]
            await until(lambda: all(one.node.is_voter for one in staying))
        stopping = [self.running.pop(number) for number in numbers or tuple(self.running)]
        await asyncio.gather(*(controller.stop() for controller in stopping))

    @property
    def leader(self) -> Controller | None:
        leaders = [one for one in self.running.values() if one.node.is_serving_leader]
        return max(leaders, key=lambda one: one.node.term, default=None)

    async def led(self) -> Controller:
        """The leader, once there is one that every running node knows."""

        def known() -> bool:
            leader = self.leader
            return leader is not None and all(
                one.node.leader_id == leader.node.node_id for one in self.running.values()
            )

        await until(known)
        assert self.leader is not None
        return self.leader

    def followers(self) -> list[Controller]:
        return [one for one in self.running.values() if not one.node.is_serving_leader]

    def remoting(self, number: int) -> str:
        return f"127.0.0.1:{self.settings[number].remoting_port}"

    @asynccontextmanager
    async def client(self, controller: Controller) -> AsyncIterator["Caller"]:
        """A client of one node's remoting port."""
        client = RemotingClient()
        await client.connect(f"127.0.0.1:{controller.ports['remoting']}")
        try:
            yield Caller(client)
        finally:
            client.close()

    @asynccontextmanager
    async def http(self, controller: Controller) -> AsyncIterator[aiohttp.ClientSession]:
        """A client of one node's admin API that holds the token."""
        base = f"http://127.0.0.1:{controller.ports['http']}"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with aiohttp.ClientSession(base, headers=headers) as session:
            yield session

    async def declare(self, replicas: int = 3, **wish: Any) -> dict[str, Any]:
        """A declaration may be repeated: it says what shall be."""
        body = {"uid": "u1", "replicas": replicas, "minInSyncReplicas": 1, **wish}
        return await self._of_leader("PUT", body)

    async def view(self) -> dict[str, Any]:
        return await self._of_leader("GET")

    async def _of_leader(self, method: str, body: object = None) -> dict[str, Any]:
        """Asks whoever leads, again if it has just ended (421) or no quorum answers (503)."""
        path = f"/v1/groups/{CLUSTER}/{NAME}"
        async with asyncio.timeout(PATIENCE_S):
            while True:
                async with (
                    self.http(await self.led()) as session,
                    session.request(method, path, json=body) as response,
                ):
                    if response.status in (421, 503):
                        continue
                    assert response.status == 200, await response.text()
                    answer: dict[str, Any] = await response.json()
                    return answer


class Caller:
    """Remoting calls in one line."""

    def __init__(self, client: RemotingClient) -> None:
        self.client = client

    async def call(
        self, code: int, ext: dict[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        return await self.client.call(request(code, ext, body), PATIENCE_S)


class WireBroker:
    """A broker without a log; ``start`` makes a new process of it, ``kill`` ends it at once."""

    def __init__(self, quorum: Quorum, *, heartbeat_s: float = 0.1, timeout_ms: int = 2500) -> None:
        self.broker_id: int | None = None
        self.starts = 0
        self.told: list[RemotingCommand] = []
        self.offset = 0
        self._quorum = quorum
        self._heartbeat_s = heartbeat_s
        self._timeout_ms = timeout_ms
        self._clients: dict[int, RemotingClient] = {}
        self._server: RemotingServer | None = None
        self._task: asyncio.Task[None] | None = None
        self.address = ""

    @property
    def incarnation(self) -> str:
        return f"{self.broker_id}-{self.starts}"

    @property
    def epochs_told(self) -> list[int]:
        return [int((one.ext or {})["masterEpoch"]) for one in self.told]

    async def start(self) -> RemotingCommand:
        """Listens, takes an id if it has none, registers, and begins to send heartbeats."""
        self._server = RemotingServer(self._on_request)
        port = int(self.address.rpartition(":")[2]) if self.address else free_ports(1)[0]
        self.address = f"127.0.0.1:{await self._server.start('127.0.0.1', port)}"
        self.starts += 1
        await self._connect()
        if self.broker_id is None:
            await self._take_an_id()
        answer = await self.call(
            1003,
            brokerId=str(self.broker_id),
            brokerAddress=self.address,
            incarnation=self.incarnation,
            haPort="10912",
            lastEpoch="0",
            maxOffset=str(self.offset),
        )
        assert answer.code == 0, answer
        self._task = asyncio.create_task(self._beat())
        return answer

    async def kill(self) -> None:
        """As SIGKILL: connections close, the port refuses."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        for client in self._clients.values():
            client.abort()
        self._clients.clear()
        if self._server is not None:
            await self._server.stop(grace_s=0)

    async def call(self, code: int, body: bytes = b"", /, **ext: str) -> RemotingCommand:
        """Asks any controller that answers; again if the connection breaks."""
        for _ in range(200):
            for client in list(self._clients.values()):
                with suppress(RemotingError):
                    answer = await client.call(request(code, {**GROUP, **ext}, body))
                    if answer.code != 2007:
                        return answer
            await asyncio.sleep(0.05)
            await self._connect()
        raise AssertionError(f"no controller answers {code}")

    async def alter(self, members: list[int]) -> RemotingCommand:
        """Proposes a set as the master it is."""
        info = await self.call(1004)
        assert info.ext is not None
        epoch = json.loads(info.body)["syncStateSetEpoch"]
        body = json.dumps({"syncStateSet": members, "syncStateSetEpoch": epoch}).encode()
        return await self.call(
            1001,
            body,
            masterBrokerId=str(self.broker_id),
            masterEpoch=info.ext["masterEpoch"],
            incarnation=self.incarnation,
        )

    async def _take_an_id(self) -> None:
        while self.broker_id is None:
            answer = await self.call(1012)
            assert answer.ext is not None
            wanted = answer.ext["nextBrokerId"]
            applied = await self.call(
                1013, appliedBrokerId=wanted, registerCheckCode=f"{self.address};{id(self)}"
            )
            if applied.code == 0:
                self.broker_id = int(wanted)

    async def _connect(self) -> None:
        for number in self._quorum.running:
            client = self._clients.get(number)
            if client is None or client.closed:
                with suppress(RemotingError):
                    fresh = RemotingClient()
                    await fresh.connect(self._quorum.remoting(number), 0.5)
                    self._clients[number] = fresh

    async def _beat(self) -> None:
        while True:
            heartbeat = {
                **GROUP,
                "brokerAddr": self.address,
                "brokerId": str(self.broker_id),
                "epoch": "1",
                "maxOffset": str(self.offset),
                "heartbeatTimeoutMills": str(self._timeout_ms),
                "incarnation": self.incarnation,
            }
            for client in list(self._clients.values()):
                with suppress(RemotingError):
                    client.oneway(request(904, heartbeat))
            await asyncio.sleep(self._heartbeat_s)
            await self._connect()

    def _on_request(self, _: Connection, command: RemotingCommand) -> RemotingCommand | None:
        self.told.append(command)
        return None
