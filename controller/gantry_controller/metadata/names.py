"""State that administrators give the name service: key-values, settings, write permissions.

Upstream's name servers each keep their own; here it is state of the quorum, equal at every reader.
All of it is bounded, since each node keeps it in memory, and one namespace goes into one answer.

A wipe is a word about the group, beside its topics and not among them: a broker that reports its
topics anew does not undo it, and who takes it back finds every topic's perm as its owner made it
(ADR 0025).
"""

import re

from gantry_protocol.codes import ResponseCode

from gantry_controller.metadata.events import ChangeSettings, DeleteKv, PutKv, SetWritable
from gantry_controller.metadata.kv import Namespace
from gantry_controller.metadata.results import Result, refuse
from gantry_controller.metadata.state import GroupKey, MetadataState

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"  # NamesrvUtil.NAMESPACE_ORDER_TOPIC_CONFIG
NAME_CHARS_MAX = 255  # of a namespace, and of a key; Validators.CHARACTER_MAX_LENGTH
VALUE_CHARS_MAX = 64 * 1024  # the order of a topic on 3,000 groups
NAMESPACES_MAX = 256
KEYS_MAX = 10_000  # of one namespace
CHARS_MAX = 2 * 1024 * 1024  # of all; six bytes each in JSON still fit into a frame of 16 MiB
WIPED_MAX = 10_000  # groups

ORDER_IN_ROUTES = "orderMessageEnable"
"""Whether a route says where its topic's ordered queues are; clients then write to these alone."""

ORDER_TO_BROKERS = "returnOrderTopicConfigToBroker"
"""Whether brokers of the old kind are told which topics are ordered, in the answer to 103."""

DEFAULTS = {ORDER_IN_ROUTES: False, ORDER_TO_BROKERS: True}
"""Upstream's; all else that it has for name servers is a node's own, or always so here."""

BLACK_LIST = ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")
"""Upstream's; refused in its words."""

_ONE = r"[^:; \t\r\n]+:[1-9][0-9]{0,3}"
_ORDER = re.compile(f"{_ONE}(;{_ONE})*")  # no \s: what it matches depends on Python's Unicode


def put_kv(state: MetadataState, event: PutKv) -> Result:
    """Keeps a value, or another one, under its key."""
    problem = _kv_problem(event)
    if problem is not None:
        return refuse(ResponseCode.INVALID_PARAMETER, problem)
    old = state.kv.get(event.namespace, Namespace())
    known = old.entries.get(event.key)
    if known == event.value:
        return Result()
    more = len(event.value) - len(known or "")
    if known is None:
        more += len(event.key)
    full = _full(state, event.namespace, more, new_key=known is None)
    if full is not None:
        return refuse(ResponseCode.SYSTEM_ERROR, full)
    entries = {**old.entries, event.key: event.value}
    state.put_plain("kv", event.namespace, Namespace(old.version + 1, entries, old.chars + more))
    return Result(changed=True)


def delete_kv(state: MetadataState, event: DeleteKv) -> Result:
    """Strikes a value; striking what is not there succeeds, as upstream's does."""
    old = state.kv.get(event.namespace)
    if old is None or event.key not in old.entries:
        return Result()
    chars = old.chars - len(event.key) - len(old.entries[event.key])
    entries = {key: value for key, value in old.entries.items() if key != event.key}
    rest = Namespace(old.version + 1, entries, chars) if entries else None
    state.put_plain("kv", event.namespace, rest)
    return Result(changed=True)


def set_writable(state: MetadataState, event: SetWritable) -> Result:
    """Keeps producers from a group, or lets them back; what is so already changes nothing."""
    keys = _groups_named(state, event.cluster, event.name)
    if not keys:
        return refuse(ResponseCode.SYSTEM_ERROR, f"There is no broker group {event.name}")
    if len(keys) > 1:
        clusters = ", ".join(cluster for cluster, _ in keys)
        return refuse(
            ResponseCode.INVALID_PARAMETER,
            f"There are broker groups {event.name} in several clusters ({clusters}); name the "
            "cluster",
        )
    (key,) = keys
    topic_count = len(state.topic_table(key).topics)
    if event.writable is (key not in state.wiped):
        return Result(topic_count=topic_count)
    if not event.writable and len(state.wiped) >= WIPED_MAX:
        return refuse(
            ResponseCode.SYSTEM_ERROR,
            f"Producers are kept from {WIPED_MAX} groups, the most there may be",
        )
    state.put_plain("wiped", key, None if event.writable else state.index)
    return Result(changed=True, topic_count=topic_count)


def change_settings(state: MetadataState, event: ChangeSettings) -> Result:
    """Takes over all of them or nothing.

    Upstream drops in silence what it does not know; here it is refused, since somebody relies on
    it.
    """
    if not event.settings.keys().isdisjoint(BLACK_LIST):
        return refuse(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    chosen: dict[str, bool] = {}
    for name, text in sorted(event.settings.items()):
        if name not in DEFAULTS:
            known = ", ".join(DEFAULTS)
            return refuse(
                ResponseCode.NO_PERMISSION,
                f"{name[:64]!r} does not change while name servers run; what does is: {known}",
            )
        value = {"true": True, "false": False}.get(text.lower())
        if value is None:
            return refuse(ResponseCode.NO_PERMISSION, f"{name} is true or false, not {text[:64]!r}")
        chosen[name] = value
    changes = {name: value for name, value in chosen.items() if setting(state, name) is not value}
    for name, value in changes.items():
        state.put_plain("settings", name, None if value is DEFAULTS[name] else value)
    return Result(changed=bool(changes))


def setting(state: MetadataState, name: str) -> bool:
    """One of ``DEFAULTS``, as it is now."""
    return state.settings.get(name, DEFAULTS[name])


def ordered_queues(state: MetadataState, topic: str) -> str | None:
    """The places of the ordered queues of ``topic``, as a route has them."""
    orders = state.kv.get(ORDER_NAMESPACE)
    if orders is None or not setting(state, ORDER_IN_ROUTES):
        return None
    return orders.entries.get(topic)


def _groups_named(state: MetadataState, cluster: str, name: str) -> list[GroupKey]:
    """The groups that a request may mean, which names no cluster as Java sends it.

    A broker of the old kind that restarts is forgotten in between; that it is wiped is not.
    """
    keys = {*state.named(name), *(key for key in (*state.imports, *state.wiped) if key[1] == name)}
    return sorted(key for key in keys if cluster in ("", key[0]))


def _kv_problem(event: PutKv) -> str | None:
    for what, text in (("namespace", event.namespace), ("key", event.key)):
        if not 1 <= len(text) <= NAME_CHARS_MAX:
            return f"A {what} has 1 to {NAME_CHARS_MAX} characters, not {len(text)}."
    if not 1 <= len(event.value) <= VALUE_CHARS_MAX:
        return f"A value has 1 to {VALUE_CHARS_MAX} characters, not {len(event.value)}."
    if event.namespace == ORDER_NAMESPACE and not _ORDER.fullmatch(event.value):
        # Java's clients parse it with each route (MQClientInstance.topicRouteData2TopicPublishInfo)
        # and throw: one that cannot be read would stop every producer of the topic.
        return (
            f"The order of a topic is broker:queues;broker:queues with 1 to 9999 queues each, "
            f"not {event.value[:64]!r}."
        )
    return None


def _full(state: MetadataState, namespace: str, more: int, *, new_key: bool) -> str | None:
    """Why there is no room for ``more`` characters in ``namespace``; None if there is."""
    old = state.kv.get(namespace)
    if old is None and len(state.kv) >= NAMESPACES_MAX:
        return f"There are {NAMESPACES_MAX} namespaces, the most there may be"
    if old is not None and new_key and len(old.entries) >= KEYS_MAX:
        return f"The namespace {namespace} has {KEYS_MAX} keys, the most it may have"
    if more > 0 and more + sum(item.chars for item in state.kv.values()) > CHARS_MAX:
        return f"Key-values may have {CHARS_MAX} characters together; delete some"
    return None
