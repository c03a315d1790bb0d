"""Questions to consumers that a broker passes on: 307 (running info) and 309 (consume directly).

The administrator asks the broker, which asks the member on the connection it keeps, and hands the
answer back as it comes. Upstream: ``AdminBrokerProcessor.callConsumer``.

Everything is bounded: how many are under way, and how long. A member that is not connected here, or
leaves meanwhile, is said to be offline at once.
"""

import itertools
from typing import NamedTuple

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.command import request as make_request
from gantry_protocol.errors import RecordError
from gantry_protocol.headers.brokeradmin import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.records.ids import decode_offset_msg_id
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.deadlines import Deadlines
from gantry_protocol.types import Offset

from gantry_broker.clients.sessions import Sessions
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import GetResult, Refusal

ANSWER_WITHIN_S = 10.0  # upstream's
MAX_UNDER_WAY = 256


class _Passed(NamedTuple):
    asker: Connection
    request: RemotingCommand
    member: Connection


class Passing:
    """Questions under way to members, by the number that their answers will bear.

    Attributes:
        refused: because too many were under way.
        expired: because no answer came in time.
    """

    def __init__(self, view: GroupView, sessions: Sessions) -> None:
        self.refused = self.expired = 0
        self._view = view
        self._sessions = sessions
        self._passed: dict[int, _Passed] = {}
        self._deadlines = Deadlines(self._expired)
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._passed)

    def running_info(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """307."""
        header = from_ext(GetConsumerRunningInfoRequestHeader, request.ext)
        return self._pass(conn, request, header.consumer_group, header.client_id, b"")

    def consume_directly(
        self, conn: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """309: the member gets the message that the id names, and says what it made of it."""
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

    def answered(self, conn: Connection, response: RemotingCommand) -> bool:
        """A member said something; returns whether somebody waits for it."""
        passed = self._passed.get(response.opaque)
        if passed is None or passed.member is not conn:
            return False
        self._end(response.opaque)
        passed.asker.reply(
            passed.request,
            reply(passed.request, response.code, response.remark, response.ext, response.body),
        )
        return True

    def connection_closed(self, conn: Connection) -> None:
        """Whoever waits for this member waits in vain."""
        for number, passed in list(self._passed.items()):
            if passed.asker is conn:
                self._end(number)
            elif passed.member is conn:
                self._end(number)
                remark = "the consumer went offline before it answered"
                answer = reply(passed.request, ResponseCode.CONSUMER_NOT_ONLINE, remark)
                passed.asker.reply(passed.request, answer)

    def close(self) -> None:
        """Wait for nobody any more."""
        self._deadlines.clear()
        self._passed.clear()

    def _pass(
        self, conn: Connection, request: RemotingCommand, group: str, client_id: str, body: bytes
    ) -> RemotingCommand | None:
        member = self._sessions.member(group, client_id)
        if member is None:
            remark = f"The Consumer <{group}> <{client_id}> not online"
            return reply(request, ResponseCode.CONSUMER_NOT_ONLINE, remark)
        if len(self._passed) >= MAX_UNDER_WAY:
            self.refused += 1
            remark = "too many questions to consumers are under way"
            return reply(request, ResponseCode.SYSTEM_BUSY, remark)
        number = next(self._numbers)
        self._passed[number] = _Passed(conn, request, member)
        self._deadlines.add(number, ANSWER_WITHIN_S)
        ext = {**(request.ext or {}), "brokerName": self._view.broker_name}
        question = make_request(RequestCode(request.code), ext, body)
        question.opaque = number
        member.send(question)
        return None

    def _expired(self, number: int) -> None:
        passed = self._passed.pop(number, None)
        if passed is not None:
            self.expired += 1
            remark = f"the consumer did not answer within {ANSWER_WITHIN_S:.0f} s"
            answer = reply(passed.request, ResponseCode.CONSUME_MSG_TIMEOUT, remark)
            passed.asker.reply(passed.request, answer)

    def _end(self, number: int) -> None:
        del self._passed[number]
        self._deadlines.remove(number)
