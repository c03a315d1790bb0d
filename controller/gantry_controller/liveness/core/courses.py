"""The course of each group's last change of master, as this node saw it while it led.

Local memory: a node that begins to lead knows of no course, and says so by saying nothing. Times
are taken when the master is elected, so that they never change afterwards: who asks twice is told
the same.
"""

import msgspec
from gantry_protocol.types import Epoch

from gantry_controller.metadata.events import AcceptLoss, ElectMaster, Event
from gantry_controller.metadata.state import BrokerGroup, GroupKey

ASKED = "asked for"


class MasterChange(msgspec.Struct, frozen=True, gc=False):
    """One change of master; milliseconds since 1970, by this node's clock.

    Attributes:
        epoch: of the new master.
        planned: it was asked for, while nobody held the old master to be gone; None where neither
            is known.
        reason: why the old one was held to be gone, or `ASKED`.
        heard_ms: when the old one was heard last; None if it never was.
        noticed_ms: when it was first held to be gone; None if it was not.
    """

    epoch: Epoch
    planned: bool | None
    reason: str
    heard_ms: int | None
    noticed_ms: int | None
    elected_ms: int


class Suspicion(msgspec.Struct, frozen=True, gc=False):
    """The first time that the master of an epoch was held to be gone; listening times."""

    epoch: Epoch
    reason: str
    heard_s: float | None
    noticed_s: float


class Courses:
    """Suspicions, and what came of them: at most one of each for a group."""

    def __init__(self) -> None:
        self._suspicions: dict[GroupKey, Suspicion] = {}
        self._courses: dict[GroupKey, MasterChange] = {}

    def forget(self) -> None:
        """This node does not lead any more."""
        self._suspicions.clear()
        self._courses.clear()

    def suspected(
        self, group: BrokerGroup, reason: str, *, heard_s: float | None, now_s: float
    ) -> None:
        """The group's master is held to be gone; only the first word for an epoch counts."""
        known = self._suspicions.get(group.key)
        if known is None or known.epoch != group.master_epoch:
            seen = Suspicion(group.master_epoch, reason, heard_s, now_s)
            self._suspicions[group.key] = seen

    def cleared(self, key: GroupKey) -> None:
        """It is there after all."""
        self._suspicions.pop(key, None)

    def applied(self, event: Event, group: BrokerGroup, *, now_s: float, wall_ms: int) -> None:
        """Takes note of an event; only a new master begins a course."""
        if group.removed:
            self._suspicions.pop(group.key, None)
            self._courses.pop(group.key, None)
            return
        known = self._courses.get(group.key)
        is_new = known is None or known.epoch < group.master_epoch
        if not isinstance(event, ElectMaster | AcceptLoss) or not is_new or not group.had_master:
            return
        seen = self._suspicions.pop(group.key, None)
        if seen is not None and seen.epoch != group.master_epoch - 1:
            seen = None
        asked = isinstance(event, ElectMaster) and event.designate
        self._courses[group.key] = MasterChange(
            epoch=group.master_epoch,
            planned=False if seen is not None else (True if asked else None),
            reason=seen.reason if seen is not None else (ASKED if asked else ""),
            heard_ms=None
            if seen is None or seen.heard_s is None
            else wall_ms - round((now_s - seen.heard_s) * 1000),
            noticed_ms=None if seen is None else wall_ms - round((now_s - seen.noticed_s) * 1000),
            elected_ms=wall_ms,
        )

    def of(self, group: BrokerGroup) -> MasterChange | None:
        """The course that led to the present master; None if this node did not see it."""
        course = self._courses.get(group.key)
        return course if course is not None and course.epoch == group.master_epoch else None
