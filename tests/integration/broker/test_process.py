"""The broker as a process: signals, exit codes, one sentence for what a person can get wrong."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gantry_broker.control import identity as identities
from gantry_broker.member import lineage_file
from gantry_broker.replica import StoredState
from gantry_protocol.process.datadir import DataDir
from gantry_protocol.process.listening import bind
from gantry_protocol.types import BrokerId, Epoch, Offset
from support.broker_cluster import eventually
from support.broker_processes import Group, Process
from support.loopback_controller import CLUSTER, GROUP
from support.replicas import lineage


def complains(directory: Path, code: int, *words: str, **env: str) -> None:
    """The process ends with ``code`` and one sentence that has all ``words``."""
    process = Process(directory, **env)
    assert process.exit_code() == code, process.said
    assert process.sentence.count("\n") == 0, process.sentence
    for word in words:
        assert word in process.sentence, process.sentence


def test_a_volume_of_another_group(tmp_path: Path) -> None:
    DataDir.open(tmp_path / "d", "broker", {"cluster": CLUSTER, "group": "other"}).close()
    complains(tmp_path / "d", 2, "gantry.json", "'other'", "'g'")


def test_a_volume_of_a_controller(tmp_path: Path) -> None:
    DataDir.open(tmp_path / "d", "controller", {"clusterUid": "x"}).close()
    complains(tmp_path / "d", 2, "kind is 'controller'")


def test_a_volume_in_use(tmp_path: Path) -> None:
    identity = {"cluster": CLUSTER, "group": GROUP}
    with DataDir.open(tmp_path / "d", "broker", identity):
        complains(tmp_path / "d", 75, "Another process still uses", str(tmp_path / "d"))


def _volume(directory: Path) -> Path:
    DataDir.open(directory, "broker", {"cluster": CLUSTER, "group": GROUP}).close()
    return directory


def test_a_damaged_lineage(tmp_path: Path) -> None:
    directory = _volume(tmp_path / "d")
    lineage_file.save(directory, StoredState(Epoch(1), lineage((1, 0)), Offset(0)))
    path = directory / lineage_file.FILE
    path.write_bytes(path.read_bytes().replace(b'"epoch":1', b'"epoch":2'))
    complains(directory, 2, str(path), "checksum")


def test_a_lineage_that_promises_more_than_the_log_has(tmp_path: Path) -> None:
    directory = _volume(tmp_path / "d")
    lineage_file.save(directory, StoredState(Epoch(1), lineage((1, 0)), Offset(500)))
    complains(directory, 2, "500")


def test_an_identity_of_another_group(tmp_path: Path) -> None:
    directory = _volume(tmp_path / "d")
    found = identities.Identity(CLUSTER, "other", "c", BrokerId(2))
    identities.save(directory, found)
    complains(directory, 2, "broker 2 of group c/other")


def test_an_identity_of_a_newer_version(tmp_path: Path) -> None:
    directory = _volume(tmp_path / "d")
    (directory / identities.FILE).write_text(json.dumps({"format": 2, "new": True}))
    complains(directory, 2, "format 2", "start the version that wrote it")


def test_a_port_in_use(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0, purpose="a test") as taken:
        port = taken.getsockname()[1]
        complains(tmp_path / "d", 75, f"Port {port}", GANTRY_REMOTING_PORT=str(port))


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"GANTRY_GROUP": ""}, ("group", "missing")),
        ({"GANTRY_CONTROLLERS": "host:port"}, ("GANTRY_CONTROLLERS", "'host:port'")),
        ({"GANTRY_BIND": "localhost"}, ("GANTRY_BIND", "not an IP address")),
        ({"GANTRY_HEARTBEAT_TIMEOUT_MS": "600"}, ("at least twice",)),
    ],
    ids=["no group", "no controller", "no ip", "deaf"],
)
def test_settings_that_cannot_be(
    tmp_path: Path, env: dict[str, str], words: tuple[str, ...]
) -> None:
    complains(tmp_path / "d", 2, *words, **env)


async def test_a_signal_before_the_group_is_joined_ends_it(tmp_path: Path) -> None:
    process = Process(tmp_path / "d")
    await eventually(lambda: "event=listening" in process.said, "it listens")
    process.process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.exit_code) == 0
    assert process.sentence == ""


# ---- a group of processes


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    made = Group(tmp_path)
    try:
        await made.start()
        producing = asyncio.create_task(made.produce())
        await made.acknowledged_after("the producer is at work")
        yield made
        producing.cancel()
        await asyncio.gather(producing, return_exceptions=True)
    finally:
        await made.stop()


async def test_kill_pause_and_end_of_a_master(group: Group) -> None:
    """One group, three disasters; each must cost less than the client's time-out."""
    epoch = group.controller.group.master_epoch

    killed = group.master_ip
    group.processes[killed].process.kill()
    await group.acknowledged_after("writes after SIGKILL")
    assert group.controller.group.master_epoch == epoch + 1
    group.boot(killed)
    await group.settled()

    leaving = group.master_ip
    group.processes[leaving].process.send_signal(signal.SIGTERM)
    await group.acknowledged_after("writes after SIGTERM")
    assert await asyncio.to_thread(group.processes[leaving].exit_code) == 0
    assert "handing over" in group.processes[leaving].said
    assert group.controller.group.master_epoch == epoch + 2
    group.boot(leaving)
    await group.settled()

    paused = group.master_ip
    group.processes[paused].process.send_signal(signal.SIGSTOP)
    await group.acknowledged_after("writes while the master stands still")
    assert group.controller.group.master_epoch == epoch + 3
    group.processes[paused].process.send_signal(signal.SIGCONT)
    await group.settled()
    # A paused master may have to say: stored, not confirmed; and the next one of a busy machine,
    # whose replicas are late: too few in sync.
    assert group.codes <= {0, 1, 12, 14}
    assert group.remarks.get(1, set()) <= {"in-sync replicas not enough"}


async def test_a_paused_replica_does_not_stop_the_writes(group: Group) -> None:
    ip = next(one for one in group.processes if one != group.master_ip)
    epoch = group.controller.group.master_epoch
    group.processes[ip].process.send_signal(signal.SIGSTOP)
    await group.acknowledged_after("writes go on without it")
    assert len(group.controller.group.sync_state_set) == 2
    group.processes[ip].process.send_signal(signal.SIGCONT)
    await group.settled()
    assert group.controller.group.master_epoch == epoch
    assert group.codes == {0}
