"""Scaling up under load: sends are acknowledged while the new members get their copies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from gantry_cli.client.producer import Producer, SendFailedError
from gantry_cli.client.session import Session, session
from support.cli_cluster import ROOT, CliCluster, Group, settled

FILL_MIB = 192  # two seconds at the pace of a copy
TOPIC = "fill"


def manifest(replicas: int) -> str:
    body = yaml.safe_load((ROOT / "examples/brokergroup.yaml").read_text("utf-8"))
    body["spec"]["replicas"] = replicas
    return yaml.safe_dump(body)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[CliCluster]:
    """A group of one replica."""
    cluster = CliCluster(tmp_path / "local")
    try:
        cluster.gantry("local", "up")
        cluster.gantry_applies(manifest(1))
        cluster.wait_until(settled)
        yield cluster
    finally:
        cluster.gantry("local", "down", "--purge")


async def fill(client: Session) -> None:
    producer = Producer(client.routes, client.calls, send_timeout_s=60, give_up_after_s=120)
    gate = asyncio.Semaphore(8)

    async def one() -> None:
        async with gate:
            await producer.send(producer.message(TOPIC, b"x" * 2**20))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(FILL_MIB):
            tasks.create_task(one())


async def test_sends_are_acknowledged_until_the_copies_are_complete(alone: CliCluster) -> None:
    alone.gantry("topics", "create", TOPIC)
    async with session(alone.status()["nameServers"]) as client:
        await fill(client)
        acknowledged, refused, grown = [0], [], asyncio.Event()
        producer = Producer(client.routes, client.calls, send_timeout_s=60, give_up_after_s=0)

        async def send() -> None:
            while not grown.is_set():
                try:
                    await producer.send(producer.message(TOPIC, b"probe"))
                    acknowledged[0] += 1
                except SendFailedError as error:
                    refused.append(str(error))
                await asyncio.sleep(0.05)

        def in_sync(group: Group) -> bool:
            if len(group["syncStateSet"]) == 1:
                seen.append((acknowledged[0], group["minInSyncReplicas"]))
                said.append(progressing(alone))
            return settled(group) and group["minInSyncReplicas"] == 2

        seen: list[tuple[int, int]] = []
        said: list[str] = []
        sending = asyncio.create_task(send())
        before = acknowledged[0]
        await asyncio.to_thread(alone.gantry_applies, manifest(3))
        await asyncio.to_thread(
            alone.wait_until, lambda group: group["replicas"] == 3 and in_sync(group)
        )
        grown.set()
        await sending
    assert not refused, refused[0]
    assert {minimum for _, minimum in seen} == {1}, "the minimum rises when it is reached"
    assert seen[-1][0] > before, "nothing was acknowledged while the set had one member"
    assert "RaisingMinimum" in said


def progressing(cluster: CliCluster) -> str:
    body = json.loads(cluster.shown("local", "get", "bg", "orders", "-o", "json"))
    conditions = body.get("status", {}).get("conditions", ())
    return next((str(one["reason"]) for one in conditions if one["type"] == "Progressing"), "")
