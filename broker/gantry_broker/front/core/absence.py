"""The evidence that a broker group has no living master: the controllers' leader says so. Pure.

A front that cannot reach a master knows only that about itself. So the leader is asked
(GetSyncStateData, 1006), which hears the members' heartbeats. A master that the leader has not
heard for its time-out serves nobody by then (``replica``: it hears that nobody hears it).

Rule protected: a group is off only when the leader said so for ``OFF_AFTER_S``, again and again;
silence, and answers that say nothing of the group, count for nothing. One answer that names a
living master ends it.
"""

from gantry_protocol.bodies.controller import ReplicasInfo

ASK_EVERY_S = 1.0
OFF_AFTER_S = 5.0  # beyond the heartbeats' time-out: failovers are over by then
TIMES = 3  # answers at least


class Absence:
    """See the module.

    Attributes:
        is_off: the group has no master that lives.
    """

    def __init__(self) -> None:
        """Nothing is known."""
        self.is_off = False
        self._since_s = 0.0
        self._times = 0

    def heard(self, info: ReplicasInfo | None, now_s: float) -> None:
        """An answer of the leader; None if it says nothing of the group, or there was none."""
        if info is None:
            if not self.is_off:
                self._times = 0
            return
        if any(
            member.alive and member.broker_id == info.master_broker_id
            for member in (*info.in_sync_replicas, *info.not_in_sync_replicas)
        ):
            self.ended()
            return
        if not self._times:
            self._since_s = now_s
        self._times += 1
        if self._times >= TIMES and now_s - self._since_s >= OFF_AFTER_S:
            self.is_off = True

    def ended(self) -> None:
        """A master was reached, or named anew."""
        self.is_off = False
        self._times = 0
