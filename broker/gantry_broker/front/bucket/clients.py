"""Client requests on a group that has no master: what its tier can answer, and nothing else.

Sessions, pulls and questions about offsets are those of a master, over ``BucketStore``. What a
master would have to write is refused in one sentence: a client tries again, and what it has not
committed it commits to the next master.

Rules protected:

* Whoever was a member of a consumer group when the master was there stays one: another front may
  hear it. So no queue gets a second owner because two fronts know half of the members each.
* An offset that was reset is followed once, as at a master. That it was followed is known here
  only; the next master says it again.
* Mapped topics and consumption in order are left to masters.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from gantry_protocol.bodies import (
    MessageQueue,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
)
from gantry_protocol.bodies.consumers import ConsumerMembership
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import NameRefused
from gantry_protocol.queue_map import MAPPED
from gantry_protocol.remoting.asking import Asker, Outcome
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.tls.process import NO_TLS, Tls

from gantry_broker.clients.consumers import Here
from gantry_broker.clients.elsewhere import Elsewhere
from gantry_broker.clients.mapped.book import QueueBook
from gantry_broker.clients.mapped.maps import ClusterMaps
from gantry_broker.clients.mapped.masters import OtherMasters
from gantry_broker.clients.membership import Membership
from gantry_broker.clients.newcomers import GROUPS, Newcomers
from gantry_broker.clients.offsets import OffsetWriter, Positions
from gantry_broker.clients.processor import EXPIRY_SCAN_S
from gantry_broker.clients.pull import Puller
from gantry_broker.clients.sessions import Sessions
from gantry_broker.clients.traffic import Traffic
from gantry_broker.clients.view import Created
from gantry_broker.front.bucket.store import READ_ONLY, BucketStore
from gantry_broker.store.contract import Refusal
from gantry_broker.store.tables.offsets import GONE
from gantry_broker.store.tables.resets import RESET_MARK, due_reset

if TYPE_CHECKING:
    from gantry_protocol.remoting.server import Handler


class _NoLocks:
    """Locks of queues are a master's to give."""

    def lock(
        self,
        group: str,
        client_id: str,
        queues: list[MessageQueue],
        connection: int,
        owns: Callable[[list[MessageQueue]], None],
    ) -> None:
        """Nobody gets one."""
        owns([])

    def unlock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], connection: int
    ) -> None:
        """Nobody has one."""

    def is_held(self, group: str) -> bool:
        """Whether anybody has one."""
        return False

    def learn(self, queues: Collection[MessageQueue]) -> None:
        """Nobody will have one."""

    def knows(self, queue: MessageQueue) -> bool:
        """Nobody has one, which is all that there is to know."""
        return True


class BucketConsumers:
    """A ``ConsumerBook`` that reports nothing.

    Args:
        settings: of consumer groups, as the controllers have them.
        members: by consumer group, whom the last master heard.
        elsewhere: whom masters of other broker groups hear.
        broker_group: this one.
    """

    def __init__(
        self,
        settings: SubscriptionGroupTable,
        members: Mapping[str, ConsumerMembership],
        elsewhere: Elsewhere,
        broker_group: str,
    ) -> None:
        self.locks = _NoLocks()
        self.configs = settings
        self.is_current = True
        self._members = {
            name: [client.client_id for client in group.clients] for name, group in members.items()
        }
        self._elsewhere = elsewhere
        self._broker_group = broker_group
        self._here: Here | None = None

    def remembered(self, group: str) -> list[str]:
        """Whom the last master heard."""
        return list(self._members.get(group, ()))

    def elsewhere(self, group: str) -> list[str]:
        """Members that the master of another broker group hears."""
        return self._elsewhere.clients(self._broker_group, group)

    def is_elsewhere(self, group: str, client_id: str) -> bool:
        """Whether it is a member though it is not heard here."""
        return client_id in self._members.get(group, ()) or self._elsewhere.has(
            self._broker_group, group, client_id
        )

    @property
    def may_be_served(self) -> bool:
        """Whether any group may have members that are not known."""
        return True

    def came(self, group: str, client_id: str) -> bool:
        """Whether it was a member all along."""
        return self.is_elsewhere(group, client_id)

    def changed(self, group: str) -> None:
        """Nobody is told."""

    def config(self, group: str) -> SubscriptionGroupConfig:
        """The settings of ``group``."""
        found = self.configs.subscription_group_table.get(group)
        return found or SubscriptionGroupConfig(group)

    def serve(self, here: Here) -> None:
        """``here`` is told when members elsewhere come and go."""
        self._here = here
        self._elsewhere.join(self._broker_group, self._moved)

    def close(self) -> None:
        """Listen no more."""
        self._elsewhere.leave(self._broker_group)

    def change(self, command: RemotingCommand, done: Callable[[Outcome], None]) -> None:
        """Settings are changed by masters; no request here does it."""
        raise AssertionError("no handler changes settings here")

    def _moved(self, group: str, clients: set[str]) -> None:
        here, known = self._here, self._members.get(group, ())
        if here is not None and any(
            client not in known and not here.has(group, client) for client in clients
        ):
            here.tell(group)


class BucketView:
    """Implements ``GroupView`` over a tier."""

    def __init__(
        self,
        store: BucketStore,
        consumers: BucketConsumers,
        *,
        cluster: str,
        broker_name: str,
        peers: Asker,
        tls: Tls = NO_TLS,
    ) -> None:
        self.store = store
        self.consumers = consumers
        self.cluster = cluster
        self.broker_name = broker_name
        self.store_host = ("", 0)  # no record is made here
        maps = ClusterMaps(cluster, peers)
        self.queues = QueueBook(self, maps, OtherMasters(maps, tls=tls), peers)

    def accepting_writes(self) -> Refusal | None:
        """Never."""
        return READ_ONLY

    def create_topic(self, topic: TopicConfig, done: Created, *, if_absent: bool) -> None:
        """Refused."""
        done(READ_ONLY)

    def delete_topic(self, topic: str, done: Created) -> None:
        """Refused."""
        done(READ_ONLY)


class BucketProcessor:
    """Serves the clients of one group from its tier; a ``Handler``.

    Args:
        view: the group.

    Attributes:
        served: requests that were answered, or taken to be.
        refused: requests that only a master can answer.
    """

    def __init__(self, view: BucketView) -> None:
        self.served = 0
        self.refused = 0
        self._view = view
        self._sessions = Sessions(lambda name: None, view.consumers)
        view.consumers.serve(self._sessions)
        newcomers = Newcomers("groups", *GROUPS)
        positions = Positions(view, OffsetWriter(view), newcomers, lambda name: False)
        self._puller = Puller(
            view,
            self._sessions,
            self._followed,
            Traffic(time.monotonic()),
            lambda conn, group, topic, queue_id: READ_ONLY,
        )
        members = Membership(view, self._sessions, view.consumers.locks, newcomers)
        self._handlers: dict[int, Handler] = {
            RequestCode.PULL_MESSAGE: self._puller.pull,
            RequestCode.LITE_PULL_MESSAGE: self._puller.pull,
            RequestCode.QUERY_CONSUMER_OFFSET: positions.query,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: positions.search,
            RequestCode.GET_MAX_OFFSET: positions.maximum,
            RequestCode.GET_MIN_OFFSET: positions.minimum,
            RequestCode.GET_EARLIEST_MSG_STORETIME: positions.earliest,
            RequestCode.HEART_BEAT: members.heartbeat,
            RequestCode.UNREGISTER_CLIENT: members.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: members.consumer_ids,
            RequestCode.CHECK_CLIENT_CONFIG: members.check_client,
        }
        self._expiry = asyncio.get_running_loop().call_later(EXPIRY_SCAN_S, self._expire)

    def __call__(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Serve one request; a ``Handler``."""
        handler = self._handlers.get(request.code)
        if handler is None or self._is_mapped(request):
            self.refused += 1
            return reply(request, *READ_ONLY)
        self.served += 1
        try:
            return handler(conn, request)
        except NameRefused as error:
            return reply(request, error.answer_code, str(error))

    @property
    def parked(self) -> int:
        """Pulls that wait for a record."""
        return len(self._puller.parking)

    @property
    def read_bytes(self) -> int:
        """Bytes of records that went out."""
        return self._puller.read_bytes

    def connection_closed(self, conn: Connection) -> None:
        """A client left."""
        self._puller.parking.drop(conn)
        self._sessions.connection_closed(conn)

    def close(self) -> None:
        """Answer nothing more; whoever waits is sent back to ask again."""
        self._expiry.cancel()
        self._view.consumers.close()
        self._view.store.close()
        self._puller.close()

    def _is_mapped(self, request: RemotingCommand) -> bool:
        topic = self._view.store.topics.lookup((request.ext or {}).get("topic", ""))
        return topic is not None and MAPPED in topic.attributes

    def _followed(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """A consumer pulls from where its offset was reset to: it need not be told again."""
        committed = self._view.store.committed
        if due_reset(committed, group, topic, queue_id) == offset:
            committed.apply([(RESET_MARK + group, topic, queue_id, GONE)])
        return True

    def _expire(self) -> None:
        self._sessions.expire()
        self._expiry = asyncio.get_running_loop().call_later(EXPIRY_SCAN_S, self._expire)
