"""The plan for a request to reset offsets: made until it came to its end, and never after."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from gantry_operator.models.base import InvalidSpecError
from gantry_operator.models.consumer_group import (
    ConsumerGroup,
    ConsumerGroupStatus,
    OffsetReset,
    OffsetResetStatus,
)
from gantry_operator.plan.actions import CheckAgain, WriteStatus
from gantry_operator.plan.entities import Compared, EntityObserved, Make, plan_entity
from gantry_operator.plan.offset_resets import AGAIN_S, CONDITION, ResetOffsets, plan_reset
from gantry_operator.plan.reasons import Reason
from gantry_protocol.admin_topics import OffsetResetView

NOW = dt.datetime(2026, 11, 29, 12, tzinfo=dt.UTC)
RESET = OffsetReset(request=3, to="Earliest", topics=("orders",))
DONE = OffsetResetView(request=3, queues=8)
KNOWN = OffsetResetStatus(request=3, queues=8)


def group(**reset: Any) -> ConsumerGroup:
    asked = {"request": 3, "to": "Earliest", "topics": ["orders"]} | reset
    head = {"name": "billing", "namespace": "mq", "uid": "u", "generation": 2}
    return ConsumerGroup.parse({"metadata": head, "spec": {"resetOffsets": asked}})


def observed(
    standing: str = "Same",
    known: OffsetResetStatus | None = None,
    heard: OffsetResetView | None = None,
    **facts: Any,
) -> EntityObserved:
    entity = group()
    previous = ConsumerGroupStatus(observed_generation=2, name="billing", offset_reset=known)
    return EntityObserved(
        **{
            "meta": entity.metadata,
            "entity": entity,
            "previous": previous,
            "status": ConsumerGroupStatus,
            "live_status": previous.to_object(),
            "named": "billing",
            "cluster": "gantry",
            "first": "billing",
            "quorum_exists": True,
            "quorum_serves": True,
            "standing": Compared(state=standing, what="so"),
            "following": plan_reset(entity.spec.reset_offsets, known, heard),
        }
        | facts
    )


def status(world: EntityObserved) -> dict[str, Any]:
    (body,) = [one.status for one in plan_entity(world, NOW) if isinstance(one, WriteStatus)]
    return body


def condition(world: EntityObserved) -> tuple[str, str]:
    (found,) = [one for one in status(world)["conditions"] if one["type"] == CONDITION]
    return found["status"], found["reason"]


def resets(world: EntityObserved) -> list[ResetOffsets]:
    return [one for one in plan_entity(world, NOW) if isinstance(one, ResetOffsets)]


def test_without_a_request_nothing_is_said_or_done() -> None:
    told = plan_reset(None, KNOWN, DONE)
    assert (told.told, told.conditions, told.steps) == ({}, (), ())


@pytest.mark.parametrize(
    ("known", "heard"),
    [
        pytest.param(None, None, id="nobody knows"),
        pytest.param(OffsetResetStatus(request=2, queues=8), None, id="an older one is done"),
        pytest.param(OffsetResetStatus(request=4, queues=8), None, id="a later one is done"),
        pytest.param(None, OffsetResetView(request=2, queues=8), id="heard of an older one"),
        pytest.param(
            None, OffsetResetView(request=3, queues=4, waiting=["orders in b: no"]), id="half"
        ),
    ],
)
def test_it_is_made_until_it_came_to_its_end(
    known: OffsetResetStatus | None, heard: OffsetResetView | None
) -> None:
    world = observed(known=known, heard=heard)
    assert resets(world) == [ResetOffsets(wish=RESET.wish)]
    assert CheckAgain(after_s=AGAIN_S) in plan_entity(world, NOW)
    assert condition(world) == ("False", Reason.RESET_WAITS)
    assert status(world).get("offsetReset") == (None if known is None else known.to_object())


def test_what_is_done_is_written_down_and_not_made_again() -> None:
    """Whether this process has heard it, or its status says it."""
    heard = observed(heard=DONE)
    assert not resets(heard)
    body = status(heard)
    assert body["offsetReset"]["request"] == 3
    assert condition(heard) == ("True", Reason.RESET_DONE)
    later = observed(
        known=KNOWN, previous=ConsumerGroupStatus.model_validate(body), live_status=body
    )
    assert plan_entity(later, NOW) == []


def test_what_is_refused_is_not_made_again_either() -> None:
    refused = OffsetResetView(request=3, queues=4, refused="orders in b: too late")
    world = observed(heard=refused)
    assert not resets(world)
    assert condition(world) == ("False", Reason.RESET_REFUSED)
    assert status(world)["offsetReset"]["refused"] == "orders in b: too late"
    assert not resets(observed(known=OffsetResetStatus(request=3, queues=4, refused="so")))


@pytest.mark.parametrize("standing", ["Absent", "Differs", "Unknown"])
def test_settings_come_first(standing: str) -> None:
    world = observed(standing)
    assert not resets(world)
    made = [one for one in plan_entity(world, NOW) if isinstance(one, Make)]
    assert bool(made) is (standing != "Unknown")


def test_who_owns_nothing_resets_nothing() -> None:
    second = observed(first="another")
    assert not resets(second)
    assert CONDITION not in {one["type"] for one in status(second)["conditions"]}
    gone = ConsumerGroup.parse(
        {
            "metadata": {
                "name": "billing",
                "namespace": "mq",
                "uid": "u",
                "generation": 2,
                "deletionTimestamp": "2026-11-29T11:00:00Z",
            },
            "spec": {"resetOffsets": {"request": 3, "to": "Earliest", "topics": ["orders"]}},
        }
    )
    assert not resets(observed(entity=gone, meta=gone.metadata))


@pytest.mark.parametrize(
    ("to", "timestamp"),
    [
        ("Earliest", 0),
        ("Latest", -1),
        ("2026-11-22T10:30:00Z", 1_795_343_400_000),
        ("2026-11-22T12:30:00.250+02:00", 1_795_343_400_250),
        ("1969-01-01T00:00:00Z", 0),
    ],
)
def test_what_is_asked_of_brokers(to: str, timestamp: int) -> None:
    reset = group(to=to, topics=["a", "b", "a"]).spec.reset_offsets
    assert reset is not None
    assert reset.wish.timestamp == timestamp
    assert (reset.wish.request, reset.wish.topics) == (3, ["a", "b"])


@pytest.mark.parametrize(
    "changes",
    [
        {"to": "earliest"},
        {"to": "2026-13-22T10:30:00Z"},
        {"to": "2026-11-22T10:30:00"},
        {"request": 0},
        {"topics": []},
        {"topics": ["t"] * 17},
    ],
)
def test_what_cannot_be_asked_is_no_spec(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpecError):
        group(**changes)
