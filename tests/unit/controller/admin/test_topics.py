"""The admin API's routes about topics: read in pages with a stamp, made as wished, deleted."""

from typing import Any

from gantry_controller.metadata.events import AdoptGroup, DeclareGroup, encode_event
from gantry_protocol.types import Epoch
from support.admin_api import Api
from support.controller_dispatcher import CLUSTER, NAME

TOPICS = f"/v1/clusters/{CLUSTER}/topics"
WISH: dict[str, Any] = {"readQueues": 8, "writeQueues": 8, "attributes": {"message.type": "FIFO"}}


def declare(admin: Api, *names: str) -> None:
    for name in names:
        event = DeclareGroup(
            cluster=CLUSTER, name=name, uid=f"uid-{name}", replicas=3, min_in_sync_replicas=2
        )
        admin.harness.quorum.propose(encode_event(event), lambda result: None)


def events(admin: Api) -> int:
    return admin.harness.quorum.index


async def listed(admin: Api, query: str = "") -> dict[str, Any]:
    status, view = await admin.call("GET", TOPICS + query)
    assert status == 200, view
    found: dict[str, Any] = view
    return found


async def test_a_topic_is_made_in_every_group_by_one_event(admin: Api) -> None:
    declare(admin, "a", "b")
    before = events(admin)
    status, view = await admin.call("PUT", TOPICS + "/t", WISH)
    assert status == 200, view
    assert events(admin) == before + 1
    (variant,) = view["variants"]
    assert variant == {
        "groups": [],
        "readQueues": 8,
        "writeQueues": 8,
        "perm": 6,
        "order": False,
        "attributes": {"message.type": "FIFO"},
    }
    assert [topic["name"] for topic in (await listed(admin))["topics"]] == ["t"]


async def test_a_wish_that_is_fulfilled_writes_nothing(admin: Api) -> None:
    declare(admin, "a", "b")
    await admin.call("PUT", TOPICS + "/t", WISH)
    before = events(admin)
    assert (await admin.call("PUT", TOPICS + "/t", WISH))[0] == 200
    assert events(admin) == before


async def test_only_groups_that_differ_are_changed(admin: Api) -> None:
    declare(admin, "a", "b")
    await admin.call("PUT", TOPICS + "/t", WISH)
    declare(admin, "c")
    view = (await listed(admin))["topics"][0]
    assert view["variants"][0]["groups"] == ["a", "b"]
    before = events(admin)
    _, view = await admin.call("PUT", TOPICS + "/t", WISH)
    assert events(admin) == before + 1
    assert [variant["groups"] for variant in view["variants"]] == [[]]


async def test_attributes_become_exactly_those_that_are_wished(admin: Api) -> None:
    declare(admin, "a", "b")
    before = WISH | {"attributes": {"message.type": "FIFO", "cleanup.policy": "DELETE"}}
    await admin.call("PUT", TOPICS + "/t", before)
    _, view = await admin.call("PUT", TOPICS + "/t", WISH | {"attributes": {"reserve.time": "5"}})
    assert view["variants"][0]["attributes"] == {"cleanup.policy": "DELETE", "reserve.time": "5"}
    status, view = await admin.call("PUT", TOPICS + "/t", WISH | {"attributes": {"no.such": "5"}})
    assert status == 409
    assert "no attribute of topics" in view["message"]


async def test_queues_to_read_are_not_taken_away_unless_that_is_meant(admin: Api) -> None:
    declare(admin, "a")
    await admin.call("PUT", TOPICS + "/t", WISH)
    before = events(admin)
    fewer = {"readQueues": 4, "writeQueues": 4}
    status, view = await admin.call("PUT", TOPICS + "/t", fewer)
    assert (status, view["error"]) == (409, "QUEUES_WOULD_SHRINK")
    assert "8 queues to read in a" in view["message"]
    assert events(admin) == before
    only_writes = {"readQueues": 8, "writeQueues": 4}
    assert (await admin.call("PUT", TOPICS + "/t", only_writes))[0] == 200
    assert (await admin.call("PUT", TOPICS + "/t", fewer | {"fewerReads": True}))[0] == 200


async def test_pages_have_every_topic_once(admin: Api) -> None:
    declare(admin, "a", "b")
    for number in range(7):
        await admin.call("PUT", f"{TOPICS}/t{number}", WISH)
    found: list[str] = []
    after, more = "", True
    while more:
        page = await listed(admin, f"?limit=3&after={after}")
        found += [topic["name"] for topic in page["topics"]]
        after, more = found[-1], page["more"]
    assert found == [f"t{number}" for number in range(7)]
    assert (await admin.call("GET", TOPICS + "?limit=x"))[0] == 400


async def test_who_knows_the_stamp_is_told_that_nothing_changed(admin: Api) -> None:
    declare(admin, "a")
    await admin.call("PUT", TOPICS + "/t", WISH)
    first = await listed(admin)
    again = await listed(admin, f"?known={first['stamp']}")
    assert (again["unchanged"], again["topics"]) == (True, [])
    await admin.call("PUT", TOPICS + "/t", WISH | {"perm": 4})
    third = await listed(admin, f"?known={first['stamp']}")
    assert not third["unchanged"]
    assert third["topics"][0]["variants"][0]["perm"] == 4


async def test_groups_that_never_had_a_master_are_named(admin: Api) -> None:
    await admin.three_in_sync()
    declare(admin, "z-new")
    view = await listed(admin)
    assert (view["groups"], view["new"]) == ([NAME, "z-new"], ["z-new"])


async def test_a_topic_is_deleted_everywhere_and_twice(admin: Api) -> None:
    declare(admin, "a", "b")
    await admin.call("PUT", TOPICS + "/t", WISH)
    for _ in range(2):
        assert (await admin.call("DELETE", TOPICS + "/t"))[0] == 204
    assert (await listed(admin))["topics"] == []


async def test_nothing_is_concluded_before_an_adopted_log_is_heard(admin: Api) -> None:
    declare(admin, "a")
    event = AdoptGroup(cluster=CLUSTER, name="a", epoch=Epoch(4), expected_epoch=Epoch(0))
    admin.harness.quorum.propose(encode_event(event), lambda result: None)
    assert (await listed(admin))["unheard"] == ["a"]
    status, view = await admin.call("PUT", TOPICS + "/t", WISH)
    assert (status, view["error"]) == (503, "NOT_READY")


async def test_what_cannot_be_is_refused(admin: Api) -> None:
    assert (await admin.call("PUT", TOPICS + "/t", WISH))[0] == 409  # there is no group
    declare(admin, "a")
    for topic, wish, wanted in (
        ("t", WISH | {"readQueues": 0}, 400),
        ("t", WISH | {"more": 1}, 400),
        ("a%20b", WISH, 409),
        ("TBW102", WISH, 409),
    ):
        assert (await admin.call("PUT", f"{TOPICS}/{topic}", wish))[0] == wanted, (topic, wish)
