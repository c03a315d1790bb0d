"""Both oracles of broker groups: known-bad histories, and every order tried for small ones."""

from __future__ import annotations

from itertools import permutations

import pytest
from gantry_chaos.checkers import linearizable, orders, witness
from gantry_chaos.checkers.group import GroupOperation, GroupState, outcomes, steps
from gantry_chaos.history.lines import Outcome
from gantry_chaos.history.operations import Operation
from hypothesis import event, given, settings
from hypothesis import strategies as st

START = "1:1:1:1"


def op(
    kind: str,
    value: str | None,
    called: int,
    returned: int | None,
    *,
    asked: str | None = None,
    index: int | None = None,
    code: int = 0,
    group: str = "orders",
) -> Operation:
    outcome: Outcome = "SUCCESS"
    if returned is None:
        outcome = "UNKNOWN"
    elif code:
        outcome = "FAILURE"
    extra = {"code": str(code)}
    if asked is not None:
        extra["asked"] = asked
    if index is not None:
        extra["index"] = str(index)
    return Operation(f"c{called}", kind, outcome, value, group, called, returned, extra)


def get(value: str, called: int, returned: int, index: int) -> Operation:
    return op("get", value, called, returned, index=index)


def alter(asked: str, value: str, called: int, returned: int, index: int) -> Operation:
    return op("alter", value, called, returned, asked=asked, index=index)


def refused(kind: str, asked: str, code: int, called: int, returned: int, index: int) -> Operation:
    return op(kind, None, called, returned, asked=asked, code=code, index=index)


def lost(kind: str, asked: str, called: int) -> Operation:
    return op(kind, None, called, None, asked=asked)


FIRST = get(START, 0, 1, 5)
WIDER = alter("1:1:1:1,2", "1:1:2:1,2", 2, 4, 6)
GOOD = {
    "one after the other": [FIRST, WIDER, get("1:1:2:1,2", 5, 6, 6)],
    "old value while a change runs": [FIRST, WIDER, get(START, 3, 5, 5)],
    "a refusal because of the other": [
        FIRST,
        WIDER,
        refused("alter", "1:1:1:1,3", 2001, 3, 6, 7),
    ],
    "a lost change that took effect": [
        FIRST,
        lost("alter", "1:1:1:1,2", 2),
        get("1:1:2:1,2", 5, 6, 6),
    ],
    "a lost change that did not": [FIRST, lost("alter", "1:1:1:1,2", 2), get(START, 5, 6, 5)],
    "a lost change that took effect late": [
        FIRST,
        lost("alter", "1:1:1:1,2", 2),
        get(START, 5, 6, 5),
        get("1:1:2:1,2", 7, 8, 6),
    ],
    "an election inherits the set": [
        FIRST,
        WIDER,
        op("designate", "2:2:3:1,2", 5, 6, asked="1:2:0:", index=7),
        refused("designate", "1:1:0:", 2000, 7, 8, 8),
        refused("designate", "2:2:0:", 2011, 9, 10, 9),
        refused("alter", "1:1:3:1", 2002, 11, 12, 10),
    ],
    "a lost election leaves some of the set": [
        FIRST,
        WIDER,
        lost("designate", "1:2:0:", 5),
        get("2:2:3:2", 8, 9, 7),
    ],
    "evidence is not judged": [FIRST, refused("alter", "1:1:1:1,9", 2006, 2, 3, 6)],
    "epochs may skip": [
        FIRST,
        WIDER,
        op("designate", "4:2:5:2", 5, 6, asked="1:2:0:", index=9),
    ],
}
BAD = {
    "stale read": [FIRST, WIDER, get(START, 5, 6, 5)],
    "stale read that claims the index": [FIRST, WIDER, get(START, 5, 6, 6)],
    "lost update": [FIRST, WIDER, alter("1:1:1:1,3", "1:1:2:1,3", 5, 6, 7)],
    "lost update, at once": [FIRST, WIDER, alter("1:1:1:1,3", "1:1:2:1,3", 2, 4, 7)],
    "split brain: two masters in an epoch": [
        FIRST,
        WIDER,
        op("designate", "2:2:3:1,2", 5, 9, asked="1:2:0:", index=7),
        get("2:1:3:1,2", 6, 9, 7),
    ],
    "split brain: the old master alters": [
        FIRST,
        WIDER,
        op("designate", "2:2:3:1,2", 5, 6, asked="1:2:0:", index=7),
        alter("1:1:2:1", "1:1:3:1", 7, 8, 8),
    ],
    "elected from outside the set": [
        FIRST,
        op("designate", "2:3:2:3", 2, 3, asked="1:3:0:", index=6),
    ],
    "refused without a reason": [FIRST, refused("alter", "1:1:1:1,2", 2001, 2, 3, 6)],
    "refused for the wrong reason": [FIRST, refused("alter", "2:1:9:1,2", 2001, 2, 3, 6)],
    "read of the future": [
        FIRST,
        get("1:1:2:1,2", 2, 3, 6),
        alter("1:1:1:1,2", "1:1:2:1,2", 5, 6, 7),
    ],
    "reads go back": [FIRST, WIDER, get("1:1:2:1,2", 2, 3, 6), get(START, 4, 5, 5)],
    "a lost change took effect twice": [
        FIRST,
        lost("alter", "1:1:1:1,2", 2),
        get("1:1:2:1,2", 3, 4, 6),
        get("1:1:3:1,2", 5, 6, 7),
    ],
    "a lost change before it was asked": [
        FIRST,
        get("1:1:2:1,2", 2, 3, 6),
        lost("alter", "1:1:1:1,2", 5),
    ],
}


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD.keys())
def test_good_histories_pass(history: list[Operation]) -> None:
    found = linearizable.check(history)
    assert found.violations == ()
    assert found.figures["search"]
    assert found.figures["witness"]


@pytest.mark.parametrize("history", BAD.values(), ids=BAD.keys())
def test_bad_histories_are_found_by_each_oracle(history: list[Operation]) -> None:
    found = linearizable.check(history)
    assert not found.passed
    assert not found.figures["search"], "found without trusting the index"
    assert not found.figures["witness"], "found without looking for another order"


ONLY_WITNESS = {
    "two entries at one index": (
        [FIRST, WIDER, refused("alter", "1:1:1:1", 2001, 5, 6, 6)],
        "Two requests have one index",
    ),
    "an index goes back though the value could be": (
        [FIRST, WIDER, get("1:1:2:1,2", 5, 6, 4)],
        "An index goes back in time: c5 get: 1:1:2:1,2 at index 4 (5.000 to 6.999 ms)",
    ),
    "no index": (
        [FIRST, op("get", START, 2, 3)],
        "1 answers say no index, the first is: c2 get: 1:1:1:1 (2.000 to 3.999 ms).",
    ),
    "an order that the log did not have": (
        [FIRST, WIDER, get(START, 2, 4, 6)],
        "The log's order does not explain: c2 get: 1:1:1:1 at index 6",
    ),
}


@pytest.mark.parametrize(("history", "told"), ONLY_WITNESS.values(), ids=ONLY_WITNESS.keys())
def test_only_the_index_shows_these(history: list[Operation], told: str) -> None:
    found = linearizable.check(history)
    assert not found.passed
    assert found.figures["search"]
    assert any(told in sentence for sentence in found.violations), found.violations


def test_an_index_belongs_to_one_entry_of_all_groups() -> None:
    other = op("get", START, 0, 1, index=6, group="bills")
    write = op("alter", "1:1:2:1,2", 5, 6, asked="1:1:1:1,2", index=6, group="bills")
    found = linearizable.check([FIRST, WIDER, other, write])
    assert any("Two requests have one index" in told for told in found.violations)


@pytest.mark.parametrize(
    ("history", "told"),
    [
        ([], "nothing is known"),
        ([op("get", "2:b", 0, 1, index=1)], "c0 get: '2:b' is no EPOCH:MASTER:SET_EPOCH:MEMBERS"),
        ([op("alter", START, 0, 1, index=1)], "c0 alter: None is no EPOCH:MASTER"),
        ([op("get", "1:1:1:1,2,3,4,5,6,7,8,9", 0, 1)], "more than 8 members"),
        (
            [Operation("c", "get", "SUCCESS", START, "g", 0, 1, {"index": "x"})],
            "its index is 'x', no number",
        ),
    ],
)
def test_what_says_too_little_is_not_passed(history: list[Operation], told: str) -> None:
    found = linearizable.check(history)
    assert not found.passed
    assert any(told in sentence for sentence in found.violations), found.violations


def test_a_search_without_end_is_not_passed() -> None:
    many = [get(START, 2, 900, 5) for _ in range(12)]
    hopeless = [FIRST, *many, get("1:1:9:1", 2, 900, 5)]
    found = linearizable.check(hopeless, tries_max=500)
    assert any("the search gave up after 50" in told for told in found.violations)
    assert not found.figures["search"]


def every_order(taken: list[GroupOperation], first: GroupState) -> bool:
    """The brute force: each subset of what was lost, each order that fits the time."""
    answered = [one for one in taken if not one.unknown]
    unknown = [one for one in taken if one.unknown]
    subsets = [
        [one for number, one in enumerate(unknown) if chosen >> number & 1]
        for chosen in range(1 << len(unknown))
    ]
    return any(
        _explains(order, first)
        for subset in subsets
        for order in permutations([*answered, *subset])
    )


def _explains(order: tuple[GroupOperation, ...], first: GroupState) -> bool:
    for number, earlier in enumerate(order):
        for later in order[number + 1 :]:
            if later.returned is not None and later.returned < earlier.called:
                return False
    states = {first}
    for one in order:
        states = {after for state in states for after in outcomes(state, one)}
    return bool(states)


SETS = ["1", "1,2", "2", "1,3"]
STATES = st.builds(
    lambda epoch, master, set_epoch, members: f"{epoch}:{master}:{set_epoch}:{members}",
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(1, 3),
    st.sampled_from(SETS),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    """Mostly a run of an honest register whose times and answers are then disturbed."""
    state = GroupState(1, 1, 1, (1,))
    found: list[Operation] = []
    for number in range(draw(st.integers(1, 5))):
        at = 10 * number
        called = max(0, at - draw(st.integers(0, 25)))
        returned: int | None = at + draw(st.integers(0, 25))
        kind = draw(st.sampled_from(["get", "alter", "alter", "designate"]))
        if kind == "get":
            value = draw(STATES) if draw(st.integers(0, 9)) == 0 else str(state)
            found.append(op("get", value, called, returned))
            continue
        asked, code, after = _asked(draw, kind, state)
        value = None if code else str(after)
        if draw(st.integers(0, 4)) == 0:
            returned, code, value = None, 0, None
        if returned is None and draw(st.booleans()):
            after = state
        found.append(op(kind, value, called, returned, asked=asked, code=code))
        state = after
    return found


def _asked(draw: st.DrawFn, kind: str, state: GroupState) -> tuple[str, int, GroupState]:
    """What is asked in `state`, the code of the answer, and the state after it."""
    if kind == "designate":
        target = draw(st.sampled_from([1, 2]))
        asked = f"{state.epoch}:{target}:0:"
        if target == state.master:
            return asked, 2011, state
        if target not in state.members:
            return asked, 2012, state
        return asked, 0, GroupState(state.epoch + 1, target, state.set_epoch + 1, state.members)
    members = tuple(int(word) for word in draw(st.sampled_from(SETS)).split(","))
    claimed = max(1, state.set_epoch - draw(st.sampled_from([0, 0, 0, 1])))
    asked = f"{state.epoch}:{state.master}:{claimed}:{','.join(map(str, members))}"
    if members == state.members or state.master not in members:
        return (
            asked,
            2013 if claimed == state.set_epoch or members == state.members else 2001,
            state,
        )
    if claimed != state.set_epoch:
        return asked, 2001, state
    return asked, 0, state._replace(set_epoch=state.set_epoch + 1, members=members)


@settings(max_examples=300, deadline=None)
@given(histories())
def test_the_search_agrees_with_trying_every_order(history: list[Operation]) -> None:
    taken = sorted((step for _, step in steps(history)), key=lambda one: one.called)
    first = GroupState(1, 1, 1, (1,))
    expected = every_order(taken, first)
    event(f"linearizable: {expected}")
    assert orders.search(taken, first).explained == expected


@settings(max_examples=300, deadline=None)
@given(histories())
def test_what_the_log_explains_some_order_explains(history: list[Operation]) -> None:
    """The witness never passes what the search refuses: its order is one of those."""
    numbered = [
        at_index(one, number) for number, one in enumerate(history, 1)
    ]  # as if the log had the order in which the register was asked
    taken = sorted((step for _, step in steps(numbered)), key=lambda one: one.called)
    first = GroupState(1, 1, 1, (1,))
    witnessed = not [*witness.of_all(taken), *witness.of_group(taken, first)]
    event(f"witnessed: {witnessed}")
    if witnessed:
        assert orders.search(taken, first).explained


def at_index(one: Operation, index: int) -> Operation:
    return op(
        one.op,
        one.value,
        one.called_ms,
        one.returned_ms,
        asked=one.extra.get("asked"),
        code=int(one.extra["code"]),
        index=index,
    )
