"""A broker group that is new in a cluster takes over the topics that all others there have.

Clients find a group by the routes of its topics: without any, a group that was added to take load
takes none. The leader proposes ``TakeTopics`` before the first election of a group, so that a
group has its topics in the first route that names it.

Mapped topics, which any group may be asked for, it takes over too; their queues are where their
maps say, and ``shares`` has some of them move.
What the newcomer has already is left as it is, and so is a group whose log may hold topics that
nobody here knows: one that was adopted. Nothing is taken from such a group either.
"""

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import TypeVar

from gantry_controller.metadata.clients import SubscriptionTable
from gantry_controller.metadata.events import TakeTopics
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import BrokerGroup, MetadataState
from gantry_controller.metadata.topics import merge_topics

ValueT = TypeVar("ValueT")


def is_new(state: MetadataState, group: BrokerGroup) -> bool:
    """Whether the group has no topics yet since it came (back) to life, and no master."""
    topics = state.topic_table(group.key)
    return not (group.had_master or group.retired or topics.topics or topics.is_partial)


def may_take(state: MetadataState, group: BrokerGroup) -> bool:
    """Whether another group of the cluster has something that this one may take over."""
    return is_new(state, group) and any(
        state.topic_table(other.key).topics or state.subscription_table(other.key).groups
        for other in _others(state, group)
    )


def take_topics(state: MetadataState, event: TakeTopics) -> Result:
    """Gives a new group the topics and subscription groups that all others of its cluster have.

    Where their settings differ, those of the group that comes first by name count. A late or
    repeated event changes nothing.
    """
    group = state.find(event.cluster, event.name)
    if group is None or not is_new(state, group):
        return Result(group=group)
    others = list(_others(state, group))
    in_all = _in_all([state.topic_table(other.key).topics for other in others])
    topics = {
        name: topic
        for name, topic in in_all.items()
        if event.shares or state.queue_map(group.cluster, name) is None
    }
    changed = merge_topics(state, group.key, topics)
    if event.shares and state.maps_of(group.cluster).maps:
        state.put_plain("newcomers", group.key, state.index)
        changed = True
    table = state.subscription_table(group.key)
    settings = _in_all([state.subscription_table(other.key).groups for other in others])
    wanted = settings | table.groups
    if wanted != table.groups:
        state.put_subscriptions(group.key, SubscriptionTable(table.version + 1, wanted))
        changed = True
    return Result(group=group, changed=changed)


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
