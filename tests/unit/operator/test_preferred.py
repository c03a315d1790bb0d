"""The zones in which the master is wished: what is declared, when it moves, and why it stays."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from gantry_operator.models import InvalidSpecError
from gantry_operator.plan import plan
from gantry_operator.plan.actions import (
    Action,
    CheckAgain,
    Declare,
    DeletePod,
    Elect,
    WriteStatus,
)
from gantry_operator.plan.foresight import foresee
from gantry_operator.plan.observed import BrokerObserved, pod_view
from gantry_operator.plan.preferred import LASTED_S, TRIES_S, TURN_CHECK_S, WAIT_MAX_S, WAIT_S
from gantry_operator.plan.turns import ImageWait
from gantry_protocol.admin import MemberView
from gantry_protocol.admin_bodies import PreferredPlace
from gantry_protocol.admin_client.outcomes import Unreachable
from unit.operator.world import (
    NOW,
    OLD,
    STATUSES,
    broker_world,
    brokers,
    changed,
    member,
    of_type,
    pod,
    view,
)

ZONES = ("c", "a", "b")
"""Of pods 0, 1 and 2; the master lives in pod 0."""
HOME = [PreferredPlace(zone="a", broker_ids=[2])]


def placed(*zones: str, wish: tuple[str, ...] = ("a",), **facts: Any) -> BrokerObserved:
    """A group of three that is well and wishes its master in `wish`; the controllers know it."""
    pods = tuple(
        pod(n, zone=zone, **facts.pop(f"pod{n}", {})) for n, zone in enumerate(zones or ZONES)
    )
    spec = {"preferredMaster": {"zones": list(wish)}} | facts.pop("spec", {})
    known = {"preferred": HOME} | facts.pop("group", {})
    members: tuple[MemberView, ...] = facts.pop("members", ())
    return broker_world(brokers(**spec), pods=pods, known=view(*members, **known), **facts)


class Course:
    """A group over time: each look writes its status, and an election takes place."""

    def __init__(self, seen: BrokerObserved, *, elects: bool = True) -> None:
        self.seen = seen
        self.now = NOW
        self.elects = elects
        self.actions: list[Action] = []
        self.look()

    def look(self, after_s: float = 0, **facts: Any) -> list[Action]:
        self.now += dt.timedelta(seconds=after_s)
        self.seen = changed(self.seen, **facts)
        self.actions = plan(self.seen, self.now)
        for action in self.actions:
            if isinstance(action, WriteStatus):
                previous = STATUSES[BrokerObserved].model_validate(action.status)
                self.seen = changed(self.seen, live_status=action.status, previous=previous)
            if isinstance(action, Elect) and self.elects:
                self.lead(action.broker_id)
        return self.actions

    def lead(self, broker_id: int) -> None:
        """Another member was elected."""
        epoch = self.seen.view.master_epoch + 1  # type: ignore[union-attr]
        self.know(master_broker_id=broker_id, master_epoch=epoch)

    def know(self, **facts: Any) -> None:
        """The controllers say something else."""
        known = self.seen.view.model_copy(update=facts)  # type: ignore[union-attr]
        self.seen = changed(self.seen, view=known)

    @property
    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = (self.seen.live_status or {})["preferredMaster"]
        return found

    @property
    def state(self) -> str:
        return str(self.told["state"])

    def elections(self) -> list[Elect]:
        return of_type(self.actions, Elect)

    def wait_s(self) -> float | None:
        found = of_type(self.actions, CheckAgain)
        return found[0].after_s if found else None


def declared(seen: BrokerObserved) -> list[PreferredPlace] | None:
    found = of_type(plan(seen, NOW), Declare)
    return found[0].declaration.preferred if found else None


def ids(found: list[PreferredPlace] | None) -> dict[str, list[int]]:
    assert found is not None
    return {one.zone: one.broker_ids for one in found}


def test_the_controllers_are_told_who_lives_where_in_the_order_of_the_wish() -> None:
    assert declared(placed()) is None, "they know it"
    seen = placed(wish=("b", "a"), group={"preferred": []})
    assert list(ids(declared(seen)).items()) == [("b", [3]), ("a", [2])]


def test_nothing_is_declared_of_zones_to_older_controllers_or_without_a_wish() -> None:
    assert declared(placed(group={"preferred": None})) is None
    assert Course(placed(group={"preferred": None})).state == "Unknown"
    gone = broker_world(known=view(preferred=HOME))
    assert declared(gone) == [], "the wish was taken back"
    assert Course(gone).seen.live_status is not None
    assert "preferredMaster" not in (Course(gone).seen.live_status or {})


def test_a_member_stays_where_it_was_declared_while_its_pod_is_not_seen() -> None:
    seen = placed()
    assert declared(changed(seen, pods=seen.pods[:1] + seen.pods[2:])) is None
    restarting = (*seen.pods[:1], pod(1, uid="uid-new", ready=False), *seen.pods[2:])
    assert declared(changed(seen, pods=restarting)) is None
    moved = (*seen.pods[:1], pod(1, zone="d"), *seen.pods[2:])
    assert declared(changed(seen, pods=moved)) == [], "seen somewhere else"


def test_a_member_that_is_gone_is_not_declared() -> None:
    two = (member(1), member(3))
    seen = placed("c", "d", "b", members=two, wish=("a", "b"))
    assert ids(declared(seen)) == {"a": [], "b": [3]}


def test_the_master_moves_once_all_has_been_well_for_long_enough() -> None:
    course = Course(placed(move_turn=True))
    assert course.state == "Waiting"
    due = (NOW + dt.timedelta(seconds=WAIT_S)).strftime("%H:%M:%SZ")
    assert due in course.told["message"]
    assert course.wait_s() == WAIT_S + 1
    course.look(WAIT_S - 1)
    assert (course.state, course.elections()) == ("Waiting", [])
    course.look(1)
    assert course.elections() == [Elect(broker_id=2, master_epoch=4)]
    course.look(1)
    assert (course.state, course.told["zone"]) == ("Preferred", "a")
    assert course.told["message"] == "The master is in zone a, as wished."
    course.look(86_400)
    assert course.elections() == []


def test_the_move_is_told_before_it_is_made() -> None:
    course = Course(placed(move_turn=True), elects=False)
    course.look(WAIT_S)
    status, election = of_type(course.actions, WriteStatus, Elect)
    assert status.status["preferredMaster"]["state"] == "Moving"
    assert status.status["summary"] == "Moving the master"
    (progressing,) = [c for c in status.status["conditions"] if c["type"] == "Progressing"]
    assert progressing["reason"] == "MovingToZone"
    text = "Moving the mastership from zone c to orders-broker-1 in zone a."
    assert progressing["message"] == text
    assert isinstance(election, Elect)


def test_a_group_that_could_move_says_so_and_waits_for_its_turn() -> None:
    course = Course(placed())
    course.look(WAIT_S)
    assert (course.state, course.elections()) == ("Due", [])
    assert course.wait_s() == pytest.approx(0.1), "the next look may give the turn"
    course.look(1)
    assert (course.state, course.wait_s()) == ("Due", TURN_CHECK_S)
    course.look(3_600, move_turn=True)
    assert course.elections() != []


@pytest.mark.parametrize(
    ("wish", "zones", "to"),
    [
        (("a", "b"), ("b", "a", "c"), 2),
        (("a", "b"), ("c", "c", "b"), 3),
        (("b", "a"), ("c", "a", "b"), 3),
        (("a",), ("c", "a", "a"), 3),
    ],
    ids=["in order", "the next best", "the order is the wish's", "the furthest of a zone"],
)
def test_the_best_zone_that_has_somebody_is_moved_to(
    wish: tuple[str, ...], zones: tuple[str, ...], to: int
) -> None:
    ahead = (member(1), member(2), member(3, max_offset=2_000))
    course = Course(placed(*zones, wish=wish, members=ahead, group={"preferred": []}))
    course.know(preferred=declared(course.seen))
    course.look(1)
    course.look(WAIT_S, move_turn=True)
    assert [one.broker_id for one in course.elections()] == [to]


def test_a_master_in_the_second_zone_stays_while_nobody_is_in_the_first() -> None:
    course = Course(placed("b", "c", "d", wish=("a", "b"), group={"preferred": []}))
    assert course.state == "Preferred"
    course.look(86_400, move_turn=True)
    assert course.elections() == []


def test_without_a_replica_there_the_master_stays_and_the_status_says_so() -> None:
    course = Course(placed("c", "c", "d", wish=("a", "b"), group={"preferred": []}))
    assert course.state == "Kept"
    assert course.told["message"] == "The master is in zone c: no replica is in a or b."


def test_a_zone_that_is_not_known_moves_nobody() -> None:
    course = Course(placed("", "a", "b", move_turn=True))
    assert course.state == "Unknown"
    assert "The zone of orders-broker-0 is not known. Pods have the label" in course.told["message"]
    course.look(86_400)
    assert course.elections() == []
    course = Course(placed("c", "", "", move_turn=True))
    assert course.state == "Kept"
    assert "Not known: the zone of orders-broker-1, orders-broker-2." in course.told["message"]
    course.look(86_400)
    assert course.elections() == []


NOT_WELL: dict[str, dict[str, Any]] = {
    "a replica is behind": {"members": (member(1), member(2), member(3, in_sync=False))},
    "the target is behind": {"members": (member(1), member(2, in_sync=False), member(3))},
    "a replica is dead": {"members": (member(1), member(2), member(3, alive=False))},
    "a replica leaves": {"members": (member(1), member(2), member(3, draining=True))},
    "a disk is full": {"members": (member(1), member(2), member(3, disk_stuck="no room"))},
    "a log is damaged": {"members": (member(1), member(2, log_damage="a page"), member(3))},
    "a pod is not Ready": {"pod2": {"ready": False}},
    "a pod ends": {"pod2": {"terminating": True}},
    "a roll is under way": {"pod2": {"revision": OLD}},
    "the group is drained": {"group": {"preferred": HOME, "drain_began_ms": 1}},
    "the controllers know other zones": {"group": {"preferred": []}},
    "an image waits for its turn": {"image_wait": ImageWait("gantry:2", 1, 0)},
}


@pytest.mark.parametrize("facts", NOT_WELL.values(), ids=NOT_WELL.keys())
def test_nothing_moves_while_anything_is_amiss(facts: dict[str, Any]) -> None:
    course = Course(placed(move_turn=True))
    course.look(WAIT_S - 1)
    unwell = placed(**facts)
    course.elects = False
    course.look(1, pods=unwell.pods, view=unwell.view, image_wait=unwell.image_wait)
    assert [one for one in course.elections() if one.broker_id == 2] == []
    assert course.state == "Waiting"
    assert "since" not in course.told, "the wait begins anew"
    well = placed()
    course.look(1, pods=well.pods, view=well.view, image_wait=None)
    assert (course.state, course.elections()) == ("Waiting", [])
    course.look(WAIT_S - 1)
    assert course.elections() == []
    course.look(1)
    assert course.elections() != []


def test_who_came_back_a_moment_ago_has_to_stay_first() -> None:
    since = (NOW + dt.timedelta(seconds=100)).strftime("%Y-%m-%dT%H:%M:%SZ")
    course = Course(placed(move_turn=True, pod1={"ready_since": since}))
    course.look(WAIT_S)
    assert course.elections() == [], "the status knew nothing of the restart"
    course.look(100)
    assert course.elections() != []


def test_an_election_begins_the_wait_anew() -> None:
    course = Course(placed("c", "a", "d", move_turn=True))
    course.look(WAIT_S - 1)
    course.lead(3)
    course.look(1)
    assert (course.state, course.told["zone"]) == ("Waiting", "d")
    course.look(WAIT_S - 1)
    assert course.elections() == []
    course.look(1)
    assert course.elections() == [Elect(broker_id=2, master_epoch=5)]


def test_one_that_does_not_stay_there_has_to_wait_twice_as_long_each_time() -> None:
    course = Course(placed(move_turn=True))
    waits = []
    for _ in range(8):
        waits.append(course.told["waitSeconds"])
        course.look(waits[-1] - 1)
        assert course.elections() == []
        course.look(1)
        assert course.elections() != []
        course.look(1)
        assert course.state == "Preferred"
        course.lead(1)
        course.look(LASTED_S - 1)
    assert waits == [min(WAIT_S * 2**n, WAIT_MAX_S) for n in range(8)]


def test_one_that_stayed_for_an_hour_is_trusted_again() -> None:
    course = Course(placed(move_turn=True))
    for lasted_s in (10, LASTED_S):
        course.look(course.told["waitSeconds"])
        course.look(1)
        assert course.state == "Preferred"
        course.look(lasted_s)
        course.lead(1)
        course.look(1)
    assert course.told["waitSeconds"] == WAIT_S


def test_a_move_that_does_not_come_true_is_given_up_for_a_while() -> None:
    course = Course(placed(move_turn=True), elects=False)
    course.look(WAIT_S)
    assert course.elections() != []
    course.look(TRIES_S)
    assert course.elections() != []
    course.look(1)
    assert (course.state, course.elections()) == ("Waiting", [])
    assert course.told["waitSeconds"] == 2 * WAIT_S
    course.look(2 * WAIT_S - 1)
    assert course.elections() == []
    course.look(1)
    assert course.elections() != []


def test_what_a_person_asked_for_stays_while_the_request_stays() -> None:
    course = Course(placed("a", "c", "b", wish=("a",), spec={"switchover": {"id": "now", "to": 1}}))
    assert course.elections() == [Elect(broker_id=2, master_epoch=4)]
    course.know(preferred=[PreferredPlace(zone="a", broker_ids=[1])])
    course.look(1, move_turn=True)
    assert course.state == "Kept"
    assert "switchover now asked for it" in course.told["message"]
    course.look(86_400)
    assert course.elections() == []
    course.lead(3)
    course.look(1)
    assert course.state == "Waiting", "it led there once, and that is over"
    course.lead(2)
    group = brokers(preferredMaster={"zones": ["a"]})
    course.look(1, group=group)
    assert course.state == "Waiting", "the request was taken out"
    course.look(WAIT_S)
    assert [one.broker_id for one in course.elections()] == [1]


def test_a_roll_hands_over_to_a_preferred_zone() -> None:
    seen = placed("c", "d", "a", group={"preferred": [PreferredPlace(zone="a", broker_ids=[3])]})
    pods = (pod(0, zone="c", revision=OLD), *seen.pods[1:])
    actions = plan(changed(seen, pods=pods), NOW)
    assert of_type(actions, Elect, DeletePod) == [Elect(broker_id=3, master_epoch=4)]


@pytest.mark.parametrize("facts", [{"paused": True}, {"hibernated": True}])
def test_a_group_that_may_not_be_touched_is_left_alone(facts: dict[str, Any]) -> None:
    course = Course(placed(move_turn=True))
    course.look(WAIT_S, group=brokers(preferredMaster={"zones": ["a"]}, **facts))
    assert course.elections() == []


def test_nothing_is_concluded_while_the_controllers_cannot_be_asked() -> None:
    course = Course(placed(move_turn=True))
    before = course.told
    course.look(WAIT_S, view=Unreachable("cut off"))
    assert (course.elections(), course.told) == ([], before)


def test_the_move_is_foreseen_though_only_time_brings_it() -> None:
    seen = placed(group={"preferred": []})
    steps = [one.message for one in foresee(seen, NOW, plan, later=True).steps]
    assert steps == [
        "Tell the controllers: 3 replicas, at least 2 in sync. Prefer a master in zone a.",
        "Move the mastership from orders-broker-0 to orders-broker-1.",
    ]
    assert len(foresee(seen, NOW, plan).steps) == 1, "of a change it is no part"


def test_a_replaced_pod_is_foreseen_where_it_was() -> None:
    home = [PreferredPlace(zone="c", broker_ids=[1])]
    pods = {f"pod{n}": {"revision": OLD} for n in range(3)}
    seen = placed(wish=("c",), group={"preferred": home}, **pods)
    steps = foresee(seen, NOW, plan, later=True).steps
    assert [one.kind for one in steps] == ["Restart", "Restart", "Move", "Restart", "Move"]
    assert steps[-1].message.endswith("to orders-broker-0.")


def test_a_pod_says_its_zone_its_node_and_since_when_it_is_ready() -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T11:00:00Z"}
    body = {
        "metadata": {"name": "x-0", "labels": {"topology.kubernetes.io/zone": "a"}},
        "spec": {"nodeName": "n1"},
        "status": {"conditions": [ready]},
    }
    found = pod_view(body)
    assert (found.zone, found.node, found.ready_since) == ("a", "n1", "2026-11-21T11:00:00Z")
    found = pod_view({"metadata": {"name": "x-0"}})
    assert (found.zone, found.node, found.ready_since) == ("", "", "")


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"preferredMaster": {"zones": ["a"]}, "shards": 2}, "masters of shards are spread"),
        ({"preferredMaster": {"zones": ["a", "a"]}}, "names a zone twice"),
        ({"preferredMaster": {"zones": []}}, "zones"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused(spec: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidSpecError, match=told):
        brokers(**spec)
