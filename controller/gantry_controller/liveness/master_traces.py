"""The leader's part in the trace of each change of master (``gantry_protocol.tracing.masters``).

Local memory, of this leader: what it proposed and when. A change that it did not see coming has a
root of no length, to which the new master's part belongs all the same. What it proposed is noted
while tracing is off, too, since it may be switched on amid a change.
"""

import time
from collections.abc import Callable

from gantry_protocol.tracing.export import SpanExport
from gantry_protocol.tracing.masters import Change, seen_by_the_leader

from gantry_controller.liveness.core.courses import MasterChange
from gantry_controller.metadata.state import BrokerGroup, GroupKey


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class MasterTraces:
    """See the module.

    Args:
        export: takes the spans.
        wall_ms: milliseconds since 1970.
    """

    def __init__(self, export: SpanExport, wall_ms: Callable[[], int] = _wall_ms) -> None:
        self._export = export
        self._wall_ms = wall_ms
        self._proposed: dict[GroupKey, tuple[str, int]] = {}  # why, and when; under way

    def proposed(self, key: GroupKey, reason: str) -> None:
        """This leader proposes an election, and is told how that ends by ``settled``."""
        self._proposed[key] = (reason, self._wall_ms())

    def settled(self, key: GroupKey) -> None:
        """It ended, well or badly."""
        self._proposed.pop(key, None)

    def elected(self, group: BrokerGroup, course: MasterChange | None) -> None:
        """A majority has a new master; ``course`` is None where it is not known how it came."""
        if not self._export.is_on:
            return
        reason, proposed_ms = self._proposed.get(group.key, ("", None))
        elected_ms = self._wall_ms() if course is None else course.elected_ms
        self._export.add(
            seen_by_the_leader(
                Change(group.cluster, group.name, group.master_epoch),
                _name(course),
                (reason if course is None else course.reason) or reason,
                heard_ms=None if course is None else course.heard_ms,
                noticed_ms=None if course is None else course.noticed_ms,
                proposed_ms=proposed_ms,
                elected_ms=elected_ms,
            )
        )


def _name(course: MasterChange | None) -> str:
    if course is None or course.planned is None:
        return "election"
    return "hand-over" if course.planned else "failover"
