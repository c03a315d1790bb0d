"""Questions to consumers that a broker passes on: running info, direct consumption, positions.

The administrator asks the broker, which asks the member, and hands the answer back as it comes. 223
asks all members, by 221, and gathers what they say. A member that is not connected here is said to
be offline at once. Upstream: ``AdminBrokerProcessor.callConsumer``,
``Broker2Client.getConsumeStatus``.
"""

import contextlib
from collections.abc import Iterator

import msgspec
from gantry_protocol.bodies import decode_queue_table, encode_body, encode_queue_map
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.command import request as make_request
from gantry_protocol.errors import BodyError, RecordError
from gantry_protocol.headers.brokeradmin import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.records.ids import decode_offset_msg_id
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.types import Offset

from gantry_broker.clients.questions import Question, Questions
from gantry_broker.clients.sessions import Sessions
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import GetResult, Refusal

ANSWER_WITHIN_S = 10.0  # upstream's
MAX_UNDER_WAY = 256
_TOO_MANY = Refusal(ResponseCode.SYSTEM_BUSY, "too many questions to consumers are under way")


class Passing(Questions):
    """Questions of administrators to members."""

    def __init__(self, view: GroupView, sessions: Sessions, numbers: Iterator[int]) -> None:
        super().__init__("consumer", MAX_UNDER_WAY, ANSWER_WITHIN_S, numbers)
        self._view = view
        self._sessions = sessions

    def running_info(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """GetConsumerRunningInfo (307)."""
        header = from_ext(GetConsumerRunningInfoRequestHeader, request.ext)
        return self._pass(conn, request, header.consumer_group, header.client_id, b"")

    def consume_directly(
        self, conn: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """ConsumeMessageDirectly (309): the member gets the message of that id and reports."""
        header = from_ext(ConsumeMessageDirectlyRequestHeader, request.ext)
        try:
            _, offset = decode_offset_msg_id(header.msg_id)
        except RecordError as error:
            return reply(request, ResponseCode.INVALID_PARAMETER, str(error))

        def was_read(result: GetResult | Refusal) -> None:
            if isinstance(result, Refusal):
                answer: RemotingCommand | None = reply(request, *result)
            elif not result.count:
                remark = f"there is no message {header.msg_id} here"
                answer = reply(request, ResponseCode.SYSTEM_ERROR, remark)
            else:
                answer = self._pass(
                    conn, request, header.consumer_group, header.client_id, result.body
                )
            if answer is not None:
                conn.reply(request, answer)

        self._view.store.read(Offset(offset), was_read)
        return None

    def positions(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """InvokeBrokerToGetConsumerStatus (223): each member's positions in the queues of a topic.

        Who does not answer, or not so that it can be read, is left out, as upstream does.
        """
        header = from_ext(GetConsumerStatusRequestHeader, request.ext)
        group = self._sessions.group(header.group)
        present = () if group is None else group.members.values()
        members = {
            item.client_id: item.connection
            for item in present
            if header.client_addr in (None, "", item.client_id)
        }
        if not members:
            remark = f"No Any Consumer online in the consumer group: [{header.group}]"
            return reply(request, ResponseCode.SYSTEM_ERROR, remark)
        if self.is_full(len(members)):
            return reply(request, *_TOO_MANY)
        left = set(members)
        table: dict[str, msgspec.Raw] = {}

        def heard(client_id: str, code: int, body: bytes) -> None:
            left.discard(client_id)
            if code == ResponseCode.SUCCESS:
                with contextlib.suppress(BodyError):
                    queues = decode_queue_table(body, int, "messageQueueTable")
                    table[client_id] = msgspec.Raw(encode_queue_map(queues))
            if not left:
                answer = encode_body({"consumerTable": table})
                conn.reply(request, reply(request, body=answer))

        for client_id, member in members.items():

            def answered(
                code: int, _: object, __: object, body: bytes, client_id: str = client_id
            ) -> None:
                heard(client_id, code, body)

            question = make_request(
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
                {"topic": header.topic, "group": header.group},
            )
            self.ask(Question(conn, member, answered), question)
        return None

    def _pass(
        self, conn: Connection, request: RemotingCommand, group: str, client_id: str, body: bytes
    ) -> RemotingCommand | None:
        member = self._sessions.member(group, client_id)
        if member is None:
            remark = f"The Consumer <{group}> <{client_id}> not online"
            return reply(request, ResponseCode.CONSUMER_NOT_ONLINE, remark)
        if self.is_full():
            return reply(request, *_TOO_MANY)

        def answered(
            code: int, remark: str | None, ext: dict[str, str] | None, body: bytes
        ) -> None:
            conn.reply(request, reply(request, code, remark, ext, body))

        ext = {**(request.ext or {}), "brokerName": self._view.broker_name}
        self.ask(Question(conn, member, answered), make_request(request.code, ext, body))
        return None
