"""Topics, and brokers of the old kind that report theirs.

The controller commits a topic first; a group's brokers learn of it by the version of the group's
table and write it into their log. Absent topics of an imported report are not removed: a report may
be an increment (upstream's ``deleteTopicWithBrokerRegistration`` is false).
"""

from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import BrokerId, Epoch
from msgspec.structs import replace

from gantry_controller.metadata.attributes import AttributesError, altered
from gantry_controller.metadata.events import (
    CreateTopic,
    DeleteTopic,
    ForgetImport,
    ImportBroker,
    ReportTopic,
    ReportTopics,
)
from gantry_controller.metadata.imported import ImportedBroker
from gantry_controller.metadata.results import Result, missing, refuse
from gantry_controller.metadata.state import BrokerGroup, GroupKey, MetadataState
from gantry_controller.metadata.topic_index import too_many_readers
from gantry_controller.metadata.topic_table import DEFAULT_TOPIC, Topic, TopicTable

TOPIC_LENGTH_MAX = 127  # TopicValidator.TOPIC_MAX_LENGTH
QUEUES_MAX = 4096  # per topic and group; a typing error must not create a million queues
PERM_MAX = 7  # PermName: inherit 1, write 2, read 4
TOPICS_PER_GROUP_MAX = 100_000
IMPORTED_BROKERS_MAX = 64  # of one group name
VERSIONS_PER_EPOCH = 2**32  # of a group's topics or settings, between two adoptions

NAME_CHARS = frozenset("%|-_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


def create_topic(state: MetadataState, event: CreateTopic) -> Result:
    """Creates or changes one topic on one group, or on every group of a cluster."""
    problem = topic_problem(event.topic, event.config)
    if problem is not None:
        return refuse(ResponseCode.INVALID_PARAMETER, problem)
    keys = addressed(state, event.cluster, event.name)
    if isinstance(keys, Result):
        return keys
    full = [key for key in keys if len(state.topic_table(key).topics) >= TOPICS_PER_GROUP_MAX]
    if full:
        return refuse(
            ResponseCode.SYSTEM_ERROR,
            f"Group {full[0][1]} has {TOPICS_PER_GROUP_MAX} topics, the most it may have",
        )
    wanted: dict[GroupKey, Topic] = {}
    for key in keys:
        known = state.topic_table(key).topics.get(event.topic)
        if event.if_absent and known is not None:
            continue
        if state.queue_map(key[0], event.topic) is not None:
            return refuse(
                ResponseCode.INVALID_PARAMETER,
                f"Topic {event.topic} of cluster {key[0]} has a queue map: it is changed as a "
                "whole, by gantry queues map or mqadmin updateStaticTopic",
            )
        try:
            attributes = altered(None if known is None else known.attributes, event.attributes)
        except AttributesError as refusal:
            return refuse(ResponseCode.INVALID_PARAMETER, str(refusal))
        problem = too_many_readers(state.groups[key], event.attributes, attributes)
        if problem is not None:
            return refuse(ResponseCode.INVALID_PARAMETER, f"Topic {event.topic}: {problem}")
        wanted[key] = replace(event.config, attributes=attributes)
    changes = [merge_topics(state, key, {event.topic: topic}) for key, topic in wanted.items()]
    version = state.topic_table(keys[0]).version if len(keys) == 1 else None
    return Result(topics_version=version, changed=any(changes))


def delete_topic(state: MetadataState, event: DeleteTopic) -> Result:
    """Deletes a topic; deleting what is not there succeeds, as upstream's does.

    A mapped topic is one thing: it goes with its map on all groups of its cluster.
    Refused while a group in question may have it and has not said so: it would come back.
    """
    ambiguity = state.ambiguity(event.cluster, event.name)
    if ambiguity is not None:
        return refuse(ResponseCode.INVALID_PARAMETER, ambiguity)
    for cluster, name in state.groups:
        is_meant = event.cluster in ("", cluster) and event.name in ("", name)
        if is_meant and state.topic_table((cluster, name)).is_partial:
            return refuse(
                ResponseCode.SYSTEM_BUSY,
                f"The master of {name} has not said yet which topics its log has; delete "
                f"{event.topic} once it has",
            )
    changed = False
    for key in state.groups_with(event.topic):
        cluster, name = key
        is_mapped = state.queue_map(cluster, event.topic) is not None
        if event.cluster not in ("", cluster) or not (is_mapped or event.name in ("", name)):
            continue
        table = state.topic_table(key)
        rest = {topic: config for topic, config in table.topics.items() if topic != event.topic}
        state.put_topics(key, replace(table, version=table.version + 1, topics=rest))
        changed = True
    for cluster in sorted({cluster for cluster, _ in state.groups}):
        if event.cluster in ("", cluster) and state.queue_map(cluster, event.topic) is not None:
            state.put_queue_map(cluster, event.topic, None)
    key = (event.cluster, event.name)
    return Result(topics_version=state.topic_table(key).version, changed=changed)


def import_broker(state: MetadataState, event: ImportBroker) -> Result:
    """Records a broker of the old kind and merges its topics.

    An address is kept under one id only, as a broker comes back in another role. A report of a
    deposed master, with a lower state version than that of its successor under the same id, is
    ignored (``RouteInfoManager.registerBroker``).
    """
    key = (event.cluster, event.name)
    known = state.imports.get(key, ())
    if _is_outdated(known, event):
        return Result()
    others = tuple(
        item
        for item in known
        if item.address != event.address and item.broker_id != event.broker_id
    )
    if len(others) >= IMPORTED_BROKERS_MAX:
        return refuse(
            ResponseCode.SYSTEM_ERROR,
            f"register broker failed: {event.name} has {IMPORTED_BROKERS_MAX} brokers already",
        )
    reported = ImportedBroker(event.broker_id, event.address, event.ha_address, event.state_version)
    brokers = tuple(sorted((*others, reported), key=lambda item: item.broker_id))
    changed = brokers != known
    if changed:
        state.put_imports(key, brokers)
    changed |= merge_topics(state, key, _fit_topics(state, key, event))
    return Result(changed=changed)


def is_news(state: MetadataState, event: ImportBroker) -> bool:
    """Whether applying ``event`` would change anything: brokers repeat their report for ever."""
    key = (event.cluster, event.name)
    known = state.imports.get(key, ())
    if _is_outdated(known, event):
        return False
    reported = ImportedBroker(event.broker_id, event.address, event.ha_address, event.state_version)
    table = state.topic_table(key)
    fit = _fit_topics(state, key, event)
    return reported not in known or any(
        _is_other(table.topics.get(name), fit[name]) for name in fit
    )


def _is_outdated(known: tuple[ImportedBroker, ...], event: ImportBroker) -> bool:
    return any(
        item.broker_id == event.broker_id
        and item.address != event.address
        and item.state_version > event.state_version
        for item in known
    )


def _fit_topics(state: MetadataState, key: GroupKey, event: ImportBroker) -> dict[str, Topic]:
    """The topics of a report that may be kept; none if there are too many."""
    fit = {
        topic: config
        for topic, config in sorted(event.topics.items())
        if topic == DEFAULT_TOPIC or topic_problem(topic, config) is None
    }
    known = state.topic_table(key).topics
    total = len(known) + sum(topic not in known for topic in fit)
    return fit if total <= TOPICS_PER_GROUP_MAX else {}


def report_topic(state: MetadataState, event: ReportTopic) -> Result:
    """Merges one topic of brokers of the old kind, on all that are named or on none.

    Groups of ours are not reported to: their topics are committed first (``create_topic``).
    """
    merged: dict[GroupKey, Topic] = {}
    for name, config in sorted(event.queues.items()):
        problem = None if event.topic == DEFAULT_TOPIC else topic_problem(event.topic, config)
        if problem is not None:
            return refuse(ResponseCode.INVALID_PARAMETER, problem)
        keys = sorted(key for key in state.imports if key[1] == name)
        if len(keys) != 1:
            found = "several clusters have" if keys else "there is no"
            return refuse(
                ResponseCode.INVALID_PARAMETER,
                f"Topic {event.topic} is not taken over: {found} broker {name} that reports its "
                "topics",
            )
        known = state.topic_table(keys[0]).topics
        if event.topic not in known and len(known) >= TOPICS_PER_GROUP_MAX:
            return refuse(
                ResponseCode.SYSTEM_ERROR,
                f"Group {name} has {TOPICS_PER_GROUP_MAX} topics, the most it may have",
            )
        order = event.topic in known and known[event.topic].order  # a report like this says nothing
        merged[keys[0]] = replace(config, order=order)
    changes = [merge_topics(state, key, {event.topic: item}) for key, item in merged.items()]
    return Result(changed=any(changes))


def await_topics(state: MetadataState, group: BrokerGroup) -> None:
    """The topics of a group that was just adopted are those of its log, and not known yet.

    The version goes on above every one that a log of the group may hold: another quorum counted
    from 0, or from an earlier adoption, which was at a lower epoch.
    """
    table = state.topic_table(group.key)
    version = max(table.version + 1, group.base_epoch * VERSIONS_PER_EPOCH)
    state.put_topics(group.key, replace(table, version=version, is_partial=True), ())


def report_topics(state: MetadataState, event: ReportTopics) -> Result:
    """Takes over a part of what the log of an adopted group has, as it stands there.

    A topic that somebody has made here since is as it was made here. Nothing is taken over once the
    table is whole: a topic of a late report may have been deleted.
    """
    group = state.find(event.cluster, event.name)
    if group is None:
        code = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
        return missing(state, event, code, "Broker metadata is not existed")
    problem = not_its_master(group, event.broker_id, event.incarnation, event.master_epoch)
    if problem is not None:
        return refuse(*problem, group)
    table = state.topic_table(group.key)
    if not table.is_partial:
        return Result(group=group)
    topics = dict(table.topics)
    for name, topic in sorted(event.topics.items()):
        topics[name] = replace(topics.get(name, topic), since=0)  # in the log it is no other one
    version = table.version + 1
    whole = replace(table, version=version, topics=topics, is_partial=event.more)
    state.put_topics(group.key, whole, event.topics)
    return Result(group=group, topics_version=version, changed=True)


def not_its_master(
    group: BrokerGroup, broker_id: BrokerId, incarnation: str, epoch: Epoch
) -> tuple[ResponseCode, str] | None:
    """The reason to refuse a report: it is not of the process that is master in this epoch."""
    if (group.master_id, group.master_incarnation) != (broker_id, incarnation):
        return (
            ResponseCode.CONTROLLER_INVALID_MASTER,
            f"This process of broker {broker_id} is not the master of {group.name}",
        )
    if group.master_epoch != epoch:
        return (
            ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
            f"The group is in master epoch {group.master_epoch}, not {epoch}",
        )
    return None


def forget_import(state: MetadataState, event: ForgetImport) -> Result:
    """Strikes an imported broker; the last one takes its group's topics with it."""
    key = (event.cluster, event.name)
    known = state.imports.get(key, ())
    rest = tuple(item for item in known if item.address != event.address)
    if len(rest) == len(known):
        return Result()
    state.put_imports(key, rest)
    if rest:
        return Result(changed=True)
    table = state.topic_table(key)
    if table.topics and state.find(*key) is None:
        state.put_topics(key, TopicTable(version=table.version + 1))
    return Result(changed=True)


def topic_problem(topic: str, config: Topic) -> str | None:
    """The fault of a topic, or None (RocketMQ ``TopicValidator``)."""
    if not topic:
        return "The specified topic is blank."
    if not set(topic) <= NAME_CHARS:
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > TOPIC_LENGTH_MAX:
        return f"The specified topic is longer than topic max length {TOPIC_LENGTH_MAX}."
    if topic == DEFAULT_TOPIC:
        return f"The topic[{topic}] is conflict with system topic."
    for count in (config.read_queue_nums, config.write_queue_nums):
        if not 1 <= count <= QUEUES_MAX:
            return f"The topic {topic} must have 1 to {QUEUES_MAX} queues, not {count}."
    if not 0 <= config.perm <= PERM_MAX:
        return f"The topic {topic} must have a perm from 0 to {PERM_MAX}, not {config.perm}."
    return None


def addressed(
    state: MetadataState, cluster: str, name: str, *, retired: bool = False
) -> list[GroupKey] | Result:
    """The groups that a setting is for, at least one and all of one cluster; or a refusal.

    An empty ``name`` means every group of the cluster, an empty ``cluster`` the only one. Retired
    groups are meant only by name, or with ``retired``: what is deleted shall not come back with
    them.
    """
    if name:
        group = state.find(cluster, name)
        keys = [] if group is None else [group.key]
        ambiguity = state.ambiguity(cluster, name)
        if ambiguity is not None:
            return refuse(ResponseCode.INVALID_PARAMETER, ambiguity)
    else:
        groups = state.living if retired else state.serving
        keys = sorted(group.key for group in groups(cluster or None))
    if not keys:
        what = f"no broker group {name}" if name else "no broker group at all"
        where = f" in cluster {cluster}" if cluster else ""
        return refuse(ResponseCode.SYSTEM_ERROR, f"There is {what}{where}")
    clusters = sorted({key for key, _ in keys})
    if len(clusters) > 1:
        return refuse(
            ResponseCode.INVALID_PARAMETER,
            f"Groups of several clusters ({', '.join(clusters)}) are served here; name one",
        )
    return keys


def merge_topics(state: MetadataState, key: GroupKey, topics: dict[str, Topic]) -> bool:
    """Makes ``topics`` those of the group ``key``, beside the others; whether that is new."""
    table = state.topic_table(key)
    news = {
        name: topic for name, topic in topics.items() if _is_other(table.topics.get(name), topic)
    }
    if not news:
        return False
    version = table.version + 1
    merged = dict(table.topics)
    for name, topic in news.items():
        known = table.topics.get(name)
        merged[name] = replace(topic, since=version if known is None else known.since)
    state.put_topics(key, replace(table, version=version, topics=merged), news)
    return True


def _is_other(known: Topic | None, wanted: Topic) -> bool:
    """Whether a topic differs from what is asked for, whenever it was created."""
    return known is None or replace(known, since=0) != replace(wanted, since=0)
