"""Subscription groups at a broker: created, changed, deleted, listed.

The controllers decide and keep them; a broker passes changes on and shows what it has read.
"""

from gantry_protocol.bodies import decode_request, encode_body
from gantry_protocol.bodies.inspection import SubscriptionGroupList
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.command import request as make_request
from gantry_protocol.headers.brokeradmin import (
    DeleteSubscriptionGroupRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients import topic_rules
from gantry_broker.clients.offsets import OffsetWriter
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import SendOutcome
from gantry_broker.store.tables.resets import forget_group

LIST_MAX = 256  # groups in one request


class SubscriptionGroups:
    """Serves requests about subscription groups on one broker group."""

    def __init__(self, view: GroupView, writer: OffsetWriter) -> None:
        self._view = view
        self._writer = writer

    def change(self, conn: Connection, request: RemotingCommand) -> None:
        """UpdateAndCreateSubscriptionGroup (200): the controllers' answer is passed on."""
        self._view.consumers.change(
            request, lambda outcome: conn.reply(request, _answer(request, outcome))
        )

    def change_all(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """UpdateAndCreateSubscriptionGroupList (225): one group at a time, until one is refused."""
        configs = decode_request(SubscriptionGroupList, request.body).group_config_list
        if len(configs) > LIST_MAX:
            remark = f"a request may name {LIST_MAX} groups, not {len(configs)}"
            return reply(request, ResponseCode.INVALID_PARAMETER, remark)
        left = iter(configs)

        def answered(outcome: Outcome | None) -> None:
            answer = reply(request) if outcome is None else _answer(request, outcome)
            config = next(left, None)
            if answer.code != ResponseCode.SUCCESS or config is None:
                conn.reply(request, answer)
                return
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            command = make_request(code, body=encode_body(config))
            self._view.consumers.change(command, answered)

        answered(None)
        return None

    def delete(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """DeleteSubscriptionGroup (207); with ``cleanOffset``, once the log has lost the offsets.

        The groups whose offsets say how far the broker itself has come are refused (16): without
        them everything that was ever delayed would be delivered once more.
        """
        header = from_ext(DeleteSubscriptionGroupRequestHeader, request.ext)
        if topic_rules.is_system_group(header.group_name):
            remark = f"the group[{header.group_name}] belongs to the broker"
            return reply(request, ResponseCode.NO_PERMISSION, remark)

        def written(outcome: SendOutcome) -> None:
            code = outcome.code and ResponseCode.SYSTEM_BUSY
            conn.reply(request, reply(request, code, outcome.remark))

        def answered(outcome: Outcome) -> None:
            answer = _answer(request, outcome)
            if answer.code == ResponseCode.SUCCESS and header.clean_offset:
                forget_group(self._view.store.committed, header.group_name)
                self._writer.now(written)
            else:
                conn.reply(request, answer)

        self._view.consumers.change(request, answered)
        return None

    def listing(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """GetAllSubscriptionGroupConfig (201)."""
        return reply(request, body=encode_body(self._view.consumers.configs))

    def one(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """GetSubscriptionGroupConfig (352); 26 for a group without a setting, as upstream."""
        name = from_ext(QueryTopicsByConsumerRequestHeader, request.ext).group
        config = self._view.consumers.configs.subscription_group_table.get(name)
        if config is None:
            remark = f"No group in this broker. group: {name}"
            return reply(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return reply(request, body=encode_body(config))


def _answer(request: RemotingCommand, outcome: Outcome) -> RemotingCommand:
    if isinstance(outcome, RemotingCommand):
        return reply(request, outcome.code, outcome.remark)
    remark = f"the controllers did not answer: {outcome}"
    return reply(request, ResponseCode.SYSTEM_BUSY, remark)
