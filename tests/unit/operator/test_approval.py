"""A change that restarts pods waits for a person, and everything else goes on."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.builders import broker_objects
from gantry_operator.builders.meta import digest
from gantry_operator.models import BrokerGroup, InvalidSpecError
from gantry_operator.plan.actions import ApplyObject, CheckAgain, DeletePod, EmitEvent, ScaleDown
from gantry_operator.plan.approval import change_id
from gantry_operator.plan.observed import BrokerObserved
from gantry_operator.plan.turns import ImageWait
from unit.operator.world import (
    IMAGE,
    OLD,
    broker_world,
    brokers,
    changed,
    controllers,
    live,
    member,
    of_type,
    planned,
    pod,
    settled_status,
    shard_world,
    step,
    told,
    view,
    with_status,
)

SET = ("StatefulSet", "orders-broker")


def supervised(approved: str | None = None, **spec: Any) -> BrokerGroup:
    update = {"strategy": "Supervised"} | ({} if approved is None else {"approved": approved})
    return brokers(update=update, **spec)


def world(before: dict[str, Any] | None = None, **wish: Any) -> BrokerObserved:
    """A group that is well as it was before, of which something else is wished now."""
    seen = broker_world(supervised(**(before or {})))
    return changed(seen, group=supervised(**wish))  # type: ignore[no-any-return]


def waiting(**wish: Any) -> BrokerObserved:
    """The same after the operator has announced what waits."""
    return with_status(world(**wish))  # type: ignore[no-any-return]


def pending(seen: BrokerObserved) -> dict[str, Any]:
    found: dict[str, Any] = settled_status(seen).get("pendingChange") or {}
    return found


def applied(seen: BrokerObserved) -> list[str]:
    return [action.manifest["kind"] for action in of_type(planned(seen), ApplyObject)]


def test_a_change_that_restarts_pods_waits_and_says_what_it_would_do() -> None:
    seen = world(image="gantry:2")
    assert applied(seen) == []
    assert step(seen) is None
    found = pending(seen)
    change = found.pop("id")
    assert found == {
        "what": "image gantry:1 to gantry:2",
        "image": "gantry:2",
        "restarts": 3,
        "handOvers": 1,
        "gapMs": 500,
    }
    status, reason, message = told(seen, "Progressing")
    assert (status, reason) == ("False", "WaitingForApproval")
    assert message == (
        f"Waiting for approval of {change}: image gantry:1 to gantry:2; 3 restarts, 1 hand-over. "
        f"Set spec.update.approved to {change}, or take the change back."
    )
    body = settled_status(seen)
    assert body["summary"] == f"Waiting for approval of {change}"
    assert body["image"] == IMAGE, "what a pod gets that dies meanwhile"
    conditions = {one["type"]: one["status"] for one in body["conditions"]}
    assert conditions["Ready"] == "False"
    assert conditions["Available"] == "True"
    assert {"Stalled", "Reconciling"}.isdisjoint(conditions)
    notes = [event.note for event in of_type(planned(seen), EmitEvent)]
    assert any(change in note for note in notes)
    assert of_type(planned(with_status(seen)), EmitEvent) == [], "it is told once"


def test_the_approved_change_goes_and_nothing_else_does() -> None:
    seen = waiting(image="gantry:2")
    change = pending(seen)["id"]
    assert applied(changed(seen, group=supervised(change, image="gantry:2"))) == ["StatefulSet"]
    newer = changed(seen, group=supervised(change, image="gantry:3"))
    assert applied(newer) == []
    assert applied(with_status(newer)) == [], "also once it is announced"
    assert pending(newer)["id"] != change
    assert f"spec.update.approved is {change}, another change" in told(newer, "Progressing")[2]


def test_what_was_not_announced_does_not_go_even_if_it_is_approved() -> None:
    """Its id can be known before: `gantry kube plan` tells it, and one commit has both."""
    change = pending(world(image="gantry:2"))["id"]
    seen = world(image="gantry:2", approved=change)
    assert applied(seen) == []
    assert told(seen, "Progressing")[:2] == ("True", "Applying")
    assert of_type(planned(seen), CheckAgain) == [CheckAgain(after_s=0.1)]
    assert applied(with_status(seen)) == ["StatefulSet"]


def test_an_approval_is_for_one_way_only() -> None:
    """The way back is another change, and so is the same one from somewhere else."""
    there = pending(world(image="gantry:2"))["id"]
    back = pending(world(before={"image": "gantry:2"}, image="gantry:1"))["id"]
    elsewhere = pending(world(before={"image": "gantry:0"}, image="gantry:2"))["id"]
    assert len({there, back, elsewhere}) == 3
    assert pending(world(image="gantry:2"))["id"] == there, "whoever computes it"


def test_taking_the_change_back_ends_the_wait() -> None:
    seen = changed(waiting(image="gantry:2"), group=supervised())
    assert applied(seen) == []
    assert pending(seen) == {}
    assert told(seen, "Ready")[0] == "True"


def test_settings_are_held_with_the_template_that_they_belong_to() -> None:
    """A process that starts again in its old pod reads the ConfigMap."""
    seen = world(config={"lock_wait_s": "1"})
    assert applied(seen) == []
    assert pending(seen)["what"] == "settings lock_wait_s"
    change = pending(seen)["id"]
    goes = changed(with_status(seen), group=supervised(change, config={"lock_wait_s": "1"}))
    assert applied(goes) == ["ConfigMap", "StatefulSet"]
    unlike = world(image="gantry:2")
    emptied = {key: body for key, body in unlike.objects.items() if key[0] != "ConfigMap"}
    assert applied(changed(unlike, objects=emptied)) == ["ConfigMap"], "the same for both templates"


def test_what_restarts_no_pod_waits_for_nobody() -> None:
    seen = waiting(image="gantry:2", replicas=5)
    (action,) = of_type(planned(seen), ApplyObject)
    assert action.manager == names.REPLICAS_FIELD_MANAGER
    spec = action.manifest["spec"]
    assert spec["replicas"] == 5
    assert "template" not in spec, "under this manager the rest of the set stays as it is"
    retained = broker_world(supervised(storage={"whenScaled": "Delete"}))
    kept = with_status(changed(retained, group=supervised(image="gantry:2")))
    (action,) = of_type(planned(kept), ApplyObject)
    policy = action.manifest["spec"]["persistentVolumeClaimRetentionPolicy"]
    assert policy["whenScaled"] == "Retain", "what keeps volumes never waits"


def test_scaling_down_goes_on_with_the_old_template() -> None:
    four = broker_world(supervised(replicas=4))
    seen = changed(four, group=supervised(replicas=3, image="gantry:2"))
    action = step(seen)
    assert isinstance(action, ScaleDown)
    assert action.manager == names.REPLICAS_FIELD_MANAGER
    assert action.manifest["spec"]["replicas"] == 3
    assert "template" not in action.manifest["spec"]


def test_an_approved_change_goes_on_while_a_newer_one_waits() -> None:
    seen = world(image="gantry:2")
    half = changed(seen, pods=(pod(0, revision=OLD), pod(1, revision=OLD), pod(2)))
    action = step(half)
    assert isinstance(action, DeletePod)
    assert action.name == "orders-broker-1"
    assert applied(half) == []


def test_the_line_of_the_fleet_comes_after_the_approval() -> None:
    seen = waiting(image="gantry:2")
    change = pending(seen)["id"]
    in_line = changed(
        seen,
        group=supervised(change, image="gantry:2"),
        image_wait=ImageWait("gantry:2", 1, 0),
    )
    assert applied(in_line) == []
    status, reason, message = told(in_line, "Progressing")
    assert (status, reason) == ("True", "WaitingForTurn")
    assert told(in_line, "Ready")[0] == "False", "it is wished, and not so yet"
    assert of_type(planned(in_line), CheckAgain) == [CheckAgain(after_s=2.0)]
    assert f"Change {change} goes when it is its turn" in message


def test_a_set_of_an_older_operator_is_the_same_only_if_it_is_proved() -> None:
    def older(image: str) -> dict[str, Any]:
        manifest = broker_objects(supervised(), controllers(), image=image, replicas=3)[-1]
        for key in (names.ANNOTATION_TEMPLATE, names.ANNOTATION_APPLIED):
            del manifest["metadata"]["annotations"][key]
        applied_hash = {names.ANNOTATION_APPLIED: digest(manifest)}
        manifest["metadata"]["annotations"] |= applied_hash
        return next(iter(live([manifest]).values()))

    wished = broker_objects(supervised(), controllers(), image=IMAGE, replicas=3)[-1]
    assert change_id(wished, older(IMAGE)) == ""
    assert change_id(wished, older("gantry:0")) != ""
    seen = broker_world(supervised())
    marked = changed(seen, objects=seen.objects | {SET: older(IMAGE)})
    assert applied(marked) == ["StatefulSet"], "the hash is written, and no pod restarts"


def test_a_set_that_was_cut_off_is_taken_back_while_a_change_waits() -> None:
    seen = waiting(image="gantry:2")
    orphan = dict(seen.objects[SET])
    orphan["metadata"] = orphan["metadata"] | {"ownerReferences": []}
    (action,) = of_type(planned(changed(seen, objects=seen.objects | {SET: orphan})), ApplyObject)
    assert action.manifest["metadata"]["ownerReferences"][0]["uid"] == "bg-uid"
    assert "template" not in action.manifest["spec"]


def test_shards_that_wait_are_not_wished_yet() -> None:
    group = brokers(shards=5, update={"strategy": "Supervised"})
    seen = shard_world(5, hosted=3, group=group)
    assert applied(seen) == [], "also the Service has no port that nobody answers"
    assert pending(seen)["what"] == "environment GANTRY_GROUPS"
    assert settled_status(seen)["shards"]["ready"] == "3/3"


def test_what_cannot_be_foreseen_now_is_foreseen_later() -> None:
    """A restart that would wait for a replica tells no number of restarts."""
    sick = changed(
        world(image="gantry:2"),
        view=view(member(1), member(2, in_sync=False), member(3, in_sync=False)),
    )
    found = pending(sick)
    assert (found["restarts"], found["what"]) == (0, "image gantry:1 to gantry:2")
    again = changed(with_status(sick), view=view())
    assert pending(again)["restarts"] == 3


def test_automatic_waits_for_nobody() -> None:
    seen = changed(broker_world(), group=brokers(image="gantry:2"))
    assert applied(seen) == ["StatefulSet"]
    assert "pendingChange" not in settled_status(seen)


@pytest.mark.parametrize("text", ["", "yes", "3F2A9C1D", "3f2a9c1d0", "3f2a9c1"])
def test_an_approval_that_can_be_no_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpecError, match=r"update\.approved"):
        supervised(text)
