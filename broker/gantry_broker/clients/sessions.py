"""Connected clients: producers, consumer groups, their members and subscriptions.

Upstream: ``ClientManageProcessor``, ``ConsumerManager``, ``ConsumerGroupInfo``. Connections are
memory of one master; after a change of master clients heartbeat again. Members of a clustering
group learn of every change by 40 and divide the queues among the ids that 38 returns, so that list
is never served in a form that lacks the caller: it would give up all its queues. A client that
reads from replicas comes over several connections, and is no second member by that. Who was a
member under the last master counts as one until it comes back or is forgotten (see ``consumers``),
and so does whom the master of another broker group hears (see ``elsewhere``).
"""

import time
from collections.abc import Callable, Iterator

import msgspec
from gantry_protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData
from gantry_protocol.bodies.client import BROADCASTING, CLUSTERING, CONSUME_PASSIVELY
from gantry_protocol.bodies.consumers import (
    ConsumerClient,
    ConsumerMembership,
    ConsumerSubscription,
)
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import request as make_request
from gantry_protocol.errors import BodyError
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients.access import HEARD_AS
from gantry_broker.clients.view import ConsumerBook

EXPIRY_S = 120.0  # upstream's channelExpiredTimeout
MAX_GROUPS_PER_CLIENT = 1024
MAX_SUBSCRIPTIONS_PER_GROUP = 4096
_CLIENT = "producer"  # in a connection's attrs: the id of the producer's client that speaks there


class ConsumerMember(msgspec.Struct):
    """One client in one group."""

    connection: Connection
    client_id: str
    language: str
    version: int
    seen_at: float  # seconds of the clock


class ConsumerGroup:
    """One consumer group with at least one member."""

    __slots__ = ("consume_from_where", "consume_type", "members", "message_model", "name", "topics")

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[int, ConsumerMember] = {}  # by connection id
        self.topics: dict[str, SubscriptionData] = {}
        self.message_model = CLUSTERING
        self.consume_type = CONSUME_PASSIVELY
        self.consume_from_where = ""

    @property
    def is_broadcasting(self) -> bool:
        """Every member gets every message; nobody divides queues."""
        return self.message_model == BROADCASTING

    def client_ids(self) -> list[str]:
        """The members' ids, each once: a client may come back before its old connection is gone."""
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    def learn(self, data: ConsumerData) -> bool:
        """Take a heartbeat's subscriptions over; returns whether a topic came or went."""
        self.message_model = data.message_model
        self.consume_type = data.consume_type
        self.consume_from_where = data.consume_from_where
        wanted = {subscription.topic: subscription for subscription in data.subscription_data_set}
        changed = self.topics.keys() != wanted.keys()
        for topic in self.topics.keys() - wanted.keys():
            del self.topics[topic]
        for topic, subscription in wanted.items():
            known = self.topics.get(topic)
            if known is None or subscription.sub_version > known.sub_version:
                self.topics[topic] = subscription
        return changed


class Sessions:
    """All producers and consumers of one master.

    Args:
        on_new_group: called with the name of a consumer group that was not known.
        book: what the controllers know of consumers; told of every change.
        clock: seconds, never falling.
    """

    def __init__(
        self,
        on_new_group: Callable[[str], None],
        book: ConsumerBook,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_new_group = on_new_group
        self._book = book
        self._clock = clock
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[int, ConsumerMember]] = {}
        self._clients: dict[str, Connection] = {}  # of producers, by their ids: the newest
        # By connection id: (whether it is a consumer group, its name).
        self._groups_of: dict[int, set[tuple[bool, str]]] = {}

    def heartbeat(self, conn: Connection, language: str, version: int, data: HeartbeatData) -> None:
        """Heartbeat (34).

        Raises:
            BodyError: it is in more groups than one client may, those of its earlier heartbeats
                included, or names more topics.
        """
        known = self._groups_of.get(conn.id, set())
        groups = known | {(False, item.group_name) for item in data.producer_data_set}
        groups |= {(True, item.group_name) for item in data.consumer_data_set}
        topics = [len(consumer.subscription_data_set) for consumer in data.consumer_data_set]
        if (
            len(groups) > MAX_GROUPS_PER_CLIENT
            or max(topics, default=0) > MAX_SUBSCRIPTIONS_PER_GROUP
        ):
            raise BodyError(
                f"A client may be in {MAX_GROUPS_PER_CLIENT} groups, each with"
                f" {MAX_SUBSCRIPTIONS_PER_GROUP} topics."
            )
        member = ConsumerMember(conn, data.client_id, language, version, self._clock())
        self._groups_of[conn.id] = groups
        if data.producer_data_set:
            self.heard(conn, data.client_id)
        for producer in data.producer_data_set:
            self._producers.setdefault(producer.group_name, {})[conn.id] = member
        for consumer in data.consumer_data_set:
            self._join(member, consumer, without_subscriptions=data.without_sub)

    def heard(self, conn: Connection, client_id: str) -> None:
        """The client with that id, a producer, speaks on ``conn``.

        What is meant for a client must not come to another user, so its id stays with the user of
        whose heartbeat it was, while that one is connected.
        """
        known = self._clients.get(client_id)
        if known is conn or (known is not None and _user(known) not in (None, _user(conn))):
            return
        self._forget_client(conn)
        conn.attrs[_CLIENT] = client_id
        self._clients[client_id] = conn

    def client(self, client_id: str) -> Connection | None:
        """The connection of a producer's client, or None when it is not here."""
        return self._clients.get(client_id)

    def unregister(self, conn: Connection, producer: str | None, consumer: str | None) -> None:
        """UnregisterClient (35): the client behind ``conn`` leaves these groups."""
        groups_of = self._groups_of.get(conn.id, set())
        if producer is not None:
            groups_of.discard((False, producer))
            self._leave_producers(conn.id, producer)
        if consumer is not None:
            groups_of.discard((True, consumer))
            self._leave(conn.id, consumer)

    def connection_closed(self, conn: Connection) -> None:
        """Forget a connection everywhere."""
        self._forget_client(conn)
        for is_consumer, name in sorted(self._groups_of.pop(conn.id, ())):
            if is_consumer:
                self._leave(conn.id, name)
            else:
                self._leave_producers(conn.id, name)

    def expire(self) -> None:
        """Close connections of members that have not been heard of for ``EXPIRY_S``.

        Whatever a client asks counts: Java's sends no heartbeat to anybody for minutes while one of
        its brokers is silent (``MQClientInstance.lockHeartbeat``), and pulls from the others all
        along. Heartbeats that leave a group out for as long are those of a client that has left it.
        """
        oldest = self._clock() - EXPIRY_S
        newest: dict[int, float] = {}
        for member in self._all_members():
            known = newest.get(member.connection.id, member.seen_at)
            newest[member.connection.id] = max(known, member.seen_at)
        silent = {
            conn.id: conn
            for conn, seen_at in ((one.connection, one.seen_at) for one in self._all_members())
            if max(seen_at, conn.heard_s) < oldest or seen_at < newest[conn.id] - EXPIRY_S
        }
        for conn in silent.values():
            self.connection_closed(conn)
            conn.close()

    def group(self, name: str) -> ConsumerGroup | None:
        """A consumer group with members, or None."""
        return self._consumers.get(name)

    def member(self, group: str, client_id: str) -> Connection | None:
        """The newest connection of a member, or None when it is not here."""
        found = self._consumers.get(group)
        members = () if found is None else reversed(found.members.values())
        return next((item.connection for item in members if item.client_id == client_id), None)

    def has(self, group: str, client_id: str) -> bool:
        """Whether a client is a member of a consumer group here."""
        return self.member(group, client_id) is not None

    def subscribers(self, topic: str) -> list[str]:
        """The consumer groups with members here that want ``topic``."""
        return [name for name, group in self._consumers.items() if topic in group.topics]

    def client_ids(self, name: str) -> list[str]:
        """The members of a consumer group, here, remembered, or heard elsewhere, each once."""
        group = self._consumers.get(name)
        here = [] if group is None else group.client_ids()
        away = [*self._book.remembered(name), *self._book.elsewhere(name)]
        return list(dict.fromkeys([*here, *away]))

    def membership(self, name: str) -> ConsumerMembership | None:
        """A consumer group as it is reported to the controllers; None if nobody is here."""
        group = self._consumers.get(name)
        if group is None:
            return None
        clients = {member.client_id: member for member in group.members.values()}
        return ConsumerMembership(
            clients=[
                ConsumerClient(client, clients[client].language, clients[client].version)
                for client in sorted(clients)
            ],
            subscriptions=[
                ConsumerSubscription(item.topic, item.sub_string, item.expression_type)
                for _, item in sorted(group.topics.items())
            ],
            message_model=group.message_model,
            consume_type=group.consume_type,
            consume_from_where=group.consume_from_where,
        )

    def tell(self, name: str) -> None:
        """NotifyConsumerIdsChanged (40) to every member of a consumer group."""
        group = self._consumers.get(name)
        if group is not None:
            self._tell_members(group)

    def consumer_groups(self) -> list[str]:
        """The consumer groups with members here."""
        return list(self._consumers)

    def producer_groups(self) -> list[str]:
        """The producer groups with members here, in order."""
        return sorted(self._producers)

    def silent_ms(self, member: ConsumerMember) -> int:
        """The time since a member was heard of."""
        return int((self._clock() - member.seen_at) * 1000)

    def producers(self, name: str) -> list[ConsumerMember]:
        """The members of a producer group."""
        return list(self._producers.get(name, {}).values())

    def _forget_client(self, conn: Connection) -> None:
        client_id = conn.attrs.pop(_CLIENT, None)
        if client_id is not None and self._clients.get(client_id) is conn:
            del self._clients[client_id]

    def _all_members(self) -> Iterator[ConsumerMember]:
        for members in self._producers.values():
            yield from members.values()
        for group in self._consumers.values():
            yield from group.members.values()

    def _join(
        self, member: ConsumerMember, data: ConsumerData, *, without_subscriptions: bool
    ) -> None:
        group = self._consumers.get(data.group_name)
        if group is None:
            group = self._consumers[data.group_name] = ConsumerGroup(data.group_name)
            self._on_new_group(data.group_name)
        is_new = member.connection.id not in group.members
        is_here = self.has(group.name, member.client_id)
        group.members[member.connection.id] = member
        learned = not without_subscriptions and group.learn(data)
        was_one = is_new and (is_here or self._was_one(group.name, member.client_id))
        if learned or is_new:
            self._book.changed(group.name)
            if not was_one:
                self._tell_members(group)

    def _leave(self, connection_id: int, name: str) -> None:
        group = self._consumers.get(name)
        gone = None if group is None else group.members.pop(connection_id, None)
        if group is None or gone is None:
            return
        if not group.members:
            del self._consumers[name]
        elif not self._is_one(name, gone.client_id):
            self._tell_members(group)
        self._book.changed(name)

    def _is_one(self, name: str, client_id: str) -> bool:
        """Whether a client is a member over another connection, here or elsewhere."""
        return self.has(name, client_id) or self._book.is_elsewhere(name, client_id)

    def _was_one(self, name: str, client_id: str) -> bool:
        """Whether a client that is new here was a member all along."""
        came_back = self._book.came(name, client_id)
        return came_back or self._book.is_elsewhere(name, client_id)

    def _leave_producers(self, connection_id: int, name: str) -> None:
        members = self._producers.get(name, {})
        members.pop(connection_id, None)
        if not members:
            self._producers.pop(name, None)

    def _tell_members(self, group: ConsumerGroup) -> None:
        """NotifyConsumerIdsChanged (40) to every connection of the group, the newcomer included."""
        if (
            group.is_broadcasting
            or not self._book.config(group.name).notify_consumer_ids_changed_enable
        ):
            return
        for member in group.members.values():
            code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            member.connection.send(make_request(code, {"consumerGroup": group.name}, oneway=True))


def _user(conn: Connection) -> str | None:
    """The user of the connection's last heartbeat; None without one, or where access is off."""
    heard: tuple[str | None, str] = conn.attrs.get(HEARD_AS, (None, ""))
    return heard[0]
