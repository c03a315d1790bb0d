"""Who may write through a member (H11), and that a refusal comes before anything is stored."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from gantry_broker.member.writes import GroupWrites
from gantry_broker.queues.recent_keys import RecentKeys
from gantry_broker.replica import events as ev
from gantry_broker.replica.effects import Fate
from gantry_broker.replica.master import Mastership
from gantry_broker.store.contract import SendOutcome, StoredAt
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import Offset
from support.replicas import Group


def mastership(
    *, in_sync: int = 2, draining: bool = False, silent: bool = False, cut_off: bool = False
) -> Mastership:
    """Of two, of which two must have a record."""
    group = Group(2)
    group.elect(1, {1} if in_sync == 1 else None)
    if draining:
        group[1].step(ev.DrainRequested())
    found = group[1].core.serving
    assert found is not None
    found.disk_is_silent = silent
    found.cut_off = cut_off
    return found


def writes_under(
    master: Mastership | None, store: Any, ended: list[Any] | None = None, **clocks: Any
) -> GroupWrites:
    """Of a member whose core knows this mastership, and which serves if there is one."""
    store.log, store.newest_ms = SimpleNamespace(end=Offset(0)), 0
    writes = GroupWrites(store, lambda: None, **clocks)
    shell: Any = SimpleNamespace(
        core=SimpleNamespace(serving=master), appended=[].append if ended is None else ended.append
    )
    writes.begin(shell)
    return writes


@pytest.mark.parametrize(
    ("master", "is_whole", "code"),
    [
        pytest.param(mastership(), True, None, id="serving"),
        pytest.param(None, True, ResponseCode.SERVICE_NOT_AVAILABLE, id="no master"),
        pytest.param(
            mastership(draining=True), True, ResponseCode.SERVICE_NOT_AVAILABLE, id="drained"
        ),
        pytest.param(
            mastership(silent=True), True, ResponseCode.SERVICE_NOT_AVAILABLE, id="no disk"
        ),
        pytest.param(
            mastership(cut_off=True), True, ResponseCode.SERVICE_NOT_AVAILABLE, id="cut off"
        ),
        pytest.param(mastership(in_sync=1), True, ResponseCode.SYSTEM_ERROR, id="too few"),
        pytest.param(mastership(), False, ResponseCode.SYSTEM_BUSY, id="half a table"),
    ],
)
async def test_who_may_write(
    master: Mastership | None, is_whole: bool, code: ResponseCode | None
) -> None:
    refusal = writes_under(master, SimpleNamespace(is_whole=is_whole, in_the_way=None)).accepting()
    assert (None if refusal is None else refusal.code) == code


async def test_nothing_is_stored_or_created_without_a_mastership() -> None:
    store: Any = SimpleNamespace(is_whole=True, in_the_way=None)  # no put: it would raise
    for writes in (GroupWrites(store, lambda: None), writes_under(None, store)):
        outcomes: list[SendOutcome] = []
        writes.append([], outcomes.append)
        assert [one.code for one in outcomes] == [ResponseCode.SERVICE_NOT_AVAILABLE]
        answers: list[Any] = []
        writes.create_topic(TopicConfig("t"), answers.append, if_absent=True)
        writes.delete_topic("t", answers.append)
        assert [one.code for one in answers] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2


async def test_store_times_follow_a_clock_that_jumped_by_as_much_as_has_passed() -> None:
    wall_s, steady, stored = 1_700_000_000.0, 0, []

    def put(records: Any, *, now_ms: int, **_: Any) -> list[StoredAt]:
        stored.append(now_ms)
        return [StoredAt(0, 0, Offset(0), 100)]

    store: Any = SimpleNamespace(put=put, in_the_way=None, recent=RecentKeys())
    writes = writes_under(mastership(), store, wall=lambda: wall_s, steady=lambda: steady)
    for passed_ms, off_s in ((0, 0.0), (1_000, 86_400.0), (10_000, 86_400.0), (60_000, 0.0)):
        steady, wall_s = passed_ms, 1_700_000_000.0 + passed_ms / 1000 + off_s
        writes.ticked()
        writes.append([], lambda outcome: None)
    assert [one - 1_700_000_000_000 for one in stored] == [0, 2_000, 20_000, 60_000]
    assert writes.clock.ahead_ms == 0


async def test_who_is_cut_off_changes_no_topic() -> None:
    writes = writes_under(mastership(cut_off=True), SimpleNamespace(is_whole=True, in_the_way=None))
    writes.topics = SimpleNamespace()  # type: ignore[assignment]  # it would raise
    answers: list[Any] = []
    writes.create_topic(TopicConfig("t"), answers.append, if_absent=True)
    writes.delete_topic("t", answers.append)
    assert [one.code for one in answers] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2


@pytest.mark.parametrize(
    ("fate", "code", "has_places"),
    [
        (Fate.CONFIRMED, 0, True),
        (Fate.TOO_FEW, 12, True),
        (Fate.LATE, 12, True),
        (Fate.DEPOSED, 12, False),
        (Fate.CUT_OFF, 12, False),
    ],
)
async def test_what_whoever_waits_is_answered(fate: Fate, code: int, has_places: bool) -> None:
    """12 names the places while this is the master; without them clients ask the next one."""
    store: Any = SimpleNamespace(
        put=lambda *_, **__: [StoredAt(0, 0, Offset(0), 9)],
        in_the_way=None,
        recent=RecentKeys(),
    )
    waiting: list[Any] = []
    writes = writes_under(mastership(), store, waiting)
    outcomes: list[SendOutcome] = []
    writes.append([], outcomes.append)
    assert outcomes == []
    writes.ended(fate, waiting)
    (outcome,) = outcomes
    assert (outcome.code, len(outcome.stored) > 0) == (code, has_places)
    assert (writes.confirmed, writes.unconfirmed) == ((1, 0) if code == 0 else (0, 1))
