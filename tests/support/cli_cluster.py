"""A local cluster driven by its command line, as a person would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

ROOT = Path(__file__).resolve().parents[2]
GROUP = "orders"
PATIENCE_S = 60
Group: TypeAlias = dict[str, Any]  # as `gantry status --json` prints it


class CliCluster:
    """The cluster of one state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._env = os.environ | {"GANTRY_LOCAL_DIR": str(state_dir)}

    def run(self, *args: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """`gantry ARGS` with `text` as standard input, whatever its exit code."""
        return subprocess.run(
            [sys.executable, "-m", "gantry_cli", *args],
            env=self._env,
            cwd=ROOT,
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )

    def gantry(self, *args: str) -> str:
        """What `gantry ARGS` prints; it must succeed."""
        done = self.run(*args)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def gantry_applies(self, manifest: str) -> None:
        """`gantry local apply` of this text; it must be accepted."""
        done = self.run("local", "apply", "-f", "-", text=manifest)
        assert done.returncode == 0, done.stderr

    def status(self) -> dict[str, Any]:
        """What the controllers know."""
        found: dict[str, Any] = json.loads(self.gantry("status", "--json"))
        return found

    @property
    def name_servers(self) -> str:
        """As Java clients take them."""
        return ";".join(self.status()["nameServers"])

    def group(self) -> Group | None:
        """The group, if the controllers have it and answer."""
        done = self.run("status", "--json")
        if done.returncode != 0:
            return None
        groups = [one for one in json.loads(done.stdout)["groups"] if one["name"] == GROUP]
        return groups[0] if groups else None

    def wait_until(self, condition: Callable[[Group], bool]) -> Group:
        """The group once `condition` holds."""
        deadline = time.monotonic() + PATIENCE_S
        group = None
        while time.monotonic() < deadline:
            group = self.group()
            if group is not None and condition(group):
                return group
            time.sleep(0.3)
        pytest.fail(f"the group did not get there: {group}")

    def master_pod(self) -> str:
        """The pod of the master, by what the controllers and the API server say."""
        group = self.wait_until(settled)
        (member,) = [one for one in group["members"] if one["brokerId"] == group["masterBrokerId"]]
        pods = json.loads(self.gantry("local", "get", "pods", "-o", "json"))["items"]
        (name,) = [
            pod["metadata"]["name"] for pod in pods if pod["metadata"]["uid"] == member["podUid"]
        ]
        return str(name)


def settled(group: Group) -> bool:
    """A master, and everybody alive and in sync."""
    alive = [one for one in group["members"] if one["alive"]]
    return (
        group["masterBrokerId"] is not None
        and len(group["syncStateSet"]) == group["replicas"]
        and len(alive) == group["replicas"]
    )


@contextmanager
def cluster_with_group(state_dir: Path) -> Iterator[CliCluster]:
    """A cluster with the example's group, all in sync; stopped and deleted afterwards."""
    cluster = CliCluster(state_dir)
    try:
        cluster.gantry("local", "up")
        cluster.gantry("local", "apply", "-f", "examples/brokergroup.yaml")
        cluster.wait_until(settled)
        yield cluster
    finally:
        cluster.gantry("local", "down", "--purge")
