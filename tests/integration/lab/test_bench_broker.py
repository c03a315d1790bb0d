"""`gantry_lab bench broker` as a person runs it, for as short as it goes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

THROUGHPUT = ("send-64-1r", "pull-hot", "pop-64", "tls-64", "repeats-64")


def bench(*arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gantry_lab", "bench", "broker", "--json", *arguments],
        env=os.environ | {"TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_figures_of_a_group(tmp_path: Path) -> None:
    wanted = [word for case in (*THROUGHPUT, "kills-1000") for word in ("--case", case)]
    brief = ("--runs", "1", "--warmup", "0.1", "--log-mib", "16", "--kills", "1")
    done = bench(*wanted, *brief, "--seconds", "0.5", directory=tmp_path)
    if "Measure longer" in done.stderr:  # a busy machine
        shutil.rmtree(tmp_path, ignore_errors=True)
        tmp_path.mkdir()
        done = bench(*wanted, *brief, "--seconds", "10", directory=tmp_path)
    assert done.returncode == 0, done.stderr
    *figures, on = [json.loads(line) for line in done.stdout.splitlines()]
    found = {(one["case"], one["metric"]): one["median"] for one in figures}
    for case in THROUGHPUT:
        assert found[case, "messages_per_s"] > 0
        assert found[case, "master_cpu_us"] > 0
        assert found[case, "generator_cpu_us"] > 0
    for case, other in (("tls-64", "plain_per_s"), ("repeats-64", "off_per_s")):
        assert found[case, other] > 0
        assert found[case, "ratio"] > 0
    assert found["kills-1000", "acknowledged"] > 0
    assert found["kills-1000", "lost"] == 0
    assert found["kills-1000", "duplicated"] == 0
    assert on["machine"]["cpus"] >= 1
    assert list(tmp_path.iterdir()) == []


def test_messages_that_nobody_acknowledges_come_again(tmp_path: Path) -> None:
    done = bench("--case", "pop-timers", "--runs", "1", directory=tmp_path)
    assert done.returncode == 0, done.stderr
    *figures, _ = [json.loads(line) for line in done.stdout.splitlines()]
    found = {one["metric"]: one["median"] for one in figures}
    assert found["acknowledged"] >= 2000
    assert 0 <= found["late_p99_ms"] <= found["late_max_ms"]
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_ours_is_not_killed(tmp_path: Path) -> None:
    done = bench("--case", "kills-1000", "--against", "127.0.0.1:1", directory=tmp_path)
    assert done.returncode != 0
    assert "kills-1000 needs servers that it starts itself" in done.stderr


def test_what_is_told_to_end_takes_its_processes_along(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gantry_lab", "bench", "broker", "--case", "send-64-1r"]
    env = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([*command, "--seconds", "60"], env=env, stderr=subprocess.PIPE) as bench:
        while not list(tmp_path.glob("*/*/*broker*.log")):
            assert bench.poll() is None
            time.sleep(0.05)
        children = Path(f"/proc/{bench.pid}/task/{bench.pid}/children").read_text().split()
        bench.terminate()
        assert bench.wait(60) == 130
    assert children
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
    assert list(tmp_path.iterdir()) == []


def test_nobody_there_is_one_sentence(tmp_path: Path) -> None:
    done = bench("--case", "send-64-1r", "--against", "127.0.0.1:1", directory=tmp_path)
    assert done.returncode != 0
    assert "127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
