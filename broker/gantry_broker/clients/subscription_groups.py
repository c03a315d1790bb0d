"""Subscription groups at a broker: 200, 201, 207, 352.

The controllers decide and keep them; a broker passes changes on and shows what it has read.
"""

from gantry_protocol.bodies import encode_body
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.headers.brokeradmin import QueryTopicsByConsumerRequestHeader
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.remoting.connection import Connection

from gantry_broker.asking import Outcome
from gantry_broker.clients.view import GroupView


class SubscriptionGroups:
    """Serves requests about subscription groups on one broker group."""

    def __init__(self, view: GroupView) -> None:
        self._view = view

    def change(self, conn: Connection, request: RemotingCommand) -> None:
        """200 and 207: the controllers' answer is the answer."""

        def answered(outcome: Outcome) -> None:
            if isinstance(outcome, RemotingCommand):
                conn.reply(request, reply(request, outcome.code, outcome.remark))
            else:
                remark = f"the controllers did not answer: {outcome}"
                conn.reply(request, reply(request, ResponseCode.SYSTEM_BUSY, remark))

        self._view.consumers.change(request, answered)

    def listing(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """201."""
        return reply(request, body=encode_body(self._view.consumers.configs))

    def one(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """352; upstream answers 26 for a group without a setting, not with the defaults."""
        name = from_ext(QueryTopicsByConsumerRequestHeader, request.ext).group
        config = self._view.consumers.configs.subscription_group_table.get(name)
        if config is None:
            remark = f"No group in this broker. group: {name}"
            return reply(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return reply(request, body=encode_body(config))
