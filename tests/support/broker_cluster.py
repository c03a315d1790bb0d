"""Three real brokers in one process, on loopback, with a controller and a client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from gantry_broker.host.hosting import HostedGroup
from gantry_broker.host.server import BrokerServer
from gantry_broker.host.settings import BrokerSettings
from gantry_broker.member.group import ReplicationGroup
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.records import decode_record
from gantry_protocol.remoting.client import RemotingClient
from support.loopback_controller import CLUSTER, GROUP, LoopbackController
from support.patience import PATIENCE_S

TOPIC = "orders"
WAIT_S = PATIENCE_S
POLL_S = 0.005


async def eventually(holds: Callable[[], bool], what: str, within_s: float = WAIT_S) -> None:
    """Until ``holds()``; a failure names ``what``."""
    deadline_s = asyncio.get_running_loop().time() + within_s
    while not holds():
        assert asyncio.get_running_loop().time() < deadline_s, f"not within {within_s} s: {what}"
        await asyncio.sleep(POLL_S)


class RunningBroker:
    """One broker that runs as a task."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.server = BrokerServer(settings)
        self.stop_event = asyncio.Event()
        self.task = asyncio.create_task(self.server.run(self.stop_event))

    @property
    def member(self) -> HostedGroup:
        (hosted,) = self.server.hosted
        return hosted

    @property
    def group(self) -> ReplicationGroup:
        assert self.member.group is not None
        return self.member.group

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.member.port}"

    @property
    def is_master(self) -> bool:
        return not self.task.done() and self.member.group is not None and self.group.serving

    @property
    def is_ready(self) -> bool:
        return self.member.group is not None and self.group.ready()[0]

    async def stop(self) -> None:
        """SIGTERM, and wait for the end."""
        self.stop_event.set()
        await self.task

    async def abort(self) -> None:
        """As near to SIGKILL as one process allows: nothing is handed over or answered."""
        for connection in list(self.member.remoting.connections.values()):
            connection.abort()
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


class BrokerCluster:
    """A controller and its brokers."""

    def __init__(self, directory: Path, replicas: int = 3, min_in_sync: int = 2) -> None:
        self.directory = directory
        self.replicas = replicas
        self.min_in_sync = min_in_sync
        self.controller = LoopbackController()
        self.brokers: dict[int, RunningBroker] = {}
        self._clients: list[RemotingClient] = []

    async def __aenter__(self) -> Self:
        await self.controller.start()
        self.controller.declare(self.replicas, self.min_in_sync)
        for number in range(self.replicas):
            self.boot(number)
        await self.settled()
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        for broker in self.brokers.values():
            broker.stop_event.set()
        await asyncio.gather(*(one.task for one in self.brokers.values()), return_exceptions=True)
        await self.controller.stop()

    def settings(self, number: int) -> BrokerSettings:
        return BrokerSettings(
            name=f"broker-{number}",
            group=GROUP,
            cluster=CLUSTER,
            controllers=[self.controller.address],
            data_dir=self.directory / str(number),
            remoting_port=0,
            ha_port=0,
            http_port=0,
            log_segment_bytes=1024 * 1024,
            heartbeat_interval_ms=200,
            heartbeat_timeout_ms=2_500,
        )

    def boot(self, number: int) -> RunningBroker:
        broker = self.brokers[number] = RunningBroker(self.settings(number))
        return broker

    async def settled(self) -> None:
        """Every broker that runs is in the set, and one serves."""
        await eventually(self._is_settled, "the group comes to rest")

    def _is_settled(self) -> bool:
        for broker in self.brokers.values():
            if broker.task.done():
                broker.task.result()
        masters = [one for one in self.brokers.values() if one.is_master]
        return (
            len(masters) == 1
            and all(one.is_ready for one in self.brokers.values())
            and len(self.controller.group.sync_state_set) == len(self.brokers)
            and masters[0].group.writes.accepting() is None
        )

    @property
    def master(self) -> RunningBroker:
        return next(one for one in self.brokers.values() if one.is_master)

    def number_of(self, broker: RunningBroker) -> int:
        return next(number for number, one in self.brokers.items() if one is broker)

    def replicas_of(self) -> list[RunningBroker]:
        return [one for one in self.brokers.values() if not one.is_master]

    async def client(self, broker: RunningBroker) -> RemotingClient:
        client = await RemotingClient().connect(broker.address)
        self._clients.append(client)
        return client


def send_command(body: bytes, topic: str = TOPIC, queue_id: int = 0) -> RemotingCommand:
    ext = {
        "a": "p",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "",
    }
    return request(RequestCode.SEND_MESSAGE_V2, ext, body)


def pull_command(offset: int, topic: str = TOPIC, wait_ms: int = 0) -> RemotingCommand:
    ext = {
        "consumerGroup": "g",
        "topic": topic,
        "queueId": "0",
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "6" if wait_ms else "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": str(wait_ms),
        "subscription": "*",
        "subVersion": "0",
    }
    return request(RequestCode.PULL_MESSAGE, ext)


def bodies(answer: RemotingCommand) -> list[bytes]:
    """The message bodies of a pull's answer."""
    found, position = [], 0
    while position < len(answer.body):
        record = decode_record(answer.body, position)
        found.append(record.body)
        position += record.size
    return found
