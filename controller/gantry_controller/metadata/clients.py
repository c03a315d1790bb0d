"""Consumers as the quorum knows them: how groups may consume, and who is in them.

Both belong to one broker group each, as topics do, and count part by part in the digest.
"""

from collections.abc import Mapping

import msgspec

from gantry_controller.metadata.digest import Parted


class SubscriptionTable(Parted, frozen=True, array_like=True):
    """The subscription groups of one broker group.

    Attributes:
        groups: by consumer group, upstream's ``SubscriptionGroupConfig`` as JSON. The controllers
            keep and hand out the text; brokers act on it.
    """

    groups: dict[str, bytes] = msgspec.field(default_factory=dict)

    @property
    def parts(self) -> Mapping[str, bytes]:
        """The configurations."""
        return self.groups


class Client(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One member of a consumer group."""

    client_id: str
    language: str = ""
    version: int = 0


class Subscription(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One topic that a consumer group reads."""

    topic: str
    expression: str = "*"
    expression_type: str = "TAG"


class ConsumerGroup(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The members of one consumer group on one broker group; at least one.

    Attributes:
        clients: ascending by id, each once.
        subscriptions: ascending by topic, each once.
    """

    clients: tuple[Client, ...]
    subscriptions: tuple[Subscription, ...] = ()
    message_model: str = "CLUSTERING"
    consume_type: str = "CONSUME_PASSIVELY"
    consume_from_where: str = ""


class ConsumerTable(Parted, frozen=True, array_like=True):
    """The consumer groups with members on one broker group."""

    groups: dict[str, ConsumerGroup] = msgspec.field(default_factory=dict)

    @property
    def parts(self) -> Mapping[str, ConsumerGroup]:
        """The groups."""
        return self.groups
