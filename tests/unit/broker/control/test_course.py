"""Where a door leads its clients, and when it asks."""

from __future__ import annotations

import pytest
from gantry_broker.control.core.course import CALM_S, DOUBT_S, FAST_FOR_S, FAST_S, SLOW_S, Course

A, B = "10.0.0.1:10911", "10.0.0.2:10911"


def led_to(epoch: int, address: str) -> Course:
    course = Course()
    assert course.heard(epoch, address)
    return course


@pytest.mark.parametrize(
    ("answers", "changes", "ends"),
    [
        pytest.param([(0, "")], [True], (0, ""), id="no election yet"),
        pytest.param([(1, A)], [True], (1, A), id="the first master"),
        pytest.param([(1, A), (1, A)], [True, False], (1, A), id="the same again"),
        pytest.param([(1, A), (2, B)], [True, True], (2, B), id="the next master"),
        pytest.param([(1, A), (2, A)], [True, True], (2, A), id="the same one, elected anew"),
        pytest.param([(2, B), (1, A)], [True, False], (2, B), id="an answer that is late"),
        pytest.param([(2, ""), (1, A)], [True, False], (2, ""), id="late, and there is no master"),
        pytest.param([(1, A), (1, "")], [True, True], (1, ""), id="its master is gone"),
    ],
)
def test_only_an_answer_of_the_newest_epoch_counts(
    answers: list[tuple[int, str]], changes: list[bool], ends: tuple[int, str]
) -> None:
    course = Course()
    assert [course.heard(epoch, address) for epoch, address in answers] == changes
    assert (course.epoch, course.address) == ends


def test_an_answer_of_a_former_epoch_is_counted() -> None:
    course = led_to(2, B)
    course.heard(1, A)
    assert course.stale == 1


def test_a_master_was_known_once_and_for_ever() -> None:
    course = Course()
    course.heard(0, "")
    assert not course.known
    course.heard(1, A)
    course.heard(1, "")
    assert course.known


def test_with_a_master_it_asks_now_and_then() -> None:
    assert led_to(1, A).next_ask_s(asked_s=10, now_s=10) == 10 + CALM_S


def test_while_none_is_known_it_asks_all_the_time() -> None:
    assert Course().next_ask_s(asked_s=10, now_s=10) == 10 + FAST_S


def test_a_lost_master_is_doubted_for_a_while() -> None:
    course = led_to(1, A)
    course.doubt(10)
    assert course.next_ask_s(asked_s=9.9, now_s=10) == 9.9 + FAST_S
    course.heard(1, A)  # it is still the one that is recorded
    assert course.is_in_doubt(10 + DOUBT_S / 2)
    assert not course.is_in_doubt(10 + DOUBT_S)


@pytest.mark.parametrize(
    ("looks", "doubts"),
    [
        pytest.param([(5, True), (5, True)], True, id="it stands still"),
        pytest.param([(5, True), (9, True)], False, id="it answers somebody"),
        pytest.param([(5, False), (5, True)], False, id="it was asked just now"),
        pytest.param([(5, True), (5, False)], False, id="whoever waited is gone"),
        pytest.param([(5, False), (5, False)], False, id="nobody asks"),
        pytest.param([(5, True), (9, True), (9, True)], True, id="it stops answering"),
    ],
)
def test_a_master_that_owes_answers_and_gives_none_is_doubted(
    looks: list[tuple[int, bool]], doubts: bool
) -> None:
    course = led_to(1, A)
    for number, (said_bytes, is_owing) in enumerate(looks):
        course.looked(said_bytes, is_owing, 10 + number / 4)
    assert course.is_in_doubt(10 + len(looks) / 4) == doubts


def test_the_next_master_ends_the_doubt() -> None:
    course = led_to(1, A)
    course.doubt(10)
    course.heard(2, "")
    assert course.is_in_doubt(10)
    course.heard(2, B)
    assert not course.is_in_doubt(10)


def test_a_long_doubt_asks_less_often_and_the_next_one_is_fast_again() -> None:
    course = led_to(1, A)
    now_s = 10.0
    while now_s < 10 + FAST_FOR_S:
        course.doubt(now_s)
        assert course.next_ask_s(now_s, now_s) == now_s + FAST_S
        now_s += DOUBT_S / 2
    course.doubt(now_s)
    assert course.next_ask_s(now_s, now_s) == now_s + SLOW_S
    now_s += 2 * DOUBT_S
    course.doubt(now_s)
    assert course.next_ask_s(now_s, now_s) == now_s + FAST_S


def test_without_a_master_for_long_it_asks_less_often() -> None:
    course = Course()
    course.next_ask_s(10, 10)
    assert course.next_ask_s(10 + FAST_FOR_S, 10 + FAST_FOR_S) == 10 + FAST_FOR_S + SLOW_S
