"""docs/stateless.md names every metric of a front."""

from __future__ import annotations

import re
from pathlib import Path

from gantry_broker.front import FrontServer, FrontSettings
from gantry_broker.front.metrics import FrontCollector

PAGE = Path(__file__).resolve().parents[4] / "docs" / "stateless.md"


async def test_page_names_every_metric_and_no_other() -> None:
    front = FrontServer(FrontSettings(controllers=["127.0.0.1:1"]))
    served = {
        item.name + ("_total" if item.type == "counter" else "")
        for item in FrontCollector(front).collect()
    }
    assert set(re.findall(r"gantry_front_\w+", PAGE.read_text("utf-8"))) == served
