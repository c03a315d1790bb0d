"""Waiting for writes to flow again, and how long they did not."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_cli.client.gaps import AckTimes, Gap

QUIET_S = 1.0  # writes flow again once acknowledgements have come all this time


async def resumed(
    acks: AckTimes, since_s: float, *, patience_s: float, check: Callable[[], None]
) -> Gap | None:
    """Wait until acknowledgements flow again after a failure at `since_s`.

    Args:
        acks: the stream.
        since_s: when the failure began, on the monotonic clock.
        patience_s: how long to wait at most.
        check: called now and then; raises if the load itself is broken.

    Returns:
        The longest gap since then, or None when they did not resume in time.
    """
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        await asyncio.sleep(QUIET_S / 4)
        check()
        now_s = time.monotonic()
        gap = acks.longest(since_s)
        if gap is not None and now_s >= since_s + QUIET_S and acks.flowing(now_s, QUIET_S):
            return gap
    return None
