"""`make measure-lites` with a few hundred lite topics and one killed master."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from gantry_lab.bench import suite

TOPICS = 300


def test_everything_is_consumed_once_although_the_master_dies(tmp_path: Path) -> None:
    brief = (str(TOPICS), "--kills", "1", "--invisible-s", "2")
    done = subprocess.run(
        [sys.executable, "-m", "gantry_lab.measure.lites", *brief],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *lines, on = [json.loads(line) for line in done.stdout.splitlines()]
    found = {one["metric"]: one["median"] for one in lines}
    assert found["acknowledged"] > TOPICS, "a producer goes on while the master is killed"
    assert found["consumed"] == found["acknowledged"]
    assert (found["lost"], found["twice_done"], found["look_found"]) == (0, 0, 0)
    assert (found["known_topics"], found["known_subscriptions"]) == (TOPICS, TOPICS)
    assert found["first_ms"] > 0
    assert found["gap_ms"] > 0
    assert set(found) >= {goal.metric for _, goal in suite.bench("lites").rows}
    assert (on["bench"], on["machine"]["cpus"]) == ("lites", os.cpu_count())
    assert list(tmp_path.iterdir()) == []
