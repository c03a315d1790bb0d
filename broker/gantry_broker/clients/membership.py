"""Requests of clients about themselves: heartbeats, members, subscriptions, queue locks."""

import time

from gantry_protocol.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    LockBatchBody,
    LockedQueues,
    MessageQueue,
    decode_body,
    decode_request,
    encode_body,
)
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import BodyError
from gantry_protocol.headers.client import (
    ConsumerGroupRequestHeader,
    UnregisterClientRequestHeader,
)
from gantry_protocol.headers.codec import check_names, from_ext, has_sound_names
from gantry_protocol.remoting.connection import Connection
from msgspec.structs import replace

from gantry_broker.clients import subscription as subscriptions
from gantry_broker.clients.core.delay.retries import RETRY_PREFIX
from gantry_broker.clients.lock_keeping import LockBook
from gantry_broker.clients.mapped.locks import PASSED_ON, MappedLocks
from gantry_broker.clients.newcomers import Newcomers
from gantry_broker.clients.sessions import Sessions
from gantry_broker.clients.view import GroupView

# These skip a rebalance when 38 fails. Others (Go) take a failure for an empty list and release all
# their queues; for them only a lost connection is a safe answer.
_TOLERATES_ERRORS = ("JAVA", "CPP")
FILTERS_BY_SQL = 233  # V4_1_0: Java clients send no filter in SQL to brokers that say an older one


class Membership:
    """Serves session requests on one group."""

    def __init__(
        self, view: GroupView, sessions: Sessions, locks: LockBook, newcomers: Newcomers
    ) -> None:
        self._view = view
        self._newcomers = newcomers
        self._sessions = sessions
        self._mapped_locks = MappedLocks(view, locks)

    def heartbeat(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """Heartbeat (34). The answer names no heartbeat v2, so clients always send subscriptions.

        A group with a name that cannot be one is passed over, as upstream does, since the others of
        the same client are none the worse for it. So is one that is new and beyond the budget, and
        the client hears so: it says all of them again in 30 s.
        """
        data = _with_sound_names(decode_body(HeartbeatData, request.body))
        refusal = None
        taken: list[ConsumerData] = []
        for consumer in data.consumer_data_set:
            if not self._is_known(consumer.group_name):
                refused = self._newcomers.refuse(conn, time.monotonic())
                if refused is not None:
                    refusal = refused
                    continue
            taken.append(consumer)
        if refusal is not None:
            data = replace(data, consumer_data_set=taken)
        self._sessions.heartbeat(conn, request.language, request.version, data)
        answer = reply(request) if refusal is None else reply(request, *refusal)
        answer.version = FILTERS_BY_SQL
        return answer

    def _is_known(self, group: str) -> bool:
        """Whether a consumer group has members, or had some: then it has its retry topic."""
        topics = self._view.store.topics
        return (
            self._sessions.group(group) is not None
            or topics.lookup(RETRY_PREFIX + group) is not None
        )

    def unregister(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """UnregisterClient (35)."""
        header = from_ext(UnregisterClientRequestHeader, request.ext)
        self._sessions.unregister(conn, header.producer_group, header.consumer_group)
        return reply(request)

    def consumer_ids(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """GetConsumerListByGroup (38), to a member, or while others are known to be members.

        Of these, whom the last master or one of another broker group heard, the caller is one, or a
        newcomer that has no queues to give up yet.
        """
        name = from_ext(ConsumerGroupRequestHeader, request.ext).consumer_group
        group = self._sessions.group(name)
        is_member = group is not None and conn.id in group.members
        known = self._sessions.client_ids(name)
        if (
            is_member
            or self._view.consumers.remembered(name)
            or self._view.consumers.elsewhere(name)
        ):
            return reply(request, body=encode_body(ConsumerIdList(known)))
        if request.language not in _TOLERATES_ERRORS:
            conn.close()
            return None
        remark = f"no consumer for this group, {name}"
        return reply(request, ResponseCode.SYSTEM_ERROR, remark)

    def check_client(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """CheckClientConfig (46): refuse at the start what pulls would be refused later."""
        data = decode_request(CheckClientRequestBody, request.body).subscription_data
        if not subscriptions.is_known(data.expression_type):
            return reply(
                request,
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {data.expression_type}",
            )
        try:
            subscriptions.parse(data.topic, data.sub_string, data.expression_type)
        except BodyError as error:
            return reply(request, ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        return reply(request)

    def lock(self, conn: Connection, request: RemotingCommand) -> None:
        """LockBatchMQ (41). A new owner is answered once the controllers know it."""
        body = decode_request(LockBatchBody, request.body)

        def owns(queues: list[MessageQueue]) -> None:
            conn.reply(request, reply(request, body=encode_body(LockedQueues(queues))))

        passed_on = PASSED_ON in (request.ext or {})
        self._mapped_locks.lock(body, conn.id, owns, passed_on=passed_on)

    def unlock(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """UnlockBatchMQ (42)."""
        self._mapped_locks.unlock(decode_request(LockBatchBody, request.body), conn.id)
        return reply(request)


def _with_sound_names(data: HeartbeatData) -> HeartbeatData:
    """``data`` without the groups and topics whose names can be none.

    Raises:
        NameRefused: the client's own id can be none.
    """
    check_names(data)
    return replace(
        data,
        producer_data_set=[item for item in data.producer_data_set if has_sound_names(item)],
        consumer_data_set=[
            replace(
                item,
                subscription_data_set=[
                    wanted for wanted in item.subscription_data_set if has_sound_names(wanted)
                ],
            )
            for item in data.consumer_data_set
            if has_sound_names(item)
        ],
    )
