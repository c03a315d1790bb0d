"""Lists in pages, selectors, watches from a version."""

from __future__ import annotations

import pytest
from support.contract_api import WIDGETS, ContractApi, Refused, config_map, widget

CONFIG_MAPS = "/api/v1/namespaces/{ns}/configmaps"
MINE = "contract=yes"


async def fill(api: ContractApi, *names: str) -> None:
    for name in names:
        labels = {"contract": "yes", "name": name}
        await api.create(CONFIG_MAPS, config_map(name, labels=labels))


def names(listed: dict[str, object]) -> list[str]:
    items = listed["items"]
    assert isinstance(items, list)
    return [item["metadata"]["name"] for item in items]


async def test_a_list_has_a_version_and_a_kind(api: ContractApi) -> None:
    listed = await api.get(WIDGETS)
    assert listed["kind"] == "WidgetList"
    assert listed["apiVersion"] == "contract.gantry.dev/v1"
    assert listed["metadata"]["resourceVersion"]
    assert listed["items"] == []


async def test_pages_show_one_moment(api: ContractApi) -> None:
    await fill(api, "a", "b", "c")
    first = await api.get(CONFIG_MAPS, limit="2", labelSelector=MINE)
    assert names(first) == ["a", "b"]
    await fill(api, "d")
    token = first["metadata"]["continue"]
    rest = await api.get(CONFIG_MAPS, **{"limit": "2", "labelSelector": MINE, "continue": token})
    assert names(rest) == ["c"]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert not rest["metadata"].get("continue")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("name=a", ["a"]),
        ("name==a", ["a"]),
        ("contract=yes,name!=a", ["b", "c"]),
        ("name in (a, c)", ["a", "c"]),
        ("contract,name notin (a,b)", ["c"]),
        ("contract", ["a", "b", "c"]),
        ("name,!contract", []),
    ],
)
async def test_label_selectors(api: ContractApi, selector: str, expected: list[str]) -> None:
    await fill(api, "a", "b", "c")
    assert names(await api.get(CONFIG_MAPS, labelSelector=selector)) == expected


async def test_field_selectors(api: ContractApi) -> None:
    await fill(api, "a", "b")
    assert names(await api.get(CONFIG_MAPS, fieldSelector="metadata.name=b")) == ["b"]
    with pytest.raises(Refused) as refused:
        await api.get(CONFIG_MAPS, fieldSelector="data.x=1")
    assert refused.value.code == 400


async def test_a_malformed_selector_is_refused(api: ContractApi) -> None:
    with pytest.raises(Refused) as refused:
        await api.get(CONFIG_MAPS, labelSelector="a in b")
    assert refused.value.code == 400


async def test_a_watch_starts_after_its_version(api: ContractApi) -> None:
    await fill(api, "before")
    version = (await api.get(CONFIG_MAPS))["metadata"]["resourceVersion"]
    await fill(api, "between")
    async with api.watch(CONFIG_MAPS, resourceVersion=version, labelSelector=MINE) as watch:
        kind, obj = await watch.next()
        assert (kind, obj["metadata"]["name"]) == ("ADDED", "between")
        await api.merge(f"{CONFIG_MAPS}/before", {"data": {"x": "1"}})
        kind, obj = await watch.next()
        assert (kind, obj["metadata"]["name"]) == ("MODIFIED", "before")
        await api.delete(f"{CONFIG_MAPS}/before")
        kind, gone = await watch.next()
        assert (kind, gone["metadata"]["name"]) == ("DELETED", "before")
        assert int(gone["metadata"]["resourceVersion"]) > int(obj["metadata"]["resourceVersion"])


async def test_a_watch_without_a_version_begins_with_what_exists(api: ContractApi) -> None:
    await fill(api, "a", "b")
    async with api.watch(CONFIG_MAPS, labelSelector=MINE) as watch:
        first = [await watch.next(), await watch.next()]
    assert sorted((kind, obj["metadata"]["name"]) for kind, obj in first) == [
        ("ADDED", "a"),
        ("ADDED", "b"),
    ]


async def test_objects_come_into_a_selected_view_and_leave_it(api: ContractApi) -> None:
    version = (await api.get(CONFIG_MAPS))["metadata"]["resourceVersion"]
    async with api.watch(CONFIG_MAPS, resourceVersion=version, labelSelector="in=view") as watch:
        await api.create(CONFIG_MAPS, config_map("one"))
        await api.merge(f"{CONFIG_MAPS}/one", {"metadata": {"labels": {"in": "view"}}})
        kind, _ = await watch.next()
        assert kind == "ADDED"
        await api.merge(f"{CONFIG_MAPS}/one", {"metadata": {"labels": {"in": None}}})
        kind, obj = await watch.next()
        assert kind == "DELETED"
        assert obj["metadata"]["labels"] == {"in": "view"}


async def test_nobody_sees_an_object_without_its_last_finalizer(api: ContractApi) -> None:
    body = widget("one")
    body["metadata"]["finalizers"] = ["contract.gantry.dev/hold"]
    created = await api.create(WIDGETS, body)
    version = created["metadata"]["resourceVersion"]
    async with api.watch(WIDGETS, resourceVersion=version) as watch:
        await api.delete(f"{WIDGETS}/one")
        await api.merge(f"{WIDGETS}/one", {"metadata": {"finalizers": None}})
        seen = [await watch.next(), await watch.next()]
    assert [kind for kind, _ in seen] == ["MODIFIED", "DELETED"]
    assert [obj["metadata"]["finalizers"] for _, obj in seen] == [["contract.gantry.dev/hold"]] * 2


async def test_a_watch_ends_at_its_timeout(api: ContractApi) -> None:
    version = (await api.get(WIDGETS))["metadata"]["resourceVersion"]
    async with api.watch(WIDGETS, resourceVersion=version, timeoutSeconds="1") as watch:
        assert await watch.ended()


async def test_initial_events_end_with_a_bookmark(api: ContractApi) -> None:
    await api.create(WIDGETS, widget("one"))
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    try:
        async with api.watch(WIDGETS, **query) as watch:
            kind, obj = await watch.next()
            assert (kind, obj["metadata"]["name"]) == ("ADDED", "one")
            kind, obj = await watch.next()
            assert kind == "BOOKMARK"
            assert obj["kind"] == "Widget"
            assert obj["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    except Refused as refused:
        if "WatchList feature gate" not in refused.message:
            raise
        pytest.skip("this server is older than 1.32, the first that does this by itself")


async def test_an_ancient_version_is_gone(api: ContractApi) -> None:
    # A server that still knows its first revision tells at once of this.
    await api.create(CONFIG_MAPS, {"metadata": {"name": "young"}})
    api.compact()
    async with api.watch(CONFIG_MAPS, resourceVersion="1") as watch:
        kind, obj = await watch.next()
    if kind != "ERROR":
        pytest.skip("this server is so young that it still knows its first revision")
    assert (obj["code"], obj["reason"]) == (410, "Expired")


async def test_a_malformed_continue_token_is_refused(api: ContractApi) -> None:
    with pytest.raises(Refused) as refused:
        await api.get(CONFIG_MAPS, **{"continue": "!!!"})
    assert refused.value.code == 400
