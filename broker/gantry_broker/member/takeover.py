"""The two records between which nobody wrote: the last of the masters before, and the first since.

Store times of the log itself, so both are known to whoever holds it, and cost a send nothing.
"""

from gantry_protocol.types import Offset

from gantry_broker.control.requests import TakeoverReport
from gantry_broker.log.store_time import store_time_at
from gantry_broker.queues.message_store import MessageStore


class Takeover:
    """The newest record that a master found in its log when it began, and its own first one."""

    def __init__(self, store: MessageStore) -> None:
        """To be made before the mastership's first record."""
        self._log = store.log
        self._start = store.log.end
        self._report = TakeoverReport(store.newest_ms or None, None)

    def report(self, confirm: Offset) -> TakeoverReport:
        """Both times, as far as they are known; a record counts once it is confirmed."""
        if self._report.first_ms is None and confirm > self._start:
            first_ms = store_time_at(self._log, self._start)
            self._report = self._report._replace(first_ms=first_ms)
        return self._report
