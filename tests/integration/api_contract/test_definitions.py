"""CustomResourceDefinitions: discovery, schema, defaults, pruning, CEL, scale."""

from __future__ import annotations

import copy
import secrets
from typing import Any

import pytest
from support.contract_api import CRDS, WIDGET_CRD, WIDGETS, ContractApi, Refused, widget

ONE = f"{WIDGETS}/one"


async def test_discovery_lists_kind_and_subresources(api: ContractApi) -> None:
    groups = await api.get("/apis")
    assert "contract.gantry.dev" in {group["name"] for group in groups["groups"]}
    listed = await api.get("/apis/contract.gantry.dev/v1")
    by_name = {resource["name"]: resource for resource in listed["resources"]}
    assert {"widgets", "widgets/status", "widgets/scale"} <= set(by_name)
    assert by_name["widgets"]["shortNames"] == ["wd"]
    assert by_name["widgets"]["namespaced"] is True
    assert {"get", "list", "watch", "patch"} <= set(by_name["widgets"]["verbs"])


async def test_core_discovery(api: ContractApi) -> None:
    assert "v1" in (await api.get("/api"))["versions"]
    names = {resource["name"] for resource in (await api.get("/api/v1"))["resources"]}
    assert {"pods", "pods/status", "services", "secrets", "namespaces"} <= names
    assert (await api.get("/version"))["gitVersion"].startswith("v")


async def test_defaults_are_stored(api: ContractApi) -> None:
    await api.create(WIDGETS, widget("one"))
    assert (await api.get(ONE))["spec"] == {"replicas": 3}


async def test_unknown_fields_are_pruned(api: ContractApi) -> None:
    obj = await api.create(WIDGETS, widget("one", unknown=1) | {"extra": True})
    assert "unknown" not in obj["spec"]
    assert "extra" not in obj


async def test_strict_validation_refuses_unknown_fields(api: ContractApi) -> None:
    with pytest.raises(Refused) as refused:
        await api.create(WIDGETS, widget("one", unknown=1), fieldValidation="Strict")
    assert refused.value.code == 400
    assert 'unknown field "spec.unknown"' in refused.value.message


@pytest.mark.parametrize(
    ("spec", "field", "text"),
    [
        ({"replicas": -1}, "spec.replicas", "should be greater than or equal to 0"),
        ({"replicas": 10}, "spec.replicas", "should be less than or equal to 9"),
        ({"replicas": "3"}, "spec.replicas", "must be of type integer"),
        ({"route": "Pod"}, "spec.route", 'supported values: "Group", "Master"'),
        ({"name": "A1"}, "spec.name", "should match '^[a-z]+$'"),
        ({"low": 5, "replicas": 2}, "spec", "low must not exceed replicas"),
        ({"options": {"a": 1}}, "spec.options.a", "must be of type string"),
    ],
    ids=["minimum", "maximum", "type", "enum", "pattern", "cel", "map value"],
)
async def test_a_violation_names_its_field(
    api: ContractApi, spec: dict[str, Any], field: str, text: str
) -> None:
    with pytest.raises(Refused) as refused:
        await api.create(WIDGETS, widget("one", **spec))
    assert (refused.value.code, refused.value.reason) == (422, "Invalid")
    assert field in refused.value.fields
    assert text in refused.value.message
    assert refused.value.message.startswith('Widget.contract.gantry.dev "one" is invalid: ')


async def test_a_required_field(api: ContractApi) -> None:
    body = widget("one")
    del body["spec"]
    with pytest.raises(Refused) as refused:
        await api.create(WIDGETS, body)
    assert "spec" in refused.value.fields
    assert "Required value" in refused.value.message


async def test_every_violation_is_reported_at_once(api: ContractApi) -> None:
    with pytest.raises(Refused) as refused:
        await api.create(WIDGETS, widget("one", replicas=-1, route="x"))
    assert {"spec.replicas", "spec.route"} <= refused.value.fields


async def test_rules_wait_for_an_object_of_the_right_shape(api: ContractApi) -> None:
    with pytest.raises(Refused) as refused:
        await api.create(WIDGETS, widget("one", low=5, replicas=2, route="x"))
    assert "low must not exceed" not in refused.value.message
    assert "some validation rules were not checked" in refused.value.message
    with pytest.raises(Refused) as refused:
        await api.create(WIDGETS, widget("one", low=5, replicas=2, name="A1"))
    assert refused.value.fields == {"spec", "spec.name"}


async def test_duplicate_list_keys_are_refused(api: ContractApi) -> None:
    with pytest.raises(Refused) as refused:
        await api.create(WIDGETS, widget("one", parts=[{"name": "a"}, {"name": "a"}]))
    assert refused.value.fields == {"spec.parts[1]"}


async def test_transition_rules_compare_with_the_stored_value(api: ContractApi) -> None:
    await api.create(WIDGETS, widget("one", fixed="a"))
    await api.merge(ONE, {"spec": {"replicas": 1}})
    with pytest.raises(Refused) as refused:
        await api.merge(ONE, {"spec": {"fixed": "b"}})
    assert refused.value.fields == {"spec.fixed"}
    assert "fixed is immutable" in refused.value.message


async def test_scale_reads_and_writes_the_replica_count_only(api: ContractApi) -> None:
    created = await api.create(WIDGETS, widget("one", replicas=2, name="x"))
    await api.merge(f"{ONE}/status", {"status": {"replicas": 1, "selector": "app=one"}})
    scale = await api.get(f"{ONE}/scale")
    assert scale["kind"] == "Scale"
    assert scale["apiVersion"] == "autoscaling/v1"
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 1, "selector": "app=one"}
    assert scale["metadata"]["uid"] == created["metadata"]["uid"]
    scale["spec"]["replicas"] = 5
    await api.replace(f"{ONE}/scale", scale)
    obj = await api.get(ONE)
    assert obj["spec"] == {"replicas": 5, "name": "x"}
    assert obj["metadata"]["generation"] == 2
    await api.merge(f"{ONE}/scale", {"spec": {"replicas": 4}})
    assert (await api.get(ONE))["spec"]["replicas"] == 4
    with pytest.raises(Refused) as refused:
        await api.replace(f"{ONE}/scale", scale)
    assert refused.value.code == 409


async def test_scale_respects_the_schema(api: ContractApi) -> None:
    await api.create(WIDGETS, widget("one"))
    with pytest.raises(Refused) as refused:
        await api.merge(f"{ONE}/scale", {"spec": {"replicas": 50}})
    assert refused.value.code == 422


def definition(plural: str, **schema: Any) -> dict[str, Any]:
    crd = copy.deepcopy(WIDGET_CRD)
    crd["metadata"]["name"] = f"{plural}.contract.gantry.dev"
    crd["spec"]["names"] = {"kind": plural.capitalize(), "plural": plural}
    version = crd["spec"]["versions"][0]
    version["subresources"] = {}
    version["schema"]["openAPIV3Schema"] = {
        "type": "object",
        "properties": {"spec": {"type": "object", **schema}},
    }
    return crd


B_IS_1: dict[str, Any] = {
    "properties": {"b": {"type": "integer", "default": 1}},
    "x-kubernetes-validations": [{"rule": "self.b == 1"}],
}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {}}},
        {"properties": {"a": {"type": "string", "default": 1}}},
        {"properties": {"a": {"type": "array"}}},
        {
            "properties": {"a": {"type": "object", "required": ["b"], "default": {}} | B_IS_1},
        },
        {"properties": {"a": {"type": "object", "default": {}} | B_IS_1}},
        {"x-kubernetes-validations": [{"rule": "self.nowhere == 1"}]},
        {"x-kubernetes-validations": [{"rule": "self.("}]},
        {"x-kubernetes-validations": [{"rule": "frobnicate(self)"}]},
    ],
    ids=[
        "no type",
        "wrong default",
        "no items",
        "incomplete default",
        "default against a rule",
        "unknown field",
        "syntax",
        "unknown function",
    ],
)
async def test_an_unusable_definition_is_refused(api: ContractApi, schema: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        await api.create(CRDS, definition("broken", **schema))
    assert refused.value.code == 422


async def test_a_deleted_definition_takes_its_objects_along(api: ContractApi) -> None:
    plural = f"gadgets{secrets.token_hex(3)}"
    crd = definition(plural, properties={"a": {"type": "string"}})
    await api.create(CRDS, crd)
    path = f"/apis/contract.gantry.dev/v1/namespaces/{api.ns}/{plural}"
    await api.until(path, lambda found: found is not None)
    kind = {"apiVersion": "contract.gantry.dev/v1", "kind": plural.capitalize()}
    await api.create(path, {**kind, "metadata": {"name": "g"}, "spec": {"a": "b"}})
    await api.delete(f"{CRDS}/{crd['metadata']['name']}")
    await api.until(f"{CRDS}/{crd['metadata']['name']}", lambda found: found is None)
    await api.until(path, lambda found: found is None)
