"""How users and settings of consumer groups compare with what is wished."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from gantry_operator.models.base import InvalidSpecError
from gantry_operator.models.consumer_group import ConsumerGroup
from gantry_operator.models.message_user import MessageUser
from gantry_operator.plan.actions import WriteStatus
from gantry_operator.plan.consumer_groups import ConsumerGroupsHeld, consumer_group_standing
from gantry_operator.plan.entities import Compared, EntityObserved, Make, plan_entity
from gantry_operator.plan.reasons import Reason
from gantry_operator.plan.topics import NO_GROUP
from gantry_operator.plan.users import UsersHeld, rule_steps, user_standing
from gantry_protocol.access.rules import RULES_MAX, make_rule
from gantry_protocol.admin import RuleView, UserView
from gantry_protocol.admin_client.outcomes import Unreachable
from gantry_protocol.admin_topics import ConsumerGroupVariant, ConsumerGroupView

RULE = {"resource": "Topic:orders*", "actions": ["Sub", "Pub"], "sources": ["10.0.0.7/8"]}
VIEW = UserView(
    name="shop",
    type="Normal",
    status="enable",
    rules=[
        RuleView(
            resource="Topic:orders*",
            actions=["Pub", "Sub"],
            sources=["10.0.0.0/8"],
            decision="Allow",
            policy="Custom",
        )
    ],
)
META = {"name": "shop", "namespace": "mq", "uid": "u-uid", "generation": 1}


def user(**spec: Any) -> MessageUser:
    return MessageUser.parse({"metadata": META, "spec": {"rules": [RULE]} | spec})


def standing(view: UserView | None = VIEW, entity: MessageUser | None = None, **facts: Any) -> Any:
    held = UsersHeld("7", {} if view is None else {"shop": view})
    defaults: dict[str, Any] = {"secret_problem": "", "secret_matches": True}
    return user_standing("shop", (entity or user()).spec, held, **(defaults | facts))


def test_a_user_as_wished_is_the_same_however_its_rules_are_written() -> None:
    assert standing() == Compared(state="Same")
    assert standing(None) == Compared(state="Absent")
    silent = user_standing(
        "shop", user().spec, Unreachable("silent"), secret_problem="", secret_matches=None
    )
    assert (silent.state, silent.what) == ("Unknown", "silent")


@pytest.mark.parametrize(
    ("view", "facts", "text"),
    [
        (VIEW, {"secret_matches": False}, "another secret"),
        (VIEW.model_copy(update={"type": "Super"}), {}, "type Super, not Normal"),
        (VIEW.model_copy(update={"status": "disable"}), {}, "status disable, not enable"),
        (VIEW.model_copy(update={"rules": []}), {}, "other rules on Topic:orders*"),
    ],
)
def test_what_differs_of_a_user_is_named(view: UserView, facts: Any, text: str) -> None:
    found = standing(view, **facts)
    assert (found.state, found.what, found.ours) == ("Differs", text, False)


def test_a_rule_that_is_not_wished_is_named() -> None:
    found = standing(VIEW, user(rules=[]))
    assert found.what == "a rule on Topic:orders* that is not wished"


def test_an_unknown_secret_is_no_difference() -> None:
    assert standing(secret_matches=None).state == "Unknown"


def test_a_secret_that_the_owner_changed_is_no_drift() -> None:
    new = standing(secret_matches=False, secret_is_new=True)
    assert new.ours
    both = standing(
        VIEW.model_copy(update={"type": "Super"}), secret_matches=False, secret_is_new=True
    )
    assert not both.ours
    world = EntityObserved(
        meta=user().metadata,
        entity=user(deletionPolicy="Retain"),
        named="shop",
        cluster="gantry",
        first="shop",
        quorum_exists=True,
        quorum_serves=True,
        standing=Compared(state="Same"),
    )
    now = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
    (write,) = [step for step in plan_entity(world, now) if isinstance(step, WriteStatus)]
    fields = {field: getattr(world, field) for field in world.__struct_fields__}
    status = world.status.model_validate(write.status)
    for what, undoes in ((new, ""), (both, both.what)):
        then = EntityObserved(**(fields | {"previous": status, "standing": what}))
        assert plan_entity(then, now) == [Make(undoes=undoes)]


def test_a_secret_that_cannot_be_used_is_told() -> None:
    for view, state in ((None, "Absent"), (VIEW, "Differs")):
        found = standing(view, secret_problem="There is no Secret own.")
        assert (found.state, found.refused) == (state, Reason.SECRET_NOT_USABLE)
        assert found.what == "There is no Secret own."


def test_new_rules_come_before_old_ones_go_unless_there_is_no_room() -> None:
    old = [make_rule(f"Topic:t{number}", ["Pub"]) for number in range(RULES_MAX)]
    steps = rule_steps(old[:2], [old[1], make_rule("Topic:t0", ["Sub"]), old[2]])
    assert [rule.resource for rule in steps.put] == ["Topic:t0", "Topic:t2"]
    assert (steps.delete, steps.delete_first) == ([], False)
    steps = rule_steps(old, [make_rule("Topic:other", ["Pub"])])
    assert len(steps.delete) == RULES_MAX
    assert steps.delete_first
    assert not rule_steps(old[1:], [make_rule("Topic:other", ["Pub"])]).delete_first


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"rules": [RULE, RULE]}, "one entry for each resource"),
        ({"rules": [RULE | {"sources": ["300.0.0.1"]}]}, "IP addresses or networks"),
        ({"userName": "gantry"}, "quorum's key"),
    ],
)
def test_what_cannot_be_a_user_is_told(spec: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidSpecError, match=text):
        user(**spec)


# Consumer groups

WISH = ConsumerGroup.parse({"metadata": META, "spec": {"maxRetries": 3}}).spec.wish
VARIANT = ConsumerGroupVariant(
    consume_enable=True, consume_broadcast_enable=True, retry_queue_nums=1, retry_max_times=3
)


def group_standing(*variants: ConsumerGroupVariant, **facts: Any) -> Compared:
    view = ConsumerGroupView(name="billing", variants=list(variants))
    defaults: dict[str, Any] = {"groups": ("a", "b"), "new": ()}
    held = ConsumerGroupsHeld(
        **(defaults | facts), consumer_groups={"billing": view} if variants else {}
    )
    return consumer_group_standing("billing", WISH, held)


def test_settings_are_compared_in_every_broker_group() -> None:
    only_a = VARIANT.model_copy(update={"groups": ["a"]})
    assert group_standing(VARIANT).state == "Same"
    assert group_standing().state == "Absent"
    assert group_standing(groups=()) == NO_GROUP
    assert group_standing(only_a).what == "missing in b"
    assert group_standing(only_a, new=("b",)).state == "Same"
    assert consumer_group_standing("billing", WISH, Unreachable("silent")).state == "Unknown"


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("consume_enable", False, "enabled false, not true"),
        ("consume_broadcast_enable", False, "broadcast false, not true"),
        ("retry_queue_nums", 0, "retryQueues 0, not 1"),
        ("retry_max_times", 16, "maxRetries 16, not 3"),
    ],
)
def test_what_differs_of_settings_is_named(field: str, value: Any, text: str) -> None:
    found = group_standing(VARIANT.model_copy(update={field: value}))
    assert (found.state, found.what) == ("Differs", text)


def test_the_order_of_consumption_is_compared_where_it_is_wished() -> None:
    """What the spec says nothing of is nobody's wish."""
    ordered = VARIANT.model_copy(update={"consume_message_orderly": True})
    assert group_standing(VARIANT).state == group_standing(ordered).state == "Same"
    wish = ConsumerGroup.parse({"metadata": META, "spec": {"maxRetries": 3, "inOrder": True}})
    held = ConsumerGroupsHeld(
        groups=("a",),
        new=(),
        consumer_groups={"billing": ConsumerGroupView(name="billing", variants=[VARIANT])},
    )
    found = consumer_group_standing("billing", wish.spec.wish, held)
    assert (found.state, found.what) == ("Differs", "inOrder false, not true")
