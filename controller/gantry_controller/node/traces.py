"""The core beside its node: how it is made, recorded or not, and what is said of its events."""

from __future__ import annotations

from random import SystemRandom
from typing import TYPE_CHECKING, Any

from gantry_protocol.process.steps import utc_now

from gantry_controller.decisions.recorded import RecordedCore
from gantry_controller.raft.core import RaftCore

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_protocol.process.log import Log
    from gantry_protocol.steps.ring import StepRing

    from gantry_controller.node.options import NodeOptions
    from gantry_controller.node.status import NodeStats

NOTABLE = frozenset(
    {
        *("members", "admitted", "disk-answers"),
        *("transfer", "transfer-ended", "resigns", "gives-way"),
    }
)


def new_core(options: NodeOptions, ring: StepRing, **start: Any) -> RaftCore:
    """The core of a node; its steps go into ``ring``, unless that has no room at all."""
    if not options.recorded_bytes:
        return RaftCore(options.raft(), SystemRandom(), **start)
    return RecordedCore(options.raft(), SystemRandom(), ring=ring, time=utc_now, **start)


class CoreEvents:
    """Counts and logs what a core reports of itself (``state.Tracer``)."""

    def __init__(self, logger: Log, stats: NodeStats, silent_s: Callable[[], float]) -> None:
        self._log = logger
        self._stats = stats
        self._silent_s = silent_s

    def __call__(self, event: str, facts: dict[str, object]) -> None:
        """Takes an event in."""
        if event == "state differs":
            self._log.error("the state of a node differs", **facts)
            return
        if event == "disk-hangs":
            self._log.warning("disk hangs", silent_s=round(self._silent_s(), 1))
            return
        if event == "transfer":
            self._stats.transfers += 1
        elif event == "gives-way":
            self._stats.gave_way += 1
        if event in NOTABLE:
            self._log.info(event, **facts)
        elif event != "rejected":
            self._log.debug(event, **facts)
