"""Counts what is done in each turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any


class Turns:
    """Turns of the running loop since this was made.

    Attributes:
        calls: how often the noted function was called in each turn.
    """

    def __init__(self) -> None:
        self.calls: Counter[int] = Counter()
        self._turn = 0
        self._next = asyncio.get_running_loop().call_soon(self._count)

    def _count(self) -> None:
        self._turn += 1
        self._next = asyncio.get_running_loop().call_soon(self._count)

    def noting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, whose calls are counted."""

        def noted(*arguments: Any) -> Any:
            self.calls[self._turn] += 1
            return function(*arguments)

        return noted

    def stop(self) -> None:
        """The loop may rest again."""
        self._next.cancel()
