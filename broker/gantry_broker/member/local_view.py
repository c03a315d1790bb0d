"""A replication group of this process, as clients see it, or fronts that serve from its store."""

from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from gantry_protocol.bodies import TopicConfig
from gantry_protocol.types import BrokerId

from gantry_broker.clients.claim import Claim
from gantry_broker.clients.consumers import Consumers
from gantry_broker.clients.mapped.book import QueueBook
from gantry_broker.clients.view import Created
from gantry_broker.member.cold_reads import ColdReads
from gantry_broker.member.local_store import LocalStore
from gantry_broker.remote.messages import Ping
from gantry_broker.retention.trimming import LogTrim

if TYPE_CHECKING:
    from gantry_broker.member.group import ReplicationGroup
    from gantry_broker.member.replica_reads import ReplicaReads


class LocalView:
    """Implements ``GroupView`` over a group and its ``LocalStore``.

    Attributes:
        accepting_writes: returns None when a send may be appended (H11).
    """

    def __init__(self, group: "ReplicationGroup", readers: Executor) -> None:
        """The group need not have started; ``readers`` are threads that wait for the disk."""
        self._group = group
        self.accepting_writes = group.writes.accepting
        self.store = LocalStore(
            group.store,
            group.writes.append,
            lambda: group.tier.reader,
            LogTrim(group.store, group.tier),
            ColdReads(group.store.log, readers),
        )

    @property
    def broker_name(self) -> str:
        """The group's name."""
        return self._group.broker_name

    @property
    def cluster(self) -> str:
        """The name of its cluster."""
        return self._group.cluster

    @property
    def store_host(self) -> tuple[str, int]:
        """The address at which this broker is asked for a record by its offset id."""
        return self._group.store_host

    @property
    def consumers(self) -> Consumers:
        """Subscription groups, and who is in them."""
        return self._group.consumers

    @property
    def queues(self) -> QueueBook:
        """The queue maps of its cluster."""
        return self._group.queues

    def create_topic(self, topic: TopicConfig, done: Created, *, if_absent: bool) -> None:
        """Create or change a topic: by the controllers first, then by a record in the log."""
        self._group.writes.create_topic(topic, done, if_absent=if_absent)

    def delete_topic(self, topic: str, done: Created) -> None:
        """Delete a topic: by the controllers first, then by a record in the log."""
        self._group.writes.delete_topic(topic, done)


class LeavingGroup:
    """Implements ``Leaving`` over a group."""

    def __init__(self, group: "ReplicationGroup") -> None:
        """The group need not have started."""
        self._group = group

    @property
    def drain_began_ms(self) -> int | None:
        """The time at which the controllers began to drain the group; None: they did not."""
        agent = self._group.agent
        return None if agent is None else agent.known.drain_began_ms

    @property
    def is_confirmed(self) -> bool:
        """Whether everything that is stored is confirmed."""
        core = self._group.core
        return core is not None and core.log.confirm >= self._group.store.log.end

    def reading_replicas(self) -> list[BrokerId]:
        """The replicas that may serve reads.

        None in a drain: its master has to know how far members are that keep their offsets
        themselves.
        """
        return [] if self.drain_began_ms is not None else self._group.reading_replicas()


class StoreView:
    """Implements ``ServingHost`` over a group: the storage process behind fronts.

    Args:
        group: need not have started.
        is_offered: whether fronts may serve sends and pulls by themselves now.
        moved: counts what goes through them.

    Attributes:
        view: the group as its clients see it.
        moved: see above.
    """

    def __init__(
        self,
        group: "ReplicationGroup",
        is_offered: Callable[[], bool],
        moved: Callable[[Ping], None],
    ) -> None:
        self.view = group.view
        self.moved = moved
        self._group = group
        self._is_offered = is_offered

    @property
    def is_offered(self) -> bool:
        """Whether fronts may serve sends and pulls by themselves now."""
        return self._is_offered()

    @property
    def serving(self) -> bool:
        """Whether it is the serving master."""
        return self._group.serving

    @property
    def takes_requests(self) -> bool:
        """Whether it is, and not cut off."""
        return self._group.writes.takes_requests

    @property
    def claim(self) -> Claim:
        """By what it is the master; there is one only while it serves."""
        return self._group.claim

    @property
    def reads(self) -> "ReplicaReads":
        """Its reads while it is a replica."""
        return self._group.reads

    @property
    def subscriptions_version(self) -> int:
        """The version of the subscription groups that the controllers named last."""
        agent = self._group.agent
        return 0 if agent is None else agent.known.subscriptions_version
