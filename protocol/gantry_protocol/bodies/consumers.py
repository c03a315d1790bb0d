"""Bodies of the requests about who consumes, between masters and controllers.

ReportConsumers (31001) and GetConsumers (31002) are about one broker group: its master reports what
changed; its successor, and anybody who asks, reads the whole. So are ReportLocks (31011) and
GetLocks (31012), about the owners of its queues. GetChangedConsumers (31007) is about
a cluster: who is in a consumer group, whichever master hears it.
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


class LockedQueue(Body, frozen=True):
    """A queue of a broker group, and the client that owns it; an empty id: nobody does."""

    topic: str
    queue_id: int
    client_id: str = ""


class LockReport(Body, frozen=True):
    """ReportLocks (31011): by consumer group, the queues that have another owner than before."""

    groups: dict[str, list[LockedQueue]]


class LockList(Body, frozen=True):
    """The answer to GetLocks (31012).

    Attributes:
        groups: by consumer group, the queues that have an owner.
        epoch: of the master that reported last.
        serial: of its last report.
    """

    groups: dict[str, list[LockedQueue]]
    epoch: int = 0
    serial: int = 0


class ClusterClient(Body, frozen=True):
    """One member of a consumer group, and two of the broker groups whose masters hear it."""

    client_id: str
    language: str = ""
    version: int = 0
    heard_by: list[str] = msgspec.field(default_factory=list)


class ClusterMembership(Body, frozen=True):
    """One consumer group in a cluster.

    Attributes:
        generation: rises with each change; the index of the change in the controllers' log.
        clients: ascending by id; none if the group has ended.
    """

    generation: int
    clients: list[ClusterClient]
    subscriptions: list[ConsumerSubscription] = msgspec.field(default_factory=list)
    message_model: str = ""
    consume_type: str = ""
    consume_from_where: str = ""


class ChangedConsumers(Body, frozen=True):
    """The answer to GetChangedConsumers.

    Attributes:
        since: up to where the reader has read now.
        after: the name after which the whole goes on; None if nothing of it is left.
        is_whole: a part of the whole; what is not in it has ended.
        more: there is more to ask for at once.
        groups: as they are now, by name.
    """

    since: int
    after: str | None
    is_whole: bool
    more: bool
    groups: dict[str, ClusterMembership]
