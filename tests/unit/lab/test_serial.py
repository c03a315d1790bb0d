"""The old architecture: one request at a time, in order, bounded."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from gantry_controller.raft.errors import NotLeader, Overloaded
from gantry_lab.bench.controller import serial
from gantry_lab.bench.controller.serial import SerialQueue

if TYPE_CHECKING:
    from collections.abc import Callable


class Node:
    """Keeps what it was asked until the test answers."""

    def __init__(self) -> None:
        self.queue = SerialQueue()
        self.asked: list[tuple[str, Callable[[Any], None]]] = []

    def ask(self, what: str, done: Callable[[Any], None]) -> None:
        self.queue.enter(partial(self._begin, what), done)

    def answer(self, outcome: object) -> None:
        self.asked.pop(0)[1](outcome)

    def _begin(self, what: str, done: Callable[[Any], None]) -> None:
        self.asked.append((what, done))


@pytest.fixture
def node() -> Node:
    return Node()


def test_next_request_waits_for_the_answer_before_it(node: Node) -> None:
    heard: list[object] = []
    node.ask("one", heard.append)
    node.ask("two", heard.append)
    assert [what for what, _ in node.asked] == ["one"]
    node.answer("first")
    assert [what for what, _ in node.asked] == ["two"]
    assert heard == ["first"]


def test_refusal_lets_the_next_one_through(node: Node) -> None:
    heard: list[object] = []
    error = NotLeader(None)
    node.ask("one", heard.append)
    node.ask("two", heard.append)
    node.answer(error)
    node.answer("second")
    assert heard == [error, "second"]


def test_request_made_inside_an_answer_waits_its_turn(node: Node) -> None:
    heard: list[object] = []
    node.ask("one", lambda _: node.ask("three", heard.append))
    node.ask("two", heard.append)
    node.answer("first")
    assert [what for what, _ in node.asked] == ["two"]


def test_full_queue_refuses(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serial, "WAITING_MAX", 2)
    heard: list[object] = []
    for _ in range(4):
        node.ask("one", heard.append)
    assert [type(outcome) for outcome in heard] == [Overloaded]
    assert len(node.queue) == 2
