"""Rules for names of topics, groups, clients and brokers. Every entrance asks them.

A request brings names in its header (``headers.codec.from_ext``) and in its body
(``bodies.codec.decode_request``); both compare every field that holds a name with the tables below
before anybody acts on the request. What kind of name a field holds follows from the field's own
name, so a new request is covered as soon as its struct is written; a test demands that each text in
a request is in a table here or is listed there as no name.

Upstream: ``TopicValidator`` and ``Validators``. They allow groups of 120 characters now and of 255
before, as clients in Go still do, so 255 are allowed here. Producer groups (clients in Go and C++
send any), client ids, and names of brokers and clusters have no alphabet there; here they get a
length.

What it does not judge: what was stored before. Names in a log, a volume or the controllers' state
are read as they are.
"""

import re
from collections.abc import Callable
from functools import cache

import msgspec

from gantry_protocol.lite import lite_problem

TOPIC_CHARS_MAX = 127
LONG_TOPIC_CHARS_MAX = 255  # retry topics and dead letters, which are named after a group
GROUP_CHARS_MAX = 255
CLIENT_CHARS_MAX = 1024  # host names, instance names and numbers, put together by clients
PLACE_CHARS_MAX = 255  # clusters, brokers
ADDRESS_CHARS_MAX = 512
LISTENERS_MAX = 4
LISTENER_NAME = r"[a-z](?:[-a-z0-9]{0,13}[a-z0-9])?"  # an expression

RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
REPLY_SUFFIX = "_REPLY_TOPIC"  # after a cluster; here also after a broker group

_ALPHABET = "^[%|a-zA-Z0-9_-]+$"
_is_plain = re.compile("[%|a-zA-Z0-9_-]+").fullmatch

Check = Callable[[str], str | None]


def topic_problem(name: str) -> str | None:
    """The reason why ``name`` cannot be a topic's; None when it can."""
    if not name.strip():
        return "The specified topic is blank."
    is_long = name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    return _problem("topic", name, LONG_TOPIC_CHARS_MAX if is_long else TOPIC_CHARS_MAX)


def group_problem(name: str) -> str | None:
    """The reason why ``name`` cannot be a producer or consumer group's; None when it can."""
    if not name.strip():
        return "The specified group is blank."
    return _problem("group", name, GROUP_CHARS_MAX)


def _problem(what: str, name: str, longest: int) -> str | None:
    if len(name) > longest:
        return f"The specified {what} is longer than {what} max length {longest}."
    if _is_plain(name) is None:
        return f"The specified {what} contains illegal characters, allowing only {_ALPHABET}"
    return None


def _no_longer_than(longest: int, what: str) -> Check:
    def problem(name: str) -> str | None:
        if len(name) > longest:
            return f"The specified {what} is longer than {what} max length {longest}."
        return None

    return problem


def _default_topic(name: str) -> str | None:
    return topic_problem(name) if name else None  # some clients know none


def _lite_topic(name: str) -> str | None:
    return lite_problem(name) if name else None  # of a message that belongs to none


_any_topic = _no_longer_than(LONG_TOPIC_CHARS_MAX, "topic")
_producer_group = _no_longer_than(GROUP_CHARS_MAX, "group")
_client = _no_longer_than(CLIENT_CHARS_MAX, "client id")
_place = _no_longer_than(PLACE_CHARS_MAX, "name")
_address = _no_longer_than(ADDRESS_CHARS_MAX, "address")

# By the attribute of a header or a body that holds it.
CHECKS: dict[str, Check] = {
    "topic": topic_problem,
    "topic_name": topic_problem,
    "origin_topic": topic_problem,
    "parent_topic": topic_problem,
    "lite_topic": _lite_topic,
    "default_topic": _default_topic,
    "group": group_problem,
    "group_name": group_problem,
    "producer_group": _producer_group,
    "consumer_group": group_problem,
    "src_group": group_problem,
    "dest_group": group_problem,
    "client_id": _client,
    "client_addr": _client,
    "cluster": _place,
    "cluster_name": _place,
    "broker_name": _place,
    "broker_addr": _address,
    "broker_address": _address,
    "ha_server_addr": _address,
    "master_address": _address,
    "master_ha_address": _address,
    "incarnation": _place,
    "master_incarnation": _place,
    "pod_uid": _place,
    "namespace": _place,
}


# Other texts of requests: words, places of messages, filters. Whoever keeps one bounds it there.
NO_NAMES = frozenset(
    {
        "after",  # a place in a list
        "attributes",
        "born_host",
        "boundary_type",
        "broker_ids_to_clean",
        "consume_from_where",
        "consume_type",
        "decision",
        "disk_stuck",
        "drain_waits_for",
        "expression_type",
        "fenced_ids",
        "filter",  # of lists; whatever is kept of users is judged by access.rules
        "index_type",
        "key",  # of a message, and of the controllers' settings
        "living",
        "log_damage",
        "message_model",
        "mode",
        "msg_id",
        "offset_msg_id",
        "origin_msg_id",
        "password",
        "policy_type",
        "preferred_ids",
        "properties",
        "recall_handle",
        "register_check_code",
        "resource",
        "resource_filter",
        "settings",  # a hash
        "settings_refused",
        "stats_key",
        "stats_name",
        "store_host",
        "sub_string",
        "subject",
        "subject_filter",
        "subscription",
        "tier_reason",
        "tier_state",
        "topic_filter_type",
        "transaction_id",
        "user_status",
        "user_type",
        "username",
        "value",
    }
)

# Where the same attribute is judged otherwise; None: not at all.
_EXCEPTIONS: dict[tuple[str, str], Check | None] = {
    ("ProducerData", "group_name"): _producer_group,
    # Judged with a send's other faults, in upstream's order.
    ("SendMessageRequestHeader", "topic"): None,
    ("SendMessageRequestHeaderV2", "topic"): None,
    # Nothing is kept of them, and nothing is sent as often.
    ("SendMessageRequestHeader", "default_topic"): None,
    ("SendMessageRequestHeaderV2", "default_topic"): None,
    ("SendMessageRequestHeader", "broker_name"): None,
    ("SendMessageRequestHeaderV2", "broker_name"): None,
    # Brokers of the old kind have topics that were created before there was an alphabet.
    ("RegisterTopicRequestHeader", "topic"): _any_topic,
    ("GetRouteInfoRequestHeader", "topic"): _any_topic,
    # A group or topic with a name of before can be deleted.
    ("DeleteSubscriptionGroupRequestHeader", "group_name"): None,
    ("DeleteTopicRequestHeader", "topic"): None,
    ("DeleteTopicFromNamesrvRequestHeader", "topic"): None,
}


@cache
def checked_fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, Check, bool], ...]:
    """The names in a struct: attribute, what is asked of it, whether it may be empty.

    Answers are none of our business: their names are those of whoever was asked.
    """
    if "Response" in kind.__name__:
        return ()
    checks = {
        field.name: _EXCEPTIONS.get((kind.__name__, field.name), CHECKS.get(field.name))
        for field in msgspec.structs.fields(kind)
    }
    return tuple(
        (field.name, problem_of, not field.required)
        for field in msgspec.structs.fields(kind)
        if (problem_of := checks[field.name]) is not None
    )
