"""The verdict on clients' operations on broker groups: linearizable by both oracles, or not. Pure.

Groups share nothing but the log, so each is an object of its own (linearizability is local:
Herlihy & Wing 1990, theorem 1), except that an index belongs to one entry of all.

What it refuses: to call a history good in which nothing was answered, which one oracle could not
decide, or whose answers do not say what they must.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_chaos.checkers import orders, witness
from gantry_chaos.checkers.group import NO_MASTER, OPERATIONS, GroupOperation, GroupState, steps
from gantry_chaos.checkers.verdicts import Verdict, verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_chaos.history.operations import Operation

__all__ = ["NAME", "OPERATIONS", "check"]

NAME = "groups"
NOTHING = GroupState(0, NO_MASTER, 0, ())


def check(operations: Iterable[Operation], *, tries_max: int = orders.TRIES_MAX) -> Verdict:
    """Whether `get`, `alter` and `designate` of every group are linearizable.

    Their key is the group; what they say is in `gantry_chaos.checkers.group`. A group's first state
    is that of its first answered `get`, which must come before everything else.
    """
    groups: dict[str, list[GroupOperation]] = {}
    found: list[str] = []
    try:
        for key, step in steps(operations):
            groups.setdefault(key, []).append(step)
    except ValueError as error:
        found.append(f"{error}.")
    everything = [step for taken in groups.values() for step in taken]
    wrong = list(witness.of_all(everything))
    searched = True
    tries = 0
    for group, taken in sorted(groups.items()):
        taken.sort(key=lambda item: item.called)
        first = _first_state(taken)
        result = orders.search(taken, first, tries_max=tries_max)
        tries += result.tries
        if result.explained is None:
            found.append(f"{group}: the search gave up after {result.tries} states; not decided.")
        elif not result.explained:
            found.append(
                f"{group}: no order explains the answers; the best stops at {result.stuck}."
            )
        searched = searched and result.explained is True
        wrong += [f"{group}: {sentence}" for sentence in witness.of_group(taken, first)]
    found += wrong
    answered = sum(not item.unknown for item in everything)
    if not answered:
        found.append("No operation on a group was answered, so nothing is known.")
    figures = {
        "groups": len(groups),
        "operations": answered,
        "unknown": len(everything) - answered,
        "writes": sum(item.writes for item in everything),
        "tries": tries,
        "search": searched,
        "witness": not wrong,
    }
    return verdict(NAME, dict(figures), found)


def _first_state(taken: list[GroupOperation]) -> GroupState:
    first = taken[0]
    alone = first.returned is not None and all(item.called > first.returned for item in taken[1:])
    return first.told if first.op == "get" and first.told is not None and alone else NOTHING
