"""The time a change takes to settle once an operator is back that went away in the middle of it.

``python -m gantry_lab.measure.away [LAPS]``: a group of three on the cluster of processes. In each
lap each change of ``CASES`` is applied, and the group is deleted. The operator is stopped a moment
after each, a longer one in each lap, so that it leaves at another step; it is away for ``AWAY_S``;
and it is started. Prints, for each change, the seconds from that start until the group is as its
spec wishes. The start of the operator's process is in it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from gantry_cli.output import print_json
from support.cli_cluster import GROUP, ROOT, CliCluster, settled

from gantry_lab.bench.results import line, machine

if TYPE_CHECKING:
    from collections.abc import Callable

AWAY_S = 5.0
LEFT_AFTER_S = (0.0, 0.5, 2.0, 6.0)
PATIENCE_S = 300.0
LOOK_S = 0.1
REPLICAS = 3

Spec = dict[str, Any]


def switchover(spec: Spec, lap: int) -> None:
    """Another master, by a person's wish."""
    spec["switchover"] = {"id": f"lap-{lap}"}


def roll(spec: Spec, lap: int) -> None:
    """A setting for which every pod restarts."""
    spec["config"] = {"lock_wait_s": str(lap + 1)}


def scale(spec: Spec, lap: int) -> None:
    """One replica more, and in the next lap one less."""
    spec["replicas"] = REPLICAS + 1 - lap % 2


def growth(spec: Spec, lap: int) -> None:
    """Larger volumes."""
    spec["storage"] = {**spec["storage"], "size": f"{21 + lap}Gi"}


CASES: Final[tuple[Callable[[Spec, int], None], ...]] = (switchover, roll, scale, growth)
"""What is done to the spec; besides them the group is deleted, and made again."""


class Away:
    """One run; see the module."""

    def __init__(self, cluster: CliCluster) -> None:
        self._cluster = cluster
        self._manifest = yaml.safe_load((ROOT / "examples/brokergroup.yaml").read_text("utf-8"))
        self._manifest["spec"]["storage"]["whenScaled"] = "Delete"
        self.took_s: dict[str, list[float]] = {}

    def apply(self) -> None:
        """The group as it is wished now."""
        self._cluster.gantry_applies(yaml.safe_dump(self._manifest))

    def lap(self, number: int) -> None:
        """Each change once, and the deletion; then the group is made again."""
        for case in CASES:
            case(self._manifest["spec"], number)
            self._through(case.__name__, number, self.apply, self.is_settled)
        self._through("delete", number, self._delete, self._is_gone)
        self.apply()
        self.until(self.is_settled, "the group is there again")

    def _through(
        self, case: str, lap: int, change: Callable[[], None], done: Callable[[], bool]
    ) -> None:
        """The change, with the operator away in the middle of it."""
        change()
        time.sleep(LEFT_AFTER_S[lap % len(LEFT_AFTER_S)])
        self._cluster.gantry("local", "operator", "stop")
        time.sleep(AWAY_S)
        since_s = time.monotonic()
        self._cluster.gantry("local", "operator", "start")
        self.until(done, case)
        self.took_s.setdefault(case, []).append(time.monotonic() - since_s)

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait for it."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"not within {PATIENCE_S:g} s: {what}")
            time.sleep(LOOK_S)

    def is_settled(self) -> bool:
        """Whether the group is as its spec wishes, as tools that wait read it."""
        found = self._cluster.object("bg", GROUP)
        status = (found or {}).get("status") or {}
        if not status or status.get("observedGeneration") != found["metadata"]["generation"]:
            return False
        ready = [each["status"] for each in status["conditions"] if each["type"] == "Ready"]
        replicas = self._manifest["spec"]["replicas"]
        whole = status.get("inSync") == f"{replicas}/{replicas}"
        return ready == ["True"] and whole and len(self._pods()) == replicas and self._has_room()

    def _has_room(self) -> bool:
        wished = self._manifest["spec"]["storage"]["size"]
        claims = self._cluster.object("pvc")["items"]
        ours = [each for each in claims if f"{GROUP}-broker" in each["metadata"]["name"]]
        return all(each["status"]["capacity"]["storage"] == wished for each in ours)

    def _delete(self) -> None:
        self._cluster.gantry("local", "delete", "bg", GROUP)

    def _is_gone(self) -> bool:
        return self._cluster.object("bg", GROUP) is None and not self._pods()

    def _pods(self) -> list[str]:
        pods = self._cluster.object("pods")["items"]
        names = [each["metadata"]["name"] for each in pods]
        return [name for name in names if name.startswith(f"{GROUP}-broker-")]


def run(directory: Path, laps: int) -> None:
    """The whole of it."""
    cluster = CliCluster(directory / "local")
    try:
        cluster.gantry("local", "up")
        away = Away(cluster)
        away.apply()
        cluster.wait_until(settled)
        for number in range(laps):
            away.lap(number)
        for case, took_s in away.took_s.items():
            print_json(line("away", case, "settled_s", "s", took_s, digits=1))
    finally:
        cluster.gantry("local", "down", "--purge")


def main() -> None:
    """See the module."""
    laps = int(sys.argv[1]) if len(sys.argv) > 1 else len(LEFT_AFTER_S)
    print_json({"bench": "away", "machine": machine()})
    with tempfile.TemporaryDirectory() as directory:
        run(Path(directory), laps)


if __name__ == "__main__":
    main()
