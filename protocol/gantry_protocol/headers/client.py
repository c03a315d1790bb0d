"""Headers between clients and brokers: sending, pulling, offsets, sessions.

Upstream: ``org.apache.rocketmq.remoting.protocol.header``. The admin tool's headers are in
``headers.brokeradmin``. ``SendMessageRequestHeader`` (code 10, Go) and
``SendMessageRequestHeaderV2`` (310 and 320: one letter per field) have the same attributes, so that
one piece of code serves both.
"""

import msgspec

from gantry_protocol.command import Int32, Int64


class SendMessageRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """SendMessage (10), SendReplyMessage (324): long names.

    ``queue_id`` -1 lets the broker choose.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    batch: bool = False
    broker_name: str | None = msgspec.field(name="bname", default=None)


class SendMessageRequestHeaderV2(msgspec.Struct, frozen=True):
    """SendMessageV2 (310), SendBatchMessage (320), SendReplyMessageV2 (325): a letter for each."""

    producer_group: str = msgspec.field(name="a")
    topic: str = msgspec.field(name="b")
    default_topic: str = msgspec.field(name="c")
    default_topic_queue_nums: Int32 = msgspec.field(name="d")
    queue_id: Int32 = msgspec.field(name="e")
    sys_flag: Int32 = msgspec.field(name="f")
    born_timestamp: Int64 = msgspec.field(name="g")
    flag: Int32 = msgspec.field(name="h")
    properties: str | None = msgspec.field(name="i", default=None)
    reconsume_times: Int32 | None = msgspec.field(name="j", default=None)
    unit_mode: bool = msgspec.field(name="k", default=False)
    max_reconsume_times: Int32 | None = msgspec.field(name="l", default=None)
    batch: bool = msgspec.field(name="m", default=False)
    broker_name: str | None = msgspec.field(name="n", default=None)


class ReplyMessageRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """PushReplyMessageToClient (326): a reply's own header, and when and where it came.

    ``store_timestamp`` in ms since the epoch, the hosts as ``ip:port``.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    born_host: str
    store_host: str
    store_timestamp: Int64
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False


class SendMessageResponseHeader(msgspec.Struct, frozen=True, rename="camel"):
    """On 0, 10, 11 and 12. Java fails without ``queue_id`` and ``queue_offset``.

    ``msg_id`` is the offset id, a comma-joined list of them for a batch.
    """

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    region: str | None = msgspec.field(name="MSG_REGION", default=None)
    trace_on: str | None = msgspec.field(name="TRACE_ON", default=None)
    recall_handle: str | None = None


class RecallMessageRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """RecallMessage (370)."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


class RecallMessageResponseHeader(msgspec.Struct, frozen=True, rename="camel"):
    """On 0: the unique key of the message that was taken back."""

    msg_id: str


class PullMessageRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """PullMessage (11) and LitePullMessage (361).

    ``sys_flag`` bits: 1 commit, 2 may suspend, 4 subscription included, 8 class filter, 16 lite.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_ms: Int64 = msgspec.field(name="suspendTimeoutMillis")
    sub_version: Int64
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    broker_name: str | None = msgspec.field(name="bname", default=None)


class PullMessageResponseHeader(msgspec.Struct, frozen=True, rename="camel"):
    """On 0, 19, 20 and 21: all four numbers, since Java unboxes them."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


class QueryConsumerOffsetRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """QueryConsumerOffset (14). ``set_zero_if_not_found`` None counts as true, as upstream."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


class OffsetResponseHeader(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to every question for one offset: codes 14, 29, 30 and 31."""

    offset: Int64


class UpdateConsumerOffsetRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """UpdateConsumerOffset (15); may lower an offset."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


class SearchOffsetRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """SearchOffsetByTimestamp (29); ``boundary_type`` is ``LOWER`` or ``UPPER``."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str = "LOWER"


class QueueRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """One queue: GetMaxOffset (30, with ``committed``), GetMinOffset (31), and 32."""

    topic: str
    queue_id: Int32
    committed: bool = True


class ViewMessageRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """ViewMessageById (33); ``offset`` is a physical offset."""

    offset: Int64
    topic: str | None = None


class UnregisterClientRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """UnregisterClient (35)."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class ConsumerSendMsgBackRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """ConsumerSendMsgBack (36)."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


class EndTransactionRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """EndTransaction (37). ``commit_or_rollback``: 8 commit, 12 rollback, 0 unknown."""

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None


class CheckTransactionStateRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """CheckTransactionState (39), server to client."""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    broker_name: str | None = msgspec.field(name="bname", default=None)


class ConsumerGroupRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """A consumer group: codes 38, 40 and 203."""

    consumer_group: str
