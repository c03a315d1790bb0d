"""The rings of a process's groups: equal shares of its memory for steps.

A share below ``SHARE_MIN`` would hold a state and hardly a step, so where many groups leave each of
them less, none is recorded, and the answer says how much they need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gantry_protocol.steps.ring import StepRing

from gantry_broker.decisions.recorded import RecordedReplica
from gantry_broker.replica import ReplicaCore

if TYPE_CHECKING:
    from collections.abc import Callable

SHARE_MIN: Final = 64 * 1024


class GroupRings:
    """The rings of a process.

    Args:
        bytes_max: of all of them; 0: nothing is recorded.
        groups: how many the process hosts.
        time: the time of day as text.

    Attributes:
        by_group: those of the groups whose core was made.
        note: why none is recorded; empty where they are, and where nobody wishes it.
    """

    def __init__(self, bytes_max: int, groups: int, time: Callable[[], str]) -> None:
        """No group is known yet."""
        self.by_group: dict[str, StepRing] = {}
        self.note = ""
        self._time = time
        self._share = bytes_max // max(1, groups)
        if self._share < SHARE_MIN:
            if bytes_max:
                self.note = (
                    f"{bytes_max} bytes are too few for {groups} groups; set recorded_bytes to "
                    f"{groups * SHARE_MIN} or more"
                )
            self._share = 0

    def new_core(self, group: str, **start: Any) -> ReplicaCore:
        """A group's core; its steps follow those of the group's last one, if there was one."""
        if not self._share:
            return ReplicaCore(**start)
        ring = self.by_group.setdefault(group, StepRing(self._share))
        return RecordedReplica(ring=ring, time=self._time, **start)
