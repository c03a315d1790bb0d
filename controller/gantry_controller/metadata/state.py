"""The state that the quorum agrees on, as values.

A ``BrokerGroup`` is one immutable value: an event replaces it by another in a single assignment
(``MetadataState.put``), so no reader and no exception ever sees half an update. Every field states
its invariant, and ``put`` asserts them.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from gantry_protocol.access.rules import Rule, User
from gantry_protocol.queue_map import MappedQueue, QueueMap, Segment
from gantry_protocol.settings.readers import READERS
from gantry_protocol.types import BrokerId, Epoch, Index
from msgspec.structs import replace

from gantry_controller.metadata.clients import KINDS, ConsumerTable, LockTable, SubscriptionTable
from gantry_controller.metadata.cluster_maps import ClusterMaps, EndedMaps
from gantry_controller.metadata.confirmed import Floor, Loss
from gantry_controller.metadata.consumer_view import ClusterConsumers, ClusterGroup
from gantry_controller.metadata.digest import RecordSum, layout_of
from gantry_controller.metadata.draining import Drain
from gantry_controller.metadata.front_indexes import FrontIndexes, Fronts, FrontSlot, derive
from gantry_controller.metadata.imported import ImportedBroker
from gantry_controller.metadata.invariants import check_group
from gantry_controller.metadata.kv import Namespace
from gantry_controller.metadata.listeners import GroupListener, ListenedMember
from gantry_controller.metadata.preference import WishedPlace
from gantry_controller.metadata.switches import AccessSwitch
from gantry_controller.metadata.topic_index import TopicIndex
from gantry_controller.metadata.topic_table import Topic, TopicTable

GroupKey = tuple[str, str]  # (cluster name, broker name): the identity of a broker group

FIRST_BROKER_ID = BrokerId(1)  # MixAll.FIRST_SLAVE_ID

_NO_TOPICS = TopicTable()
_NO_SUBSCRIPTIONS = SubscriptionTable()
_NO_CONSUMERS = ConsumerTable()
_NO_LOCKS = LockTable()

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
    listeners: tuple[GroupListener, ...] = ()
    preferred: tuple[WishedPlace, ...] = ()


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
        fenced: ascending, members that people have taken out for a while; none is in the
            sync-state set.
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
    fenced: tuple[BrokerId, ...] = ()

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


class MetadataState:
    """All groups, topics and imported brokers, with the indexes that look-ups need.

    Only ``apply`` writes here, between two reads; readers may keep the values they were given.
    ``index`` is the log index of the event being applied, or of the last one applied.

    A field is replicated or derived. Replicated ones have a type below, which is all a snapshot
    needs to know (``snapshot``): a plain value, or a dictionary of immutable values. Derived ones
    begin with an underscore and are made again by ``rebuild_indexes``. ``wiped`` are the groups
    whose routes allow no writes, by the index that wiped them; ``drains`` groups that are about to
    leave (``metadata.drains``); ``settings`` those of the name service that are not as they are by
    default (``metadata.names``). ``floors`` never fall but with a ``Loss``, or with their group.
    ``generations`` are those of the consumer groups of each cluster: the index at which the members
    of one last changed at any broker group.
    ``fronts`` are where clients of a cluster are led to, ``front_slots`` whose index there is whose
    (``metadata.front_indexes``), by cluster and index. ``queue_maps`` are those of mapped topics,
    by cluster and topic; ``maps_ended`` says when the last one of a cluster was deleted.
    ``newcomers`` are groups that wait for their share of these queues, since when. ``users`` are
    by cluster and name, ``access`` says whether a cluster's clients need them (``metadata.users``).
    """

    index: Index
    groups: dict[GroupKey, BrokerGroup]
    topics: dict[GroupKey, TopicTable]
    imports: dict[GroupKey, tuple[ImportedBroker, ...]]

    subscriptions: dict[GroupKey, SubscriptionTable]
    consumers: dict[GroupKey, ConsumerTable]
    generations: dict[tuple[str, str], Index]
    locks: dict[GroupKey, LockTable]

    kv: dict[str, Namespace]
    wiped: dict[GroupKey, Index]
    settings: dict[str, bool]
    floors: dict[GroupKey, Floor]
    losses: dict[GroupKey, Loss]
    fronts: dict[str, Fronts]
    front_slots: dict[tuple[str, int], FrontSlot]
    drains: dict[GroupKey, Drain]
    queue_maps: dict[tuple[str, str], QueueMap]
    maps_ended: dict[str, EndedMaps]
    newcomers: dict[GroupKey, Index]
    users: dict[tuple[str, str], User]
    access: dict[str, AccessSwitch]

    REPLICATED = (
        "index",
        "groups",
        "topics",
        "imports",
        "subscriptions",
        "consumers",
        "generations",
        "locks",
        "kv",
        "wiped",
        "settings",
        "floors",
        "losses",
        "fronts",
        "front_slots",
        "drains",
        "queue_maps",
        "maps_ended",
        "newcomers",
        "users",
        "access",
    )

    __slots__ = (
        "_cluster_consumers",
        "_cluster_maps",
        "_front_indexes",
        "_headless",
        "_living",
        "_names",
        "_order",
        "_retired",
        "_sum",
        "_topic_index",
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
        self.locks = {}
        self.kv = {}
        self.wiped = {}
        self.settings = {}
        self.floors = {}
        self.losses = {}
        self.fronts = {}
        self.front_slots = {}
        self.drains = {}
        self.queue_maps = {}
        self.maps_ended = {}
        self.newcomers = {}
        self.users = {}
        self.access = {}
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
        self._topic_index = TopicIndex()
        for group in self.living():
            self._names[group.name] = (*self._names.get(group.name, ()), group.key)
        for name, keys in self._names.items():
            if len(keys) > 1:
                self._names[name] = tuple(sorted(keys))
        for key, table in self.topics.items():
            self._topic_index.changed(key, {}, table.topics, table.topics)
        self._front_indexes = derive(self.front_slots.items())
        self._cluster_maps: dict[str, ClusterMaps] = {}
        for (cluster, topic), queues in sorted(
            self.queue_maps.items(), key=lambda item: (item[1].changed, item[0])
        ):
            self._cluster_maps.setdefault(cluster, ClusterMaps()).put(topic, queues)
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

    def front_indexes(self, cluster: str) -> FrontIndexes | None:
        """The indexes at fronts that are written down for ``cluster``; None: none are."""
        return self._front_indexes.get(cluster)

    def write_front_indexes(self, cluster: str) -> None:
        """Write down the indexes of the groups of ``cluster``, of which some serve."""
        if cluster not in self._front_indexes:
            self._front_indexes[cluster] = FrontIndexes()
            for group in self.serving_by_name(cluster):
                self._change_front_index(group)

    def _change_front_index(self, group: BrokerGroup) -> None:
        """The group begins to serve, or ends."""
        fronts = self.fronts.get(group.cluster)
        index, slot = self._front_indexes[group.cluster].change(
            group.name,
            Index(0) if _serves(group) else self.index,
            0 if fronts is None else fronts.ports,
        )
        self.put_plain("front_slots", (group.cluster, index), slot)

    def serving_by_name(self, cluster: str) -> Iterator[BrokerGroup]:
        """The groups of ``cluster`` that clients may be sent to, ascending by name."""
        for place in range(bisect_left(self._order, (cluster, "")), len(self._order)):
            group = self.groups[self._order[place]]
            if group.cluster != cluster:
                return
            if _serves(group):
                yield group

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
        check_group(group, old)
        self._count_group(key, old, group)
        if old is None:
            insort(self._order, key)
        self.groups[key] = group
        if old is None or old.removed != group.removed:
            self._name(key, living=not group.removed)
        if _serves(old) != _serves(group) and group.cluster in self._front_indexes:
            self._change_front_index(group)
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
            added: see ``TopicIndex.changed``.
        """
        old = self.topics.get(key, _NO_TOPICS)
        assert table.version > old.version, (key, old.version, table.version)
        self._sum.touched("topics", key, self.topics.get(key))
        self._topic_index.changed(key, old.topics, table.topics, added)
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

    def put_queue_map(self, cluster: str, topic: str, queues: QueueMap | None) -> None:
        """Makes ``queues`` the map of ``topic``; None: the topic is deleted."""
        old = self.queue_maps.get((cluster, topic))
        self.put_plain("queue_maps", (cluster, topic), queues)
        self._cluster_maps.setdefault(cluster, ClusterMaps()).put(topic, queues)
        if queues is None and old is not None:
            most = max(queue.moves for queue in old.queues)
            moves = max(most, self.ended_maps(cluster).moves)
            self.put_plain("maps_ended", cluster, EndedMaps(self.index, moves))

    def ended_maps(self, cluster: str) -> EndedMaps:
        """The mapped topics of ``cluster`` that were deleted."""
        return self.maps_ended.get(cluster) or EndedMaps()

    def queue_map(self, cluster: str, topic: str) -> QueueMap | None:
        """The queue map of ``topic``; None: each group has queues of its own."""
        return self.queue_maps.get((cluster, topic))

    def maps_of(self, cluster: str) -> ClusterMaps:
        """The queue maps of ``cluster``."""
        return self._cluster_maps.get(cluster) or ClusterMaps()

    def segments_most(self) -> int:
        """The most segments that a queue of a mapped topic has, in any cluster."""
        return max((maps.most_segments for maps in self._cluster_maps.values()), default=0)

    def put_plain(self, field: str, key: Any, value: object) -> None:
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

    def lock_table(self, key: GroupKey) -> LockTable:
        """The locked queues of the group ``key``."""
        return self.locks.get(key, _NO_LOCKS)

    def groups_with(self, topic: str) -> list[GroupKey]:
        """The groups that have ``topic``, sorted."""
        return sorted(self.having(topic))

    def having(self, topic: str) -> Collection[GroupKey]:
        """The same in no order; a view of the state, to be copied before that goes on."""
        return self._topic_index.groups.get(topic, {})

    def has_readers(self, key: GroupKey) -> bool:
        """Whether reads of some topic of the group ``key`` are served by several members."""
        return key in self._topic_index.readers

    def topic_names(self) -> list[str]:
        """Every topic of every group, in no order."""
        return list(self._topic_index.groups)

    def is_served(self, topic: str) -> bool:
        """Whether a group with ``topic`` is not retired."""
        return not all(self.is_retired(key) for key in self._topic_index.groups.get(topic, ()))

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
        *(Topic, TopicTable, ImportedBroker),
        *KINDS,
        Namespace,
        *(Floor, Loss, Fronts, FrontSlot, Drain),
        *(QueueMap, MappedQueue, Segment, EndedMaps),
        *(Rule, User, AccessSwitch, GroupListener, ListenedMember, WishedPlace),
    ),
    # An attribute, and fields of events, that older versions refuse.
    (*MetadataState.REPLICATED, READERS, "owners", "beside", "listeners"),
)
"""Tells this version's way to write the state from others'."""


def _serves(group: BrokerGroup | None) -> bool:
    return group is not None and not group.removed and not group.retired
