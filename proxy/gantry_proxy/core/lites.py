"""Lite topics in calls: wishes of clients as brokers take them, and refusals.

Upstream: ``ClientActivity.syncLiteSubscription`` and ``GrpcValidator.validateLiteTopic``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_protocol.bodies.lite import (
    COMPLETE_ADD,
    COMPLETE_REMOVE,
    OFFSET,
    PARTIAL_ADD,
    PARTIAL_REMOVE,
    POLICY,
    TAIL_N,
    TIMESTAMP,
    LiteSubscription,
    OffsetOption,
)
from gantry_protocol.lite import lite_problem
from gantry_protocol.settings.lite import BIND_TOPIC, CLIENT_QUOTA

from gantry_proxy.core.refusals import CallRefused

if TYPE_CHECKING:
    from gantry_protocol.bodies.client import SubscriptionGroupConfig

ACTIONS = (PARTIAL_ADD, PARTIAL_REMOVE, COMPLETE_ADD, COMPLETE_REMOVE)  # by the enum's numbers
QUOTA_DEFAULT = 2_000  # upstream's
_INT32_MAX = 2**31 - 1
_OFFSET_TYPES = {
    "policy": POLICY,
    "offset": OFFSET,
    "tail_n": TAIL_N,
    "timestamp": TIMESTAMP,
}


def checked(name: str) -> str:
    """A lite topic's name.

    Raises:
        CallRefused: it cannot be one.
    """
    problem = lite_problem(name)
    if problem is not None:
        raise CallRefused("ILLEGAL_LITE_TOPIC", problem)
    return name


def lite_topic_of(wanted: Any) -> str | None:
    """The lite topic that a request names; None for an ordinary message.

    Raises:
        CallRefused: it cannot be one.
    """
    return checked(wanted.lite_topic) if wanted.lite_topic else None


def subscription(wanted: Any, client: str, group: str, topic: str) -> LiteSubscription:
    """The wish of a SyncLiteSubscription.

    Raises:
        CallRefused: a name in it cannot be one, or its action is none.
    """
    if not 0 <= wanted.action < len(ACTIONS):
        raise CallRefused("BAD_REQUEST", f"{wanted.action} is no change of a lite subscription")
    action = ACTIONS[wanted.action]
    names = list(dict.fromkeys(wanted.lite_topic_set))
    if action in (PARTIAL_ADD, COMPLETE_ADD):
        for name in names:
            checked(name)
    option = None
    if action == PARTIAL_ADD and wanted.HasField("offset_option"):
        kind = wanted.offset_option.WhichOneof("offset_type") or "policy"
        option = OffsetOption(_OFFSET_TYPES[kind], getattr(wanted.offset_option, kind))
    return LiteSubscription(action, client, group, topic, names, option, wanted.version)


def is_lite_group(config: SubscriptionGroupConfig, topic: str) -> bool:
    """Whether a group consumes lite topics of ``topic``."""
    return config.attributes.get(BIND_TOPIC) == topic


def quota(config: SubscriptionGroupConfig) -> int:
    """The number of lite topics that a client of a group may name."""
    text = config.attributes.get(CLIENT_QUOTA, "")
    return min(int(text), _INT32_MAX) if text.isdecimal() else QUOTA_DEFAULT
