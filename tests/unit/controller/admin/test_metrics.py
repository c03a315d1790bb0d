"""The metrics that a controller serves: what they count, and that docs/metrics.md names them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest
from gantry_controller.admin import watch
from gantry_controller.nameserver import imports
from gantry_controller.node import listener
from gantry_controller.remoting import forwarder
from gantry_controller.server import Controller
from gantry_controller.settings import ControllerSettings
from gantry_protocol.command import request
from gantry_protocol.types import NodeId
from support.metrics_page import check_section, exposed, names_on_page, of_their_own
from support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PREFIX = "gantry_controller_"


@pytest.fixture
async def controller(tmp_path: Path) -> AsyncIterator[Controller]:
    ports = dict.fromkeys(("raft_port", "remoting_port", "nameserver_port", "http_port"), 0)
    token = tmp_path / "token"
    token.write_text("secret")
    settings = ControllerSettings(data_dir=tmp_path / "data", admin_token_file=token, **ports)
    controller = Controller(settings)
    await controller.start()
    async with asyncio.timeout(PATIENCE_S):
        while not controller.node.is_serving_leader:
            await asyncio.sleep(0)
    yield controller
    await controller.stop()


def value(controller: Controller, name: str) -> float:
    found = controller._http.registry.get_sample_value(PREFIX + name)
    assert found is not None, f"there is no metric {name}"
    return found


async def test_page_names_every_metric_and_no_other(controller: Controller) -> None:
    families = list(controller._http.registry.collect())
    check_section("Controller", of_their_own(families))
    assert {exposed(family) for family in families} <= names_on_page()


async def test_peer_that_is_turned_away_is_counted(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "CONNECTIONS_MAX", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", controller.ports["raft"])
    assert await reader.read() == b""
    writer.close()
    assert value(controller, "peer_refused_total") == 1


async def test_full_bounds_say_how_often_they_refused(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "IMPORTS_MAX", 1)
    monkeypatch.setattr(forwarder, "WAITING_MAX", 1)
    monkeypatch.setattr(watch, "WATCHERS_MAX", 0)
    for address in ("a:1", "b:1", "a:1"):
        controller.imports.reported(("c", "g"), address, None, None)
    for _ in range(2):
        controller.forwarder.forward(NodeId(9), request(1005), lambda _: None)
    base, headers = (
        f"http://127.0.0.1:{controller.ports['http']}",
        {"Authorization": "Bearer secret"},
    )
    async with (
        aiohttp.ClientSession(base, headers=headers) as session,
        session.get("/v1/watch") as response,
    ):
        assert response.status == 429, await response.text()
    assert value(controller, "imported_brokers") == 1
    assert value(controller, "imported_brokers_refused_total") == 1
    assert value(controller, "watchers_refused_total") == 1
