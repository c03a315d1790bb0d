"""Pod addresses 127.77.G.N: one per pod for its life, the next free one for the next pod.

Addresses are handed out in turn, so a vanished pod's address stays unused as long as possible and a
stale connection cannot reach its successor by accident.
"""

from __future__ import annotations

from typing import Final

LAST: Final = 254


class PodAddresses:
    """Addresses of one cluster index."""

    def __init__(self, cluster_index: int) -> None:
        self._prefix = f"127.77.{cluster_index}."
        self._taken: set[str] = set()
        self._next = 1

    def take(self) -> str | None:
        """The next free address; None when all are taken."""
        for _ in range(LAST):
            address = f"{self._prefix}{self._next}"
            self._next = self._next % LAST + 1
            if address not in self._taken:
                self._taken.add(address)
                return address
        return None

    def release(self, address: str) -> None:
        """Give an address back."""
        self._taken.discard(address)
