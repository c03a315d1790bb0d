"""The simulator's place, and its seeds on all cores.

The worlds are test code: they plant faults in the real cores, and live in a checkout's `tests/sim`.
They are not shipped, so they are found at run time and nothing here imports them.
"""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gantry_protocol.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

CATALOGUE = "sim.catalogue"


class SeedOutcome(Protocol):
    """One seed's outcome; equal seeds have equal ones (see `tests/sim/catalogue.py`)."""

    world: str
    seed: int
    trace_hash: str
    events: int
    simulated_s: float
    violation: str | None
    counters: Mapping[str, int]


def find_tests() -> Path:
    """The `tests` folder of the checkout in the working directory, or of the one we run from.

    Raises:
        ConfigError: neither is a checkout.
    """
    for root in (Path.cwd(), Path(__file__).resolve().parents[2]):
        if (root / "tests" / "sim" / "catalogue.py").is_file():
            return root / "tests"
    raise ConfigError(
        "The simulator's worlds are in tests/sim of a checkout, which is not here; run this in one."
    )


class Simulator:
    """The worlds of one checkout.

    Raises:
        ConfigError: there is no checkout.
    """

    def __init__(self) -> None:
        self._tests = find_tests()
        self._catalogue = _load(self._tests)

    @property
    def worlds(self) -> dict[str, str]:
        """Name and one line about each kind of world."""
        return {name: kind.about for name, kind in self._catalogue.KINDS.items()}

    def trace(self, world: str, seed: int, line: Callable[[str], None]) -> SeedOutcome:
        """Run one seed here; `line` gets the whole trace."""
        outcome: SeedOutcome = self._catalogue.play(self._catalogue.KINDS[world], seed, line)
        return outcome

    def run(self, runs: Sequence[tuple[str, int]], jobs: int) -> Iterator[SeedOutcome]:
        """Run seeds of worlds in ``jobs`` processes; the outcomes come in the order of ``runs``."""
        if jobs == 1 or len(runs) == 1:
            yield from map(_play, runs)
            return
        pool = ProcessPoolExecutor(
            max_workers=min(jobs, len(runs)),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(self._tests,),
        )
        try:
            yield from pool.map(_play, runs)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _load(tests: Path) -> Any:
    if str(tests) not in sys.path:
        sys.path.append(str(tests))
    return importlib.import_module(CATALOGUE)


def _begin(tests: Path) -> None:
    """A worker process starts; Ctrl-C is its parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("gantry").setLevel("CRITICAL")  # what programs say of faults is no outcome
    _load(tests)


def _play(run: tuple[str, int]) -> SeedOutcome:
    catalogue = importlib.import_module(CATALOGUE)
    world, seed = run
    outcome: SeedOutcome = catalogue.play(catalogue.KINDS[world], seed)
    return outcome
