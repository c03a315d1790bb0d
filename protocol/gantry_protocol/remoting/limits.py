"""Bounds on connections: of all servers together, and from one address.

Further ones are closed as they come, before a byte of them is read. What no source can take is left
to the others, so that a program that leaks connections shuts out itself and nobody else.

A connection costs a file descriptor, so the bound is also one of the process
(:mod:`gantry_protocol.process.descriptors`).
"""

from gantry_protocol.process import descriptors

CONNECTIONS_MAX = 20_000  # some ten kilobytes each


class ConnectionLimits:
    """Counts the connections of the servers that share it.

    Attributes:
        open: now.
        refused_total: turned away because there were too many.
        refused_source: turned away because there were too many from one address.

    Args:
        total: of all sources.
        per_source: of one address; None: as many as of all. An address may stand for many clients
            (a proxy, a node's network), so this is no limit for servers behind one.
    """

    def __init__(self, total: int = CONNECTIONS_MAX, per_source: int | None = None) -> None:
        self.total = total
        self.per_source = total if per_source is None else per_source
        self.open = 0
        self.refused_total = 0
        self.refused_source = 0
        self._by_source: dict[str, int] = {}

    def admit(self, source: str) -> bool:
        """Whether one more connection of ``source`` may stay; if so it must be released."""
        if self.open >= self.total:
            self.refused_total += 1
            return False
        held = self._by_source.get(source, 0)
        if held >= self.per_source:
            self.refused_source += 1
            return False
        self._by_source[source] = held + 1
        self.open += 1
        return True

    def release(self, source: str) -> None:
        """One connection of ``source`` has ended."""
        held = self._by_source[source]
        if held > 1:
            self._by_source[source] = held - 1
        else:
            del self._by_source[source]
        self.open -= 1


def fair_limits(descriptors_each: int = 1) -> ConnectionLimits:
    """As many as the process has descriptors for, a quarter of them out of reach of one source.

    Args:
        descriptors_each: what a connection takes; two if each is passed on over another one.
    """
    total = descriptors.for_clients(CONNECTIONS_MAX * descriptors_each) // descriptors_each
    return ConnectionLimits(total, total - total // 4)
