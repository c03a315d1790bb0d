"""One run of an experiment from its manifest to its files: the order in which everything happens.

The rule protected here: what an earlier run left behind is healed before anything else, a manifest
that cannot be played is refused before anything is done, and whatever happens afterwards the folder
tells how to heal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError
from gantry_protocol.process.files import atomic_write, make_directory

from gantry_chaos.core.timeline import DEFAULT_NAMESPACE, timeline
from gantry_chaos.errors import JournalInUseError
from gantry_chaos.history.lines import FaultMark
from gantry_chaos.manifests.reader import read
from gantry_chaos.plan import engine
from gantry_chaos.plan.clock import SystemClock
from gantry_chaos.plan.journal import Journal
from gantry_chaos.plan.targets import preflight
from gantry_chaos.report.outcome import openchaos_results, told
from gantry_chaos.report.page import render

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gantry_chaos.core.timeline import Timeline
    from gantry_chaos.manifests.selection import Pod
    from gantry_chaos.plan.engine import Backend, Band, Clock, Executor
    from gantry_chaos.report.page import ReportPage

SUFFIX = ".journal"
JOURNAL = f"faults{SUFFIX}"
REPORT = "report.html"
VERDICT = "verdict.txt"


def play(
    manifest: Path,
    backend: Backend,
    pods: Callable[[], Sequence[Pod]],
    folder: Path,
    *,
    seed: int,
    namespace: str = DEFAULT_NAMESPACE,
    clock: Clock | None = None,
    check: Callable[[Timeline], None] = lambda _: None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Band]:
    """Play a manifest; the faults as they were.

    Args:
        manifest: a file, or a folder of files that begin together.
        backend: where it is played.
        pods: all pods, to look for selectors that match nobody.
        folder: of this run, or of an earlier one of the same kind; the journal is kept there.
        seed: decides which pods are struck.
        namespace: of objects that name none.
        clock: the system's if None.
        check: refuses time lines that the backend cannot play.
        tell: gets a sentence for every step.

    Raises:
        GantryError: what was read cannot be played, or a fault could not be injected or healed.
    """
    line = timeline(read(manifest), namespace=namespace)
    check(line)
    make_directory(folder)
    with Journal(folder / JOURNAL, f"{manifest.stem}-{seed}") as journal:
        for fault in engine.heal(journal, backend):
            tell(f"{fault}: an earlier run left it; healed")
        preflight(line, pods())
        return engine.run(line, backend, journal, clock or SystemClock(), seed=seed, tell=tell)


def heal(folder: Path, executor: Executor) -> list[str]:
    """Undo what killed runs left behind, in a folder and below it; the names of their faults.

    Raises:
        JournalInUseError: a run is still alive; all others are healed.
        InjectionError: some faults could not be undone; all others are healed.
    """
    healed: list[str] = []
    failed: list[GantryError] = []
    for path in sorted(folder.rglob(f"*{SUFFIX}")):
        try:
            with Journal(path, "") as journal:
                healed += engine.heal(journal, executor)
        except GantryError as error:
            failed.append(error)
    for item in sorted(failed, key=lambda item: isinstance(item, JournalInUseError)):
        raise item
    return healed


def marks(faults: Sequence[Band]) -> list[FaultMark]:
    """The lines of a history that say when faults were on."""
    both = [FaultMark(fault.fault, "start", round(fault.start_s * 1000)) for fault in faults]
    both += [FaultMark(fault.fault, "end", round(fault.end_s * 1000)) for fault in faults]
    return sorted(both, key=lambda mark: mark.at_ms)


def store(page: ReportPage, folder: Path) -> Path:
    """Write a run's page, its verdict and OpenChaos's results; where the page is."""
    make_directory(folder)
    atomic_write(folder / REPORT, render(page).encode())
    atomic_write(folder / VERDICT, "".join(f"{line}\n" for line in told(page)).encode())
    for name, text in openchaos_results(page).items():
        atomic_write(folder / f"{page.title}-chaos-{name}-file", text.encode())
    return folder / REPORT
