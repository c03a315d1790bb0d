"""A local cluster driven by its command line, as a person would.

What a test does is a command in a process of its own. What it asks again and again until it is so
is the same command in the test's process: half a second of imports per question would take the
processors from the cluster that is waited for.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from urllib.request import urlopen

import pytest
import yaml
from click.testing import CliRunner
from gantry_cli.main import cli
from gantry_protocol.hosts import HOSTS_VARIABLE
from support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
GROUP = "orders"
FRONTS = "clients"
POLL_S = 0.2
SPINS = ("plan repeats without effect", "reconciles without a change")
"""What the operator logs of a plan, or of a look, that it repeats again and again."""
Group: TypeAlias = dict[str, Any]  # as `gantry status --json` prints it


class CliCluster:
    """The cluster of one state directory."""

    def __init__(self, state_dir: Path) -> None:
        self.directory = state_dir
        self.place = {"GANTRY_LOCAL_DIR": str(state_dir)}

    def run(self, *args: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """`gantry ARGS` with `text` as standard input, whatever its exit code.

        A cluster whose operator has spun ends like any other, and fails the test.
        """
        spun = self.spun() if args[:2] == ("local", "down") else []
        done = self._module("gantry_cli", *args, text=text)
        assert spun == [], f"the operator repeats itself without a change: {spun[:3]}"
        return done

    def spun(self) -> list[str]:
        """The lines in which the operator says that it spins."""
        logs = (path.read_text("utf-8", "replace") for path in self.directory.rglob("*.log"))
        lines = (line for text in logs for line in text.splitlines())
        return [line for line in lines if any(words in line for words in SPINS)]

    def lab(self, *args: str) -> subprocess.CompletedProcess[str]:
        """`python -m gantry_lab ARGS`, whatever its exit code."""
        return self._module("gantry_lab", *args)

    def _module(
        self, name: str, *args: str, text: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", name, *args],
            env=os.environ | self.place,
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

    def asked(self, *args: str) -> str | None:
        """What `gantry ARGS` prints, asked from this process; None when it fails."""
        # The command makes its process resolve the cluster's names; this one shall not.
        done = CliRunner().invoke(cli, args, env=self.place | {HOSTS_VARIABLE: None})
        return done.stdout if done.exit_code == 0 else None

    def shown(self, *args: str) -> str:
        """As `asked`; it must succeed."""
        text = self.asked(*args)
        assert text is not None, f"gantry {' '.join(args)} failed"
        return text

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
        text = self.asked("status", "--json")
        if text is None:
            return None
        groups = [one for one in json.loads(text)["groups"] if one["name"] == GROUP]
        return groups[0] if groups else None

    def wait_until(self, condition: Callable[[Group], bool]) -> Group:
        """The group once `condition` holds."""
        deadline = time.monotonic() + PATIENCE_S
        group = None
        while time.monotonic() < deadline:
            group = self.group()
            if group is not None and condition(group):
                return group
            time.sleep(POLL_S)
        pytest.fail(f"the group did not get there: {group}")

    def wait_for(self, holds: Callable[[], bool], what: str) -> None:
        """Until ``holds``; a failure says ``what`` did not come."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > deadline:
                pytest.fail(f"never: {what}")
            time.sleep(POLL_S)

    def broker_pods(self) -> tuple[str, list[str]]:
        """The pod of the master and those of its replicas, once all are in sync.

        By what the controllers and the API server say.
        """
        group = self.wait_until(settled)
        pods = json.loads(self.shown("local", "get", "pods", "-o", "json"))["items"]
        names = {pod["metadata"]["uid"]: str(pod["metadata"]["name"]) for pod in pods}
        alive = [one for one in group["members"] if one["alive"]]
        by_id = {one["brokerId"]: names[one["podUid"]] for one in alive}
        return by_id.pop(group["masterBrokerId"]), list(by_id.values())

    def master_pod(self) -> str:
        """The pod of the master."""
        master, _ = self.broker_pods()
        return master

    def object(self, *what: str) -> Any:
        """An object, or a list of them; None if there is none."""
        text = self.asked("local", "get", *what, "-o", "json")
        return None if text is None else json.loads(text)

    def front_pods(self) -> dict[str, str]:
        """Names and addresses of the fronts."""
        return {
            pod["metadata"]["name"]: pod["status"]["podIP"]
            for pod in self.object("pods")["items"]
            if pod["metadata"]["labels"].get("app.kubernetes.io/component") == "front"
        }

    def front_served(self) -> dict[str, int]:
        """By front that is there: requests that it has answered itself."""
        fronts = self._front_groups().items()
        return {name: sum(group["served"] for group in groups) for name, groups in fronts}

    def busiest_front(self) -> str:
        """The one that has answered most."""
        served = self.front_served()
        return max(served, key=served.__getitem__)

    def fronts_serve(self) -> bool:
        """Whether all of them answer sends and pulls of all groups."""
        fronts = self._front_groups()
        groups = [group for groups in fronts.values() for group in groups]
        is_whole = len(fronts) == len(self.front_pods())
        return bool(groups) and is_whole and all(group["storeAddress"] for group in groups)

    def front_statuses(self) -> dict[str, dict[str, Any]]:
        """By front that is there: its status document."""
        found = {}
        for name, address in self.front_pods().items():
            with contextlib.suppress(OSError), urlopen(f"http://{address}:10921/status") as answer:
                found[name] = json.load(answer)
        return found

    def _front_groups(self) -> dict[str, list[Group]]:
        return {name: status["groups"] for name, status in self.front_statuses().items()}

    def fronts_are_ready(self) -> bool:
        """Whether the fronts are as they are wished now."""
        found = self.object("fg", FRONTS)
        status = (found or {}).get("status") or {}
        if found is None or "conditions" not in status:
            return False
        is_seen: bool = status["observedGeneration"] == found["metadata"]["generation"]
        (ready,) = [c for c in status["conditions"] if c["type"] == "Ready"]
        return is_seen and ready["status"] == "True"


def settled(group: Group) -> bool:
    """A master, and everybody alive and in sync."""
    alive = [one for one in group["members"] if one["alive"]]
    return (
        group["masterBrokerId"] is not None
        and len(group["syncStateSet"]) == group["replicas"]
        and len(alive) == group["replicas"]
    )


def fronts(**annotations: str) -> str:
    """The manifest of two fronts; their pods have these annotations."""
    body = yaml.safe_load((ROOT / "examples/frontgroup.yaml").read_text("utf-8"))
    body["spec"] = {"replicas": 2, "template": {"metadata": {"annotations": annotations}}}
    return yaml.safe_dump(body)


@contextmanager
def cluster_with_group(
    state_dir: Path, *, fronted: bool = False, **config: str
) -> Iterator[CliCluster]:
    """A cluster with the example's group, all in sync; stopped and deleted afterwards.

    Args:
        state_dir: of the cluster.
        fronted: clients are led to two fronts, which answer sends and pulls.
        config: settings of the group's brokers.
    """
    cluster = CliCluster(state_dir)
    manifest = yaml.safe_load((ROOT / "examples/brokergroup.yaml").read_text("utf-8"))
    manifest["spec"]["config"] = config
    try:
        cluster.gantry("local", "up")
        if fronted:  # first, since brokers that run are restarted for them
            cluster.gantry_applies(fronts())
        cluster.gantry_applies(yaml.safe_dump(manifest))
        cluster.wait_until(settled)
        if fronted:
            cluster.wait_for(cluster.fronts_are_ready, "clients are led to fronts")
            cluster.wait_for(cluster.fronts_serve, "both fronts answer sends and pulls")
        yield cluster
    finally:
        cluster.gantry("local", "down", "--purge")
