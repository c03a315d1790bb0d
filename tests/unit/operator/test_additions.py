"""What others add to pod templates is left alone and told."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.api.kinds import CRON_JOB, STATEFULSET
from gantry_operator.cache import Cache
from gantry_operator.plan.actions import ApplyObject, EmitEvent
from gantry_operator.plan.additions import additions
from gantry_operator.plan.objects import setting
from unit.operator.world import (
    broker_world,
    changed,
    controller_world,
    of_type,
    planned,
    told,
    with_status,
)

BROKER = 'k:{"name":"broker"}'
OWN = {"f:containers": {BROKER: {".": {}, "f:image": {}, "f:env": {'k:{"name":"A"}': {".": {}}}}}}
LABELS = names.labels(names.BROKER, "orders")


def entry(manager: str, fields: dict[str, Any], **facts: Any) -> dict[str, Any]:
    nested = {"f:spec": {"f:template": {"f:spec": fields}}}
    return {"manager": manager, "operation": "Update", "fieldsV1": nested} | facts


def cached(*entries: dict[str, Any]) -> dict[str, Any]:
    """As the operator sees it."""
    head = {"name": "s", "namespace": "mq", "uid": "u", "resourceVersion": "1", "labels": LABELS}
    cache = Cache()
    cache.put(STATEFULSET, {"metadata": head | {"managedFields": list(entries)}, "spec": {}})
    found = cache.get(STATEFULSET, "mq", "s")
    assert found is not None
    return found


OURS = entry(names.FIELD_MANAGER, OWN, operation="Apply")
SIDECAR = entry(
    "kubectl-edit", {"f:containers": {'k:{"name":"metrics"}': {".": {}, "f:image": {}}}}
)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"f:containers": {'k:{"name":"m"}': {".": {}, "f:image": {}}}}, ["containers[m]"]),
        ({"f:initContainers": {".": {}, 'k:{"name":"i"}': {}}}, ["initContainers[i]"]),
        ({"f:hostNetwork": {}}, ["hostNetwork"]),
        (
            {"f:containers": {BROKER: {"f:env": {'k:{"name":"B"}': {}, 'k:{"name":"A"}': {}}}}},
            ["containers[broker].env[B]"],
        ),
        (
            {"f:containers": {BROKER: {"f:volumeMounts": {'k:{"mountPath":"/x"}': {}}}}},
            ["containers[broker].volumeMounts[/x]"],
        ),
        ({"f:containers": {BROKER: {"f:image": {}}}}, []),
    ],
)
def test_what_is_beyond_the_wish(fields: dict[str, Any], what: list[str]) -> None:
    found = additions(cached(OURS, entry("kubectl-edit", fields)))
    assert found == [(one, "kubectl-edit") for one in what]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(entry("kube-controller-manager", {"f:x": {}}, subresource="status"), id="sub"),
        pytest.param(entry(names.FIELD_MANAGER, {"f:x": {}}), id="ours-by-another-verb"),
        pytest.param(
            {
                "manager": "kubectl-rollout",
                "fieldsV1": {"f:spec": {"f:template": {"f:metadata": {"f:annotations": {}}}}},
            },
            id="restart",
        ),
    ],
)
def test_what_is_no_addition(other: dict[str, Any]) -> None:
    body = cached(OURS, other)
    assert additions(body) == []
    assert "managedFields" not in body["metadata"], "kept only where it is needed"


def test_schedules_have_a_template_too() -> None:
    head = {"name": "a", "namespace": "mq", "uid": "u", "resourceVersion": "1"}
    path = {"f:containers": {'k:{"name":"m"}': {".": {}}}}
    nested = {"f:spec": {"f:jobTemplate": {"f:spec": {"f:template": {"f:spec": path}}}}}
    cache = Cache()
    entries = [{"manager": "me", "fieldsV1": nested}]
    cache.put(CRON_JOB, {"metadata": head | {"managedFields": entries}, "spec": {}})
    assert additions(cache.get(CRON_JOB, "mq", "a") or {}) == [("containers[m]", "me")]


def test_it_is_told_and_left_alone() -> None:
    seen = with_status(broker_world())
    live = seen.objects["StatefulSet", "orders-broker"]
    live["metadata"]["managedFields"] = [OURS, SIDECAR]
    live["spec"]["template"]["spec"]["containers"].insert(0, {"name": "metrics", "image": "m"})
    (event,) = of_type(planned(seen), EmitEvent)
    assert (event.type, event.reason) == ("Warning", "AlteredByOthers")
    assert "StatefulSet orders-broker: containers[metrics] (by kubectl-edit)." in event.note
    assert told(seen, "Altered") == ("True", "AlteredByOthers", event.note)
    assert told(seen, "Ready")[0] == "True", "what was added may be meant"
    assert of_type(planned(seen), ApplyObject) == [], "no fight"
    again = with_status(seen)
    assert of_type(planned(again), EmitEvent) == [], "told once"
    settled = with_status(changed(again, objects=broker_world().objects))
    assert "Altered" not in [c["type"] for c in (settled.live_status or {})["conditions"]]


def test_additions_to_controllers_are_told() -> None:
    seen = controller_world()
    live = seen.objects["StatefulSet", "gantry-controller"]
    live["metadata"]["managedFields"] = [OURS, SIDECAR]
    assert told(seen, "Altered")[1] == "AlteredByOthers"
    events = [event.reason for event in of_type(planned(with_status(seen)), EmitEvent)]
    assert events == []
    assert "AlteredByOthers" in [event.reason for event in of_type(planned(seen), EmitEvent)]


def test_what_is_ours_beside_it_is_still_repaired() -> None:
    seen = broker_world()
    containers = seen.objects["StatefulSet", "orders-broker"]["spec"]["template"]["spec"]
    containers["containers"].insert(0, {"name": "metrics", "image": "m"})
    containers["containers"][1]["image"] = "other"
    assert len(of_type(planned(seen), ApplyObject)) == 1
    containers["containers"].pop()
    assert len(of_type(planned(seen), ApplyObject)) == 1


def test_settings_are_those_of_our_container() -> None:
    live = broker_world().objects["StatefulSet", "orders-broker"]
    containers = live["spec"]["template"]["spec"]["containers"]
    found = setting(live, "GANTRY_DATA_DIR")
    assert found
    containers.insert(0, {"name": "metrics", "env": [{"name": "GANTRY_DATA_DIR", "value": "x"}]})
    assert setting(live, "GANTRY_DATA_DIR") == found


def test_a_long_list_is_cut() -> None:
    seen = broker_world()
    live = seen.objects["StatefulSet", "orders-broker"]
    live["metadata"]["managedFields"] = [OURS, entry("me", {f"f:x{n}": {} for n in range(9)})]
    assert "x4 (by me), 4 more." in told(seen, "Altered")[2]
