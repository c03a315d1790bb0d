"""Suggestions in a master's answers to pulls: which member to ask next (``suggestWhichBrokerId``).

Clients follow it where their route names that member, and ask the master otherwise. Only queues
with several readers are read elsewhere, and not by groups that consume in order: whoever takes over
a queue there goes on from where its last owner was. Mapped topics are read at masters, too: only
these know where a queue is.
"""

import time
from collections.abc import Callable, Sequence

from gantry_protocol.bodies.route import MASTER_ID
from gantry_protocol.queue_map import MAPPED
from gantry_protocol.settings.readers import READERS, readers_of

from gantry_broker.clients.core.placing import Consumer, Placing, able_members
from gantry_broker.clients.parking import ParkedPull
from gantry_broker.clients.sessions import Sessions
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import GetResult

Replicas = Callable[[], Sequence[int]]
"""The broker ids of replicas that may serve reads now."""


class Suggestions:
    """See the module.

    Args:
        view: the group.
        sessions: who asks.
        replicas: who may serve reads.
        clock: seconds, never falling.

    Attributes:
        placing: who reads where.
    """

    def __init__(
        self,
        view: GroupView,
        sessions: Sessions,
        replicas: Replicas,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nobody has asked."""
        self.placing = Placing()
        self._view = view
        self._sessions = sessions
        self._replicas = replicas
        self._clock = clock

    def suggest(self, pull: ParkedPull, result: GetResult) -> int:
        """The broker id of the member that is to be asked next."""
        name, queue_id = pull.key
        topic = self._view.store.topics.lookup(name)
        if topic is None or READERS not in topic.attributes or MAPPED in topic.attributes:
            return MASTER_ID
        readers = readers_of(topic.attributes).of(queue_id)
        group = (pull.request.ext or {}).get("consumerGroup", "")
        if readers < 2 or self._view.consumers.locks.is_held(group):
            return MASTER_ID
        return self.placing.place(
            Consumer(self._client(group, pull.connection.id), group, name, queue_id),
            result.next_offset,
            len(result.body) / result.count if result.count else None,
            able_members(readers, tuple(self._replicas()), name, queue_id),
            self._clock(),
        )

    def _client(self, group: str, connection_id: int) -> str:
        """By its id: a consumer comes by over more than one connection."""
        sessions = self._sessions.group(group)
        member = None if sessions is None else sessions.members.get(connection_id)
        return f"#{connection_id}" if member is None else member.client_id
