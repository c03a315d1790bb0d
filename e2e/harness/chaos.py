"""Scenarios of `e2e/scenarios` on the installed group, for `make chaos` and for single tests.

What runs is the command line, as a person types it; the verdict is read from its report.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from harness import installation

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.kube import Kube

SCENARIOS = installation.ROOT / "e2e" / "scenarios"
RUN_S = 1800.0  # a scenario lasts two minutes at most, and there are six
PASSED = 0


class Outcome(NamedTuple):
    """What a run ended with: its exit code, its verdict, and what it said on the way."""

    code: int
    verdict: dict[str, Any]
    said: str

    @property
    def passed(self) -> bool:
        """Every fault bit, and every checker passed."""
        return self.code == PASSED


def named(*names: str) -> list[Path]:
    """The manifests of scenarios by their names; of all of them when none is named.

    Raises:
        LookupError: there is no such scenario.
    """
    there = {path.stem: path for path in sorted(SCENARIOS.glob("*.yaml"))}
    missing = [name for name in names if name not in there]
    if missing:
        raise LookupError(f"no scenario {missing[0]}; there are {', '.join(there)}")
    return [there[name] for name in names or there]


def run(
    kube: Kube,
    manifests: Sequence[Path],
    report: Path,
    *options: str,
    group: str = installation.GROUP,
    show: bool = True,
) -> Outcome:
    """Play scenarios one after another against a group; nothing of them is left behind.

    Args:
        kube: the namespace of the group.
        manifests: what is played.
        report: the HTML page; its twins and the histories are put beside it.
        options: more for `gantry_lab chaos run`.
        group: who is struck.
        show: pass on what the run says, as it says it.

    Raises:
        AssertionError: the run ended without a verdict.
    """
    command = (
        *(sys.executable, "-m", "gantry_lab", "chaos", "run", *map(str, manifests)),
        *("--on", "kind", "--kubeconfig", str(kube.kubeconfig)),
        *("--namespace", kube.namespace, "--group", group),
        *("--report", str(report), *options),
    )
    answer = report.with_suffix(".json")
    answer.unlink(missing_ok=True)  # of an earlier run
    said: list[str] = []
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=installation.ROOT,
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                said.append(line)
                if show:
                    print(line, end="", flush=True)
            code = process.wait(RUN_S)
        except BaseException:
            process.terminate()  # it heals, and its watchdog does if it cannot
            process.wait(RUN_S)
            raise
    assert answer.exists(), f"the run ended with code {code} and no verdict: {''.join(said)}"
    return Outcome(code, json.loads(answer.read_text()), "".join(said))


def run_scenario(kube: Kube, name: str, folder: Path, *options: str) -> Outcome:
    """Play one scenario by its name; see `run`. Its report is `folder/NAME.html`."""
    return run(kube, named(name), folder / f"{name}.html", *options)
