"""Server-side apply: ownership, conflicts, removal, lists by key."""

from __future__ import annotations

from typing import Any

import pytest
from support.contract_api import WIDGETS, ContractApi, Refused, config_map, managers, widget

CONFIG_MAPS = "/api/v1/namespaces/{ns}/configmaps"
SERVICES = "/api/v1/namespaces/{ns}/services"
ONE = f"{CONFIG_MAPS}/one"


async def test_apply_creates_and_records_its_fields(api: ContractApi) -> None:
    obj = await api.apply(ONE, config_map("one", a="1"))
    assert managers(obj)["one"] == {"f:data": {"f:a": {}}}
    entry = obj["metadata"]["managedFields"][0]
    assert (entry["operation"], entry["apiVersion"]) == ("Apply", "v1")


async def test_applying_the_same_again_changes_nothing(api: ContractApi) -> None:
    first = await api.apply(ONE, config_map("one", a="1"))
    second = await api.apply(ONE, config_map("one", a="1"))
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_a_field_no_longer_applied_is_removed(api: ContractApi) -> None:
    await api.apply(ONE, config_map("one", a="1", b="2"))
    obj = await api.apply(ONE, config_map("one", a="1"))
    assert obj["data"] == {"a": "1"}


async def test_a_map_that_is_emptied_and_still_applied_is_null(api: ContractApi) -> None:
    """Which a built-in kind takes for absent, and a custom resource refuses."""
    await api.apply(ONE, config_map("one", a="1"))
    assert "data" not in await api.apply(ONE, config_map("one") | {"data": {}})
    await api.apply(f"{WIDGETS}/one", widget("one", options={"x": "1"}))
    with pytest.raises(Refused) as refused:
        await api.apply(f"{WIDGETS}/one", widget("one", options={}))
    assert refused.value.code == 422
    assert "spec.options" in refused.value.fields
    assert "options" not in (await api.apply(f"{WIDGETS}/one", widget("one")))["spec"]


async def test_what_holds_only_an_empty_list_of_items_goes_with_them(api: ContractApi) -> None:
    await api.apply(f"{WIDGETS}/one", widget("one", parts=[{"name": "x"}]))
    with pytest.raises(Refused) as refused:
        await api.apply(f"{WIDGETS}/one", widget("one", parts=[]))
    assert (refused.value.code, "spec" in refused.value.fields) == (422, True)


async def test_a_field_of_two_appliers_survives_one_of_them(api: ContractApi) -> None:
    await api.apply(ONE, config_map("one", a="1", shared="x"), "one")
    await api.apply(ONE, config_map("one", shared="x"), "two")
    obj = await api.apply(ONE, config_map("one", a="1"), "one")
    assert obj["data"] == {"a": "1", "shared": "x"}
    obj = await api.apply(ONE, config_map("one"), "two")
    assert obj["data"] == {"a": "1"}


async def test_a_conflict_names_manager_and_field(api: ContractApi) -> None:
    await api.apply(ONE, config_map("one", a="1"), "one")
    with pytest.raises(Refused) as refused:
        await api.apply(ONE, config_map("one", a="2"), "two")
    assert refused.value.code == 409
    assert refused.value.reason == "Conflict"
    cause = refused.value.status["details"]["causes"][0]
    assert cause == {
        "reason": "FieldManagerConflict",
        "message": 'conflict with "one"',
        "field": ".data.a",
    }


async def test_force_takes_the_field_over(api: ContractApi) -> None:
    await api.apply(ONE, config_map("one", a="1", b="1"), "one")
    obj = await api.apply(ONE, config_map("one", a="2"), "two", force=True)
    assert obj["data"] == {"a": "2", "b": "1"}
    assert managers(obj) == {"one": {"f:data": {"f:b": {}}}, "two": {"f:data": {"f:a": {}}}}


async def test_the_same_value_is_shared_without_conflict(api: ContractApi) -> None:
    await api.apply(ONE, config_map("one", a="1"), "one")
    obj = await api.apply(ONE, config_map("one", a="1"), "two")
    assert set(managers(obj)) == {"one", "two"}


async def test_an_update_takes_over_what_it_changes(api: ContractApi) -> None:
    await api.apply(ONE, config_map("one", a="1"), "one")
    await api.merge(ONE, {"data": {"a": "2"}}, fieldManager="editor")
    with pytest.raises(Refused) as refused:
        await api.apply(ONE, config_map("one", a="1"), "one")
    assert 'conflict with "editor" using v1' in refused.value.message
    assert refused.value.fields == {".data.a"}


async def test_apply_needs_a_field_manager(api: ContractApi) -> None:
    with pytest.raises(Refused) as refused:
        await api.call("PATCH", ONE, config_map("one"), kind="application/apply-patch+yaml")
    assert refused.value.code == 422 or refused.value.code == 400


async def test_other_patches_may_not_be_forced(api: ContractApi) -> None:
    await api.create(CONFIG_MAPS, config_map("one", a="1"))
    with pytest.raises(Refused) as refused:
        await api.merge(ONE, {"data": {"a": "2"}}, force="true")
    assert refused.value.code == 422


async def test_apply_refuses_managed_fields_in_the_body(api: ContractApi) -> None:
    applied = await api.apply(ONE, config_map("one", a="1"))
    body = config_map("one", a="1")
    body["metadata"]["managedFields"] = applied["metadata"]["managedFields"]
    with pytest.raises(Refused) as refused:
        await api.apply(ONE, body)
    assert refused.value.code == 400


async def test_apply_with_a_stale_resource_version_conflicts(api: ContractApi) -> None:
    first = await api.apply(ONE, config_map("one", a="1"))
    await api.merge(ONE, {"data": {"other": "x"}})
    stale = config_map("one", a="2")
    stale["metadata"]["resourceVersion"] = first["metadata"]["resourceVersion"]
    with pytest.raises(Refused) as refused:
        await api.apply(ONE, stale)
    assert refused.value.code == 409


async def test_list_items_merge_by_key(api: ContractApi) -> None:
    path = f"{WIDGETS}/w"
    await api.apply(path, widget("w", parts=[{"name": "a", "size": 1}]), "one")
    obj = await api.apply(path, widget("w", parts=[{"name": "b", "size": 2}]), "two")
    assert {part["name"]: part["size"] for part in obj["spec"]["parts"]} == {"a": 1, "b": 2}
    obj = await api.apply(path, widget("w", parts=[{"name": "a", "color": "red"}]), "two")
    assert obj["spec"]["parts"] == [{"name": "a", "size": 1, "color": "red"}]


async def test_an_atomic_list_is_replaced_and_conflicts_as_a_whole(api: ContractApi) -> None:
    path = f"{WIDGETS}/w"
    await api.apply(path, widget("w", plain=["a"]), "one")
    with pytest.raises(Refused) as refused:
        await api.apply(path, widget("w", plain=["a", "b"]), "two")
    assert refused.value.fields == {".spec.plain"}
    obj = await api.apply(path, widget("w", plain=["b"]), "two", force=True)
    assert obj["spec"]["plain"] == ["b"]


async def test_a_defaulted_field_belongs_to_nobody(api: ContractApi) -> None:
    path = f"{WIDGETS}/w"
    obj = await api.apply(path, widget("w", name="x"), "one")
    assert obj["spec"]["replicas"] == 3
    obj = await api.apply(path, widget("w", replicas=5), "two")
    assert obj["spec"]["replicas"] == 5


async def test_service_ports_are_keyed_by_port_and_protocol(api: ContractApi) -> None:
    def service(*ports: tuple[str, int]) -> dict[str, object]:
        listed = [{"name": name, "port": port} for name, port in ports]
        spec = {"selector": {"app": "x"}, "ports": listed}
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec}

    path = f"{SERVICES}/s"
    await api.apply(path, service(("a", 1), ("b", 2)))
    obj = await api.apply(path, service(("b", 2), ("c", 3)))
    assert [(p["name"], p["port"], p["protocol"]) for p in obj["spec"]["ports"]] == [
        ("b", 2, "TCP"),
        ("c", 3, "TCP"),
    ]
    assert obj["spec"]["clusterIP"]


async def test_an_unknown_field_is_no_part_of_the_object(api: ContractApi) -> None:
    path = f"{WIDGETS}/w"
    with pytest.raises(Refused) as refused:
        await api.apply(path, widget("w", typo=1))
    assert (refused.value.code, refused.value.fields) == (500, set())
    assert ".spec.typo: field not declared in schema" in refused.value.message


async def test_published_schemas_say_which_fields_there_are(api: ContractApi) -> None:
    """An operator asks them whether definitions are as new as itself."""

    def published(document: dict[str, Any] | None) -> bool:
        found = ((document or {}).get("components") or {}).get("schemas") or {}
        named = {"group": "contract.gantry.dev", "version": "v1", "kind": "Widget"}
        schemas = [s for s in found.values() if s.get("x-kubernetes-group-version-kind") == [named]]
        return [set(s["properties"]["status"]["properties"]) for s in schemas] == [
            {"replicas", "selector", "note"}
        ]

    await api.until("/openapi/v3/apis/contract.gantry.dev/v1", published)


async def test_status_and_spec_are_applied_by_different_endpoints(api: ContractApi) -> None:
    path = f"{WIDGETS}/w"
    body = widget("w", replicas=1) | {"status": {"note": "ignored"}}
    obj = await api.apply(path, body, "one")
    assert "status" not in obj
    body = widget("w", replicas=7) | {"status": {"note": "kept"}}
    obj = await api.apply(f"{path}/status", body, "status")
    assert obj["spec"]["replicas"] == 1
    assert obj["status"] == {"note": "kept"}
    entries = {e["manager"]: e.get("subresource") for e in obj["metadata"]["managedFields"]}
    assert entries == {"one": None, "status": "status"}
    obj = await api.apply(path, widget("w", replicas=2), "one")
    assert obj["status"] == {"note": "kept"}


async def test_a_dry_run_changes_nothing(api: ContractApi) -> None:
    kind = "application/apply-patch+yaml"
    query = {"fieldManager": "one", "dryRun": "All"}
    obj = await api.call("PATCH", ONE, config_map("one", a="1"), kind=kind, **query)
    assert obj["data"] == {"a": "1"}
    with pytest.raises(Refused) as refused:
        await api.get(ONE)
    assert refused.value.code == 404
