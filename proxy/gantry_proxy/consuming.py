"""Requests of consumers that receive: to receive, acknowledge, put off, bury."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import WireError
from gantry_protocol.headers.client import (
    ConsumerSendMsgBackRequestHeader,
)
from gantry_protocol.headers.codec import from_ext, to_ext
from gantry_protocol.headers.lite import PopLiteMessageRequestHeader, PopLiteMessageResponseHeader
from gantry_protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)

from gantry_proxy.core import handles, refusals
from gantry_proxy.core.lites import is_lite_group
from gantry_proxy.core.polling import ANSWER_S, filter_text, filter_type, poll_ms
from gantry_proxy.core.popped import popped, popped_lite
from gantry_proxy.core.refusals import CallRefused, of_broker
from gantry_proxy.core.resources import group_of, topic_of
from gantry_proxy.core.routes import ANY_QUEUE
from gantry_proxy.core.settings import RECEIVE_BATCH
from gantry_proxy.core.times import read_ms
from gantry_proxy.messages import (
    AckMessageResponse,
    ChangeInvisibleDurationResponse,
    ForwardMessageToDeadLetterQueueResponse,
    ReceiveMessageResponse,
)
from gantry_proxy.producing import within_s
from gantry_proxy.renewing import RENEWED_MS, Renewal, Renewals
from gantry_proxy.rpc import client_id, client_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gantry_protocol.bodies.client import SubscriptionGroupConfig

    from gantry_proxy.calls import Masters
    from gantry_proxy.core.handles import Handle
    from gantry_proxy.rpc import Call

INVISIBLE_MIN_MS, INVISIBLE_MAX_MS = 10_000, 12 * 3_600_000
CHANGED_MIN_MS = 1
AT_ONCE_MS = 1
RETURN_S = 3.0
TO_DEAD_LETTERS = -1
_FROM_END = 1  # a group that is new begins behind what is there, but of a young queue; as upstream
_NOTHING = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.POLLING_TIMEOUT,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
)


class Consuming:
    """See the module.

    Args:
        masters: the broker groups.
        renewals: keeps messages of living clients invisible.

    Attributes:
        received: messages that were handed out.
        returned: messages whose client was gone before it had them.
        acknowledged: messages that were done.
    """

    def __init__(self, masters: Masters, renewals: Renewals) -> None:
        self.received = self.returned = self.acknowledged = 0
        self._masters = masters
        self._renewals = renewals
        self._returning: set[asyncio.Task[None]] = set()

    async def receive(self, wanted: Any, call: Call) -> AsyncIterator[Any]:
        """ReceiveMessage: a status, then messages, then when they were handed out."""
        status = ReceiveMessageResponse()
        try:
            found = await self._receive(wanted, call)
            code = refusals.OK if found else "MESSAGE_NOT_FOUND"
            refusals.write(status.status, code, "" if found else "no new message")
        except CallRefused as refused:
            found = []
            refusals.write(status.status, refused.code, str(refused))
        given = 0
        try:
            yield status
            for message in found:
                yield ReceiveMessageResponse(message=message)
                given += 1
            self.received += given
        finally:
            if given < len(found):  # the client is gone
                self._give_back(wanted, call, found[given:])
        ended = ReceiveMessageResponse()
        ended.delivery_timestamp.FromMilliseconds(time.time_ns() // 1_000_000)
        yield ended

    async def _receive(self, wanted: Any, call: Call) -> list[Any]:
        topic, group = topic_of(wanted.message_queue.topic), group_of(wanted.group)
        config = await self._masters.consumer_group(topic, group)
        place = wanted.message_queue.broker.name
        address = await self._masters.place(topic, place)
        invisible_ms = RENEWED_MS if wanted.auto_renew else _invisible_ms(wanted)
        wait_ms = poll_ms(wanted, call.left_s())
        make = _pop_lite if is_lite_group(config, topic) else _pop
        command = make(wanted, config, topic, invisible_ms, wait_ms, call)
        popping = asyncio.ensure_future(
            self._masters.poll(address, command, wait_ms / 1000 + ANSWER_S)
        )
        try:
            answer = await asyncio.shield(popping)
        except asyncio.CancelledError:  # what comes yet is nobody's: not for its invisible time
            popping.add_done_callback(lambda done: self._came_late(wanted, call, place, done))
            raise
        messages = _messages(answer, place)
        if wanted.auto_renew:
            client = client_key(call)
            handed = [handles.parse(item.system_properties.receipt_handle) for item in messages]
            self._renewals.hold(
                Renewal(client, group, topic, handle, call.behalf) for handle in handed
            )
        return messages

    def _came_late(
        self, wanted: Any, call: Call, place: str, done: asyncio.Future[RemotingCommand]
    ) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        try:
            self._give_back(wanted, call, _messages(done.result(), place))
        except CallRefused:
            return

    def _give_back(self, wanted: Any, call: Call, messages: list[Any]) -> None:
        """Have others get messages whose client is gone."""
        self.returned += len(messages)
        for message in messages:
            task = asyncio.create_task(self._return(wanted, call, message))
            self._returning.add(task)
            task.add_done_callback(self._returning.discard)

    async def _return(self, wanted: Any, call: Call, message: Any) -> None:
        try:
            handle = handles.parse(message.system_properties.receipt_handle)
            topic, group = topic_of(wanted.message_queue.topic), group_of(wanted.group)
            self._renewals.drop(handle)
            await self._change(topic, group, handle, AT_ONCE_MS, RETURN_S, call)
        except CallRefused:
            return  # it comes again when its time is over

    # ---- what becomes of them

    async def acknowledge(self, wanted: Any, call: Call) -> Any:
        """AckMessage: an entry for each handle."""
        topic, group = topic_of(wanted.topic), group_of(wanted.group)
        response = AckMessageResponse()
        outcomes = await asyncio.gather(
            *(self._ack(topic, group, item.receipt_handle, call) for item in wanted.entries)
        )
        for item, refused in zip(wanted.entries, outcomes, strict=True):
            entry = response.entries.add()
            entry.message_id, entry.receipt_handle = item.message_id, item.receipt_handle
            if refused is None:
                refusals.write(entry.status)
            else:
                refusals.write(entry.status, refused.code, str(refused))
        codes = {refusals.OK if refused is None else refused.code for refused in outcomes}
        first = codes.pop() if codes else "BAD_REQUEST"
        refusals.write(response.status, "MULTIPLE_RESULTS" if codes else first)
        return response

    async def _ack(self, topic: str, group: str, text: str, call: Call) -> CallRefused | None:
        try:
            handle = handles.parse(text)
            address = await self._masters.place(topic, handle.broker_name)
            self._renewals.drop(handle)
            header = AckMessageRequestHeader(
                group, topic, handle.queue_id, handle.text, handle.offset, handle.lite_topic
            )
            await self._masters.carry_out(
                address,
                lambda: request(RequestCode.ACK_MESSAGE, to_ext(header) | call.behalf),
                within_s(call),
                repeatable=True,
            )
        except CallRefused as refused:
            return refused
        self.acknowledged += 1
        return None

    async def change(self, wanted: Any, call: Call) -> Any:
        """ChangeInvisibleDuration.

        Raises:
            CallRefused: the handle is none or over, or the time cannot be.
        """
        topic, group = topic_of(wanted.topic), group_of(wanted.group)
        handle = handles.parse(wanted.receipt_handle)
        wanted_ms = read_ms(wanted.invisible_duration, "ILLEGAL_INVISIBLE_TIME")
        if not 0 <= wanted_ms <= INVISIBLE_MAX_MS:
            raise _no_invisible_time(wanted_ms, 0)
        self._renewals.drop(handle)
        answer = await self._change(topic, group, handle, wanted_ms, within_s(call), call)
        header = from_ext(ChangeInvisibleTimeResponseHeader, answer.ext)
        response = ChangeInvisibleDurationResponse()
        refusals.write(response.status)
        response.receipt_handle = handles.changed(handle, header.pop_time, header.invisible_time)
        return response

    async def _change(
        self,
        topic: str,
        group: str,
        handle: Handle,
        invisible_ms: int,
        limit_s: float,
        call: Call,
    ) -> RemotingCommand:
        address = await self._masters.place(topic, handle.broker_name)
        header = ChangeInvisibleTimeRequestHeader(
            group,
            topic,
            handle.queue_id,
            handle.text,
            handle.offset,
            max(CHANGED_MIN_MS, invisible_ms),
            lite_topic=handle.lite_topic,
        )
        return await self._masters.carry_out(
            address,
            lambda: request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, to_ext(header) | call.behalf),
            limit_s,
        )

    async def bury(self, wanted: Any, call: Call) -> Any:
        """ForwardMessageToDeadLetterQueue: a copy there, then the acknowledgement.

        Raises:
            CallRefused: the handle is none, or the copy was not stored.
        """
        topic, group = topic_of(wanted.topic), group_of(wanted.group)
        handle = handles.parse(wanted.receipt_handle)
        address = await self._masters.place(topic, handle.broker_name)
        header = ConsumerSendMsgBackRequestHeader(
            offset=handle.physical_offset,
            group=group,
            delay_level=TO_DEAD_LETTERS,
            origin_msg_id=wanted.message_id,
            origin_topic=topic,
            max_reconsume_times=0,
        )
        await self._masters.carry_out(
            address,
            lambda: request(RequestCode.CONSUMER_SEND_MSG_BACK, to_ext(header) | call.behalf),
            within_s(call),
        )
        refused = await self._ack(topic, group, wanted.receipt_handle, call)
        if refused is not None:
            raise refused
        response = ForwardMessageToDeadLetterQueueResponse()
        refusals.write(response.status)
        return response


def _pop(
    wanted: Any,
    config: SubscriptionGroupConfig,
    topic: str,
    invisible_ms: int,
    wait_ms: int,
    call: Call,
) -> RemotingCommand:
    header = PopMessageRequestHeader(
        consumer_group=config.group_name,
        topic=topic,
        queue_id=wanted.message_queue.id if config.consume_message_orderly else ANY_QUEUE,
        max_msg_nums=max(1, min(wanted.batch_size, RECEIVE_BATCH)),
        invisible_time=invisible_ms,
        poll_time=wait_ms,
        born_time=time.time_ns() // 1_000_000,
        init_mode=_FROM_END,
        exp_type=filter_type(wanted),
        exp=filter_text(wanted),
        order=config.consume_message_orderly,
        attempt_id=wanted.attempt_id if wanted.HasField("attempt_id") else None,
    )
    return request(RequestCode.POP_MESSAGE, to_ext(header) | call.behalf)


def _pop_lite(
    wanted: Any,
    config: SubscriptionGroupConfig,
    topic: str,
    invisible_ms: int,
    wait_ms: int,
    call: Call,
) -> RemotingCommand:
    """Of the lite topics to which the client subscribes."""
    header = PopLiteMessageRequestHeader(
        client_id=client_id(call),
        consumer_group=config.group_name,
        topic=topic,
        max_msg_num=max(1, min(wanted.batch_size, RECEIVE_BATCH)),
        invisible_time=invisible_ms,
        poll_time=wait_ms,
        born_time=time.time_ns() // 1_000_000,
        attempt_id=wanted.attempt_id if wanted.HasField("attempt_id") else None,
    )
    return request(RequestCode.POP_LITE_MESSAGE, to_ext(header) | call.behalf)


def _messages(answer: RemotingCommand, place: str) -> list[Any]:
    if answer.code in _NOTHING:
        return []
    if answer.code != ResponseCode.SUCCESS:
        raise of_broker(answer.code, answer.remark)
    body = answer.body or b""
    try:
        if "startOffsetInfo" not in (answer.ext or {}):  # of many lite topics
            return popped_lite(from_ext(PopLiteMessageResponseHeader, answer.ext), body, place)
        return popped(from_ext(PopMessageResponseHeader, answer.ext), body, place)
    except WireError as error:
        raise CallRefused("INTERNAL_SERVER_ERROR", f"the broker's answer: {error}") from error


def _invisible_ms(wanted: Any) -> int:
    found = read_ms(wanted.invisible_duration, "ILLEGAL_INVISIBLE_TIME")
    if not INVISIBLE_MIN_MS <= found <= INVISIBLE_MAX_MS:
        raise _no_invisible_time(found, INVISIBLE_MIN_MS)
    return found


def _no_invisible_time(found_ms: int, least_ms: int) -> CallRefused:
    text = f"the invisible time of {found_ms} ms is not in {least_ms} to {INVISIBLE_MAX_MS} ms"
    return CallRefused("ILLEGAL_INVISIBLE_TIME", text)
