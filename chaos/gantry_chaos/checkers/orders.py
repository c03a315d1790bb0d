"""The search for an order of operations that explains them all: Wing and Gong's. Pure.

An order explains a history if every operation takes effect between its call and its return, and
each answer is legal in the state that those before it left. The search takes, again and again, one
operation whose call comes before the first return that is still open, and goes back where none is
legal. Lowe's memory makes it bearable: the same operations done and the same state reached need no
second visit. (Wing & Gong, "Testing and verifying concurrent objects", 1993; Lowe, "Testing for
linearizability", 2017, §5; the linked list of calls and returns is theirs.)

An operation without an answer may take effect at any time after its call, or never.

It trusts nothing but times and answers, and is exponential in the number of operations that overlap
(NP-complete). So its work is bounded, and a history that it cannot decide is not called good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gantry_chaos.checkers.group import GroupOperation, GroupState

from gantry_chaos.checkers.group import outcomes

TRIES_MAX = 2_000_000
"""States that may be looked at for one group: some seconds."""


class Search(NamedTuple):
    """The result of the search.

    Attributes:
        explained: None: it gave up.
        tries: how many states it looked at.
        stuck: an operation at whose return the longest explanation ended; None: there is none.
    """

    explained: bool | None
    tries: int
    stuck: GroupOperation | None


class _Entry:
    """A call or a return in the list of those that are still open."""

    __slots__ = ("after", "before", "match", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.before: _Entry | None = None
        self.after: _Entry | None = None
        self.match: _Entry | None = None  # the return of a call that has one


class _Frame(NamedTuple):
    """A choice that can be taken back."""

    call: _Entry
    state: GroupState  # before it
    choices: Iterator[GroupState]  # the others


def search(
    steps: Sequence[GroupOperation], first: GroupState, *, tries_max: int = TRIES_MAX
) -> Search:
    """Look for an order of `steps`, of which the first happens in the state `first`."""
    head = _listed(steps)
    open_answers = sum(not item.unknown for item in steps)
    seen: set[tuple[int, GroupState]] = set()
    frames: list[_Frame] = []
    state, done, tries = first, 0, 0
    best, stuck = -1, None
    entry = head.after
    choices: Iterator[GroupState] | None = None
    while open_answers:
        assert entry is not None, "what is open and answered has a return in the list"
        step = steps[entry.number]
        if choices is None and entry.match is None and not (step.unknown):
            # A return: everything that could come before it was tried.
            if len(frames) > best:
                best, stuck = len(frames), step
            if not frames:
                return Search(False, tries, stuck)
            call, state, choices = frames.pop()
            done &= ~(1 << call.number)
            open_answers += not steps[call.number].unknown
            _put_back(call)
            entry = call
            continue
        if choices is None:
            choices = outcomes(state, step)
        reached = done | 1 << entry.number
        for after in choices:
            tries += 1
            if (reached, after) not in seen:
                break
        else:
            entry, choices = entry.after, None
            continue
        if tries > tries_max:
            return Search(None, tries, stuck)
        seen.add((reached, after))
        frames.append(_Frame(entry, state, choices))
        _take_out(entry)
        open_answers -= not step.unknown
        state, done = after, reached
        entry, choices = head.after, None
    return Search(True, tries, None)


def _listed(steps: Sequence[GroupOperation]) -> _Entry:
    """All calls and returns in the order of time; at the same time calls come first."""
    moments: list[tuple[int, int, _Entry]] = []
    for number, step in enumerate(steps):
        call = _Entry(number)
        moments.append((step.called, 0, call))
        if step.returned is not None:
            call.match = _Entry(number)
            moments.append((step.returned, 1, call.match))
    moments.sort(key=lambda item: (item[0], item[1], item[2].number))
    head = last = _Entry(-1)
    for _, _, entry in moments:
        last.after, entry.before = entry, last
        last = entry
    return head


def _take_out(call: _Entry) -> None:
    for entry in (call, call.match):
        if entry is not None:
            assert entry.before is not None
            entry.before.after = entry.after
            if entry.after is not None:
                entry.after.before = entry.before


def _put_back(call: _Entry) -> None:
    for entry in (call.match, call):
        if entry is not None:
            assert entry.before is not None
            entry.before.after = entry
            if entry.after is not None:
                entry.after.before = entry
