"""The event loop around the upload role: faults of its own, and events from within an effect."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from gantry_broker.tier import effects as fx
from gantry_broker.tier import events as ev
from gantry_broker.tier.uploader import Uploader
from gantry_protocol.tier.keys import Pair
from support.tier_desk import local

PAIR = Pair(3, 1)


class Role:
    """Wants a call at a promotion; says that it is fenced when the call ends."""

    def __init__(self) -> None:
        self.reign = None
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
