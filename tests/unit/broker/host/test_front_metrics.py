"""docs/stateless.md names every metric of a broker without a disk."""

from __future__ import annotations

import re
from pathlib import Path

from gantry_broker.host.front import FrontCollector, FrontServer
from gantry_broker.host.settings import BrokerSettings

PAGE = Path(__file__).resolve().parents[4] / "docs" / "stateless.md"


async def test_page_names_every_metric_of_its_own_and_no_other() -> None:
    front = FrontServer(BrokerSettings(group="g", cluster="c", store=["127.0.0.1:1"]))
    served = {
        one.name + ("_total" if one.type == "counter" else "")
        for one in FrontCollector(front).collect()
        if one.name.startswith("gantry_front_")
    }
    assert set(re.findall(r"gantry_front_\w+", PAGE.read_text("utf-8"))) == served
