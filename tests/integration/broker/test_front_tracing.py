"""One trace of a send at a front, which answers it or not: its part, within it the master's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from gantry_broker.front import FrontServer
from gantry_lab.bench.ports import free_ports
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.tracing.export import LINGER_S
from integration.broker.test_front import StorageCluster, ready
from support.broker_cluster import eventually, send_command
from support.loopback_controller import GROUP
from support.otlp import OtlpReceiver, Received
from support.patience import PATIENCE_S

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
async def receiver() -> AsyncIterator[OtlpReceiver]:
    made = OtlpReceiver()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def cluster(tmp_path: Path, receiver: OtlpReceiver) -> AsyncIterator[StorageCluster]:
    made = StorageCluster(tmp_path)
    made.more = {"tracing_endpoint": receiver.url, "tracing_ratio": 0.0}
    async with made:
        yield made


class Producer:
    """A client of a front, which answers its sends from the second on at the latest."""

    def __init__(self, front: FrontServer, client: RemotingClient) -> None:
        self._front = front
        self._client = client

    @property
    def served(self) -> int:
        """Requests that the front answered itself."""
        return self._front.groups[GROUP].served

    async def send(self, traceparent: str = "", more: str = "", **fields: str) -> None:
        command = send_command(b"hello")
        assert command.ext is not None
        named = f"traceparent\x01{traceparent}\x02" if traceparent else ""
        command.ext |= {"i": named + more, **fields}
        assert (await self._client.call(command, PATIENCE_S)).code == 0


@asynccontextmanager
async def producer(front: FrontServer) -> AsyncIterator[Producer]:
    await ready(front)
    client = await RemotingClient().connect(f"127.0.0.1:{front.groups[GROUP].port}")
    made = Producer(front, client)
    async with asyncio.timeout(PATIENCE_S):
        while not made.served:
            await made.send()
    yield made
    client.close()


def by_service(receiver: OtlpReceiver, trace: str) -> dict[str, dict[str, Received]]:
    found: dict[str, dict[str, Received]] = {}
    for span in receiver.spans:
        if span.trace == trace:
            spans = found.setdefault(span.service["service.name"], {})
            assert span.name not in spans
            spans[span.name] = span
    return found


def traces(receiver: OtlpReceiver) -> set[str]:
    """Of sends."""
    return {span.trace for span in receiver.spans if span.name in ("SendMessage", "StoreRecord")}


def answered(receiver: OtlpReceiver) -> list[dict[str, dict[str, Received]]]:
    """Traces of sends that a front answered itself, with all spans of front and master.

    Before it has a store it passes sends on, which are traces of front and master, too.
    """
    found = [by_service(receiver, one) for one in traces(receiver)]
    return [
        one
        for one in found
        if "store" in one.get("gantry-front", {}) and len(one.get("gantry-broker", {})) == 5
    ]


async def test_front_and_master_are_one_trace(
    cluster: StorageCluster, receiver: OtlpReceiver
) -> None:
    traced = cluster.front(tracing_endpoint=receiver.url, tracing_ratio=0.0)
    async with traced as front, producer(front) as client:
        served = client.served
        await client.send(f"00-{TRACE[::-1]}-{SPAN}-00")
        await client.send(f"00-{TRACE}-{SPAN}-01")
        assert client.served == served + 2
        await eventually(
            lambda: sum(map(len, by_service(receiver, TRACE).values())) == 9,
            "all spans arrive",
            PATIENCE_S,
        )
        assert traces(receiver) == {TRACE}, "the others were not to be sampled"
        _judge(by_service(receiver, TRACE), SPAN)


def _judge(found: dict[str, dict[str, Received]], parent: str) -> None:
    front, master = found["gantry-front"], found["gantry-broker"]
    assert set(front) == {"SendMessage", "queue", "store", "answer"}
    assert set(master) == {"StoreRecord", "queue", "append", "replicate", "answer"}
    root, asked, stored = front["SendMessage"], front["store"], master["StoreRecord"]
    assert (root.parent, asked.parent, stored.parent) == (parent, root.id, asked.id)
    assert {master[name].parent for name in set(master) - {"StoreRecord"}} == {stored.id}
    # One machine, one clock.
    assert root.start_ns <= asked.start_ns <= stored.start_ns
    assert stored.end_ns <= root.end_ns
    assert master["append"].start_ns < master["append"].end_ns, "a sync takes time"
    assert master["replicate"].end_ns <= stored.end_ns
    assert (root.error, stored.error) == (None, None)
    assert stored.attributes["messaging.destination.name"] == "orders"
    assert root.attributes["messaging.destination.name"] == "orders"
    assert stored.attributes["gantry.broker_group"] == GROUP


async def test_a_front_without_tracing_and_a_master_with_it(
    cluster: StorageCluster, receiver: OtlpReceiver
) -> None:
    """The front decides whether what it answers is traced, and names nothing."""
    async with cluster.front() as front, producer(front) as client:
        served = client.served
        await client.send(f"00-{TRACE}-{SPAN}-01")
        assert client.served == served + 1
    await asyncio.sleep(2 * LINGER_S)  # as long as spans would take
    assert traces(receiver) == set()


async def test_a_front_decides_by_its_ratio_and_the_master_follows(
    cluster: StorageCluster, receiver: OtlpReceiver
) -> None:
    """The master's own ratio is 0."""
    traced = cluster.front(tracing_endpoint=receiver.url, tracing_ratio=1.0)
    async with traced as front, producer(front) as client:
        await client.send()
        await eventually(lambda: bool(answered(receiver)), "the master's part", PATIENCE_S)
    _judge(answered(receiver)[0], "")


PASSED_ON = [
    pytest.param("DELAY\x011\x02", {}, id="delayed"),
    pytest.param("TRAN_MSG\x01true\x02PGROUP\x01p\x02", {"f": "4"}, id="a transaction"),
    pytest.param("", {"b": "%RETRY%group"}, id="a retry"),
]


@pytest.mark.parametrize(("more", "fields"), PASSED_ON)
async def test_what_a_front_passes_on_is_one_trace_with_the_master(
    cluster: StorageCluster, receiver: OtlpReceiver, more: str, fields: dict[str, str]
) -> None:
    """The master's ratio is 0, and the front's of no account: the message decides."""
    traced = cluster.front(tracing_endpoint=receiver.url, tracing_ratio=0.0)
    async with traced as front, producer(front) as client:
        served = client.served
        await client.send(f"00-{TRACE[::-1]}-{SPAN}-00", more, **fields)
        await client.send(f"00-{TRACE}-{SPAN}-01", more, **fields)
        assert client.served == served, "the master has answered"
        await eventually(
            lambda: sum(map(len, by_service(receiver, TRACE).values())) == 8,
            "all spans arrive",
            PATIENCE_S,
        )
    assert traces(receiver) == {TRACE}
    _judge_call(by_service(receiver, TRACE), SPAN)


def _judge_call(found: dict[str, dict[str, Received]], parent: str) -> None:
    front, master = found["gantry-front"], found["gantry-broker"]
    assert set(front) == {"SendMessage", "queue", "call"}
    assert set(master) == {"SendMessage", "queue", "append", "replicate", "answer"}
    root, call, theirs = front["SendMessage"], front["call"], master["SendMessage"]
    assert (root.parent, call.parent, theirs.parent) == (parent, root.id, call.id)
    # One machine, one clock.
    assert root.start_ns <= call.start_ns <= theirs.start_ns
    assert theirs.end_ns <= root.end_ns
    assert (root.error, theirs.error) == (None, None)
    for name in ("messaging.destination.name", "messaging.message.id", "gantry.broker_group"):
        assert root.attributes.get(name) == theirs.attributes.get(name), name


async def test_a_front_without_a_store_decides_by_its_ratio_for_all_sends(
    cluster: StorageCluster, receiver: OtlpReceiver
) -> None:
    """Nobody listens at the store's port that it was told."""
    (nobody,) = free_ports(1)
    traced = cluster.front(tracing_endpoint=receiver.url, tracing_ratio=1.0, store_port=nobody)
    async with traced as front:
        await eventually(lambda: front.ready()[0] and GROUP in front.groups, "a master is named")
        client = await RemotingClient().connect(f"127.0.0.1:{front.groups[GROUP].port}")
        await Producer(front, client).send()
        await eventually(
            lambda: any(len(by_service(receiver, one)) == 2 for one in traces(receiver)),
            "the master's part arrives",
            PATIENCE_S,
        )
        client.close()
    (trace,) = traces(receiver)
    _judge_call(by_service(receiver, trace), "")
