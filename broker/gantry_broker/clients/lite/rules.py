"""Rules of lite topics: what attributes of topics and groups say, and who may do what.

Upstream: ``TopicAttributes``, ``SubscriptionGroupAttributes``, ``LiteMetadataUtil`` and the checks
of ``PopLiteMessageProcessor`` and ``LiteSubscriptionCtlProcessor``.
"""

from gantry_protocol.bodies import SubscriptionGroupConfig, TopicConfig
from gantry_protocol.bodies.route import PERM_READ
from gantry_protocol.codes import ResponseCode
from gantry_protocol.lite import LITE_TYPE
from gantry_protocol.settings.lite import (
    BIND_TOPIC,
    CLIENT_QUOTA,
    EXPIRATION,
    RESET_EXCLUSIVE,
    RESET_UNSUBSCRIBE,
    SUB_MODEL,
    WILDCARD,
)
from gantry_protocol.settings.priority import MESSAGE_TYPE

from gantry_broker.clients import topic_rules
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import Refusal

LITE_TOPICS_MAX = 2_000_000  # of one broker group, unconfirmed ones not counted
SUBSCRIPTIONS_MAX = 2_000_000  # of one broker group
CLIENT_QUOTA_DEFAULT = 2_000  # upstream's
_MINUTE_MS = 60_000


def is_lite(topic: TopicConfig) -> bool:
    """Whether it is the parent of lite topics."""
    return topic.attributes.get(MESSAGE_TYPE) == LITE_TYPE


def expires_after_ms(topic: TopicConfig) -> int | None:
    """The time after its last message at which a lite topic ends; None: never."""
    text = topic.attributes.get(EXPIRATION, "")
    return int(text) * _MINUTE_MS if text.isdecimal() and int(text) > 0 else None


def bind_topic(group: SubscriptionGroupConfig) -> str | None:
    """The parent of the lite topics that a group consumes; None for an ordinary group."""
    return group.attributes.get(BIND_TOPIC)


def is_exclusive(group: SubscriptionGroupConfig) -> bool:
    """Whether a lite topic has one client of the group, the last that subscribed."""
    return group.attributes.get(SUB_MODEL) == "Exclusive"


def is_wildcard(group: SubscriptionGroupConfig) -> bool:
    """Whether its clients take all lite topics of the parent."""
    return WILDCARD in group.attributes


def client_quota(group: SubscriptionGroupConfig) -> int:
    """The number of lite topics that a client may name."""
    text = group.attributes.get(CLIENT_QUOTA, "")
    return int(text) if text.isdecimal() else CLIENT_QUOTA_DEFAULT


def begins_anew_at_a_change(group: SubscriptionGroupConfig) -> bool:
    """Whether the client that takes a lite topic over gets all that is kept of it."""
    return group.attributes.get(RESET_EXCLUSIVE) == "true"


def begins_anew_after_its_end(group: SubscriptionGroupConfig) -> bool:
    """Whether who subscribes again gets all that is kept."""
    return group.attributes.get(RESET_UNSUBSCRIBE) == "true"


def refuse_group(view: GroupView, group: str, parent: str) -> Refusal | None:
    """The reason why a group may not consume lite topics of ``parent``."""
    topic = view.store.topics.lookup(parent)
    if topic is None:
        return topic_rules.unknown_topic(parent)
    if not is_lite(topic):
        remark = f"the topic [{parent}] message type not match"
        return Refusal(ResponseCode.INVALID_PARAMETER, remark)
    if not topic.perm & PERM_READ:
        remark = f"the topic [{parent}] peeking message is forbidden"
        return Refusal(ResponseCode.NO_PERMISSION, remark)
    config = view.consumers.config(group)
    if not config.consume_enable:
        remark = f"subscription group no permission, {group}"
        return Refusal(ResponseCode.NO_PERMISSION, remark)
    if bind_topic(config) != parent:
        if not view.consumers.is_current:
            remark = f"the settings of group [{group}] are being read"
            return Refusal(ResponseCode.SYSTEM_BUSY, remark)
        if group not in view.consumers.configs.subscription_group_table:
            remark = f"subscription group [{group}] not exist"
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        remark = f"subscription bind topic not match, {group}: its {BIND_TOPIC} is not {parent}"
        return Refusal(ResponseCode.INVALID_PARAMETER, remark)
    return None
