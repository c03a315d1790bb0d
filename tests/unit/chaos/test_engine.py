"""Playing a time line: order, proofs, and that no fault outlives a run, whenever it is killed."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from gantry_chaos.core.actions import Absent, Action, Command, Injection, Undo
from gantry_chaos.core.timeline import Fault, Timeline, timeline
from gantry_chaos.errors import InjectionError
from gantry_chaos.manifests.reader import parse
from gantry_chaos.plan import engine, journal
from gantry_chaos.plan.journal import Journal

WORKFLOW = """
apiVersion: chaos-mesh.org/v1alpha1
kind: Workflow
metadata: {name: w}
spec:
  entry: all
  templates:
  - {name: all, templateType: Serial, children: [both, late]}
  - {name: both, templateType: Parallel, children: [cut, lose]}
  - name: cut
    templateType: NetworkChaos
    deadline: 5s
    networkChaos: {action: partition, mode: all, selector: {}, target: {mode: all, selector: {}}}
  - name: lose
    templateType: NetworkChaos
    deadline: 8s
    networkChaos: {action: loss, mode: all, selector: {}, target: {mode: all, selector: {}},
      loss: {loss: "30"}}
  - name: late
    templateType: PodChaos
    deadline: 1s
    podChaos: {action: pod-kill, mode: one, selector: {}}
"""


class Killed(BaseException):
    """The process was killed; nothing it does later has any effect."""


class World:
    """Rules that are on, changed by commands, and a process that dies at the n-th effect.

    Args:
        dies_at: number of the effect; None: never.
        after: it dies right after that effect instead of right before.
    """

    def __init__(self, dies_at: int | None = None, *, after: bool = False) -> None:
        self.on: set[str] = set()
        self.kills = 0
        self.effects = 0
        self.now_s = 100.0
        self.told: list[tuple[float, str]] = []
        self.unproved: set[str] = set()
        self.stubborn: set[str] = set()  # rules that no undo removes
        self._dies_at = dies_at
        self._after = after
        self._dead = False

    def effect(self) -> None:
        """Something outside the process is about to change."""
        if self._dead:
            raise Killed
        self.effects += 1
        if self.effects == self._dies_at and not self._after:
            self._dead = True
            raise Killed

    def done(self) -> None:
        if self.effects == self._dies_at and self._after:
            self._dead = True
            raise Killed

    def revive(self) -> None:
        self._dies_at = None
        self._dead = False

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def prepare(self, fault: Fault, random: Random) -> Injection:
        target = random.choice(["shop/a", "shop/b", "shop/c"])
        if fault.strikes_once:
            return Injection((target,), (Command(("kill",)),))
        rules = [f"{fault.id}-{n}" for n in (1, 2)]
        return Injection(
            (target,),
            tuple(Command(("on", rule)) for rule in rules),
            tuple(
                part
                for rule in rules
                for part in (Command(("off", rule), may_fail=True), Absent(("list",), rule, ""))
            ),
        )

    def perform(self, action: Action) -> None:
        assert isinstance(action, Command)
        self.effect()
        self.told.append((self.now_s - 100, " ".join(action.argv)))
        if action.argv[0] == "on":
            assert action.argv[1] not in self.on
            self.on.add(action.argv[1])
        else:
            self.kills += 1
        self.done()

    def undo(self, part: Undo) -> None:
        if isinstance(part, Absent):
            if part.text in self.on:
                raise InjectionError(f"{part.text} is still on.")
            return
        self.effect()
        self.told.append((self.now_s - 100, " ".join(part.argv)))
        if part.argv[1] not in self.stubborn:
            self.on.discard(part.argv[1])
        self.done()

    def prove(self, fault: Fault) -> str:
        self.told.append((self.now_s - 100, f"prove {fault.id}"))
        return "No packet." if fault.id in self.unproved else ""

    def ended(self, fault: Fault) -> str:
        if fault.id == "late" and "late" in self.unproved:
            raise InjectionError("Nobody answered.")
        return ""


@pytest.fixture
def plan() -> Timeline:
    return timeline(parse(WORKFLOW, "w.yaml"))


def play(plan: Timeline, world: World, path: Path, seed: int = 1) -> list[engine.Band]:
    with Journal(path, "r") as undo:
        return engine.run(plan, world, undo, world, seed=seed)


def test_everything_happens_at_its_time(plan: Timeline, tmp_path: Path) -> None:
    world = World()
    bands = play(plan, world, tmp_path / "j")
    assert world.told == [
        *[(0, f"on {rule}") for rule in ("cut-1", "cut-2", "lose-1", "lose-2")],
        (2.5, "prove cut"),
        (5, "prove lose"),
        *[(5, f"off {rule}") for rule in ("cut-1", "cut-2")],
        *[(8, f"off {rule}") for rule in ("lose-1", "lose-2")],
        (8, "kill"),
        (9, "prove late"),
    ]
    assert [(band.fault, band.start_s - 100, band.end_s - 100) for band in bands] == [
        ("cut", 0, 5),
        ("lose", 0, 8),
        ("late", 8, 9),
    ]
    assert {band.invalid for band in bands} == {""}
    assert world.now_s == 109


def test_the_seed_decides_who_is_struck(plan: Timeline, tmp_path: Path) -> None:
    def targets(seed: int, name: str) -> list[tuple[str, ...]]:
        return [band.targets for band in play(plan, World(), tmp_path / name, seed)]

    assert targets(1, "a") == targets(1, "b")
    assert len({tuple(targets(seed, f"{seed}")) for seed in range(10)}) > 1


def test_a_fault_without_proof_makes_its_band_invalid(plan: Timeline, tmp_path: Path) -> None:
    world = World()
    world.unproved = {"cut", "late"}
    bands = {band.fault: band.invalid for band in play(plan, world, tmp_path / "j")}
    assert bands == {
        "cut": "No packet.",
        "lose": "",
        "late": "No packet. There is no proof: Nobody answered.",
    }


def effects_of(plan: Timeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    world = World()
    watch_writes(world, monkeypatch)
    play(plan, world, tmp_path / "whole")
    return world.effects


def watch_writes(world: World, monkeypatch: pytest.MonkeyPatch, *, torn: bool = False) -> None:
    """Every write and every sync of the journal is an effect, too; a killed write may be torn."""
    write, fsync = journal.os.write, journal.os.fsync

    def written(file: int, data: memoryview) -> int:
        try:
            world.effect()
        except Killed:
            if torn and world.effects:
                write(file, data[: len(data) // 2])
            raise
        done = write(file, data)
        world.done()
        return done

    def synced(file: int) -> None:
        world.effect()
        fsync(file)
        world.done()

    class Patched:
        def __getattr__(self, name: str) -> object:
            return {"write": written, "fsync": synced}.get(name) or getattr(real, name)

    real = journal.os
    monkeypatch.setattr(journal, "os", Patched())


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_run_killed_at_any_point_is_healed_by_its_journal(
    plan: Timeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    with monkeypatch.context() as patch:
        total = effects_of(plan, tmp_path, patch)
    assert total > 20
    left = 0
    for point in range(1, total + 1):
        world, path = World(point, after=after), tmp_path / f"j{point}{after}"
        with monkeypatch.context() as patch:
            watch_writes(world, patch, torn=True)
            with pytest.raises(Killed):
                play(plan, world, path)
        world.revive()
        left += len(world.on) > 0
        with Journal(path, "r") as undo:
            engine.heal(undo, world)
            assert undo.open_faults == []
        assert world.on == set(), point
        with Journal(path, "r") as undo:
            assert engine.heal(undo, world) == []
    assert left > 5, "the kills left faults behind for the journal to heal"


def test_interrupting_a_run_heals_at_once(plan: Timeline, tmp_path: Path) -> None:
    class Interrupted(World):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.now_s > 104:
                raise KeyboardInterrupt

    world = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        play(plan, world, tmp_path / "j")
    assert world.on == set()
    assert [word for _, word in world.told][-4:] == [
        "off lose-1",
        "off lose-2",
        "off cut-1",
        "off cut-2",
    ]


def test_a_heal_that_fails_keeps_no_other_from_its_heal(plan: Timeline, tmp_path: Path) -> None:
    world = World()
    world.stubborn = {"lose-1"}
    with pytest.raises(InjectionError, match=r"1 faults of .* not healed: lose: lose-1 is still"):
        play(plan, world, tmp_path / "j")
    assert world.on >= {"lose-1"}
    assert not any(rule.startswith("cut") for rule in world.on)
    world.stubborn = set()
    with Journal(tmp_path / "j", "r") as undo:
        assert engine.heal(undo, world) == ["lose"]
    assert world.on == set()
