"""Topics that requests need and the group does not have yet: one creation, many waiting."""

import time
from collections.abc import Callable

from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import ResponseCode
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients.newcomers import Newcomers
from gantry_broker.clients.view import Created, GroupView
from gantry_broker.store.contract import Refusal

MAX_WAITING = 4096  # requests that wait for topics; each holds its message in memory
MAX_CREATIONS = 256
# What one costs later: a commit at the controllers, a row of their table, which is read anew, a
# record and a look at each of its queues.
LATER_S = 1e-3


class TopicCreation:
    """Creations under way, by topic name."""

    def __init__(self, view: GroupView, newcomers: Newcomers) -> None:
        self._view = view
        self._newcomers = newcomers
        self._waiting: dict[str, list[Created]] = {}
        self._waiting_count = 0

    def refuse_new(self, conn: Connection, name: str) -> Refusal | None:
        """The reason why ``conn`` gets no new topic now; None if it may, or there is one."""
        if name in self._waiting or self._view.store.topics.lookup(name) is not None:
            return None
        return self._newcomers.refuse(conn, time.monotonic())

    def ensure(self, topic: TopicConfig, then: Created, by: Connection | None = None) -> None:
        """Create ``topic`` unless somebody already does; ``then`` gets None once it exists.

        ``by`` is who needs it, if a client does.
        """
        refusal = None if by is None else self.refuse_new(by, topic.topic_name)
        if refusal is not None:
            then(refusal)
            return
        waiting = self._waiting.get(topic.topic_name)
        is_full = self._waiting_count >= MAX_WAITING
        if is_full or (waiting is None and len(self._waiting) >= MAX_CREATIONS):
            then(Refusal(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]too many topics are being created"))
            return
        self._waiting_count += 1
        if waiting is not None:
            waiting.append(then)
            return
        self._waiting[topic.topic_name] = [then]
        self.begin(topic, self._created(topic.topic_name), by, if_absent=True)

    def begin(
        self, topic: TopicConfig, then: Created, by: Connection | None, *, if_absent: bool
    ) -> None:
        """Have the controllers create or change ``topic``; what that costs is owed by ``by``."""
        if by is None:
            self._view.create_topic(topic, then, if_absent=if_absent)
            return
        turns = by.turns
        turns.owe(LATER_S)

        def ended(refusal: Refusal | None) -> None:
            turns.settle(LATER_S)
            then(refusal)

        self._view.create_topic(topic, ended, if_absent=if_absent)

    def _created(self, name: str) -> Callable[[Refusal | None], None]:
        def created(refusal: Refusal | None) -> None:
            waiting = self._waiting.pop(name, [])
            self._waiting_count -= len(waiting)
            for then in waiting:
                then(refusal)

        return created
