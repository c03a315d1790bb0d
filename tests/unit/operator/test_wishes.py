"""Wishes of people, refused where they make no sense, and their end as the status tells it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from gantry_operator.api.kinds import BROKER_GROUP
from gantry_operator.operations.asking import ask, follow, wished
from gantry_operator.operations.wishes import End, SpecWish, approval, hibernation, switchover
from gantry_protocol.errors import GantryError
from unit.operator.fake_api import FakeApi
from unit.operator.test_approval import supervised
from unit.operator.test_hibernation import sleeping
from unit.operator.world import broker_world, brokers, changed, settled_status

Json = dict[str, Any]
GROUP = "BrokerGroup mq/orders"


def body(status: Json, generation: int = 1, **spec: Any) -> Json:
    meta = {"name": "orders", "namespace": "mq", "uid": "u", "generation": generation}
    return {"metadata": meta | {"resourceVersion": "1"}, "spec": spec, "status": status}


def waiting(image: str = "gantry:2") -> Json:
    seen = changed(broker_world(supervised()), group=supervised(image=image))
    return body(settled_status(seen), update={"strategy": "Supervised"})


def healthy(**spec: Any) -> Json:
    return body(settled_status(broker_world()), **spec)


def test_the_change_that_waits_is_approved_by_its_id() -> None:
    found = waiting()
    change = found["status"]["pendingChange"]["id"]
    wish = approval(found, None)
    assert wish.spec == {"update": {"approved": change}}
    assert wish == SpecWish(approval(found, change).spec, wish.message, wish.ended)
    assert wish.ended(found) is None
    unseen = healthy(update={"strategy": "Supervised"})
    unseen["metadata"]["generation"] = 2
    assert wish.ended(unseen) is None, "of a status from before"
    assert wish.ended(healthy()) == End(True, f"Change {change} of {GROUP} is carried out.")
    newer = wish.ended(waiting("gantry:3"))
    assert newer is not None
    assert not newer.done
    assert newer.message.startswith("Another change waits by now, ")


@pytest.mark.parametrize(
    ("found", "change", "sentence"),
    [
        pytest.param(healthy(), None, "strategy is Automatic", id="automatic"),
        pytest.param(
            healthy(update={"strategy": "Supervised"}), None, "No change of", id="none-waits"
        ),
        pytest.param(
            body({"observedGeneration": 0}, update={"strategy": "Supervised"}),
            None,
            "has not seen the newest spec yet",
            id="unseen",
        ),
        pytest.param(waiting(), "00000000", "Change 00000000 of .* does not wait", id="another"),
    ],
)
def test_what_does_not_wait_is_not_approved(found: Json, change: str | None, sentence: str) -> None:
    with pytest.raises(GantryError, match=sentence):
        approval(found, change)


def test_a_switchover_goes_to_who_is_in_sync() -> None:
    wish = switchover(healthy(), 2, "a")
    assert wish.spec == {"switchover": {"id": "a", "to": 2}}
    assert wish.ended(healthy()) is None
    for state, done in (("Completed", True), ("Refused", False)):
        told = body({"observedGeneration": 1, "switchover": {"id": "a", "to": 2, "state": state}})
        told["status"]["switchover"]["message"] = "words"
        assert wish.ended(told) == End(done, f"{state}: words")
        told["status"]["switchover"]["id"] = "b"
        assert wish.ended(told) is None, "of another request"
    for to, found in ((0, healthy()), (5, healthy()), (None, healthy(shards=3))):
        with pytest.raises(GantryError):
            switchover(found, to, "a")


def test_sleep_ends_when_nobody_runs_and_waking_when_all_is_well() -> None:
    asleep = body(settled_status(sleeping()), hibernated=True)
    awake = healthy()
    assert hibernation(awake, asleep=True).spec == {"hibernated": True}
    assert hibernation(asleep, asleep=True).spec == {}
    assert hibernation(asleep, asleep=False).spec == {"hibernated": False}
    stopping = body(settled_status(broker_world(brokers(hibernated=True))), hibernated=True)
    assert [hibernation(awake, asleep=True).ended(now) for now in (awake, stopping)] == [None, None]
    assert hibernation(awake, asleep=True).ended(asleep) == End(True, f"{GROUP} sleeps.")
    assert hibernation(asleep, asleep=False).ended(asleep) is None
    assert hibernation(asleep, asleep=False).ended(awake) == End(True, f"{GROUP} is awake.")


def test_a_manifest_with_the_wish_is_what_would_be_stored() -> None:
    found = healthy(replicas=3, switchover={"id": "old", "to": 1})
    spec = wished(found, switchover(found, None, "new"))["spec"]
    assert spec == {"replicas": 3, "switchover": {"id": "new"}}, "null takes a field away"
    assert found["spec"]["switchover"] == {"id": "old", "to": 1}


async def test_a_wish_is_written_to_what_it_was_judged_by() -> None:
    api, before = FakeApi(), healthy()
    api.have(BROKER_GROUP, "orders", **copy.deepcopy(before))
    judged: list[bool] = []

    def decide(found: Json) -> SpecWish:
        judged.append(bool(found["spec"].get("paused")))
        if len(judged) == 1:  # somebody else is faster
            meta = {"uid": found["metadata"]["uid"], "generation": 2}
            api.have(BROKER_GROUP, "orders", metadata=meta, spec={"paused": True})
        return hibernation(found, asleep=True)

    await ask(api, "mq", "orders", decide)
    assert judged == [False, True]
    found = api.find(BROKER_GROUP, "orders")
    assert found is not None
    assert found["spec"] == {"paused": True, "hibernated": True}


@pytest.mark.looptime
async def test_what_goes_on_is_told_once_for_each_line() -> None:
    api, lines = FakeApi(), list[str]()
    api.have(BROKER_GROUP, "orders", **healthy())
    turns = iter([None, None, None, End(True, "done")])
    wish = SpecWish({}, "", lambda _: next(turns))
    assert await follow(api, "mq", "orders", wish, lines.append) == End(True, "done")
    assert lines == ["Healthy"]
    with pytest.raises(GantryError, match="There is no BrokerGroup nobody in namespace mq"):
        await follow(api, "mq", "nobody", wish, lines.append)
