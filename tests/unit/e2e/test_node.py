"""Freezing a node of the test cluster, where the freezer may have to be asked again."""

from __future__ import annotations

import pytest
from harness import node
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


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(node.time, "sleep", found.append)
    return found


def test_freezer_that_gave_up_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    docker = Docker(UNABLE, UNABLE, "")
    clock = iter([1.0, 2.0, 3.0])
    monkeypatch.setattr(node, "run", docker.run)
    monkeypatch.setattr(node.time, "monotonic", lambda: next(clock))
    assert node.freeze("worker") == 3.0
    assert docker.asked == 3
    assert len(pauses) == 2


def test_freezer_is_not_asked_for_ever(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    docker = Docker(*[UNABLE] * node.FREEZE_ATTEMPTS)
    monkeypatch.setattr(node, "run", docker.run)
    with pytest.raises(CommandError, match="unable to freeze"):
        node.freeze("worker")
    assert docker.asked == node.FREEZE_ATTEMPTS


def test_other_refusals_are_told_at_once(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    monkeypatch.setattr(node, "run", Docker(MISSING).run)
    with pytest.raises(CommandError, match="No such container"):
        node.freeze("worker")
    assert not pauses
