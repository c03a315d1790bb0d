"""`kubectl gantry report`, `logs` and `doctor` against a real operator and the local API server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from gantry_protocol.codes import RequestCode
from gantry_protocol.process.sync_times import SyncTimes, sync_times
from integration.operator.operator_world import World
from integration.operator.test_announced import gantry, writes
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector
from support import api_faults
from support.port_forward import forward
from unit.operator.test_probe import Broker, listening

SECRET = "hunter2-of-a-sidecar"


def with_logs(world: World, monkeypatch: pytest.MonkeyPatch, logs: dict[str, str]) -> None:
    """The pods that are named have logs; the others have none."""

    async def read(request: web.Request, _: str, pod: str) -> web.StreamResponse:
        if pod not in logs:
            raise web.HTTPBadRequest(text=f"container of {pod} is waiting to start")
        stamped = request.query.get("timestamps") == "true"
        assert stamped, "lines are merged by their times"
        return web.Response(text="" if request.query["container"] == "door" else logs[pod])

    monkeypatch.setattr(world.cluster.api, "_read_log", read)


def unpacked(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {
            member.name.removeprefix("gantry-report/"): archive.extractfile(member).read()  # type: ignore[union-attr]
            for member in archive.getmembers()
        }


async def test_a_bundle_of_a_running_group(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_logs(
        world,
        monkeypatch,
        {"orders-broker-0": f"2026-11-29T12:00:00.5Z event=x password={SECRET}\n"},
    )
    sidecar = {
        "name": "sidecar",
        "image": "side:1",
        "env": [{"name": "DB_PASSWORD", "value": SECRET}],
    }
    async with world.operator():
        await world.up(template={"spec": {"sidecars": [sidecar]}})
        written = writes(world)
        target = tmp_path / "r.tar.gz"
        code, out, error = await gantry(world, "report", "-o", str(target))
        assert (code, out, written) == (0, "", [])
        assert "Reading brokergroups of namespace default" in error
        assert "Redacted: " in error
        assert f"are in {target}." in error
        assert target.stat().st_mode & 0o777 == 0o600
        files = unpacked(target)
        everything = b"".join(files.values())
        assert SECRET.encode() not in everything
        manifest: dict[str, Any] = json.loads(files["manifest.json"])
        assert manifest["redactedInAll"] >= 4, "of three pods and a log"
        unread = {one["what"]: one["why"] for one in manifest["unread"]}
        assert "waiting to start" in unread["log of default/orders-broker-1, container broker"]
        group = json.loads(files["objects/default/brokergroup/orders.json"])
        assert group["status"]["summary"] == "Healthy"
        for path in (
            "objects/default/controllergroup/gantry.json",
            "objects/default/statefulset/orders-broker.json",
            "objects/default/pod/gantry-controller-2.json",
            "objects/default/persistentvolumeclaim/data-orders-broker-0.json",
            "objects/default/configmap/orders-broker.json",
            "objects/default/poddisruptionbudget/orders-broker.json",
            "objects/cluster/customresourcedefinition/brokergroups.mq.gantry.dev.json",
            "events/default.json",
        ):
            assert path in files
        assert not any("/secret/" in path for path in files)
        code, _, error = await gantry(world, "report", "-o", str(target))
        assert code != 0
        assert f"{target} exists and is kept" in error


async def test_logs_of_a_group_in_one_order_of_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = "2026-11-29T12:00:0"
    with_logs(
        world,
        monkeypatch,
        {
            "orders-broker-0": f"{clock}1Z time={clock}0.9Z event=a\n{clock}4Z event=d\n",
            "orders-broker-1": f"{clock}2.5Z event=b\n",
            "gantry-controller-0": f"{clock}3Z event=c\n",
        },
    )
    async with world.operator():
        await world.up()
        code, out, error = await gantry(world, "logs", "orders", "--all")
        assert (code, out.splitlines()) == (
            0,
            [
                f"*orders-broker-0      master   | time={clock}0.9Z event=a",
                f" orders-broker-1      replica  | {clock}2.5Z event=b",
                f"*gantry-controller-0  leader   | {clock}3Z event=c",
                f"*orders-broker-0      master   | {clock}4Z event=d",
            ],
        )
        assert "orders-broker-2: 400 Invalid: container of orders-broker-2 is waiting" in error
        code, _, error = await gantry(world, "logs", "orders", "--since", "soon")
        assert code != 0
        assert "soon is no time: give for example 90s, 5m or 2h." in error
        code, _, error = await gantry(world, "logs", "nobody")
        assert code != 0
        assert "There is no group nobody in namespace default" in error


async def test_without_a_server_it_says_so(world: World, tmp_path: Path) -> None:
    world.cluster.api.faults.outage = True
    code, out, error = await gantry(world, "report", "-o", str(tmp_path / "r.tar.gz"))
    assert (code != 0, out) == (True, "")
    assert "The API server does not answer" in error
    assert "Traceback" not in error
    assert list(tmp_path.glob("r.tar.gz")) == []


async def test_a_doctor_looks_at_a_running_group(world: World) -> None:
    async with world.operator():
        await world.up()
        written = writes(world)
        code, out, error = await gantry(world, "doctor", "orders")
        assert (error, written) == ("", [])
        assert code == 1, "no Deployment of an operator is in this cluster, and all are on one node"
        lines = out.splitlines()
        bad = [line.split()[1] for line in lines if line.startswith(("warn", "FAIL"))]
        assert set(bad) == {"operator", "spread"}, out
        assert "ok    crds        6 CRDs are those of this version." in lines
        assert "ok    conditions  BrokerGroup orders: Healthy." in lines
        assert "ok    volumes     3 volumes of BrokerGroup orders are bound." in lines
        assert any("3 of 3 controllers are Ready, 2 are needed" in line for line in lines)
        world.quorum.lagging.update({"orders-broker-1", "orders-broker-2"})
        world.unready("orders-broker-1")
        await world.until(lambda: not world.is_true("InSync"), "two lag")
        code, out, _ = await gantry(world, "doctor", "-o", "json")
        found = [json.loads(line) for line in out.splitlines()]
        assert code == 2
        (refused,) = [one for one in found if one["message"].startswith("Sends are refused")]
        assert (refused["level"], refused["check"]) == ("fail", "replicas")
        code, _, error = await gantry(world, "doctor", "nobody")
        assert code != 0
        assert "There is no group nobody in namespace default" in error


class Disks(Collector):
    """Brokers' and controllers' metrics, as of a process whose syncs took 3 ms."""

    def __init__(self) -> None:
        self.times = SyncTimes()

    def collect(self):  # type: ignore[no-untyped-def]
        for component in ("broker", "controller"):
            yield sync_times(f"gantry_{component}_disk_sync_seconds", "Text.", [self.times])


@contextlib.asynccontextmanager
async def answering(
    monkeypatch: pytest.MonkeyPatch, broker: Broker, disks: Disks
) -> AsyncIterator[None]:
    """All pods' ports lead to a broker and a page of metrics; no port of the machine is asked."""
    registry = CollectorRegistry()
    registry.register(disks)

    async def metrics(_: web.Request) -> web.Response:
        for _ in range(60):
            disks.times.note(0.003)
        return web.Response(body=generate_latest(registry))

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with listening(broker) as port:
        ports = {"10911": port, "10910": port}

        async def lead(request: web.Request) -> web.StreamResponse:
            (given,) = request.query.getall("ports")
            there = ports.get(given, runner.addresses[0][1])
            return await forward(request.clone(rel_url=request.rel_url.with_query(ports=there)))

        monkeypatch.setattr(api_faults, "forward", lead)
        yield
    await runner.cleanup()


async def test_a_probe_asks_pods_and_writes_nothing_into_the_api_server(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker()
    async with world.operator(), answering(monkeypatch, broker, Disks()):
        await world.up()
        written = writes(world)
        code, out, error = await gantry(world, "doctor", "orders")
        assert (code, error, broker.asked) == (1, "", []), "without --probe nobody is asked"
        code, out, error = await gantry(
            world, "doctor", "orders", "--probe", "--probe-window", "0", "-o", "json"
        )
        found = [json.loads(line) for line in out.splitlines()]
        (send,) = [one["message"] for one in found if one["check"] == "send"]
        assert "; it was read " in send, send
        disks = [one["message"] for one in found if one["check"] == "syncs"]
        assert len(disks) == 6
        assert all("at most 5 ms, of " in one for one in disks), disks
        assert "Reading the metrics of 6 pods\nSending one message to orders" in error
        assert broker.codes().count(RequestCode.SEND_MESSAGE_V2) == 1
        assert written == []


async def test_a_probe_is_ended_by_ctrl_c(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.operator(), answering(monkeypatch, Broker(), Disks()):
        await world.up()
        command = ("doctor", "orders", "--probe", "--probe-window", "600")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "gantry_cli", "kube", *command, "--kubeconfig", str(world.kubeconfig)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        while b"Waiting" not in (line := await process.stderr.readline()):
            assert line, "it ended by itself"
        process.send_signal(signal.SIGINT)
        out, error = await process.communicate()
        assert (process.returncode != 0, out) == (True, b""), "half of a diagnosis is none"
        assert b"Traceback" not in error


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("nobody", "--probe"), "There is no group nobody in namespace default"),
        (("orders", "--probe", "--probe-window", "-1"), "is not in the range 0<=x<=600"),
        (("orders", "--probe", "--access-key", "alice"), "need each other: give both"),
        (("orders", "--probe", "--tls-ca-file", "/nowhere"), "/nowhere"),
    ],
)
async def test_a_probe_with_bad_input_is_one_sentence(
    world: World, args: tuple[str, ...], sentence: str
) -> None:
    code, out, error = await gantry(world, "doctor", *args)
    assert (code != 0, out) == (True, "")
    assert sentence in error
    assert "Traceback" not in error
