"""The parts of the measurement of gRPC clients that compute: rates, CPU, accounts of messages."""

from __future__ import annotations

import pytest
from gantry_lab.bench import page, suite
from gantry_lab.bench.results import line
from gantry_lab.measure import grpc_account as account
from gantry_lab.measure.grpc_account import OURS, THEIRS, UNITS, Producing, Straight, Taking, Usage
from gantry_protocol.errors import GantryError

BEFORE, AFTER = Usage(proxy=1.0, master=10.0, client=5.0), Usage(proxy=2.0, master=10.5, client=9.0)

# ---- rates


def test_a_window_is_messages_per_second_and_cpu_per_message() -> None:
    seen = account.answer(["2000", "3", "4000000000", "7000", "25500"])
    assert account.sent(seen, BEFORE, AFTER) == {
        "messages_per_s": 500.0,
        "proxy_cpu_us": pytest.approx(500),
        "master_cpu_us": pytest.approx(250),
        "client_cpu_us": pytest.approx(2000),
        "failed": 3.0,
        "p50_ms": 7.0,
        "p99_ms": 25.5,
    }


def test_received_messages_have_no_latency_of_their_own() -> None:
    seen = account.answer(["2000", "0", "4000000000", "17"])
    assert seen.rest == (17,)
    assert "p50_ms" not in account.rate(seen, BEFORE, AFTER)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["0", "9", "4000000000", "0", "0"], "9 calls failed"),
        (["5", "0", "0", "0"], "No message"),
        (["5", "0"], "no account"),
        (["5", "0", "soon"], "no account"),
    ],
)
def test_a_window_without_messages_has_no_figure(words: list[str], why: str) -> None:
    with pytest.raises(GantryError, match=why):
        account.answer(words)


def test_the_ratio_is_ours_by_theirs() -> None:
    assert account.ratio({"messages_per_s": 300.0}, {"messages_per_s": 400.0}) == 0.75


def test_each_proxy_begins_every_second_round() -> None:
    assert [account.order(number) for number in range(3)] == [
        (OURS, THEIRS),
        (THEIRS, OURS),
        (OURS, THEIRS),
    ]


def test_the_master_s_cpu_is_by_message_of_either_kind() -> None:
    alone = Straight(messages=10_000, beside=0, seconds=2.0, master_s=0.5)
    beside = Straight(messages=6_000, beside=2_000, seconds=2.0, master_s=0.44)
    paced = Straight(messages=4_500, beside=1_000, seconds=2.0, master_s=0.4)
    assert account.store(alone, beside, paced) == {
        "alone_per_s": 5_000.0,
        "beside_per_s": 3_000.0,
        "kept_percent": pytest.approx(60),
        "grpc_per_s": 1_000.0,
        "paced_kept_percent": pytest.approx(90),
        "paced_grpc_per_s": 500.0,
        "alone_cpu_us": pytest.approx(50),
        "beside_cpu_us": pytest.approx(55),
        "cpu_ratio": pytest.approx(1.1),
    }


# ---- kills


def test_a_proxy_and_the_master_are_killed_in_turn() -> None:
    assert list(account.victims(5)) == ["proxy", "master", "proxy", "master", "proxy"]
    assert list(account.victims(0)) == []


def told(taking: Taking, *said: str) -> Taking:
    for one in said:
        kind, key = one.split()
        assert taking.note(kind, key) is (kind == "GOT")
    return taking


def test_only_an_acknowledgement_makes_a_message_that_may_be_lost() -> None:
    producing = Producing()
    said = [("ACK", "a"), ("NACK", "b"), ("ACK", "c"), ("ACK", "c"), ("ERROR", "d")]
    assert [producing.note(*one) for one in said] == [True, False, True, True, False]
    assert (producing.acknowledged, producing.refused) == ({"a", "c"}, 1)


def test_lost_is_what_was_acknowledged_and_never_handed_out() -> None:
    taking = told(Taking(knows_answers=True), "GOT a", "GOT x")
    assert taking.lost({"a", "b", "c"}) == 2
    assert taking.lost({"a"}) == 0


@pytest.mark.parametrize("kind", ["LEFT", "FAILED"])
def test_what_was_left_is_owed_until_it_comes_again(kind: str) -> None:
    taking = told(Taking(knows_answers=True), "GOT a", f"{kind} a")
    assert (taking.left, taking.owed, taking.waits({"a"})) == (1, {"a"}, True)
    told(taking, "GOT a")
    assert (taking.owed, taking.again, taking.after_done) == (set(), 0, 0)
    assert taking.waits({"a"}), "it is handed out, not done"
    told(taking, "DONE a")
    assert not taking.waits({"a"})


def test_what_is_owed_is_waited_for_even_if_its_producer_was_not_answered() -> None:
    taking = told(Taking(knows_answers=True), "GOT a", "LEFT a")
    assert taking.waits(set())


def test_who_gets_a_message_again_is_told_apart_by_whether_its_end_was_answered() -> None:
    taking = told(Taking(knows_answers=True), "GOT a", "GOT a", "UNSURE a", "GOT a", "DONE a")
    assert (taking.again, taking.after_done) == (2, 0)
    told(taking, "GOT a")
    assert (taking.again, taking.after_done) == (2, 1)
    assert not taking.waits({"a"})


def test_a_push_consumer_says_done_before_the_answer() -> None:
    taking = told(Taking(knows_answers=False), "GOT a", "DONE a", "GOT a")
    assert (taking.again, taking.after_done) == (1, 0)


# ---- the page


def test_every_figure_is_a_row_and_every_row_a_figure() -> None:
    sheet = suite.bench(OURS)
    assert sheet in page.SHEETS
    assert sheet.others == (THEIRS,)
    assert {goal.metric for _, goal in sheet.rows} == UNITS.keys()


def test_their_figures_stand_beside_ours() -> None:
    sheet = suite.bench(OURS)
    figures = {
        (bench, "send", metric): line(bench, "send", metric, "", [value])
        for bench, metric, value in (
            (OURS, "messages_per_s", 900.0),
            (OURS, "ratio", 0.4),
            (THEIRS, "messages_per_s", 2250.0),
        )
    }
    head, _, rate, ratio = page.table(sheet, figures)
    assert head[-2:] == ["reached", THEIRS]
    assert rate[2:] == ["900", "", "2,250"]
    assert ratio[1:] == ["≥ 0.5", "0.4", "**no**", ""]
