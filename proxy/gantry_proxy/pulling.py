"""Requests of consumers that pull: PullMessage, and where a consumer group stands.

A pull changes nothing, so a proxy or a master may end while one waits; its client asks again. What
it holds is a call, and a place at the broker for 20 s at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import WireError
from gantry_protocol.headers.client import (
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from gantry_protocol.headers.codec import from_ext, to_ext
from gantry_protocol.records.record import decode_records

from gantry_proxy.core import refusals
from gantry_proxy.core.incoming import message_of
from gantry_proxy.core.polling import ANSWER_S, filter_text, filter_type, poll_ms
from gantry_proxy.core.refusals import CallRefused, of_broker
from gantry_proxy.core.resources import group_of, topic_of
from gantry_proxy.core.settings import RECEIVE_BATCH
from gantry_proxy.core.times import read_ms
from gantry_proxy.messages import (
    GetOffsetResponse,
    PullMessageResponse,
    QueryOffsetResponse,
    UpdateOffsetResponse,
)
from gantry_proxy.producing import within_s

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gantry_proxy.calls import Masters
    from gantry_proxy.rpc import Call

BEGINNING, END, TIMESTAMP = 0, 1, 2
_MAY_WAIT, _HAS_FILTER = 2, 4
_GOES_ON = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
"""Answers without a message that say at which offset the queue goes on."""


class Pulling:
    """See the module.

    Args:
        masters: the broker groups.

    Attributes:
        pulled: messages that were handed out.
    """

    def __init__(self, masters: Masters) -> None:
        self.pulled = 0
        self._masters = masters

    async def pull(self, wanted: Any, call: Call) -> AsyncIterator[Any]:
        """PullMessage: a status, then messages, then the offset to pull next.

        The next offset is told without a message, too: the queue goes on there, if what was asked
        for is deleted, was not wanted, or the group's offset was reset. A refusal is a status only.
        """
        status = PullMessageResponse()
        try:
            found, next_offset = await self._pull(wanted, call)
        except CallRefused as refused:
            refusals.write(status.status, refused.code, str(refused))
            yield status
            return
        code = refusals.OK if found else "MESSAGE_NOT_FOUND"
        refusals.write(status.status, code, "" if found else f"go on at offset {next_offset}")
        yield status
        for message in found:
            yield PullMessageResponse(message=message)
        self.pulled += len(found)
        yield PullMessageResponse(next_offset=next_offset)

    async def _pull(self, wanted: Any, call: Call) -> tuple[list[Any], int]:
        queue, topic = wanted.message_queue, topic_of(wanted.message_queue.topic)
        if wanted.offset < 0:
            raise CallRefused("ILLEGAL_OFFSET", f"no message has the offset {wanted.offset}")
        wait_ms = poll_ms(wanted, call.left_s())
        header = PullMessageRequestHeader(
            consumer_group=group_of(wanted.group),
            topic=topic,
            queue_id=queue.id,
            queue_offset=wanted.offset,
            max_msg_nums=max(1, min(wanted.batch_size, RECEIVE_BATCH)),
            sys_flag=_HAS_FILTER | (_MAY_WAIT if wait_ms else 0),
            commit_offset=0,
            suspend_timeout_ms=wait_ms,
            sub_version=0,
            subscription=filter_text(wanted),
            expression_type=filter_type(wanted),
        )
        command = request(RequestCode.PULL_MESSAGE, to_ext(header) | call.behalf)
        address = await self._masters.place(topic, queue.broker.name)
        answer = await self._masters.poll(address, command, wait_ms / 1000 + ANSWER_S)
        return _pulled(answer, queue.id)

    async def update_offset(self, wanted: Any, call: Call) -> Any:
        """UpdateOffset.

        Raises:
            CallRefused: the broker did not take it.
        """
        queue, topic = wanted.message_queue, topic_of(wanted.message_queue.topic)
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group_of(wanted.group),
            topic=topic,
            queue_id=queue.id,
            commit_offset=wanted.offset,
        )
        await self._ask(queue, topic, RequestCode.UPDATE_CONSUMER_OFFSET, header, call)
        response = UpdateOffsetResponse()
        refusals.write(response.status)
        return response

    async def get_offset(self, wanted: Any, call: Call) -> Any:
        """GetOffset.

        Raises:
            CallRefused: the group has committed none.
        """
        queue, topic = wanted.message_queue, topic_of(wanted.message_queue.topic)
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group_of(wanted.group), topic=topic, queue_id=queue.id
        )
        answer = await self._ask(queue, topic, RequestCode.QUERY_CONSUMER_OFFSET, header, call)
        response = GetOffsetResponse(offset=from_ext(OffsetResponseHeader, answer.ext).offset)
        refusals.write(response.status)
        return response

    async def query_offset(self, wanted: Any, call: Call) -> Any:
        """QueryOffset: the beginning or end of a queue, or the place of a time.

        Raises:
            CallRefused: the broker does not say.
        """
        queue, topic = wanted.message_queue, topic_of(wanted.message_queue.topic)
        if wanted.query_offset_policy == TIMESTAMP:
            code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
            header: Any = SearchOffsetRequestHeader(topic, queue.id, read_ms(wanted.timestamp))
        else:
            is_end = wanted.query_offset_policy == END
            code = RequestCode.GET_MAX_OFFSET if is_end else RequestCode.GET_MIN_OFFSET
            header = QueueRequestHeader(topic, queue.id)
        answer = await self._ask(queue, topic, code, header, call)
        response = QueryOffsetResponse(offset=from_ext(OffsetResponseHeader, answer.ext).offset)
        refusals.write(response.status)
        return response

    async def _ask(
        self, queue: Any, topic: str, code: RequestCode, header: Any, call: Call
    ) -> RemotingCommand:
        address = await self._masters.place(topic, queue.broker.name)
        return await self._masters.carry_out(
            address,
            lambda: request(code, to_ext(header) | call.behalf),
            within_s(call),
            repeatable=True,
        )


def _pulled(answer: RemotingCommand, queue_id: int) -> tuple[list[Any], int]:
    """The messages of an answer, and the offset to pull next.

    Raises:
        CallRefused: the broker does not serve it.
    """
    if answer.code != ResponseCode.SUCCESS and answer.code not in _GOES_ON:
        raise of_broker(answer.code, answer.remark)
    try:
        header = from_ext(PullMessageResponseHeader, answer.ext)
        found = answer.code == ResponseCode.SUCCESS
        records = decode_records(answer.body or b"") if found else []
        messages = [message_of(record, None) for record in records]
    except WireError as error:
        raise CallRefused("INTERNAL_SERVER_ERROR", f"the broker's answer: {error}") from error
    for message in messages:  # a mapped topic's queue has another number in its group
        message.system_properties.queue_id = queue_id
    return messages, header.next_begin_offset
