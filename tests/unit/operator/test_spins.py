"""Looks that bring each other while nothing changes: what they are, and that there are none."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from gantry_operator.api.kinds import CONTROLLER_GROUP
from gantry_operator.plan.actions import CheckAgain
from gantry_operator.plan.observed import BrokerObserved
from gantry_operator.reconcile import worker
from gantry_operator.reconcile.spins import LIMIT, SOON_S, Look, Row, fingerprint, follow
from gantry_operator.workqueue import MAX_DELAY_S
from gantry_protocol.admin_client.outcomes import Unreachable
from unit.operator.test_reconcile import World
from unit.operator.world import (
    broker_world,
    brokers,
    controller_pod,
    controller_world,
    member,
    pod,
    quorum,
    view,
)

MANY = 20


def row_of(*looks: Look) -> Row:
    """The row after these looks."""
    row: Row | None = None
    for look in looks:
        row = follow(row, look)
    assert row is not None
    return row


def looks(every_s: float, *, causes: bool = True, read: bytes = b"same") -> list[Look]:
    """Many of them at this pace."""
    return [Look(every_s * number, read, causes) for number in range(MANY)]


@pytest.mark.parametrize(
    ("entries", "repeats"),
    [
        pytest.param(looks(0.0), MANY - 1, id="at-once"),
        pytest.param(looks(SOON_S), MANY - 1, id="soon"),
        pytest.param(looks(0.0)[: LIMIT + 1], LIMIT, id="as-many-as-may-be"),
        pytest.param(looks(2 * MAX_DELAY_S), 0, id="timed"),
        pytest.param([Look(2.0**n, b"same", causes=True) for n in range(MANY)], 0, id="back-off"),
        pytest.param(looks(0.0, causes=False), 0, id="brought-by-others"),
        pytest.param([*looks(0.0), Look(0.0, b"news", causes=True)], 0, id="news"),
        pytest.param([*looks(0.0), *looks(0.0, read=b"news")], MANY - 1, id="in-vain-after-news"),
    ],
)
def test_what_a_row_is(entries: list[Look], repeats: int) -> None:
    row = row_of(*entries)
    assert row.repeats == repeats
    assert row.spins == (repeats > LIMIT)
    assert bool(row.wait_s) == row.spins


def test_who_waits_as_told_is_still_in_the_row() -> None:
    row, at_s = row_of(*looks(0.0)[: LIMIT + 1]), 0.0
    waits = []
    for _ in range(MANY):
        at_s += row.wait_s
        row = follow(row, Look(at_s, b"same", causes=True))
        waits.append(row.wait_s)
    assert waits == sorted(waits)
    assert waits[-1] == MAX_DELAY_S
    assert follow(row, Look(at_s + row.wait_s + 2 * SOON_S, b"same", causes=True)).repeats == 0


def written(seen: BrokerObserved) -> BrokerObserved:
    """The same after writes of the operator alone."""
    meta = seen.meta.model_copy(update={"resource_version": "8", "finalizers": ("ours",)})
    objects = {
        name: body | {"metadata": body["metadata"] | {"annotations": {"at": "now"}}, "spec": {}}
        for name, body in seen.objects.items()
    }
    pods = tuple(
        msgspec.structs.replace(one, role="x", traffic=False, resource_version="2")
        for one in seen.pods
    )
    return msgspec.structs.replace(
        seen, meta=meta, objects=objects, pods=pods, live_status={"at": "now"}
    )


def test_what_the_operator_writes_is_no_news() -> None:
    seen = broker_world()
    assert fingerprint(written(seen)) == fingerprint(seen)


def test_what_moves_by_itself_is_no_news() -> None:
    moved = view(*(member(n, max_offset=2000, last_heartbeat_age_ms=9) for n in (1, 2, 3)))
    assert fingerprint(broker_world(known=moved)) == fingerprint(broker_world())
    later = quorum(5, 5, 5, commit_index=100_007)
    assert fingerprint(controller_world(quorum=later)) == fingerprint(controller_world())
    silent = [broker_world(known=Unreachable(why)) for why in ("1 s", "2 s")]
    assert fingerprint(silent[0]) == fingerprint(silent[1]) != fingerprint(broker_world())


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(broker_world(brokers({"generation": 2})), id="wish"),
        pytest.param(broker_world(brokers({"annotations": {"a": "b"}})), id="annotation"),
        pytest.param(broker_world(brokers({"deletionTimestamp": "now"})), id="deletion"),
        pytest.param(broker_world(pods=(pod(0), pod(1), pod(2, ready=False))), id="pod"),
        pytest.param(broker_world(known=view(master_epoch=5)), id="master"),
        pytest.param(broker_world(known=view(member(1), member(2, alive=False))), id="member"),
        pytest.param(broker_world(image="gantry:2"), id="image"),
        pytest.param(broker_world(objects={}), id="objects"),
        pytest.param(broker_world(controllers=None), id="quorum"),
    ],
)
def test_what_others_say_is_news(other: BrokerObserved) -> None:
    assert fingerprint(other) != fingerprint(broker_world())


def test_the_status_of_an_owned_object_is_news() -> None:
    seen = broker_world()
    objects = {name: body | {"status": {"replicas": 7}} for name, body in seen.objects.items()}
    assert fingerprint(msgspec.structs.replace(seen, objects=objects)) != fingerprint(seen)
    pods = tuple(controller_pod(n, ready=False) for n in range(3))
    assert fingerprint(controller_world(pods=pods)) != fingerprint(controller_world())


async def live(world: World, lasts_s: float) -> None:
    """A worker's life, on a clock that nothing takes time by."""
    task = asyncio.create_task(world.reconciler.work())
    await asyncio.sleep(lasts_s)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_a_group_that_comes_up_is_looked_at_now_and_then() -> None:
    """The fixture of all tests here says whether anything was looked at in vain."""
    world = World()
    world.admin.known = Unreachable("no controllers yet")
    world.groups()
    await live(world, 60)
    assert 2 < world.result("BrokerGroup", "ok") < 40
    assert world.count("reconciles_without_change_total") == 0


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_looks_that_bring_each_other_come_later_and_are_told(
    monkeypatch: pytest.MonkeyPatch, repeated: list[str]
) -> None:
    """A plan with nothing in it but the wish to look again at once."""
    monkeypatch.setattr(worker, "plan", lambda *_: [CheckAgain(after_s=0.0)])
    world = World()
    world.have(CONTROLLER_GROUP, "gantry", metadata={"generation": 1}, spec={})
    await live(world, 600)
    looked = world.result("ControllerGroup", "ok")
    assert LIMIT < looked < LIMIT + 20
    told = world.count("reconciles_without_change_total", "ControllerGroup")
    assert told == len(repeated) == looked - LIMIT - 1
    repeated.clear()
