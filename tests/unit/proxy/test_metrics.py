"""docs/metrics.md names every metric of a proxy, those of its users among them."""

from __future__ import annotations

from pathlib import Path

from gantry_proxy.server import ProxyCollector, ProxyServer
from gantry_proxy.settings import ProxySettings
from support.metrics_page import check_section


async def test_page_names_every_metric_and_no_other(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 64)
    settings = ProxySettings(
        nameserver=["127.0.0.1:1"], controllers=["127.0.0.1:1"], quorum_key_file=key
    )
    check_section("Proxy", ProxyCollector(ProxyServer(settings)).collect())
