"""The register of a group's master: known-bad histories, and an oracle that tries every order."""

from __future__ import annotations

from itertools import permutations

import pytest
from gantry_chaos.checkers import register
from gantry_chaos.history.lines import Outcome
from gantry_chaos.history.observations import RoleSeen
from gantry_chaos.history.operations import Operation
from hypothesis import example, given, settings
from hypothesis import strategies as st


def op(
    kind: str, value: str, called: int, returned: int | None, outcome: Outcome = "SUCCESS"
) -> Operation:
    return Operation(f"c{called}", kind, outcome, value, "orders", called, returned, {})


def read(value: str, called: int, returned: int) -> Operation:
    return op("read", value, called, returned)


def elect(value: str, called: int, returned: int) -> Operation:
    return op("elect", value, called, returned)


GOOD = {
    "one after the other": [read("1:a", 0, 1), elect("2:b", 2, 5), read("2:b", 6, 7)],
    "old value while the election runs": [elect("2:b", 2, 9), read("1:a", 3, 4), read("2:b", 5, 6)],
    "overlapping reads may differ": [read("2:b", 0, 9), read("1:a", 1, 8)],
    "the master goes away": [read("1:a", 0, 1), read("1:none", 2, 3), read("2:b", 4, 5)],
    "an unknown election": [op("elect", "2:b", 0, None, "UNKNOWN"), read("1:a", 5, 6)],
    "a refused election": [op("elect", "2:b", 0, 1, "FAILURE"), read("1:a", 5, 6)],
}
BAD = {
    "stale read": ([read("2:b", 0, 1), read("1:a", 2, 3)], "c2 read 1:a (2 to 3 ms) after c0 read"),
    "stale after an election": ([elect("2:b", 0, 1), read("1:a", 2, 3)], "after c0 elected 2:b"),
    "read of the future": ([read("2:b", 0, 1), elect("2:b", 2, 3)], "c2 elected 2:b (2 to 3 ms)"),
    "two masters": ([read("2:a", 0, 9), read("2:b", 0, 9)], "epoch 2 has several masters: a, b"),
    "elected twice": ([elect("2:a", 0, 9), elect("2:a", 1, 8)], "epoch 2 was elected twice"),
    "the master comes back": ([read("2:none", 0, 1), read("2:b", 2, 3)], "c2 read 2:b"),
    "no value": ([read("2", 0, 1)], "'2', which is no EPOCH:MASTER"),
    "nobody elected": ([elect("2:none", 0, 1)], "which is no EPOCH:MASTER"),
    "nothing answered": ([op("read", "", 0, None, "UNKNOWN")], "nothing is known"),
}


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD.keys())
def test_good_histories_pass(history: list[Operation]) -> None:
    assert register.check(history).violations == ()


@pytest.mark.parametrize(("history", "sentence"), BAD.values(), ids=BAD.keys())
def test_bad_histories_are_found(history: list[Operation], sentence: str) -> None:
    found = register.check(history)
    assert not found.passed
    assert any(sentence in told for told in found.violations), found.violations


def test_groups_are_registers_of_their_own() -> None:
    other = Operation("x", "read", "SUCCESS", "1:a", "bills", 5, 6, {})
    found = register.check([read("2:b", 0, 1), other])
    assert found.passed
    assert found.figures["registers"] == 2


def follows(state: tuple[int, str], one: Operation) -> tuple[int, str] | None:
    """The register's state after `one`, with whatever happened by itself before; None: illegal."""
    assert one.value is not None
    epoch, master = int(one.value.split(":")[0]), one.value.split(":")[1]
    if one.op == "elect":
        return (epoch, master) if epoch > state[0] else None
    if epoch > state[0] or (epoch, master) == state or (epoch == state[0] and master == "none"):
        return epoch, master
    return None


def linearizable(history: list[Operation]) -> bool:
    """Try every order."""
    for order in permutations(history):
        in_time = all(
            not (later.returned_ms is not None and later.returned_ms < earlier.called_ms)
            for number, earlier in enumerate(order)
            for later in order[number + 1 :]
        )
        state: tuple[int, str] | None = (0, "none")
        for one in order if in_time else ():
            state = follows(state, one)
            if state is None:
                break
        if in_time and state is not None:
            return True
    return False


def operations() -> st.SearchStrategy[Operation]:
    return st.builds(
        lambda kind, epoch, master, called, took: op(
            kind, f"{epoch}:{'a' if kind == 'elect' else master}", called, called + took
        ),
        st.sampled_from(["read", "read", "elect"]),
        st.integers(1, 3),
        st.sampled_from(["a", "a", "b", "none"]),
        st.integers(0, 9),
        st.integers(0, 5),
    )


@settings(max_examples=400, deadline=None)
@example([read("2:none", 0, 5), elect("2:a", 6, 7)])
@given(st.lists(operations(), min_size=1, max_size=5))
def test_the_verdict_is_that_of_trying_every_order(history: list[Operation]) -> None:
    assert register.check(history).passed == linearizable(history)


def test_what_brokers_say_of_themselves() -> None:
    good = [RoleSeen(1, "g", "a", "master", 1), RoleSeen(2, "g", "b", "master", 2)]
    assert register.check_roles([*good, RoleSeen(3, "g", "a", "replica")]).passed
    two = register.check_roles([*good, RoleSeen(3, "g", "a", "master", 2)])
    assert two.violations == ("g: a, b were masters of epoch 2.",)
    fell = register.check_roles([*good, RoleSeen(9, "g", "b", "master", 1)])
    assert "g: b was master of epoch 1 at 9 ms, after it had been of 2." in fell.violations
    assert not register.check_roles([]).passed
