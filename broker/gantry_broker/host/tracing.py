"""Tracing of a broker process: its export of spans, and each group's part in a change of master."""

import time
from collections.abc import Callable

from gantry_protocol.tracing.export import SpanExport
from gantry_protocol.tracing.masters import Change, first_write, promoted

from gantry_broker.clients.traced_sends import OpenSends


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class BrokerTracing:
    """The common part of the groups of one process: the export, and the ratio.

    Args:
        export: takes the spans, while it is on.
        cluster: the name of the cluster.
        ratio: the share of sends that is traced.
    """

    def __init__(self, export: SpanExport, cluster: str, ratio: float) -> None:
        self.export = export
        self.ratio = ratio
        self._cluster = cluster

    @property
    def is_on(self) -> bool:
        """Whether spans are wanted."""
        return self.export.is_on

    def tune(self, endpoint: str | None, ratio: float) -> None:
        """Other settings from now on."""
        self.export.point_to(endpoint)
        self.ratio = ratio

    def sends(self, group: str) -> OpenSends:
        """The traced sends of a mastership."""
        return OpenSends(self.export, self.ratio, group)

    def takeover(self, group: str) -> "TakeoverTrace":
        """The group's part in changes of master."""
        return TakeoverTrace(self.export, self._cluster, group)


class TakeoverTrace:
    """From hearing that it is the master to its first write, of one group; masterships in turn.

    Moments are noted while tracing is off, too, since it may be switched on amid a change. One that
    ended while it was off is forgotten.

    Args:
        export: takes the spans.
        cluster: of the group.
        group: its name.
        wall_ms: milliseconds since 1970.
    """

    def __init__(
        self,
        export: SpanExport,
        cluster: str,
        group: str,
        wall_ms: Callable[[], int] = _wall_ms,
    ) -> None:
        self._export = export
        self._cluster = cluster
        self._group = group
        self._wall_ms = wall_ms
        self._change: Change | None = None  # under way, or waiting for its first write
        self._told_ms = 0
        self._promoted_ms: int | None = None

    def told(self, epoch: int) -> None:
        """It is to be the master of ``epoch``; only the first word counts."""
        if self._change is None or self._change.epoch != epoch:
            self._change = Change(self._cluster, self._group, epoch)
            self._told_ms, self._promoted_ms = self._wall_ms(), None

    def promoted(self, epoch: int) -> None:
        """It serves."""
        self.told(epoch)
        if not self._export.is_on:
            self.ended()
        elif self._change is not None and self._promoted_ms is None:
            self._promoted_ms = self._wall_ms()
            self._export.add([promoted(self._change, self._told_ms, self._promoted_ms)])

    @property
    def waits(self) -> bool:
        """Whether it serves and has no first write yet."""
        return self._promoted_ms is not None

    def wrote(self, first_ms: int) -> None:
        """Its first record that was confirmed has this store time, in ms since 1970."""
        if self._change is not None and self._promoted_ms is not None:
            self._export.add([first_write(self._change, self._promoted_ms, first_ms)])
        self._change = self._promoted_ms = None

    def ended(self) -> None:
        """It serves no more."""
        self._change = self._promoted_ms = None
