"""`gantry local up` on a cluster that is slow to become ready: it says what is not there yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_local import cluster, waiting
from gantry_local.client import Client
from support.local_world import stateful_set
from support.patience import PATIENCE_S
from support.pretend_cluster import PretendCluster

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

NAME = "gantry-controller"


async def test_a_wait_names_the_pods_that_are_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "QUIET_S", 0.0)
    lines: list[str] = []
    async with PretendCluster() as pretended:
        pretended.kubelet.unready.add(f"{NAME}-1")
        config = pretended.write_kubeconfig(tmp_path / "kubeconfig")
        async with Client.from_kubeconfig(config) as api:
            sets, pods = await api.resource("sts"), await api.resource("pods")
            wait = asyncio.create_task(
                cluster._until_ready(api, sets, NAME, "default", lines.append)
            )
            await told(lines, f"StatefulSet {NAME} is not made yet")
            await api.apply(stateful_set(NAME, replicas=2))
            await told(
                lines,
                f"1 of 2 pods are Ready; {NAME}-1 runs and does not say yet that it is ready",
            )
            assert not wait.done()
            pretended.kubelet.unready.clear()
            await api.patch(pods, f"{NAME}-1", "default", {"metadata": {"labels": {"new": "yes"}}})
            async with asyncio.timeout(PATIENCE_S):
                await wait


async def told(lines: list[str], text: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not any(text in line for line in lines):
            await asyncio.sleep(0.01)
