"""Writes that wait: each ends once, acknowledged only when confirmed with enough members (H11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from gantry_broker.replica import DEFAULT_LIMITS
from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev
from gantry_broker.replica.effects import Fate
from gantry_broker.replica.master import REPLICATION_TIMEOUT_MS, PendingWrites
from gantry_broker.replica.values import NoWrites
from gantry_protocol.types import Offset
from support.replicas import Group

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_broker.replica.master import Mastership


def waiting(*ends: int, now_ms: int = 0) -> PendingWrites:
    pending = PendingWrites()
    for end in ends:
        pending.add(Offset(end), now_ms, end)
    return pending


def test_confirmed_up_to_and_including_the_end() -> None:
    pending = waiting(10, 20, 30)
    assert pending.confirmed(Offset(9)) == []
    assert pending.confirmed(Offset(20)) == [10, 20]
    assert pending.confirmed(Offset(29)) == []
    assert len(pending) == 1


def test_nobody_waits_longer_than_the_time_out() -> None:
    pending = waiting(10, now_ms=100)
    pending.add(Offset(20), 101, 20)
    assert pending.late(99 + REPLICATION_TIMEOUT_MS) == []
    assert pending.late(100 + REPLICATION_TIMEOUT_MS) == [10]
    assert pending.confirmed(Offset(20)) == [20], "what has ended does not end again"


def test_the_end_of_a_mastership_ends_all_of_them_once() -> None:
    pending = waiting(10, 20)
    assert pending.end() == [10, 20]
    assert (pending.end(), pending.confirmed(Offset(20)), len(pending)) == ([], [], 0)


def test_a_write_is_acknowledged_when_the_set_has_it() -> None:
    group = Group(2)
    group.elect(1)
    group[2].flushing = False
    group.write(1, b"abc")
    assert group[1].ended == []
    group[2].flush()
    group.run()
    assert group[1].ended == [(Fate.CONFIRMED, [b"abc"])]


def test_what_too_few_have_confirmed_is_not_acknowledged() -> None:
    """The set shrinks while a write waits: what is left of it confirms, and is too few (H11)."""
    group = Group(2)
    group.elect(1)
    group[2].flushing = False
    group.write(1, b"abc")
    group.set, group.set_epoch = frozenset({group[1].id}), group.set_epoch + 1
    group[1].step(ev.ViewLearned(group.view(1)))
    assert group[1].facts.confirm == 3
    assert group[1].ended == [(Fate.TOO_FEW, [b"abc"])]


def test_a_write_that_nobody_confirms_is_late_and_does_not_end_again() -> None:
    group = Group(2)
    group.elect(1)
    group[2].flushing = False
    group.write(1, b"abc")
    group.tick(REPLICATION_TIMEOUT_MS - 20)
    assert group[1].ended == []
    group.tick(20)
    assert group[1].ended == [(Fate.LATE, [b"abc"])]
    group[2].flush()
    group.run()
    assert group[1].facts.confirm == 3
    assert group[1].ended == [(Fate.LATE, [b"abc"])]


def test_a_process_that_stood_still_finds_no_new_write_late() -> None:
    group = Group(2)
    group.elect(1)
    group[2].flushing = False
    group.now_ms += 2 * REPLICATION_TIMEOUT_MS
    group.write(1, b"abc")
    group.tick(20)
    assert group[1].ended == []


def test_the_end_of_a_mastership_ends_what_waits_under_it() -> None:
    group = Group(2)
    group.elect(1)
    group[2].flushing = False
    group.write(1, b"abc")
    group.elect(2)
    assert group[1].ended == [(Fate.DEPOSED, [b"abc"])]
    group.elect(1)
    assert group[1].ended == [(Fate.DEPOSED, [b"abc"])], "the next one does not know them"


def test_a_master_that_is_cut_off_ends_what_waits() -> None:
    group = Group(2)
    group.elect(1)
    group[2].flushing = False
    group.write(1, b"abc")
    group.deaf, group.stopped = {1}, {2}
    group.tick(DEFAULT_LIMITS.cut_off_ms + 20)
    assert group[1].ended == [(Fate.CUT_OFF, [b"abc"])]


def test_the_end_of_the_process_ends_what_waits() -> None:
    group = Group(2)
    group.elect(1)
    group[2].flushing = False
    group.write(1, b"abc")
    assert group[1].core.stopped() == [fx.WritesEnded(Fate.DEPOSED, [b"abc"])]
    assert group[1].core.stopped() == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(lambda master: None, None, id="serving"),
        pytest.param(lambda master: setattr(master, "cut_off", True), NoWrites.CUT_OFF),
        pytest.param(lambda master: setattr(master, "disk_is_silent", True), NoWrites.NO_DISK),
        pytest.param(lambda master: master.begin_drain(0), NoWrites.LEAVING),
    ],
)
def test_who_may_write(change: Callable[[Mastership], object], reason: NoWrites | None) -> None:
    group = Group(2)
    group.elect(1)
    master = group[1].core.serving
    assert master is not None
    change(master)
    assert master.no_writes == reason


def test_nobody_may_write_while_too_few_are_in_sync() -> None:
    group = Group(2)
    group.elect(1, {1})
    master = group[1].core.serving
    assert master is not None
    assert master.no_writes == NoWrites.TOO_FEW
