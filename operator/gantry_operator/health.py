"""Health of the operator: whether it works, not merely whether its process exists.

Alive means: no resource has waited for long, comparisons succeed, the Lease is held. A frozen event
loop, a stuck worker or a dead watch fails one of these, and the platform starts the process anew.
Ready means that it acts, or waits in good order for the Lease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP

if TYPE_CHECKING:
    from gantry_operator.cache import Cache, Key
    from gantry_operator.lease import LeaderElection
    from gantry_operator.metrics import Metrics
    from gantry_operator.quorums.directory import Directory
    from gantry_operator.resync import Resync
    from gantry_operator.workqueue import WorkQueue

MAX_QUEUE_AGE_S = 120.0
KEY_S = 0.5
"""More for each resource that was taken meanwhile: at a start thousands are due, and one of them is
the last. Who is at least so fast is well, and a new process would have to begin anew."""
RESYNCS_MISSED = 3
RESYNC_SLACK_S = 60.0


class Health:
    """Answers the probes; parts report in as they start."""

    def __init__(self, metrics: Metrics, resync_interval_s: float) -> None:
        self._metrics = metrics
        self._max_resync_age_s = RESYNCS_MISSED * resync_interval_s + RESYNC_SLACK_S
        self.stage = "starting"
        self.election: LeaderElection | None = None
        self.queue: WorkQueue[Key] | None = None
        self.resync: Resync | None = None
        self.directory: Directory | None = None
        self.cache: Cache | None = None

    def live(self) -> tuple[bool, str]:
        """The liveness probe."""
        self._measure()
        if self.queue is None or self.resync is None:
            return True, self.stage
        age_s = self.queue.oldest_age_s()
        if age_s > MAX_QUEUE_AGE_S + KEY_S * self.queue.went_before():
            return False, f"a resource has waited for {age_s:.0f} s"
        if self.resync.age_s > self._max_resync_age_s:
            return False, f"no comparison for {self.resync.age_s:.0f} s"
        if self.election is not None and not self.election.held:
            return False, "the lease is lost"
        return True, self._facts(age_s)

    def ready(self) -> tuple[bool, str]:
        """The readiness probe: true for the one that acts and for those that wait for the Lease."""
        return self.stage in ("standby", "acting"), self.stage

    def _facts(self, age_s: float) -> str:
        facts = f"{self.stage}; oldest key {age_s:.1f} s"
        if self.resync is not None:
            facts += f"; last comparison {self.resync.age_s:.0f} s ago"
        if self.cache is not None:
            groups = self.cache.count(BROKER_GROUP)
            quorums = self.cache.count(CONTROLLER_GROUP)
            facts += f"; {groups} broker groups, {quorums} controller groups"
        return facts

    def _measure(self) -> None:
        """Gauges are read when somebody asks."""
        self._metrics.leading.set(self.stage == "acting")
        if self.queue is not None:
            self._metrics.queue_depth.set(len(self.queue))
            self._metrics.queue_age.set(self.queue.oldest_age_s())
        if self.resync is not None:
            self._metrics.resync_age.set(self.resync.age_s)
        if self.directory is not None:
            self._metrics.streams.set(self.directory.streams)
