"""Brokers and controllers under users whom nobody knows, on volumes that users before them filled.

The volume is its fsGroup's, as the kubelet makes it once. Nobody goes through the files again, as
where the kubelet finds the root of a volume as it should be, so each process leaves them to the
group.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from gantry_lab.bench.ports import free_ports
from support import other_user
from support.broker_cluster import bodies, pull_command, send_command
from support.broker_processes import Group
from support.loopback_controller import CLUSTER, GROUP
from support.other_user import ASSIGNED, ASSIGNED_LATER, IMAGE, User
from support.patience import PATIENCE_S, STARTS_WITHIN_S
from support.pretend_cluster import PretendCluster

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(bool(other_user.possible()), reason=other_user.possible())
OTHER = User(20_000, 0, IMAGE.volume_group)


class Stranger:
    """A `gantry` process of a user, which can write nothing but its volume."""

    def __init__(self, user: User, volume: Path, log: Path, *command: str, **env: str) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                user.command(volume, *command),
                env=user.environment(GANTRY_DATA_DIR=str(volume), **env),
                stdout=output,
                stderr=output,
            )

    def end(self) -> int:
        """SIGTERM, and its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STARTS_WITHIN_S)


class LoneMember(Group):
    """A group of one, whose process has a user."""

    def __init__(self, directory: Path, volume: Path) -> None:
        super().__init__(directory, members=1)
        self.volume, self.user = volume, IMAGE

    def boot(self, ip: str) -> None:
        self.processes[ip] = Stranger(  # type: ignore[assignment] - as far as a group needs one
            self.user,
            self.volume,
            self.directory / "broker.log",
            "broker",
            GANTRY_GROUP=GROUP,
            GANTRY_ALLOW_UNAUTHENTICATED="true",
            GANTRY_CLUSTER=CLUSTER,
            GANTRY_CONTROLLERS=self.controller.address,
            GANTRY_LOG_SEGMENT_BYTES=str(1 << 20),
            GANTRY_BIND=ip,
            GANTRY_REMOTING_PORT="10911",
            GANTRY_HA_PORT="10912",
            GANTRY_HTTP_PORT="10913",
        )


def runs_as(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def kept_from_the_group(volume: Path) -> list[str]:
    """Files that the next user could not write, but for those of RocksDB."""
    return [
        str(path.relative_to(volume))
        for path in volume.rglob("*")
        if not path.stat().st_mode & stat.S_IWGRP and "kv" not in path.parts
    ]


USERS = [
    pytest.param((ASSIGNED, ASSIGNED_LATER), id="assigned"),
    pytest.param((IMAGE, OTHER, IMAGE), id="chosen"),
]


@pytest.mark.parametrize("users", USERS)
async def test_a_broker_goes_on_where_another_user_stopped(
    tmp_path: Path, users: tuple[User, ...]
) -> None:
    sent = []
    with other_user.volume(users[0]) as volume:
        group = LoneMember(tmp_path, volume)
        ip = f"{group.network}.1"
        group.user = users[0]
        try:
            async with asyncio.timeout(PATIENCE_S):
                await group.start()
            for number, user in enumerate(users):
                if number:
                    assert await asyncio.to_thread(group.processes[ip].end) == 0
                    group.user = user
                    group.boot(ip)
                for _ in range(12):  # more than a segment
                    sent.append(os.urandom(100_000))
                    assert (await group.ask(send_command(sent[-1]))).code == 0
                assert runs_as(group.processes[ip].process.pid) == user.user
                assert kept_from_the_group(volume) == []
            found = bodies(await group.ask(pull_command(0)))
            assert found == sent[: len(found)] != []
        except BaseException:
            print((tmp_path / "broker.log").read_text("utf-8"))
            raise
        finally:
            await group.stop()


@pytest.mark.parametrize("users", USERS)
async def test_a_controller_goes_on_where_another_user_stopped(
    tmp_path: Path, users: tuple[User, ...]
) -> None:
    raft, remoting, http, names = free_ports(4)
    peers = f"1=127.0.0.1:{raft}:{remoting}:{http}"
    env = {"NAME": "c-0", "PEERS": peers, "CLUSTER_UID": "u", "NAMESERVER_PORT": str(names)}
    env |= {"RAFT_PORT": str(raft), "REMOTING_PORT": str(remoting), "HTTP_PORT": str(http)}
    env |= {"ALLOW_UNAUTHENTICATED": "true"}
    with other_user.volume(users[0]) as volume:
        for user in users:
            told = {f"GANTRY_{key}": text for key, text in env.items()}
            node = Stranger(user, volume, tmp_path / "controller.log", "controller", **told)
            try:
                await ready(f"http://127.0.0.1:{http}/readyz", node)
                assert runs_as(node.process.pid) == user.user
                assert node.end() == 0, node.log.read_text("utf-8")
            finally:
                node.process.kill()
                node.process.wait()
            assert kept_from_the_group(volume) == []


async def test_an_operator_runs_under_any_user(tmp_path: Path) -> None:
    """It has no volume; what it is told to write is nothing."""
    async with PretendCluster() as cluster:
        cluster.load(ROOT / "crds")
        (port,) = free_ports(1)
        with other_user.volume(ASSIGNED) as scratch:
            config = cluster.write_kubeconfig(scratch / "kubeconfig")
            config.chmod(0o644)
            told = {"GANTRY_KUBECONFIG": str(config), "GANTRY_HTTP_PORT": str(port)}
            operator = Stranger(ASSIGNED, scratch, tmp_path / "operator.log", "operator", **told)
            try:
                await ready(f"http://127.0.0.1:{port}/readyz", operator)
                assert runs_as(operator.process.pid) == ASSIGNED.user
                assert await asyncio.to_thread(operator.end) == 0
            finally:
                operator.process.kill()
                operator.process.wait()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("door", {"GROUP": "g", "CLUSTER": "c", "CONTROLLERS": "127.0.0.1:1", "PORT": "0"}),
        (
            "front",
            {"CLUSTER": "c", "CONTROLLERS": "127.0.0.1:1", "PORTS": "1"}
            | {"ALLOW_UNAUTHENTICATED": "true"},
        ),
        ("proxy", {"NAMESERVER": "127.0.0.1:1", "GRPC_PORT": "0"}),
    ],
)
async def test_who_keeps_nothing_runs_under_any_user(
    tmp_path: Path, command: str, told: dict[str, str]
) -> None:
    http, first = free_ports(2)
    ports = {"HTTP_PORT": str(http)} | ({"FIRST_PORT": str(first)} if command == "front" else {})
    env = {f"GANTRY_{key}": text for key, text in (told | ports).items()}
    with other_user.volume(ASSIGNED) as nothing:
        process = Stranger(ASSIGNED, nothing, tmp_path / "log", command, **env)
        try:
            await ready(f"http://127.0.0.1:{http}/livez", process)
            assert runs_as(process.process.pid) == ASSIGNED.user
            assert await asyncio.to_thread(process.end) == 0
        finally:
            process.process.kill()
            process.process.wait()
        assert list(nothing.iterdir()) == []


async def ready(url: str, node: Stranger) -> None:
    """Until it says that it is."""
    async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as session:
        while True:
            assert node.process.poll() is None, node.log.read_text("utf-8")
            with suppress(aiohttp.ClientError):
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.05)
