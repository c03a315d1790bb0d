"""What a verdict may excuse, and what it may not."""

from __future__ import annotations

import pytest
from gantry_cli.client.ledger import Ledger, Position


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
