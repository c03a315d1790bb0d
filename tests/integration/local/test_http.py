"""The HTTP edge of the API server: who may ask, and how much."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import aiohttp
import pytest
from gantry_local.apiserver.store import Event
from support.contract_api import ContractApi, config_map
from support.pretend_cluster import StandaloneServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

FAILURES = "/gantry-local/failures"
MAPS = "/api/v1/namespaces/{ns}/configmaps"


@pytest.fixture
async def server() -> AsyncIterator[StandaloneServer]:
    async with StandaloneServer(bookmark_interval_s=0.05) as running:
        yield running


@pytest.fixture
async def api(server: StandaloneServer, tmp_path: Path) -> AsyncIterator[ContractApi]:
    async with ContractApi(server.write_kubeconfig(tmp_path / "kubeconfig")) as client:
        yield client


async def test_the_token_is_needed(server: StandaloneServer) -> None:
    async with aiohttp.ClientSession() as session:
        for path in ("/api/v1/pods", FAILURES, "/version", "/k/wrong/api/v1/pods"):
            async with session.get(server.url + path) as response:
                assert response.status == 401
                assert (await response.json())["reason"] == "Unauthorized"
        for headers in ({"Authorization": f"Bearer {server.token}"}, {}):
            prefix = "" if headers else f"/k/{server.token}"
            async with session.get(f"{server.url}{prefix}/version", headers=headers) as response:
                assert response.status == 200
        async with session.get(server.url + "/readyz") as response:
            assert response.status == 200


async def test_parts_that_fail_on_a_change_are_counted(
    server: StandaloneServer, api: ContractApi
) -> None:
    def broken(_event: Event) -> None:
        raise OSError("a full disk")

    server.registry.store.subscribe(broken, name="broken")
    await api.create(MAPS, config_map("a"))
    assert (await api.get(FAILURES))["broken"] == 1


async def test_bodies_are_bounded(server: StandaloneServer) -> None:
    url = f"{server.url}/k/{server.token}/api/v1/namespaces/default/configmaps"
    body = io.BytesIO(b" " * 4_000_000)
    async with aiohttp.ClientSession() as session, session.post(url, data=body) as response:
        assert response.status == 413
        assert (await response.json())["reason"] == "RequestEntityTooLarge"
