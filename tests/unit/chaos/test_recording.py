"""A load's events as a history: clients that do one thing at a time, outcomes that hold."""

from __future__ import annotations

from pathlib import Path

from gantry_chaos.checkers import queue, register
from gantry_chaos.history import lines
from gantry_chaos.history.lines import Line
from gantry_chaos.history.operations import history
from gantry_chaos.history.recording import MessageRecorder, metadata_read


class Load:
    """A recorder with a clock that goes on by one with every look."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.now_ms = 0
        self.recorder = MessageRecorder(self.lines.append, self.tick, "load")

    def tick(self) -> int:
        self.now_ms += 1
        return self.now_ms


def test_messages_under_way_together_are_different_clients() -> None:
    load = Load()
    record = load.recorder
    for value in ("1", "2", "3"):
        record.sent(value)
    record.acknowledged("2", "q@0")
    record.acknowledged("1", "q@1")
    record.sent("4")
    record.sent("5")
    found = history(load.lines, "x").operations
    assert [(one.value, one.client) for one in found] == [
        ("1", "load-p0"),
        ("2", "load-p1"),
        ("3", "load-p2"),
        ("4", "load-p1"),  # the one that has been idle longest
        ("5", "load-p0"),
    ]


def test_outcomes_follow_what_was_answered(tmp_path: Path) -> None:
    load = Load()
    record = load.recorder
    for value in ("kept", "stored twice", "unknown", "refused", "under way"):
        record.sent(value)
    record.answer_lost("stored twice")
    record.answer_lost("unknown")
    record.acknowledged("kept", "orders/0@0")
    record.acknowledged("stored twice", "orders/0@2")
    record.given_up("unknown")
    record.given_up("refused")
    for number, value in enumerate(("kept", "stored twice", "stored twice", "unknown")):
        record.consumed(value, f"orders/0@{number}", e2e_ms=5)
    lines.write_all(tmp_path / "h", load.lines)
    found = history(lines.read(tmp_path / "h"), "x").operations
    assert {one.value: one.outcome for one in found if one.op == "enqueue"} == {
        "kept": "SUCCESS",
        "stored twice": "SUCCESS",
        "unknown": "UNKNOWN",
        "refused": "FAILURE",
        "under way": "UNKNOWN",
    }
    verdict = queue.check(found)
    assert verdict.passed, verdict.violations
    assert verdict.figures["duplicateAfterLostAnswerCount"] == 1
    record.consumed("refused", "orders/0@9")
    assert not queue.check(history(load.lines, "x").operations).passed


def test_reads_of_metadata_are_register_operations() -> None:
    good = [
        *metadata_read("w", "orders", 1, 2, 4, "b0"),
        *metadata_read("w", "orders", 3, 4, 4, None),
        *metadata_read("w", "orders", 5, 6, 5, "b1"),
    ]
    assert register.check(history(good, "x").operations).passed
    stale = [*good, *metadata_read("w", "orders", 7, 8, 4, None)]
    assert not register.check(history(stale, "x").operations).passed
