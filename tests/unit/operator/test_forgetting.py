"""A request to strike a member that is gone: once per id, and only one that cannot be missed."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_operator.models import BrokerGroupStatus, InvalidSpecError
from gantry_operator.plan import plan
from gantry_operator.plan.actions import EmitEvent, ForgetMember, WriteStatus
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
    pod,
    settled_status,
    view,
    with_status,
)

GHOST: dict[str, Any] = {"alive": False, "in_sync": False, "pod_uid": "gone"}


def asked(*members: MemberView, broker_id: int = 4, name: str = "a", **facts: Any) -> Any:
    """Three replicas, of which one lags so that nobody is struck without a request."""
    lagging = (member(1), member(2), member(3, in_sync=False))
    group = facts.pop("group", brokers(forget={"id": name, "brokerId": broker_id}))
    known = view(*lagging, *members, **facts.pop("known", {}))
    return broker_world(group, **({"known": known} | facts))


def outcome(seen: Any) -> tuple[str, str]:
    told = settled_status(seen)["forget"]
    return told["state"], told["message"]


def struck(seen: Any) -> list[int]:
    return [action.broker_id for action in of_type(planned(seen), ForgetMember)]


def test_a_ghost_is_struck_once_and_the_status_says_so_before() -> None:
    seen = asked(member(4, **GHOST, incarnation="i4"))
    assert outcome(seen) == ("InProgress", "Striking broker 4 from the record.")
    kinds = [type(one) for one in planned(seen) if isinstance(one, WriteStatus | ForgetMember)]
    assert kinds == [WriteStatus, ForgetMember]
    assert of_type(planned(seen), ForgetMember) == [ForgetMember(broker_id=4, incarnation="i4")]
    done = changed(with_status(seen), view=asked().view)
    assert outcome(done) == ("Completed", "The member is struck from the record.")
    assert struck(done) == []
    events = [one for one in of_type(planned(done), EmitEvent) if "Forg" in one.reason]
    assert [(one.type, one.reason) for one in events] == [("Normal", "MemberForgotten")]
    again = changed(with_status(done), view=seen.view)
    assert outcome(again)[0] == "Completed", "an id is carried out once"
    assert struck(again) == []


HELD = view(member(1), member(2, alive=False), member(3, in_sync=False))


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        pytest.param(asked(broker_id=9), "know no broker 9; they know 1, 2, 3", id="unknown"),
        pytest.param(asked(broker_id=1), "Broker 1 is the master", id="master"),
        pytest.param(asked(broker_id=3), "alive, in pod orders-broker-2", id="alive"),
        pytest.param(
            asked(member(4, **(GHOST | {"alive": True}))), "Broker 4 is alive: scale", id="lives"
        ),
        pytest.param(
            asked(member(4, alive=False, pod_uid="gone")), "in the sync-state set", id="in-sync"
        ),
        pytest.param(
            asked(broker_id=2, known={"members": HELD.members}),
            "has a pod, orders-broker-1, in which it comes back",
            id="pod",
        ),
        pytest.param(
            asked(
                broker_id=4,
                known={
                    "members": [member(1, alive=False), member(4, **GHOST)],
                    "sync_state_set": [1],
                },
            ),
            "may hold the only copy left",
            id="last-copy",
        ),
    ],
)
def test_who_may_be_missed_is_kept_and_the_refusal_is_final(seen: Any, why: str) -> None:
    state, message = outcome(seen)
    assert state == "Refused"
    assert why in message
    broker_id = seen.group.spec.forget.broker_id
    assert broker_id not in struck(seen)
    events = [one for one in of_type(planned(seen), EmitEvent) if "Forg" in one.reason]
    assert [(one.type, one.reason) for one in events] == [("Warning", "ForgetRefused")]
    later = asked(member(4, **GHOST), broker_id=broker_id)
    assert outcome(changed(with_status(seen), view=later.view))[0] == "Refused"


def test_a_member_whose_pod_is_being_made_again_is_kept() -> None:
    """It comes back with its volume and its id."""
    before = BrokerGroupStatus.model_validate(settled_status(broker_world()))
    wish = brokers(forget={"id": "a", "brokerId": 3})
    known = view(member(1), member(2), member(3, **GHOST))
    seen = broker_world(wish, known=known, previous=before, pods=(pod(0), pod(1)))
    state, message = outcome(seen)
    assert (state, "replica 2, which is to be there" in message) == ("Refused", True)
    pods = (pod(0), pod(1), pod(2, uid="new"))
    unregistered = broker_world(wish, known=known, previous=before, pods=pods)
    assert outcome(unregistered)[0] == "Refused"


def test_one_whose_replica_was_scaled_away_or_has_another_volume_is_struck() -> None:
    before = BrokerGroupStatus.model_validate(settled_status(broker_world()))
    pods = (pod(0), pod(1), pod(2, uid="new"))
    known = view(member(1), member(2), member(3, **GHOST), member(4, pod_uid="new", in_sync=False))
    same_size = brokers(forget={"id": "a", "brokerId": 3})
    other = broker_world(same_size, pods=pods, known=known, previous=before)
    assert struck(other) == [3]
    wish = brokers(replicas=2, forget={"id": "a", "brokerId": 3})
    known = view(member(1), member(2, in_sync=False), member(3, **GHOST), replicas=2)
    gone = broker_world(wish, known=known, previous=before)
    assert struck(gone) == [3]


def test_another_member_under_a_used_id_is_refused() -> None:
    seen = with_status(asked(member(4, **GHOST)))
    other = changed(seen, group=brokers(forget={"id": "a", "brokerId": 5}))
    assert outcome(other) == ("Refused", "The id a was used up before: choose a new id.")


def test_shards_have_no_such_request() -> None:
    with pytest.raises(InvalidSpecError, match="gantry forget SHARD"):
        brokers(shards=2, forget={"id": "a", "brokerId": 3})


def test_it_is_foreseen() -> None:
    found = foresee(asked(member(4, **GHOST)), NOW, plan)
    assert "Strike broker 4 from the record. Sends go on." in [one.message for one in found.steps]
