"""What a broker reports of its tier: the lag, the reason, and nothing that it does not know."""

from __future__ import annotations

import pytest
from gantry_broker.log.store_time import store_time_at
from gantry_broker.tier.core import effects as fx
from gantry_broker.tier.core import events as ev
from gantry_broker.tier.core.report import (
    REASON_MAX_CHARS,
    Readable,
    TierReport,
    tier_report,
)
from gantry_protocol.tier.keys import Pair
from gantry_protocol.types import Offset
from hypothesis import given
from hypothesis import strategies as st
from support.tier_logs import Sent, build_log
from support.upload_harness import LIMITS, Harness, local

STORED_MS = 1_700_000_000_000
NOW_MS = STORED_MS + 7_500


def told(harness: Harness, confirm: int) -> TierReport:
    """The report of a log in which every record was stored at ``STORED_MS``."""
    return tier_report(harness.role, Offset(confirm), lambda _: STORED_MS, NOW_MS)


def uploading(end: int = 100) -> Harness:
    """A master whose tier ends at ``end``."""
    harness = Harness()
    harness.promote(3, local(end))
    harness.run()
    harness.wait(LIMITS.linger_ms)
    harness.run()
    return harness


def test_a_replica_says_that_it_stands_by() -> None:
    assert told(Harness(), 0) == TierReport("standby", None, None, None, "", None)


def test_a_master_that_has_caught_up() -> None:
    assert told(uploading(), 100) == TierReport("uploading", 3, 100, 0, "", 2)


@pytest.mark.parametrize(
    ("readable", "state"),
    [(Readable("a pack is missing"), "unreadable"), (Readable("removed", True), "shortened")],
)
def test_a_tier_that_cannot_be_read_is_told_though_uploads_go_well(
    readable: Readable, state: str
) -> None:
    report = tier_report(uploading().role, Offset(100), lambda _: STORED_MS, NOW_MS, readable)
    assert report == TierReport(state, 3, 100, 0, readable.complaint, 2)
    replica = tier_report(Harness().role, Offset(0), lambda _: STORED_MS, NOW_MS, readable)
    assert replica.state == "standby"


def test_who_is_master_no_more_reports_no_lag() -> None:
    """It knows where the tier ended, and nothing of what the next one has uploaded since."""
    harness = uploading()
    harness.step(ev.Demoted())
    report = told(harness, 150)
    assert harness.role.chain.v, "of its own time"
    assert (report.state, report.lag_ms) == ("standby", None)


def test_the_lag_is_the_age_of_the_oldest_record_that_waits() -> None:
    asked: list[int] = []
    harness = uploading()
    harness.advance(local(150))

    def store_time(offset: Offset) -> int:
        asked.append(offset)
        return STORED_MS

    assert tier_report(harness.role, Offset(150), store_time, NOW_MS).lag_ms == 7_500
    assert asked == [100]


def test_a_clock_that_was_set_back_makes_no_negative_lag() -> None:
    harness = uploading()
    harness.advance(local(150))
    assert tier_report(harness.role, Offset(150), lambda _: NOW_MS + 1, NOW_MS).lag_ms == 0


def test_before_the_chain_is_read_nothing_is_claimed_to_be_known() -> None:
    harness = Harness()
    harness.promote(3, local(100))
    assert told(harness, 100) == TierReport("claiming", 3, None, None, "", None)


def test_a_reason_stays_while_the_next_attempt_is_under_way() -> None:
    harness = Harness()
    harness.promote(3, local(100))
    harness.fail()
    assert told(harness, 100).state == "backoff"
    harness.wait(LIMITS.retry_max_ms)
    assert harness.call is not None
    report = told(harness, 100)
    assert (report.state, report.reason) == ("claiming", "the store answered 503")


@pytest.mark.parametrize("waits", [False, True], ids=["all is in the tier", "more waits"])
def test_a_reason_goes_with_the_next_commit(*, waits: bool) -> None:
    harness = uploading()
    harness.advance(local(150))
    harness.wait(LIMITS.linger_ms)
    harness.fail()
    assert told(harness, 150).reason
    harness.wait(LIMITS.retry_max_ms)
    if waits:
        harness.advance(local(400))
    harness.run(until=fx.CutPack)
    harness.run(until=fx.ListAfter)
    assert told(harness, 400).reason
    harness.answer()
    assert told(harness, 400).reason == ""


def test_what_takes_too_long_has_stalled_and_keeps_its_place() -> None:
    harness = uploading()
    harness.advance(local(150))
    harness.wait(LIMITS.linger_ms)
    harness.fail()
    harness.wait(LIMITS.alarm_ms)
    report = told(harness, 150)
    assert (report.state, report.reason) == ("stalled", "the store answered 503")
    assert report.lag_ms == 7_500


def test_who_is_fenced_says_by_whom_and_claims_nothing() -> None:
    harness = uploading()
    harness.claimed_by(4)
    harness.advance(local(150))
    harness.wait(LIMITS.linger_ms)
    harness.run()
    report = told(harness, 150)
    assert report.state == "fenced"
    assert "epoch 4" in report.reason
    assert (report.committed_offset, report.version) == (None, None)


def test_an_older_epoch_is_no_claim_of_ours() -> None:
    harness = uploading()
    harness.promote(5, local(100))
    assert told(harness, 100).version is None
    assert harness.role.own == Pair(5, 1)


@given(st.text(max_size=600))
def test_reasons_are_short_and_on_one_line(reason: str) -> None:
    harness = uploading()
    harness.advance(local(150))
    harness.role.trouble = reason
    report = told(harness, 150)
    assert len(report.reason) <= REASON_MAX_CHARS
    assert len(report.reason.splitlines()) <= 1


class Log:
    """A commit log in memory."""

    def __init__(self, data: bytes, start: int = 0) -> None:
        self.log_start = Offset(start)
        self.end = Offset(start + len(data))
        self.reads = 0
        self._data = data

    def read(self, offset: Offset, max_bytes: int) -> bytes:
        self.reads += 1
        at = offset - self.log_start
        return self._data[at : at + max_bytes]


MESSAGES = [Sent("t", 0, b"first"), Sent("t", 0, b"second", ipv6=True), None, Sent("t", 0, b"x")]


def starts() -> list[int]:
    return [len(build_log(1000, MESSAGES[:count])) + 1000 for count in range(len(MESSAGES))]


@pytest.mark.parametrize(
    ("unit", "age"), [(0, 0), (1, 1), (2, 3), (3, 3)], ids=["v4", "v6", "blank", "behind it"]
)
def test_the_store_time_of_the_first_record_from_an_offset_on(unit: int, age: int) -> None:
    log = Log(build_log(1000, MESSAGES), 1000)
    assert store_time_at(log, Offset(starts()[unit])) == STORED_MS + age
    assert log.reads <= 2


def test_no_store_time_outside_of_the_log_or_inside_of_a_record() -> None:
    log = Log(build_log(1000, MESSAGES), 1000)
    for offset in (0, 999, 1007, log.end, log.end + 5):
        assert store_time_at(log, Offset(offset)) is None


def test_a_blank_at_the_end_has_no_store_time() -> None:
    log = Log(build_log(0, MESSAGES[:3]))
    assert store_time_at(log, Offset(log.end - 24)) is None
