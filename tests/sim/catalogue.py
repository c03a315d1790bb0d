"""The worlds by name: what ``gantry_lab simulate`` runs, and where bugs are planted.

A kind says how a world is made from a seed and how it is played: faults first, then peace, in which
it owes progress. Whatever ends a world early is its outcome: a violation, or any exception of the
code under test, as it would end a process.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
from sim.kernel.world import SECOND, Violation, World
from sim.product.runs import RUNS
from sim.raft import places
from sim.raft.world import RaftWorld


class Playable(Protocol):
    """A world that is ready to be played."""

    world: World


@dataclass(frozen=True)
class Kind:
    """One kind of world.

    Attributes:
        name: for ``--world``.
        about: one line for the help text.
        make: the world of a seed; nothing has happened in it yet.
        play: faults, then peace.
    """

    name: str
    about: str
    make: Callable[[int], Any]
    play: Callable[[Any], None]


class Outcome(msgspec.Struct, frozen=True):
    """What came of one seed. Equal seeds have equal outcomes, in any process.

    Attributes:
        trace_hash: digest of all lines of the trace.
        violation: None, or what must not be so: seed, time, the rule, the last lines of the trace.
        counters: rare things that happened.
    """

    world: str
    seed: int
    trace_hash: str
    events: int
    simulated_s: float
    violation: str | None
    counters: dict[str, int]


def play(kind: Kind, seed: int, trace: Callable[[str], None] | None = None) -> Outcome:
    """Run one seed; ``trace`` gets each line as it is written."""
    run = kind.make(seed)
    world: World = run.world
    world.trace_to = trace
    violation: str | None = None
    try:
        kind.play(run)
    except Violation as found:
        violation = str(found)
    except Exception as error:  # noqa: BLE001 - see the module
        violation = _crash(world, error)
    return Outcome(
        world=kind.name,
        seed=seed,
        trace_hash=world.trace_hash,
        events=world.events_run,
        simulated_s=world.now_us / SECOND,
        violation=violation,
        counters=dict(sorted(world.counters.items())),
    )


def _crash(world: World, error: Exception) -> str:
    """An exception as a violation: what, where, and what had happened."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}, line {place.lineno}, in {place.name}"
    trace = "\n    ".join(world.recent_trace)
    return (
        f"seed {world.seed} at {world.now_us} us: {type(error).__name__}: {error} ({where})\n"
        f"  trace:\n    {trace}"
    )


def raft_kind(name: str, about: str, make: Callable[[int], RaftWorld]) -> Kind:
    """A kind of Raft world; they differ in what is drawn."""
    return Kind(name, about, make, RaftWorld.run)


KINDS = {
    kind.name: kind
    for kind in (
        raft_kind("raft", "one quorum, everything drawn: members, knobs, faults", RaftWorld.swarm),
        *(raft_kind(name, make.__doc__ or "", make) for name, make in places.PLACES.items()),
        *(
            Kind(
                name if name == "product" else f"product-{name}",
                (kind.__doc__ or "").splitlines()[0],
                kind,
                kind.play,
            )
            for name, kind in RUNS.items()
        ),
    )
}
