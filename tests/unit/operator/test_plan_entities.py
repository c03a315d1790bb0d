"""The plan for a Topic: whose it is, what is changed back, what is never done."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.models.entity import EntityStatus
from gantry_operator.models.topic import Topic
from gantry_operator.plan.actions import Action, CheckAgain, SetFinalizer, WriteStatus
from gantry_operator.plan.entities import (
    Compared,
    EntityObserved,
    Make,
    Remove,
    drift_event,
    plan_entity,
)
from gantry_operator.plan.reasons import Reason
from gantry_operator.plan.topics import NO_GROUP, TopicsHeld, topic_standing
from gantry_protocol.admin_client.outcomes import Unreachable
from gantry_protocol.admin_topics import TopicVariant, TopicView

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
SAME = Compared(state="Same")
ABSENT = Compared(state="Absent")
OTHER = Compared(state="Differs", what="queues 4, not 8")
SILENT = Compared(state="Unknown", what="Nobody answers.")
GONE = {"deletionTimestamp": "2026-11-21T11:00:00Z"}


def topic(meta: dict[str, Any] | None = None, **spec: Any) -> Topic:
    head: dict[str, Any] = {"name": "orders", "namespace": "mq", "uid": "t-uid", "generation": 1}
    head |= {"resourceVersion": "7"} | (meta or {})
    return Topic.parse({"metadata": head, "spec": spec})


def seen(entity: Topic | None = None, standing: Compared = SAME, **facts: Any) -> EntityObserved:
    entity = entity or topic()
    defaults: dict[str, Any] = {
        "meta": entity.metadata,
        "entity": entity,
        "named": entity.named,
        "cluster": "gantry",
        "first": entity.metadata.name,
        "quorum_exists": True,
        "quorum_serves": True,
        "standing": standing,
    }
    return EntityObserved(**(defaults | facts))


def after(world: EntityObserved, *, name: str | None = None, **facts: Any) -> EntityObserved:
    """The same world with the status that its plan leaves."""
    body = status(plan_entity(world, NOW)) or world.live_status
    assert body is not None
    previous = EntityStatus.model_validate(body)
    fields = {field: getattr(world, field) for field in world.__struct_fields__}
    return EntityObserved(**(fields | {"previous": previous, "live_status": body} | facts))


def status(actions: list[Action]) -> dict[str, Any] | None:
    for action in actions:
        if isinstance(action, WriteStatus):
            return action.status
    return None


def told(actions: list[Action], name: str = "Ready") -> tuple[str, str, str]:
    body = status(actions)
    assert body is not None, actions
    (found,) = [one for one in body["conditions"] if one["type"] == name]
    return found["status"], found["reason"], found["message"]


def deeds(actions: list[Action]) -> list[str]:
    return [type(action).__name__ for action in actions if not isinstance(action, WriteStatus)]


# Made, owned, kept


def test_what_is_absent_is_owned_first_and_then_made() -> None:
    plan = plan_entity(seen(standing=ABSENT), NOW)
    assert [type(action) for action in plan] == [WriteStatus, Make]
    assert told(plan)[:2] == ("False", Reason.BEING_MADE)
    body = status(plan)
    assert body is not None
    assert body["name"] == "orders"


def test_what_is_in_place_is_ready_and_written_once() -> None:
    world = seen()
    assert told(plan_entity(world, NOW))[:2] == ("True", Reason.IN_PLACE)
    assert plan_entity(after(world), NOW + dt.timedelta(hours=1)) == []


def test_what_others_changed_is_changed_back_and_told_without_a_status_between() -> None:
    world = after(seen(), standing=OTHER)
    assert plan_entity(world, NOW) == [Make(undoes="queues 4, not 8")]
    event = drift_event(world, "queues 4, not 8")
    assert (event.type, event.reason) == ("Warning", Reason.DRIFT_UNDONE)
    assert plan_entity(after(seen(), standing=ABSENT), NOW) == [Make(undoes="it was gone")]


def test_a_new_spec_is_no_change_of_others() -> None:
    old = after(seen())
    world = seen(topic({"generation": 2}, queues=16), OTHER, previous=old.previous)
    assert [a for a in plan_entity(world, NOW) if isinstance(a, Make)] == [Make()]


# Whose it is


def test_what_existed_otherwise_is_left_alone() -> None:
    plan = plan_entity(seen(standing=OTHER), NOW)
    assert deeds(plan) == []
    assert told(plan)[:2] == ("False", Reason.EXISTS_OTHERWISE)
    assert "queues 4, not 8" in told(plan)[2]
    assert "spec.adopt" in told(plan, "Accepted")[2]
    assert "name" not in (status(plan) or {})


def test_what_existed_is_taken_over_when_that_is_said_or_nothing_differs() -> None:
    assert deeds(plan_entity(seen(topic(adopt=True), OTHER), NOW)) == ["Make"]
    assert (status(plan_entity(seen(standing=SAME), NOW)) or {})["name"] == "orders"


def test_the_first_of_two_counts() -> None:
    world = after(seen())
    plan = plan_entity(after(world, first="older", standing=OTHER), NOW)
    assert deeds(plan) == []
    assert told(plan)[:2] == ("False", Reason.ANOTHER_OWNS_IT)
    assert "Topic older" in told(plan)[2]
    assert "name" not in (status(plan) or {})


def test_without_a_quorum_nothing_is_done() -> None:
    plan = plan_entity(seen(standing=SILENT, quorum_exists=False, quorum_serves=False), NOW)
    assert (deeds(plan), told(plan)[1]) == ([], Reason.CONTROLLER_NOT_FOUND)


def test_a_spec_that_cannot_be_read_changes_nothing() -> None:
    plan = plan_entity(seen(standing=OTHER, entity=topic(), invalid="x"), NOW)
    assert told(plan)[1] == Reason.EXISTS_OTHERWISE
    world = seen(standing=SILENT)
    fields = {field: getattr(world, field) for field in world.__struct_fields__}
    world = EntityObserved(**(fields | {"entity": None, "invalid": "queues: too many"}))
    plan = plan_entity(world, NOW)
    assert (deeds(plan), told(plan)[1:]) == ([], (Reason.INVALID_SPEC, "queues: too many"))


# Not knowing, and refusals


def test_silence_changes_nothing_of_what_was_in_place() -> None:
    (check,) = plan_entity(after(seen(), standing=SILENT), NOW)
    assert isinstance(check, CheckAgain)


def test_silence_is_told_where_something_is_to_be_done() -> None:
    plan = plan_entity(seen(standing=SILENT), NOW)
    assert told(plan) == ("Unknown", Reason.CONTROLLER_UNREACHABLE, "Nobody answers.")
    assert deeds(plan) == ["CheckAgain"]


def test_a_refusal_is_told_and_tried_again() -> None:
    plan = plan_entity(seen(standing=ABSENT, refusal="too many topics"), NOW)
    assert told(plan) == ("False", Reason.REFUSED_BY_CONTROLLERS, "too many topics")
    assert deeds(plan) == ["Make"]


def test_queues_are_not_taken_away_silently() -> None:
    refused = Compared(state="Differs", what="16 queues", refused=Reason.QUEUES_WOULD_SHRINK)
    plan = plan_entity(after(seen(), standing=refused), NOW)
    assert (deeds(plan), told(plan)[:2]) == ([], ("False", Reason.QUEUES_WOULD_SHRINK))
    plan = plan_entity(seen(standing=refused), NOW)
    assert told(plan)[1] == Reason.EXISTS_OTHERWISE


# The end


def ending(standing: Compared = SAME, **facts: Any) -> EntityObserved:
    """A Topic whose topic goes with it, being deleted."""
    whole = after(seen(topic(deletionPolicy="Delete", meta={"finalizers": [names.FINALIZER]})))
    entity = topic(GONE | {"finalizers": [names.FINALIZER, "x/y"]}, deletionPolicy="Delete")
    return seen(
        entity,
        standing,
        **({"previous": whole.previous, "live_status": whole.live_status} | facts),
    )


def let_go(actions: list[Action]) -> bool:
    return any(isinstance(action, SetFinalizer) and not action.present for action in actions)


def test_a_finalizer_is_there_exactly_while_there_is_something_to_delete() -> None:
    (action,) = plan_entity(seen(topic(deletionPolicy="Delete"), ABSENT), NOW)
    assert isinstance(action, SetFinalizer)
    assert action.finalizers == (names.FINALIZER,)
    held = {"finalizers": [names.FINALIZER]}
    assert let_go(plan_entity(seen(topic(held)), NOW))
    assert let_go(plan_entity(seen(topic(held, deletionPolicy="Delete"), first="older"), NOW))
    assert deeds(plan_entity(seen(topic(deletionPolicy="Delete"), OTHER), NOW)) == []


def test_what_is_retained_has_no_finalizer_and_goes_at_once() -> None:
    assert deeds(plan_entity(seen(standing=ABSENT), NOW)) == ["Make"]
    assert plan_entity(seen(topic(GONE)), NOW)[1:] == []


def test_what_is_to_be_deleted_goes_before_its_resource() -> None:
    assert plan_entity(ending(), NOW) == [Remove()]
    assert plan_entity(ending(OTHER), NOW) == [Remove()]
    (last,) = plan_entity(ending(ABSENT), NOW)
    assert isinstance(last, SetFinalizer)
    assert last.finalizers == ("x/y",)


@pytest.mark.parametrize(
    "facts",
    [
        {"quorum_serves": False, "standing": SILENT},
        {"first": "older"},
        {"previous": None},
        {"entity": None, "invalid": "x"},
    ],
    ids=["quorum gone", "second", "never owned", "unreadable"],
)
def test_nothing_else_is_deleted_and_nothing_hangs(facts: dict[str, Any]) -> None:
    world = ending()
    fields = {field: getattr(world, field) for field in world.__struct_fields__}
    plan = plan_entity(EntityObserved(**(fields | facts)), NOW)
    assert deeds(plan) == ["SetFinalizer"]
    assert let_go(plan)


def test_a_deletion_waits_for_controllers_that_are_silent_and_says_so() -> None:
    plan = plan_entity(ending(SILENT), NOW)
    assert deeds(plan) == ["CheckAgain"]
    assert told(plan)[1] == Reason.DELETING
    assert "spec.deletionPolicy to Retain" in told(plan)[2]
    assert deeds(plan_entity(ending(refusal="busy"), NOW)) == ["Remove"]


def test_a_cluster_without_groups_keeps_no_deletion_waiting() -> None:
    plan = plan_entity(ending(NO_GROUP), NOW)
    assert deeds(plan) == ["Remove", "SetFinalizer"]
    assert let_go(plan)
    assert deeds(plan_entity(seen(standing=NO_GROUP), NOW)) == ["CheckAgain"]


# How a topic compares


WISH = topic(messageType="Fifo").spec.wish
VARIANT = TopicVariant(read_queues=8, write_queues=8, perm=6, attributes={"message.type": "FIFO"})


def held(*variants: TopicVariant, **facts: Any) -> TopicsHeld:
    view = TopicView(name="orders", variants=list(variants), mapped=facts.pop("mapped", False))
    defaults: dict[str, Any] = {"groups": ("a", "b"), "unheard": (), "new": ()}
    topics = {"orders": view} if variants else {}
    return TopicsHeld(**(defaults | facts), topics=topics)


def variant(**facts: Any) -> TopicVariant:
    return VARIANT.model_copy(update=facts)


def test_equal_in_all_groups_is_the_same() -> None:
    assert topic_standing("orders", WISH, held(VARIANT)) == SAME
    kept = variant(attributes={"message.type": "FIFO", "cleanup.policy": "DELETE"}, order=True)
    assert topic_standing("orders", WISH, held(kept)) == SAME


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (variant(write_queues=4), "queues 4, not 8"),
        (variant(read_queues=4), "readQueues 4, not 8"),
        (variant(perm=4), "permission 4, not 6"),
        (variant(attributes={}), "no message.type, not FIFO"),
        (variant(attributes={"message.type": "FIFO", "reserve.time": "5"}), "reserve.time 5, not"),
        (variant(groups=["a"]), "missing in b"),
    ],
)
def test_what_differs_is_named(what: TopicVariant, text: str) -> None:
    standing = topic_standing("orders", WISH, held(what))
    assert (standing.state, standing.refused) == ("Differs", None)
    assert text in standing.what


def test_a_group_that_had_no_master_yet_lacks_nothing() -> None:
    assert topic_standing("orders", WISH, held(variant(groups=["a"]), new=("b",))) == SAME
    assert topic_standing("orders", WISH, held(new=("a", "b"))) == ABSENT


def test_a_log_that_was_not_heard_says_nothing() -> None:
    assert topic_standing("orders", WISH, held(unheard=("b",))).state == "Unknown"
    assert topic_standing("orders", WISH, held(variant(groups=["a"]), unheard=("b",))) == SAME
    assert topic_standing("orders", WISH, held(groups=())) == NO_GROUP
    assert topic_standing("orders", WISH, Unreachable("silent")).what == "silent"


def test_fewer_queues_to_read_need_a_word() -> None:
    more = held(variant(read_queues=16))
    standing = topic_standing("orders", WISH, more)
    assert standing.refused == Reason.QUEUES_WOULD_SHRINK
    assert "Set readQueues to 16" in standing.what
    allowed = topic(messageType="Fifo", allowFewerQueues=True).spec.wish
    assert topic_standing("orders", allowed, more).refused is None
    fewer_writes = topic(messageType="Fifo", queues=4, readQueues=8).spec.wish
    assert topic_standing("orders", fewer_writes, held(VARIANT)).refused is None


def test_a_mapped_topic_is_no_resources() -> None:
    standing = topic_standing("orders", WISH, held(VARIANT, mapped=True))
    assert standing.refused == Reason.HAS_QUEUE_MAP
    plan = plan_entity(seen(standing=standing), NOW)
    assert (deeds(plan), told(plan)[1]) == ([], Reason.HAS_QUEUE_MAP)
