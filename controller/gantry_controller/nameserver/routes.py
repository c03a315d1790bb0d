"""From the replicated state to routes.

Broker 0 of a declared group is the address its owner declared (a Service in front of every replica)
and so outlives the master: the route stays the same through a failover, and only a group that never
had a master has none. Where fronts are declared for the cluster, it is the group's port there.
Without either it is the master's own. Where a topic of the group has readers, its members in sync
stand behind that by their own ids and addresses, except at fronts. Brokers of the old kind appear
as they reported themselves.

Who came in by a listener is given the addresses that were declared for it and no others
(``metadata.listeners``): a group without any is in no route there, nor are fronts and brokers of
the old kind.

A mapped topic may be written at the groups that take messages for some queue of it; clients that
know static topics (RIP-21) are told which ones. Who has been wiped, or is being drained, shows no
topic that may be written, the template included, so producers neither send there nor create topics
there. A retired group, whose owner is gone, is in no route and no list.

The name of a cluster, and that of a group, has a route like a topic, as upstream's brokers register
both. RocketMQ's proxy finds by it the brokers of a cluster, and the one that a receipt names.

What all groups have a part in is made in turns (``gantry_controller.turns``). Each group is then
shown as it was at some moment between the question and the answer.
"""

from itertools import islice

import msgspec
from gantry_protocol.bodies import BrokerData, QueueData, encode_body
from gantry_protocol.bodies.queue_maps import StaticQueuesOfGroup, static_queues
from gantry_protocol.bodies.route import MASTER_ID, PERM_READ, PERM_WRITE
from gantry_protocol.hosts import join_address
from gantry_protocol.names import REPLY_SUFFIX

from gantry_controller.metadata.fronts import at_fronts
from gantry_controller.metadata.listeners import GroupListener, route_at
from gantry_controller.metadata.names import ordered_queues
from gantry_controller.metadata.state import BrokerGroup, GroupKey, MetadataState
from gantry_controller.metadata.topic_table import BUILT_IN_TOPICS, Topic
from gantry_controller.turns import BITS, Work, sorted_in_turns

TOPIC_OF_A_NAME = Topic(read_queue_nums=1, write_queue_nums=1, perm=PERM_READ)
REPLY_TOPIC = Topic(read_queue_nums=1, write_queue_nums=1, perm=PERM_READ | PERM_WRITE)
"""What a cluster or group is in its own route. There is no such topic, so nobody may send to it."""
SHORT = 20
"""Groups in a route that costs less than half a millisecond."""


class Route(msgspec.Struct, frozen=True):
    """The places of a topic.

    Attributes:
        twice: a group's name that stands for two groups, which a client cannot tell apart; or None.
        body: what a client gets.
    """

    twice: str | None
    body: bytes


def topic_route(
    state: MetadataState, topic: str, listener: str | None = None
) -> Work[Route | None]:
    """The route of ``topic``; None if no group with the topic can be reached by ``listener``."""
    keys = yield from _keys_with(state, topic)
    names: dict[str, None] = {}
    twice: str | None = None
    brokers: list[bytes] = []
    queues: list[bytes] = []
    mapped: dict[str, StaticQueuesOfGroup] = {}
    for place, key in enumerate(keys, start=1):
        if place % BITS == 0:
            yield
        found = _part_in_route(state, key, topic, listener)
        if found is None:
            continue
        if key[1] in names:
            twice = twice or key[1]
        names[key[1]] = None
        brokers.append(encode_body(found[0]))
        queues.append(encode_body(found[1]))
        queue_map = state.queue_map(key[0], topic)
        if queue_map is not None:
            mapped[key[1]] = static_queues(topic, queue_map, key[1])
    if not brokers:
        return None
    route: dict[str, object] = {
        "brokerDatas": _joined(brokers),
        "queueDatas": _joined(queues),
        "filterServerTable": {},
    }
    if mapped:
        route["topicQueueMappingByBroker"] = mapped
    drained = {name for cluster, name in keys if (cluster, name) in state.drains}
    order = _without(ordered_queues(state, topic), drained)
    if order and not mapped:  # else clients would not look at the map
        route["orderTopicConf"] = order
    return Route(twice, encode_body(route))


def _without(order: str | None, names: set[str]) -> str:
    """The places of ordered queues but those on the groups ``names``: clients look at no perm."""
    places = [] if order is None else order.split(";")
    return ";".join(place for place in places if place.partition(":")[0] not in names)


def is_short(state: MetadataState, topic: str) -> bool:
    """Whether the route of ``topic`` is made at once.

    Clients ask for routes all the time, and those of most topics are short. They do not wait, or
    find no room, behind a list of all groups.
    """
    if topic in BUILT_IN_TOPICS or any(state.serving_by_name(_name_in(topic))):
        return False
    return len(state.having(topic)) <= min(SHORT, BITS - 1)


def _keys_with(state: MetadataState, topic: str) -> Work[list[GroupKey]]:
    """The groups that may have ``topic``, in order."""
    if topic in BUILT_IN_TOPICS:  # every group of ours has it
        imported = [key for key in state.imports if key not in state.groups]
        return (yield from sorted_in_turns([*state.all_keys(), *imported]))
    having = state.having(topic)
    if all(key in state.imports for key in having):  # no group of ours has a topic of this name
        name = _name_in(topic)
        of_cluster = (group.key for group in state.serving_by_name(name))
        having = {*having, *state.named(name), *of_cluster}
    return (yield from sorted_in_turns(having))


def _part_in_route(
    state: MetadataState, key: GroupKey, topic: str, listener: str | None
) -> tuple[BrokerData, QueueData] | None:
    """What one group adds to the route of ``topic``; None without the topic or an address."""
    config = _config(state, key, topic)
    addresses = None if config is None else _client_addresses(state, key, listener)
    if config is None or not addresses:
        return None
    cluster, name = key
    queue_map = state.queue_map(cluster, topic)
    is_closed = key in state.wiped or key in state.drains
    is_closed |= queue_map is not None and all(
        queue.open.group != name for queue in queue_map.queues
    )
    return BrokerData(addresses, name, cluster), QueueData(
        broker_name=name,
        perm=config.perm & ~PERM_WRITE if is_closed and config is not REPLY_TOPIC else config.perm,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        topic_sys_flag=config.topic_sys_flag,
    )


def _config(state: MetadataState, key: GroupKey, topic: str) -> Topic | None:
    config = state.topic_table(key).topics.get(topic)
    if config is None and state.find(*key) is not None:
        if _name_in(topic) in key:
            return REPLY_TOPIC if topic.endswith(REPLY_SUFFIX) else TOPIC_OF_A_NAME
        return BUILT_IN_TOPICS.get(topic)
    return config


def _name_in(topic: str) -> str:
    """The cluster or group after which the topic may be named: replies to it have one, too."""
    return topic.removesuffix(REPLY_SUFFIX)


def _client_addresses(state: MetadataState, key: GroupKey, listener: str | None) -> dict[int, str]:
    group = state.find(*key)
    imported = state.imports.get(key)
    if group is not None and group.retired:
        return {}
    if listener is not None:
        return {} if group is None else _addresses_at(state, group, listener)
    if group is None or (group.declaration is None and imported):
        return {item.broker_id: item.address for item in imported or ()}
    front = at_fronts(state, key)
    if front is not None:
        return {MASTER_ID: join_address(*front)} if group.had_master else {}
    if group.declaration is not None and group.declaration.route_address is not None:
        address = group.declaration.route_address
        return {MASTER_ID: address, **_readers(state, group)} if group.had_master else {}
    if group.master is None:
        return {}
    return {MASTER_ID: group.master.address, **_readers(state, group)}


def _addresses_at(state: MetadataState, group: BrokerGroup, listener: str) -> dict[int, str]:
    found = _listener(group, listener)
    if found is None or not group.had_master:
        return {}
    address = route_at(found, group.master_id, group.sync_state_set)
    own: dict[int, str] = {item.broker_id: item.own for item in found.members if item.own}
    readers = {item: own[item] for item in _readers(state, group) if item in own}
    return {} if address is None else {MASTER_ID: address, **readers}


def _listener(group: BrokerGroup, name: str) -> GroupListener | None:
    wish = group.declaration
    return next((item for item in wish.listeners if item.name == name), None) if wish else None


def _readers(state: MetadataState, group: BrokerGroup) -> dict[int, str]:
    """The members besides the master that serve reads of some topic of the group.

    The same in the route of each topic: clients keep one list of addresses for a broker name.
    """
    if not state.has_readers(group.key):
        return {}
    return {
        member.broker_id: member.address
        for member in group.members
        if member.broker_id in group.sync_state_set and member.broker_id != group.master_id
    }


def broker_data(state: MetadataState, key: GroupKey, listener: str | None = None) -> BrokerData:
    """The brokers' own addresses, for administrators and brokers: the master as 0."""
    cluster, name = key
    group = state.find(*key)
    if listener is not None:
        return BrokerData({} if group is None else _members_at(group, listener), name, cluster)
    addresses = {item.broker_id: item.address for item in state.imports.get(key, ())}
    if group is not None and not (group.declaration is None and addresses):
        addresses = _member_addresses(group)
    return BrokerData(addresses, name, cluster)


def _member_addresses(group: BrokerGroup) -> dict[int, str]:
    return {
        MASTER_ID if member.broker_id == group.master_id else member.broker_id: member.address
        for member in group.members
    }


def _members_at(group: BrokerGroup, listener: str) -> dict[int, str]:
    found = _listener(group, listener)
    return {
        MASTER_ID if item.broker_id == group.master_id else item.broker_id: item.own
        for item in (() if found is None else found.members)
        if item.own and group.member(item.broker_id) is not None
    }


def cluster_info(state: MetadataState, listener: str | None = None) -> Work[bytes]:
    """GetBrokerClusterInfo (106): every group with its brokers, and the groups of each cluster.

    Upstream keys the first by name alone; of two groups of one name in two clusters the later
    cluster's is shown.
    """
    keys = yield from known_keys(state)
    clusters: dict[str, list[str]] = {}
    for cluster, name in keys:
        clusters.setdefault(cluster, []).append(name)
    shown = iter({key[1]: key for key in keys}.items())
    parts: list[bytes] = []
    while some := list(islice(shown, BITS)):
        if parts:
            yield
        table = {name: broker_data(state, key, listener) for name, key in some}
        parts.append(encode_body(table)[1:-1])
    info = {
        "brokerAddrTable": msgspec.Raw(b"{%b}" % b",".join(parts)),
        "clusterAddrTable": clusters,
    }
    return encode_body(info)


def known_keys(state: MetadataState) -> Work[list[GroupKey]]:
    """The groups that serve, or that brokers of the old kind have reported, in order."""
    keys: list[GroupKey] = []
    candidates = yield from sorted_in_turns({*state.all_keys(), *state.imports})
    for start in range(0, len(candidates), 16 * BITS):
        if start:
            yield
        keys += [
            key
            for key in candidates[start : start + 16 * BITS]
            if not state.is_retired(key) and (key in state.imports or state.find(*key) is not None)
        ]
    return keys


def topics_of_cluster(state: MetadataState, cluster: str) -> Work[list[str]]:
    """The topics of every group of one cluster, sorted."""
    names: set[str] = set()
    for place, key in enumerate(list(state.topics), start=1):
        if place % (16 * BITS) == 0:
            yield
        if key[0] == cluster and not state.is_retired(key):
            names.update(state.topic_table(key).topics)
    return (yield from sorted_in_turns(names))


def all_topics(state: MetadataState) -> Work[list[str]]:
    """Every topic, the built-in ones included once there is a group."""
    names = set[str]()
    for place, topic in enumerate(state.topic_names(), start=1):
        if place % (16 * BITS) == 0:
            yield
        if state.is_served(topic):
            names.add(topic)
    if state.living_count > state.retired_count:
        names.update(BUILT_IN_TOPICS)
    return (yield from sorted_in_turns(names))


def _joined(parts: list[bytes]) -> msgspec.Raw:
    return msgspec.Raw(b"[%b]" % b",".join(parts))
