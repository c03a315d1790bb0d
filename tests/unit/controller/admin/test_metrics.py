"""The metrics that a controller serves: what they count, and that docs/metrics.md names them all.

``GANTRY_REWRITE=1`` writes the tables of the page anew; review the diff.
"""

from __future__ import annotations

import asyncio
import os
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

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from prometheus_client.core import Metric

PAGE = Path(__file__).resolve().parents[4] / "docs" / "metrics.md"
PREFIX = "gantry_controller_"
HEAD = "| Metric | Labels | Meaning |\n| --- | --- | --- |\n"


@pytest.fixture
async def controller(tmp_path: Path) -> AsyncIterator[Controller]:
    ports = dict.fromkeys(("raft_port", "remoting_port", "nameserver_port", "http_port"), 0)
    token = tmp_path / "token"
    token.write_text("secret")
    settings = ControllerSettings(data_dir=tmp_path / "data", admin_token_file=token, **ports)
    controller = Controller(settings)
    await controller.start()
    async with asyncio.timeout(10):
        while not controller.node.is_serving_leader:
            await asyncio.sleep(0)
    yield controller
    await controller.stop()


def families(controller: Controller) -> list[Metric]:
    found = controller._http.registry.collect()
    return sorted((one for one in found if one.name.startswith(PREFIX)), key=lambda one: one.name)


def value(controller: Controller, name: str) -> float:
    found = controller._http.registry.get_sample_value(PREFIX + name)
    assert found is not None, f"there is no metric {name}"
    return found


def row(family: Metric) -> str:
    ending = "_total" if family.type == "counter" else ""
    labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
    names = " ".join(f"`{label}`" for label in labels)
    return f"| `{family.name}{ending}` | {names} | {family.documentation} |\n"


async def test_page_names_every_metric_and_no_other(controller: Controller) -> None:
    controller.dispatcher.requests[1003] = 1  # a family with labels shows them once it has a sample
    controller.watchman.elections["handover"] = 1
    table = HEAD + "".join(map(row, families(controller)))
    if os.environ.get("GANTRY_REWRITE"):
        text = PAGE.read_text("utf-8")
        PAGE.write_text(text[: text.index(HEAD)] + table, "utf-8")
    assert PAGE.read_text("utf-8").endswith(table), "write it anew with GANTRY_REWRITE=1"


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
