"""Bodies of ReportConsumers (31001) and GetConsumers (31002): who consumes from a broker group.

A group's master reports what changed; its successor, and anybody who asks, reads the whole.
"""

import msgspec

from gantry_protocol.bodies.codec import Body


class ConsumerClient(Body, frozen=True):
    """One member of a consumer group."""

    client_id: str
    language: str = ""
    version: int = 0


class ConsumerSubscription(Body, frozen=True):
    """One topic that a consumer group reads, and which of its messages."""

    topic: str
    expression: str = "*"
    expression_type: str = "TAG"


class ConsumerMembership(Body, frozen=True):
    """One consumer group on one broker group."""

    clients: list[ConsumerClient]
    subscriptions: list[ConsumerSubscription] = msgspec.field(default_factory=list)
    message_model: str = "CLUSTERING"
    consume_type: str = "CONSUME_PASSIVELY"
    consume_from_where: str = ""


class ConsumerReport(Body, frozen=True):
    """ReportConsumers (31001): by consumer group, its members now; and the groups without any."""

    groups: dict[str, ConsumerMembership] = msgspec.field(default_factory=dict)
    gone: list[str] = msgspec.field(default_factory=list)


class ConsumerTable(Body, frozen=True):
    """The answer to GetConsumers: each consumer group with members, or the one asked for."""

    groups: dict[str, ConsumerMembership]
    version: int = 0
