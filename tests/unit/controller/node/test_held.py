"""Release after persist: nothing leaves before its batch is durable, and then all, in order."""

from __future__ import annotations

import pytest
from gantry_controller.node import held
from gantry_controller.node.held import Held
from gantry_controller.raft.messages import Message, VoteReply
from gantry_protocol.types import NodeId, Term
from hypothesis import given
from hypothesis import strategies as st


def vote(term: int) -> Message:
    return VoteReply(NodeId(1), NodeId(2), Term(term), True, False)


def test_nothing_leaves_before_its_batch() -> None:
    waiting = Held()
    waiting.hold(3, [vote(1), vote(2)])
    waiting.hold(4, [vote(3)])
    assert waiting.release(2) == []
    assert waiting.release(3) == [vote(1), vote(2)]
    assert waiting.release(3) == []
    assert waiting.release(9) == [vote(3)]


def test_what_is_held_for_a_durable_batch_leaves_at_the_next_release() -> None:
    waiting = Held()
    waiting.hold(0, [vote(1)])
    assert waiting.release(0) == [vote(1)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 5)), max_size=40))
def test_each_leaves_once_in_order_and_never_early(steps: list[tuple[int, int, int]]) -> None:
    waiting = Held()
    batch = durable = count = 0
    due: list[tuple[int, Message]] = []
    for more, messages, confirmed in steps:
        batch += more
        new = [vote(count + number) for number in range(messages)]
        count += messages
        waiting.hold(batch, new)
        due += [(batch, message) for message in new]
        durable = min(durable + confirmed, batch)
        expected = [message for at, message in due if at <= durable]
        assert waiting.release(durable) == expected
        due = due[len(expected) :]
        assert len(waiting) == len(due)


def test_a_silent_disk_holds_back_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropped are the oldest: to Raft a network that lost them, and newer ones say the same."""
    monkeypatch.setattr(held, "HELD_MAX", 2)
    waiting = Held()
    for term in range(5):
        waiting.hold(1, [vote(term)])
    assert (len(waiting), waiting.dropped) == (2, 3)
    assert waiting.release(1) == [vote(3), vote(4)]


def test_nothing_leaves_a_node_that_stops() -> None:
    waiting = Held()
    waiting.hold(1, [vote(1)])
    waiting.clear()
    assert waiting.release(1) == []
