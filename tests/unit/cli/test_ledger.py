"""What a verdict may excuse, and what it may not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from gantry_cli.client.ledger import Ledger, Position
from hypothesis import given
from hypothesis import strategies as st


def at(offset: int, queue: int = 0) -> Position:
    return Position("orders", queue, offset)


def acknowledged(ledger: Ledger, key: str, offset: int, *, lost_answers: int = 0) -> None:
    ledger.sent(key)
    for _ in range(lost_answers):
        ledger.answer_lost(key)
    ledger.acknowledge(key, at(offset))


def test_acknowledged_and_consumed_once_is_clean() -> None:
    ledger = Ledger()
    acknowledged(ledger, "a", 0)
    ledger.consume("a", at(0))
    verdict = ledger.verdict()
    assert (verdict.acknowledged, verdict.consumed, verdict.lost, verdict.duplicated) == (
        1,
        1,
        0,
        0,
    )
    assert verdict.clean


def test_acknowledged_and_never_consumed_is_lost() -> None:
    ledger = Ledger()
    acknowledged(ledger, "a", 0)
    assert ledger.outstanding() == 1
    assert ledger.verdict().lost == 1
    assert not ledger.verdict().clean
    ledger.consume("a", at(0))
    assert ledger.outstanding() == 0


def test_lost_answers_do_not_excuse_a_loss() -> None:
    """The second attempt was acknowledged: that promise holds whatever the first one did."""
    ledger = Ledger()
    acknowledged(ledger, "a", 0, lost_answers=3)
    assert ledger.verdict().lost == 1


@pytest.mark.parametrize(
    ("lost_answers", "copies", "excused"),
    [(0, 2, False), (1, 2, True), (1, 3, False), (2, 3, True)],
)
def test_each_lost_answer_excuses_one_copy(lost_answers: int, copies: int, excused: bool) -> None:
    ledger = Ledger()
    acknowledged(ledger, "a", 0, lost_answers=lost_answers)
    for offset in range(copies):
        ledger.consume("a", at(offset))
    verdict = ledger.verdict()
    assert verdict.duplicated == 1
    assert verdict.duplicated_after_lost_answer == int(excused)
    assert verdict.clean is excused


def test_a_record_delivered_twice_is_never_excused() -> None:
    """A lost answer may store a message twice; it cannot hand one record out twice."""
    ledger = Ledger()
    acknowledged(ledger, "a", 0, lost_answers=5)
    ledger.consume("a", at(0))
    ledger.consume("a", at(0))
    assert not ledger.verdict().clean


def test_message_without_acknowledgement_may_be_consumed_or_not() -> None:
    ledger = Ledger()
    for key in ("stored", "gone"):
        ledger.sent(key)
        ledger.answer_lost(key)
        ledger.give_up(key)
    ledger.consume("stored", at(0))
    verdict = ledger.verdict()
    assert (verdict.unknown, verdict.lost, verdict.consumed) == (2, 0, 1)
    assert verdict.clean


def test_refused_message_that_was_stored_after_all_is_a_duplicate_when_twice() -> None:
    """Without a lost answer, a refusal is the broker's word that nothing was stored."""
    ledger = Ledger()
    acknowledged(ledger, "a", 1)
    ledger.consume("a", at(0))
    ledger.consume("a", at(1))
    assert not ledger.verdict().clean


def test_position_that_held_two_messages_is_misplaced() -> None:
    """What a consumer has read may not be replaced by something else later."""
    ledger = Ledger()
    acknowledged(ledger, "a", 0)
    acknowledged(ledger, "b", 1)
    ledger.consume("a", at(0))
    ledger.consume("b", at(0))
    assert ledger.verdict().misplaced > 0
    assert not ledger.verdict().clean


def test_acknowledged_position_must_hold_the_message() -> None:
    ledger = Ledger()
    acknowledged(ledger, "a", 7)
    ledger.consume("a", at(8))
    assert ledger.verdict().misplaced == 1


def test_keys_of_others_are_ignored() -> None:
    ledger = Ledger()
    ledger.consume("foreign", at(0))
    assert ledger.verdict().consumed == 0
    assert ledger.verdict().clean


def settled(ledger: Ledger, key: str, offset: int) -> None:
    acknowledged(ledger, key, offset)
    ledger.consume(key, at(offset), ours=True)


def test_bounded_ledger_keeps_totals_of_what_it_forgets() -> None:
    bounded, whole = Ledger(keep=3), Ledger()
    for offset in range(50):
        for ledger in (bounded, whole):
            settled(ledger, f"k{offset}", offset)
    assert len(bounded) == 3
    assert bounded.verdict() == whole.verdict()
    assert bounded.verdict().clean


def test_bounded_ledger_judges_short_runs_as_any_other() -> None:
    bounded, whole = Ledger(keep=10), Ledger()
    for ledger in (bounded, whole):
        settled(ledger, "once", 0)
        acknowledged(ledger, "lost", 1)
        acknowledged(ledger, "excused", 2, lost_answers=1)
        ledger.consume("excused", at(2))
        ledger.consume("excused", at(3))
        settled(ledger, "twice", 4)
        ledger.consume("twice", at(5))
    assert bounded.verdict() == whole.verdict()


def with_lost_answer(ledger: Ledger) -> None:
    acknowledged(ledger, "odd", 1000, lost_answers=1)
    ledger.consume("odd", at(1000))


def unconsumed(ledger: Ledger) -> None:
    acknowledged(ledger, "odd", 1000)


def twice(ledger: Ledger) -> None:
    settled(ledger, "odd", 1000)
    ledger.consume("odd", at(1001))


def elsewhere(ledger: Ledger) -> None:
    acknowledged(ledger, "odd", 1000)
    ledger.consume("odd", at(1001))


def given_up(ledger: Ledger) -> None:
    ledger.sent("odd")
    ledger.answer_lost("odd")
    ledger.give_up("odd")


def overwritten(ledger: Ledger) -> None:
    settled(ledger, "odd", 1000)
    acknowledged(ledger, "odder", 1000)
    ledger.consume("odder", at(1000))


@pytest.mark.parametrize(
    "oddity", [with_lost_answer, unconsumed, twice, elsewhere, given_up, overwritten]
)
def test_whatever_is_open_about_a_message_is_never_forgotten(
    oddity: Callable[[Ledger], None],
) -> None:
    bounded, whole = Ledger(keep=2), Ledger()
    for ledger in (bounded, whole):
        oddity(ledger)
        for offset in range(20):
            settled(ledger, f"k{offset}", offset)
    assert bounded.verdict() == whole.verdict()
    assert len(bounded) < len(whole)


def test_excuse_outlives_the_bound() -> None:
    ledger = Ledger(keep=1)
    with_lost_answer(ledger)
    for offset in range(5):
        settled(ledger, f"k{offset}", offset)
    ledger.consume("odd", at(1001), ours=True)
    verdict = ledger.verdict()
    assert (verdict.duplicated, verdict.duplicated_after_lost_answer, verdict.late) == (1, 1, 0)
    assert verdict.clean


def test_forgotten_message_that_comes_again_is_told() -> None:
    ledger = Ledger(keep=1)
    for offset in range(3):
        settled(ledger, f"k{offset}", offset)
    ledger.consume("k0", at(9), ours=True)
    ledger.consume("another run's", at(10), ours=False)
    assert ledger.verdict().late == 1
    assert ledger.verdict().consumed == 3
    assert not ledger.verdict().clean


def test_acknowledgement_after_consumption_settles_too() -> None:
    """A consumer may be faster than the answer to the producer."""
    ledger = Ledger(keep=1)
    for offset in range(3):
        key = f"k{offset}"
        ledger.sent(key)
        ledger.consume(key, at(offset), ours=True)
        assert ledger.outstanding() == 0
        ledger.acknowledge(key, at(offset))
        assert ledger.outstanding() == 0
    assert len(ledger) == 1
    assert ledger.verdict().acknowledged == ledger.verdict().consumed == 3


STEPS = st.tuples(st.sampled_from("slac"), st.integers(0, 2), st.integers(0, 3))


@given(st.lists(STEPS, min_size=20, max_size=60))
def test_live_counters_agree_with_the_recount(steps: list[tuple[str, int, int]]) -> None:
    ledger, acked = Ledger(keep=1), set()
    sent: set[str] = set()
    for step, number, offset in steps:
        key = f"k{number}"
        if step == "s" and key not in sent:
            sent.add(key)
            ledger.sent(key)
        elif step == "l" and key in sent - acked:
            ledger.answer_lost(key)
        elif step == "a" and key in sent - acked:
            acked.add(key)
            ledger.acknowledge(key, at(offset))
        elif step == "c":
            ledger.consume(key, at(offset), ours=key in sent)
    verdict = ledger.verdict()
    assert verdict.sent == len(sent)
    assert (ledger.acknowledged, ledger.consumed, ledger.outstanding()) == (
        verdict.acknowledged,
        verdict.consumed,
        verdict.lost,
    )
