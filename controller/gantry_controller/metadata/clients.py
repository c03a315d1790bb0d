"""Consumers as the quorum knows them: how groups may consume, who is in them and owns which queue.

All belong to one broker group each, as topics do, and count part by part in the digest.
"""

from collections.abc import Mapping

import msgspec
from gantry_protocol.types import Epoch

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


class QueueOwner(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The client that consumes one queue in order."""

    topic: str
    queue_id: int
    client_id: str


class LockTable(Parted, frozen=True, array_like=True):
    """The locked queues of one broker group.

    Attributes:
        epoch: of the master that reported last.
        serial: of its last report; rises with each.
        count: queues in ``groups``.
        groups: by consumer group, ascending by topic and queue.
    """

    epoch: Epoch = Epoch(0)
    serial: int = 0
    count: int = 0
    groups: dict[str, tuple[QueueOwner, ...]] = msgspec.field(default_factory=dict)

    @property
    def parts(self) -> Mapping[str, tuple[QueueOwner, ...]]:
        """The groups."""
        return self.groups


KINDS = (
    SubscriptionTable,
    ConsumerTable,
    ConsumerGroup,
    Client,
    Subscription,
    LockTable,
    QueueOwner,
)
"""All of them: their fields are part of the state's layout."""
