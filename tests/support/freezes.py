"""A process that was frozen: when it goes on, all that was due meanwhile comes in one turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from support.patience import PATIENCE_S

FREEZE_S = 100.0  # longer than any time-out of a request


async def cancelled_after_a_freeze(
    task: asyncio.Task[object], waits: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancel ``task`` in the turn in which its time-outs are due, and see it end by that.

    Args:
        waits: whether it has come to where it waits for an answer.
    """
    loop = asyncio.get_running_loop()
    while not waits():
        await asyncio.sleep(0)
    loop.call_later(FREEZE_S, task.cancel)
    time = loop.time
    monkeypatch.setattr(loop, "time", lambda: time() + 2 * FREEZE_S)
    await asyncio.sleep(0)
    done, _ = await asyncio.wait({task}, timeout=PATIENCE_S)
    assert done, "it was told to end, and goes on"
    with pytest.raises(asyncio.CancelledError):
        task.result()
