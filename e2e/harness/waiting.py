"""Waiting for what the cluster does in its own time, never longer than said."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Found = TypeVar("Found")
POLL_S = 0.1


def wait_until(
    what: str, patience_s: float, look: Callable[[], Found | None], *, poll_s: float = POLL_S
) -> Found:
    """Ask `look` until it returns something true, and return that.

    Raises:
        TimeoutError: it did not within `patience_s`; says `what` was waited for.
    """
    deadline = time.monotonic() + patience_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{what}: not within {patience_s:g} s (last seen: {found!r})")
        time.sleep(poll_s)
