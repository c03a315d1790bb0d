"""ClusterIPs of Services: one bounded range, no address given twice."""

from __future__ import annotations

import ipaddress

from gantry_local.apiserver.errors import StatusError


class AddressPool:
    """Hands out addresses of ``network`` in turn, skipping what is taken."""

    def __init__(self, network: str) -> None:
        self._network = ipaddress.IPv4Network(network)
        # .0 and the last address are never given: they read as network and broadcast.
        self._size = self._network.num_addresses - 2
        self._taken: set[str] = set()
        self._next = 0

    def __contains__(self, address: str) -> bool:
        try:
            return ipaddress.IPv4Address(address) in self._network
        except ValueError:
            return False

    def take(self) -> str:
        """The next free address.

        Raises:
            StatusError: 500, as the real allocator answers when its range is full.
        """
        for _ in range(self._size):
            address = str(self._network[1 + self._next])
            self._next = (self._next + 1) % self._size
            if address not in self._taken:
                self._taken.add(address)
                return address
        message = f"failed to allocate an address: range {self._network} is full"
        raise StatusError(500, "InternalError", message)

    def claim(self, address: str) -> bool:
        """Take this very address; False when it is taken or outside the range."""
        if address not in self or address in self._taken:
            return False
        self._taken.add(address)
        return True

    def release(self, address: str) -> None:
        """Give an address back."""
        self._taken.discard(address)
