"""docs/metrics.md names every metric of a door."""

from __future__ import annotations

from gantry_broker.door import DoorServer, DoorSettings
from gantry_broker.door.server import DoorCollector
from support.metrics_page import check_section


async def test_page_names_every_metric_and_no_other() -> None:
    door = DoorServer(DoorSettings(group="g", cluster="c", controllers=["127.0.0.1:1"]))
    check_section("Door", DoorCollector(door).collect())
