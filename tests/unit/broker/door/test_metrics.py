"""docs/doors.md names every metric of a door."""

from __future__ import annotations

import re
from pathlib import Path

from gantry_broker.door import DoorServer, DoorSettings
from gantry_broker.door.server import DoorCollector

PAGE = Path(__file__).resolve().parents[4] / "docs" / "doors.md"


async def test_page_names_every_metric_and_no_other() -> None:
    door = DoorServer(DoorSettings(group="g", cluster="c", controllers=["127.0.0.1:1"]))
    served = {
        one.name + ("_total" if one.type == "counter" else "")
        for one in DoorCollector(door).collect()
    }
    assert set(re.findall(r"gantry_door_\w+", PAGE.read_text("utf-8"))) == served
