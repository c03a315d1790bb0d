"""The cache never goes backwards, and finds what belongs to a resource."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, CRON_JOB, POD, SERVICE
from gantry_operator.cache import Cache, Comparison, Key, key_of, name_of
from gantry_operator.plan.observed import pod_view

ORDERS = Key("BrokerGroup", "mq", "orders")


def pod(name: str = "orders-broker-0", version: str = "1", **meta: Any) -> dict[str, Any]:
    head = {
        "name": name,
        "namespace": "mq",
        "uid": "u",
        "resourceVersion": version,
        "labels": names.labels(names.BROKER, "orders"),
    }
    return {"metadata": head | meta}


def compare(
    cache: Cache, namespace: str | None, listed: list[dict[str, Any]], begun: int
) -> Comparison:
    present = {name_of(body) for body in listed}
    behind = [body for body in listed if not cache.is_current(POD, body)]
    return cache.compare(POD, namespace, present, behind, begun)


def version(cache: Cache) -> str | None:
    found = cache.get(POD, "mq", "orders-broker-0")
    return found["metadata"]["resourceVersion"] if found else None


def test_put_get_remove() -> None:
    cache = Cache()
    assert cache.put(POD, pod())
    (found,) = cache.owned(ORDERS, POD)
    assert found["metadata"] == pod()["metadata"]
    assert cache.owned(ORDERS, SERVICE) == []
    assert cache.remove(POD, pod(version="2"))
    assert version(cache) is None
    assert cache.owned(ORDERS, POD) == []
    assert not cache.remove(POD, pod())


@pytest.mark.parametrize(
    ("old", "new", "taken"),
    [
        pytest.param("9", "10", True, id="newer-as-a-number"),
        pytest.param("10", "9", False, id="older-as-a-number"),
        pytest.param("10", "10", False, id="the-same"),
        pytest.param("a", "b", True, id="not-a-number"),
    ],
)
def test_an_older_version_never_replaces_a_newer_one(old: str, new: str, taken: bool) -> None:
    cache = Cache()
    cache.put(POD, pod(version=old))
    newer = pod(version=new, deletionTimestamp="now")
    assert cache.put(POD, newer) is taken
    assert version(cache) == (new if taken else old)


def test_a_successor_of_the_same_name_is_another_object() -> None:
    cache = Cache()
    cache.put(POD, pod(version="9"))
    assert cache.put(POD, pod(version="10", uid="v"))
    assert not cache.remove(POD, pod(version="11")), "the predecessor's deletion came late"
    assert version(cache) == "10"


def test_bookkeeping_of_the_api_server_is_not_kept() -> None:
    cache = Cache()
    cache.put(POD, pod(managedFields=[{"big": "list"}]))
    found = cache.get(POD, "mq", "orders-broker-0")
    assert found is not None
    assert "managedFields" not in found["metadata"]


def test_of_a_pod_only_what_decisions_rest_on_is_kept() -> None:
    status = {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": None}],
        "containerStatuses": [{"name": "broker", "image": "x", "state": {"running": {}}}],
    }
    body = pod() | {"spec": {"nodeName": "n", "containers": [{"env": ["long"]}]}, "status": status}
    cache = Cache()
    cache.put(POD, body)
    kept = cache.get(POD, "mq", "orders-broker-0")
    assert kept is not None
    assert pod_view(kept) == pod_view(body)
    assert len(str(kept)) < len(str(body))
    assert "containers" not in str(kept)


def test_a_version_that_brings_nothing_new_is_no_news() -> None:
    cache = Cache()
    assert cache.put(POD, pod(version="1") | {"status": {"phase": "Running"}})
    noise = {"phase": "Running", "conditions": [{"type": "Ready2", "status": "True"}]}
    assert not cache.put(POD, pod(version="2") | {"status": noise})
    assert version(cache) == "2", "the version counts all the same"
    assert cache.put(POD, pod(version="3") | {"status": {"phase": "Failed"}})
    assert cache.put(POD, pod(version="4", uid="v") | {"status": {"phase": "Failed"}})


def test_an_object_that_changes_its_labels_changes_its_resource() -> None:
    cache = Cache()
    cache.put(POD, pod(version="1"))
    cache.put(POD, pod(version="2", labels=names.labels(names.BROKER, "other")))
    assert cache.owned(ORDERS, POD) == []
    assert len(cache.owned(Key("BrokerGroup", "mq", "other"), POD)) == 1


@pytest.mark.parametrize(
    ("kind", "labels", "expected"),
    [
        (BROKER_GROUP, {}, Key("BrokerGroup", "mq", "x")),
        (CONTROLLER_GROUP, {}, Key("ControllerGroup", "mq", "x")),
        (POD, names.labels(names.CONTROLLER, "g"), Key("ControllerGroup", "mq", "g")),
        (POD, names.labels(names.BROKER, "b"), Key("BrokerGroup", "mq", "b")),
        (CRON_JOB, names.labels(names.AUDIT, "b"), Key("BrokerGroup", "mq", "b")),
        (POD, {names.LABEL_INSTANCE: "b"}, None),
        (POD, names.labels(names.BROKER, "b") | {names.LABEL_MANAGED_BY: "helm"}, None),
        (POD, names.labels("other", "b"), None),
        (POD, {}, None),
    ],
)
def test_whose_an_object_is(kind: Any, labels: dict[str, str], expected: Key | None) -> None:
    body = {"metadata": {"name": "x", "namespace": "mq", "labels": labels}}
    assert key_of(kind, body) == expected


def test_a_list_finds_what_the_watch_missed() -> None:
    cache = Cache()
    cache.put(POD, pod("a-0", version="1"))
    cache.put(POD, pod("gone-0", version="1"))
    begun = cache.turn()
    listed = [pod("a-0", version="5"), pod("new-0", version="5")]
    found = compare(cache, "mq", listed, begun)
    assert found.stale == [("mq", "a-0"), ("mq", "new-0")]
    assert found.pruned == [("mq", "gone-0")]
    assert found.keys == {ORDERS}
    assert cache.get(POD, "mq", "gone-0") is None


def test_a_list_that_agrees_changes_nothing() -> None:
    cache = Cache()
    cache.put(POD, pod())
    assert compare(cache, None, [pod()], cache.turn()) == ([], [], set())


def test_what_is_heard_during_a_list_outranks_it() -> None:
    cache = Cache()
    cache.put(POD, pod("gone-0"))
    begun = cache.turn()
    cache.put(POD, pod("new-0", version="7"))  # created after the list was read
    cache.remove(POD, pod("gone-0"))  # deleted after the list was read
    found = compare(cache, "mq", [pod("gone-0")], begun)
    assert found == ([], [], set())
    assert cache.get(POD, "mq", "new-0") is not None
    assert cache.get(POD, "mq", "gone-0") is None


def test_a_list_of_one_namespace_says_nothing_about_others() -> None:
    cache = Cache()
    cache.put(POD, pod(namespace="elsewhere"))
    assert compare(cache, "mq", [], cache.turn()).pruned == []
    assert compare(cache, None, [], cache.turn()).pruned == [("elsewhere", "orders-broker-0")]


def test_memory_of_deletions_is_bounded() -> None:
    cache = Cache()
    for n in range(100):
        cache.put(POD, pod(f"p-{n}"))
        cache.remove(POD, pod(f"p-{n}"))
    cache.put(POD, pod("alive-0"))
    cache.forget_deletions(cache.turn())
    assert len(cache._heard) == 1
    late = cache.turn()
    cache.remove(POD, pod("alive-0"))
    cache.forget_deletions(late)
    assert len(cache._heard) == 1, "a deletion that a running list may contradict is remembered"


def test_what_the_api_server_keeps_for_itself_is_no_news() -> None:
    cache, body = Cache(), pod()
    body["metadata"]["managedFields"] = [{"manager": "us", "time": "now"}]
    assert cache.put(SERVICE, body)
    later = pod(version="2")
    later["metadata"]["managedFields"] = [{"manager": "us", "time": "then"}]
    assert not cache.put(SERVICE, later)
    assert cache.is_current(SERVICE, later)


def test_an_object_that_was_made_again_is_taken_whatever_its_version() -> None:
    cache = Cache()
    cache.put(POD, pod(version="10"))
    assert cache.put(POD, pod(version="9", uid="v"))
    assert version(cache) == "9"


def test_what_a_group_has_of_its_own_is_kept_of_it_and_no_more() -> None:
    cache = Cache()
    several = 1000
    for n in range(several):
        cache.put(POD, pod(f"p-{n}", uid=f"{n:036}"))
    tracemalloc.start()
    for n in range(several, 2 * several):
        cache.put(POD, pod(f"p-{n}", uid=f"{n:036}", annotations={"a": "b" * 4000}))
        cache.put(SERVICE, pod(f"s-{n}", uid=f"{n:036}", annotations={"a": "b" * 4000}))
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used / several < 2 * 1200, "bytes of a pod and a service, all that finds them included"
    assert cache.get(SERVICE, "mq", f"s-{several}") == pod(
        f"s-{several}", uid=f"{several:036}", annotations={"a": "b" * 4000}
    )


def test_a_later_version_has_what_changed() -> None:
    cache = Cache()
    cache.put(SERVICE, pod() | {"spec": {"type": "ClusterIP"}})
    assert cache.put(SERVICE, pod(version="2") | {"spec": {"type": "LoadBalancer"}})
    found = cache.get(SERVICE, "mq", "orders-broker-0")
    assert found is not None
    assert found["spec"] == {"type": "LoadBalancer"}


def test_objects_that_are_being_deleted_are_known_as_such() -> None:
    cache, ending = Cache(), pod("q", deletionTimestamp="2026-01-01T00:00:00Z")
    cache.put(SERVICE, pod())
    cache.put(SERVICE, ending)
    assert cache.ending(SERVICE) == [ending]
    cache.put(SERVICE, pod(version="2", deletionTimestamp="2026-01-01T00:00:00Z"))
    assert len(cache.ending(SERVICE)) == 2
