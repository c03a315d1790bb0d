"""The load of a trial against a group that keeps its promises, and against groups that do not.

A demonstration that could not fail would show nothing: each broken promise must be in the verdict.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from gantry_cli.client.ledger import DeliveryAccount
from gantry_cli.trial.load import Load, LoadPace
from gantry_protocol.codes import RequestCode
from support.fake_group import (
    Fault,
    acknowledge_only,
    lose_answer,
    refuse,
    store_twice,
)
from support.patience import PATIENCE_S
from support.served_group import ServedGroup

SEND = RequestCode.SEND_MESSAGE_V2
ENOUGH = 40


@pytest.fixture
async def served() -> AsyncIterator[ServedGroup]:
    found = ServedGroup()
    await found.start()
    yield found
    await found.stop()


async def verdict_of(served: ServedGroup, *faults: Fault) -> DeliveryAccount:
    """Run a load, meet `faults` on the way, stop in order, and count."""
    async with Load([served.group.address], "trial", pace=LoadPace(2, 0.001), queues=2) as load:
        await load.start()
        async with asyncio.timeout(PATIENCE_S):
            while load.ledger.acknowledged < ENOUGH // 2:
                await asyncio.sleep(0.001)
            served.group.fail(SEND, *faults)
            while load.ledger.acknowledged < ENOUGH or served.group.faults[SEND]:
                await asyncio.sleep(0.001)
        load.raise_if_broken()
        await load.finish_sending(5)
        await load.finish_consuming(0.5)
        assert load.illegal_offsets == 0
        assert len(load.acks) == load.ledger.acknowledged
        return load.ledger.verdict()


async def test_group_that_keeps_its_promises_is_clean(served: ServedGroup) -> None:
    verdict = await verdict_of(served)
    assert verdict.clean
    assert verdict.acknowledged == verdict.consumed >= ENOUGH
    assert verdict.duplicated == 0


async def test_refusals_and_lost_answers_are_no_broken_promises(served: ServedGroup) -> None:
    verdict = await verdict_of(served, refuse(1), lose_answer, refuse(14))
    assert verdict.clean
    assert verdict.duplicated == verdict.duplicated_after_lost_answer >= 1


async def test_acknowledged_message_that_was_not_stored_is_lost(served: ServedGroup) -> None:
    verdict = await verdict_of(served, acknowledge_only)
    assert not verdict.clean
    assert verdict.lost >= 1


async def test_message_that_was_stored_twice_without_a_lost_answer_is_told(
    served: ServedGroup,
) -> None:
    verdict = await verdict_of(served, store_twice)
    assert not verdict.clean
    assert verdict.duplicated == 1
    assert verdict.duplicated_after_lost_answer == 0
