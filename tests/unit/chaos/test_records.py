"""What a load keeps until it is fetched: in order, bounded, and never short in silence."""

from __future__ import annotations

import pytest
from gantry_chaos.errors import HistoryError
from gantry_chaos.history.lines import FaultMark, Request
from gantry_chaos.history.observations import OffsetSeen, RoleSeen
from gantry_chaos.history.recording import commit, metadata_unread
from gantry_chaos.history.records import Records, split


def kept(count: int, keep: int = 100) -> Records:
    found = Records(keep=keep)
    for number in range(count):
        found.line(Request("p", "enqueue", str(number), None, number))
    return found


def test_records_come_back_as_what_they_were() -> None:
    found = Records()
    asked, seen = Request("p", "enqueue", "v", None, 7), RoleSeen(8, "orders", "b-0", "master", 3)
    found.line(asked)
    found.seen(seen)
    found.seen(OffsetSeen(9, "orders", "confirm", 1))
    found.line(FaultMark("cut", "start", 10))
    batch = found.batch(0)
    assert (batch.next, batch.dropped) == (4, 0)
    history, observations = split(batch.records, "x")
    assert history == [asked, FaultMark("cut", "start", 10)]
    assert observations == [seen, OffsetSeen(9, "orders", "confirm", 1)]


def test_an_answer_that_was_lost_can_be_asked_for_again() -> None:
    found = kept(5)
    assert found.batch(0, most=3).next == 3
    again = found.batch(0, most=3)
    assert [text.split("\t")[3] for text in again.records] == ["0", "1", "2"]
    rest = found.batch(3)
    assert (len(rest.records), rest.next, len(found)) == (2, 5, 2)
    assert found.batch(5).records == []
    with pytest.raises(ValueError, match="record 0 is not kept"):
        found.batch(0)
    with pytest.raises(ValueError, match="record 6 is not kept"):
        found.batch(6)


def test_a_full_buffer_says_how_much_is_missing() -> None:
    found = kept(12, keep=10)
    assert (len(found), found.dropped, found.batch(0).dropped) == (10, 2, 2)


@pytest.mark.parametrize("text", ["a\tb", '{"type":"role"}', "{"])
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(HistoryError, match="record 0"):
        split([text], "x")


def test_commits_and_reads_without_an_answer_are_unknown() -> None:
    asked, said = commit("c", "topic", 3, 10, 25, answered=False)
    assert (asked.op, said.outcome, said.took_ms) == ("commit", "UNKNOWN", 15)  # type: ignore[union-attr]
    assert commit("c", "topic", 3, 10, 25, answered=True)[1].outcome == "SUCCESS"  # type: ignore[union-attr]
    assert metadata_unread("r", "orders", 1, 2)[1].outcome == "UNKNOWN"  # type: ignore[union-attr]
