"""Release after persist: nothing leaves before its batch is durable, and then all, in order."""

from __future__ import annotations

import pytest
from gantry_controller.raft import after_persist
from gantry_controller.raft.after_persist import AfterPersist
from gantry_controller.raft.core import Ready
from gantry_controller.raft.messages import HardState, Message, VoteReply
from gantry_controller.raft.snapshot import Base, Marker
from gantry_protocol.types import Index, NodeId, Term
from hypothesis import given
from hypothesis import strategies as st


def vote(term: int) -> Message:
    return VoteReply(NodeId(1), NodeId(2), Term(term), True, False)


def ready(batch: int, held: list[Message], *, now: list[Message] | None = None) -> Ready:
    return Ready(batch, [], None, [], now or [], held, [], [], [], [], None)


def marked(batch: int, index: int) -> Ready:
    marker = Marker(Index(index), Term(1), Base(Index(index), Term(1)), restart=False)
    return Ready(batch, [marker], HardState(), [], [], [], [], [], [], [], None)


def reported(waiting: AfterPersist, batch: int) -> list[int]:
    """The disk confirms ``batch``, and a pass begins: what the core hears."""
    told: list[int] = []
    waiting.confirmed(batch)
    waiting.report(told.append)
    return told


def test_nothing_leaves_before_its_batch() -> None:
    waiting = AfterPersist()
    assert waiting.hand_out(ready(3, [vote(1), vote(2)])) == []
    assert waiting.hand_out(ready(4, [vote(3)])) == []
    assert (reported(waiting, 2), waiting.release()) == ([1, 2], [])
    assert (reported(waiting, 3), waiting.release()) == ([3], [vote(1), vote(2)])
    assert (reported(waiting, 3), waiting.release()) == ([], [])
    assert (reported(waiting, 9), waiting.release()) == ([4, 5, 6, 7, 8, 9], [vote(3)])


def test_nothing_leaves_before_the_core_has_heard() -> None:
    waiting = AfterPersist()
    waiting.hand_out(ready(1, [vote(1)]))
    waiting.confirmed(1)
    assert waiting.release() == []
    assert waiting.hand_out(ready(1, [vote(2)], now=[vote(3)])) == [vote(3)]
    waiting.report(lambda batch: None)
    assert waiting.release() == [vote(1), vote(2)]


def test_what_is_held_for_a_durable_batch_leaves_at_once() -> None:
    waiting = AfterPersist()
    assert waiting.hand_out(ready(0, [vote(1)], now=[vote(2)])) == [vote(2), vote(1)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 5)), max_size=40))
def test_each_leaves_once_in_order_and_never_early(steps: list[tuple[int, int, int]]) -> None:
    waiting = AfterPersist()
    batch = durable = count = 0
    due: list[tuple[int, Message]] = []
    heard: list[int] = []
    for more, messages, confirmed in steps:
        heard += reported(waiting, durable)
        batch += more
        new = [vote(count + number) for number in range(messages)]
        count += messages
        due += [(batch, message) for message in new]
        expected = [message for at, message in due if at <= durable]
        durable = min(durable + confirmed, batch)
        waiting.confirmed(durable)  # in the middle of the pass: it counts from the next one on
        assert waiting.hand_out(ready(batch, new)) == expected
        due = due[len(expected) :]
        assert len(waiting) == len(due)
    heard += reported(waiting, durable)
    assert heard == list(range(1, durable + 1))


def test_a_silent_disk_holds_back_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropped are the oldest: to Raft a network that lost them, and newer ones say the same."""
    monkeypatch.setattr(after_persist, "HELD_MAX", 2)
    waiting = AfterPersist()
    for term in range(5):
        waiting.hand_out(ready(1, [vote(term)]))
    assert (len(waiting), waiting.dropped) == (2, 3)
    reported(waiting, 1)
    assert waiting.release() == [vote(3), vote(4)]


def test_an_older_file_may_go_when_the_marker_is_durable() -> None:
    waiting = AfterPersist()
    waiting.hand_out(marked(1, 7))
    waiting.hand_out(marked(2, 9))
    found = []
    for batch in (0, 1, 1, 2):
        waiting.confirmed(batch)
        found.append(waiting.report(lambda batch: None))
    assert found == [None, 7, None, 9]


def test_nothing_leaves_a_node_that_stops() -> None:
    waiting = AfterPersist()
    waiting.hand_out(ready(1, [vote(1)]))
    waiting.clear()
    reported(waiting, 1)
    assert waiting.release() == []
