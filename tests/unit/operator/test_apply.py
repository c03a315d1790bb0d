"""Carrying out plans: preconditions, last looks, and what a failure stops."""

from __future__ import annotations

import base64
from typing import Any, cast

import pytest
from gantry_operator import names
from gantry_operator.api.errors import ApiError, Conflict, Denied, Invalid, Unavailable
from gantry_operator.api.kinds import (
    BROKER_GROUP,
    CLAIM,
    CRON_JOB,
    EVENT,
    POD,
    SECRET,
    SERVICE,
    STATEFULSET,
)
from gantry_operator.builders import broker_objects
from gantry_operator.cache import Cache, Key
from gantry_operator.plan import actions as act
from gantry_operator.reconcile.apply import OFF_RECORD_AGAIN_S, Applier, ApplyOutcome
from gantry_operator.reconcile.events import MAX_NOTE
from gantry_operator.reconcile.quorum_secrets import Secrets
from gantry_protocol.admin import GroupDeclaration
from gantry_protocol.admin_client.errors import AdminRefusedError, QuorumUnreachableError
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable
from unit.operator.fake_admin import FakeAdmin, FakeDirectory
from unit.operator.fake_api import FakeApi
from unit.operator.world import broker_world, brokers, controller_world, member, quorum, view

ORDERS = Key("BrokerGroup", "mq", "orders")
GANTRY = Key("ControllerGroup", "mq", "gantry")
RUNNING = {"containerStatuses": [{"name": "broker", "state": {"running": {}}}]}
WAITING = {"containerStatuses": [{"name": "broker", "state": {"waiting": {}}}]}


class World:
    def __init__(self) -> None:
        self.api = FakeApi()
        self.cache = Cache()
        self.admin = FakeAdmin()
        self.directory = FakeDirectory(self.admin)
        self.applier = Applier(self.api, self.cache, cast("Any", self.directory), Secrets(self.api))
        self.seen: Any = broker_world()
        self.key = ORDERS
        self.resource()

    def resource(self, **changed: Any) -> None:
        """As it was looked at, but for this."""
        meta = {"uid": "bg-uid", "generation": self.seen.meta.generation}
        self.api.have(BROKER_GROUP, "orders", metadata=meta | changed)

    async def apply(self, *actions: act.Action) -> ApplyOutcome:
        return await self.applier.apply(self.key, self.seen, list(actions))

    def pod(self, uid: str = "uid-2", status: dict[str, Any] | None = None, **meta: Any) -> None:
        labels = {"labels": names.labels(names.BROKER, "orders")}
        self.api.have(
            POD, "orders-broker-2", metadata={"uid": uid} | labels | meta, status=status or RUNNING
        )


@pytest.fixture
def world() -> World:
    return World()


def manifest(kind: str = "Service", name: str = "orders") -> dict[str, Any]:
    group = brokers()
    objects = broker_objects(group, controller_world().group, image="i", replicas=3)  # type: ignore[arg-type]
    return next(m for m in objects if (m["kind"], m["metadata"]["name"]) == (kind, name))


# Objects


async def test_a_new_object_is_looked_up_first(world: World) -> None:
    outcome = await world.apply(act.ApplyObject(manifest=manifest(), exists=False))
    assert world.api.calls == ["get Service orders", "apply Service orders"]
    assert world.cache.get(SERVICE, "mq", "orders") is not None
    assert outcome.again, "what was written has to be planned with"


async def test_a_known_object_is_applied(world: World) -> None:
    await world.apply(act.ApplyObject(manifest=manifest(), exists=True))
    assert world.api.calls == ["apply Service orders"]


async def test_a_strangers_object_is_not_taken_over(world: World) -> None:
    world.api.have(SERVICE, "orders", metadata={"ownerReferences": [{"uid": "other"}]})
    outcome = await world.apply(act.ApplyObject(manifest=manifest(), exists=False))
    assert outcome.refusals[0].taken
    assert "apply Service orders" not in world.api.calls
    assert not outcome.again


async def test_our_own_object_that_the_cache_has_not_heard_of_is_applied(world: World) -> None:
    world.api.have(SERVICE, "orders", metadata={"ownerReferences": [{"uid": "bg-uid"}]})
    outcome = await world.apply(act.ApplyObject(manifest=manifest(), exists=False))
    assert outcome.refusals == ()


@pytest.mark.parametrize("kind", [Invalid, Conflict, Denied])
async def test_a_refused_object_stops_what_is_disruptive_only(
    world: World, kind: type[ApiError]
) -> None:
    world.api.refuse("apply", SERVICE, kind(422, "Invalid", "spec.ports: required"))
    outcome = await world.apply(
        act.ApplyObject(manifest=manifest(), exists=True),
        act.ApplyObject(manifest=manifest("StatefulSet", "orders-broker"), exists=True),
        act.WriteStatus(status={"ready": "3/3"}),
        act.Elect(broker_id=2, master_epoch=4),
    )
    assert [r.message for r in outcome.refusals] == ["spec.ports: required"]
    assert "apply StatefulSet orders-broker" in world.api.calls
    assert "status BrokerGroup orders" in world.api.calls
    assert world.admin.asked == []
    assert outcome.dropped


async def test_a_fault_of_the_server_about_one_object_stops_what_is_disruptive_only(
    world: World,
) -> None:
    """A real API server answers 500 to an object that it cannot read."""
    sentence = ".spec.template.spec.affinity.nodeAffinity: expected map, got list"
    world.api.refuse("apply", SERVICE, Unavailable(500, "", sentence))
    world.pod()
    outcome = await world.apply(
        act.ApplyObject(manifest=manifest(), exists=True),
        act.RouteTraffic(name="orders-broker-2", uid="uid-2", on=False),
        act.Declare(declaration=WISH),
        act.WriteStatus(status={}),
        act.Elect(broker_id=2, master_epoch=4),
    )
    (refusal,) = outcome.refusals
    assert (refusal.kind, refusal.name, refusal.message) == ("Service", "orders", sentence)
    assert refusal.passing, "it may be the server's fault alone"
    assert "status BrokerGroup orders" in world.api.calls
    assert "merge Pod orders-broker-2" in world.api.calls
    assert world.admin.asked == ["declare orders 3"]
    assert outcome.dropped


@pytest.mark.parametrize(
    ("verb", "kind"), [("merge", POD), ("status", BROKER_GROUP), ("delete", CRON_JOB)]
)
async def test_a_failing_write_keeps_no_other_from_being_made(
    world: World, verb: str, kind: Any
) -> None:
    plan = (
        act.RouteTraffic(name="orders-broker-2", uid="uid-2", on=False),
        act.DeleteObject(kind="CronJob", name="orders-audit", uid="a"),
        act.WriteStatus(status={}),
    )
    world.api.refuse(verb, kind, Unavailable(500, "", "broken"))
    world.pod()
    world.api.have(CRON_JOB, "orders-audit", metadata={"uid": "a"})
    outcome = await world.apply(*plan)
    told = [(refusal.kind, refusal.passing) for refusal in outcome.refusals]
    if kind is BROKER_GROUP:  # what cannot be told in a status
        assert isinstance(outcome.failure, Unavailable)
    else:
        assert told == [(kind.kind, True)]
    done = {"merge Pod orders-broker-2", "delete CronJob orders-audit", "status BrokerGroup orders"}
    assert done <= set(world.api.calls)


async def test_a_server_that_does_not_answer_ends_the_plan(world: World) -> None:
    world.api.refuse("apply", SERVICE, Unavailable(0, "Timeout", "no answer"))
    with pytest.raises(Unavailable):
        await world.apply(
            act.ApplyObject(manifest=manifest(), exists=True), act.WriteStatus(status={})
        )
    assert "status BrokerGroup orders" not in world.api.calls


# The controllers

WISH = GroupDeclaration(uid="u", replicas=3, min_in_sync_replicas=2, route_address=None)


async def test_words_to_the_controllers(world: World) -> None:
    await world.apply(
        act.Declare(declaration=WISH), act.ReportGone(pod_uid="p"), act.ForgetGroup(uid="u")
    )
    assert world.admin.asked == ["declare orders 3", "gone orders p", "forget orders u"]
    assert world.directory.named[0] == ("mq", "gantry")


async def test_unreachable_controllers_do_not_keep_the_status_from_being_written(
    world: World,
) -> None:
    world.admin.failure["declare"] = QuorumUnreachableError("nobody")
    outcome = await world.apply(
        act.Declare(declaration=WISH),
        act.WriteStatus(status={}),
        act.Elect(broker_id=2, master_epoch=4),
    )
    assert isinstance(outcome.failure, QuorumUnreachableError)
    assert "status BrokerGroup orders" in world.api.calls
    assert world.admin.asked == ["declare orders 3"]


async def test_a_refused_declaration_is_reported(world: World) -> None:
    world.admin.failure["declare"] = AdminRefusedError(409, "UID", "another group")
    outcome = await world.apply(act.Declare(declaration=WISH))
    assert "UID: another group" in outcome.refusals[0].message
    assert not outcome.refusals[0].taken


async def test_an_election(world: World) -> None:
    outcome = await world.apply(act.Elect(broker_id=2, master_epoch=4))
    assert world.admin.asked == ["elect orders 2 4"]
    assert outcome.disruption == "Elect"
    world.admin.failure["elect"] = AdminRefusedError(409, "EPOCH", "changed")
    outcome = await world.apply(act.Elect(broker_id=2, master_epoch=4))
    assert isinstance(outcome.failure, AdminRefusedError)
    assert outcome.disruption == ""


# The last look before a pod is deleted

DELETE = act.DeletePod(
    name="orders-broker-2", uid="uid-2", master_epoch=4, sync_state_set=(1, 2, 3)
)
DEAD = act.DeletePod(name="orders-broker-2", uid="uid-2", only_if_dead=True)
TERM = act.DeletePod(name="orders-broker-2", uid="uid-2", term=6)


async def test_a_pod_is_deleted_as_it_was_seen(world: World) -> None:
    world.pod()
    outcome = await world.apply(DELETE)
    assert outcome.disruption == "DeletePod"
    assert world.api.find(POD, "orders-broker-2") is None
    assert world.api.calls[:2] == ["get Pod orders-broker-2", "delete Pod orders-broker-2"]
    assert world.cache.get(POD, "mq", "orders-broker-2") is None, "nobody plans with it again"


async def test_a_pod_that_changes_between_look_and_deed_survives(world: World) -> None:
    world.pod()
    plain = world.api.get

    async def get(*arguments: Any) -> Any:
        body = await plain(*arguments)
        world.pod()  # a newer version
        return body

    world.api.get = get  # type: ignore[method-assign,assignment]
    outcome = await world.apply(DELETE)
    assert outcome.dropped
    assert outcome.again, "what it is now is planned with at once"
    assert world.api.find(POD, "orders-broker-2") is not None


@pytest.mark.parametrize(
    ("action", "known", "why"),
    [
        pytest.param(DELETE, view(master_epoch=5), "epoch 5", id="epoch"),
        pytest.param(
            DELETE, view(member(1), member(2, in_sync=False), member(3)), "left the", id="set"
        ),
        pytest.param(DELETE, Unreachable("x"), "cannot be asked", id="lost"),
        pytest.param(DELETE, NotDeclared(), "cannot be asked", id="forgotten"),
    ],
)
async def test_a_changed_group_saves_the_pod(
    world: World, action: act.DeletePod, known: Any, why: str
) -> None:
    world.pod()
    world.admin.known = known
    outcome = await world.apply(action)
    assert why in outcome.dropped
    assert outcome.disruption == ""
    assert world.api.find(POD, "orders-broker-2") is not None


async def test_a_larger_set_is_no_reason_to_stop(world: World) -> None:
    world.pod()
    world.admin.known = view(*(member(n) for n in (1, 2, 3, 4)))
    assert (await world.apply(DELETE)).disruption == "DeletePod"


@pytest.mark.parametrize(
    ("action", "uid", "status", "meta", "why"),
    [
        pytest.param(DELETE, "fresh", RUNNING, {}, "was replaced", id="successor"),
        pytest.param(
            DELETE, "uid-2", RUNNING, {"deletionTimestamp": "now"}, "terminating", id="terminating"
        ),
        pytest.param(DEAD, "uid-2", RUNNING, {}, "runs again", id="recovered"),
    ],
)
async def test_a_changed_pod_is_saved(
    world: World, action: act.DeletePod, uid: str, status: Any, meta: Any, why: str
) -> None:
    world.pod(uid, status, **meta)
    assert why in (await world.apply(action)).dropped
    assert world.api.find(POD, "orders-broker-2") is not None


async def test_a_dead_pod_needs_no_controllers(world: World) -> None:
    world.pod(status=WAITING)
    world.admin.known = Unreachable("x")
    assert (await world.apply(DEAD)).disruption == "DeletePod"


async def test_a_pod_that_is_gone_is_gone(world: World) -> None:
    assert (await world.apply(DELETE)).dropped == "the pod is gone"


@pytest.mark.parametrize("known", [quorum(term=7), Unreachable("x")])
async def test_a_changed_quorum_saves_the_pod(world: World, known: Any) -> None:
    world.pod()
    world.admin.quorum = known
    assert (await world.apply(TERM)).dropped
    world.admin.quorum = quorum()
    assert (await world.apply(TERM)).disruption == "DeletePod"


async def test_scaling_down_takes_a_last_look_too(world: World) -> None:
    action = act.ScaleDown(
        manifest=manifest("StatefulSet", "orders-broker"), master_epoch=4, sync_state_set=(1, 2, 3)
    )
    world.admin.known = view(master_epoch=5)
    assert (await world.apply(action)).dropped
    assert world.api.calls == []
    world.admin.known = view()
    assert (await world.apply(action)).disruption == "ScaleDown"
    assert world.cache.get(STATEFULSET, "mq", "orders-broker") is not None


UNLED = [quorum(leader=None), quorum(leader=2), Unreachable("x")]


@pytest.mark.parametrize("known", [quorum(0, 0, 0), *UNLED])
async def test_the_pod_of_a_controller_stays_while_it_takes_part(world: World, known: Any) -> None:
    """Or while nobody can say that it does not."""
    action = act.ScaleDown(manifest=manifest("StatefulSet", "orders-broker"), number=3)
    world.admin.quorum = known
    assert (await world.apply(action)).dropped
    assert world.api.calls == []
    world.admin.quorum = quorum(0, 0)
    assert (await world.apply(action)).disruption == "ScaleDown"


CHANGES: list[tuple[act.ChangeMembers, str]] = [
    (act.ChangeMembers(change="add", number=4, address="q-3.q.mq.svc"), "add 4 q-3.q.mq.svc"),
    (act.ChangeMembers(change="promote", number=4), "promote 4"),
    (act.ChangeMembers(change="remove", number=4), "remove 4"),
    (act.ChangeMembers(change="transfer", number=1), "transfer 1"),
]


@pytest.mark.parametrize(("action", "asked"), CHANGES)
async def test_members_change_by_request_and_are_looked_at_at_once(
    world: World, action: act.ChangeMembers, asked: str
) -> None:
    outcome = await world.apply(action)
    assert world.admin.asked == [asked]
    assert outcome.again
    assert outcome.disruption == "ChangeMembers"


async def test_a_change_of_members_that_the_leader_refuses_is_no_failure(world: World) -> None:
    """It has changed since it was looked at; the next plan starts from what is."""
    sentence = "Learner 4 may not vote yet: its disk is new."
    world.admin.failure["promote"] = AdminRefusedError(409, "REFUSED", sentence)
    outcome = await world.apply(act.ChangeMembers(change="promote", number=4))
    assert sentence in outcome.dropped
    assert not outcome.again
    assert outcome.failure is None


async def test_no_member_is_taken_out_for_a_wish_that_was_taken_back(world: World) -> None:
    world.resource(generation=99)
    assert (await world.apply(act.ChangeMembers(change="remove", number=4))).dropped
    assert world.admin.asked == []


@pytest.mark.parametrize("changed", [{"generation": 99}, {"uid": "another"}])
async def test_no_pod_is_stopped_for_a_wish_that_was_taken_back(
    world: World, changed: dict[str, Any]
) -> None:
    """A watch may be behind: the group was to sleep, and is to be awake again."""
    world.resource(**changed)
    action = act.ScaleDown(manifest=manifest("StatefulSet", "orders-broker"))
    assert (await world.apply(action)).dropped
    assert world.api.calls == ["get BrokerGroup orders"]
    world.resource()
    assert (await world.apply(action)).disruption == "ScaleDown"


async def test_a_statefulset_is_deleted_by_uid(world: World) -> None:
    meta = {"uid": "new", "labels": names.labels(names.BROKER, "orders")}
    world.api.have(STATEFULSET, "orders-broker", metadata=meta)
    stale = await world.apply(act.DeleteStatefulSet(name="orders-broker", uid="old"))
    assert stale.again
    known = world.cache.get(STATEFULSET, "mq", "orders-broker")
    assert known is not None
    assert known["metadata"]["uid"] == "new"
    await world.apply(act.DeleteStatefulSet(name="orders-broker", uid="new"))
    assert world.cache.get(STATEFULSET, "mq", "orders-broker") is None


GONE: list[tuple[act.Action, Any, str]] = [
    (act.DeleteStatefulSet(name="orders-broker", uid="u"), STATEFULSET, "orders-broker"),
    (act.DeleteObject(kind="CronJob", name="orders-audit", uid="u"), CRON_JOB, "orders-audit"),
    (act.LabelPod(name="orders-broker-2", uid="u", role="master"), POD, "orders-broker-2"),
    (act.RouteTraffic(name="orders-broker-2", uid="u", on=False), POD, "orders-broker-2"),
    (act.DeletePod(name="orders-broker-2", uid="u", only_if_dead=True), POD, "orders-broker-2"),
    (act.WriteStatus(status={}), BROKER_GROUP, "orders"),
    (
        act.SetFinalizer(present=False, finalizers=(), resource_version="1"),
        BROKER_GROUP,
        "orders",
    ),
]


@pytest.mark.parametrize("again", ["gone", "replaced"])
@pytest.mark.parametrize(("action", "kind", "name"), GONE, ids=lambda x: type(x).__name__)
async def test_what_the_server_says_is_gone_is_forgotten_at_once(
    world: World, action: act.Action, kind: Any, name: str, again: str
) -> None:
    """No watch may ever report it: who kept it would plan with it for ever."""
    meta = {"uid": "u", "labels": names.labels(names.BROKER, "orders")}
    world.cache.put(kind, world.api.have(kind, name, metadata=meta))
    world.api.objects.pop((kind.kind, "mq", name))
    if again == "replaced":
        world.api.have(kind, name, metadata=meta | {"uid": "successor"})
    outcome = await world.apply(action)
    known = world.cache.get(kind, "mq", name)
    if again == "gone":
        assert known is None
    else:
        assert known is not None
        assert known["metadata"]["uid"] == "successor"
    assert outcome.again or outcome.dropped
    assert outcome.failure is None


async def test_a_contradiction_that_is_not_resolved_is_a_failure(world: World) -> None:
    """Whatever the cache knows is what is: only time can help, not another look at once."""
    world.cache.put(BROKER_GROUP, world.api.have(BROKER_GROUP, "orders"))
    world.api.refuse("status", BROKER_GROUP, Conflict(409, "Conflict", "of the server's own"))
    outcome = await world.apply(act.WriteStatus(status={}))
    assert isinstance(outcome.failure, Conflict)
    assert not outcome.again


async def test_what_the_wish_lost_is_deleted_by_uid(world: World) -> None:
    meta = {"uid": "new", "labels": names.labels(names.AUDIT, "orders")}
    world.api.have(CRON_JOB, "orders-audit", metadata=meta)
    stale = await world.apply(act.DeleteObject(kind="CronJob", name="orders-audit", uid="old"))
    assert stale.again  # another one has its name: look once more, and take nothing away
    assert world.api.find(CRON_JOB, "orders-audit") is not None
    await world.apply(act.DeleteObject(kind="CronJob", name="orders-audit", uid="new"))
    assert world.api.find(CRON_JOB, "orders-audit") is None
    assert world.cache.get(CRON_JOB, "mq", "orders-audit") is None


# Labels, status, finalizer, secret, events


async def test_a_label_is_for_one_incarnation(world: World) -> None:
    world.pod()
    await world.apply(act.LabelPod(name="orders-broker-2", uid="uid-2", role="master"))
    pod = world.api.find(POD, "orders-broker-2")
    assert pod is not None
    assert pod["metadata"]["labels"]["mq.gantry.dev/role"] == "master"
    await world.apply(act.LabelPod(name="orders-broker-2", uid="older", role="replica"))
    await world.apply(act.LabelPod(name="orders-broker-9", uid="older", role="replica"))
    await world.apply(act.RouteTraffic(name="orders-broker-2", uid="uid-2", on=False))
    await world.apply(act.RouteTraffic(name="orders-broker-2", uid="older", on=True))
    pod = world.api.find(POD, "orders-broker-2")
    assert pod is not None
    assert pod["metadata"]["labels"]["mq.gantry.dev/role"] == "master"
    assert pod["metadata"]["labels"]["mq.gantry.dev/traffic"] == "false"


async def test_a_status_is_for_one_resource(world: World) -> None:
    await world.apply(act.WriteStatus(status={"ready": "1/3"}))
    body = world.api.find(BROKER_GROUP, "orders")
    assert body is not None
    assert body["status"] == {"ready": "1/3"}
    assert world.cache.get(BROKER_GROUP, "mq", "orders") == body
    world.api.have(BROKER_GROUP, "orders", metadata={"uid": "successor"})
    assert (await world.apply(act.WriteStatus(status={"ready": "2/3"}))).again
    body = world.api.find(BROKER_GROUP, "orders")
    assert body is not None
    assert "status" not in body
    world.api.objects.clear()
    await world.apply(act.WriteStatus(status={"ready": "2/3"}))


async def test_a_finalizer_needs_the_version_that_was_seen(world: World) -> None:
    body = world.api.find(BROKER_GROUP, "orders")
    assert body is not None
    version = body["metadata"]["resourceVersion"]
    stale = act.SetFinalizer(present=True, finalizers=("a/b",), resource_version="1")
    assert (await world.apply(stale)).again
    await world.apply(act.SetFinalizer(present=True, finalizers=("a/b",), resource_version=version))
    body = world.api.find(BROKER_GROUP, "orders")
    assert body is not None
    assert body["metadata"]["finalizers"] == ["a/b"]


async def test_the_secret_is_made_once_and_never_shown(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.key, world.seen = GANTRY, controller_world()
    outcome = await world.apply(act.EnsureSecret(name="gantry-admin"))
    assert outcome.again
    secret = world.api.find(SECRET, "gantry-admin")
    assert secret is not None
    token = secret["data"]["token"]
    assert len(base64.b64decode(token)) >= 32
    await world.apply(act.EnsureSecret(name="gantry-admin"))
    again = world.api.find(SECRET, "gantry-admin")
    assert again is not None
    assert again["data"]["token"] == token
    assert token not in caplog.text
    assert base64.b64decode(token).decode() not in caplog.text
    assert world.cache.get(SECRET, "mq", "gantry-admin") is None


def event(note: str = "orders-broker-1 became master at epoch 5.") -> act.EmitEvent:
    return act.EmitEvent(type="Normal", reason="MasterElected", note=note)


async def test_an_event_is_posted_once(world: World) -> None:
    await world.apply(event(), event(), event("something else"))
    posted = [body for (kind, _, _), body in world.api.objects.items() if kind == "Event"]
    assert len(posted) == 2
    assert posted[0]["involvedObject"]["uid"] == "bg-uid"
    assert posted[0]["reason"] == "MasterElected"


async def test_a_lost_event_loses_nothing_else(world: World) -> None:
    world.api.refuse("create", EVENT, Unavailable(503, "ServerError", "down"))
    outcome = await world.apply(event(), act.CheckAgain(after_s=2.0))
    assert outcome.check_after_s == 2.0
    assert outcome.failure is None, "nothing is tried again for words"


async def test_an_event_says_no_more_than_fits(world: World) -> None:
    await world.apply(event("x" * 5000))
    (posted,) = [body for (kind, _, _), body in world.api.objects.items() if kind == "Event"]
    assert posted["message"] == "x" * MAX_NOTE


# What an answer brings besides our own change


async def test_the_answer_to_a_status_write_may_bring_a_change_of_the_wish(world: World) -> None:
    heard = world.api.have(BROKER_GROUP, "orders", metadata={"uid": "bg-uid"}, spec={"replicas": 4})
    world.cache.put(BROKER_GROUP, heard)
    assert not (await world.apply(act.WriteStatus(status={"ready": "4/4"}))).again
    changed = world.api.have(
        BROKER_GROUP, "orders", metadata={"uid": "bg-uid"}, spec={"replicas": 2}
    )
    outcome = await world.apply(act.WriteStatus(status={"ready": "3/4"}))
    assert not world.cache.put(BROKER_GROUP, changed), "the event of the change comes too late"
    assert outcome.again


async def test_the_answer_to_a_label_may_bring_a_change_of_the_pod(world: World) -> None:
    label = act.LabelPod(name="orders-broker-2", uid="uid-2", role="master")
    world.pod()
    world.cache.put(POD, world.api.find(POD, "orders-broker-2") or {})
    assert not (await world.apply(label)).again
    world.pod(status=WAITING)
    assert (await world.apply(label)).again


@pytest.mark.parametrize(
    "action", [act.RetireGroup(uid="bg-uid"), act.ForgetMember(broker_id=4, incarnation="n4")]
)
async def test_who_the_controllers_keep_on_record_is_asked_for_again(
    world: World, action: act.Action
) -> None:
    refused = AdminRefusedError(409, "ALIVE", "broker 4 is alive")
    world.admin.failure = {"retire": refused, "forget-member": refused}
    outcome = await world.apply(action)
    assert (outcome.failure, outcome.refusals) == (None, ())
    assert outcome.check_after_s == OFF_RECORD_AGAIN_S


@pytest.mark.parametrize(
    ("error", "fails"),
    [
        (AdminRefusedError(409, "INVALID_REQUEST", "finish the roll-out first"), False),
        (QuorumUnreachableError("no leader answers"), True),
    ],
)
async def test_why_a_drain_does_not_begin_is_remembered(
    world: World, error: Exception, fails: bool
) -> None:
    world.admin.failure = {"drain": error}
    outcome = await world.apply(act.DrainGroup(uid="bg-uid"), act.CheckAgain(after_s=2.0))
    assert outcome.refused_drains == {"": str(error)}
    assert (outcome.failure is error, outcome.check_after_s) == (fails, 2.0)
    world.admin.failure = {}
    assert (await world.apply(act.DrainGroup(uid="bg-uid"))).refused_drains == {}


async def test_copies_of_a_tier_are_adopted_and_the_refusal_is_no_failure(world: World) -> None:
    outcome = await world.apply(act.AdoptCopies(broker_ids=(1, 2, 3)))
    assert world.admin.asked == [f"adopt {world.seen.view.name} 1 2 3"]
    assert outcome.again
    world.admin.failure = {"adopt": AdminRefusedError(409, "INVALID_REQUEST", "look again")}
    outcome = await world.apply(act.AdoptCopies(broker_ids=(1, 2)))
    assert outcome.failure is None
    assert outcome.check_after_s is not None


# Shards


async def test_what_is_about_a_shard_is_told_by_its_name(world: World) -> None:
    shard = "orders_1"
    await world.apply(
        act.Declare(declaration=WISH, group=shard),
        act.ReportGone(pod_uid="p", group=shard),
        act.DrainGroup(uid="u", group=shard),
        act.RetireGroup(uid="u", group=shard),
        act.EndDrain(group=shard),
        act.ForgetMember(broker_id=2, incarnation="i", group=shard),
        act.ForgetGroup(uid="u", group=shard),
        act.Elect(broker_id=2, master_epoch=4, group=shard),
    )
    assert {" ".join(one.split()[:2]) for one in world.admin.asked} == {
        f"{verb} {shard}"
        for verb in (
            *("declare", "gone", "drain", "end-drain", "retire"),
            *("forget-member", "forget", "elect"),
        )
    }


ELECTIONS = act.ElectEach(
    elections=tuple(
        act.Elect(broker_id=n + 1, master_epoch=4 + n, group=f"orders_{n}") for n in range(2)
    )
)


async def test_all_elections_of_a_step_are_held(world: World) -> None:
    outcome = await world.apply(ELECTIONS)
    assert world.admin.asked == ["elect orders_0 1 4", "elect orders_1 2 5"]
    assert outcome.disruption == "ElectEach"


async def test_a_refused_election_keeps_no_other_from_being_held(world: World) -> None:
    world.admin.failure["elect orders_0"] = AdminRefusedError(409, "EPOCH", "changed")
    outcome = await world.apply(ELECTIONS)
    assert world.admin.asked[-1] == "elect orders_1 2 5"
    assert outcome.disruption == "ElectEach"
    world.admin.failure["elect"] = AdminRefusedError(409, "EPOCH", "changed")
    outcome = await world.apply(ELECTIONS)
    assert (outcome.disruption, outcome.dropped) == ("", "orders_0: EPOCH: changed")


COUNTED = act.DeletePod(
    name="orders-broker-2",
    uid="uid-2",
    shards=tuple(act.Counted(f"orders_{n}", 4, (1, 2, 3)) for n in range(2)),
)


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (view(master_epoch=5), "orders_1 is in epoch 5 now"),
        (view(sync_state_set=[1, 2]), "a member left the sync-state set of orders_1"),
        (Unreachable("down"), "the controllers cannot be asked any more"),
    ],
)
async def test_a_pod_stays_if_any_of_its_shards_has_changed(
    world: World, known: Any, why: str
) -> None:
    world.pod()
    world.admin.shards = {"orders_1": known}
    assert (await world.apply(COUNTED)).dropped == why
    assert world.api.find(POD, "orders-broker-2") is not None
    world.admin.shards = {}
    assert (await world.apply(COUNTED)).disruption == "DeletePod"
    assert {"group orders_0", "group orders_1"} <= set(world.admin.asked)


# Volumes

GROW = act.GrowClaim(name="data-orders-broker-2", uid="c", size="20Gi")


async def test_a_claim_is_asked_for_its_new_size(world: World) -> None:
    patches: list[Any] = []

    async def merge(_kind: Any, _namespace: str, name: str, patch: Any) -> Any:
        patches.append((name, patch))
        return {}

    world.api.merge = merge  # type: ignore[method-assign]
    outcome = await world.apply(GROW)
    size = {"resources": {"requests": {"storage": "20Gi"}}}
    assert patches == [("data-orders-broker-2", {"metadata": {"uid": "c"}, "spec": size})]
    assert outcome.growth == {"data-orders-broker-2": ("20Gi", "")}


@pytest.mark.parametrize("kind", [Invalid, Denied])
async def test_a_claim_that_is_refused_stops_nothing(world: World, kind: type[ApiError]) -> None:
    world.api.have(CLAIM, "data-orders-broker-2", metadata={"uid": "c"})
    world.api.refuse("merge", CLAIM, kind(403, "Forbidden", "no expansion"))
    world.api.have(STATEFULSET, "orders-broker", metadata={"uid": "s"})
    outcome = await world.apply(GROW, act.DeleteStatefulSet(name="orders-broker", uid="s"))
    assert outcome.growth == {"data-orders-broker-2": ("20Gi", "no expansion")}
    assert (outcome.refusals, outcome.failure) == ((), None)
    assert outcome.disruption == "DeleteStatefulSet"


async def test_a_claim_that_is_another_one_by_now_is_left_alone(world: World) -> None:
    world.api.have(CLAIM, "data-orders-broker-2", metadata={"uid": "d"})
    assert (await world.apply(GROW)).growth == {}
