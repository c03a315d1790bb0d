"""The API server's fault switchboard, as a chaos run in another process uses it."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from gantry_local.apiserver.faults import MAX_RULES
from gantry_local.apiserver.standalone import StandaloneServer
from support.contract_api import ContractApi, Refused, config_map

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

FAULTS = "/gantry-local/faults"
MAPS = "/api/v1/namespaces/{ns}/configmaps"


@pytest.fixture
async def server() -> AsyncIterator[StandaloneServer]:
    async with StandaloneServer(bookmark_interval_s=0.05) as running:
        yield running


@pytest.fixture
async def api(server: StandaloneServer, tmp_path: Path) -> AsyncIterator[ContractApi]:
    async with ContractApi(server.write_kubeconfig(tmp_path / "kubeconfig")) as client:
        yield client


async def order(api: ContractApi, **fields: Any) -> dict[str, Any]:
    return await api.create(FAULTS, fields)


@pytest.mark.parametrize(
    ("code", "reason"), [(409, "Conflict"), (429, "TooManyRequests"), (500, "InternalError")]
)
async def test_a_rule_refuses_so_many_requests(api: ContractApi, code: int, reason: str) -> None:
    rule = {"code": code, "verb": "create", "plural": "configmaps", "count": 2, "retry_after_s": 7}
    state = await order(api, rule=rule)
    assert state["rules"][0]["count"] == 2
    await api.get(MAPS)
    for name in ("a", "b"):
        with pytest.raises(Refused) as refused:
            await api.create(MAPS, config_map(name))
        assert (refused.value.code, refused.value.reason) == (code, reason)
        if code == 429:
            assert refused.value.status["details"]["retryAfterSeconds"] == 7
    await api.create(MAPS, config_map("c"))
    assert (await api.get(FAULTS))["rules"] == []


async def test_a_rule_delays(api: ContractApi) -> None:
    await order(api, rule={"code": 200, "verb": "list", "delay_s": 300})
    slow = asyncio.create_task(api.get(MAPS))
    await api.create(MAPS, config_map("meanwhile"))
    assert not slow.done()
    slow.cancel()


async def test_watches_are_cut_ended_and_failed(server: StandaloneServer, api: ContractApi) -> None:
    version = (await api.get(MAPS))["metadata"]["resourceVersion"]
    for fault, code in (("gone", 410), ("error", 500)):
        async with api.watch(MAPS, resourceVersion=version) as watch:
            await order(api, watches=fault)
            kind, obj = await watch.next()
            assert (kind, obj["code"]) == ("ERROR", code)
            assert await watch.ended()
        version = (await api.get(MAPS))["metadata"]["resourceVersion"]
    async with api.watch(MAPS, resourceVersion=version) as watch:
        await order(api, watches="drop")
        with pytest.raises(aiohttp.ClientPayloadError):
            await watch.ended()
    assert server.api.watch_count == 0


async def test_a_silent_watch_catches_up_when_it_is_over(api: ContractApi) -> None:
    version = (await api.get(MAPS))["metadata"]["resourceVersion"]
    query = {"resourceVersion": version, "allowWatchBookmarks": "true"}
    async with api.watch(MAPS, **query) as watch:
        assert (await order(api, watches="silence", plural="configmaps"))["silent"] == [
            "configmaps"
        ]
        await api.create(MAPS, config_map("unheard"))
        pending = asyncio.create_task(watch.until("ADDED", "unheard"))
        await asyncio.sleep(0.1)  # two bookmarks would have come
        assert not pending.done()
        await api.delete(FAULTS)
        await pending


async def test_an_outage_cuts_everything_but_the_switchboard(api: ContractApi) -> None:
    await order(api, outage=True)
    with pytest.raises(aiohttp.ClientError):
        await api.get(MAPS)
    assert (await api.get(FAULTS))["outage"] is True
    await order(api, outage=False)
    await api.get(MAPS)


@pytest.mark.parametrize(
    "wrong", [{"rule": {"code": 418}}, {"watches": "explode"}, {"nonsense": 1}, {"rule": {}}]
)
async def test_a_wrong_order_is_refused(api: ContractApi, wrong: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        await order(api, **wrong)
    assert refused.value.code == 400


async def test_rules_are_bounded(api: ContractApi) -> None:
    for _ in range(MAX_RULES):
        await order(api, rule={"code": 500, "plural": "pods"})
    with pytest.raises(Refused) as refused:
        await order(api, rule={"code": 500})
    assert refused.value.code == 400


async def test_the_token_is_needed(server: StandaloneServer) -> None:
    async with aiohttp.ClientSession() as session:
        for path in ("/api/v1/pods", FAULTS, "/version", "/k/wrong/api/v1/pods"):
            async with session.get(server.url + path) as response:
                assert response.status == 401
                assert (await response.json())["reason"] == "Unauthorized"
        for headers in ({"Authorization": f"Bearer {server.token}"}, {}):
            prefix = "" if headers else f"/k/{server.token}"
            async with session.get(f"{server.url}{prefix}/version", headers=headers) as response:
                assert response.status == 200
        async with session.get(server.url + "/readyz") as response:
            assert response.status == 200


async def test_bodies_are_bounded(server: StandaloneServer) -> None:
    url = f"{server.url}/k/{server.token}/api/v1/namespaces/default/configmaps"
    body = io.BytesIO(b" " * 4_000_000)
    async with aiohttp.ClientSession() as session, session.post(url, data=body) as response:
        assert response.status == 413
        assert (await response.json())["reason"] == "RequestEntityTooLarge"
