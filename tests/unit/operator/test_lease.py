"""Leader election on a clock of its own: one acts, and a loser stops before the next one starts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from gantry_operator.api.errors import Unavailable
from gantry_operator.api.kinds import LEASE
from gantry_operator.lease import DURATION_S, NAME, LeaderElection, LeaseLostError
from unit.operator.fake_api import FakeApi

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
DOWN = Unavailable(503, "ServerError", "down")


def spec(api: FakeApi) -> dict[str, Any]:
    lease = api.find(LEASE, NAME)
    assert lease is not None
    found: dict[str, Any] = lease["spec"]
    return found


async def test_the_first_one_gets_it() -> None:
    api = FakeApi()
    election = LeaderElection(api, "mq", "a")
    assert not election.held
    await election.acquire()
    assert election.held
    assert spec(api)["holderIdentity"] == "a"
    assert spec(api)["leaseDurationSeconds"] == DURATION_S


async def test_a_live_holder_is_waited_for(looptime: Any) -> None:
    api = FakeApi()
    first, second = LeaderElection(api, "mq", "a"), LeaderElection(api, "mq", "b")
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    waiting = asyncio.create_task(second.acquire())
    await asyncio.sleep(300)
    assert not waiting.done()
    assert first.held
    assert not second.held
    holding.cancel()
    waiting.cancel()
    assert looptime == 300


async def test_a_dead_holder_is_followed_after_its_duration_by_our_own_clock(looptime: Any) -> None:
    api = FakeApi()
    await LeaderElection(api, "mq", "a").acquire()
    # What the Lease says about time is the other machine's clock, and nobody's business.
    spec(api)["renewTime"] = "1970-01-01T00:00:00.000000Z"
    second = LeaderElection(api, "mq", "b")
    await second.acquire()
    assert DURATION_S <= looptime <= DURATION_S + 2
    assert spec(api)["holderIdentity"] == "b"
    assert spec(api)["leaseTransitions"] == 1


async def test_a_released_lease_is_taken_at_once(looptime: Any) -> None:
    api = FakeApi()
    first, second = LeaderElection(api, "mq", "a"), LeaderElection(api, "mq", "b")
    await first.acquire()
    await first.release()
    assert not first.held
    await second.acquire()
    assert looptime < 1
    assert spec(api)["holderIdentity"] == "b"


async def test_a_holder_that_cannot_renew_ends_before_anybody_else_may_start(
    looptime: Any,
) -> None:
    api = FakeApi()
    election = LeaderElection(api, "mq", "a")
    await election.acquire()
    api.refuse("get", LEASE, DOWN)
    with pytest.raises(LeaseLostError, match="not renewed for 10 s"):
        await election.hold()
    assert looptime < DURATION_S - 1
    assert not election.held


class Hanging(FakeApi):
    """Of the next ``hangs`` questions for the Lease none is ever answered."""

    hangs = 0.0

    async def get(self, kind: Any, namespace: str, name: str) -> Any:
        if self.hangs:
            self.hangs -= 1
            await asyncio.Event().wait()
        return await super().get(kind, namespace, name)


async def test_a_hanging_api_server_does_not_stretch_the_deadline(looptime: Any) -> None:
    api = Hanging()
    election = LeaderElection(api, "mq", "a")
    await election.acquire()
    api.hangs = float("inf")
    with pytest.raises(LeaseLostError):
        await election.hold()
    assert looptime <= 10.5


async def test_one_request_without_an_answer_costs_nobody_the_lease() -> None:
    api = Hanging()
    election = LeaderElection(api, "mq", "a")
    await election.acquire()
    api.hangs = 1
    holding = asyncio.create_task(election.hold())
    await asyncio.sleep(60)
    assert election.held
    holding.cancel()


async def test_who_waits_does_not_wait_for_a_request_without_an_answer(looptime: Any) -> None:
    api = Hanging()
    await LeaderElection(api, "mq", "a").acquire()
    api.hangs = 1
    async with asyncio.timeout(60):
        await LeaderElection(api, "mq", "b").acquire()
    assert looptime <= DURATION_S + 7


async def test_a_lease_counts_from_before_it_was_asked_for(looptime: Any) -> None:
    """Nobody knows when within the request the API server wrote it; others count from there."""

    class Slow(FakeApi):
        async def create(self, kind: Any, body: Any) -> Any:
            created = await super().create(kind, body)
            await asyncio.sleep(4)
            return created

    election = LeaderElection(Slow(), "mq", "a")
    await election.acquire()
    assert election.held
    await asyncio.sleep(7)
    assert not election.held
    assert looptime == 11


async def test_a_short_outage_is_survived(looptime: Any) -> None:
    api = FakeApi()
    election = LeaderElection(api, "mq", "a")
    await election.acquire()
    api.refuse("update", LEASE, DOWN, times=3)
    holding = asyncio.create_task(election.hold())
    await asyncio.sleep(60)
    assert election.held
    holding.cancel()
    assert looptime == 60


async def test_a_stolen_lease_ends_the_holder_at_once(looptime: Any) -> None:
    api = FakeApi()
    election = LeaderElection(api, "mq", "a")
    await election.acquire()
    spec(api)["holderIdentity"] = "thief"
    with pytest.raises(LeaseLostError):
        await election.hold()
    assert looptime < 3


async def test_of_two_candidates_one_wins() -> None:
    api = FakeApi()
    await LeaderElection(api, "mq", "dead").acquire()
    candidates = [LeaderElection(api, "mq", name) for name in ("b", "c")]
    tasks = [asyncio.create_task(candidate.acquire()) for candidate in candidates]
    await asyncio.sleep(DURATION_S + 5)
    assert [task.done() for task in tasks].count(True) == 1
    assert sum(candidate.held for candidate in candidates) == 1
    for task in tasks:
        task.cancel()


async def test_releasing_is_harmless() -> None:
    api = FakeApi()
    election = LeaderElection(api, "mq", "a")
    await election.release()
    await election.acquire()
    spec(api)["holderIdentity"] = "other"
    await election.release()
    assert spec(api)["holderIdentity"] == "other"
    api.refuse("get", LEASE, DOWN)
    await election.release()
