"""The detached daemon and the verbs of the command line around it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from typing import TYPE_CHECKING

import pytest
from gantry_local import cluster
from gantry_local.client import ApiError, Client
from gantry_local.settings import LocalSettings
from gantry_local.state import StateDir
from gantry_protocol.errors import ConfigError, DataDirError, GantryError
from support.local_world import container
from support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def settings(tmp_path: Path) -> AsyncIterator[LocalSettings]:
    """Settings of a cluster without an operator; whatever was started is stopped."""
    made = LocalSettings(local_dir=tmp_path / "local", operators=0)
    yield made
    daemon = StateDir(made.local_dir).daemon()
    if daemon is not None:
        daemon.identity.send(signal.SIGKILL)
        await daemon.identity.gone()


async def up(settings: LocalSettings) -> list[str]:
    steps: list[str] = []
    await cluster.up(settings, progress=steps.append)
    return steps


def bare_pod(name: str = "solo") -> dict[str, object]:
    # Without a volume the counter file is in the pod's own directory.
    spec = container()
    spec["env"][2]["value"] = "."
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "solo"}},
        "spec": {"terminationGracePeriodSeconds": 2, "containers": [spec]},
    }


async def until_ready(settings: LocalSettings, name: str) -> cluster.PodLine:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            status = await cluster.status(settings)
            for pod in status.pods:
                if pod.name == name and pod.ready:
                    return pod
            await asyncio.sleep(0.05)


async def test_up_twice_status_and_down(settings: LocalSettings) -> None:
    first = await cluster.up(settings)
    assert not first.already_up
    assert first.kubeconfig.stat().st_mode & 0o777 == 0o600
    second = await cluster.up(settings)
    assert second.already_up
    assert second.url == first.url
    status = await cluster.status(settings)
    assert (status.running, status.operators_wanted) == (True, 0)
    async with cluster.client(settings) as api:
        groups = await api.kind("mq.gantry.dev/v1alpha1", "ControllerGroup")
        assert (await api.get(groups, "gantry", "default"))["spec"]["replicas"] == 3
    assert await cluster.down(settings)
    assert not (await cluster.status(settings)).running
    assert not await cluster.down(settings)


async def test_a_cluster_keeps_its_objects_and_its_port(settings: LocalSettings) -> None:
    first = await cluster.up(settings)
    async with cluster.client(settings) as api:
        await api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}})
    await cluster.down(settings)
    again = await cluster.up(settings)
    assert again.url == first.url
    async with cluster.client(settings) as api:
        await api.get(await api.resource("cm"), "kept", "default")


async def test_purge_deletes_the_state_and_only_that(settings: LocalSettings) -> None:
    await up(settings)
    assert await cluster.down(settings, purge=True)
    assert not settings.local_dir.exists()
    settings.local_dir.mkdir()
    (settings.local_dir / "thesis.tex").touch()
    with pytest.raises(DataDirError):
        await cluster.down(settings, purge=True)
    assert (settings.local_dir / "thesis.tex").exists()


async def test_a_killed_daemon_leaves_no_process_and_loses_no_object(
    settings: LocalSettings,
) -> None:
    await up(settings)
    async with cluster.client(settings) as api:
        await api.apply(bare_pod())
    pod = await until_ready(settings, "solo")
    assert pod.pid is not None
    daemon = StateDir(settings.local_dir).daemon()
    assert daemon is not None
    pidfd = os.pidfd_open(pod.pid)
    daemon.identity.send(signal.SIGKILL)
    await daemon.identity.gone()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(pidfd, ended.set)
    async with asyncio.timeout(PATIENCE_S):
        await ended.wait()
    asyncio.get_running_loop().remove_reader(pidfd)
    os.close(pidfd)
    await up(settings)
    assert (await until_ready(settings, "solo")).restarts == 1


async def test_kill_signals_the_pods_process(settings: LocalSettings) -> None:
    await up(settings)
    async with cluster.client(settings) as api:
        await api.apply(bare_pod())
    before = await until_ready(settings, "solo")
    assert await cluster.kill(settings, "solo") == before.pid
    async with asyncio.timeout(PATIENCE_S):
        while (await until_ready(settings, "solo")).restarts == 0:
            await asyncio.sleep(0.05)
    for pod, name, text in (
        ("nobody", "KILL", 'pods "nobody" not found'),
        ("solo", "SEGV", "is not one of"),
    ):
        with pytest.raises(GantryError, match=text):
            await cluster.kill(settings, pod, signal_name=name)


async def test_the_client_speaks_to_people(settings: LocalSettings) -> None:
    await up(settings)
    async with cluster.client(settings) as api:
        assert (await api.apply(bare_pod()))[1] == "created"
        assert (await api.apply(bare_pod()))[1] in {"unchanged", "configured"}
        await until_ready(settings, "solo")
        pods = await api.resource("po")
        table = await api.table(pods, "default", labels="app=solo")
        assert table.columns[:4] == ["NAME", "READY", "STATUS", "RESTARTS"]
        assert table.rows[0][:4] == ["solo", "1/1", "Running", "0"]
        everywhere = await api.table(pods, None, wide=True)
        assert everywhere.columns[0] == "NAMESPACE"
        assert "IP" in everywhere.columns
        log = b"".join([chunk async for chunk in api.logs("solo", "default", tail=1)])
        assert log.startswith(b"start 1 on 127.77.")
        await api.delete(pods, "solo", "default", grace_s=0)
        with pytest.raises(ApiError, match='pods "solo" not found') as refused:
            await api.get(pods, "solo", "default")
        assert refused.value.code == 404
        with pytest.raises(ApiError, match="does not have a resource called 'frob'"):
            await api.resource("frob")
        with pytest.raises(ApiError, match="apply its definition first"):
            await api.apply({"apiVersion": "a/v1", "kind": "B", "metadata": {"name": "c"}})
        bad = bare_pod("bad") | {"typo": 1}
        with pytest.raises(ApiError, match=r"\.typo: field not declared in schema"):
            await api.apply(bad)


async def test_a_followed_log_grows(settings: LocalSettings) -> None:
    await up(settings)
    async with cluster.client(settings) as api:
        await api.apply(bare_pod())
        await until_ready(settings, "solo")
        seen = b""
        async with asyncio.timeout(PATIENCE_S):
            async for chunk in api.logs("solo", "default", follow=True):
                seen += chunk
                if seen.count(b"start ") == 1:
                    await cluster.kill(settings, "solo")
                if seen.count(b"start ") >= 2:
                    break


async def operators(settings: LocalSettings) -> list[str]:
    """The operator's pods. It is fast enough at times to make those of its controllers."""
    found = (pod.name for pod in (await cluster.status(settings)).pods)
    return [name for name in found if name.startswith("gantry-operator")]


async def test_operators_are_started_and_stopped(settings: LocalSettings) -> None:
    await up(settings)
    await cluster.set_operators(settings, 2)
    async with asyncio.timeout(PATIENCE_S):
        while len(await operators(settings)) < 2:
            await asyncio.sleep(0.05)
    status = await cluster.status(settings)
    assert status.operators_wanted == 2
    await cluster.set_operators(settings, 0)
    async with asyncio.timeout(PATIENCE_S):
        while await operators(settings):
            await asyncio.sleep(0.05)
    await cluster.up(settings, wait=False)
    assert (await cluster.status(settings)).operators_wanted == 0


async def test_a_taken_port_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = LocalSettings(local_dir=tmp_path / "local", api_port=port)
        with pytest.raises(GantryError, match=f"Port {port} on 127.0.0.1 is in use") as refused:
            await cluster.up(settings)
    assert "\n" not in str(refused.value)


async def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    settings = LocalSettings(local_dir=tmp_path / "local")
    with pytest.raises(ConfigError, match="gantry local up"):
        cluster.client(settings)
    async with Client("http://127.0.0.1:9", "x") as api:
        with pytest.raises(ApiError, match=r"No API server answers at http://127\.0\.0\.1:9"):
            await api.resources()
