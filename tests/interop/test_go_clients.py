"""The default producer of RocketMQ's Go client, while masters end under it.

Skipped where Go is missing; `make interop` runs it. Nothing here asserts a time: the gaps are
printed, and written to the test report. More of them: ``python -m support.client_kills``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support import go
from support.client_kills import Through, run

pytestmark = [
    pytest.mark.skipif(bool(go.MISSING), reason="Go is not installed"),
    pytest.mark.timeout(600),
]


@pytest.mark.parametrize(
    ("through", "signals"),
    [("replica", ["SIGKILL"]), ("replica", ["SIGTERM"]), ("master", ["SIGKILL", "SIGTERM"])],
)
async def test_a_go_producer_loses_nothing_when_masters_end(
    through: Through,
    signals: list[str],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    found = await run(tmp_path, [str(go.producer())], signals, through)
    print("\n" + found.figures())
    record_property(f"go_gaps_ms_{through}", [one.gap_ms for one in found.kills])
    assert found.acknowledged > 0
    assert found.lost == []
    if through == "replica":  # directly at a killed master, it sends again after its time-out
        assert found.duplicated == []
