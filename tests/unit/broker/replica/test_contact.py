"""A master that hears neither controllers nor members steps back; one side is no reason."""

from __future__ import annotations

import pytest
from gantry_broker.replica import DEFAULT_LIMITS, Role
from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev
from gantry_broker.replica.events import Unknown
from gantry_protocol.types import BrokerId
from support.replicas import Group, Node

CUT_OFF_MS = DEFAULT_LIMITS.cut_off_ms
LATEST_MS = CUT_OFF_MS + 20


def cut_off(node: Node) -> bool:
    assert node.core.serving is not None
    return node.core.serving.cut_off


def group_of(size: int, members: set[int] | None = None, min_in_sync: int = 2) -> Group:
    """Broker 1 is master."""
    group = Group(size, min_in_sync=min_in_sync)
    group.elect(1, members)
    group.write(1, b"abc")
    return group


def test_who_hears_neither_steps_back_by_the_time_another_may_be_elected() -> None:
    group = group_of(3)
    group.deaf, group.stopped = {1}, {2, 3}
    group.tick(CUT_OFF_MS - 40)
    assert not cut_off(group[1])
    group.tick(60)
    assert cut_off(group[1])
    (effect,) = group[1].asked(fx.CutOff)
    assert isinstance(effect, fx.CutOff)
    assert effect.silent == (BrokerId(2), BrokerId(3))
    assert effect.controllers_ms >= CUT_OFF_MS
    group.tick(CUT_OFF_MS)
    assert len(group[1].asked(fx.CutOff)) == 1, "said once"
    assert group[1].core.role is Role.MASTER, "until it hears of another one"


def test_one_member_that_is_silent_is_enough_as_it_may_be_the_one_that_was_elected() -> None:
    group = group_of(3)
    group.deaf, group.stopped = {1}, {3}
    group.tick(LATEST_MS)
    assert cut_off(group[1])


@pytest.mark.parametrize("size", [2, 3])
def test_silent_controllers_alone_are_waited_for(size: int) -> None:
    """While every member answers in this epoch, nobody else was elected out of the set."""
    group = group_of(size)
    group.deaf = {1}
    group.tick(10 * CUT_OFF_MS)
    assert not cut_off(group[1])
    group.write(1, b"def")
    assert group[1].facts.confirm == 6, "sends are acknowledged as ever"


def test_silent_members_alone_are_shrunk_out_of_the_set() -> None:
    group = group_of(3)
    group.stopped = {2, 3}
    group.tick(LATEST_MS)
    assert not cut_off(group[1])
    assert group[1].last_proposal().sync_state_set == {BrokerId(1)}


@pytest.mark.parametrize("size", [1, 3])
def test_who_is_alone_in_the_set_cannot_be_replaced(size: int) -> None:
    group = Group(size, min_in_sync=1)
    group.unreachable = set(range(2, size + 1))
    group.elect(1, {1})
    group.deaf = {1}
    group.tick(10 * CUT_OFF_MS)
    assert not cut_off(group[1])


def test_who_may_be_in_the_set_counts_as_if_it_were() -> None:
    """An attempt of unknown outcome may have been applied, and its member elected."""
    group = group_of(2, {1})
    group.answer(group[1], Unknown())
    group.deaf, group.stopped = {1}, {2}
    group.tick(LATEST_MS)
    assert cut_off(group[1])


def test_members_that_leave_for_a_newer_epoch_are_not_heard_any_more() -> None:
    """The master is cut off from the controllers only: who hears them leaves it soon."""
    group = group_of(3)
    group.deaf, group.unreachable = {1}, {1}
    group.tick(CUT_OFF_MS)
    assert not cut_off(group[1])
    group.cut_links(1)
    group.tick(DEFAULT_LIMITS.link_closed_ms - 40)
    assert not cut_off(group[1]), "a link that is opened again soon is no election"
    group.tick(60)
    assert cut_off(group[1])


def test_who_hears_the_controllers_again_goes_on() -> None:
    group = group_of(3)
    group.deaf, group.stopped = {1}, {2, 3}
    group.tick(LATEST_MS)
    group[1].step(ev.ControllersAnswered(group.now_ms))
    assert not cut_off(group[1])
    assert group[1].asked(fx.InTouch) == [fx.InTouch()]


def test_an_answer_says_nothing_of_the_time_after_it_was_asked_for() -> None:
    group = group_of(3)
    group.deaf, group.stopped = {1}, {2, 3}
    asked_ms = group.now_ms
    group.tick(LATEST_MS)
    group[1].step(ev.ControllersAnswered(asked_ms))
    assert cut_off(group[1]), "another one may have been elected while it was on its way"


def test_who_hears_its_members_again_goes_on() -> None:
    group = group_of(3)
    group.deaf, group.held = {1}, {2, 3}
    group.tick(LATEST_MS - 520)  # they would open new links after 2 s
    group.tick(500)
    for number in (2, 3):
        group.release(number)
    group.tick(500)
    assert not cut_off(group[1])
    group.write(1, b"def")
    assert group[1].facts.confirm == 6


def test_who_hears_of_another_master_follows_it() -> None:
    group = group_of(3)
    group.deaf, group.stopped = {1}, {2, 3}
    group.tick(LATEST_MS)
    group.stopped = set()
    group.elect(2)
    assert group[1].core.role is Role.FOLLOWING
    assert group[1].asked(fx.InTouch) == [], "it never served in between"


def test_a_process_that_stood_still_believes_nothing_that_was_said_before() -> None:
    group = group_of(3)
    group.deaf, group.held = {1}, {1}
    group.tick(2 * DEFAULT_LIMITS.heartbeat_ms)
    group.now_ms += 60_000
    group.release(1)
    group.tick()
    assert cut_off(group[1]), "what its members have sent is read first, and is old"
    group.tick(2 * DEFAULT_LIMITS.link_closed_ms + 40)
    assert not cut_off(group[1]), "they answer still"
