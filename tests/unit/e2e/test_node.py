"""Freezing a node of the test cluster, where the freezer may have to be asked again."""

from __future__ import annotations

import pytest
from harness import node, waiting
from harness.shell import CommandError

UNABLE = "docker pause worker: exit 1: OCI runtime pause failed: unable to freeze: unknown"
MISSING = "docker pause worker: exit 1: No such container: worker"


class Docker:
    """Answers each `docker pause` with the next of these; empty means that it was done."""

    def __init__(self, *answers: str) -> None:
        self._answers = iter(answers)
        self.asked = 0

    def run(self, *argv: str) -> str:
        assert argv == ("docker", "pause", "worker")
        self.asked += 1
        if answer := next(self._answers):
            raise CommandError(answer)
        return ""


class Clock:
    """Time passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 1.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    for module in (node, waiting):
        monkeypatch.setattr(module, "time", found)
    return found


def test_freezer_that_gave_up_is_asked_again(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    docker = Docker(UNABLE, UNABLE, "")
    monkeypatch.setattr(node, "run", docker.run)
    assert node.freeze("worker") == 1.0 + 2 * node.FREEZE_PAUSE_S
    assert docker.asked == 3


def test_freezer_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(node, "run", Docker(*[UNABLE] * 100).run)
    with pytest.raises(TimeoutError, match="worker is frozen: not within 8 s"):
        node.freeze("worker")


def test_other_refusals_are_told_at_once(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    docker = Docker(MISSING)
    monkeypatch.setattr(node, "run", docker.run)
    with pytest.raises(CommandError, match="No such container"):
        node.freeze("worker")
    assert docker.asked == 1
