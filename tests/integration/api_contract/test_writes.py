"""Create, update, patch: identity, versions, generation, status isolation."""

from __future__ import annotations

import pytest
from support.contract_api import WIDGETS, ContractApi, Refused, config_map, widget

CONFIG_MAPS = "/api/v1/namespaces/{ns}/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
ONE = f"{WIDGETS}/one"


async def test_create_gives_identity(api: ContractApi) -> None:
    obj = await api.create(WIDGETS, widget("one", replicas=1))
    metadata = obj["metadata"]
    assert metadata["uid"]
    assert metadata["resourceVersion"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert metadata["generation"] == 1
    assert metadata["namespace"] == api.ns


async def test_a_second_create_is_refused(api: ContractApi) -> None:
    await api.create(WIDGETS, widget("one"))
    with pytest.raises(Refused) as refused:
        await api.create(WIDGETS, widget("one"))
    assert (refused.value.code, refused.value.reason) == (409, "AlreadyExists")


async def test_generated_names_differ(api: ContractApi) -> None:
    body = widget("x")
    body["metadata"] = {"generateName": "made-"}
    names = {(await api.create(WIDGETS, body))["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("made-") and len(name) == 10 for name in names)


async def test_an_invalid_name_is_refused(api: ContractApi) -> None:
    with pytest.raises(Refused) as refused:
        await api.create(WIDGETS, widget("Not_A_Name"))
    assert refused.value.code == 422
    assert refused.value.fields == {"metadata.name"}


async def test_a_missing_namespace_is_refused(api: ContractApi) -> None:
    with pytest.raises(Refused) as refused:
        await api.create("/api/v1/namespaces/nowhere/configmaps", config_map("one"))
    assert refused.value.code == 404


async def test_a_missing_object_is_not_found(api: ContractApi) -> None:
    with pytest.raises(Refused) as refused:
        await api.get(ONE)
    assert (refused.value.code, refused.value.reason) == (404, "NotFound")
    details = refused.value.status["details"]
    assert (details["name"], details["kind"]) == ("one", "widgets")


async def test_generation_moves_with_the_spec_only(api: ContractApi) -> None:
    await api.create(WIDGETS, widget("one", replicas=1))
    obj = await api.merge(ONE, {"metadata": {"labels": {"a": "b"}}})
    assert obj["metadata"]["generation"] == 1
    obj = await api.merge(f"{ONE}/status", {"status": {"note": "x"}})
    assert obj["metadata"]["generation"] == 1
    obj = await api.merge(ONE, {"spec": {"replicas": 2}})
    assert obj["metadata"]["generation"] == 2
    obj = await api.merge(ONE, {"spec": {"replicas": 2}})
    assert obj["metadata"]["generation"] == 2


async def test_a_write_without_change_keeps_the_version(api: ContractApi) -> None:
    first = await api.create(WIDGETS, widget("one", replicas=1))
    again = await api.merge(ONE, {"spec": {"replicas": 1}})
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_the_main_endpoint_cannot_write_the_status(api: ContractApi) -> None:
    created = await api.create(WIDGETS, widget("one") | {"status": {"note": "no"}})
    assert "status" not in created
    obj = await api.merge(ONE, {"status": {"note": "no"}, "spec": {"replicas": 5}})
    assert "status" not in obj
    assert obj["spec"]["replicas"] == 5


async def test_the_status_endpoint_cannot_write_anything_else(api: ContractApi) -> None:
    created = await api.create(WIDGETS, widget("one", replicas=1))
    created["status"] = {"note": "yes"}
    created["spec"]["replicas"] = 9
    created["metadata"]["labels"] = {"no": "no"}
    obj = await api.replace(f"{ONE}/status", created)
    assert obj["status"] == {"note": "yes"}
    assert obj["spec"]["replicas"] == 1
    assert "labels" not in obj["metadata"]


async def test_an_update_with_a_stale_version_conflicts(api: ContractApi) -> None:
    first = await api.create(WIDGETS, widget("one", replicas=1))
    await api.merge(ONE, {"spec": {"replicas": 2}})
    with pytest.raises(Refused) as refused:
        await api.replace(ONE, first)
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    assert "the object has been modified" in refused.value.message


async def test_a_patch_with_a_stale_version_conflicts(api: ContractApi) -> None:
    first = await api.create(WIDGETS, widget("one", replicas=1))
    await api.merge(ONE, {"spec": {"replicas": 2}})
    version = first["metadata"]["resourceVersion"]
    with pytest.raises(Refused) as refused:
        await api.merge(ONE, {"metadata": {"resourceVersion": version}, "spec": {"replicas": 3}})
    assert refused.value.code == 409


async def test_a_custom_resource_is_not_updated_without_a_version(api: ContractApi) -> None:
    await api.create(WIDGETS, widget("one"))
    with pytest.raises(Refused) as refused:
        await api.replace(ONE, widget("one", replicas=1))
    assert refused.value.code == 422
    assert refused.value.fields == {"metadata.resourceVersion"}


async def test_an_update_of_another_uid_conflicts(api: ContractApi) -> None:
    await api.create(CONFIG_MAPS, config_map("one"))
    body = config_map("one", a="1")
    body["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    with pytest.raises(Refused) as refused:
        await api.replace(f"{CONFIG_MAPS}/one", body)
    assert refused.value.code == 409


async def test_merge_patch_nulls_remove(api: ContractApi) -> None:
    await api.create(CONFIG_MAPS, config_map("one", a="1", b="2"))
    obj = await api.merge(f"{CONFIG_MAPS}/one", {"data": {"a": None}})
    assert obj["data"] == {"b": "2"}


async def test_json_patch(api: ContractApi) -> None:
    await api.create(CONFIG_MAPS, config_map("one", a="1"))
    operations = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "add", "path": "/metadata/labels", "value": {"x/y": "z"}},
        {"op": "replace", "path": "/metadata/labels/x~1y", "value": "w"},
        {"op": "remove", "path": "/data/a"},
    ]
    kind = "application/json-patch+json"
    obj = await api.call("PATCH", f"{CONFIG_MAPS}/one", operations, kind=kind)
    assert obj["metadata"]["labels"] == {"x/y": "w"}
    assert obj.get("data", {}) == {}
    with pytest.raises(Refused) as refused:
        await api.call("PATCH", f"{CONFIG_MAPS}/one", operations, kind=kind)
    assert refused.value.code == 422


async def test_strategic_patch_merges_by_key_for_built_in_kinds(api: ContractApi) -> None:
    path = "/api/v1/namespaces/{ns}/services"
    spec = {"selector": {"a": "b"}, "ports": [{"name": "x", "port": 1}, {"name": "y", "port": 2}]}
    await api.create(path, {"metadata": {"name": "s"}, "spec": spec})
    kind = "application/strategic-merge-patch+json"
    patch = {"spec": {"ports": [{"port": 2, "$patch": "delete"}]}}
    obj = await api.call("PATCH", f"{path}/s", patch, kind=kind)
    assert [port["port"] for port in obj["spec"]["ports"]] == [1]


async def test_strategic_patch_is_not_for_custom_resources(api: ContractApi) -> None:
    await api.create(WIDGETS, widget("one"))
    kind = "application/strategic-merge-patch+json"
    with pytest.raises(Refused) as refused:
        await api.call("PATCH", ONE, {"spec": {"replicas": 1}}, kind=kind)
    assert refused.value.code == 415


async def test_identity_cannot_be_rewritten(api: ContractApi) -> None:
    created = await api.create(WIDGETS, widget("one"))
    obj = await api.merge(
        ONE, {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 50}}
    )
    assert obj["metadata"]["creationTimestamp"] == created["metadata"]["creationTimestamp"]
    assert obj["metadata"]["generation"] == 1


async def test_leases_are_taken_by_version(api: ContractApi) -> None:
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15}
    lease = await api.create(LEASES, {"metadata": {"name": "l"}, "spec": spec})
    rival = {**lease, "spec": {**spec, "holderIdentity": "b"}}
    await api.replace(f"{LEASES}/l", {**lease, "spec": {**spec, "leaseTransitions": 1}})
    with pytest.raises(Refused) as refused:
        await api.replace(f"{LEASES}/l", rival)
    assert refused.value.code == 409


async def test_secrets_take_plain_text(api: ContractApi) -> None:
    body = {"metadata": {"name": "s"}, "stringData": {"token": "abc"}}
    obj = await api.create("/api/v1/namespaces/{ns}/secrets", body)
    assert obj["data"] == {"token": "YWJj"}
    assert "stringData" not in obj
    assert obj["type"] == "Opaque"


async def test_stateful_set_fields_that_cannot_change(api: ContractApi) -> None:
    path = "/apis/apps/v1/namespaces/{ns}/statefulsets"
    template = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "nowhere.invalid/none"}]},
    }
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template, "replicas": 0}
    await api.create(path, {"metadata": {"name": "x"}, "spec": spec | {"serviceName": "x"}})
    with pytest.raises(Refused) as refused:  # the default rollingUpdate is still there
        await api.merge(f"{path}/x", {"spec": {"updateStrategy": {"type": "OnDelete"}}})
    assert refused.value.fields == {"spec.updateStrategy.rollingUpdate"}
    on_delete = {"type": "OnDelete", "rollingUpdate": None}
    await api.merge(f"{path}/x", {"spec": {"updateStrategy": on_delete}})
    with pytest.raises(Refused) as refused:
        await api.merge(f"{path}/x", {"spec": {"serviceName": "y"}})
    assert refused.value.code == 422
    assert refused.value.fields in ({"spec"}, {"spec.serviceName"})  # the latter by servers of 1.37
