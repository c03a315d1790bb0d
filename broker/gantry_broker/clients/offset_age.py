"""Forgets the offsets of consumer groups that nobody uses any more.

An offset that is lost makes a consumer begin at the end of its queue, so nothing goes early: only
what was neither committed nor wanted by a connected member, or by a pop, for ``kept_hours`` that
masters have served. Wall clocks have no say in it, and hours in which the group had no master do
not count. The offsets of a group that is in use are written anew once a day, so they are as young
as its last day.
"""

import asyncio
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet

from gantry_protocol.process import log

from gantry_broker.clients.topic_rules import is_system_group
from gantry_broker.store.tables.offsets import TOUCH_HOURS, ConsumerOffsets, OffsetKey
from gantry_broker.store.tables.resets import owner_of

KEPT_HOURS = 90 * 24
HOUR_S = 3600.0
SLICE = 2_000  # offsets looked at in one turn of the loop
PAUSE_S = 0.05

_log = log.get("offsets")


class OffsetAge:
    """Counts the hours of a mastership, and looks at all offsets in each.

    Args:
        offsets: the offsets.
        has_members: whether a consumer group has members now.
        changed: is told after something was forgotten or touched.
        take_popped: gives the groups that popped since it was asked last; their clients may be no
            members, since they are behind a proxy.
        kept_hours: how long what nobody uses is kept; 0 for ever.

    Attributes:
        expired: offsets that were forgotten.
    """

    def __init__(
        self,
        offsets: ConsumerOffsets,
        has_members: Callable[[str], bool],
        changed: Callable[[], None],
        kept_hours: int = KEPT_HOURS,
        take_popped: Callable[[], AbstractSet[str]] = frozenset,
    ) -> None:
        self.expired = 0
        self._offsets = offsets
        self._has_members = has_members
        self._changed = changed
        self.kept_hours = kept_hours
        self._take_popped = take_popped
        self._popped: AbstractSet[str] = frozenset()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(HOUR_S, self._hour_passed)
        self._old: Iterator[tuple[OffsetKey, int]] = iter(())

    def close(self) -> None:
        """The mastership is over."""
        self._timer.cancel()

    def _hour_passed(self) -> None:
        self._offsets.count_hour()
        self._changed()
        before = self.expired
        self._popped = self._take_popped()
        self._old = self._offsets.unused(TOUCH_HOURS)
        self._look(self._loop.time() + HOUR_S, before)

    def _look(self, next_s: float, before: int) -> None:
        for _ in range(SLICE):
            found = next(self._old, None)
            if found is None:
                if self.expired > before:
                    _log.info(
                        "offsets that nobody used are forgotten",
                        count=self.expired - before,
                        unused_hours=self.kept_hours,
                    )
                self._timer = self._loop.call_at(next_s, self._hour_passed)
                return
            self._judge(*found)
        self._timer = self._loop.call_later(PAUSE_S, self._look, next_s, before)

    def _judge(self, key: OffsetKey, unused_hours: int) -> None:
        group = owner_of(key[0])
        if is_system_group(group):
            return
        if group in self._popped or self._has_members(group):
            self._offsets.touch(*key)
        elif 0 < self.kept_hours <= unused_hours:
            self._offsets.forget(*key)
            self.expired += 1
        else:
            return
        self._changed()
