"""docs/metrics.md names every metric of a front."""

from __future__ import annotations

from gantry_broker.front import FrontServer, FrontSettings
from gantry_broker.front.metrics import FrontCollector
from support.metrics_page import check_section


async def test_page_names_every_metric_and_no_other() -> None:
    front = FrontServer(FrontSettings(controllers=["127.0.0.1:1"]))
    check_section("Front", FrontCollector(front).collect())
