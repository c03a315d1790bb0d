"""`kubectl gantry replay`: a real operator's decisions, out of a bundle, made once more."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from gantry_operator import names
from gantry_operator.api.kinds import BROKER_GROUP, TOPIC
from gantry_operator.decisions.codec import FORMAT
from integration.operator.operator_world import World
from integration.operator.test_announced import gantry
from integration.operator.test_rights import entity
from integration.operator.test_steps import rolled
from integration.operator.test_support import SECRET, unpacked


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


async def replay(*args: str) -> tuple[int, str, str]:
    """`gantry kube replay ARGS` in a process of its own, which knows of no cluster."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "gantry_cli", "kube", "replay", *args],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def with_operator_pod(world: World, port: int) -> None:
    """The pod that the operator would be in."""
    labels = {names.LABEL_NAME: names.APP_NAME, names.LABEL_COMPONENT: names.OPERATOR}
    http = {"name": "http", "containerPort": port}
    container = {"name": names.OPERATOR, "image": "gantry:test", "ports": [http]}
    for kind, api, spec in (
        ("Pod", "v1", {"containers": [container]}),
        (
            "Deployment",
            "apps/v1",
            {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        ),
    ):
        meta: dict[str, Any] = {"name": "gantry-operator", "labels": labels}
        world.apply({"apiVersion": api, "kind": kind, "metadata": meta, "spec": spec})


async def changes(world: World) -> None:
    """A group comes, one pod is not well for a while, all are replaced, and a replica goes."""
    await world.up()
    entity(world, TOPIC)
    await world.until(lambda: world.is_true("Ready", "shop", TOPIC), "the topic is there")
    world.unready("orders-broker-1")
    await world.until(lambda: not world.is_true("FullyReplicated"), "one is not Ready")
    world.unready()
    await world.settled()
    world.patch(BROKER_GROUP, "orders", {"spec": {"image": "gantry:2"}})
    await world.until(lambda: rolled(world), "all pods are replaced")
    await world.settled()
    world.patch(BROKER_GROUP, "orders", {"spec": {"replicas": 2}})
    await world.until(lambda: len(world.quorum.pods("broker", "orders")) == 2, "one replica goes")
    await world.settled()


async def test_every_decision_of_a_running_operator_is_found_again(
    world: World, tmp_path: Path
) -> None:
    port = free_port()
    with_operator_pod(world, port)
    target = tmp_path / "r.tar.gz"
    async with world.operator(http_port=port):
        await changes(world)
        code, _, error = await gantry(world, "report", "-o", str(target))
        assert code == 0
        assert "Reading the decisions of default/gantry-operator" in error
    recorded = json.loads(unpacked(target)["decisions/gantry-operator.json"])
    assert recorded["format"] == FORMAT
    code, out, error = await replay(str(target), "-o", "json")
    outcomes = [json.loads(line) for line in out.splitlines()]
    assert [one for one in outcomes if one["differences"] or one["note"]] == []
    assert len(outcomes) == len(recorded["decisions"])
    assert {one["kind"] for one in outcomes} == {"BrokerGroup", "ControllerGroup", "Topic"}
    decided = "\n".join(one["decided"] for one in outcomes)
    for deed in (
        "ApplyObject StatefulSet/orders-broker",
        "Elect",
        "DeletePod",
        "ScaleDown",
        "Make",
    ):
        assert deed in decided
    assert (code, error) == (0, "")
    code, out, error = await replay(str(target))
    assert (code, error) == (0, "")
    assert out.splitlines()[-1].endswith(f" {len(outcomes)} the same, 0 otherwise.")


async def test_a_secret_in_a_spec_stays_in_the_operator(world: World, tmp_path: Path) -> None:
    """The planner hashes what holds it; the decisions are the same without it all the same."""
    port = free_port()
    with_operator_pod(world, port)
    target = tmp_path / "r.tar.gz"
    sidecar = {"name": "sidecar", "image": "side:1"}
    variable = {"name": "DB_PASSWORD", "value": SECRET}
    async with world.operator(http_port=port):
        await world.up(template={"spec": {"sidecars": [sidecar | {"env": [variable]}]}})
        async with aiohttp.ClientSession() as session:
            answer = await session.get(f"http://127.0.0.1:{port}/decisions")
            served = await answer.read()
        assert b"[redacted value with a secret-like name]" in served
        assert SECRET.encode() not in served
        code, _, _ = await gantry(world, "report", "-o", str(target))
        assert code == 0
    files = unpacked(target)
    assert SECRET.encode() not in b"".join(files.values())
    redacted = json.loads(files["manifest.json"])["redacted"]
    again = [one for one in redacted if one["file"].startswith("decisions/")]
    assert again == [], "the operator has taken all of them out"
    code, out, error = await replay(str(target), "-o", "json")
    assert (code, error) == (0, "")
    outcomes = [json.loads(line) for line in out.splitlines()]
    assert {one["kind"] for one in outcomes} == {"BrokerGroup", "ControllerGroup"}
    assert [one for one in outcomes if one["differences"] or one["note"]] == []


@pytest.mark.parametrize("pod", [True, False], ids=["nobody listens", "no operator"])
async def test_a_report_without_decisions_says_so(world: World, tmp_path: Path, pod: bool) -> None:
    if pod:
        with_operator_pod(world, free_port())
    target = tmp_path / "r.tar.gz"
    code, _, _ = await gantry(world, "report", "-o", str(target))
    assert code == 0
    unread = {
        one["what"]: one["why"] for one in json.loads(unpacked(target)["manifest.json"])["unread"]
    }
    why = unread.get("decisions of default/gantry-operator", "")
    assert ("was not passed on: an error occurred forwarding" in why) is pod
    code, out, error = await replay(str(target))
    assert (code, out) == (2, "")
    assert "holds no decisions: " in error
