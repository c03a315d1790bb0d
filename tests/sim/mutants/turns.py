"""Bugs in whose requests are served when (``gantry_protocol.remoting.turns``)."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

TURNS = "gantry_protocol.remoting.turns"
RULE = "unit/protocol/test_turns.py"


def _mutant(name: str, breaks: str, where: str, old: str, new: str) -> Mutant:
    return Mutant(name, "turns", breaks, (Edit(where, old, new),), UnitTests(RULE))


MUTANTS = (
    _mutant(
        "share-without-end",
        "a connection that pipelines has its whole read served in one turn",
        "gantry_protocol.remoting.connection:Connection._dispatch",
        "if clock() >= ends_s:",
        "if False:",
    ),
    _mutant(
        "turn-without-end",
        "all who wait are served in one turn, and heartbeats after them",
        f"{TURNS}:Turns._serve",
        "if now_s >= until_s:",
        "if False:",
    ),
    _mutant(
        "second-row-never-rests",
        "who asks for little has what the others leave",
        f"{TURNS}:Turns._turn",
        "self._second and now_s >= self._rests_until_s and",
        "self._second and",
    ),
    _mutant(
        "dear-requests-rest-like-cheap-ones",
        "a few dear requests take half of the time from everybody",
        f"{TURNS}:Turns._serve",
        "dear_s += now_s - begun_s",
        "pass",
    ),
    _mutant(
        "rest-measured-by-all-time",
        "an attack that starves a victim looks like one that disturbs nobody",
        f"{TURNS}:Load.note",
        "max(passed_s - second_s, 0.0)",
        "passed_s",
    ),
    _mutant(
        "dear-for-having-waited",
        "a send that was kept from the processor once stands behind strangers' from then on",
        f"{TURNS}:Standing.note",
        "min(used_s / served, COSTS_AT_MOST_S)",
        "used_s / served",
    ),
    _mutant(
        "first-row-without-end",
        "many who ask for little keep the loop from heartbeats together",
        f"{TURNS}:Turns.is_open",
        "return self._first_s < FIRST_ROW_S",
        "return True",
    ),
    _mutant(
        "later-work-is-free",
        "large batches have the replicas busy all of the time",
        f"{TURNS}:Turns._turn",
        "self._load.rest_s(second_s + owed_s, dear_s + owed_s)",
        "self._load.rest_s(second_s, dear_s)",
    ),
    _mutant(
        "later-work-without-bound",
        "large batches come faster than replicas can follow, and these leave the set",
        f"{TURNS}:Turns._turn",
        "and self.owed_s < OWED_S",
        "",
    ),
    _mutant(
        "nobody-woken-when-settled",
        "who waits for others' work waits until somebody else comes",
        f"{TURNS}:Turns.settle",
        "if self._second and self._armed is None:",
        "if False:",
    ),
)
