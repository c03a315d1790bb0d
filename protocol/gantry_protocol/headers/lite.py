"""Headers of lite topics.

Upstream: ``PopLiteMessageRequestHeader``, ``NotifyUnsubscribeLiteRequestHeader``,
``GetParentTopicInfoRequestHeader``, ``GetLiteTopicInfoRequestHeader``,
``GetLiteClientInfoRequestHeader``,
``TriggerLiteDispatchRequestHeader`` and the headers of their answers.
"""

import msgspec

from gantry_protocol.command import Int32, Int64


class PopLiteMessageRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """PopLiteMessage (200070): messages of the lite topics to which a client subscribes.

    Attributes:
        client_id: the client.
        consumer_group: its group.
        topic: the parent of the lite topics.
        max_msg_num: how many at most.
        invisible_time: ms in which nobody else gets them.
        poll_time: ms to wait when there is nothing.
        born_time: when it was sent, ms, by the client's clock; waits count from the arrival.
        attempt_id: the same for the same try.
    """

    client_id: str
    consumer_group: str
    topic: str
    max_msg_num: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64 = 0
    attempt_id: str | None = None


class PopLiteMessageResponseHeader(msgspec.Struct, frozen=True, rename="camel"):
    """The answer; ``order_count_info``: how often each message was popped before."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    order_count_info: str | None = None


class NotifyUnsubscribeLiteRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """NotifyUnsubscribeLite (200073): a client has lost a lite topic to another one."""

    lite_topic: str
    consumer_group: str
    client_id: str


class ParentTopicInfoRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetParentTopicInfo (200075)."""

    topic: str


class LiteTopicInfoRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetLiteTopicInfo (200076)."""

    parent_topic: str
    lite_topic: str


class LiteClientInfoRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetLiteClientInfo (200077)."""

    parent_topic: str
    group: str
    client_id: str
    max_count: Int32 = 1000


class TriggerLiteDispatchRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """TriggerLiteDispatch (200079): look for messages again; of one client, or of a group."""

    group: str
    client_id: str | None = None
