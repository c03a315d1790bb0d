"""Seeds of local retention: nothing is lost, and nothing is forgotten, by what is trimmed."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_broker.queues import MessageStore
from gantry_broker.store.tables import pieces, state_records
from gantry_broker.store.tables.names import TOPICS_TOPIC
from gantry_broker.tier.core import retention
from gantry_protocol.types import Offset
from sim.kernel.world import Violation
from sim.tier.retention_world import RetentionWorld

SEEDS, FIRST_SEEDS = range(5, 12), range(5)
STEPS = 250
SEEDS_MAX = 30


def run(seed: int, directory: Path) -> RetentionWorld:
    world = RetentionWorld(seed, directory)
    try:
        world.run(STEPS)
    finally:
        world.close()
    return world


@pytest.mark.parametrize("seed", SEEDS)
def test_every_offset_is_answered_once_and_nothing_is_forgotten(seed: int, tmp_path: Path) -> None:
    run(seed, tmp_path)


def test_the_first_seeds_reach_what_they_are_for(tmp_path: Path) -> None:
    """And are judged as the others are."""
    reached: dict[str, int] = {}
    for seed in FIRST_SEEDS:
        for name, count in run(seed, tmp_path / str(seed)).counters.items():
            reached[name] = reached.get(name, 0) + count
    assert {"trim", "state", "reset", "rebuilt", "wiped", "elected"} <= reached.keys()
    assert reached["read from the tier"] > 100


def dies(directory: Path) -> str:
    """The first violation of any seed."""
    for seed in range(SEEDS_MAX):
        try:
            run(seed, directory / str(seed))
        except Violation as violation:
            print(f"died at seed {seed}: {str(violation)[:160]}")
            return str(violation)
    pytest.fail(f"{SEEDS_MAX} seeds lived with the planted bug")


def test_trimming_past_the_committed_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Local retention that does not ask the tier (RocketMQ)."""

    def bound(*, local_start: Offset, retained_from: Offset, **_rest: object) -> Offset:
        return max(local_start, retained_from)

    monkeypatch.setattr(retention, "trim_bound", bound)
    assert "T10" in dies(tmp_path)


def test_trimming_without_a_confirmed_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The beginning of the log goes, and with it the topics that were made there."""
    monkeypatch.setattr(MessageStore, "whole_from", property(lambda self: self.log.end))
    assert dies(tmp_path).startswith(("whole", "once"))


def test_trimming_by_a_state_that_is_not_confirmed_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece is taken for the state."""
    monkeypatch.setattr(pieces, "MAX_ROWS", 1)
    monkeypatch.setattr(state_records.Gathered, "is_whole", property(lambda _self: True))
    assert dies(tmp_path).startswith(("whole", "once"))


def test_a_state_that_misses_an_unconfirmed_change_of_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is the confirmed one, and a change stands between it and its place in the log."""
    honest = MessageStore.max_offset

    def max_offset(self: MessageStore, topic: str, queue_id: int) -> int:
        if topic == TOPICS_TOPIC and self._next is not None:
            return self._next_offset((topic, queue_id))
        return honest(self, topic, queue_id)

    monkeypatch.setattr(MessageStore, "max_offset", max_offset)
    assert dies(tmp_path).startswith(("whole", "once"))
