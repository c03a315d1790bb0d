"""Seeds of the product itself: nothing acknowledged is lost, whatever happens to its processes."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sim.kernel.disk import DiskOptions
from sim.kernel.world import Violation, World
from sim.product import faults
from sim.product.cluster import Simulation
from sim.product.failover import compare, is_worse
from sim.product.files import OsModule, Volume
from sim.product.kinds import ProductRun
from sim.product.machines import running
from sim.product.run import run
from sim.product.runs import RUNS

if TYPE_CHECKING:
    from sim.product.cluster import Node

TESTS = Path(__file__).resolve().parents[1]
ANY_HASH_SEED = ["rich", "consumers", "quorum", "operator"]


@pytest.fixture(autouse=True)
def quiet() -> None:
    """What the product says of faults is no news here."""
    logging.getLogger("gantry").setLevel("CRITICAL")


# Tests of equal runs play the others, and judge them as well. More seeds: ``make seeds``.
@pytest.mark.parametrize("kind", [kind for kind in RUNS if kind not in ANY_HASH_SEED])
def test_nothing_acknowledged_is_lost(kind: str) -> None:
    run(0, kind=kind)


def test_equal_seeds_are_equal_runs() -> None:
    first, second = run(5), run(5)
    assert first.trace_hash == second.trace_hash
    assert first.counters == second.counters


@pytest.mark.parametrize("kind", ANY_HASH_SEED)
def test_equal_seeds_are_equal_runs_under_any_hash_seed(kind: str) -> None:
    """Nothing else decides what happens: no set of strings, no place in memory, no run before."""
    script = (
        "import logging; logging.disable();"
        "from sim.product.runs import RUNS;"
        f"one = RUNS[{kind!r}](0); one.play();"
        "print(one.world.trace_hash, one.world.events_run, one.world.counters)"
    )
    another = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = {**os.environ, "PYTHONHASHSEED": another, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-c", script]
    there = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    here = RUNS[kind](0)
    here.play()
    world = here.world
    assert there.stdout == f"{world.trace_hash} {world.events_run} {world.counters}\n"


def test_a_schedule_can_be_written_down() -> None:
    schedule = ProductRun(3).schedule
    assert [faults.Fault.parse(str(fault)) for fault in schedule] == schedule


def test_a_schedule_is_shrunk_to_what_fails() -> None:
    schedule = ProductRun(3).schedule
    needed = {schedule[1], schedule[-1]}
    assert set(faults.shrink(schedule, lambda part: needed <= set(part), runs=500)) == needed


def test_a_violation_names_its_seed() -> None:
    """A minimum that nobody can reach: the group never comes to stand."""
    with pytest.raises(Violation, match="seed 7"):
        run(7, brokers=1)


def test_a_real_thread_that_was_left_behind_is_outside_the_world() -> None:
    """As of a test that failed: it syncs its file while a simulated process runs."""
    found: list[object] = []

    def left_behind(descriptor: int) -> None:
        try:
            OsModule().fsync(descriptor)
            found.append(running())
        except AssertionError as error:
            found.append(error)

    async def program(_: Node) -> None:
        assert running() is not None
        with tempfile.TemporaryFile() as file:
            thread = threading.Thread(target=left_behind, args=[file.fileno()])
            thread.start()
            thread.join()

    with Simulation(World(1), controllers=0, brokers=0) as cluster:
        cluster.client("somebody", program).boot()
        cluster.run(1)
    assert found == [None]


@pytest.mark.parametrize("is_synced", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_a_directory_that_is_renamed_takes_its_files_along(
    tmp_path: Path, seed: int, is_synced: bool
) -> None:
    """A power cut gives it its old name back, or leaves its files below the new one."""
    volume = Volume(World(seed), tmp_path, "disk", DiskOptions())
    old, new = volume.directory / "log", volume.directory / "aside"
    old.mkdir()
    (old / "file").write_bytes(b"rotten")
    for directory in (old, volume.directory):
        volume.sync_directory(str(directory))
    old.rename(new)
    if is_synced:
        volume.sync_directory(str(volume.directory))
    old.mkdir()
    volume.lose_power()
    assert [path.read_bytes() for path in volume.directory.rglob("file")] == [b"rotten"]
    assert (new / "file").exists() or not is_synced


def test_an_operator_never_makes_a_failover_worse() -> None:
    """The master is killed, under an unkind API server, with the operator and without."""
    compared = compare(range(2))
    assert not is_worse(compared), compared


@pytest.mark.parametrize(
    ("there", "away", "worse"),
    [(0.4, 0.4, False), (0.45, 0.4, False), (0.6, 0.4, True)],
)
def test_a_longer_gap_with_an_operator_is_worse(there: float, away: float, worse: bool) -> None:
    usual = {"median": 0.1}
    assert is_worse({"with": {"max": there, **usual}, "without": {"max": away, **usual}}) is worse
