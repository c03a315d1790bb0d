"""The account of messages: a good history passes, and each kind of fault is found by its name."""

from __future__ import annotations

import pytest
from gantry_chaos.checkers import queue
from gantry_chaos.checkers.verdicts import EXAMPLES_MAX
from gantry_chaos.history.lines import Outcome
from gantry_chaos.history.operations import Operation
from gantry_protocol.errors import GantryError


def send(value: str, outcome: Outcome = "SUCCESS", **extra: object) -> Operation:
    told = {name: str(text) for name, text in extra.items()}
    return Operation("p", "enqueue", outcome, value, None, 1, 2, told)


def got(value: str, position: str = "") -> Operation:
    extra = {"position": position} if position else {}
    return Operation("c", "dequeue", "SUCCESS", value, None, 3, 3, extra)


GOOD = [
    send("1", position="q@0"),
    send("2", position="q@1", lost=1),  # the first attempt was stored, too
    send("3", "UNKNOWN"),  # stored
    send("4", "UNKNOWN"),  # not stored
    send("5", "FAILURE"),
    got("1", "q@0"),
    got("2", "q@1"),
    got("2", "q@2"),
    got("3", "q@3"),
]


def test_a_good_history_passes() -> None:
    found = queue.check(GOOD)
    assert found.passed
    assert found.figures == {
        "enqueueInvokeCount": 5,
        "enqueueSuccessCount": 2,
        "unknownCount": 2,
        "dequeueSuccessCount": 3,
        "lostMessageCount": 0,
        "duplicateMessageCount": 1,
        "duplicateAfterLostAnswerCount": 1,
        "redeliveredMessageCount": 0,
        "phantomMessageCount": 0,
        "misplacedMessageCount": 0,
        "rewrittenPositionCount": 0,
        "atMostOnce": True,
        "atLeastOnce": True,
        "exactlyOnce": True,
        "isValid": True,
    }


@pytest.mark.parametrize(
    ("bad", "figure", "sentence"),
    [
        ([send("9")], "lostMessageCount", "9 was acknowledged and never consumed."),
        (
            [send("9"), got("9", "q@8"), got("9", "q@9")],
            "duplicateMessageCount",
            "9 is stored more often than lost answers explain.",
        ),
        (
            [send("9", "UNKNOWN"), got("9", "q@8"), got("9", "q@9")],
            "duplicateMessageCount",
            "9 is stored more often",
        ),
        ([send("9"), got("9"), got("9")], "duplicateMessageCount", "9 is stored more often"),
        (
            [send("9"), got("9", "q@9"), got("9", "q@9")],
            "redeliveredMessageCount",
            "9 was delivered twice.",
        ),
        ([got("9", "q@9")], "phantomMessageCount", "9 was consumed, but nobody sent it"),
        ([send("9", "FAILURE"), got("9")], "phantomMessageCount", "or its send surely failed"),
        (
            [send("9", position="q@8"), got("9", "q@9")],
            "misplacedMessageCount",
            "9 was not found where it was acknowledged.",
        ),
        ([send("9"), got("9", "q@0")], "rewrittenPositionCount", "Two messages were found at q@0."),
    ],
)
def test_each_kind_of_fault_is_found(bad: list[Operation], figure: str, sentence: str) -> None:
    found = queue.check(GOOD + bad)
    assert not found.passed
    assert found.figures[figure] == queue.check(GOOD).figures[figure] + 1  # type: ignore[operator]
    assert any(sentence in told for told in found.violations)


def test_the_same_value_is_sent_once() -> None:
    assert "1 was sent twice, but values are unique." in queue.check([*GOOD, GOOD[0]]).violations


def test_what_was_refused_after_a_lost_answer_may_be_stored() -> None:
    assert queue.check([*GOOD, send("9", "FAILURE", lost=1), got("9", "q@9")]).passed


def test_redelivery_is_excused_where_consumers_were_stopped() -> None:
    again = [*GOOD, got("1", "q@0")]
    assert not queue.check(again).passed
    assert queue.check(again, redelivery_allowed=True).passed


def test_who_did_not_read_to_the_end_knows_nothing() -> None:
    assert not queue.check(GOOD, drained=False).passed
    assert not queue.check([]).passed


def test_examples_are_bounded_and_all_are_counted() -> None:
    found = queue.check(GOOD + [send(f"x{n}") for n in range(50)])
    assert len(found.violations) == EXAMPLES_MAX
    assert found.violation_count == 50


def test_an_extra_that_is_no_number_is_named() -> None:
    with pytest.raises(GantryError, match="p says of 9 lost=many, which is no number"):
        queue.check([send("9", lost="many")])
