"""Drains: a broker group that is about to leave takes no new messages, and serves the old ones.

A drain is a word about the group, beside its topics and not among them (as a wipe is, ADR 0025):
routes show no queue of the group that may be written, and its master refuses new messages once
clients had time to ask for routes. The group stays in routes, so what it holds is consumed.

Rules protected:

* Some group of the cluster goes on taking messages: the last one that does is not drained.
* Whoever sends to a topic of the group finds it elsewhere: what no other group has is handed over
  with the drain.
"""

from gantry_protocol.bodies.route import PERM_WRITE
from gantry_protocol.codes import ResponseCode

from gantry_controller.metadata.clients import SubscriptionTable
from gantry_controller.metadata.draining import Drain
from gantry_controller.metadata.events import DrainGroup, EndDrain
from gantry_controller.metadata.results import Result, refuse
from gantry_controller.metadata.state import BrokerGroup, MetadataState
from gantry_controller.metadata.subscriptions import SUBSCRIPTION_GROUPS_MAX
from gantry_controller.metadata.topic_table import Topic
from gantry_controller.metadata.topics import TOPICS_PER_GROUP_MAX, merge_topics


def drain_group(state: MetadataState, event: DrainGroup) -> Result:
    """Has a group take no new messages; what others lack of its topics they get."""
    group = state.find(event.cluster, event.name)
    if group is None:
        return Result()
    if group.key in state.drains and _is_owned(group, event.uid):
        return Result(group=group)
    takers = others_taking(state, group)
    problem = _problem(state, group, takers, event.uid)
    if problem is not None:
        return refuse(ResponseCode.CONTROLLER_INVALID_REQUEST, problem, group)
    _hand_over(state, group, takers)
    state.put_plain("drains", group.key, Drain(event.at_ms))
    return Result(group=state.put(group), changed=True)


def end_drain(state: MetadataState, event: EndDrain) -> Result:
    """Has a group take messages again; a late or repeated event changes nothing."""
    group = state.find(event.cluster, event.name)
    if group is None or group.key not in state.drains:
        return Result(group=group)
    state.put_plain("drains", group.key, None)
    return Result(group=state.put(group), changed=True)


def takes_messages(state: MetadataState, group: BrokerGroup) -> bool:
    """Whether routes lead new messages to the group."""
    is_closed = group.key in state.drains or group.key in state.wiped
    return group.had_master and not group.retired and not is_closed


def others_taking(state: MetadataState, group: BrokerGroup) -> list[BrokerGroup]:
    """The other groups of the cluster that take messages, by name."""
    serving = state.serving_by_name(group.cluster)
    return [item for item in serving if item.key != group.key and takes_messages(state, item)]


def has_other_taking(state: MetadataState, group: BrokerGroup) -> bool:
    """Whether there is one of them; mostly the first group that is looked at says so."""
    serving = state.serving_by_name(group.cluster)
    return any(item.key != group.key and takes_messages(state, item) for item in serving)


def _is_owned(group: BrokerGroup, uid: str | None) -> bool:
    known = None if group.declaration is None else group.declaration.uid
    return uid is None or uid == known


def _problem(
    state: MetadataState, group: BrokerGroup, takers: list[BrokerGroup], uid: str | None
) -> str | None:
    if not _is_owned(group, uid):
        return f"The group {group.name} has another owner than {uid}."
    if group.retired:
        return f"The group {group.name} is retired: nobody is sent there."
    if state.topic_table(group.key).is_partial:
        return f"The master of {group.name} has not said yet which topics its log has."
    if not takers:
        return (
            f"{group.name} is the last group of cluster {group.cluster} that takes messages: add "
            "another one first."
        )
    topics, settings = _only_there(state, group, takers)
    for taker in takers:
        has_room = (
            len(state.topic_table(taker.key).topics) + len(topics) <= TOPICS_PER_GROUP_MAX
            and len(state.subscription_table(taker.key).groups) + len(settings)
            <= SUBSCRIPTION_GROUPS_MAX
        )
        if not has_room:
            return (
                f"{taker.name} has no room for {len(topics)} topics and {len(settings)} "
                f"subscription groups that only {group.name} has."
            )
    return None


def _only_there(
    state: MetadataState, group: BrokerGroup, takers: list[BrokerGroup]
) -> tuple[dict[str, Topic], dict[str, bytes]]:
    """Topics that may be sent to, and settings of consumer groups, that no taker has."""
    topics = {
        name: topic
        for name, topic in state.topic_table(group.key).topics.items()
        if topic.perm & PERM_WRITE and state.queue_map(group.cluster, name) is None
    }
    settings = dict(state.subscription_table(group.key).groups)
    for taker in takers:
        for name in topics.keys() & state.topic_table(taker.key).topics.keys():
            del topics[name]
        for name in settings.keys() & state.subscription_table(taker.key).groups.keys():
            del settings[name]
    return topics, settings


def _hand_over(state: MetadataState, group: BrokerGroup, takers: list[BrokerGroup]) -> None:
    topics, settings = _only_there(state, group, takers)
    for taker in takers:
        merge_topics(state, taker.key, topics)
        if settings:
            table = state.subscription_table(taker.key)
            wanted = {**table.groups, **settings}
            state.put_subscriptions(taker.key, SubscriptionTable(table.version + 1, wanted))
