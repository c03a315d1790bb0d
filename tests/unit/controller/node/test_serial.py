"""Serial architecture: one at a time, in order, bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from gantry_controller.node import serial
from gantry_controller.node.serial import SerialQueue
from gantry_controller.raft.core import RaftCore
from gantry_controller.raft.errors import NotLeader, Overloaded

if TYPE_CHECKING:
    from collections.abc import Callable


class FakeNode:
    """Keeps what it was asked until the test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, Callable[[Any], None]]] = []

    def propose(self, command: bytes, done: Callable[[Any], None]) -> None:
        self.asked.append((command, done))

    def change(self, begin: object, done: Callable[[Any], None]) -> None:
        self.asked.append((begin, done))

    def answer(self, outcome: object) -> None:
        self.asked.pop(0)[1](outcome)


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
def queue(node: FakeNode) -> SerialQueue:
    return SerialQueue(node)  # type: ignore[arg-type]  # a fake of the same shape


def test_next_request_waits_for_the_answer_before_it(node: FakeNode, queue: SerialQueue) -> None:
    heard: list[object] = []
    queue.propose(b"one", heard.append)
    queue.read(heard.append)
    queue.propose(b"two", heard.append)
    assert [what for what, _ in node.asked] == [b"one"]
    node.answer("first")
    assert [what for what, _ in node.asked] == [RaftCore.barrier]
    node.answer(None)
    assert [what for what, _ in node.asked] == [b"two"]
    assert heard == ["first", None]


def test_refusal_lets_the_next_one_through(node: FakeNode, queue: SerialQueue) -> None:
    heard: list[object] = []
    error = NotLeader(None)
    queue.propose(b"one", heard.append)
    queue.propose(b"two", heard.append)
    node.answer(error)
    node.answer("second")
    assert heard == [error, "second"]


def test_request_made_inside_an_answer_waits_its_turn(node: FakeNode, queue: SerialQueue) -> None:
    heard: list[object] = []
    queue.propose(b"one", lambda _: queue.propose(b"three", heard.append))
    queue.propose(b"two", heard.append)
    node.answer("first")
    assert [what for what, _ in node.asked] == [b"two"]


def test_full_queue_refuses(
    node: FakeNode, queue: SerialQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serial, "WAITING_MAX", 2)
    heard: list[object] = []
    for _ in range(4):
        queue.read(heard.append)
    assert [type(outcome) for outcome in heard] == [Overloaded]
    assert (len(queue), queue.refused) == (2, 1)
