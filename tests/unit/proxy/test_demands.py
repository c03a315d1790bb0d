"""Demands of calls: each method's, and none without."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_protocol.access.rules import User, make_rule
from gantry_protocol.remoting.admission import Admitted, Users
from gantry_proxy import messages
from gantry_proxy.core import demands
from gantry_proxy.core.refusals import CallRefused
from gantry_proxy.messages import SERVICE_METHODS


def made(kind: str, **named: Any) -> Any:
    """A message; a name with dots is a field within, a text in a Resource is its name."""
    message = getattr(messages, kind)()
    for path, value in named.items():
        *outer, last = path.split("__")
        at = message
        for name in outer:
            at = getattr(at, name)
        field = getattr(at, last)
        if hasattr(field, "add"):
            for item in value:
                field.add().topic.name = item
        elif hasattr(field, "name"):
            field.name = value
        else:
            setattr(at, last, value)
    return message


def settings(**named: Any) -> Any:
    return made("TelemetryCommand", **{f"settings__{name}": named[name] for name in named})


def producer(*topics: str) -> Any:
    command = messages.TelemetryCommand()
    command.settings.publishing.SetInParent()
    for name in topics:
        command.settings.publishing.topics.add().name = name
    return command


def asked(method: str, wanted: Any) -> list[str]:
    return [str(demand) for demand in demands.TABLE[method](wanted)]


BOTH = ["Sub on Group:g", "Sub on Topic:t"]


@pytest.mark.parametrize(
    ("method", "wanted", "expected"),
    [
        ("SendMessage", made("SendMessageRequest", messages=["t"]), ["Pub on Topic:t"]),
        ("SendMessage", made("SendMessageRequest", messages=["t", "u", "t"]),
         ["Pub on Topic:t", "Pub on Topic:u"]),
        ("SendMessage", made("SendMessageRequest", messages=["%RETRY%g"]), ["Sub on Group:g"]),
        ("EndTransaction", made("EndTransactionRequest", topic="t"), ["Pub on Topic:t"]),
        ("RecallMessage", made("RecallMessageRequest", topic="t"), ["Pub on Topic:t"]),
        ("QueryAssignment", made("QueryAssignmentRequest", topic="t", group="g"), BOTH),
        ("ReceiveMessage",
         made("ReceiveMessageRequest", message_queue__topic="t", group="g"), BOTH),
        ("ReceiveMessage",
         made("ReceiveMessageRequest", message_queue__topic="%RETRY%other", group="g"),
         ["Sub on Group:g", "Sub on Group:other"]),
        ("AckMessage", made("AckMessageRequest", topic="t", group="g"), BOTH),
        ("AckMessage", made("AckMessageRequest", topic="%RETRY%g_t", group="g"),
         ["Sub on Group:g"]),
        ("ChangeInvisibleDuration",
         made("ChangeInvisibleDurationRequest", topic="t", group="g"), BOTH),
        ("ForwardMessageToDeadLetterQueue",
         made("ForwardMessageToDeadLetterQueueRequest", topic="t", group="g"), BOTH),
        ("PullMessage", made("PullMessageRequest", message_queue__topic="t", group="g"), BOTH),
        ("UpdateOffset", made("UpdateOffsetRequest", message_queue__topic="t", group="g"),
         ["Sub or Update on Group:g", "Sub or Update on Topic:t"]),
        ("GetOffset", made("GetOffsetRequest", message_queue__topic="t", group="g"),
         ["Sub or Get on Group:g", "Sub or Get on Topic:t"]),
        ("QueryOffset", made("QueryOffsetRequest", message_queue__topic="t"),
         ["Sub or Get on Topic:t"]),
        ("SyncLiteSubscription", made("SyncLiteSubscriptionRequest", topic="t", group="g"), BOTH),
        ("QueryRoute", made("QueryRouteRequest", topic="t"), ["Pub or Sub on Topic:t"]),
        ("QueryRoute",
         made("QueryRouteRequest", topic="t", topic__resource_namespace="n"),
         ["Pub or Sub on Topic:n%t"]),
        ("QueryRoute", made("QueryRouteRequest"), ["Pub or Sub on Topic:"]),
        ("Heartbeat", made("HeartbeatRequest", group="g"), ["Sub on Group:g"]),
        ("Heartbeat", made("HeartbeatRequest"), []),
        ("NotifyClientTermination", made("NotifyClientTerminationRequest", group="g"),
         ["Sub on Group:g"]),
        ("NotifyClientTermination", made("NotifyClientTerminationRequest"), []),
        ("Telemetry", settings(subscription__group="g", subscription__subscriptions=["t", "u"]),
         [*BOTH, "Sub on Topic:u"]),
        ("Telemetry", producer("t", "u"), ["Pub on Topic:t", "Pub on Topic:u"]),
        ("Telemetry", messages.TelemetryCommand(), []),
    ],
)  # fmt: skip
def test_what_each_method_needs(method: str, wanted: Any, expected: list[str]) -> None:
    assert asked(method, wanted) == expected


def test_no_method_of_the_service_is_missing_from_the_table() -> None:
    assert set(demands.TABLE) == set(SERVICE_METHODS)


def test_names_are_bounded() -> None:
    names = [f"t-{number}" for number in range(demands.NAMES_MAX + 1)]
    assert len(asked("Telemetry", producer(*names[1:]))) == demands.NAMES_MAX
    assert len(asked("SendMessage", made("SendMessageRequest", messages=["t"] * 2_000))) == 1
    for method, wanted in (
        ("Telemetry", producer(*names)),
        ("SendMessage", made("SendMessageRequest", messages=names)),
    ):
        with pytest.raises(CallRefused, match="1024 topics at most"):
            asked(method, wanted)


def test_a_method_without_a_row_is_a_super_users() -> None:
    every = make_rule("*", ["All"])
    users = Users("c", {"ada": User("secret-of-ada", rules=(every,)), "root": User("s", "Super")})
    assert not isinstance(users.judged("ada", "NewMethod", None, "10.0.0.1"), Admitted)
    assert isinstance(users.judged("root", "NewMethod", None, "10.0.0.1"), Admitted)
