"""The work queue on the event loop that the process uses."""

from __future__ import annotations

import uvloop
from gantry_operator.workqueue import WorkQueue


def test_a_key_due_at_once_behind_another_one_on_uvloop() -> None:
    """uvloop's handle of a timer that is due at once has no `when()`."""

    async def scenario() -> list[str]:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", -1.0)
        queue.add_after("b", -2.0)
        return sorted([await queue.get(), await queue.get()])

    assert uvloop.run(scenario()) == ["a", "b"]
