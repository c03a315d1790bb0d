"""A BrokerGroup that is deleted where others serve: drained first, and never waited for in vain."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.plan.actions import (
    CheckAgain,
    DeleteStatefulSet,
    DrainGroup,
    EmitEvent,
    LabelPod,
    RetireGroup,
    SetFinalizer,
    WriteStatus,
)
from gantry_operator.plan.deletion import waits_for_operator
from gantry_protocol.admin import DrainView
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable
from unit.operator.world import (
    NOW,
    broker_world,
    brokers,
    changed,
    controllers,
    member,
    of_type,
    planned,
    pod,
    view,
)

AGO = (NOW - dt.timedelta(seconds=100)).strftime("%Y-%m-%dT%H:%M:%SZ")
GOING = {"finalizers": (names.DRAIN_FINALIZER,), "deletionTimestamp": AGO}
LEFT = DrainView(done=False, unread=40, parked=2, transactions=1, waits_for="40 messages wait")
DONE = DrainView(done=True, unread=0, parked=0, transactions=0)


def drained(left: DrainView | None = LEFT, **facts: Any) -> Any:
    """What the controllers say once the drain has begun, and the master has looked."""
    members = (member(1, drain=left), member(2), member(3))
    return view(*members, **({"drain_began_ms": 1, "has_others": True} | facts))


def deletion(known: Any, **spec: Any) -> Any:
    return broker_world(brokers(GOING, **spec), known=known, neighbours=True)


def deeds(seen: Any) -> list[Any]:
    return [a for a in planned(seen) if not isinstance(a, WriteStatus | EmitEvent)]


GOES = [
    RetireGroup(uid="bg-uid"),
    SetFinalizer(present=False, finalizers=(), resource_version="7"),
]


@pytest.mark.parametrize(
    ("neighbours", "seconds", "finalizers", "expected"),
    [
        pytest.param(True, 60, (), (names.DRAIN_FINALIZER,), id="with-neighbours"),
        pytest.param(True, 60, (names.DRAIN_FINALIZER,), None, id="set-once"),
        pytest.param(False, 60, (), None, id="alone"),
        pytest.param(True, 0, (), None, id="not-wanted"),
        pytest.param(False, 60, (names.DRAIN_FINALIZER, "a/b"), ("a/b",), id="alone-again"),
        pytest.param(True, 0, (names.DRAIN_FINALIZER,), (), id="not-wanted-any-more"),
    ],
)
def test_the_finalizer_is_there_while_somebody_could_take_over(
    neighbours: bool, seconds: int, finalizers: Any, expected: Any
) -> None:
    group = brokers({"finalizers": finalizers}, drain={"deadlineSeconds": seconds})
    found = of_type(planned(broker_world(group, neighbours=neighbours)), SetFinalizer)
    assert [action.finalizers for action in found] == ([] if expected is None else [expected])


def test_a_deletion_begins_with_the_drain() -> None:
    seen = deletion(view(has_others=True))
    assert deeds(seen) == [DrainGroup(uid="bg-uid"), CheckAgain(after_s=2.0)]


@pytest.mark.parametrize("known", [drained(), drained(None), Unreachable("no controller answers")])
def test_it_waits_while_something_is_left_or_nobody_can_say(known: Any) -> None:
    assert deeds(deletion(known)) == [CheckAgain(after_s=2.0)]


def test_it_goes_once_nothing_is_left() -> None:
    assert deeds(deletion(drained(DONE))) == GOES


def test_it_goes_at_the_deadline() -> None:
    assert deeds(deletion(drained(), drain={"deadlineSeconds": 101})) == [CheckAgain(after_s=2.0)]
    assert deeds(deletion(drained(), drain={"deadlineSeconds": 100})) == GOES
    lost = Unreachable("no controller answers")
    late = deletion(lost, drain={"deadlineSeconds": 100})
    assert deeds(late) == GOES[1:], "nobody can be told, and a later operator retires it"


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(view(has_others=False), id="the-last-that-takes-messages"),
        pytest.param(view(has_others=True, master_epoch=0), id="never-had-a-master"),
    ],
)
def test_what_cannot_be_drained_goes_at_once(known: Any) -> None:
    assert deeds(deletion(known)) == GOES


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(view(has_others=True, uid="newer"), id="taken-over"),
        pytest.param(view(retired=True), id="retired-by-an-operator-that-died"),
        pytest.param(NotDeclared(), id="unknown"),
    ],
)
def test_nobody_is_retired_twice_or_for_somebody_else(known: Any) -> None:
    assert deeds(deletion(known)) == GOES[1:]


@pytest.mark.parametrize("quorum", ["gone", "going"])
def test_a_quorum_that_goes_is_not_waited_for(quorum: str) -> None:
    """So it is in a namespace that is deleted as a whole."""
    seen = deletion(drained())
    if quorum == "gone":
        gone = changed(seen, controllers=None, controllers_exist=False, view=Unreachable("gone"))
        assert deeds(gone) == GOES[1:]
    else:
        going = controllers()
        meta = going.metadata.model_copy(update={"deletion_timestamp": AGO})
        ending = going.model_copy(update={"metadata": meta})
        assert deeds(changed(seen, controllers=ending)) == GOES


@pytest.mark.parametrize("other", ["orphan", "foregroundDeletion"])
def test_pods_that_are_not_ours_to_keep_are_not_waited_for(other: str) -> None:
    group = brokers(GOING | {"finalizers": (names.DRAIN_FINALIZER, other)})
    seen = broker_world(group, known=drained(), neighbours=True)
    (off,) = of_type(planned(seen), SetFinalizer)
    assert off.finalizers == (other,)
    assert bool(of_type(planned(seen), RetireGroup)) is (other != "orphan")


def test_volumes_are_deleted_after_the_drain() -> None:
    both = {"finalizers": (names.FINALIZER, names.DRAIN_FINALIZER), "deletionTimestamp": AGO}
    group = brokers(both, storage={"whenDeleted": "Delete"})
    seen = broker_world(group, known=drained(), neighbours=True)
    assert deeds(seen) == [CheckAgain(after_s=2.0)]
    (off,) = of_type(planned(changed(seen, view=drained(DONE))), SetFinalizer)
    assert off.finalizers == (names.FINALIZER,)
    after = brokers(both | {"finalizers": (names.FINALIZER,)}, storage={"whenDeleted": "Delete"})
    assert of_type(planned(broker_world(after, known=view(retired=True))), DeleteStatefulSet)


def test_clients_are_served_through_a_failover_meanwhile() -> None:
    moved = drained(master_broker_id=2)
    pods = (pod(0, role="master"), pod(1, role="replica"), pod(2, role="replica"))
    labels = of_type(planned(changed(deletion(moved), pods=pods)), LabelPod)
    assert [(label.name, label.role) for label in labels] == [
        ("orders-broker-0", "replica"),
        ("orders-broker-1", "master"),
    ]


def test_the_word_of_another_member_does_not_count() -> None:
    stale = view(member(1, drain=DONE), member(2), member(3), drain_began_ms=1, master_broker_id=2)
    assert deeds(deletion(stale))[-1] == CheckAgain(after_s=2.0)
    silent = view(member(1, drain=DONE, alive=False), member(2), member(3), drain_began_ms=1)
    assert deeds(deletion(silent))[-1] == CheckAgain(after_s=2.0)
    of_an_earlier_drain = view(member(1, drain=DONE), member(2), member(3), has_others=True)
    assert deeds(deletion(of_an_earlier_drain))[0] == DrainGroup(uid="bg-uid")


def test_people_read_what_is_waited_for() -> None:
    (told,) = of_type(planned(deletion(drained())), WriteStatus)
    drain = told.status["drain"]
    assert drain["progress"] == "43 left"
    assert (drain["unread"], drain["parked"], drain["transactions"]) == (40, 2, 1)
    deadline = NOW - dt.timedelta(seconds=100) + dt.timedelta(hours=72)
    assert drain["deadline"] == deadline.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert drain["message"].startswith("Before it goes it is drained: 40 messages wait; it goes at")
    progressing = next(c for c in told.status["conditions"] if c["type"] == "Progressing")
    assert (progressing["reason"], progressing["message"]) == ("Draining", drain["message"])
    events = of_type(planned(deletion(drained())), EmitEvent)
    assert [event.reason for event in events if event.reason == "Draining"] == ["Draining"]


OLD_CONTROLLER = "INVALID_REQUEST: Not all controllers are of this version yet: finish it first."


def test_a_drain_that_is_refused_is_told_with_what_to_do() -> None:
    seen = changed(deletion(view(has_others=True)), refused_drains={"": OLD_CONTROLLER})
    assert deeds(seen) == [DrainGroup(uid="bg-uid"), CheckAgain(after_s=2.0)], "asked for again"
    (told,) = of_type(planned(seen), WriteStatus)
    assert told.status["drain"]["progress"] == "refused"
    progressing = next(c for c in told.status["conditions"] if c["type"] == "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("False", "DrainRefused")
    assert progressing["message"] == told.status["drain"]["message"]
    assert progressing["message"].startswith(
        f"Before it goes it is to be drained, and that failed: {OLD_CONTROLLER} It is asked for "
        "again; to let it go as it is, set spec.drain.deadlineSeconds to 0; it goes at"
    )
    (warning,) = [e for e in of_type(planned(seen), EmitEvent) if e.reason == "DrainRefused"]
    assert (warning.type, warning.note) == ("Warning", progressing["message"])


def test_a_drain_without_controllers_says_how_to_let_the_group_go() -> None:
    seen = changed(deletion(drained()), view=Unreachable("No controller answers."))
    (told,) = of_type(planned(seen), WriteStatus)
    assert told.status["drain"]["message"].startswith(
        "Before it goes it is drained, and the controllers do not answer: No controller answers. "
        "It is asked for again; to let it go as it is, set spec.drain.deadlineSeconds to 0; it goes"
    )


def test_a_refusal_is_forgotten_once_the_drain_has_begun() -> None:
    seen = changed(deletion(drained()), refused_drains={"": OLD_CONTROLLER})
    (told,) = of_type(planned(seen), WriteStatus)
    assert told.status["drain"]["progress"] == "43 left"
    progressing = next(c for c in told.status["conditions"] if c["type"] == "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("True", "Draining")


@pytest.mark.parametrize(
    ("known", "spec", "kind", "note"),
    [
        (drained(DONE), {}, "Normal", "Nothing is left to be consumed here."),
        (
            drained(),
            {"drain": {"deadlineSeconds": 100}},
            "Warning",
            "It goes with 43 left, which nobody consumed in time.",
        ),
    ],
)
def test_the_end_of_a_drain_is_told(known: Any, spec: Any, kind: str, note: str) -> None:
    (told,) = of_type(planned(deletion(drained())), WriteStatus)
    seen = deletion(known, **spec)
    status = (
        type(seen.group)
        .parse({"metadata": {"name": "orders"}, "spec": {}, "status": told.status})
        .status
    )
    (event,) = of_type(planned(changed(seen, previous=status)), EmitEvent)
    assert (event.type, event.reason, event.note) == (kind, "DrainEnded", note)


def test_an_operator_that_ends_does_not_stay_for_a_drain() -> None:
    meta = {"deletionTimestamp": AGO, "finalizers": [names.DRAIN_FINALIZER]}
    assert not waits_for_operator(meta, held=False, drains=True)
    assert waits_for_operator(meta, held=False, drains=False)
