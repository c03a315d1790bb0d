"""A replication group of this process, as clients see it, or a broker that serves its store."""

from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from gantry_protocol.bodies import TopicConfig
from gantry_protocol.command import RemotingCommand
from gantry_protocol.remoting.asking import Outcome

from gantry_broker.clients.consumers import Claim, Consumers
from gantry_broker.clients.view import Created
from gantry_broker.member.cold_reads import ColdReads
from gantry_broker.member.local_store import LocalStore
from gantry_broker.retention.trimming import LogTrim

if TYPE_CHECKING:
    from gantry_broker.member.group import ReplicationGroup


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

    def create_topic(self, topic: TopicConfig, done: Created, *, if_absent: bool) -> None:
        """Create or change a topic: by the controllers first, then by a record in the log."""
        self._group.writes.create_topic(topic, done, if_absent=if_absent)

    def delete_topic(self, topic: str, done: Created) -> None:
        """Delete a topic: by the controllers first, then by a record in the log."""
        self._group.writes.delete_topic(topic, done)


class StoreView:
    """Implements ``ServingHost`` over a group: the storage process behind a broker without a disk.

    Attributes:
        view: the group as its clients see it.
    """

    def __init__(self, group: "ReplicationGroup") -> None:
        """The group need not have started."""
        self.view = group.view
        self._group = group

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
    def subscriptions_version(self) -> int:
        """The version of the subscription groups that the controllers named last."""
        agent = self._group.agent
        return 0 if agent is None else agent.known.subscriptions_version

    def ask(
        self, command: RemotingCommand, done: Callable[[Outcome], None], timeout_s: float
    ) -> None:
        """Pass something on to the controllers; ``done`` comes once, maybe at once."""
        agent = self._group.agent
        assert agent is not None, "nobody serves before it has joined"
        agent.peers.ask(command, done, timeout_s)
