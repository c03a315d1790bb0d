"""Settings that a proxy applies while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gantry_protocol.process import log
from gantry_protocol.process.live_settings import FileRead
from gantry_proxy.server import ProxyServer
from gantry_proxy.settings import LIVE, ProxySettings

OTHERS: dict[str, Any] = {
    "access_log": "all",
    "log_level": "debug",
    "tracing_endpoint": "http://nowhere",
    "tracing_ratio": 0.5,
}
"""A value of each that is not its default."""


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProxyServer:
    key = tmp_path / "key"
    key.write_text("k" * 64)
    return ProxyServer(
        ProxySettings(nameserver=["127.0.0.1:1"], controllers=["127.0.0.1:1"], quorum_key_file=key)
    )


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(log, "set_level", found.append)
    return found


def take(server: ProxyServer, **changed: Any) -> None:
    server._settings_watch.take(FileRead("1", server.settings.model_copy(update=changed)))


async def test_each_is_in_force_at_once(server: ProxyServer, levels: list[str]) -> None:
    assert OTHERS.keys() == LIVE
    take(server, **OTHERS, calls=5)
    assert server.users is not None
    assert (levels, server.users.logs_all) == (["debug"], True)
    assert (server._spans.is_on, server.producing.ratio) == (True, 0.5)
    assert server.settings.calls == 20_000, "which needs a restart"
    take(server, access_log="denied", log_level="info", tracing_endpoint=None)
    assert (levels, server.users.logs_all) == (["debug", "info"], False)
    assert not server._spans.is_on


async def test_a_level_that_a_user_has_set_stays_amid_another_change(
    server: ProxyServer, levels: list[str]
) -> None:
    take(server, tracing_ratio=0.5)
    assert levels == []


async def test_a_proxy_says_which_file_it_has_and_why_it_refuses_one(server: ProxyServer) -> None:
    take(server, tracing_ratio=0.5)
    server._settings_watch.take(FileRead("2", None, "wrong"))
    said = server.status()
    assert (said["settings"], said["settingsRefused"]) == ("1", "wrong")
    assert server.producing.ratio == 0.5
