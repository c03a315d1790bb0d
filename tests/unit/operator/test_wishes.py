"""Wishes of people, refused where they make no sense, and their end as the status tells it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from gantry_operator.api.kinds import BROKER_GROUP
from gantry_operator.operations.asking import ask, follow, wished
from gantry_operator.operations.wishes import (
    End,
    SpecWish,
    approval,
    fencing,
    forgetting,
    hibernation,
    switchover,
)
from gantry_protocol.errors import GantryError
from unit.operator.fake_api import FakeApi
from unit.operator.test_approval import supervised
from unit.operator.test_fencing import fenced_world
from unit.operator.test_forgetting import GHOST, asked
from unit.operator.test_hibernation import sleeping
from unit.operator.world import broker_world, brokers, changed, member, settled_status, view

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


def test_replicas_are_fenced_and_let_in_again_beside_others() -> None:
    wish = fencing(healthy(fenced=[1], replicas=3), [2, 1], fenced=True)
    assert wish.spec == {"fenced": [1, 2]}
    assert wish.message == f"To be fenced in {GROUP}: replica 1, replica 2."
    one = fencing(healthy(), {2}, fenced=True)
    assert one.ended(healthy()) is None, "it takes part still"
    done = body(settled_status(fenced_world()), fenced=[2])
    assert one.ended(done) == End(True, f"Fenced in {GROUP}: replica 2.")
    assert fencing(done, {2}, fenced=True).spec == {}, "it is so already"
    back = fencing(done, {2}, fenced=False)
    assert back.spec == {"fenced": []}
    assert back.ended(done) is None
    assert back.ended(healthy()) == End(True, f"Let in again in {GROUP}: replica 2.")
    unseen = done | {"metadata": done["metadata"] | {"generation": 2}}
    assert one.ended(unseen) is None, "of a status from before"


def test_a_fence_that_the_operator_keeps_back_has_ended() -> None:
    short = view(member(1), member(2, in_sync=False), member(3))
    seen = broker_world(brokers(fenced=[2]), known=short)
    end = fencing(healthy(), {2}, fenced=True).ended(body(settled_status(seen), fenced=[2]))
    assert end is not None
    assert not end.done
    assert end.message.startswith("Replica 2 is not fenced: without it 1 replicas would be in sync")


@pytest.mark.parametrize(
    ("spec", "ordinals", "sentence"),
    [
        pytest.param({}, {3}, "has no replica 3: its replicas are 0 to 2", id="unknown"),
        pytest.param({}, {0, 1, 2}, "kubectl gantry hibernate", id="all"),
        pytest.param({"fenced": [0, 2]}, {1}, "kubectl gantry hibernate", id="the-last"),
    ],
)
def test_who_cannot_be_fenced_is_not_asked_for(
    spec: Json, ordinals: set[int], sentence: str
) -> None:
    with pytest.raises(GantryError, match=sentence):
        fencing(healthy(replicas=3, **spec), ordinals, fenced=True)


def test_one_that_was_scaled_away_may_be_taken_off_the_list() -> None:
    wish = fencing(healthy(replicas=3, fenced=[4]), {4}, fenced=False)
    assert wish.spec == {"fenced": []}
    with pytest.raises(GantryError, match="has no replica 4"):
        fencing(healthy(replicas=3), {4}, fenced=False)


def test_a_ghost_is_forgotten_by_its_id() -> None:
    found = body(settled_status(asked(member(4, **GHOST), group=brokers())))
    wish = forgetting(found, 4, "a")
    assert wish.spec == {"forget": {"id": "a", "brokerId": 4}}
    assert wish.ended(found) is None
    for state, done in (("InProgress", None), ("Completed", True), ("Refused", False)):
        told = {"id": "a", "brokerId": 4, "state": state, "message": "words"}
        end = wish.ended(found | {"status": found["status"] | {"forget": told}})
        assert end == (None if done is None else End(done, f"{state}: words"))
    other = {"id": "b", "brokerId": 4, "state": "Completed", "message": "words"}
    assert wish.ended(found | {"status": found["status"] | {"forget": other}}) is None


@pytest.mark.parametrize(
    ("found", "broker_id", "sentence"),
    [
        pytest.param(healthy(), 9, "no member with broker id 9; it has: 1, 2, 3", id="unknown"),
        pytest.param(healthy(), 1, "is the master", id="master"),
        pytest.param(healthy(), 2, "is InSync", id="in-sync"),
        pytest.param(healthy(shards=2), 2, "gantry forget SHARD --member 2", id="shards"),
    ],
)
def test_who_is_not_gone_is_not_forgotten(found: Json, broker_id: int, sentence: str) -> None:
    with pytest.raises(GantryError, match=sentence):
        forgetting(found, broker_id, "a")
