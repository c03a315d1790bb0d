"""Demands of calls: resources, and what has to be allowed there; one table of all methods.

The rows are upstream's (``DefaultAuthorizationContextBuilder``) but for these, which are stricter
where upstream's leave a way around:

* A namespace is a part of the name, as it is for brokers; upstream judges the name without it.
* All messages of a SendMessage count, not the first alone.
* To put a message off needs its topic besides its group.
* Offsets, about which upstream asks nothing, need what they need at brokers.

A method without a row is a super user's. Brokers judge what is passed on once more, by their own
table, on behalf of the user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_protocol.access.rules import Action
from gantry_protocol.remoting.demands import READ, group, popped_of, topic

from gantry_proxy.core.refusals import CallRefused
from gantry_proxy.core.resources import full_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gantry_protocol.remoting.demands import Demands

PUB, SUB, UPDATE = Action.PUB, Action.SUB, Action.UPDATE
NAMES_MAX = 1_024  # topics of one call


def _topics(resources: Iterable[Any], *actions: Action) -> Demands:
    names = dict.fromkeys(map(full_name, resources))
    if len(names) > NAMES_MAX:
        raise CallRefused("BAD_REQUEST", f"a request names {NAMES_MAX} topics at most")
    return [topic(name, *actions) for name in names]


def _both(wanted: Any, at: Any, *actions: Action) -> Demands:
    return group(full_name(wanted.group), *actions), topic(full_name(at), *actions)


def _of_queue(*actions: Action) -> Callable[[Any], Demands]:
    return lambda wanted: _both(wanted, wanted.message_queue.topic, *actions)


def _of_topic(*actions: Action) -> Callable[[Any], Demands]:
    return lambda wanted: (topic(full_name(wanted.topic), *actions),)


def _send(wanted: Any) -> Demands:
    return _topics((message.topic for message in wanted.messages), PUB)


def _subscribe(wanted: Any) -> Demands:
    return _both(wanted, wanted.topic, SUB)


def _popped(wanted: Any) -> Demands:
    return popped_of(full_name(wanted.group), full_name(wanted.topic))


def _member(wanted: Any) -> Demands:
    """A producer names no group, and any user may be one."""
    return (group(full_name(wanted.group), SUB),) if wanted.group.name else ()


def _command(wanted: Any) -> Demands:
    """What a client says on its stream: its settings, and what answers a question."""
    if wanted.WhichOneof("command") != "settings":
        return ()
    settings = wanted.settings
    if settings.HasField("publishing"):
        return _topics(settings.publishing.topics, PUB)
    if not settings.HasField("subscription"):
        return ()
    named = settings.subscription
    topics = _topics((item.topic for item in named.subscriptions), SUB)
    return group(full_name(named.group), SUB), *topics


TABLE: Mapping[str, Callable[[Any], Demands]] = {
    # Producers.
    "SendMessage": _send,
    "EndTransaction": _of_topic(PUB),
    "RecallMessage": _of_topic(PUB),
    # Consumers.
    "QueryAssignment": _subscribe,
    "ReceiveMessage": _of_queue(SUB),
    "AckMessage": _popped,
    "ChangeInvisibleDuration": _popped,
    "ForwardMessageToDeadLetterQueue": _popped,
    "PullMessage": _of_queue(SUB),
    "UpdateOffset": _of_queue(SUB, UPDATE),
    "GetOffset": _of_queue(*READ),
    "QueryOffset": lambda wanted: (topic(full_name(wanted.message_queue.topic), *READ),),
    "SyncLiteSubscription": _subscribe,
    # Both.
    "QueryRoute": _of_topic(PUB, SUB),
    "Heartbeat": _member,
    "NotifyClientTermination": _member,
    "Telemetry": _command,
}
