"""Answers SYSTEM_ERROR: what they are counted as, and how often somebody is told."""

from __future__ import annotations

import logging

import pytest
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.remoting.error_answers import KINDS_MAX, OTHERS, SAY_S, ErrorAnswers, kind_of

PULL = RemotingCommand(code=RequestCode.PULL_MESSAGE)


def test_what_differs_from_answer_to_answer_is_no_part_of_the_reason() -> None:
    one = kind_of(PULL, "/data/kv/000008.sst is damaged at byte 17: checksum mismatch 0x1f")
    other = kind_of(PULL, "/data/kv/000011.sst is damaged at byte 4: checksum mismatch 0xa2")
    assert one == other == ("PULL_MESSAGE", "_ is damaged at byte _ checksum mismatch _")


def test_a_request_without_a_name_is_counted_by_its_code() -> None:
    assert kind_of(RemotingCommand(code=99_999), None) == ("99999", "")


def test_the_number_of_kinds_is_bounded() -> None:
    answers = ErrorAnswers()
    for number in range(KINDS_MAX + 50):
        answers.note(PULL, "x" * (number % 70) + "y" * (number // 70), 0.0)
    assert len(answers.counts) == KINDS_MAX + 1
    assert answers.counts[OTHERS] == 50


def test_a_flood_is_told_of_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    answers = ErrorAnswers()
    with caplog.at_level(logging.WARNING):
        for number in range(1000):
            answers.note(PULL, f"damaged at {number}", 100.0 + number / 1000)
        answers.note(PULL, "damaged at 1000", 101.0 + SAY_S)
    lines = [one.__dict__["facts"] for one in caplog.records]
    assert [line["count"] for line in lines] == [1, 1000]
    assert lines[1]["reason"] == "damaged at 1000"
