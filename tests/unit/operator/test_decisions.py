"""Recorded decisions: what is kept, for how long, and without what.

That each decision is the same when it is made again is shown by every other test of the planner
(`support.decided_again`).
"""

from __future__ import annotations

import datetime as dt
import json
import socket
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession, TCPConnector
from gantry_operator.cache import Key
from gantry_operator.decisions import recorder as module
from gantry_operator.decisions.codec import fields_of, seen_of
from gantry_operator.decisions.recorder import OF_ONE_MAX, DecisionRing, written
from gantry_operator.decisions.replay import ALTERED, Recording, recording_of, replayed
from gantry_operator.decisions.serving import Decisions
from gantry_operator.metrics import Metrics
from gantry_operator.models.consumer_group import ConsumerGroup, ConsumerGroupStatus
from gantry_operator.plan import plan
from gantry_operator.plan.actions import CheckAgain
from gantry_operator.plan.entities import Compared, EntityObserved, plan_entity
from gantry_operator.plan.observed import BrokerObserved, RefusedGrowth
from gantry_operator.plan.offset_resets import plan_reset
from gantry_operator.reconcile.spins import fingerprint
from gantry_protocol.admin_topics import OffsetResetView
from gantry_protocol.process import listening, probes
from gantry_protocol.process.probes import HttpServer
from prometheus_client import CollectorRegistry
from support.decided_again import again, recorder
from unit.operator.world import (
    NOW,
    broker_world,
    brokers,
    changed,
    controller_world,
    front_world,
    pod,
    with_status,
)

ORDERS = Key("BrokerGroup", "mq", "orders")
SECRET = "hunter2-of-a-sidecar"


def note(ring: DecisionRing, seen: Any, *, at_s: float = 0, key: Key = ORDERS) -> None:
    """As the reconciler does."""
    now = NOW + dt.timedelta(seconds=at_s)
    ring.note(key, seen, fingerprint(seen), now, plan(seen, now))


def file_of(ring: DecisionRing, namespace: str | None = None) -> Recording:
    return recording_of(written(ring.of(namespace), version="1", dropped=ring.dropped), "file")


def rolling(step: int, **facts: Any) -> BrokerObserved:
    """One of many looks at a group of which something differs."""
    return broker_world(pods=tuple(pod(n, uid=f"uid-{step}-{n}") for n in range(3)), **facts)


def with_variable(value: str, **spec: Any) -> BrokerObserved:
    sidecar = {"name": "side", "image": "side:1", "env": [{"name": "DB_PASSWORD", "value": value}]}
    return broker_world(brokers(template={"spec": {"sidecars": [sidecar]}}, **spec))


# What is kept


def test_a_look_that_finds_and_does_the_same_is_counted() -> None:
    ring = recorder()
    steady = with_status(broker_world())
    for at_s in range(5):
        note(ring, steady, at_s=at_s)
    note(ring, rolling(1), at_s=9)
    first, second = file_of(ring).decisions
    assert (first.count, second.count) == (5, 1)
    assert first.first == NOW.isoformat()
    assert first.last == (NOW + dt.timedelta(seconds=4)).isoformat()


def test_what_was_done_differs_although_the_same_was_seen() -> None:
    ring, seen = recorder(), broker_world()
    read = fingerprint(seen)
    ring.note(ORDERS, seen, read, NOW, [CheckAgain(after_s=1.0)])
    ring.note(ORDERS, seen, read, NOW, [])
    ring.note(ORDERS, seen, read, NOW, [CheckAgain(after_s=1.0)])
    assert [one.count for one in file_of(ring).decisions] == [1, 1, 1], "only the last one counts"


def test_what_the_planner_fails_with_is_kept_and_counted() -> None:
    ring, seen = recorder(), broker_world()
    note(ring, seen)
    for _ in range(3):
        ring.note(ORDERS, seen, fingerprint(seen), NOW, KeyError("spec"))
    note(ring, seen)
    recording = file_of(ring)
    assert [(one.count, one.failure) for one in recording.decisions] == [
        (1, ""),
        (3, "fails with KeyError: 'spec'"),
        (1, ""),
    ]
    (found,) = replayed(recording, recording.decisions[1], "x").differences
    assert (found.path, found.recorded) == ("actions", "fails with KeyError: 'spec'")


def test_what_cannot_be_written_down_is_dropped_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A field of a type that nobody foresaw takes no decision from the operator."""
    ring, seen = recorder(), broker_world()
    seen.objects["Service", "orders"]["metadata"]["labels"]["odd"] = object()
    for _ in range(2):
        ring.note(ORDERS, seen, b"", NOW, [])
    note(ring, broker_world())
    assert (len(ring.of(None)), ring.dropped) == (1, 2)
    assert caplog.text.count("decision not recorded") == 1
    again(ring.of(None))


def test_what_decisions_share_is_kept_once() -> None:
    alone, both = recorder(), recorder()
    note(alone, rolling(0))
    for step in range(10):
        note(both, rolling(step))
    assert len(both.of(None)) == 10
    assert len(written(both.of(None), version="1", dropped=0)) < 3 * len(
        written(alone.of(None), version="1", dropped=0)
    )


# Bounds


def test_the_oldest_decisions_of_a_resource_go_first() -> None:
    ring = recorder()
    for step in range(OF_ONE_MAX + 3):
        note(ring, rolling(step), at_s=step)
    found = file_of(ring)
    assert (len(found.decisions), found.dropped) == (OF_ONE_MAX, 3)
    assert found.decisions[0].first == (NOW + dt.timedelta(seconds=3)).isoformat()


def test_bytes_are_bounded_and_counted_to_the_last() -> None:
    metrics = Metrics(CollectorRegistry())
    ring = DecisionRing(metrics, "groups", bytes_max=100_000)

    def value(name: str) -> float:
        found = metrics.registry.get_sample_value(
            f"gantry_operator_recorded_{name}", {"ring": "groups"}
        )
        assert found is not None
        return found

    for step in range(40):
        for name in "abc":
            note(ring, rolling(step), key=Key("BrokerGroup", "mq", name))
            assert value("bytes") <= 100_000
    kept = ring.of(None)
    assert 10 < len(kept) == value("decisions")
    assert value("decisions_dropped_total") == ring.dropped == 120 - len(kept)
    parts = {part.data: part for one in kept for part in one.parts()}
    real = sum(len(data) + module.PART_BYTES for data in parts)
    assert value("bytes") == real + len(kept) * module.DECISION_BYTES
    newest = ring.of(None)[-1]
    assert file_of(ring).decisions[-1].first == newest.first.isoformat()
    again(kept[:2] + kept[-2:])


def test_one_that_is_larger_than_the_ring_is_not_kept() -> None:
    ring = DecisionRing(Metrics(CollectorRegistry()), "groups", bytes_max=4000)
    note(ring, broker_world())
    note(ring, broker_world())
    assert (ring.of(None), ring.dropped) == ([], 2)


def test_a_namespace_is_told_of_its_own_resources() -> None:
    ring = recorder()
    note(ring, broker_world())
    note(ring, broker_world(), key=Key("BrokerGroup", "other", "orders"))
    assert [one.namespace for one in file_of(ring, "mq").decisions] == ["mq"]
    assert len(file_of(ring).decisions) == 2


# Secrets


def test_secrets_stay_in_the_process() -> None:
    ring = recorder()
    note(ring, with_variable(SECRET))
    data = written(ring.of(None), version="1", dropped=0)
    assert SECRET.encode() not in data
    assert b"[redacted value with a secret-like name]" in data


def test_hashes_of_what_holds_a_secret_are_those_of_the_copy() -> None:
    """So a secret in a spec leaves a steady group steady, and a change of it is a change."""
    steady = with_variable(SECRET)
    changing = changed(with_variable("another"), objects=steady.objects)
    for seen, applied in ((steady, 0), (changing, 1)):
        ring = recorder()
        note(ring, with_status(seen))
        recording = file_of(ring)
        (one,) = recording.decisions
        outcome = replayed(recording, one, "x")
        assert (outcome.note, outcome.differences) == ("", ())
        assert outcome.told.count("ApplyObject StatefulSet/orders-broker") == applied
        text = json.dumps(recording.parts)
        assert (SECRET in text, "another" in text) == (False, False)


def test_a_decision_that_is_another_without_its_secrets_is_told_apart() -> None:
    """The change that waits for a person has an id, which is a hash as well."""
    ring = recorder()
    supervised = with_variable("another", update={"strategy": "Supervised"})
    note(ring, changed(supervised, objects=with_variable(SECRET).objects))
    recording = file_of(ring)
    (one,) = recording.decisions
    outcome = replayed(recording, one, "x")
    assert (one.altered, outcome.note, outcome.differences) == (True, ALTERED, ())


def test_copies_are_tried_up_to_a_bound_the_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRIED_MAX", 2)
    ring, seen = recorder(), with_variable(SECRET)
    for step in range(4):
        note(ring, changed(seen, pods=rolling(step).pods), at_s=step)
    note(ring, broker_world(), at_s=9)
    recording = file_of(ring)
    assert [one.altered for one in recording.decisions] == [True, True, False, False, False]
    parts = {json.dumps(part) for part in recording.parts}
    used = {n for one in recording.decisions for n in (one.objects or {}).values()}
    used |= {n for one in recording.decisions for n in (*one.parts.values(), *one.actions)}
    assert len(parts) == len(recording.parts) == len(used), "none is there twice, or for nothing"


def test_a_secret_that_decides_nothing_changes_nothing() -> None:
    """In the world: a password in an annotation that others have made."""
    ring, seen = recorder(), broker_world()
    service = seen.objects["Service", "orders"]
    service["metadata"].setdefault("annotations", {})["lb/api-token"] = SECRET
    note(ring, seen)
    recording = file_of(ring)
    (one,) = recording.decisions
    assert SECRET not in json.dumps(recording.parts)
    assert not one.altered
    assert replayed(recording, one, "x").note == ""


# Forms


def test_every_kind_of_observation_is_read_back_as_it_was() -> None:
    growth = {"data-0": RefusedGrowth("20Gi", "no", due=True)}
    for seen in (
        broker_world(refused_growth=growth, volumes=()),
        changed(broker_world(), group=None, invalid="spec.replicas: 12 is too much; change it"),
        controller_world(missing_secrets=("gantry-admin",)),
        front_world(),
    ):
        data = msgspec.json.decode(msgspec.json.encode(fields_of(seen)))
        assert seen_of(type(seen).__name__, data, "x") == seen


def test_a_request_of_an_entity_is_read_back_as_it_was() -> None:
    spec = {"resetOffsets": {"request": 3, "to": "Earliest", "topics": ["a"]}}
    meta = {"name": "shop", "namespace": "mq", "uid": "u", "generation": 1}
    group = ConsumerGroup.parse({"metadata": meta, "spec": {"deletionPolicy": "Delete"} | spec})
    reset = group.spec.reset_offsets
    for heard in (
        None,
        OffsetResetView(request=3, queues=8),
        OffsetResetView(request=3, refused="no"),
    ):
        seen = EntityObserved(
            meta=group.metadata,
            entity=group,
            status=ConsumerGroupStatus,
            named="shop",
            cluster="gantry",
            first="shop",
            quorum_exists=True,
            quorum_serves=True,
            standing=Compared(state="Same"),
            following=plan_reset(reset, None, heard),
        )
        ring = recorder()
        ring.note(Key("ConsumerGroup", "mq", "shop"), seen, b"", NOW, plan_entity(seen, NOW))
        again(ring.of(None))


# Over HTTP


@pytest.mark.asyncio
async def test_decisions_are_served_to_the_loopback_address_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decisions = Decisions(Metrics(CollectorRegistry()))
    note(decisions.groups, broker_world())
    async with AsyncExitStack() as stack, ClientSession() as session:
        http = HttpServer(ready=lambda: (True, "ok"))
        port = await decisions.serve(http, "127.0.0.1", 0, stack)
        url = f"http://127.0.0.1:{port}/decisions"
        answer = await session.get(f"{url}?namespace=mq")
        assert len(recording_of(await answer.read(), "x").decisions) == 1
        answer = await session.get(f"{url}?namespace=other")
        assert recording_of(await answer.read(), "x").decisions == []
        monkeypatch.setattr(probes, "is_loopback", lambda _: False)
        assert (await session.get(url)).status == 404


@pytest.mark.asyncio
async def test_a_pods_own_address_has_the_loopback_address_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """127.0.0.2 stands for the pod's address."""
    for asks in (listening, probes):
        monkeypatch.setattr(asks, "is_loopback", lambda address: address == "127.0.0.1")
    decisions = Decisions(Metrics(CollectorRegistry()))
    outside = TCPConnector(local_addr=("127.0.0.2", 0))
    async with (
        AsyncExitStack() as stack,
        ClientSession() as inside,
        ClientSession(connector=outside) as others,
    ):
        outer = HttpServer(ready=lambda: (True, "ok"))
        port = await decisions.serve(outer, "127.0.0.2", 0, stack)
        assert (await inside.get(f"http://127.0.0.1:{port}/decisions")).status == 200
        for path, status in (("livez", 200), ("decisions", 404)):
            assert (await others.get(f"http://127.0.0.2:{port}/{path}")).status == status


@pytest.mark.asyncio
async def test_a_loopback_address_that_is_taken_ends_no_operator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "is_loopback", lambda _: False)
    decisions = Decisions(Metrics(CollectorRegistry()))
    async with AsyncExitStack() as stack, ClientSession() as session:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            outer = HttpServer(ready=lambda: (True, "ok"))
            assert await decisions.serve(outer, "127.0.0.2", port, stack) == port
        assert (await session.get(f"http://127.0.0.2:{port}/livez")).status == 200


def test_peers_of_a_network_policy_are_the_same_from_a_record() -> None:
    """Whether somebody wrote an empty list is not in it."""
    peers = [
        {"ipBlock": {"cidr": "10.0.0.0/8"}},
        {"namespaceSelector": {}},
        {"podSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}},
    ]
    ring = recorder()
    note(ring, broker_world(brokers(networkPolicy={"clientsFrom": peers})))
    recording = file_of(ring)
    (one,) = recording.decisions
    assert replayed(recording, one, "x").differences == ()
