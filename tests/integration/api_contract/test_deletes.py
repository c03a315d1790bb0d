"""Deletion: preconditions, finalizers, owners."""

from __future__ import annotations

from typing import Any

import pytest
from support.contract_api import WIDGETS, ContractApi, Refused, config_map, widget

CONFIG_MAPS = "/api/v1/namespaces/{ns}/configmaps"
ONE = f"{WIDGETS}/one"


def owned(name: str, owner: dict[str, Any], *, block: bool = False) -> dict[str, Any]:
    obj = config_map(name)
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    if block:
        reference["blockOwnerDeletion"] = True
    obj["metadata"]["ownerReferences"] = [reference]
    return obj


async def test_delete_answers_success_and_the_object_is_gone(api: ContractApi) -> None:
    created = await api.create(WIDGETS, widget("one"))
    answer = await api.delete(ONE)
    assert answer["status"] == "Success"
    assert answer["details"]["uid"] == created["metadata"]["uid"]
    await api.until(ONE, lambda found: found is None)


async def test_delete_of_another_uid_conflicts(api: ContractApi) -> None:
    await api.create(WIDGETS, widget("one"))
    wrong = "00000000-0000-0000-0000-000000000000"
    with pytest.raises(Refused) as refused:
        await api.delete(ONE, {"preconditions": {"uid": wrong}})
    assert refused.value.code == 409
    await api.get(ONE)


async def test_delete_of_another_version_conflicts(api: ContractApi) -> None:
    created = await api.create(WIDGETS, widget("one"))
    await api.merge(ONE, {"spec": {"replicas": 1}})
    version = created["metadata"]["resourceVersion"]
    with pytest.raises(Refused) as refused:
        await api.delete(ONE, {"preconditions": {"resourceVersion": version}})
    assert refused.value.code == 409


async def test_the_right_preconditions_let_it_through(api: ContractApi) -> None:
    created = await api.create(WIDGETS, widget("one"))
    await api.delete(ONE, {"preconditions": {"uid": created["metadata"]["uid"]}})
    await api.until(ONE, lambda found: found is None)


async def test_a_finalizer_keeps_the_object_until_it_is_removed(api: ContractApi) -> None:
    body = widget("one")
    body["metadata"]["finalizers"] = ["contract.gantry.dev/hold"]
    created = await api.create(WIDGETS, body)
    marked = await api.delete(ONE)
    assert marked["kind"] == "Widget"
    assert marked["metadata"]["deletionTimestamp"]
    assert marked["metadata"]["generation"] == created["metadata"]["generation"] + 1
    again = await api.delete(ONE)
    assert again["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
    await api.merge(ONE, {"metadata": {"finalizers": None}})
    await api.until(ONE, lambda found: found is None)


async def test_no_finalizer_may_be_added_during_deletion(api: ContractApi) -> None:
    body = widget("one")
    body["metadata"]["finalizers"] = ["contract.gantry.dev/hold"]
    await api.create(WIDGETS, body)
    await api.delete(ONE)
    more = ["contract.gantry.dev/hold", "contract.gantry.dev/more"]
    with pytest.raises(Refused) as refused:
        await api.merge(ONE, {"metadata": {"finalizers": more}})
    assert refused.value.code == 422
    assert refused.value.fields == {"metadata.finalizers"}
    await api.merge(ONE, {"metadata": {"finalizers": None}})


async def test_dependents_follow_their_owner(api: ContractApi) -> None:
    owner = await api.create(WIDGETS, widget("one"))
    await api.create(CONFIG_MAPS, owned("child", owner))
    await api.delete(ONE, {"propagationPolicy": "Background"})
    await api.until(f"{CONFIG_MAPS}/child", lambda found: found is None)


async def test_foreground_deletion_waits_for_blocking_dependents(api: ContractApi) -> None:
    owner = await api.create(WIDGETS, widget("one"))
    child = owned("child", owner, block=True)
    child["metadata"]["finalizers"] = ["contract.gantry.dev/hold"]
    await api.create(CONFIG_MAPS, child)
    await api.delete(ONE, {"propagationPolicy": "Foreground"})
    await api.until(
        f"{CONFIG_MAPS}/child",
        lambda found: found is not None and "deletionTimestamp" in found["metadata"],
    )
    held = await api.get(ONE)
    assert "foregroundDeletion" in held["metadata"]["finalizers"]
    kind = "application/json-patch+json"
    operations = [{"op": "replace", "path": "/metadata/finalizers", "value": []}]
    await api.call("PATCH", f"{CONFIG_MAPS}/child", operations, kind=kind)
    await api.until(ONE, lambda found: found is None)


async def test_orphans_stay_and_lose_their_owner(api: ContractApi) -> None:
    owner = await api.create(WIDGETS, widget("one"))
    await api.create(CONFIG_MAPS, owned("child", owner))
    await api.delete(ONE, {"propagationPolicy": "Orphan"})
    await api.until(ONE, lambda found: found is None)
    child = await api.get(f"{CONFIG_MAPS}/child")
    assert "ownerReferences" not in child["metadata"]


async def test_an_object_of_a_vanished_owner_is_collected(api: ContractApi) -> None:
    owner = await api.create(WIDGETS, widget("one"))
    await api.delete(ONE)
    await api.until(ONE, lambda found: found is None)
    await api.create(CONFIG_MAPS, owned("late", owner))
    await api.until(f"{CONFIG_MAPS}/late", lambda found: found is None)


async def test_one_of_two_owners_is_enough_to_stay(api: ContractApi) -> None:
    one = await api.create(WIDGETS, widget("one"))
    two = await api.create(WIDGETS, widget("two"))
    child = owned("child", one)
    child["metadata"]["ownerReferences"] += owned("x", two)["metadata"]["ownerReferences"]
    await api.create(CONFIG_MAPS, child)
    await api.delete(ONE)

    def has_one_owner(found: dict[str, Any] | None) -> bool:
        return found is not None and len(found["metadata"]["ownerReferences"]) == 1

    left = await api.until(f"{CONFIG_MAPS}/child", has_one_owner)
    assert left is not None
    assert left["metadata"]["ownerReferences"][0]["uid"] == two["metadata"]["uid"]
    await api.delete(f"{WIDGETS}/two")
    await api.until(f"{CONFIG_MAPS}/child", lambda found: found is None)


async def test_collections_are_deleted_by_selector(api: ContractApi) -> None:
    await api.create(CONFIG_MAPS, config_map("a", labels={"x": "1"}))
    await api.create(CONFIG_MAPS, config_map("b", labels={"x": "2"}))
    await api.delete(CONFIG_MAPS, labelSelector="x=1")
    await api.until(f"{CONFIG_MAPS}/a", lambda found: found is None)
    await api.get(f"{CONFIG_MAPS}/b")


async def test_a_namespace_takes_its_content_along(api: ContractApi) -> None:
    name = f"{api.ns}-more"
    await api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    body = config_map("held")
    body["metadata"]["finalizers"] = ["contract.gantry.dev/hold"]
    path = f"/api/v1/namespaces/{name}/configmaps"
    await api.create(path, body)
    await api.delete(f"/api/v1/namespaces/{name}")
    await api.until(
        f"{path}/held", lambda found: found is not None and "deletionTimestamp" in found["metadata"]
    )
    with pytest.raises(Refused) as refused:
        await api.create(path, config_map("late"))
    assert refused.value.code == 403
    await api.merge(f"{path}/held", {"metadata": {"finalizers": None}})
    await api.until(f"/api/v1/namespaces/{name}", lambda found: found is None)
