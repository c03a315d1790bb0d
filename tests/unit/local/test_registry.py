"""The verbs over the store with a still clock: what HTTP tests would be slow to enumerate."""

from __future__ import annotations

import copy
import datetime as dt
from typing import Any

import pytest
from gantry_local.apiserver import crds, tables
from gantry_local.apiserver.addresses import AddressPool
from gantry_local.apiserver.admission import Options
from gantry_local.apiserver.ambient import FixedAmbient
from gantry_local.apiserver.bootstrap import ensure_namespaces
from gantry_local.apiserver.deletion import DeleteOptions
from gantry_local.apiserver.errors import StatusError
from gantry_local.apiserver.registry import Registry
from gantry_local.apiserver.selectors import Selector
from gantry_local.apiserver.store import Event, Store
from support.contract_api import WIDGET_CRD, widget

NS = "default"
MERGE = "application/merge-patch+json"


class World:
    """A registry and short words for its verbs."""

    def __init__(self, window: int = 100) -> None:
        self.store = Store(window=window)
        self.registry = Registry(self.store, FixedAmbient(), AddressPool("10.0.0.0/29"))
        ensure_namespaces(self.registry)
        self.seen: list[Event] = []
        self.store.subscribe(self.seen.append, name="test")

    def type(self, plural: str, group: str = "") -> Any:
        return self.registry.catalogue.type(group, plural)

    def create(self, plural: str, obj: dict[str, Any], group: str = "", **options: Any) -> Any:
        written = self.registry.create(self.type(plural, group), NS, obj, Options(**options))
        return written.record.obj

    def merge(self, plural: str, name: str, patch: Any, group: str = "", sub: str = "") -> Any:
        resource = self.type(plural, group)
        written = self.registry.patch(resource, NS, name, MERGE, patch, Options(), subresource=sub)
        return written.record.obj

    def delete(self, plural: str, name: str, group: str = "", **options: Any) -> Any:
        resource = self.type(plural, group)
        return self.registry.delete(resource, NS, name, DeleteOptions(**options))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def widgets(world: World) -> World:
    crd = world.type("customresourcedefinitions", "apiextensions.k8s.io")
    world.registry.create(crd, "", copy.deepcopy(WIDGET_CRD), Options())
    return world


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 1}], **spec}}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "x"}], **spec}
    return {"metadata": {"name": name}, "spec": spec}


def test_service_addresses_are_distinct_and_returned(world: World) -> None:
    given = [world.create("services", service(f"s{n}"))["spec"]["clusterIP"] for n in range(6)]
    assert len(set(given)) == 6
    with pytest.raises(StatusError, match=r"range 10.0.0.0/29 is full"):
        world.create("services", service("more"))
    world.delete("services", "s3")
    assert world.create("services", service("more"))["spec"]["clusterIP"] == given[3]


def test_a_service_may_ask_for_an_address_once(world: World) -> None:
    obj = world.create("services", service("a", clusterIP="10.0.0.5"))
    assert obj["spec"]["clusterIPs"] == ["10.0.0.5"]
    for address in ("10.0.0.5", "10.9.9.9"):
        with pytest.raises(StatusError) as refused:
            world.create("services", service("b", clusterIP=address))
        assert refused.value.code == 422


def test_a_headless_service_has_no_address(world: World) -> None:
    assert world.create("services", service("a", clusterIP="None"))["spec"]["clusterIP"] == "None"


def test_an_assigned_address_cannot_change(world: World) -> None:
    world.create("services", service("a"))
    with pytest.raises(StatusError, match="may not change once set"):
        world.merge("services", "a", {"spec": {"clusterIP": "10.0.0.6"}})


def test_a_refused_service_keeps_no_address(world: World) -> None:
    for _ in range(20):
        with pytest.raises(StatusError):
            world.create("services", service("Bad Name"))
    world.create("services", service("good"))


def test_a_dry_run_stores_nothing(world: World) -> None:
    revision = world.store.revision
    world.create("services", service("a"), dry_run=True)
    assert world.store.revision == revision
    assert not world.seen


def test_running_pods_are_given_their_grace_period(world: World) -> None:
    world.create("pods", pod("p", terminationGracePeriodSeconds=7))
    world.merge("pods", "p", {"spec": {"nodeName": "local"}})
    marked = world.delete("pods", "p")
    assert not marked.deleted
    metadata = marked.record.obj["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 7
    assert metadata["deletionTimestamp"] == "2026-01-01T00:00:07Z"
    shorter = world.delete("pods", "p", grace_s=2).record.obj["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 2
    longer = world.delete("pods", "p", grace_s=20).record.obj["metadata"]
    assert longer["deletionGracePeriodSeconds"] == 2
    assert world.delete("pods", "p", grace_s=0).deleted


def test_a_pod_that_was_never_bound_goes_at_once(world: World) -> None:
    world.create("pods", pod("p"))
    assert world.delete("pods", "p").deleted


def test_removing_the_last_finalizer_of_a_terminating_pod_waits_for_the_kubelet(
    world: World,
) -> None:
    body = pod("p")
    body["metadata"]["finalizers"] = ["x/y"]
    world.create("pods", body)
    world.merge("pods", "p", {"spec": {"nodeName": "local"}})
    world.delete("pods", "p")
    world.merge("pods", "p", {"metadata": {"finalizers": None}})
    assert world.store.get(("", "pods"), (NS, "p")) is not None
    assert world.delete("pods", "p", grace_s=0).deleted


def test_pod_specs_are_fixed_but_for_their_image(world: World) -> None:
    world.create("pods", pod("p"))
    world.merge("pods", "p", {"spec": {"containers": [{"name": "c", "image": "y"}]}})
    with pytest.raises(StatusError, match="pod updates may not change fields other than"):
        world.merge("pods", "p", {"spec": {"hostname": "z"}})


def test_default_namespaces_cannot_be_deleted(world: World) -> None:
    namespaces = world.type("namespaces")
    with pytest.raises(StatusError) as refused:
        world.registry.delete(namespaces, "", "default", DeleteOptions())
    assert refused.value.code == 403


@pytest.mark.parametrize(
    ("plural", "group", "body", "field"),
    [
        ("services", "", {"spec": {"ports": []}}, "spec.ports"),
        (
            "services",
            "",
            {"spec": {"ports": [{"port": 1}, {"port": 2, "name": "x"}]}},
            "spec.ports[0].name",
        ),
        ("services", "", {"spec": {"ports": [{"port": 0}]}}, "spec.ports[0].port"),
        ("pods", "", {"spec": {"containers": []}}, "spec.containers"),
        ("pods", "", {"spec": {"containers": [{"name": "c"}]}}, "spec.containers[0].image"),
        (
            "persistentvolumeclaims",
            "",
            {"spec": {"accessModes": ["ReadWriteOnce"]}},
            "spec.resources[storage]",
        ),
        (
            "poddisruptionbudgets",
            "policy",
            {"spec": {"minAvailable": 1, "maxUnavailable": 1}},
            "spec",
        ),
        (
            "leases",
            "coordination.k8s.io",
            {"spec": {"leaseDurationSeconds": 0}},
            "spec.leaseDurationSeconds",
        ),
        (
            "events",
            "",
            {"involvedObject": {"namespace": "elsewhere"}},
            "involvedObject.namespace",
        ),
        (
            "events",
            "events.k8s.io",
            {
                "eventTime": "2026-01-01T00:00:00.000000Z",
                "reportingController": "c",
                "reportingInstance": "i",
                "action": "a",
                "type": "Normal",
                "regarding": {"namespace": NS},
            },
            "reason",
        ),
    ],
)
def test_rules_of_built_in_kinds(
    world: World, plural: str, group: str, body: dict[str, Any], field: str
) -> None:
    with pytest.raises(StatusError) as refused:
        world.create(plural, {"metadata": {"name": "x"}, **body}, group)
    assert refused.value.code == 422
    assert [cause["field"] for cause in refused.value.details["causes"]] == [field]


def test_immutable_config_maps_stay(world: World) -> None:
    world.create("configmaps", {"metadata": {"name": "c"}, "data": {"a": "1"}, "immutable": True})
    with pytest.raises(StatusError, match="field is immutable when `immutable` is set"):
        world.merge("configmaps", "c", {"data": {"a": "2"}})


def test_claims_are_fixed_but_for_their_size(world: World) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    world.create("persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": spec})
    world.merge("persistentvolumeclaims", "c", {"spec": {"volumeName": "v"}})
    bigger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    world.merge("persistentvolumeclaims", "c", bigger)
    for patch in ({"volumeName": "w"}, {"accessModes": ["ReadOnlyMany"]}):
        with pytest.raises(StatusError, match="spec is immutable after creation"):
            world.merge("persistentvolumeclaims", "c", {"spec": patch})


def test_a_class_without_expansion_refuses_larger_claims(world: World) -> None:
    size = {"resources": {"requests": {"storage": "1Gi"}}}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fixed"} | size
    world.create("persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": spec})
    world.merge("persistentvolumeclaims", "c", {"spec": {"volumeName": "v"}})
    bigger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    with pytest.raises(StatusError, match="must support resize") as refused:
        world.merge("persistentvolumeclaims", "c", bigger)
    assert refused.value.code == 403


def test_a_body_of_another_kind_is_refused(world: World) -> None:
    for wrong in ({"kind": "Secret"}, {"apiVersion": "v2"}, {"metadata": {"namespace": "x"}}):
        with pytest.raises(StatusError) as refused:
            world.create("configmaps", {"metadata": {"name": "c"}, **wrong})
        assert refused.value.code == 400


def test_status_writes_see_new_defaults_without_touching_history(widgets: World) -> None:
    """A status write works on a private copy: stored revisions never change afterwards."""
    group = "contract.gantry.dev"
    first = widgets.create("widgets", widget("w", replicas=1), group)
    before = copy.deepcopy(first)
    crd = widgets.type("customresourcedefinitions", "apiextensions.k8s.io")
    changed = copy.deepcopy(WIDGET_CRD)
    schema = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["name"]["default"] = "late"
    options = Options(manager="m", force=True)
    widgets.registry.apply(crd, "", changed["metadata"]["name"], changed, options)
    widgets.merge("widgets", "w", {"status": {"note": "x"}}, group, "status")
    assert first == before


def test_a_changed_definition_is_served_at_once(widgets: World) -> None:
    crd = widgets.type("customresourcedefinitions", "apiextensions.k8s.io")
    version = widgets.registry.catalogue.version
    changed = copy.deepcopy(WIDGET_CRD)
    schema = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["replicas"]["maximum"] = 20
    options = Options(manager="m", force=True)
    widgets.registry.apply(crd, "", changed["metadata"]["name"], changed, options)
    assert widgets.registry.catalogue.version > version
    obj = widgets.create("widgets", widget("w", replicas=15), "contract.gantry.dev")
    assert obj["spec"]["replicas"] == 15


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda s: s["versions"].append(dict(s["versions"][0], name="v2")), "spec.versions"),
        (lambda s: s.update(conversion={"strategy": "Webhook"}), "spec.conversion"),
        (lambda s: s.update(scope="Galactic"), "spec.scope"),
        (lambda s: s["names"].update(plural="others"), "metadata.name"),
        (
            lambda s: s["versions"][0].update(selectableFields=[{"jsonPath": ".spec.name"}]),
            "spec.versions[0].selectableFields",
        ),
        (
            lambda s: s["versions"][0]["subresources"]["scale"].update(
                specReplicasPath=".spec.nowhere"
            ),
            "spec.versions[0].subresources.scale.specReplicasPath",
        ),
        (
            lambda s: s["versions"][0].update(
                additionalPrinterColumns=[{"name": "x", "type": "string", "jsonPath": ".spec[*].y"}]
            ),
            "spec.versions[0].additionalPrinterColumns[0].jsonPath",
        ),
    ],
    ids=["two versions", "webhook", "scope", "name", "selectable", "scale path", "column"],
)
def test_definitions_that_cannot_be_served_whole_are_refused(change: Any, field: str) -> None:
    crd = copy.deepcopy(WIDGET_CRD)
    change(crd["spec"])
    assert [cause.field for cause in crds.check(crd, None)] == [field]


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        ({"type": "string", "format": "hostname"}, ".format"),
        ({"type": "string", "pattern": "(?=x)"}, ".pattern"),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, ".uniqueItems"),
        ({"type": "object", "additionalProperties": False}, ".additionalProperties"),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "additionalProperties": {"type": "string"},
            },
            ".additionalProperties",
        ),
        ({"type": "string", "$ref": "x"}, ".$ref"),
        ({"type": "file"}, ".type"),
        (
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "items": {"type": "object", "properties": {"n": {"type": "string"}}},
            },
            ".x-kubernetes-list-map-keys",
        ),
        (
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["n"],
                "items": {"type": "object", "properties": {"n": {"type": "string"}}},
            },
            ".items.properties[n].default",
        ),
        (
            {"type": "object", "default": {"typo": 1}, "properties": {"a": {"type": "integer"}}},
            ".default",
        ),
    ],
)
def test_schemas_that_are_not_structural(schema: dict[str, Any], field: str) -> None:
    crd = copy.deepcopy(WIDGET_CRD)
    raw = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    raw["properties"]["spec"]["properties"]["bad"] = schema
    (cause,) = crds.check(crd, None)
    assert cause.field.endswith(f"properties[spec].properties[bad]{field}")


def test_history_is_bounded_and_says_so() -> None:
    world = World(window=3)
    for n in range(5):
        world.create("configmaps", {"metadata": {"name": f"c{n}"}})
    newest = world.store.revision
    assert world.store.since(newest) == []
    recent = world.store.since(newest - 3)
    assert recent is not None
    assert [event.record.key[1] for event in recent] == ["c2", "c3", "c4"]
    assert world.store.since(newest - 4) is None
    world.store.compact()
    assert world.store.since(newest - 1) is None
    assert world.store.since(newest) == []


def test_subscribers_must_not_write(world: World) -> None:
    def write(_event: Event) -> None:
        world.create("configmaps", {"metadata": {"name": "inner"}})

    world.store.subscribe(write, name="writes")
    world.create("configmaps", {"metadata": {"name": "outer"}})
    assert world.store.failures == {"writes": 1}
    assert [record.key[1] for record in world.store.records(("", "configmaps"))] == ["outer"]


def test_open_lists_expire(world: World) -> None:
    for n in range(4):
        world.create("configmaps", {"metadata": {"name": f"c{n}"}})
    lists, resource = world.registry.lists, world.type("configmaps")
    first = lists.page(resource, NS, Selector(), limit=2, token="")
    assert (len(first.records), first.remaining) == (2, 2)
    second = lists.page(resource, NS, Selector(), limit=2, token=first.token)
    assert [record.key[1] for record in second.records] == ["c2", "c3"]
    assert second.token == ""
    lists.expire_all()
    with pytest.raises(StatusError) as refused:
        lists.page(resource, NS, Selector(), limit=2, token=first.token)
    assert refused.value.code == 410


def test_a_version_from_the_future_is_refused(world: World) -> None:
    with pytest.raises(StatusError) as refused:
        world.registry.lists.check_version(str(world.store.revision + 1), "")
    assert refused.value.code == 504
    world.registry.lists.check_version(str(world.store.revision), "")
    with pytest.raises(StatusError) as gone:
        world.registry.lists.check_version("1", "Exact")
    assert gone.value.code == 410


def test_a_cron_job_is_kept_and_shown_as_never_run(world: World) -> None:
    """There is no image to run it in; whoever looks must not take it for one that is due."""
    pod_spec = {"containers": [{"name": "audit", "image": "x"}], "restartPolicy": "Never"}
    spec = {"schedule": "17 3 * * *", "jobTemplate": {"spec": {"template": {"spec": pod_spec}}}}
    world.create("cronjobs", {"metadata": {"name": "orders-audit"}, "spec": spec}, "batch")
    resource = world.type("cronjobs", "batch")
    record = world.store.get(resource.key, (NS, "orders-audit"))
    assert record is not None
    assert record.obj["spec"]["concurrencyPolicy"] == "Allow"  # as a real API server fills in
    shown = tables.table(resource, None, [record], {}, dt.datetime.now(dt.UTC))
    columns = [column["name"] for column in shown["columnDefinitions"]]
    row = dict(zip(columns, shown["rows"][0]["cells"], strict=True))
    assert row["Schedule"] == "17 3 * * *"
    assert row["Last Schedule"] == "never: gantry local runs no jobs"
    wrong = {"metadata": {"name": "b"}, "spec": spec | {"concurrencyPolicy": "No"}}
    with pytest.raises(StatusError, match="concurrencyPolicy"):
        world.create("cronjobs", wrong, "batch")
