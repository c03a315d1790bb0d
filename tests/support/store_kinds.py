"""One broker, or a front of one in a process of its own; and somebody who uses it.

Each with a controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gantry_broker.front import FrontServer, FrontSettings
from gantry_broker.host.server import BrokerServer
from gantry_broker.host.settings import BrokerSettings
from gantry_lab.bench.ports import free_ports
from gantry_protocol.bodies.client import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from gantry_protocol.bodies.codec import encode_body
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.records import MessageRecord, decode_records
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import eventually
from support.broker_processes import Process, own_network
from support.loopback_controller import CLUSTER, GROUP, KEY, LoopbackController
from support.patience import STARTS_WITHIN_S

STORE_PORT = 10915
KINDS = ("local", "remote")
Ext = dict[str, object]


class Served:
    """A broker that serves, or a front of one."""

    def __init__(self, server: BrokerServer | FrontServer, controller: LoopbackController) -> None:
        self.server = server
        self.controller = controller

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def _port(self) -> int:
        if isinstance(self.server, FrontServer):
            return self.server.groups[GROUP].port
        return self.server.hosted[0].port

    @property
    def parked_pulls(self) -> int:
        """Pulls that wait here for a record."""
        if isinstance(self.server, FrontServer):
            asides = self.server.groups[GROUP].asides
            assert asides is not None
            return asides.parked
        processor = self.server.hosted[0].processor
        assert processor is not None
        return processor.parked_pulls

    @property
    def is_ready(self) -> bool:
        if isinstance(self.server, FrontServer):
            group = self.server.groups.get(GROUP)
            return group is not None and group.router.open_aside is not None
        (hosted,) = self.server.hosted
        return hosted.ready()[0] and hosted.processor is not None


@asynccontextmanager
async def served(kind: str, directory: Path, **settings: object) -> AsyncIterator[Served]:
    """A broker, or a front of one in a process of its own; `settings` are the broker's."""
    controller = LoopbackController()
    await controller.start()
    controller.declare(replicas=1, min_in_sync=1)
    process: Process | None = None
    if kind == "remote":
        process = Process(
            directory / "store",
            controller.address,
            GANTRY_BIND=own_network() + ".9",
            GANTRY_STORE_PORT=str(STORE_PORT),
            **{f"GANTRY_{name.upper()}": text(value) for name, value in settings.items()},
        )
        server: BrokerServer | FrontServer = FrontServer(
            FrontSettings(
                cluster=CLUSTER,
                controllers=[controller.address],
                first_port=free_ports(1)[0],
                http_port=0,
                store_port=STORE_PORT,
                quorum_key_file=KEY.file,
            )
        )
    else:
        own: dict[str, object] = {
            "group": GROUP,
            "cluster": CLUSTER,
            "controllers": [controller.address],
            "data_dir": directory / "broker",
            "remoting_port": 0,
            "ha_port": 0,
            "http_port": 0,
            "quorum_key_file": KEY.file,
            "log_segment_bytes": 1 << 20,
            **settings,
        }
        server = BrokerServer(BrokerSettings.model_validate(own))
    stop = asyncio.Event()
    task = asyncio.create_task(server.run(stop))
    found = Served(server, controller)
    try:
        await eventually(lambda: task.done() or found.is_ready, "it serves", STARTS_WITHIN_S)
        if task.done():
            task.result()
        yield found
    finally:
        stop.set()
        await task
        if process is not None:
            process.process.kill()
            process.process.wait()
        await controller.stop()


def text(value: object) -> str:
    """As headers spell it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class User:
    """One connection of a client, in requests as the Java client makes them."""

    def __init__(self, client: RemotingClient) -> None:
        self.client = client

    async def call(self, code: int, ext: Ext | None = None, body: bytes = b"") -> RemotingCommand:
        texts = {name: text(value) for name, value in (ext or {}).items()}
        return await self.client.call(request(code, texts, body), 10)

    async def send(self, body: bytes, topic: str, queue_id: int = 0, **more: object):
        """310; `properties` are given as a dictionary, other fields by their letters."""
        properties = more.pop("properties", {})
        assert isinstance(properties, dict)
        ext = send_ext(topic, queue_id, properties)
        return await self.call(RequestCode.SEND_MESSAGE_V2, {**ext, **more}, body)

    async def pull(self, topic: str, offset: int = 0, wait_ms: int = 0, **more: object):
        """11; waits for a record at the broker if `wait_ms`."""
        return await self.call(RequestCode.PULL_MESSAGE, pull_ext(topic, offset, wait_ms, **more))

    async def read(self, topic: str, queue_id: int = 0, **more: object) -> list[MessageRecord]:
        """All there is of a queue, in one pull after the other."""
        found: list[MessageRecord] = []
        offset = 0
        while True:
            answer = await self.pull(topic, offset, queueId=queue_id, **more)
            if answer.code not in (0, 20):
                assert answer.code == 19, answer.remark
                return found
            found += decode_records(answer.body)
            assert answer.ext is not None
            following = int(answer.ext["nextBeginOffset"])
            assert following > offset
            offset = following

    async def join(
        self, group: str, *topics: str, name: str = "c1", model: str = "CLUSTERING"
    ) -> None:
        """34, as a consumer and producer of `group`."""
        consumer = ConsumerData(
            group,
            message_model=model,
            subscription_data_set=[SubscriptionData(topic) for topic in topics],
        )
        beat = HeartbeatData(name, [ProducerData(group)], [consumer])
        assert (await self.call(RequestCode.HEART_BEAT, None, encode_body(beat))).code == 0

    async def arrived(self, topic: str, offset: int = 0, wait_ms: int = 5_000) -> MessageRecord:
        """The one record at `offset`, once it is there; the topic may have to come first."""
        async with asyncio.timeout(wait_ms / 1000):
            while True:
                answer = await self.pull(topic, offset, wait_ms, maxMsgNums=1)
                if answer.code == 0:
                    (record,) = decode_records(answer.body)
                    return record
                assert answer.code in (17, 19, 21), answer.remark
                await asyncio.sleep(0.005)


def send_ext(topic: str, queue_id: int, properties: dict[str, object]) -> Ext:
    """The header of 310."""
    words = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return {
        "a": "pg",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": 0,
        "g": 1_700_000_000_000,
        "h": 0,
        "i": words,
    }


def pull_ext(topic: str, offset: int, wait_ms: int = 0, **more: object) -> Ext:
    """The header of 11."""
    return {
        "consumerGroup": "g",
        "topic": topic,
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": 6 if wait_ms else 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": wait_ms,
        "subVersion": 0,
        "subscription": "*",
        **more,
    }
