"""`kubectl gantry report`, `logs` and `doctor` against a real operator and the local API server."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from integration.operator.operator_world import World
from integration.operator.test_announced import gantry, writes

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
