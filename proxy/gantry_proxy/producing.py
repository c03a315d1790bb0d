"""SendMessage, EndTransaction, RecallMessage."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import HeaderError
from gantry_protocol.headers.client import (
    EndTransactionRequestHeader,
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from gantry_protocol.headers.codec import from_ext, to_ext
from gantry_protocol.queue_map import STATIC_SINCE
from gantry_protocol.recall import RecallHandle
from gantry_protocol.records.batch import BatchMessage, encode_batch
from gantry_protocol.records.ids import decode_offset_msg_id
from msgspec.structs import replace

from gantry_proxy.core import handles, refusals
from gantry_proxy.core.outgoing import Outgoing, outgoing
from gantry_proxy.core.refusals import CallRefused, of_broker
from gantry_proxy.core.resources import topic_of
from gantry_proxy.core.routes import GroupQueues, of_mapped, of_message_group, writable
from gantry_proxy.messages import (
    EndTransactionResponse,
    RecallMessageResponse,
    SendMessageResponse,
)

if TYPE_CHECKING:
    from gantry_proxy.calls import Masters
    from gantry_proxy.rpc import Call

Routed = Callable[[GroupQueues, str], dict[str, str]]

DEFAULT_TOPIC, DEFAULT_QUEUES = "TBW102", 8
SEND_S = 3.0  # where a client does not say
MARGIN_S = 0.1  # for the way back
STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)
RESOLUTIONS = {1: 0x8, 2: 0xC}  # COMMIT, ROLLBACK: TRANSACTION_COMMIT_TYPE, …_ROLLBACK_TYPE


class Producing:
    """See the module.

    Args:
        masters: the broker groups.

    Attributes:
        sent: messages that were stored.
    """

    def __init__(self, masters: Masters) -> None:
        self.sent = 0
        self._masters = masters
        self._turn = itertools.count()

    async def send(self, wanted: Any, call: Call) -> Any:
        """SendMessage.

        Raises:
            CallRefused: see ``core.outgoing``, or it was not stored.
        """
        return await self.store(wanted, call)

    async def store(self, wanted: Any, call: Call, routed: Routed | None = None) -> Any:
        """The same.

        Args:
            wanted: the request.
            call: its call.
            routed: is told the group and the topic before the first try, and gives fields that go
                with each; None for nobody.
        """
        messages = outgoing(wanted.messages, call.peer, _now_ms())
        topic = messages[0].topic
        group, queue_id = await self._place(topic, messages[0].message_group)
        by_number = bool(group.mapped and messages[0].message_group)
        fields = call.behalf if routed is None else call.behalf | routed(group, topic)
        response = SendMessageResponse()
        answer = await self._masters.call(
            group.address,
            lambda: _request(messages, group.broker_name, queue_id, fields, by_number=by_number),
            within_s(call),
        )
        if answer.code not in STORED:
            raise of_broker(answer.code, answer.remark)
        self._enter(response, messages, group.broker_name, answer)
        return response

    async def _place(self, topic: str, message_group: str) -> tuple[GroupQueues, int]:
        groups = await self._masters.route(topic)
        queues = writable(groups)
        if not queues:
            raise CallRefused("FORBIDDEN", f"topic {topic} has no queue that takes messages")
        if message_group:
            mapped = of_mapped(groups, message_group)
            if mapped is not None:
                return mapped
            return of_message_group(queues, message_group)
        return queues[next(self._turn) % len(queues)]

    def _enter(
        self, response: Any, messages: list[Outgoing], broker_name: str, answer: RemotingCommand
    ) -> None:
        header = from_ext(SendMessageResponseHeader, answer.ext)
        ids = header.msg_id.split(",")
        code = refusals.OK
        if answer.code == ResponseCode.SUCCESS:
            self.sent += len(messages)
        else:
            code = of_broker(answer.code, None).code
        for number, message in enumerate(messages):
            entry = response.entries.add()
            refusals.write(entry.status, code, answer.remark or "")
            entry.message_id = message.message_id
            entry.offset = header.queue_offset + number
            entry.recall_handle = header.recall_handle or ""
            if message.is_transaction:
                _, physical = decode_offset_msg_id(ids[number])
                entry.transaction_id = handles.pack(
                    handles.Transaction(
                        broker_name,
                        message.topic,
                        header.queue_offset,
                        physical,
                        message.message_id,
                        (answer.ext or {}).get("transactionId", message.message_id),
                    )
                )
        refusals.write(response.status, code, answer.remark or "")

    async def end_transaction(self, wanted: Any, call: Call) -> Any:
        """EndTransaction.

        Raises:
            CallRefused: the id is none, or the broker did not take it.
        """
        named = handles.unpack(wanted.transaction_id)
        topic = topic_of(wanted.topic)
        if topic != named.topic:
            raise CallRefused("INVALID_TRANSACTION_ID", f"the transaction is none of topic {topic}")
        address = await self._masters.place(topic, named.broker_name)
        header = EndTransactionRequestHeader(
            producer_group=topic,
            tran_state_table_offset=named.queue_offset,
            commit_log_offset=named.physical_offset,
            commit_or_rollback=RESOLUTIONS.get(wanted.resolution, 0),
            from_transaction_check=wanted.source == 2,
            topic=topic,
            msg_id=named.message_id,
            transaction_id=named.transaction_id,
        )
        await self._masters.carry_out(
            address,
            lambda: request(RequestCode.END_TRANSACTION, to_ext(header) | call.behalf),
            within_s(call),
            repeatable=True,
        )
        response = EndTransactionResponse()
        refusals.write(response.status)
        return response

    async def recall(self, wanted: Any, call: Call) -> Any:
        """RecallMessage.

        Raises:
            CallRefused: the handle is none, or the broker did not take it.
        """
        topic = topic_of(wanted.topic)
        try:
            handle = RecallHandle.unpack(wanted.recall_handle)
        except HeaderError as error:
            raise CallRefused("BAD_REQUEST", str(error)) from error
        if topic != handle.topic:
            raise CallRefused("BAD_REQUEST", f"the message to recall is none of topic {topic}")
        address = await self._masters.place(topic, handle.broker_name)
        header = RecallMessageRequestHeader(topic, wanted.recall_handle, producer_group=topic)
        answer = await self._masters.carry_out(
            address,
            lambda: request(RequestCode.RECALL_MESSAGE, to_ext(header) | call.behalf),
            within_s(call),
            repeatable=True,
        )
        response = RecallMessageResponse()
        response.message_id = from_ext(RecallMessageResponseHeader, answer.ext).msg_id
        refusals.write(response.status)
        return response


def within_s(call: Call) -> float:
    """The time that an answer may take."""
    left_s = call.left_s()
    return SEND_S if left_s is None else max(MARGIN_S, min(left_s - MARGIN_S, 30.0))


def _request(
    messages: list[Outgoing],
    broker_name: str,
    queue_id: int,
    fields: dict[str, str],
    *,
    by_number: bool,
) -> RemotingCommand:
    """The send; with ``by_number`` to a queue of the cluster, else to one of the group."""
    first = messages[0]
    is_batch = len(messages) > 1
    header = SendMessageRequestHeaderV2(
        producer_group=first.topic,
        topic=first.topic,
        default_topic=DEFAULT_TOPIC,
        default_topic_queue_nums=DEFAULT_QUEUES,
        queue_id=queue_id,
        sys_flag=first.sys_flag,
        born_timestamp=first.born_ms or _now_ms(),
        flag=0,
        properties="" if is_batch else first.properties,
        reconsume_times=0,
        batch=is_batch,
        broker_name=broker_name,
    )
    ext = to_ext(header) | fields
    if not is_batch:
        command = request(RequestCode.SEND_MESSAGE_V2, ext, first.body)
        return replace(command, language="JAVA", version=STATIC_SINCE) if by_number else command
    body = encode_batch(BatchMessage(item.body, item.properties) for item in messages)
    return request(RequestCode.SEND_BATCH_MESSAGE, ext, body)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
