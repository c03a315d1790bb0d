"""The event loop around the upload role: faults of its own, and events from within an effect."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from gantry_broker.tier import uploader as uploading
from gantry_broker.tier.core import effects as fx
from gantry_broker.tier.core import events as ev
from gantry_broker.tier.core.role import UploadRole
from gantry_broker.tier.core.values import State
from gantry_broker.tier.uploader import SystemEntropy, Uploader
from gantry_protocol.tier.chain import empty
from gantry_protocol.tier.keys import Pair
from support.upload_harness import LIMITS, PLACE, local

PAIR = Pair(3, 1)


class Role:
    """Wants a call at a promotion; says that it is fenced when the call ends."""

    def __init__(self) -> None:
        self.session = None
        self.holds_pack = False
        self.seen: list[ev.Event] = []

    def step(self, event: ev.Event, _: int) -> list[fx.Effect]:
        self.seen.append(event)
        if isinstance(event, ev.Promoted):
            return [fx.CheckMeta(1)]
        if isinstance(event, ev.MetaChecked):
            return [fx.FencedBy(PAIR, None), fx.ArmTimer(None)]
        return []


class Observer:
    """Demotes the uploader from within the effect that says it is fenced."""

    uploader: Uploader
    seen_inside: int

    def tier_committed(self, head: object) -> None:
        raise AssertionError(head)

    def tier_fenced(self, own: Pair, by: Pair | None) -> None:
        role = cast("Role", self.uploader.role)
        before = len(role.seen)
        self.uploader.demoted()
        self.seen_inside = len(role.seen) - before


class Calls:
    def __init__(self, fault: Exception | None = None) -> None:
        self._fault = fault
        self.settled: list[bool] = []

    def settle(self, *, holds_pack: bool) -> None:
        self.settled.append(holds_pack)

    async def run(self, call: fx.Call) -> ev.Result:
        if self._fault is not None:
            raise self._fault
        return ev.MetaChecked(call.ticket)


def uploader(role: Role, calls: Calls, observer: Observer, failed: list[BaseException]) -> Uploader:
    made = Uploader(
        cast("Any", role), cast("Any", calls), lambda: local(100), observer, failed.append
    )
    observer.uploader = made
    return made


async def test_a_fault_of_ours_is_told() -> None:
    fault, failed = ZeroDivisionError("nobody thought of it"), list[BaseException]()
    made = uploader(Role(), Calls(fault), Observer(), failed)
    made.promoted(PAIR)
    await asyncio.sleep(0.01)
    assert failed == [fault]
    await made.stop()


async def test_an_event_from_within_an_effect_waits_for_the_effects_before_it() -> None:
    role, observer, failed = Role(), Observer(), list[BaseException]()
    made = uploader(role, Calls(), observer, failed)
    made.promoted(PAIR)
    await asyncio.sleep(0.01)
    assert observer.seen_inside == 0
    assert [type(event) for event in role.seen] == [ev.Promoted, ev.MetaChecked, ev.Demoted]
    await made.stop()
    assert failed == []


class Hanging:
    """Calls that end only when they are cancelled."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.cancelled: list[int] = []

    def settle(self, *, holds_pack: bool) -> None:
        """No pack was cut."""

    async def run(self, call: fx.Call) -> ev.Result:
        self.begun.append(call.ticket)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.append(call.ticket)
            raise
        raise AssertionError


def hanging() -> tuple[Uploader, Hanging, list[BaseException]]:
    """The real role, promoted under epoch 3, whose first call hangs."""
    role = UploadRole(shard=PLACE.uid, writer="w", entropy=SystemEntropy(), limits=LIMITS)
    calls, failed = Hanging(), list[BaseException]()
    made = uploader(cast("Any", role), cast("Any", calls), Observer(), failed)
    made.promoted(PAIR)
    return made, calls, failed


async def test_a_call_of_an_earlier_mastership_is_cancelled_before_the_next_begins() -> None:
    made, calls, failed = hanging()
    await asyncio.sleep(0)
    made.promoted(Pair(4, 1))
    await asyncio.sleep(0.01)
    assert (len(calls.begun), calls.cancelled) == (2, calls.begun[:1])
    assert made.role.state is State.CLAIMING, "the end of a cancelled call says nothing"
    await made.stop()
    assert failed == []


async def test_nothing_is_left_of_an_uploader_that_was_stopped() -> None:
    made, calls, failed = hanging()
    await asyncio.sleep(0)
    await made.stop()
    assert calls.cancelled == calls.begun
    assert made._running == set()
    made.promoted(Pair(4, 1))
    made.advanced()
    await asyncio.sleep(0.01)
    assert (len(calls.begun), failed) == (1, [])


async def test_who_fenced_it_is_asked_about() -> None:
    """A hint of a higher pair: the controllers know who is the master."""
    told: list[tuple[Pair, Pair | None]] = []
    made, calls, _ = hanging()
    made._observer = cast(
        "Any", SimpleNamespace(tier_fenced=lambda own, by: told.append((own, by)))
    )
    await asyncio.sleep(0)
    made.chain_seen(msgspec.structs.replace(empty(PLACE), v=9, pair=Pair(7, 2)))
    assert told == [(PAIR, Pair(7, 2))]
    assert made.role.state is State.FENCED
    await asyncio.sleep(0.01)
    assert calls.cancelled == calls.begun
    await made.stop()


class Timed(Role):
    """Wants to be woken some milliseconds after each promotion, as ``waits_ms`` says; or never."""

    def __init__(self, *waits_ms: int | None) -> None:
        super().__init__()
        self.waits_ms = list(waits_ms)

    def step(self, event: ev.Event, now_ms: int) -> list[fx.Effect]:
        self.seen.append(event)
        if not isinstance(event, ev.Promoted):
            return []
        wait_ms = self.waits_ms.pop(0)
        return [fx.ArmTimer(None if wait_ms is None else now_ms + wait_ms)]


@pytest.mark.looptime
@pytest.mark.parametrize(("later_ms", "rings"), [(200, 1), (None, 0)])
async def test_a_timer_that_was_set_anew_rings_as_set_last(
    later_ms: int | None, rings: int
) -> None:
    role = Timed(100, later_ms)
    made = uploader(role, Calls(), Observer(), [])
    made.promoted(PAIR)
    made.promoted(PAIR)
    await asyncio.sleep(1)
    assert [type(event) for event in role.seen[2:]] == [ev.Timer] * rings
    await made.stop()


class Committing(Role):
    """Has something new whenever the log has."""

    def step(self, event: ev.Event, _: int) -> list[fx.Effect]:
        self.seen.append(event)
        return [fx.Committed(cast("Any", "head"))] if isinstance(event, ev.LogAdvanced) else []


async def test_each_advance_is_looked_at_and_each_commit_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uploading, "ADVANCE_S", 0)
    role, told = Committing(), list[object]()
    role.session = cast("Any", object())
    made = uploader(role, Calls(), Observer(), [])
    made._observer = cast("Any", SimpleNamespace(tier_committed=told.append))
    for _ in range(2):
        made.advanced()
        made.advanced()
        for _ in range(3):
            await asyncio.sleep(0)
    assert told == ["head", "head"]
    await made.stop()


async def test_the_room_of_a_pack_is_kept_for_as_long_as_the_role_has_it() -> None:
    role, calls = Role(), Calls()
    made = uploader(role, calls, Observer(), [])
    role.holds_pack = True
    made.promoted(PAIR)
    assert calls.settled == [True]
    role.holds_pack = False
    made.demoted()
    assert calls.settled == [True, False]
    role.holds_pack = True
    await made.stop()
    assert calls.settled[-1] is False, "nothing of it is left after the end"
