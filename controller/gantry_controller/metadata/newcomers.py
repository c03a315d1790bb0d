"""A broker group that is new in a cluster takes over the topics that all others there have.

Clients find a group by the routes of its topics: without any, a group that was added to take load
takes none. The leader proposes ``TakeTopics`` before the first election of a group, so that a
group has its topics in the first route that names it.

Mapped topics, which any group may be asked for, it takes over too; their queues are where their
maps say, and ``shares`` has some of them move.
What the newcomer has already is left as it is: mapped topics are made at every group that is
declared. So is a group whose log may hold topics that nobody here knows, one that was adopted.
Nothing is taken from such a group either.
"""

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import TypeVar

from gantry_controller.metadata.clients import SubscriptionTable
from gantry_controller.metadata.events import TakeTopics
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import BrokerGroup, MetadataState
from gantry_controller.metadata.topic_table import Topic
from gantry_controller.metadata.topics import merge_topics

ValueT = TypeVar("ValueT")


def is_new(state: MetadataState, group: BrokerGroup) -> bool:
    """Whether the group had no master since it came (back) to life, so its topics are from here."""
    return not (group.had_master or group.retired or state.topic_table(group.key).is_partial)


def may_take(state: MetadataState, group: BrokerGroup) -> bool:
    """Whether other groups of the cluster may have something for this one once it is elected.

    What that is only ``TakeTopics`` finds out: a topic that is being made now may be in the log
    already, before the election, and not be applied yet.
    """
    maps = state.maps_of(group.cluster)
    is_due = bool(maps.maps) and group.key not in state.newcomers  # a share of the queues
    return is_new(state, group) and (is_due or any(True for _ in _others(state, group)))


def take_topics(state: MetadataState, event: TakeTopics) -> Result:
    """Gives a new group the topics and subscription groups that all others of its cluster have.

    Where their settings differ, those of the group that comes first by name count. A late or
    repeated event changes nothing.
    """
    group = state.find(event.cluster, event.name)
    if group is None or not is_new(state, group):
        return Result(group=group)
    if state.topic_table(group.key).topics and not event.beside:
        return Result(group=group)
    missing, settings = _missing(state, group)
    topics = {
        name: topic
        for name, topic in missing.items()
        if event.shares or state.queue_map(group.cluster, name) is None
    }
    changed = merge_topics(state, group.key, topics)
    if event.shares and state.maps_of(group.cluster).maps:
        state.put_plain("newcomers", group.key, state.index)
        changed = True
    if settings:
        table = state.subscription_table(group.key)
        wanted = SubscriptionTable(table.version + 1, {**settings, **table.groups})
        state.put_subscriptions(group.key, wanted)
        changed = True
    return Result(group=group, changed=changed)


def _missing(state: MetadataState, group: BrokerGroup) -> tuple[dict[str, Topic], dict[str, bytes]]:
    """What all others have, topics and settings of consumer groups, and this one has not."""
    others = list(_others(state, group))
    topics = _in_all([state.topic_table(other.key).topics for other in others])
    settings = _in_all([state.subscription_table(other.key).groups for other in others])
    own, known = state.topic_table(group.key).topics, state.subscription_table(group.key).groups
    return (
        {name: topic for name, topic in topics.items() if name not in own},
        {name: config for name, config in settings.items() if name not in known},
    )


def _others(state: MetadataState, group: BrokerGroup) -> Iterator[BrokerGroup]:
    """The groups that clients of the cluster are sent to by now, by name."""
    for other in state.serving_by_name(group.cluster):
        is_known = other.had_master and not state.topic_table(other.key).is_partial
        if is_known and other.name != group.name:
            yield other


def _in_all(tables: list[Mapping[str, ValueT]]) -> dict[str, ValueT]:
    """The entries of the first table whose keys are in each."""
    if not tables:
        return {}
    common = reduce(lambda names, table: names & table.keys(), tables[1:], set(tables[0]))
    return {name: value for name, value in tables[0].items() if name in common}
