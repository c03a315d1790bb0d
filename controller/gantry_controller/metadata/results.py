"""What applying an event answers: upstream's code and remark, and the group as it is now."""

import msgspec
from gantry_protocol.codes import ResponseCode

from gantry_controller.metadata.state import BrokerGroup


class Result(msgspec.Struct, frozen=True, gc=False):
    """The outcome of one event, equal on every replica.

    Attributes:
        code: 0, or the refusal; a refusal changed nothing.
        remark: for people; upstream's text where it has one.
        group: the group after the event, None if there is none.
        changed: whether ``group`` differs from the one before.
        topics_version: of the group's topics, where the event is about topics of one group.
    """

    code: ResponseCode = ResponseCode.SUCCESS
    remark: str | None = None
    group: BrokerGroup | None = None
    changed: bool = False
    topics_version: int | None = None

    @property
    def ok(self) -> bool:
        """Whether the event was accepted."""
        return self.code == ResponseCode.SUCCESS


def refuse(code: ResponseCode, remark: str, group: BrokerGroup | None = None) -> Result:
    """A refusal; ``group`` is what stays."""
    return Result(code=code, remark=remark, group=group)
