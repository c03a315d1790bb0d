"""Probes of a broker whose connection closed: when they are sent, and what answers prove.

The kernel closes a dying process's sockets one after another, so the first knock may still be
accepted by a listener without anybody behind it: a few more follow. Two refusals in a row, at least
``GAP_S`` apart, are evidence. Anything else (accepted, timed out, unreachable, no such name) only
starts the count again. A heartbeat ends it all.
"""

import heapq
from enum import Enum, auto

from gantry_controller.liveness.core.table import BrokerSigns, HeartbeatTable, MemberKey

GAP_S = 0.05
ATTEMPTS_MAX = 20  # one second; after that the heartbeat time-out decides
WAITING_MAX = 10_000


class Knock(Enum):
    """The end of one attempt to connect."""

    REFUSED = auto()
    OTHER = auto()


class _Probe:
    __slots__ = ("attempts", "connection", "refused_at_s")

    def __init__(self, connection: int) -> None:
        self.connection = connection
        self.attempts = 0
        self.refused_at_s: float | None = None


class Probes:
    """Every probe under way at one node."""

    def __init__(self, table: HeartbeatTable) -> None:
        self._table = table
        self._probes: dict[MemberKey, _Probe] = {}
        self._due: list[tuple[float, MemberKey, int]] = []

    def start(self, member: MemberKey, now_s: float) -> None:
        """Begins to knock at ``member``'s address, if its connection is closed."""
        row = self._row(member)
        if row is None or not row.closed or row.refused or row.connection is None:
            return
        known = self._probes.get(member)
        if known is not None and known.connection == row.connection:
            return
        if len(self._probes) >= WAITING_MAX:
            return
        self._probes[member] = _Probe(row.connection)
        heapq.heappush(self._due, (now_s, member, row.connection))

    def clear(self) -> None:
        """Gives all of them up."""
        self._probes.clear()
        self._due.clear()

    def next_due(self) -> float | None:
        """The time at which the next knock is due."""
        return self._due[0][0] if self._due else None

    def take(self, now_s: float, limit: int) -> list[MemberKey]:
        """Members to knock at now; each is answered by ``answered``."""
        ready: list[MemberKey] = []
        while self._due and self._due[0][0] <= now_s and len(ready) < limit:
            _, member, connection = heapq.heappop(self._due)
            probe = self._probes.get(member)
            if probe is None or probe.connection != connection:
                continue
            if self._is_over(member, probe):
                del self._probes[member]
                continue
            probe.attempts += 1
            ready.append(member)
        return ready

    def answered(self, member: MemberKey, knock: Knock, now_s: float) -> bool:
        """Takes a knock's outcome; True when it completes the evidence, noted in the table."""
        probe = self._probes.get(member)
        if probe is None:
            return False
        if knock is Knock.REFUSED:
            if probe.refused_at_s is not None and now_s - probe.refused_at_s >= GAP_S:
                del self._probes[member]
                return self._table.refuse(member, probe.connection)
            if probe.refused_at_s is None:
                probe.refused_at_s = now_s
        else:
            probe.refused_at_s = None
        if self._is_over(member, probe):
            del self._probes[member]
        else:
            heapq.heappush(self._due, (now_s + GAP_S, member, probe.connection))
        return False

    def _is_over(self, member: MemberKey, probe: _Probe) -> bool:
        row = self._row(member)
        return (
            row is None
            or not row.closed
            or row.connection != probe.connection
            or probe.attempts >= ATTEMPTS_MAX
        )

    def _row(self, member: MemberKey) -> BrokerSigns | None:
        cluster, name, broker_id = member
        return self._table.row((cluster, name), broker_id)
