"""Consumers whom a master has reported that is gone: kept for a while, and forgotten once."""

from __future__ import annotations

import pytest
from gantry_controller.liveness.core.unheard import KEPT_S, LOOK_EVERY_S, UnheardConsumers
from gantry_controller.metadata.events import ForgetConsumers
from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import Epoch
from support.metadata_world import CLUSTER, NAME, World, consumers, three_in_sync


class Watched:
    """A group with consumers on a clock that the test turns."""

    def __init__(self) -> None:
        self.world: World = three_in_sync()
        consumers(self.world)
        self.now_s = 0.0
        self.lives = True
        self.unheard = UnheardConsumers(self.world.state, lambda _: self.lives)

    def passes(self, seconds: float) -> list[ForgetConsumers]:
        """The events of so much time."""
        until_s, due = self.now_s + seconds, []
        while self.now_s < until_s:
            self.now_s += LOOK_EVERY_S
            due += self.unheard.due(self.now_s)
        return due


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_living_master_keeps_its_word(watched: Watched) -> None:
    assert watched.passes(10 * KEPT_S) == []


def test_a_dead_ones_is_kept_for_a_while(watched: Watched) -> None:
    watched.lives = False
    assert watched.passes(KEPT_S) == []
    (event,) = watched.passes(LOOK_EVERY_S)
    assert event == ForgetConsumers(CLUSTER, NAME, master_epoch=watched.world.group.master_epoch)
    assert set(watched.world.apply(event).consumers_changed) == {"g", "h", "Billing", "%weird|"}
    assert watched.passes(10 * KEPT_S) == [], "there is nothing left to forget"


def test_a_master_that_came_back_in_between_begins_anew(watched: Watched) -> None:
    for _ in range(3):
        watched.lives = False
        assert watched.passes(KEPT_S - LOOK_EVERY_S) == []
        watched.lives = True
        assert watched.passes(LOOK_EVERY_S) == []


def test_a_new_leader_and_one_that_did_not_listen_wait_as_long(watched: Watched) -> None:
    watched.lives = False
    watched.passes(KEPT_S)
    watched.unheard.began()
    assert watched.passes(KEPT_S) == []


def test_a_master_of_a_later_epoch_was_not_looked_at(watched: Watched) -> None:
    late = ForgetConsumers(CLUSTER, NAME, master_epoch=watched.world.group.master_epoch)
    watched.world.elect(live=[3, 2])
    result = watched.world.apply(late)
    assert result.code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
    assert watched.world.state.consumer_table((CLUSTER, NAME)).groups
    assert watched.world.apply(ForgetConsumers(CLUSTER, "other", master_epoch=Epoch(1))).ok
