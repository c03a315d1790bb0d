"""Changes of eight kinds under load: the gap that `kubectl gantry plan` foretells, and what comes.

What is foretold is asked for with the manifest in hand, before anything is changed; what is seen is
the worse of two clients on two nodes. `GANTRY_E2E_RUNS` bounds how many changes there are.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from harness.shell import run
from harness.trial import RUNS_MAX
from harness.waiting import wait_until

if TYPE_CHECKING:
    from harness.kube import Kube, Object
    from harness.trial import Trial

CHANGE_PATIENCE_S = 300.0
APART_MS = 250.0
REPLICAS, MINIMUM = 3, 2


class Change(NamedTuple):
    """A merge patch of the spec; `whole` says that all replicas are in sync after it."""

    kind: str
    patch: Object
    whole: bool = True


def changes(time_of: int) -> list[Change]:
    """Ten changes after which the group is as it was but for a variable and a setting."""
    env = [{"name": "LAP", "value": str(time_of)}]
    return [
        Change("switchover", {"switchover": {"id": f"lap-{time_of}"}}),
        Change("variable", {"template": {"spec": {"container": {"env": env}}}}),
        Change("more replicas", {"replicas": REPLICAS + 1}),
        Change("higher minimum", {"replication": {"minInSyncReplicas": MINIMUM + 1}}),
        Change("setting", {"config": {"lock_wait_s": str(time_of)}}),
        Change("lower minimum", {"replication": {"minInSyncReplicas": MINIMUM}}),
        Change("fence", {"fenced": [REPLICAS]}, whole=False),
        Change("let in again", {"fenced": []}),
        Change("switchover", {"switchover": {"id": f"again-{time_of}"}}),
        Change("fewer replicas", {"replicas": REPLICAS}),
    ]


def test_changes_are_as_they_were_announced(trial: Trial) -> None:
    """Lost messages fail it; how far figures are apart is told, as all figures are."""
    wanted = [*changes(1), *changes(2)][: max(2, RUNS_MAX)]
    apart: list[float] = []
    print(f"\n{len(wanted)} changes, foretold and seen:", flush=True)
    try:
        trial.settle()
        for change in wanted:
            foretold_ms = foretold(trial.kube, trial.group, change.patch)
            since_s = time.monotonic()
            trial.kube.patch("brokergroup", trial.group, {"spec": change.patch})
            wait_until(f"{change.kind} is done", CHANGE_PATIENCE_S, lambda: is_done(trial))
            if change.whole:
                trial.settle()
            seen_ms = max(gap.ms for soak in trial.soaks if (gap := soak.gap(since_s)) is not None)
            apart.append(abs(seen_ms - foretold_ms))
            print(f"  {change.kind}: {foretold_ms} ms, {seen_ms:.0f} ms", flush=True)
        trial.settle()
        account = trial.account()
    finally:
        restored = {"replicas": REPLICAS, "fenced": [], "config": None, "template": None}
        minimum = {"replication": {"minInSyncReplicas": MINIMUM}}
        trial.kube.patch("brokergroup", trial.group, {"spec": restored | minimum})
        wait_until(f"{trial.group} is as before", CHANGE_PATIENCE_S, lambda: is_done(trial))
    trial.report.add(
        f"{len(wanted)} changes that were announced",
        "write gap, foretold and seen apart",
        apart,
        limit=APART_MS,
        account=account,
    )


def foretold(kube: Kube, group: str, patch: Object) -> int:
    """The gap that `kubectl gantry plan` says, 0 where sends go on."""
    live = kube.get("brokergroup", group)
    assert live is not None
    manifest = {key: live[key] for key in ("apiVersion", "kind")}
    manifest |= {"metadata": {"name": group}, "spec": live["spec"] | patch}
    said = run(
        *(sys.executable, "-m", "gantry_cli", "kube", "plan", "-f", "-", "-o", "json"),
        *("--kubeconfig", str(kube.kubeconfig), "-n", kube.namespace),
        stdin=json.dumps(manifest),
    )
    found: Object = json.loads(said)
    assert not found["course"]["refused"], found["course"]
    return int(found["gapMs"] or 0)


def is_done(trial: Trial) -> bool:
    """Whether the group is as its spec wishes, as tools that wait read it."""
    found = trial.kube.get("brokergroup", trial.group) or {"metadata": {}}
    status = found.get("status", {})
    ready = [c["status"] for c in status.get("conditions", ()) if c["type"] == "Ready"]
    current = status.get("observedGeneration") == found["metadata"].get("generation")
    return current and ready == ["True"]
