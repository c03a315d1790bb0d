"""`gantry_lab bench controller` as a person runs it, for as short as it goes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gantry_lab.bench.controller.target import AgainstControllers
from gantry_lab.bench.processes import Processes
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import GantryError
from gantry_protocol.remoting.server import Connection, RemotingServer
from support.patience import PATIENCE_S

CASES = ("write-64x1", "readindex-64x16", "leader-kill")


def bench(*arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gantry_lab", "bench", "controller", "--json", *arguments],
        env=os.environ | {"TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_figures_of_a_quorum(tmp_path: Path) -> None:
    wanted = [word for case in CASES for word in ("--case", case)]
    done = bench(*wanted, "--runs", "1", "--seconds", "1", "--kills", "1", directory=tmp_path)
    assert done.returncode == 0, done.stderr
    *figures, on = [json.loads(line) for line in done.stdout.splitlines()]
    found = {(one["case"], one["metric"]): one for one in figures}
    for case in CASES[:2]:
        assert found[case, "ops_per_s"]["median"] > 0
        assert found[case, "p99_ms"]["median"] >= found[case, "p50_ms"]["median"] > 0
        assert found[case, "leader_cpu_us"]["median"] > 0
    assert found["leader-kill", "gap_ms"]["runs"] == 1
    assert on["machine"]["cpus"] >= 1
    assert list(tmp_path.iterdir()) == []


def test_a_case_that_cannot_run_says_so_and_fails(tmp_path: Path) -> None:
    done = bench("--case", "leader-kill", "--against", "127.0.0.1:1", directory=tmp_path)
    assert done.returncode != 0
    assert "leader-kill needs servers that it starts itself" in done.stderr
    assert not [line for line in done.stdout.splitlines() if '"gap_ms"' in line]


def test_nobody_there_is_one_sentence(tmp_path: Path) -> None:
    done = bench("--case", "write-64x1", "--against", "localhost", directory=tmp_path)
    assert done.returncode == 2
    assert "--against" in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_process_that_ends_by_itself_is_named(tmp_path: Path) -> None:
    async def watch() -> None:
        while True:
            processes.check()
            await asyncio.sleep(0.01)

    processes = Processes(tmp_path)
    await processes.start("odd", ("gantry_cli", "no-such-command"), {})
    with pytest.raises(GantryError, match=r"process of odd ended with 2; its log is .*odd\.log"):
        await asyncio.wait_for(watch(), PATIENCE_S)
    await processes.end()
    assert processes.names == []


async def test_a_leader_is_loaded_once_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java's DLedger controller is named as the leader some seconds before it answers."""
    monkeypatch.setattr("gantry_lab.bench.controller.target.ASK_S", 0.001)
    asked: list[int] = []
    port = 0

    def answer(_: Connection, command: RemotingCommand) -> RemotingCommand:
        asked.append(command.code)
        if command.code == RequestCode.CONTROLLER_GET_METADATA_INFO:
            return reply(command, ext={"controllerLeaderAddress": f"127.0.0.1:{port}"})
        late = asked.count(command.code) > 2
        code = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
        return reply(command, code if late else ResponseCode.CONTROLLER_NOT_LEADER)

    server = RemotingServer(answer)
    port = await server.start("127.0.0.1", 0)
    try:
        assert await AgainstControllers(f"127.0.0.1:{port}").leader() == f"127.0.0.1:{port}"
    finally:
        await server.stop(0)
    assert asked.count(RequestCode.CONTROLLER_GET_REPLICA_INFO) == 3
