"""From the replicated state to routes.

Broker 0 of a declared group is the address its owner declared (a Service in front of every replica)
and so outlives the master: the route stays the same through a failover, and only a group that never
had a master has none. Without a declared address it is the master's own. Brokers of the old kind
appear as they reported themselves. Who has been wiped shows no topic that may be written, the
template included, so producers neither send there nor create topics there.
"""

from collections.abc import Iterator

from gantry_protocol.bodies import BrokerData, ClusterInfo, QueueData, TopicRouteData
from gantry_protocol.bodies.route import MASTER_ID, PERM_WRITE

from gantry_controller.metadata.names import ordered_queues
from gantry_controller.metadata.state import (
    DEFAULT_TOPIC,
    DEFAULT_TOPIC_CONFIG,
    BrokerGroup,
    GroupKey,
    MetadataState,
    Topic,
)


def topic_route(state: MetadataState, topic: str) -> TopicRouteData | None:
    """Where ``topic`` is; None if no group with the topic can be reached."""
    brokers: list[BrokerData] = []
    queues: list[QueueData] = []
    for key, config in sorted(_groups_with(state, topic)):
        addresses = _client_addresses(state, key)
        if not addresses:
            continue
        cluster, name = key
        brokers.append(BrokerData(addresses, name, cluster))
        queues.append(
            QueueData(
                broker_name=name,
                perm=config.perm & ~PERM_WRITE if key in state.wiped else config.perm,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                topic_sys_flag=config.topic_sys_flag,
            )
        )
    order = ordered_queues(state, topic)
    return TopicRouteData(brokers, queues, {}, order) if brokers else None


def _groups_with(state: MetadataState, topic: str) -> Iterator[tuple[GroupKey, Topic]]:
    reported = state.groups_with(topic)
    for key in reported:
        yield key, state.topic_table(key).topics[topic]
    if topic == DEFAULT_TOPIC:  # every group of ours creates topics on request
        for group in state.living():
            if group.key not in reported:
                yield group.key, DEFAULT_TOPIC_CONFIG


def _client_addresses(state: MetadataState, key: GroupKey) -> dict[int, str]:
    group = state.find(*key)
    imported = state.imports.get(key)
    if group is None or (group.declaration is None and imported):
        return {one.broker_id: one.address for one in imported or ()}
    if group.declaration is not None and group.declaration.route_address is not None:
        return {MASTER_ID: group.declaration.route_address} if group.had_master else {}
    return {} if group.master is None else {MASTER_ID: group.master.address}


def broker_data(state: MetadataState, key: GroupKey) -> BrokerData:
    """The brokers' own addresses, for administrators and brokers: the master as 0."""
    cluster, name = key
    group = state.find(*key)
    addresses = {one.broker_id: one.address for one in state.imports.get(key, ())}
    if group is not None and not (group.declaration is None and addresses):
        addresses = _member_addresses(group)
    return BrokerData(addresses, name, cluster)


def _member_addresses(group: BrokerGroup) -> dict[int, str]:
    return {
        MASTER_ID if member.broker_id == group.master_id else member.broker_id: member.address
        for member in group.members
    }


def cluster_info(state: MetadataState) -> ClusterInfo:
    """Every group with its brokers, and the groups of each cluster.

    Upstream keys the first by name alone; of two groups of one name in two clusters the later
    cluster's is shown.
    """
    keys = sorted({group.key for group in state.living()} | set(state.imports))
    clusters: dict[str, list[str]] = {}
    for cluster, name in keys:
        clusters.setdefault(cluster, []).append(name)
    return ClusterInfo({key[1]: broker_data(state, key) for key in keys}, clusters)


def topics_of_cluster(state: MetadataState, cluster: str) -> list[str]:
    """The topics of every group of one cluster, sorted."""
    names: set[str] = set()
    for key, table in state.topics.items():
        if key[0] == cluster:
            names.update(table.topics)
    return sorted(names)


def all_topics(state: MetadataState) -> list[str]:
    """Every topic, the template included once there is a group."""
    has_group = next(state.living(), None) is not None
    return sorted({*state.topic_names(), *((DEFAULT_TOPIC,) if has_group else ())})
