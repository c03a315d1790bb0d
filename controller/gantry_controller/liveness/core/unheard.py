"""Consumers whom nobody hears: reports of masters that are gone for good.

A master's report of its clients outlives it, since its successor begins with it
(``metadata.subscriptions``). A broker group that nobody can serve any more has no successor. Its
last report would keep clients members for ever that have long been gone, and nobody would be given
their queues. So when a group has had no living master for ``KEPT_S``, its report is forgotten.

What is seen here is one leader's view, so the event names the epoch that was without a master.
"""

from collections.abc import Callable

from gantry_controller.metadata.events import ForgetConsumers
from gantry_controller.metadata.state import BrokerGroup, GroupKey, MetadataState

KEPT_S = 120.0  # as long as a master keeps a client that says nothing
LOOK_EVERY_S = 5.0
FORGET_MAX = 100  # groups at a time


class UnheardConsumers:
    """Since when the groups that consumers were reported of have no living master.

    Args:
        state: of the quorum.
        has_living_master: whether the process that was elected lives, as this node knows.
    """

    def __init__(
        self, state: MetadataState, has_living_master: Callable[[BrokerGroup], bool]
    ) -> None:
        self._state = state
        self._has_living_master = has_living_master
        self._since_s: dict[GroupKey, float] = {}
        self._next_look_s = float("-inf")

    def began(self) -> None:
        """This node leads now, or did not listen: nothing that was seen before counts."""
        self._since_s.clear()

    def due(self, now_s: float) -> list[ForgetConsumers]:
        """The events to propose now; empty most of the time."""
        if now_s < self._next_look_s:
            return []
        self._next_look_s = now_s + LOOK_EVERY_S
        seen_s, self._since_s = self._since_s, {}
        due: list[ForgetConsumers] = []
        for key, table in self._state.consumers.items():
            group = self._state.groups[key]
            if not table.groups or self._has_living_master(group):
                continue
            self._since_s[key] = seen_s.get(key, now_s)
            if now_s - self._since_s[key] >= KEPT_S and len(due) < FORGET_MAX:
                due.append(ForgetConsumers(*key, master_epoch=group.master_epoch))
        return due
