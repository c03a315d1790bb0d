"""Headers of consumption by POP.

Upstream: ``PopMessageRequestHeader``, ``AckMessageRequestHeader``,
``ChangeInvisibleTimeRequestHeader``, ``NotificationRequestHeader``, ``PollingInfoRequestHeader``
and the headers of their answers.
"""

import msgspec

from gantry_protocol.command import Int32, Int64


class PopMessageRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """PopMessage (200050).

    Attributes:
        consumer_group: that takes messages.
        topic: they are taken from.
        queue_id: of one queue; below 0 any of them.
        max_msg_nums: how many at most.
        invisible_time: ms in which nobody else gets them.
        poll_time: ms to wait when there is nothing.
        born_time: when it was sent, ms, by the client's clock; waits count from the arrival.
        init_mode: where a new group begins: 0 at the first message, 1 behind the last one.
        exp_type: of ``exp``.
        exp: the filter; absent for everything.
        order: the messages of a queue are handed out again in order, and one batch at a time.
        attempt_id: of ordered consumption: the same for the same try.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64 = 0
    init_mode: Int32 = 0
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


class PopMessageResponseHeader(msgspec.Struct, frozen=True, rename="camel"):
    """All numbers: Java unboxes them."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """AckMessage (200051). ``extra_info`` is the receipt; ``topic`` is a lite topic's parent."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    lite_topic: str | None = None


class ChangeInvisibleTimeRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """ChangeMessageInvisibleTime (200053). ``invisible_time`` in ms, from now on.

    With ``renew`` (extension) the receipt stays as it is: whoever has it need not hear of this.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64
    renew: bool = msgspec.field(name="gantryRenew", default=False)
    lite_topic: str | None = None


class ChangeInvisibleTimeResponseHeader(msgspec.Struct, frozen=True, rename="camel"):
    """The new receipt, apart from what stays as it was."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


class NotificationRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """Notification (200054): as PopMessage, but nothing is taken."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64 = 0
    order: bool | None = None
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class NotificationResponseHeader(msgspec.Struct, frozen=True, rename="camel"):
    """The answer: a PopMessage would find something, or not."""

    has_msg: bool
    polling_full: bool = False


class PollingInfoRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """PollingInfo (200055): how many PopMessages wait."""

    consumer_group: str
    topic: str
    queue_id: Int32
