"""Ports for processes of ours that end and start again: nobody takes one of them in between.

A port that was free a moment ago may be taken when its process starts, or starts again: by another
program that looked at the same moment, or by anybody's outgoing connection. So the ports lie below
the range from which Linux takes those of outgoing connections (``ip_local_port_range``, from
32768), and are divided into slots. A process claims a slot for as long as it lives, by a socket of
the abstract namespace, which ends with it and is seen by whoever shares its ports.

It refuses to hand out a port on which somebody listens, whoever that is.
"""

from __future__ import annotations

import atexit
import socket

from gantry_protocol.errors import GantryError, PortInUseError
from gantry_protocol.process.listening import bind

from gantry_lab.bench.processes import HOST

FIRST = 12_000
SLOT_PORTS = 450  # a port comes back after all others, so nobody is just being restarted on it
SLOTS = 40


class Ports:
    """The ports of one slot, in turns; a slot is claimed with the first of them.

    Args:
        first: the lowest port of slot 0; slots are known by their lowest port.
    """

    def __init__(
        self, first: int = FIRST, slot_ports: int = SLOT_PORTS, slots: int = SLOTS
    ) -> None:
        self._bottoms = [first + slot_ports * slot for slot in range(slots)]
        self._slot_ports = slot_ports
        self._claim: socket.socket | None = None
        self._bottom = 0
        self._taken = 0

    def take(self, count: int) -> list[int]:
        """Ports on which nobody listens; all different.

        Raises:
            GantryError: all slots are claimed, or a slot has too few ports on which nobody listens.
        """
        if self._claim is None:
            self._claim, self._bottom = self._claimed()
        found: list[int] = []
        for _ in range(self._slot_ports):
            if len(found) == count:
                return found
            port = self._bottom + self._taken % self._slot_ports
            self._taken += 1
            if _is_free(port):
                found.append(port)
        if len(found) == count:
            return found
        raise GantryError(
            f"Of ports {self._bottom} to {self._bottom + self._slot_ports - 1} only {len(found)} "
            f"are free, and {count} are needed; stop what listens there."
        )

    def close(self) -> None:
        """Let somebody else claim the slot."""
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    def _claimed(self) -> tuple[socket.socket, int]:
        for bottom in self._bottoms:
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                claim.bind(f"\0gantry-ports-{bottom}")
            except OSError:
                claim.close()
            else:
                return claim, bottom
        raise GantryError(
            f"All {len(self._bottoms)} ranges of ports from {self._bottoms[0]} on are claimed by "
            "running benchmarks and tests; stop one of them."
        )


def _is_free(port: int) -> bool:
    try:
        bind(HOST, port, purpose="a process of ours").close()
    except PortInUseError:
        return False
    return True


_OWN = Ports()
atexit.register(_OWN.close)


def free_ports(count: int) -> list[int]:
    """Ports of this process's own slot; see the module."""
    return _OWN.take(count)
