"""One scenario on one cluster: settle, load, faults, drain, fetch, judge.

The rule protected here: nothing is struck before the group is whole and the load flows, and nothing
is judged before the load was paused and everything was read. A scenario that cannot be played to
its end becomes a page that says why; only bad input, which no retry would mend, is an error.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from gantry_chaos import run
from gantry_chaos.checkers.verdicts import verdict
from gantry_chaos.core.timeline import timeline
from gantry_chaos.errors import ManifestError
from gantry_chaos.history import lines, observations
from gantry_chaos.history.observations import RoleSeen
from gantry_chaos.history.operations import History
from gantry_chaos.history.records import BATCH_MAX, split
from gantry_chaos.manifests.reader import read
from gantry_chaos.plan.clock import StoppableClock
from gantry_chaos.report.outcome import judge
from gantry_chaos.report.page import ReportPage
from gantry_protocol.errors import EXIT_BAD_INPUT, EXIT_TEMPORARY, GantryError
from gantry_protocol.process.files import atomic_write, make_directory

from gantry_lab.chaos.stage import TOPIC_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from gantry_chaos.checkers.mastership import Expectation
    from gantry_chaos.checkers.verdicts import Verdict
    from gantry_chaos.core.timeline import Timeline
    from gantry_chaos.history.lines import Line
    from gantry_chaos.history.observations import Observation
    from gantry_chaos.manifests.workflow import Experiment
    from gantry_chaos.plan.engine import Band

    from gantry_lab.chaos.stage import ChaosStage, HistoryRecorder, LoadClient
    from gantry_lab.soak.views import SoakState

ANNOTATION = "chaos.gantry.dev/mastership"
"""On a manifest: `moves` or `stays`, what the scenario is written to show."""
HISTORY = "history.tsv"
OBSERVATIONS = "observations.jsonl"
SETTLE_PATIENCE_S = 180.0  # a container that was killed again waits for its kubelet's back-off
RESUME_PATIENCE_S = 60.0
DRAIN_PATIENCE_S = 20.0
POLL_S = 0.5
FRESH_S = 2.0  # a reading of the group that is older says nothing


class NotSettledError(GantryError):
    """A group that is not whole, so that a fault would say nothing about it."""

    exit_code = EXIT_TEMPORARY


class Options(msgspec.Struct, frozen=True):
    """The options of all scenarios.

    Attributes:
        seed: decides which pods are struck.
        before_s: the load runs this long before the time line begins.
        after_s: and this long after it has ended and writes flow again.
        limit_ms: for the worst write gap; None: it is only told.
    """

    seed: int
    before_s: float
    after_s: float
    limit_ms: float | None


class Scenario(msgspec.Struct, frozen=True):
    """A manifest that was read, and found to be playable."""

    manifest: Path
    name: str
    timeline: Timeline
    expected: Expectation | None


def load(manifest: Path, stage: ChaosStage) -> Scenario:
    """Read a manifest, and refuse what cannot be played.

    Raises:
        GantryError: a sentence about the file and the field.
    """
    experiments = read(manifest)
    found = timeline(experiments, namespace=stage.namespace)
    stage.check(found)
    return Scenario(manifest, manifest.stem, found, expectation(experiments))


def expectation(experiments: Sequence[Experiment]) -> Expectation | None:
    """The mastership's course by the annotation of a manifest; None: nothing.

    Raises:
        ManifestError: it says something else.
    """
    for experiment in experiments:
        match experiment.metadata.annotations.get(ANNOTATION):
            case None:
                continue
            case "moves":
                return "moves"
            case "stays":
                return "stays"
            case other:
                path = f"metadata.annotations[{ANNOTATION}]"
                raise ManifestError(experiment.where, path, f"{other!r} is neither moves nor stays")
    return None


async def play(
    scenario: Scenario,
    stage: ChaosStage,
    folder: Path,
    options: Options,
    tell: Callable[[str], None],
) -> ReportPage:
    """Play a scenario and judge it; its files are in `folder`.

    Raises:
        GantryError: bad input that was only found while playing.
    """
    began = datetime.now(UTC)
    facts = {
        "cluster": stage.kind,
        "group": f"{stage.namespace}/{stage.group}",
        "seed": str(options.seed),
        "began": began.isoformat(timespec="seconds"),
    }
    topic = f"{TOPIC_PREFIX}-{scenario.name}-{secrets.token_hex(3)}"
    try:
        async with stage.client(topic) as client:
            await _settle(client, tell)
            tell(f"load runs on {topic}; {options.before_s:g} s before the first step")
            await asyncio.sleep(options.before_s)
            faults = await _strike(scenario, stage, folder, options, tell)
            await _resume(client, tell)
            await asyncio.sleep(options.after_s)
            count = await client.pause(DRAIN_PATIENCE_S)
            history, seen = await fetch(client)
            await asyncio.to_thread(stage.pods)
            seen = named(seen, stage.names)
            tier = await _tier(stage, client, seen)
    except GantryError as error:
        if error.exit_code == EXIT_BAD_INPUT:
            raise
        tell(str(error))
        nothing = History((), ())
        return ReportPage(scenario.name, facts, nothing, (), (), (), (), trouble=str(error))
    history += run.marks(faults)
    keep(folder, history, seen)
    tell(f"judging {len(history)} lines and {len(seen)} observations")
    return await asyncio.to_thread(
        judge,
        scenario.name,
        facts,
        history,
        seen,
        faults,
        drained=bool(count.drained),
        limit_ms=options.limit_ms,
        expected=scenario.expected,
        more=[] if tier is None else [tier],
    )


async def fetch(
    recorder: HistoryRecorder, *, full: int = BATCH_MAX
) -> tuple[list[Line], list[Observation]]:
    """The whole history of a load that is paused.

    Args:
        recorder: the load.
        full: records of a batch that more may follow.

    Raises:
        GantryError: a part of it was dropped, so nothing can be judged.
    """
    records: list[str] = []
    after = 0
    while True:
        batch = await recorder.batch(after)
        if batch.dropped:
            raise NotSettledError(
                f"{batch.dropped} records of the history were dropped, since it is longer than a "
                "load can keep: play a shorter scenario, or send less."
            )
        records += batch.records
        after = batch.next
        if len(batch.records) < full:  # readers go on all the time, so it never ends by itself
            return split(records, "the load's history")


def keep(folder: Path, history: Sequence[Line], seen: Sequence[Observation]) -> None:
    """Write what was recorded, to be looked at and judged again."""
    make_directory(folder)
    text = "".join(f"{lines.encode(line)}\n" for line in history)
    atomic_write(folder / HISTORY, text.encode())
    atomic_write(folder / OBSERVATIONS, observations.encode(seen))


def named(seen: Iterable[Observation], names: Mapping[str, str]) -> list[Observation]:
    """Observations with the names of pods instead of their uids."""
    return [
        msgspec.structs.replace(item, broker=names.get(item.broker, item.broker))
        if isinstance(item, RoleSeen)
        else item
        for item in seen
    ]


async def _strike(
    scenario: Scenario,
    stage: ChaosStage,
    folder: Path,
    options: Options,
    tell: Callable[[str], None],
) -> list[Band]:
    """Play the time line in a thread; a run that is cancelled heals before it ends."""
    stop = threading.Event()
    name = f"{scenario.name}-{secrets.token_hex(4)}"
    loop = asyncio.get_running_loop()

    def tell_from_there(said: str) -> None:
        loop.call_soon_threadsafe(tell, said)

    playing = asyncio.ensure_future(
        asyncio.to_thread(
            run.play,
            scenario.manifest,
            stage.backend(name),
            stage.pods,
            folder,
            seed=options.seed,
            namespace=stage.namespace,
            clock=StoppableClock(stop),
            check=stage.check,
            tell=tell_from_there,
        )
    )
    try:
        return await asyncio.shield(playing)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([playing])
        if not playing.cancelled():
            playing.exception()  # it was interrupted, as it was told to be
        raise


async def _settle(client: LoadClient, tell: Callable[[str], None]) -> None:
    deadline = time.monotonic() + SETTLE_PATIENCE_S
    told = False
    while True:
        state = await _state(client)
        reason = unsettled(state)
        if not reason:
            return
        if not told and state is not None and state.started:
            tell(f"waiting: {reason}")
            told = True
        if time.monotonic() >= deadline:
            raise NotSettledError(f"Nothing was struck: after {SETTLE_PATIENCE_S:.0f} s {reason}.")
        await asyncio.sleep(POLL_S)


def unsettled(state: SoakState | None) -> str:
    """The reason why the group cannot be struck yet; empty: it can."""
    if state is None:
        return "the load does not answer"
    if state.error:
        return f"the load broke: {state.error}"
    if not state.flowing:
        return f"nothing is acknowledged ({state.last_trouble or 'no answer yet'})"
    if state.group is None or state.group.stale_s > FRESH_S:
        return "the controllers do not tell of the group"
    if not state.group.settled:
        return "not every replica is alive and in sync"
    if state.quorum is None or not state.quorum.whole:
        return "the controllers' leader does not hear every other one"
    return ""


async def _resume(client: LoadClient, tell: Callable[[str], None]) -> None:
    """Wait until writes flow; when they do not, the checkers will say so."""
    deadline = time.monotonic() + RESUME_PATIENCE_S
    while time.monotonic() < deadline:
        state = await _state(client)
        if state is not None and state.flowing:
            return
        await asyncio.sleep(POLL_S)
    tell(f"writes do not flow {RESUME_PATIENCE_S:.0f} s after the last step")


async def _state(client: LoadClient) -> SoakState | None:
    try:
        return await client.state()
    except GantryError:
        return None


async def _tier(
    stage: ChaosStage, client: LoadClient, seen: Sequence[Observation]
) -> Verdict | None:
    """The tier's verdict; one that could not be reached is a verdict, too."""
    try:
        return await stage.tier(client, seen)
    except GantryError as error:
        return verdict("tier", {}, [f"It could not be judged: {error}"])
