"""Questions of whoever helps with a running cluster: a probe, and a bundle whose steps are retaken.

Both go through the API server's port forwarding, which reaches the loopback address of a pod. So
only a real kubelet shows whether processes in pods listen there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from harness.kube import Object
    from harness.trial import Trial

PATIENCE_S = 180.0


def asked(trial: Trial, *args: str) -> list[Object]:
    """The lines of `kubectl gantry ARGS`; how it judges what it found is not looked at."""
    kube = trial.kube
    place = ("--kubeconfig", str(kube.kubeconfig), "-n", kube.namespace)
    command = [sys.executable, "-m", "gantry_cli", "kube", *args, *place]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert not done.stderr.startswith("Error"), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_probe_measures_disks_and_sends_a_message(trial: Trial) -> None:
    found = asked(trial, "doctor", trial.group, "--probe", "--probe-window", "2", "-o", "json")
    syncs = [each["message"] for each in found if each["check"] == "syncs"]
    assert len(syncs) == 6, found
    assert all("the p99 of a sync is " in text for text in syncs), syncs
    sends = [each["message"] for each in found if each["check"] == "send"]
    assert len(sends) == 1, found
    assert "were acknowledged in " in sends[0]
    assert "; it was read " in sends[0]
    trial.settle()


def test_the_decisions_in_a_bundle_are_made_again(trial: Trial, tmp_path: Path) -> None:
    bundle = tmp_path / "report.tar.gz"
    asked(trial, "report", "-o", str(bundle))
    command = [sys.executable, "-m", "gantry_cli", "kube", "replay", str(bundle), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["name"] for line in lines if "decided" in line} >= {trial.group}
    stretches = [line for line in lines if "steps" in line]
    for folder in ("raft/", "replica/"):
        files = {line["file"] for line in stretches if line["file"].startswith(folder)}
        assert len(files) == 3, f"{folder}: of each controller and each broker"
    assert sum(line["steps"] for line in stretches) > 0
