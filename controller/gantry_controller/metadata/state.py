"""The state that the quorum agrees on, as values.

A ``BrokerGroup`` is one immutable value: an event replaces it by another in a single assignment
(``MetadataState.put``), so no reader and no exception ever sees half an update. Every field states
its invariant, and ``put`` asserts them.
"""

from bisect import bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import msgspec
from gantry_protocol.types import BrokerId, Epoch, Index
from msgspec.structs import replace

from gantry_controller.metadata.clients import (
    Client,
    ConsumerGroup,
    ConsumerTable,
    Subscription,
    SubscriptionTable,
)
from gantry_controller.metadata.confirmed import Floor, Loss
from gantry_controller.metadata.consumer_view import ClusterConsumers, ClusterGroup
from gantry_controller.metadata.digest import Parted, RecordSum, layout_of
from gantry_controller.metadata.kv import Namespace

GroupKey = tuple[str, str]
"""(cluster name, broker name): the identity of a broker group."""

DEFAULT_TOPIC = "TBW102"
"""The template that clients ask for before a topic exists."""

FIRST_BROKER_ID = BrokerId(1)  # MixAll.FIRST_SLAVE_ID


class Topic(msgspec.Struct, frozen=True, gc=False):
    """The configuration of one topic on one group (RocketMQ ``TopicConfig``).

    Attributes:
        since: the version of the group's table at which the topic was created; 0 in events, and of
            topics that are older than this field. It tells a topic that was deleted and created
            again from the one that it looks like.
        attributes: upstream's names to values, as ``metadata.attributes`` lets them in.
    """

    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0
    order: bool = False
    since: int = 0
    attributes: dict[str, str] = {}


BUILT_IN_TOPICS = {
    DEFAULT_TOPIC: Topic(read_queue_nums=8, write_queue_nums=8, perm=7),
    "RMQ_SYS_TRACE_TOPIC": Topic(read_queue_nums=1, write_queue_nums=1, perm=6),
}
"""Topics that every group has without saying so.

Clients that trace their messages send to the second; of those, only Java creates what it misses.
A group makes it with the first send.
"""


class TopicTable(Parted, frozen=True, array_like=True):
    """The topics of one group.

    Attributes:
        is_partial: the group was adopted, and its master has not said yet which topics its log has.
            What is missing here says nothing then, and nobody may compare a log with it.
    """

    topics: dict[str, Topic] = msgspec.field(default_factory=dict)
    is_partial: bool = False

    @property
    def parts(self) -> Mapping[str, Topic]:
        """The topics."""
        return self.topics


_NO_TOPICS = TopicTable()
_NO_SUBSCRIPTIONS = SubscriptionTable()
_NO_CONSUMERS = ConsumerTable()

_SAYS_NOTHING = ("", "#")  # how the incarnation of a broker that announces none begins


class Member(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One broker of a group.

    Attributes:
        broker_id: handed out once, kept on the broker's volume, never issued again.
        address: where its remoting service listens; replaced at each registration.
        check_code: what it applied for its id with; makes a repeated application harmless.
        incarnation: the process that registered last: the nonce it announced, or ``#n`` for the
            n-th registration of a broker that announces none; empty before the first.
        registrations: how often it has registered.
        pod_uid: the pod that incarnation runs in, if it said so.
        ha_address: where its replication service listens, if it said so.
    """

    broker_id: BrokerId
    address: str
    check_code: str
    incarnation: str = ""
    registrations: int = 0
    pod_uid: str | None = None
    ha_address: str | None = None

    @property
    def announces(self) -> bool:
        """Whether its processes name themselves, so that two of them can be told apart."""
        return self.incarnation[:1] not in _SAYS_NOTHING

    def is_incarnation(self, incarnation: str) -> bool:
        """Whether a message signed ``incarnation`` (empty: unsigned) is of this process."""
        if incarnation:
            return incarnation == self.incarnation and self.registrations > 0
        return self.registrations > 0 and self.incarnation[:1] in _SAYS_NOTHING


class Declaration(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The wish of a group's owner; ``uid`` tells owners of one name apart."""

    uid: str
    replicas: int
    min_in_sync_replicas: int
    route_address: str | None = None


class BrokerGroup(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One broker group.

    Attributes:
        members: ascending by id.
        next_broker_id: above every id ever issued, across removals.
        master_id: None, or a member of ``sync_state_set``.
        master_incarnation: the process that was elected; only it may serve in ``master_epoch``.
        master_epoch: grows by one with each election and never falls, across removals.
        base_epoch: ``master_epoch`` when the group came (back) to life; equal to it until the first
            election.
        sync_state_set: ascending, a subset of the members. Each holds every acknowledged record.
        sync_state_set_epoch: grows by one with each change of the set and never falls.
        clean: False once an election had to leave the sync-state set because an administrator had
            cleaned all of it away.
        removed: a tombstone, kept for its epochs and ids; it has no members, master or set.
        removed_uid: whose removal left the tombstone; a late declaration of that uid is refused.
        changed_index: the log index of the last change; what watchers compare.
        retired: its owner is gone and its volumes may not be: everything is kept as it was, and
            nobody is sent there. A declaration brings it back. Only a declared group is retired.
    """

    cluster: str
    name: str
    declaration: Declaration | None = None
    members: tuple[Member, ...] = ()
    next_broker_id: BrokerId = FIRST_BROKER_ID
    master_id: BrokerId | None = None
    master_incarnation: str = ""
    master_epoch: Epoch = Epoch(0)
    base_epoch: Epoch = Epoch(0)
    sync_state_set: tuple[BrokerId, ...] = ()
    sync_state_set_epoch: int = 0
    clean: bool = True
    removed: bool = False
    removed_uid: str | None = None
    changed_index: Index = Index(0)
    retired: bool = False

    @property
    def key(self) -> GroupKey:
        """The group's identity."""
        return self.cluster, self.name

    @property
    def had_master(self) -> bool:
        """Whether the first election is over; from then on only the sync-state set matters."""
        return self.master_epoch > self.base_epoch

    @property
    def master(self) -> Member | None:
        """The recorded master, dead or alive."""
        return None if self.master_id is None else self.member(self.master_id)

    @property
    def master_is_current(self) -> bool:
        """Whether the elected process is still the one registered under the master's id."""
        master = self.master
        return master is not None and master.incarnation == self.master_incarnation

    def member(self, broker_id: BrokerId) -> Member | None:
        """The member with ``broker_id``."""
        for member in self.members:
            if member.broker_id == broker_id:
                return member
        return None


class ImportedBroker(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A broker of the old kind, which reports itself to the name service (code 103).

    ``state_version`` is the master epoch its report was made in, 0 outside controller mode.
    """

    broker_id: int
    address: str
    ha_address: str | None = None
    state_version: int = 0


class MetadataState:
    """All groups, topics and imported brokers, with the indexes that look-ups need.

    Only ``apply`` writes here, between two reads; readers may keep the values they were given.
    ``index`` is the log index of the event being applied, or of the last one applied.

    A field is replicated or derived. Replicated ones have a type below, which is all a snapshot
    needs to know (``snapshot``): a plain value, or a dictionary of immutable values. Derived ones
    begin with an underscore and are made again by ``rebuild_indexes``. ``wiped`` are the groups
    whose routes allow no writes, by the index that wiped them; ``settings`` those of the
    name service that are not as they are by default (``metadata.names``). ``floors`` never fall but
    with a ``Loss``, or with the end of their group. ``generations`` are those of the consumer
    groups of each cluster: the index at which the members of one last changed at any broker group.
    """

    index: Index
    groups: dict[GroupKey, BrokerGroup]
    topics: dict[GroupKey, TopicTable]
    imports: dict[GroupKey, tuple[ImportedBroker, ...]]

    subscriptions: dict[GroupKey, SubscriptionTable]
    consumers: dict[GroupKey, ConsumerTable]
    generations: dict[tuple[str, str], Index]

    kv: dict[str, Namespace]
    wiped: dict[GroupKey, Index]
    settings: dict[str, bool]
    floors: dict[GroupKey, Floor]
    losses: dict[GroupKey, Loss]

    REPLICATED = (
        "index",
        "groups",
        "topics",
        "imports",
        "subscriptions",
        "consumers",
        "generations",
        "kv",
        "wiped",
        "settings",
        "floors",
        "losses",
    )

    __slots__ = (
        "_cluster_consumers",
        "_headless",
        "_living",
        "_names",
        "_order",
        "_retired",
        "_sum",
        "_topic_groups",
        *REPLICATED,
    )

    def __init__(self) -> None:
        self.index = Index(0)
        self.groups = {}
        self.topics = {}
        self.imports = {}
        self.subscriptions = {}
        self.consumers = {}
        self.generations = {}
        self.kv = {}
        self.wiped = {}
        self.settings = {}
        self.floors = {}
        self.losses = {}
        self.rebuild_indexes()

    def rebuild_indexes(self) -> None:
        """Derive from the replicated fields what look-ups and the digest need."""
        self._sum = RecordSum(LAYOUT)
        for name, records in self.tables().items():
            for record in records:
                if name != "groups":
                    self._sum.touched(name, record, None)
        self._living = 0
        self._headless = 0  # living groups without a master
        self._retired = 0
        for key, group in self.groups.items():
            self._count_group(key, None, group)
        self._order = sorted(self.groups)  # every key, those of tombstones included
        self._names: dict[str, tuple[GroupKey, ...]] = {}
        self._topic_groups: dict[str, dict[GroupKey, None]] = {}
        for group in self.living():
            self._names[group.name] = (*self._names.get(group.name, ()), group.key)
        for name, keys in self._names.items():
            if len(keys) > 1:
                self._names[name] = tuple(sorted(keys))
        for key, table in self.topics.items():
            for topic in table.topics:
                self._topic_groups.setdefault(topic, {})[key] = None
        self._cluster_consumers: dict[str, ClusterConsumers] = {}
        for key, reported in sorted(self.consumers.items()):
            self._consumers_of(key[0]).changed(key, sorted(reported.groups), reported, self.index)

    def find(self, cluster: str | None, name: str) -> BrokerGroup | None:
        """The living group; without ``cluster`` the only one of that name.

        Java's requests AlterSyncStateSet and GetReplicaInfo name no cluster. Two groups of one name
        in two clusters are then no match: a guess could change the wrong one.
        """
        if cluster:
            group = self.groups.get((cluster, name))
            return None if group is None or group.removed else group
        keys = self._names.get(name, ())
        return self.groups[keys[0]] if len(keys) == 1 else None

    def ambiguity(self, cluster: str | None, name: str) -> str | None:
        """A sentence for who names no cluster and means one of several groups; else None."""
        keys = self._names.get(name, ())
        if cluster or len(keys) < 2:
            return None
        clusters = ", ".join(key[0] for key in keys)
        return f"There are broker groups {name} in several clusters ({clusters}); name the cluster"

    def named(self, name: str) -> tuple[GroupKey, ...]:
        """The living groups of that name, one in a cluster; sorted."""
        return self._names.get(name, ())

    def living(self, cluster: str | None = None) -> Iterator[BrokerGroup]:
        """The groups that are no tombstones, of one cluster or of all."""
        for group in self.groups.values():
            if not group.removed and (cluster is None or group.cluster == cluster):
                yield group

    @property
    def living_count(self) -> int:
        """The number of groups that are no tombstones."""
        return self._living

    @property
    def headless_count(self) -> int:
        """The number of those that have no master."""
        return self._headless

    @property
    def retired_count(self) -> int:
        """The number of those that are retired."""
        return self._retired

    def keys_after(self, key: GroupKey | None, keys_max: int) -> list[GroupKey]:
        """The next keys in their order, those of tombstones included; from the first for None."""
        start = 0 if key is None else bisect_right(self._order, key)
        return self._order[start : start + keys_max]

    def all_keys(self) -> list[GroupKey]:
        """Every key in order, those of tombstones included."""
        return self._order.copy()

    def serving(self, cluster: str | None = None) -> Iterator[BrokerGroup]:
        """The living groups that clients may be sent to: those that are not retired."""
        return (group for group in self.living(cluster) if not group.retired)

    def is_retired(self, key: GroupKey) -> bool:
        """Whether nobody is to be sent to the group ``key``."""
        group = self.groups.get(key)
        return group is not None and group.retired

    def put(self, group: BrokerGroup, **changes: Any) -> BrokerGroup:
        """Makes ``group``, with ``changes`` of its fields, the truth about its key.

        Returns it as it is now, stamped with the index.
        """
        changes["changed_index"] = self.index
        group = replace(group, **changes)
        key = (group.cluster, group.name)
        old = self.groups.get(key)
        _check(group, old)
        self._count_group(key, old, group)
        if old is None:
            insort(self._order, key)
        self.groups[key] = group
        if old is None or old.removed != group.removed:
            self._name(key, living=not group.removed)
        return group

    def _count_group(self, key: GroupKey, old: BrokerGroup | None, new: BrokerGroup) -> None:
        """For metrics, and for the digest, where the members, which change seldom, count apart."""
        for group, sign in ((old, -1), (new, 1)):
            if group is not None and not group.removed:
                self._living += sign
                self._headless += sign * (group.master_id is None)
                self._retired += sign * group.retired
        if old is None or old.members is not new.members:
            self._sum.changed("members", key, None if old is None else old.members, new.members)
        before = None if old is None else replace(old, members=())
        self._sum.changed("groups", key, before, replace(new, members=()))

    def _name(self, key: GroupKey, *, living: bool) -> None:
        _, name = key
        others = [item for item in self._names.get(name, ()) if item != key]
        keys = tuple(sorted([*others, key] if living else others))
        if keys:
            self._names[name] = keys
        else:
            self._names.pop(name, None)

    def put_topics(
        self, key: GroupKey, table: TopicTable, added: Collection[str] | None = None
    ) -> TopicTable:
        """Makes ``table`` the topics of the group ``key``.

        Args:
            key: of the group.
            table: its topics.
            added: names among which those are that were not there; None: some may be gone as well.
        """
        old = self.topics.get(key, _NO_TOPICS)
        assert table.version > old.version, (key, old.version, table.version)
        self._sum.touched("topics", key, self.topics.get(key))
        gone = sorted(old.topics.keys() - table.topics.keys()) if added is None else ()
        for topic in gone:
            self._topic_groups[topic].pop(key)
            if not self._topic_groups[topic]:
                del self._topic_groups[topic]
        for topic in sorted(table.topics.keys() - old.topics.keys()) if added is None else added:
            self._topic_groups.setdefault(topic, {})[key] = None
        self.topics[key] = table
        return table

    def put_subscriptions(self, key: GroupKey, table: SubscriptionTable) -> None:
        """Makes ``table`` the subscription groups of the group ``key``."""
        assert table.version > self.subscription_table(key).version, (key, table.version)
        self._sum.touched("subscriptions", key, self.subscriptions.get(key))
        self.subscriptions[key] = table

    def put_consumers(self, key: GroupKey, table: ConsumerTable, changed: Iterable[str]) -> None:
        """Makes ``table`` the consumer groups with members on the group ``key``.

        ``changed`` are the consumer groups that are other than before.
        """
        assert table.version > self.consumer_table(key).version, (key, table.version)
        self._sum.touched("consumers", key, self.consumers.get(key))
        self.consumers[key] = table
        consumers = self._consumers_of(key[0])
        consumers.changed(key, sorted(changed), table, self.index)
        for name in sorted(changed):
            is_there = bool(consumers.heard_at(name))
            self.put_plain("generations", (key[0], name), self.index if is_there else None)

    def cluster_group(self, cluster: str, name: str) -> ClusterGroup:
        """A consumer group over all broker groups of ``cluster``."""
        generation = self.generations.get((cluster, name), Index(0))
        return self.cluster_consumers(cluster).group(name, self.consumers, generation)

    def cluster_consumers(self, cluster: str) -> ClusterConsumers:
        """Consumers of ``cluster``, whichever master hears them; not kept for an unknown one."""
        return self._cluster_consumers.get(cluster) or ClusterConsumers(self.index)

    def _consumers_of(self, cluster: str) -> ClusterConsumers:
        return self._cluster_consumers.setdefault(cluster, ClusterConsumers(self.index))

    def put_imports(self, key: GroupKey, brokers: tuple[ImportedBroker, ...]) -> None:
        """Makes ``brokers`` those of the old kind under ``key``; none strikes the key."""
        self._sum.touched("imports", key, self.imports.get(key))
        if brokers:
            self.imports[key] = brokers
        else:
            del self.imports[key]

    def put_plain(
        self,
        field: Literal["generations", "kv", "wiped", "settings", "floors", "losses"],
        key: Any,
        value: object,
    ) -> None:
        """Makes ``value`` the record of ``key`` in a field of no index; None strikes the key."""
        records: dict[Any, object] = getattr(self, field)
        self._sum.touched(field, key, records.get(key))
        if value is None:
            records.pop(key, None)
        else:
            records[key] = value

    def topic_table(self, key: GroupKey) -> TopicTable:
        """The topics of the group ``key``; empty for a group that never had one."""
        return self.topics.get(key, _NO_TOPICS)

    def subscription_table(self, key: GroupKey) -> SubscriptionTable:
        """The subscription groups of the group ``key``; empty for one that never had any."""
        return self.subscriptions.get(key, _NO_SUBSCRIPTIONS)

    def consumer_table(self, key: GroupKey) -> ConsumerTable:
        """The consumer groups with members on the group ``key``."""
        return self.consumers.get(key, _NO_CONSUMERS)

    def groups_with(self, topic: str) -> list[GroupKey]:
        """The groups that have ``topic``, sorted."""
        return sorted(self.having(topic))

    def having(self, topic: str) -> Collection[GroupKey]:
        """The same in no order; a view of the state, to be copied before that goes on."""
        return self._topic_groups.get(topic, {})

    def topic_names(self) -> list[str]:
        """Every topic of every group, in no order."""
        return list(self._topic_groups)

    def is_served(self, topic: str) -> bool:
        """Whether a group with ``topic`` is not retired."""
        return not all(self.is_retired(key) for key in self._topic_groups.get(topic, ()))

    def digest(self) -> int:
        """64 bits that are equal on replicas whose states are (``metadata.digest``)."""
        return self._sum.settle(self.tables())

    def begin_digest(self) -> None:
        """Note what the digest of the present state is about; ``count_digest`` makes it."""
        self._sum.begin(self.tables())

    def count_digest(self) -> int | None:
        """Do the next bit of the digest that was begun; returns it once it is complete."""
        return self._sum.count()

    def tables(self) -> dict[str, Mapping[Any, object]]:
        """Everything replicated that has keys, by field."""
        return {name: getattr(self, name) for name in self.REPLICATED if name != "index"}


LAYOUT = layout_of(
    (
        BrokerGroup,
        Member,
        Declaration,
        Topic,
        TopicTable,
        ImportedBroker,
        SubscriptionTable,
        ConsumerTable,
        ConsumerGroup,
        Client,
        Subscription,
        Namespace,
        Floor,
        Loss,
    ),
    MetadataState.REPLICATED,
)
"""Tells this version's way to write the state from others'."""


def _check(new: BrokerGroup, old: BrokerGroup | None) -> None:
    """The invariants of one group and of one step; a failure is a bug, and ends the process."""
    if old is None or new.members is not old.members:
        ids = [member.broker_id for member in new.members]
        assert is_ascending(ids), new
        assert not ids or ids[-1] < new.next_broker_id, new
    assert _are_of(new.members, new.sync_state_set), new
    assert new.master_id is None or new.master_id in new.sync_state_set, new
    assert not new.removed or (not new.members and new.declaration is None), new
    assert not new.retired or new.declaration is not None, new
    if old is None:
        return
    assert new.master_epoch >= old.master_epoch, (old, new)
    assert new.next_broker_id >= old.next_broker_id, (old, new)
    step = new.sync_state_set_epoch - old.sync_state_set_epoch
    assert step > 0 or (step == 0 and new.sync_state_set == old.sync_state_set), (old, new)
    if new.master_id is not None and new.master_epoch == old.master_epoch:
        assert new.master_id == old.master_id, (old, new)
        assert new.master_incarnation == old.master_incarnation, (old, new)


def is_ascending(ids: Sequence[BrokerId]) -> bool:
    """Whether each is above the one before, so that none comes twice."""
    for item, following in pairwise(ids):  # noqa: SIM110 - a generator costs as much again
        if item >= following:
            return False
    return True


def _are_of(members: tuple[Member, ...], ids: tuple[BrokerId, ...]) -> bool:
    """Whether ``ids`` ascend and are all of members, which ascend themselves: in one walk."""
    rest = iter(members)
    for broker_id in ids:
        for member in rest:
            if member.broker_id == broker_id:
                break
        else:
            return False
    return True
