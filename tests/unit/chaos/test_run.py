"""A run from manifest to files: refused early, healed first, and whole on disk."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from gantry_chaos import run
from gantry_chaos.core.actions import Action, Command, Injection, Undo
from gantry_chaos.core.timeline import Fault
from gantry_chaos.errors import ManifestError, SelectionError, UnsupportedFaultError
from gantry_chaos.history.lines import FaultMark
from gantry_chaos.history.operations import History
from gantry_chaos.inject import local
from gantry_chaos.manifests.selection import Pod
from gantry_chaos.plan.engine import Band
from gantry_chaos.plan.journal import Journal
from gantry_chaos.report.page import ReportPage

CUT = """
apiVersion: chaos-mesh.org/v1alpha1
kind: NetworkChaos
metadata: {name: cut}
spec: {action: partition, mode: all, selector: {}, target: {mode: all, selector: {}}, duration: 3s}
"""


class World:
    """Says what is done, at once."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.now_s = 7.0

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def prepare(self, fault: Fault, random: Random) -> Injection:
        undo = (Command(("off", fault.id)),)
        return Injection(("shop/a",), (Command(("on", fault.id)),), undo)

    def perform(self, action: Action) -> None:
        assert isinstance(action, Command)
        self.done.append(" ".join(action.argv))

    def undo(self, part: Undo) -> None:
        self.done.append(" ".join(part.argv))

    def prove(self, fault: Fault) -> str:
        return ""

    def ended(self, fault: Fault) -> str:
        return ""


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "cut.yaml"
    path.write_text(CUT)
    return path


PODS = [Pod("shop", "a", "u")]


def test_a_run_is_played_and_told(manifest: Path, tmp_path: Path) -> None:
    world, said = World(), list[str]()
    faults = run.play(
        *(manifest, world, lambda: PODS, tmp_path / "out"),
        seed=1,
        namespace="shop",
        clock=world,
        tell=said.append,
    )
    assert faults == [Band("cut", ("shop/a",), 7.0, 10.0)]
    assert world.done == ["on cut", "off cut"]
    assert said == ["cut: shop/a", "cut: it bit, and is healed."]
    assert run.marks(faults) == [FaultMark("cut", "start", 7000), FaultMark("cut", "end", 10_000)]


def test_what_an_earlier_run_left_is_healed_first(manifest: Path, tmp_path: Path) -> None:
    world, folder, said = World(), tmp_path, list[str]()
    with Journal(folder / run.JOURNAL, "earlier") as journal:
        journal.begin("old", ("shop/a",), (Command(("off", "old")),))
    arguments = (manifest, world, lambda: PODS, folder)
    run.play(*arguments, seed=1, namespace="shop", clock=world, tell=said.append)
    assert world.done == ["off old", "on cut", "off cut"]
    assert said[0] == "old: an earlier run left it; healed"


def test_healing_alone(tmp_path: Path) -> None:
    world = World()
    assert run.heal(tmp_path, world) == []
    with Journal(tmp_path / run.JOURNAL, "earlier") as journal:
        journal.begin("old", ("shop/a",), (Command(("off", "old")),))
    assert run.heal(tmp_path, world) == ["old"]
    assert run.heal(tmp_path, world) == []
    assert world.done == ["off old"]


def test_what_cannot_be_played_is_refused_before_anything_is_done(
    manifest: Path, tmp_path: Path
) -> None:
    world = World()
    arguments = (world, lambda: PODS, tmp_path / "out")
    with pytest.raises(SelectionError, match=r"cut.yaml, document 1: spec.selector matches none"):
        run.play(manifest, *arguments, seed=1, namespace="elsewhere", clock=world)
    with pytest.raises(UnsupportedFaultError):
        run.play(manifest, *arguments, seed=1, namespace="shop", check=local.check)
    with pytest.raises(ManifestError):
        run.play(tmp_path / "none.yaml", *arguments, seed=1)
    assert world.done == []


def test_everything_is_on_disk(tmp_path: Path) -> None:
    page = ReportPage("cut", {"seed": "1"}, History((), ()), (), (), (), ())
    path = run.store(page, tmp_path / "deep" / "out")
    assert path.read_text().startswith("<!doctype html>")
    assert (path.parent / run.VERDICT).read_text() == "CHAOS cut FAILED\n"
    assert (path.parent / "cut-chaos-rto-result-file").read_text() == "results: []\n"
