"""A chaos run on a cluster of processes, end to end: planned, struck, proved, judged, reported.

The second half is about its worth: a run whose load loses one message, and one whose fault strikes
nobody, must not pass.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gantry_chaos.history import lines, observations
from gantry_chaos.history.operations import history
from gantry_chaos.report.page import ReportPage
from gantry_chaos.report.summary import exit_code
from gantry_cli.client.consumer import ReceivedRecord
from gantry_cli.target import local_settings
from gantry_cli.trial.load import Load
from gantry_lab.chaos.local_stage import open_local
from gantry_lab.chaos.scenario import HISTORY, OBSERVATIONS, Options, load, play
from support.cli_cluster import ROOT, CliCluster, settled
from support.patience import PATIENCE_S

KILL = """
apiVersion: chaos-mesh.org/v1alpha1
kind: Workflow
metadata: {name: kill, annotations: {chaos.gantry.dev/mastership: moves}}
spec:
  entry: all
  templates:
    - {name: all, templateType: Serial, children: [steady, kill-master, settle]}
    - {name: steady, templateType: Suspend, deadline: 1s}
    - {name: settle, templateType: Suspend, deadline: 3s}
    - name: kill-master
      templateType: PodChaos
      deadline: 4s
      podChaos:
        action: container-kill
        mode: one
        containerNames: [broker]
        selector:
          labelSelectors: {app.kubernetes.io/component: broker, mq.gantry.dev/role: master}
"""
CUT = """
apiVersion: chaos-mesh.org/v1alpha1
kind: NetworkChaos
metadata: {name: cut}
spec: {action: partition, mode: all, selector: {}, target: {mode: all, selector: {}}, duration: 3s}
"""
GROUP = """
apiVersion: mq.gantry.dev/v1alpha1
kind: BrokerGroup
metadata: {name: orders}
spec:
  controllerRef: {name: gantry}
  replicas: 3
  storage: {size: 1Gi}
  tier: {url: "file://%s", packBytes: 8192, lingerMs: 200}
"""
KNOCKS_MS = 50.0
"""So far apart are the two knocks before another master is elected: no gap is shorter."""
OPTIONS = Options(seed=7, before_s=2.0, after_s=1.0, limit_ms=None)


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster") / "local"


@pytest.fixture(scope="module")
def cluster(state_dir: Path) -> Iterator[CliCluster]:
    """A cluster whose group uploads to a directory; gone afterwards."""
    found = CliCluster(state_dir)
    manifest = state_dir.parent / "group.yaml"
    (state_dir.parent / "tier").mkdir()
    manifest.write_text(GROUP % (state_dir.parent / "tier"))
    try:
        found.gantry("local", "up")
        found.gantry("local", "apply", "-f", str(manifest))
        found.wait_until(settled)
        yield found
    finally:
        found.gantry("local", "down", "--purge")


@pytest.fixture
def kill(tmp_path: Path) -> Path:
    path = tmp_path / "kill.yaml"
    path.write_text(KILL)
    return path


def test_a_run_from_its_manifest_to_its_report(
    cluster: CliCluster, kill: Path, tmp_path: Path
) -> None:
    master = cluster.master_pod()
    planned = cluster.lab("chaos", "plan", str(kill)).stdout
    assert "1 faults, 8 s" in planned
    assert f"container-kill broker  default/{master}" in planned

    report = tmp_path / "out" / "report.html"
    timing = ("--seconds-before", "2", "--seconds-after", "1", "--seed", "7")
    done = cluster.lab("chaos", "run", str(kill), "--report", str(report), "--json", *timing)
    assert done.returncode == 0, done.stderr
    assert "CHAOS kill passed" in done.stderr
    assert f"kill-master: default/{master}" in done.stderr
    assert "kill-master: it bit, and is healed." in done.stderr

    found = json.loads(done.stdout)
    assert found == json.loads(report.with_suffix(".json").read_text())
    (scenario,) = found["scenarios"]
    verdicts = {one["checker"]: one for one in scenario["verdicts"]}
    assert list(verdicts) == [
        *("messages", "metadata", "roles", "availability", "commits", "mastership", "tier"),
    ]
    assert verdicts["messages"]["figures"]["enqueueSuccessCount"] > 100
    assert verdicts["messages"]["figures"]["lostMessageCount"] == 0
    assert verdicts["metadata"]["figures"]["operations"] > 20
    assert verdicts["metadata"]["figures"]["epochs"] == 2
    assert verdicts["roles"]["figures"]["epochs"] == 2
    assert verdicts["tier"]["figures"]["claims"] == 2, "the new master uploads"
    assert verdicts["tier"]["figures"]["packs"] > 5
    (outage,) = scenario["outages"]
    assert 0 <= outage["worstMs"] < 8000  # 0: what was usual before is as long, on a busy machine
    assert outage["worstMs"] + outage["baselineMs"] > KNOCKS_MS
    assert scenario["faults"][0]["targets"] == [f"default/{master}"]

    page = report.read_text()
    assert not re.search(r"127\.\d+\.\d+\.\d+", page), "brokers are named by their pods"
    for told in ("kill-master", master, "epoch", "orders confirm", "orders tier", "passed", "<svg"):
        assert told in page
    assert "| kill | kill-master on" in report.with_suffix(".md").read_text()
    kept = history(lines.read(report.parent / "kill" / HISTORY), "kept")
    assert [fault.name for fault in kept.faults] == ["kill-master"]
    assert {one.op for one in kept.operations} == {"enqueue", "dequeue", "read", "commit"}
    assert list(observations.read(report.parent / "kill" / OBSERVATIONS))
    assert (report.parent / "kill" / "kill-chaos-queue-result-file").exists()
    healed = cluster.lab("chaos", "heal", "--report", str(report))
    assert healed.stdout == "Nothing was left behind.\n"


def test_bad_input_is_refused_before_anything_is_done(
    cluster: CliCluster, kill: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.yaml"
    cut.write_text(CUT)
    for command, named in (
        (("run", str(cut)), "pods of gantry local share one network: run it on kind"),
        (("plan", str(tmp_path / "none.yaml")), "none.yaml: it cannot be read: No such file"),
        (("run", str(kill), "--group", "nobody"), "no BrokerGroup 'nobody' here"),
        (("run", str(kill), str(kill)), "Two manifests are named kill"),
    ):
        done = cluster.lab("chaos", *command)
        assert done.returncode == 2, done.stderr
        assert named in done.stderr
        assert done.stderr.count("\n") == 1
    nobody = tmp_path / "nobody.yaml"
    nobody.write_text(KILL.replace("role: master", "role: nobody"))
    done = cluster.lab("chaos", "plan", str(nobody))
    assert done.returncode == 75
    assert "selector matches none of" in done.stderr


def test_a_fault_that_strikes_nobody_proves_nothing(
    cluster: CliCluster,
    kill: Path,
    tmp_path: Path,
    state_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kill.write_text(KILL.replace("role: master", "role: nobody"))
    page = played(kill, tmp_path, state_dir, monkeypatch)
    assert "selector matches none of" in page.trouble
    assert exit_code([page]) == 75


def test_a_lost_message_makes_the_run_fail(
    cluster: CliCluster,
    kill: Path,
    tmp_path: Path,
    state_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The load is given everything but one message, as if the group had lost it."""
    cluster.wait_until(settled)
    hand_out, given = Load._on_received, list[str]()

    async def lose_one(self: Load, received: ReceivedRecord) -> None:
        given.append(received.key)
        if len(given) != 50:
            await hand_out(self, received)

    monkeypatch.setattr(Load, "_on_received", lose_one)
    page = played(kill, tmp_path, state_dir, monkeypatch)
    (messages,) = [one for one in page.verdicts if one.checker == "messages"]
    assert messages.violations == (f"{given[49]} was acknowledged and never consumed.",)
    assert exit_code([page]) == 1
    assert not page.trouble


def test_a_run_that_is_told_to_end_ends(
    cluster: CliCluster, kill: Path, tmp_path: Path, state_dir: Path
) -> None:
    """SIGTERM in the middle: the same exit as Ctrl-C, and nothing is left behind."""
    kill.write_text(KILL.replace("deadline: 1s", "deadline: 60s"))
    report = tmp_path / "report.html"
    command = ("chaos", "run", str(kill), "--report", str(report), "--seconds-before", "0")
    run = subprocess.Popen(
        (sys.executable, "-m", "gantry_lab", *command),
        env=os.environ | {"GANTRY_LOCAL_DIR": str(state_dir)},
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline_s = time.monotonic() + PATIENCE_S
    while not (tmp_path / "kill" / "faults.journal").exists():
        assert run.poll() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    run.send_signal(signal.SIGTERM)
    _, said = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 130, said
    assert "Traceback" not in said


def played(
    manifest: Path, folder: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> ReportPage:
    """A run in this process."""
    monkeypatch.setenv("GANTRY_LOCAL_DIR", str(state_dir))

    async def run() -> ReportPage:
        stage = await open_local(local_settings(), None)
        return await play(load(manifest, stage), stage, folder / "out", OPTIONS, print)

    return asyncio.run(run())
