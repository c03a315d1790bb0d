"""The check of operations against the log's order: each answer says which index it reflects.

The log is one order, told by the controllers themselves; to be believed it must fit both time and
answers. Three rules, checked in the time it takes to sort:

1. No two entries have one index: an index belongs to one write, or to one refusal.
2. Real time: an answer's index is no lower than the highest index that had been answered to anybody
   before the operation was called; a write's is higher.
3. Replayed in the order of the indexes, every answer is legal.

Writes without an answer have no index. Where the replay finds a state that cannot be, those that
were called early enough are tried in between; all ways of doing so are followed side by side.

It is independent of the search in `orders`: it trusts the index and looks at no other order, and
so decides histories of any concurrency. A history is good only if both say so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gantry_chaos.checkers.group import GroupOperation, GroupState

from gantry_chaos.checkers.group import outcomes

WORLDS_MAX = 10_000


class _World(NamedTuple):
    """A state that is possible, and the unanswered writes that it needs."""

    state: GroupState
    used: frozenset[int]


def of_all(steps: Sequence[GroupOperation]) -> Iterator[str]:
    """The faults in the indexes of `steps`, which may be of many groups."""
    answered = [step for step in steps if not step.unknown]
    without = [item for item in answered if item.index is None]
    if without:
        yield f"{len(without)} answers say no index, the first is: {without[0]}."
        return
    yield from _twice(answered)
    yield from _backwards(answered)


def of_group(steps: Sequence[GroupOperation], first: GroupState) -> Iterator[str]:
    """The steps that contradict the log's order; all of one group, whose first state is `first`."""
    lost = [step for step in steps if step.unknown]
    worlds = {_World(first, frozenset())}
    # At one index the entry itself comes before those who read what it left.
    answered = (step for step in steps if not step.unknown)
    for item in sorted(answered, key=lambda item: (item.index or 0, item.op == "get", item.called)):
        after = _through(worlds, item)
        if not after:
            after = _through(_with_lost(worlds, lost, item), item)
        if not after:
            known = " or ".join(sorted({str(world.state) for world in worlds})[:3])
            yield f"The log's order does not explain: {item}; the state before it was {known}."
            return
        worlds = after


def _twice(answered: list[GroupOperation]) -> Iterator[str]:
    entries: dict[int | None, GroupOperation] = {}
    for item in answered:
        if item.op == "get":
            continue
        if item.index in entries:
            yield f"Two requests have one index: {entries[item.index]}; {item}."
        entries[item.index] = item


def _backwards(answered: list[GroupOperation]) -> Iterator[str]:
    by_return = sorted(answered, key=lambda item: item.returned or 0)
    highest: GroupOperation | None = None
    returned = 0
    for item in sorted(answered, key=lambda item: item.called):
        while returned < len(by_return) and (by_return[returned].returned or 0) < item.called:
            before = by_return[returned]
            if highest is None or (before.index or 0) > (highest.index or 0):
                highest = before
            returned += 1
        if highest is None or item.index is None or highest.index is None:
            continue
        if item.index < highest.index or (item.op != "get" and item.index == highest.index):
            yield f"An index goes back in time: {item}; before it had been answered: {highest}."


def _through(worlds: set[_World], one: GroupOperation) -> set[_World]:
    return {_World(state, world.used) for world in worlds for state in outcomes(world.state, one)}


def _with_lost(
    worlds: set[_World], lost: list[GroupOperation], before: GroupOperation
) -> set[_World]:
    """`worlds`, and all that unanswered writes called before `before` returned make of them."""
    found, edge = set(worlds), set(worlds)
    while edge and len(found) < WORLDS_MAX:
        edge = {
            _World(state, world.used | {number})
            for world in edge
            for number, item in enumerate(lost)
            if number not in world.used and item.called <= (before.returned or 0)
            for state in outcomes(world.state, item)
        } - found
        found |= edge
    return found
