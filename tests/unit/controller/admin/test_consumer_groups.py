"""The admin API's routes about settings of consumer groups."""

from typing import Any

from gantry_controller.metadata.events import (
    DeclareGroup,
    PutSubscriptionGroup,
    encode_event,
)
from gantry_protocol.admin_topics import ConsumerGroupWish
from gantry_protocol.bodies import SubscriptionGroupConfig, decode_body, encode_body
from support.admin_api import Api
from support.controller_dispatcher import CLUSTER

GROUPS = f"/v1/clusters/{CLUSTER}/consumer-groups"
WISH: dict[str, Any] = {"retryMaxTimes": 3, "consumeBroadcastEnable": False}


def declare(admin: Api, *names: str) -> None:
    for name in names:
        event = DeclareGroup(
            cluster=CLUSTER, name=name, uid=f"uid-{name}", replicas=3, min_in_sync_replicas=2
        )
        admin.harness.apply(event)


def config(admin: Api, name: str = "a") -> SubscriptionGroupConfig:
    text = admin.harness.machine.state.subscription_table((CLUSTER, name)).groups["billing"]
    return decode_body(SubscriptionGroupConfig, text)


async def test_settings_are_made_everywhere_by_one_event_and_once(admin: Api) -> None:
    declare(admin, "a", "b")
    before = admin.harness.quorum.index
    for _ in range(2):
        status, view = await admin.call("PUT", GROUPS + "/billing", WISH)
        assert status == 200, view
    assert admin.harness.quorum.index == before + 1
    (variant,) = view["variants"]
    assert variant == {
        "groups": [],
        "consumeEnable": True,
        "consumeBroadcastEnable": False,
        "retryQueueNums": 1,
        "retryMaxTimes": 3,
        "consumeMessageOrderly": False,
    }
    assert config(admin, "b").retry_max_times == 3


async def test_what_a_wish_does_not_name_stays(admin: Api) -> None:
    declare(admin, "a", "b")
    known = SubscriptionGroupConfig("billing", consume_timeout_minute=7, retry_max_times=3)
    event = PutSubscriptionGroup(
        cluster=CLUSTER, name="a", group="billing", config=encode_body(known)
    )
    admin.harness.quorum.propose(encode_event(event), lambda _: None)
    assert (await admin.call("PUT", GROUPS + "/billing", WISH))[0] == 200
    assert config(admin).consume_timeout_minute == 7
    assert not config(admin).consume_broadcast_enable
    assert config(admin, "b").consume_timeout_minute == 15


async def test_they_are_read_in_pages_with_a_stamp_and_deleted(admin: Api) -> None:
    declare(admin, "a", "b")
    for number in range(5):
        await admin.call("PUT", f"{GROUPS}/g{number}", WISH)
    _, page = await admin.call("GET", GROUPS + "?limit=3")
    assert ([one["name"] for one in page["consumerGroups"]], page["more"]) == (
        ["g0", "g1", "g2"],
        True,
    )
    _, rest = await admin.call("GET", GROUPS + "?limit=3&after=g2")
    assert ([one["name"] for one in rest["consumerGroups"]], rest["more"]) == (["g3", "g4"], False)
    _, again = await admin.call("GET", f"{GROUPS}?known={page['stamp']}")
    assert again["unchanged"]
    for _ in range(2):
        assert (await admin.call("DELETE", GROUPS + "/g0"))[0] == 204
    _, left = await admin.call("GET", f"{GROUPS}?known={page['stamp']}")
    assert [one["name"] for one in left["consumerGroups"]] == ["g1", "g2", "g3", "g4"]


async def test_what_cannot_be_is_refused(admin: Api) -> None:
    assert (await admin.call("PUT", GROUPS + "/billing", WISH))[0] == 409  # there is no group
    declare(admin, "a")
    assert (await admin.call("PUT", GROUPS + "/a%20b", WISH))[0] == 409
    assert (await admin.call("PUT", GROUPS + "/billing", {"retryQueueNums": -1}))[0] == 400
    assert (await admin.call("PUT", GROUPS + "/billing", {"brokerId": 1}))[0] == 400


async def test_the_order_of_consumption_stays_unless_it_is_wished(admin: Api) -> None:
    """A resource of before, or an operator of before, says nothing of it."""
    declare(admin, "a")
    assert "consumeMessageOrderly" not in ConsumerGroupWish().to_json()
    for wish, orderly in (({}, False), ({"consumeMessageOrderly": True}, True), ({}, True)):
        status, view = await admin.call("PUT", GROUPS + "/billing", WISH | wish)
        assert status == 200, view
        assert config(admin).consume_message_orderly is orderly
        assert view["variants"][0]["consumeMessageOrderly"] is orderly
