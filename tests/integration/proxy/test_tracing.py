"""One trace of a send by way of a proxy: its part, and within it the master's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
from gantry_lab.bench.ports import free_ports
from gantry_protocol.process.config import fingerprint
from gantry_protocol.tracing.export import LINGER_S
from support.broker_cluster import eventually
from support.cli_cluster import CliCluster, cluster_with_group
from support.grpc_client import GrpcClient, code
from support.otlp import OtlpReceiver, Received
from support.patience import PATIENCE_S
from support.proxies import proxy, served_proxy

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


async def sent(cluster: CliCluster, receiver: OtlpReceiver, context: str, ratio: float) -> None:
    async with (
        served_proxy(cluster, tracing_endpoint=receiver.url, tracing_ratio=ratio) as server,
        GrpcClient(f"127.0.0.1:{server.grpc_port}") as client,
    ):
        assert code(await client.send("traced", b"a", trace_context=context)) == "OK"
    # The proxy has ended, so that its spans are there.


def traces(receiver: OtlpReceiver) -> dict[str, list[Received]]:
    found: dict[str, list[Received]] = {}
    for span in receiver.spans:
        if not span.name.startswith(("election", "promote", "first write", "commit")):
            found.setdefault(span.trace, []).append(span)
    return found


async def test_proxy_and_master_are_one_trace(tmp_path: Path) -> None:
    receiver = OtlpReceiver()
    await receiver.start()
    group = cluster_with_group(tmp_path / "local", tracing_endpoint=receiver.url, tracing_ratio="0")
    cluster = await asyncio.to_thread(group.__enter__)
    try:
        await asyncio.to_thread(cluster.gantry, "topics", "create", "traced", "--queues", "1")
        await sent(cluster, receiver, f"00-{TRACE}-{SPAN}-01", 0)
        await eventually(
            lambda: len(traces(receiver).get(TRACE, ())) == 8, "all spans arrive", PATIENCE_S
        )
        _judge(traces(receiver)[TRACE], SPAN)
        receiver.spans.clear()
        # Nobody named a parent: the proxy decides, and the master follows, whose own ratio is 0.
        await sent(cluster, receiver, "", 1)
        await eventually(
            lambda: [len(spans) for spans in traces(receiver).values()] == [8],
            "all spans arrive",
            PATIENCE_S,
        )
        _judge(*traces(receiver).values(), "")
    finally:
        await asyncio.to_thread(group.__exit__, None, None, None)
        await receiver.stop()


class Written:
    """The configuration file of a proxy that runs, and what the proxy says of it."""

    def __init__(self, file: Path, http_port: int) -> None:
        self._file = file
        self._url = f"http://127.0.0.1:{http_port}/status"
        self.write()

    def write(self, **settings: str) -> str:
        self._file.write_text("".join(f"{key} = '{text}'\n" for key, text in settings.items()))
        return fingerprint(self._file.read_bytes())

    async def says(self, applied: str, refused: str = "") -> None:
        async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as session:
            while True:
                async with session.get(self._url) as answer:
                    said = await answer.json()
                if said["settings"] == applied and refused in said["settingsRefused"]:
                    assert bool(said["settingsRefused"]) is bool(refused)
                    return
                await asyncio.sleep(0.05)


async def test_a_proxy_applies_its_file_and_goes_on(tmp_path: Path) -> None:
    receiver = OtlpReceiver()
    await receiver.start()
    group = cluster_with_group(tmp_path / "local")
    cluster = await asyncio.to_thread(group.__enter__)
    ports = free_ports(2)
    written = Written(tmp_path / "proxy.toml", ports[1])
    options = ("--config", str(tmp_path / "proxy.toml"))
    running = proxy(cluster, ports, *options)
    try:
        await asyncio.to_thread(cluster.gantry, "topics", "create", "traced", "--queues", "1")
        process = await asyncio.to_thread(running.__enter__)
        async with GrpcClient(f"127.0.0.1:{ports[0]}") as client:

            async def sends(number: int) -> str:
                trace = f"{number:032x}"
                sent = await client.send("traced", b"a", trace_context=f"00-{trace}-{SPAN}-01")
                assert code(sent) == "OK"
                return trace

            await sends(1)
            good = written.write(log_level="debug", tracing_endpoint=receiver.url)
            await written.says(good)
            trace = await sends(2)
            await eventually(lambda: set(traces(receiver)) == {trace}, "it is traced", PATIENCE_S)
            written.write(tracing_endpoint="collector:4318")
            await written.says(good, "http://HOST:PORT")
            await written.says(written.write())
            receiver.spans.clear()
            await sends(3)
            await asyncio.sleep(2 * LINGER_S)  # as long as spans would take
            assert traces(receiver) == {}
            assert process.poll() is None
    finally:
        await asyncio.to_thread(running.__exit__, None, None, None)
        await asyncio.to_thread(group.__exit__, None, None, None)
        await receiver.stop()


def _judge(spans: list[Received], parent: str) -> None:
    by_service: dict[str, dict[str, Received]] = {"gantry-proxy": {}, "gantry-broker": {}}
    for span in spans:
        by_service[span.service["service.name"]][span.name] = span
    ours, masters = by_service["gantry-proxy"], by_service["gantry-broker"]
    assert set(ours) == {"SendMessage", "route", "call"}
    assert set(masters) == {"SendMessage", "queue", "append", "replicate", "answer"}
    root, call, stored = ours["SendMessage"], ours["call"], masters["SendMessage"]
    assert (root.parent, call.parent, stored.parent) == (parent, root.id, call.id)
    # One machine, one clock.
    assert root.start_ns <= call.start_ns <= stored.start_ns
    assert stored.end_ns <= call.end_ns <= root.end_ns
    assert stored.attributes["messaging.message.id"] == root.attributes["messaging.message.id"]
    assert root.attributes["gantry.broker_group"] == stored.attributes["gantry.broker_group"]
    assert root.error is None
