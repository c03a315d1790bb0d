"""``SpreadStore``: a group's master's store, whose reads go to its replicas, too.

Where a topic has readers, its queues are read from as many members. A replica is asked for what it
has, over a link of its own; everything else it leaves to the master, which is asked then.

Rules protected:

* What a replica gives is confirmed. That there is nothing is only the master's to say: it tells of
  records in the order of its answers, so that nobody who waits here misses one.
* A replica is asked only while its topics are as new as those that are known here, so that it gives
  nothing of a former topic.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from gantry_protocol.bodies.route import MASTER_ID
from gantry_protocol.settings.readers import READERS, readers_of

from gantry_broker.clients.core.placing import able_members
from gantry_broker.front.core.shares import Shares
from gantry_broker.remote.reader import ReplicaConnection
from gantry_broker.remote.store import RemoteStore
from gantry_broker.store.contract import (
    Appended,
    Confirmed,
    GetResult,
    GetStatus,
    QueueRead,
    Records,
    Refusal,
    WasRead,
)
from gantry_broker.store.tables.offsets import ConsumerOffsets
from gantry_broker.store.tables.topics import TopicTable


class SpreadStore:
    """See the module; implements ``RecordStore``.

    Args:
        master: its store.
        replicas: by broker id, the links to those that are in sync.
        shares: what was read where.
    """

    def __init__(
        self, master: RemoteStore, replicas: Mapping[int, ReplicaConnection], shares: Shares
    ) -> None:
        self._master = master
        self._replicas = replicas
        self._shares = shares

    @property
    def topics(self) -> TopicTable:
        """The topics."""
        return self._master.topics

    @property
    def committed(self) -> ConsumerOffsets:
        """The resets that are due."""
        return self._master.committed

    def append(self, records: Records, done: Appended, *, once: int | None = None) -> None:
        """To the master."""
        self._master.append(records, done, once=once)

    def subscribe(
        self, confirmed: Confirmed, topics: Collection[str] | None = None
    ) -> Callable[[], None]:
        """As the master tells."""
        return self._master.subscribe(confirmed, topics)

    def read(self, wanted: QueueRead, done: WasRead) -> None:
        """From the member from which least was read lately."""
        member = self._shares.pick(self._able(wanted))
        replica = self._replicas.get(member)
        if replica is None:
            self._from_master(wanted, done)
            return
        self._shares.asked(member)
        replica.read(wanted, partial(self._was_read, member, wanted, done))

    def _able(self, wanted: QueueRead) -> Iterable[int]:
        topic = self.topics.lookup(wanted.topic)
        if topic is None or READERS not in topic.attributes:
            return (MASTER_ID,)
        readers = readers_of(topic.attributes).of(wanted.queue_id)
        fit = tuple(
            member
            for member, replica in self._replicas.items()
            if replica.is_open and replica.topics_version >= self.topics.version
        )
        return able_members(readers, fit, wanted.topic, wanted.queue_id)

    def _from_master(self, wanted: QueueRead, done: WasRead) -> None:
        self._shares.asked(MASTER_ID)

        def was_read(result: GetResult | Refusal) -> None:
            size = len(result.body) if isinstance(result, GetResult) else 0
            self._shares.answered(MASTER_ID, size, time.monotonic())
            done(result)

        self._master.read(wanted, was_read)

    def _was_read(
        self, member: int, wanted: QueueRead, done: WasRead, result: GetResult | None
    ) -> None:
        is_answer = result is not None and _says_something(result)
        size = len(result.body) if result is not None and is_answer else 0
        self._shares.answered(member, size, time.monotonic())
        if result is not None and is_answer:
            done(result)
        else:
            self._from_master(wanted, done)


def _says_something(result: GetResult) -> bool:
    """Whether it is records, or that some of those that follow were looked at in vain."""
    if result.status is GetStatus.NO_MATCHED_MESSAGE:
        return result.next_offset < result.max_offset
    return result.status is GetStatus.FOUND
