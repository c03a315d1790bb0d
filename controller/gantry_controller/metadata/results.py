"""Results of applying an event: upstream's code and remark, and the group as it is now."""

from typing import Protocol

import msgspec
from gantry_protocol.codes import ResponseCode

from gantry_controller.metadata.state import BrokerGroup, MetadataState

_SUCCESS = ResponseCode.SUCCESS  # to look it up in the enumeration costs more than to compare


class Result(msgspec.Struct, frozen=True, gc=False):
    """The outcome of one event, equal on every replica.

    Attributes:
        code: 0, or the refusal; a refusal changed nothing.
        remark: for people; upstream's text where it has one.
        group: the group after the event, None if there is none.
        changed: whether ``group`` differs from the one before.
        topics_version: of the group's topics, where the event is about topics of one group.
        subscriptions_version: likewise of its subscription groups.
        consumers_changed: the consumer groups whose members on ``group`` differ.
        topic_count: of the topics concerned, where the event says how producers reach a group.
    """

    code: ResponseCode = ResponseCode.SUCCESS
    remark: str | None = None
    group: BrokerGroup | None = None
    changed: bool = False
    topics_version: int | None = None
    subscriptions_version: int | None = None
    consumers_changed: tuple[str, ...] = ()
    topic_count: int | None = None

    @property
    def ok(self) -> bool:
        """Whether the event was accepted."""
        return self.code == _SUCCESS


def refuse(code: ResponseCode, remark: str, group: BrokerGroup | None = None) -> Result:
    """A refusal; ``group`` is what stays."""
    return Result(code=code, remark=remark, group=group)


class Addressed(Protocol):
    """An event that names a group."""

    @property
    def cluster(self) -> str:
        """Empty where the request names none."""

    @property
    def name(self) -> str:
        """Of the broker group."""


def missing(state: MetadataState, event: Addressed, code: ResponseCode, remark: str) -> Result:
    """The refusal of an event about a group that ``find`` does not find.

    If only the cluster is missing, that is said: upstream would take any group of that name.
    """
    ambiguity = state.ambiguity(event.cluster, event.name)
    if ambiguity is not None:
        return refuse(ResponseCode.CONTROLLER_INVALID_REQUEST, ambiguity)
    return refuse(code, remark)
