"""Brokers of the old kind: which of them are still there.

They repeat their report every 30 s to every name server. Only a report with news goes into the log;
the others just say that the broker lives. The leader forgets a broker whose connection to it closes
or whose reports stay out for the time it stated. A new leader gives each its whole time again.
"""

import asyncio
from collections.abc import Callable

from gantry_protocol.process import log

from gantry_controller.metadata.events import ForgetImport, encode_event
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.state import GroupKey

DEFAULT_TIMEOUT_S = 120.0  # upstream's DEFAULT_BROKER_CHANNEL_EXPIRED_TIME
IMPORTS_MAX = 10_000
SCAN_S = 5.0  # upstream's scanNotActiveBrokerInterval

ImportKey = tuple[GroupKey, str]
"""(group, address)."""

_log = log.get("imports")


class _Seen:
    __slots__ = ("connection", "seen_s", "timeout_s")

    def __init__(self, seen_s: float, timeout_s: float, connection: int | None) -> None:
        self.seen_s = seen_s
        self.timeout_s = timeout_s
        self.connection = connection


class Imports:
    """Liveness of imported brokers on one node; acts only while it leads.

    Args:
        machine: the applied state.
        propose: puts a command into the log and calls back.
        leading: whether this node leads.

    Attributes:
        refused: reports for which there was no room.
    """

    def __init__(
        self,
        machine: MetadataStateMachine,
        propose: Callable[[bytes, Callable[[object], None]], None],
        leading: Callable[[], bool],
    ) -> None:
        self.refused = 0
        self._machine = machine
        self._propose = propose
        self._leading = leading
        self._seen: dict[ImportKey, _Seen] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def heard(self) -> int:
        """Brokers that reported themselves here and are not forgotten yet."""
        return len(self._seen)

    def start(self) -> None:
        """Begins to scan."""
        self._timer = asyncio.get_running_loop().call_later(SCAN_S, self._scan)

    def stop(self) -> None:
        """Ends the scan."""
        if self._timer is not None:
            self._timer.cancel()

    def role_changed(self, *, leading: bool) -> None:
        """This node began or ceased to lead; what it noted in an earlier term is out of date."""
        if leading:
            self._seen.clear()

    def reported(
        self, key: GroupKey, address: str, timeout_s: float | None, connection: int | None
    ) -> bool:
        """A broker reported itself, directly or through another node; False if there is no room."""
        known = self._seen.get((key, address))
        if known is None and len(self._seen) >= IMPORTS_MAX:
            self.refused += 1
            return False
        if connection is None and known is not None:
            connection = known.connection
        now_s = asyncio.get_running_loop().time()
        self._seen[key, address] = _Seen(now_s, timeout_s or DEFAULT_TIMEOUT_S, connection)
        return True

    def refreshed(self, key: GroupKey, address: str) -> bool:
        """A broker without an id of ours sent a heartbeat; False if it never reported itself."""
        known = self._seen.get((key, address))
        if known is None:
            return False
        known.seen_s = asyncio.get_running_loop().time()
        return True

    def connection_closed(self, connection: int) -> None:
        """A connection is gone; who reported on it is, too."""
        for key, seen in list(self._seen.items()):
            if seen.connection == connection:
                self._forget(key, "connection closed")

    def _scan(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        if self._leading():
            for group_key, brokers in self._machine.state.imports.items():
                for broker in brokers:
                    key = (group_key, broker.address)
                    self._seen.setdefault(key, _Seen(now_s, DEFAULT_TIMEOUT_S, None))
        for key, seen in list(self._seen.items()):
            if now_s > seen.seen_s + seen.timeout_s:
                self._forget(key, "silent")
        self._timer = loop.call_later(SCAN_S, self._scan)

    def _forget(self, key: ImportKey, reason: str) -> None:
        del self._seen[key]
        (cluster, name), address = key
        brokers = self._machine.state.imports.get((cluster, name), ())
        if not self._leading() or all(broker.address != address for broker in brokers):
            return
        _log.info("imported broker is gone", broker_name=name, address=address, reason=reason)
        event = ForgetImport(cluster=cluster, name=name, address=address)
        # If the proposal is lost, the next scan finds the broker unseen and tries again.
        self._propose(encode_event(event), lambda _: None)
