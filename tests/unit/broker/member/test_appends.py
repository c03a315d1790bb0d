"""Waiting sends: answered once, 0 only when confirmed with enough members (H11)."""

from __future__ import annotations

from gantry_broker.member.appends import REPLICATION_TIMEOUT_S, PendingAppends
from gantry_broker.store.contract import SendOutcome, StoredAt
from gantry_protocol.types import Offset


class Sends:
    def __init__(self) -> None:
        self.pending = PendingAppends()
        self.outcomes: dict[int, list[SendOutcome]] = {}

    def add(self, end: int, now_s: float = 0.0) -> None:
        stored = [StoredAt(0, end, Offset(end - 10), 10)]
        self.outcomes[end] = []
        self.pending.add(stored, self.outcomes[end].append, now_s)

    def codes(self) -> dict[int, list[int]]:
        return {end: [one.code for one in found] for end, found in self.outcomes.items()}


def test_confirmed_up_to_and_including_the_end() -> None:
    sends = Sends()
    for end in (10, 20, 30):
        sends.add(end)
    sends.pending.confirm(Offset(20), enough_in_sync=True)
    assert sends.codes() == {10: [0], 20: [0], 30: []}
    sends.pending.confirm(Offset(29), enough_in_sync=True)
    assert sends.codes()[30] == []
    assert len(sends.pending) == 1


def test_confirmed_with_too_few_members_is_not_acknowledged() -> None:
    sends = Sends()
    sends.add(10)
    sends.pending.confirm(Offset(10), enough_in_sync=False)
    (outcome,) = sends.outcomes[10]
    assert outcome.code == 12
    assert outcome.stored, "12 means stored: it names the place"


def test_nobody_waits_longer_than_the_time_out() -> None:
    sends = Sends()
    sends.add(10, now_s=100.0)
    sends.add(20, now_s=101.0)
    sends.pending.expire(100.0 + REPLICATION_TIMEOUT_S - 0.01)
    assert sends.codes() == {10: [], 20: []}
    sends.pending.expire(100.0 + REPLICATION_TIMEOUT_S)
    assert sends.codes() == {10: [12], 20: []}
    sends.pending.confirm(Offset(20), enough_in_sync=True)
    assert sends.codes() == {10: [12], 20: [0]}, "an expired send is not answered again"


def test_who_waits_when_the_mastership_is_in_doubt_is_told_no_place() -> None:
    """Without one it is answered by a code after which clients ask the next master."""
    sends = Sends()
    sends.add(10)
    sends.pending.end("cut off")
    (outcome,) = sends.outcomes[10]
    assert (outcome.code, outcome.remark, len(outcome.stored)) == (12, "cut off", 0)
    sends.pending.confirm(Offset(10), enough_in_sync=True)
    assert len(sends.outcomes[10]) == 1, "answered once"


def test_the_end_of_the_mastership_answers_everybody_at_once() -> None:
    sends = Sends()
    sends.add(10)
    sends.add(20)
    sends.pending.end()
    assert sends.codes() == {10: [12], 20: [12]}
    assert (sends.pending.confirmed, sends.pending.unconfirmed, len(sends.pending)) == (0, 2, 0)
