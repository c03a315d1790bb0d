"""From events to keys to looks: what starts a reconcile, and what one failure does to the rest."""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
from typing import Any, cast

import pytest
from gantry_operator import names
from gantry_operator.api.errors import Ending, Invalid, TooManyRequests, Unavailable
from gantry_operator.api.kinds import (
    BROKER_GROUP,
    CONTROLLER_GROUP,
    CUSTOM,
    EVENT,
    FRONT_GROUP,
    POD,
    SECRET,
    SERVICE,
    STATEFULSET,
    WATCHED,
)
from gantry_operator.cache import Cache, Key
from gantry_operator.health import Health
from gantry_operator.heard import Listener
from gantry_operator.metrics import Metrics
from gantry_operator.plan import plan as plain
from gantry_operator.plan.actions import ApplyObject, WriteStatus
from gantry_operator.plan.observed import BrokerObserved, ControllerObserved
from gantry_operator.reconcile import repeats
from gantry_operator.reconcile import worker as worker_module
from gantry_operator.reconcile.apply import Applier
from gantry_operator.reconcile.claims import Claims
from gantry_operator.reconcile.fleet import Fleet
from gantry_operator.reconcile.observe import ASK_AT_ONCE, Observer
from gantry_operator.reconcile.quorum_secrets import Secrets
from gantry_operator.reconcile.worker import Reconciler
from gantry_operator.resync import Resync
from gantry_operator.shell import kopf_settings
from gantry_operator.workqueue import WorkQueue
from gantry_protocol.admin_client.errors import AdminRefusedError, QuorumUnreachableError
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable
from prometheus_client import CollectorRegistry
from support.decided_again import again, recorder
from unit.operator.fake_admin import FakeAdmin, FakeDirectory
from unit.operator.fake_api import FakeApi
from unit.operator.world import view

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
ORDERS = Key("BrokerGroup", "mq", "orders")
GANTRY = Key("ControllerGroup", "mq", "gantry")
NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)


class World:
    """A cluster in memory and one operator's inner parts."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.cache = Cache()
        self.queue: WorkQueue[Key] = WorkQueue()
        self.admin = FakeAdmin()
        self.directory = FakeDirectory(self.admin)
        self.metrics = Metrics(CollectorRegistry())
        self.listener = Listener(self.cache, self.queue)
        directory = cast("Any", self.directory)
        self.secrets = Secrets(self.api)
        fleet = Fleet(self.cache, "gantry:1", 1, self.metrics)
        self.observer = Observer(self.cache, directory, self.secrets, Claims(self.api), fleet)
        self.reconciler = Reconciler(
            self.queue,
            self.observer,
            Applier(self.api, self.cache, directory, self.secrets),
            directory,
            self.metrics,
            cast("Any", None),
            lambda: NOW,
        )

    def have(self, kind: Any, name: str, **parts: Any) -> dict[str, Any]:
        """An object that exists and was heard of."""
        body = self.api.have(kind, name, **parts)
        self.listener.hear(kind, "ADDED", body)
        return body

    def groups(self) -> None:
        """The two resources of every test."""
        self.have(CONTROLLER_GROUP, "gantry", metadata={"generation": 1}, spec={})
        self.have(BROKER_GROUP, "orders", metadata={"generation": 1}, spec={})

    async def drain(self) -> list[Key]:
        """Keys that are due now."""
        found = []
        while len(self.queue):
            key = await self.queue.get()
            self.queue.done(key)
            found.append(key)
        return found

    async def settle(self) -> None:
        """Reconciles what is due, a bounded number of times."""
        for _ in range(50):
            if not len(self.queue):
                return
            key = await self.queue.get()
            await self.reconciler.reconcile(key)
            self.queue.done(key)
        raise AssertionError("the operator does not come to rest")

    def count(self, name: str, kind: str = "BrokerGroup") -> float:
        value = self.metrics.registry.get_sample_value(f"gantry_operator_{name}", {"kind": kind})
        return value or 0.0

    def result(self, kind: str, result: str) -> float:
        labels = {"kind": kind, "result": result}
        value = self.metrics.registry.get_sample_value("gantry_operator_reconciles_total", labels)
        return value or 0.0


# What is heard


async def test_events_become_keys() -> None:
    world = World()
    world.have(BROKER_GROUP, "orders")
    assert await world.drain() == [ORDERS]
    world.have(POD, "orders-broker-0", metadata={"labels": names.labels(names.BROKER, "orders")})
    assert await world.drain() == [ORDERS]
    world.have(POD, "stranger", metadata={"labels": {"app": "x"}})
    assert await world.drain() == []


async def test_what_is_known_starts_nothing() -> None:
    world = World()
    body = world.have(BROKER_GROUP, "orders")
    await world.drain()
    world.listener.hear(BROKER_GROUP, None, body)
    world.listener.hear(BROKER_GROUP, "MODIFIED", body)
    assert await world.drain() == []
    world.listener.hear(BROKER_GROUP, "DELETED", body)
    world.listener.hear(BROKER_GROUP, "DELETED", body)
    assert await world.drain() == [ORDERS]


async def test_a_controller_group_wakes_those_that_refer_to_it() -> None:
    world = World()
    world.have(BROKER_GROUP, "orders", spec={})
    world.have(BROKER_GROUP, "other", spec={"controllerRef": {"name": "elsewhere"}})
    world.have(BROKER_GROUP, "far", metadata={"namespace": "far"}, spec={})
    await world.drain()
    body = world.have(CONTROLLER_GROUP, "gantry", spec={})
    assert set(await world.drain()) == {GANTRY, ORDERS}
    world.api._store(CONTROLLER_GROUP, body | {"status": {"x": 1}})
    world.listener.hear(
        CONTROLLER_GROUP, "MODIFIED", world.api.objects["ControllerGroup", "mq", "gantry"]
    )
    assert await world.drain() == [GANTRY], "a status is nobody else's business"
    world.listener.hear(
        CONTROLLER_GROUP, "DELETED", world.api.objects["ControllerGroup", "mq", "gantry"]
    )
    assert set(await world.drain()) == {GANTRY, ORDERS}


async def test_silent_controllers_wake_what_rests_on_their_word() -> None:
    world = World()
    world.have(CONTROLLER_GROUP, "gantry", spec={})
    world.have(BROKER_GROUP, "orders", spec={})
    world.have(BROKER_GROUP, "other", spec={"controllerRef": {"name": "elsewhere"}})
    await world.drain()
    world.listener.evidence_changed("mq", "gantry")
    assert set(await world.drain()) == {GANTRY, ORDERS}


async def test_changed_roles_are_urgent() -> None:
    world = World()
    world.have(CONTROLLER_GROUP, "gantry")
    world.listener.roles_changed("mq", "orders")
    assert await world.drain() == [ORDERS, GANTRY]


async def test_changed_roles_of_a_shard_are_those_of_its_resource() -> None:
    world = World()
    world.listener.roles_changed("mq", "orders_12")
    assert await world.drain() == [ORDERS]


@pytest.mark.parametrize("kind", [BROKER_GROUP, FRONT_GROUP])
@pytest.mark.parametrize("refers", ["gantry", "elsewhere"])
async def test_a_quorum_keeps_its_finalizer_for_a_group_that_no_watch_has_brought(
    refers: str, kind: Any
) -> None:
    world = World()
    meta = {"finalizers": [names.QUORUM_FINALIZER], "deletionTimestamp": "2026-11-21T11:59:00Z"}
    world.have(CONTROLLER_GROUP, "gantry", metadata=meta | {"generation": 1}, spec={})
    late = world.api.have(kind, "late", spec={"controllerRef": {"name": refers}})
    await world.settle()
    body = world.api.find(CONTROLLER_GROUP, "gantry")
    assert body is not None
    assert bool(body["metadata"]["finalizers"]) == (refers == "gantry")
    world.listener.hear(kind, "ADDED", late)
    await world.settle()
    body = world.api.find(CONTROLLER_GROUP, "gantry")
    assert body is not None
    assert ("late" in str(body.get("status"))) == (refers == "gantry"), "it says what it waits for"


async def test_what_a_deletion_has_cut_loose_is_not_taken_back() -> None:
    """With --cascade=orphan; the watch of the pods' owner is late."""
    world = World()
    world.groups()
    await world.settle()
    group = world.api.find(BROKER_GROUP, "orders")
    loose = world.api.find(STATEFULSET, "orders-broker")
    assert group is not None
    assert loose is not None
    world.api._store(
        BROKER_GROUP,
        group
        | {
            "metadata": group["metadata"]
            | {"finalizers": ["orphan"], "deletionTimestamp": "2026-11-21T11:59:00Z"}
        },
    )
    meta = {key: value for key, value in loose["metadata"].items() if key != "ownerReferences"}
    world.have(STATEFULSET, "orders-broker", metadata=meta, spec=loose["spec"])
    await world.settle()
    kept = world.api.find(STATEFULSET, "orders-broker")
    assert kept is not None
    assert not kept["metadata"].get("ownerReferences")


@pytest.mark.parametrize("finalizer", [None, names.DRAIN_FINALIZER, names.FINALIZER])
async def test_a_group_that_a_deletion_has_cut_loose_is_not_retired(finalizer: str | None) -> None:
    """The references are cut, the API server's own finalizer is off, and that watch came first."""
    world = World()
    world.groups()
    await world.settle()
    group = world.api.find(BROKER_GROUP, "orders")
    pods = world.api.find(STATEFULSET, "orders-broker")
    assert group is not None
    assert pods is not None
    world.admin.known = view(uid=group["metadata"]["uid"])
    ending = {
        "finalizers": [finalizer] if finalizer else [],
        "deletionTimestamp": "2026-11-21T11:59:00Z",
    }
    meta = {key: value for key, value in pods["metadata"].items() if key != "ownerReferences"}
    world.api._store(STATEFULSET, pods | {"metadata": meta})
    world.have(
        BROKER_GROUP,
        "orders",
        metadata=group["metadata"] | ending,
        spec=group["spec"] | {"storage": {"whenDeleted": "Delete"}},
    )
    await world.settle()
    assert not [one for one in world.admin.asked if one.startswith(("retire", "drain", "forget"))]
    assert world.api.find(STATEFULSET, "orders-broker") is not None


# Observation


async def test_an_observation_joins_what_belongs_together() -> None:
    world = World()
    world.groups()
    world.have(
        STATEFULSET,
        "orders-broker",
        metadata={"labels": names.labels(names.BROKER, "orders")},
        spec={"replicas": 3},
    )
    for n in (1, 0):
        labels = {"labels": names.labels(names.BROKER, "orders")}
        world.have(POD, f"orders-broker-{n}", metadata=labels)
    seen = await world.observer.observe(ORDERS)
    assert isinstance(seen, BrokerObserved)
    assert [pod.name for pod in seen.pods] == ["orders-broker-0", "orders-broker-1"]
    assert set(seen.objects) == {("StatefulSet", "orders-broker")}
    assert seen.view == view()
    assert seen.controllers is not None
    assert (seen.image, seen.meta.generation) == ("gantry:1", 1)


@pytest.mark.parametrize(("wished", "hosted"), [(12, 12), (2, 12), (12, 2)])
async def test_every_shard_that_is_wished_or_hosted_is_asked_for(wished: int, hosted: int) -> None:
    world = World()
    world.have(CONTROLLER_GROUP, "gantry", metadata={"generation": 1}, spec={})
    world.have(BROKER_GROUP, "orders", metadata={"generation": 1}, spec={"shards": wished})
    meta = {"labels": names.labels(names.BROKER, "orders")}
    meta["annotations"] = {names.ANNOTATION_SHARDS: str(hosted)}
    world.have(STATEFULSET, "orders-broker", metadata=meta, spec={"replicas": 3})
    world.admin.shards = {"orders_11": NotDeclared()}
    seen = await world.observer.observe(ORDERS)
    assert isinstance(seen, BrokerObserved)
    assert [one.name for one in seen.shards] == [f"orders_{n}" for n in range(12)]
    assert [one.view for one in seen.shards] == [view()] * 11 + [NotDeclared()]
    assert seen.view == NotDeclared()


@pytest.mark.parametrize(("finalizers", "count"), [([names.FINALIZER], 5), ([], 2)])
async def test_shards_of_former_times_are_forgotten_with_their_resource(
    finalizers: list[str], count: int
) -> None:
    world = World()
    world.have(CONTROLLER_GROUP, "gantry", metadata={"generation": 1}, spec={})
    going = {"finalizers": finalizers, "deletionTimestamp": "2026-11-21T11:59:00Z"}
    world.have(BROKER_GROUP, "orders", metadata={"generation": 1} | going, spec={"shards": 2})
    world.directory.known = {("mq", "orders_4"), ("mq", "returns_7"), ("other", "orders_9")}
    seen = await world.observer.observe(ORDERS)
    assert isinstance(seen, BrokerObserved)
    assert [one.name for one in seen.shards] == [f"orders_{n}" for n in range(count)]


async def test_controllers_that_do_not_answer_are_not_asked_for_each_shard() -> None:
    world = World()
    world.have(CONTROLLER_GROUP, "gantry", metadata={"generation": 1}, spec={})
    world.have(BROKER_GROUP, "orders", metadata={"generation": 1}, spec={"shards": 100})
    world.admin.known = Unreachable("down")
    seen = await world.observer.observe(ORDERS)
    assert isinstance(seen, BrokerObserved)
    assert {one.view for one in seen.shards} == {Unreachable("down")} == {seen.view}
    assert len(seen.shards) == 100
    assert len(world.admin.asked) == ASK_AT_ONCE


async def test_what_does_not_exist_is_not_observed() -> None:
    world = World()
    assert await world.observer.observe(ORDERS) is None


@pytest.mark.parametrize(
    ("spec", "exists"), [({"replicas": 4}, True), ({}, True)], ids=["invalid", "valid"]
)
async def test_an_invalid_controller_group_exists_all_the_same(spec: Any, exists: bool) -> None:
    world = World()
    world.groups()
    world.have(CONTROLLER_GROUP, "gantry", spec=spec)
    seen = await world.observer.observe(ORDERS)
    assert isinstance(seen, BrokerObserved)
    assert seen.controllers_exist is exists
    assert (seen.controllers is None) is (spec != {})


@pytest.mark.parametrize("left", [None, STATEFULSET, POD], ids=["nothing", "set", "pod"])
async def test_a_quorum_that_ends_exists_as_long_as_anything_of_it_may_answer(left: Any) -> None:
    """Or the group of a namespace that is deleted waits for it, and it for the group."""
    world = World()
    world.groups()
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [names.QUORUM_FINALIZER]}
    world.have(CONTROLLER_GROUP, "gantry", metadata=leaving)
    if left is not None:
        labels = {"labels": names.labels(names.CONTROLLER, "gantry")}
        name = "gantry-controller" if left is STATEFULSET else "gantry-controller-0"
        world.have(left, name, metadata=labels)
    seen = await world.observer.observe(ORDERS)
    assert isinstance(seen, BrokerObserved)
    assert seen.controllers_exist is (left is not None)


async def test_without_controllers_nobody_is_asked() -> None:
    world = World()
    world.have(BROKER_GROUP, "orders", spec={})
    seen = await world.observer.observe(ORDERS)
    assert isinstance(seen, BrokerObserved)
    assert seen.view == Unreachable("There is no ControllerGroup gantry.")
    assert world.admin.asked == []


async def test_an_unreadable_status_does_not_make_the_spec_invalid() -> None:
    world = World()
    world.groups()
    world.have(BROKER_GROUP, "orders", spec={}, status={"members": "of a newer version"})
    seen = await world.observer.observe(ORDERS)
    assert isinstance(seen, BrokerObserved)
    assert seen.group is not None
    assert seen.previous is None
    assert seen.live_status == {"members": "of a newer version"}


async def test_an_invalid_spec_is_observed_with_its_reason() -> None:
    world = World()
    world.groups()
    world.have(BROKER_GROUP, "orders", spec={"replicas": 99})
    seen = await world.observer.observe(ORDERS)
    assert isinstance(seen, BrokerObserved)
    assert seen.group is None
    assert "spec.replicas" in seen.invalid


async def test_a_controller_group_is_asked_once_it_has_pods_and_a_secret() -> None:
    world = World()
    world.groups()
    seen = await world.observer.observe(GANTRY)
    assert isinstance(seen, ControllerObserved)
    assert isinstance(seen.quorum, Unreachable)
    assert seen.missing_secrets == ("gantry-admin", "gantry-quorum-key")
    world.api.have(SECRET, "gantry-admin")
    world.api.have(SECRET, "gantry-quorum-key")
    labels = {"labels": names.labels(names.CONTROLLER, "gantry")}
    world.have(POD, "gantry-controller-0", metadata=labels)
    seen = await world.observer.observe(GANTRY)
    assert isinstance(seen, ControllerObserved)
    assert seen.missing_secrets == ()
    assert seen.quorum == world.admin.quorum


# Reconciling


async def test_a_new_group_is_built_and_the_operator_comes_to_rest() -> None:
    world = World()
    world.groups()
    await world.settle()
    kinds = {kind for kind, _, _ in world.api.objects}
    assert {"StatefulSet", "Service", "ConfigMap", "PodDisruptionBudget", "Secret"} <= kinds
    assert world.api.find(STATEFULSET, "orders-broker")
    assert world.directory.followed[0] == ("mq", "gantry")
    calls = len(world.api.calls)
    await world.reconciler.reconcile(ORDERS)
    later = world.api.calls[calls:]
    assert later == [], "nothing is written twice"


async def test_a_drift_that_cannot_be_repaired_does_not_spin() -> None:
    world = World()
    world.groups()
    plain = world.api.apply

    async def rewrite(kind: Any, body: Any, **options: Any) -> Any:
        """An API server that writes one field in its own way."""
        live = await plain(kind, body, **options)
        if kind == SERVICE:
            live["spec"]["selector"] = {"rewritten": "x"}
        return live

    world.api.apply = rewrite  # type: ignore[method-assign]
    await world.settle()


async def test_a_failing_api_server_is_tried_again() -> None:
    world = World()
    world.groups()
    world.api.refuse("get", SERVICE, Unavailable(503, "ServerError", "down"), times=1)
    await world.drain()
    await world.reconciler.reconcile(ORDERS)
    assert world.result("BrokerGroup", "retry") == 1
    assert world.queue.failures(ORDERS) == 1
    await asyncio.sleep(1)
    await world.settle()
    assert world.api.find(STATEFULSET, "orders-broker")
    assert world.queue.failures(ORDERS) == 0


@pytest.mark.parametrize(
    ("verb", "kind", "result", "failures"),
    [("apply", STATEFULSET, "ending", 1), ("create", EVENT, "ok", 0)],
)
async def test_a_namespace_that_ends_is_left_in_peace(
    verb: str, kind: Any, result: str, failures: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    world.groups()
    world.api.refuse(verb, kind, Ending(403, "Forbidden", "mq is being terminated"))
    await world.drain()
    await world.reconciler.reconcile(ORDERS)
    assert f"{verb} {kind.kind}" in " ".join(world.api.calls)
    assert world.result("BrokerGroup", result) == 1
    assert world.queue.failures(ORDERS) == failures
    assert "terminated" not in caplog.text


async def test_a_refused_drain_is_told_until_it_begins() -> None:
    world = World()
    world.groups()
    world.have(BROKER_GROUP, "audit", metadata={"generation": 1}, spec={})
    going = {
        "generation": 1,
        "finalizers": [names.DRAIN_FINALIZER],
        "deletionTimestamp": "2026-11-21T11:59:00Z",
    }
    orders = world.have(BROKER_GROUP, "orders", metadata=going, spec={})
    known = {"has_others": True, "uid": orders["metadata"]["uid"]}
    world.admin.known = view(**known)
    world.admin.failure = {"drain": AdminRefusedError(409, "OLD", "finish the roll-out first")}

    async def reason_after_two_looks() -> tuple[str, str]:
        for _ in range(2):
            await world.reconciler.reconcile(ORDERS)
        found = world.api.find(BROKER_GROUP, "orders") or {}
        one = next(c for c in found["status"]["conditions"] if c["type"] == "Progressing")
        return one["reason"], one["message"]

    reason, message = await reason_after_two_looks()
    assert reason == "DrainRefused"
    assert "that failed: OLD: finish the roll-out first. It is asked for again;" in message
    world.admin.failure = {}
    await world.reconciler.reconcile(ORDERS)
    world.admin.known = view(**known, drain_began_ms=1)
    assert (await reason_after_two_looks())[0] == "Draining"


async def test_a_busy_api_server_is_waited_for(looptime: Any) -> None:
    world = World()
    world.groups()
    await world.drain()
    world.api.refuse("get", SERVICE, TooManyRequests(429, "TooManyRequests", "busy", 9.0), times=1)
    await world.reconciler.reconcile(ORDERS)
    assert await world.queue.get() == ORDERS
    assert looptime == 9


async def test_a_fault_of_ours_is_contained(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    world.groups()
    await world.drain()

    def faulty(seen: Any, now: Any) -> Any:
        if isinstance(seen, BrokerObserved):
            raise ZeroDivisionError("a rule that nobody tested")
        return plain(seen, now)

    monkeypatch.setattr(worker_module, "plan", faulty)
    await world.reconciler.reconcile(ORDERS)
    assert world.result("BrokerGroup", "bug") == 1
    assert "a rule that nobody tested" in caplog.text
    await world.reconciler.reconcile(GANTRY)
    assert world.result("ControllerGroup", "ok") == 1
    assert world.queue.failures(ORDERS) == 1


async def test_a_refusal_is_reported_and_tried_again_later_each_time() -> None:
    world = World()
    world.groups()
    world.api.have(SERVICE, "orders", metadata={"ownerReferences": [{"uid": "other"}]})
    await world.settle()
    body = world.api.find(BROKER_GROUP, "orders")
    assert body is not None
    accepted = next(c for c in body["status"]["conditions"] if c["type"] == "Accepted")
    assert accepted["reason"] == "NameTaken"
    failures = world.queue.failures(ORDERS)
    await asyncio.sleep(5)
    await world.settle()
    assert world.queue.failures(ORDERS) > failures
    del world.api.objects["Service", "mq", "orders"]
    await asyncio.sleep(60)
    await world.settle()
    body = world.api.find(BROKER_GROUP, "orders")
    assert body is not None
    accepted = next(c for c in body["status"]["conditions"] if c["type"] == "Accepted")
    assert accepted["status"] == "True"
    assert world.queue.failures(ORDERS) == 0


async def test_a_fault_of_the_server_is_told_only_once_it_lasts() -> None:
    world = World()
    world.groups()
    await world.drain()
    world.api.refuse("apply", SERVICE, Unavailable(503, "ServerError", "down"), times=100)
    told_after = []
    for _ in range(6):
        failed_before = world.queue.failures(ORDERS)
        await world.reconciler.reconcile(ORDERS)
        if ORDERS in world.observer.refusals:
            told_after.append(failed_before)
    assert told_after[0] == worker_module.LASTING_FAILURES


async def test_a_plan_without_effect_is_slowed_down_and_told(
    looptime: Any, repeated: list[str]
) -> None:
    """A program that takes a change back as soon as it is made, or an object that is not there."""
    world = World()
    world.groups()
    await world.settle()
    plain = world.api.apply

    async def fought(kind: Any, body: Any, **options: Any) -> Any:
        live = await plain(kind, body, **options)
        world.have(kind, body["metadata"]["name"], metadata=live["metadata"], spec={"x": "y"})
        return live

    world.api.apply = fought  # type: ignore[method-assign]
    service = world.api.find(SERVICE, "orders")
    assert service is not None
    world.have(SERVICE, "orders", metadata=service["metadata"], spec={})
    for _ in range(100):
        key = await world.queue.get()
        await world.reconciler.reconcile(key)
        world.queue.done(key)
        if looptime > 60:
            break
    applied = world.api.calls.count("apply Service orders") - 1
    assert repeats.LIMIT < applied < repeats.LIMIT + 12, "later each time"
    told = [body for (kind, _, _), body in world.api.objects.items() if kind == "Event"]
    (warning,) = [body for body in told if body["reason"] == "Repeating"]
    assert "ApplyObject Service/orders" in warning["message"]
    assert world.count("repeated_reconciles_total") == len(repeated) > 0
    repeated.clear()


async def test_a_program_that_is_heard_to_take_every_change_back_is_not_fought_at_its_pace(
    looptime: Any, repeated: list[str]
) -> None:
    """Each of its writes is news, which would bring the key back at once."""
    world = World()
    world.groups()
    await world.settle()
    service = world.api.find(SERVICE, "orders")
    assert service is not None
    plain, taken_back = (
        world.api.apply,
        functools.partial(
            world.have, SERVICE, "orders", metadata=service["metadata"], spec={"x": "y"}
        ),
    )

    async def fought(kind: Any, body: Any, **options: Any) -> Any:
        live = await plain(kind, body, **options)
        if kind is SERVICE:
            asyncio.get_running_loop().call_later(0.01, taken_back)
        return live

    world.api.apply = fought  # type: ignore[method-assign]
    taken_back()
    before = world.api.calls.count("apply Service orders")
    for _ in range(300):
        key = await world.queue.get()
        await world.reconciler.reconcile(key)
        world.queue.done(key)
        if looptime > 60:
            break
    applied = world.api.calls.count("apply Service orders") - before
    assert repeats.LIMIT < applied < repeats.LIMIT + 12, "later each time"
    # What else is to be done waits for nothing.
    world.have(BROKER_GROUP, "orders", metadata={"generation": 2}, spec={"replicas": 5})
    await world.settle()
    assert "apply StatefulSet orders-broker" in world.api.calls[-20:]
    repeated.clear()


async def test_a_status_between_two_rounds_is_no_end_of_the_row() -> None:
    """A fight over a StatefulSet says so, and says that it is over, in each round."""
    rows = repeats.Repeats()
    meta = {"name": "orders-broker"}
    apply = ApplyObject(manifest={"kind": "StatefulSet", "metadata": meta}, exists=True)
    counts = []
    for at_s in range(repeats.LIMIT + 1):
        counts.append(rows.note(ORDERS, [apply, WriteStatus(status={"at": at_s})], at_s))
        rows.note(ORDERS, [WriteStatus(status={"at": -at_s})], at_s)
    assert counts == list(range(1, repeats.LIMIT + 2))
    assert rows.held_s(ORDERS, [apply], repeats.LIMIT) > 0
    assert rows.held_s(ORDERS, [WriteStatus(status={})], repeats.LIMIT) == 0


async def test_a_new_refusal_is_reported_at_once(looptime: Any) -> None:
    world = World()
    world.groups()
    await world.settle()
    world.api.refuse("apply", STATEFULSET, Invalid(422, "Invalid", "no such field"))
    world.have(BROKER_GROUP, "orders", metadata={"generation": 2}, spec={"image": "gantry:2"})
    await world.settle()
    assert looptime == 0
    body = world.api.find(BROKER_GROUP, "orders")
    assert body is not None
    accepted = next(c for c in body["status"]["conditions"] if c["type"] == "Accepted")
    assert accepted["message"] == "StatefulSet orders-broker: no such field"


async def test_unreachable_controllers_are_a_status_and_a_retry() -> None:
    world = World()
    world.groups()
    await world.settle()
    world.admin.known = view(replicas=2)
    world.admin.failure["declare"] = QuorumUnreachableError("nobody answers")
    service = world.api.find(SERVICE, "orders")
    assert service is not None
    service["spec"]["clusterIP"] = "10.0.0.1"
    world.cache.remove(SERVICE, service)
    world.cache.put(SERVICE, service)
    await world.reconciler.reconcile(ORDERS)
    assert world.result("BrokerGroup", "retry") == 1


async def test_a_deleted_resource_is_forgotten() -> None:
    world = World()
    world.groups()
    await world.settle()
    labels = {"namespace": "mq", "group": "orders"}
    sample = world.metrics.registry.get_sample_value
    assert sample("gantry_group_available", labels) is not None
    for kind, name in ((BROKER_GROUP, "orders"), (CONTROLLER_GROUP, "gantry")):
        body = world.api.find(kind, name)
        assert body is not None
        world.listener.hear(kind, "DELETED", body)
    await world.settle()
    assert sample("gantry_group_available", labels) is None
    assert world.directory.dropped == [("mq", "gantry")]
    await world.reconciler.reconcile(ORDERS)


async def test_who_does_not_lead_writes_and_retires_nothing() -> None:
    world = World()
    world.reconciler._leads = lambda: False
    world.groups()
    await world.settle()
    assert {call.split()[0] for call in world.api.calls} <= {"get", "list"}
    body = world.api.find(BROKER_GROUP, "orders")
    assert body is not None
    del world.api.objects["BrokerGroup", "mq", "orders"]
    world.listener.hear(BROKER_GROUP, "DELETED", body)
    await world.settle()
    assert not [asked for asked in world.admin.asked if asked.startswith("retire")]
    world.reconciler._leads = lambda: True
    await world.reconciler.reconcile(ORDERS)
    assert [asked for asked in world.admin.asked if asked.startswith("retire")]


async def test_workers_go_on_after_a_failure() -> None:
    world = World()
    world.groups()
    world.api.refuse("get", SERVICE, Unavailable(503, "ServerError", "down"), times=3)
    tasks = [asyncio.create_task(world.reconciler.work()) for _ in range(3)]
    await asyncio.sleep(30)
    assert world.api.find(STATEFULSET, "orders-broker")
    assert not any(task.done() for task in tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert world.queue.active == 0


# Health and kopf's settings


class Held:
    held = True


async def test_health() -> None:
    world = World()
    health = Health(world.metrics, 300.0)
    assert health.live() == (True, "starting")
    assert health.ready() == (False, "starting")
    health.stage = "standby"
    assert health.ready()[0]
    resync = Resync(world.api, world.cache, (), world.queue.add, world.metrics)
    for kind in WATCHED:
        resync.listed(kind, None)
    await resync.fill()
    health.queue, health.resync, health.stage = world.queue, resync, "acting"
    health.cache = world.cache
    election = Held()
    health.election = cast("Any", election)
    assert health.live()[0]
    assert health.ready() == (True, "acting")
    election.held = False
    assert health.live() == (False, "the lease is lost")
    election.held = True
    world.queue.add(ORDERS)
    await asyncio.sleep(121)
    assert "waited for 121 s" in health.live()[1]
    await world.drain()
    assert health.live()[0]
    await asyncio.sleep(900)
    assert "no comparison" in health.live()[1]


async def test_a_long_queue_that_gets_on_is_no_sign_of_trouble() -> None:
    world, many = World(), 1000
    health = Health(world.metrics, 300.0)
    resync = Resync(world.api, world.cache, (), world.queue.add, world.metrics)
    for kind in WATCHED:
        resync.listed(kind, None)
    await resync.fill()
    health.queue, health.resync = world.queue, resync
    for number in range(many):
        world.queue.add(Key(BROKER_GROUP.kind, "mq", f"g{number}"))
    for _ in range(many // 2):
        world.queue.done(await world.queue.get())
        await asyncio.sleep(0.4)
        assert health.live()[0]
    await asyncio.sleep(120 + 0.1 * many / 2 + 1)
    assert "waited for 371 s" in health.live()[1], "nothing is taken any more"


async def test_kopf_only_hears() -> None:
    settings = kopf_settings()
    assert settings.posting.enabled is False
    assert settings.queueing.worker_limit is None
    assert settings.queueing.idle_timeout <= 0.5
    assert settings.watching.server_timeout == 300
    assert isinstance(settings.watching.server_timeout, int)
    assert settings.scanning.disabled is True
    assert len(settings.watching.label_selectors) == len(WATCHED) - len(CUSTOM)


async def test_a_resource_that_is_gone_leaves_no_refusals_to_its_successor() -> None:
    nobody = cast("Any", None)
    observer = Observer(Cache(), nobody, nobody, Claims(FakeApi()), nobody)
    for key in (ORDERS, GANTRY):
        observer.refusals[key] = ()
        observer.refused_drains[key] = {}
        assert await observer.observe(key) is None
    assert (observer.refusals, observer.refused_drains) == ({}, {})


# What is recorded


async def test_what_is_decided_is_recorded_with_what_was_seen() -> None:
    world = World()
    ring = world.reconciler._recorder = recorder()
    world.groups()
    await world.settle()
    found = ring.of("mq")
    assert {one.key for one in found} == {ORDERS, GANTRY}
    assert [one.failure for one in found if one.failure] == []
    again(found)
    for _ in range(4):  # the first one finds that all has been written
        await world.reconciler.reconcile(ORDERS)
    steady = ring.of("mq")[len(found) :]
    assert [(one.key, one.count) for one in steady] == [(ORDERS, 4)]


async def test_what_a_standby_plans_is_not_recorded() -> None:
    world = World()
    ring = world.reconciler._recorder = recorder()
    world.reconciler._leads = lambda: False
    world.groups()
    await world.settle()
    assert ring.of(None) == []


async def test_a_planner_that_fails_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise KeyError("spec")

    world = World()
    ring = world.reconciler._recorder = recorder()
    world.groups()
    await world.drain()
    monkeypatch.setattr(worker_module, "plan", failing)
    await world.reconciler.reconcile(ORDERS)
    await world.reconciler.reconcile(ORDERS)
    (found,) = ring.of(None)
    assert (found.failure, found.count) == ("fails with KeyError: 'spec'", 2)
    assert world.result("BrokerGroup", "bug") == 2
