"""A group that begins from the tier of one that is gone: settings of its pods, and the adoption."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_operator.builders.tier import place_of, tier_env
from gantry_operator.plan import plan
from gantry_operator.plan.actions import AdoptCopies, WriteStatus
from gantry_operator.plan.foresight import foresee
from gantry_protocol.admin import MemberView
from unit.operator.world import (
    NOW,
    broker_world,
    brokers,
    changed,
    member,
    of_type,
    planned,
    settled_status,
    view,
    with_status,
)

TIER = {"url": "s3://bucket/prefix"}
FROM: dict[str, Any] = {"tier": TIER, "bootstrap": {"fromTier": {"shard": "old-uid"}}}
REFUSED: dict[str, Any] = {"refused": True, "alive": False, "in_sync": False, "epoch": 10_003}


def copies(*refused: int) -> list[MemberView]:
    return [
        member(number, **(REFUSED if number in refused else {"alive": False, "in_sync": False}))
        for number in (1, 2, 3)
    ]


def beginning(*refused: int, **spec: Any) -> Any:
    """Three replicas, of which some hold a copy of the tier."""
    known = view(*copies(*refused), master_broker_id=None, master_epoch=0, sync_state_set=[])
    return broker_world(brokers(**(FROM | spec)), known=known)


def adopted(seen: Any) -> list[tuple[int, ...]]:
    return [action.broker_ids for action in of_type(planned(seen), AdoptCopies)]


def outcome(seen: Any) -> tuple[str, str]:
    told = settled_status(seen)["bootstrap"]
    return told["state"], told["message"]


def test_pods_are_told_whose_tier_and_who_they_are() -> None:
    group = brokers(**FROM)
    env = {one["name"]: one["value"] for one in tier_env(group)}
    assert env["GANTRY_TIER_SHARD"] == place_of(group) == "old-uid"
    assert env["GANTRY_TIER_OWNER"] == group.metadata.uid
    assert "GANTRY_TIER_FORMER_OWNER" not in env
    again = brokers(
        tier=TIER, bootstrap={"fromTier": {"shard": "old-uid", "formerOwner": "second"}}
    )
    env = {one["name"]: one["value"] for one in tier_env(again)}
    assert env["GANTRY_TIER_FORMER_OWNER"] == "second"


def test_a_group_without_it_has_a_place_of_its_own() -> None:
    group = brokers(tier=TIER)
    names = {one["name"]: one["value"] for one in tier_env(group)}
    assert names["GANTRY_TIER_SHARD"] == group.metadata.uid
    assert "GANTRY_TIER_OWNER" not in names


def test_copies_are_adopted_once_there_are_as_many_as_replicas() -> None:
    some = beginning(1, 2)
    assert adopted(some) == []
    state, message = outcome(some)
    assert state == "InProgress"
    assert message.startswith("2 of 3 replicas have copied the tier at shard old-uid; ")
    every = beginning(1, 2, 3)
    assert adopted(every) == [(1, 2, 3)]
    assert outcome(every)[0] == "InProgress"
    kinds = [type(one) for one in planned(every) if isinstance(one, WriteStatus | AdoptCopies)]
    assert AdoptCopies in kinds


def test_adopted_copies_that_have_not_registered_yet_are_not_adopted_again() -> None:
    known = view(*copies(1, 2, 3), master_broker_id=None, master_epoch=10_003, sync_state_set=[])
    seen = broker_world(brokers(**FROM), known=known)
    assert adopted(seen) == []
    assert outcome(seen) == ("InProgress", "The copies are adopted; one of them is elected.")


def test_the_word_counts_for_the_beginning_only() -> None:
    begun = changed(with_status(beginning(1, 2, 3)), view=view(member(1), member(2), member(3)))
    assert outcome(begun) == ("Completed", "The group began from the tier.")
    refused_later = changed(with_status(begun), view=beginning(1, 2, 3).view)
    assert adopted(refused_later) == [], "these controllers may be the wrong ones"
    assert outcome(refused_later)[0] == "Completed"


def test_what_the_controllers_remember_of_a_former_group_is_ended_by_a_person() -> None:
    dead = member(1, alive=False)
    seen = broker_world(brokers(**FROM), known=view(dead, *copies(2, 3, 4)[1:], master_broker_id=1))
    assert adopted(seen) == []
    state, message = outcome(seen)
    assert state == "InProgress"
    assert "gantry forget orders" in message


def test_copies_of_a_group_that_was_to_begin_empty_are_a_persons_matter() -> None:
    seen = beginning(1, 2, 3, bootstrap=None)
    assert adopted(seen) == []
    assert "bootstrap" not in settled_status(seen)


@pytest.mark.parametrize("spec", [{"paused": True}, {"hibernated": True}])
def test_a_group_that_is_left_alone_adopts_nobody(spec: dict[str, Any]) -> None:
    assert adopted(beginning(1, 2, 3, **spec)) == []


def test_the_adoption_is_foretold_once() -> None:
    seen = with_status(beginning(1, 2, 3))
    told = [one.message for one in foresee(seen, NOW, plan).steps]
    assert told.count("Elect one of 3 copies of the tier.") == 1
