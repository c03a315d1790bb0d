"""Subscriptions to lite topics: from clients to every broker group of their topic, and back.

Nothing is remembered here. A subscription is state of the brokers' logs; a client that goes is
taken off there, and one that is silent is given up by the brokers. When a lite topic goes to
another client of its group, the broker says so on the connection by which the client's proxy came,
and this tells the client over its stream. One whose stream is at another proxy by then hears of it
when it says next what it takes.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gantry_protocol.bodies import encode_body
from gantry_protocol.bodies.lite import COMPLETE_REMOVE, LiteSubscription, LiteSubscriptions
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import GantryError
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.headers.lite import NotifyUnsubscribeLiteRequestHeader

from gantry_proxy.core import lites, refusals
from gantry_proxy.core.refusals import CallRefused
from gantry_proxy.core.resources import group_of, topic_of
from gantry_proxy.messages import CLIENT_TYPES, SyncLiteSubscriptionResponse, TelemetryCommand
from gantry_proxy.producing import within_s
from gantry_proxy.rpc import client_id

if TYPE_CHECKING:
    from gantry_proxy.calls import Masters
    from gantry_proxy.clients import Clients, Stream
    from gantry_proxy.rpc import Call

LITE_CLIENTS = frozenset((CLIENT_TYPES["LITE_PUSH_CONSUMER"], CLIENT_TYPES["LITE_SIMPLE_CONSUMER"]))
LEAVE_S = 3.0


class Lites:
    """See the module.

    Args:
        masters: the broker groups.
        clients: whom to tell.

    Attributes:
        synced: wishes that brokers took.
        told: lite topics of which a client was told that it has lost them.
    """

    def __init__(self, masters: Masters, clients: Clients) -> None:
        self.synced = self.told = 0
        self._masters = masters
        self._clients = clients
        clients.left = self._left
        self._leaving: set[asyncio.Task[None]] = set()

    async def sync(self, wanted: Any, call: Call) -> Any:
        """SyncLiteSubscription.

        Raises:
            CallRefused: some group of the topic did not take it.
        """
        client = client_id(call)
        if not client:
            text = "the call's metadata name no client (x-mq-client-id)"
            raise CallRefused("CLIENT_ID_REQUIRED", text)
        group, topic = group_of(wanted.group), topic_of(wanted.topic)
        await self._sync(lites.subscription(wanted, client, group, topic), call, within_s(call))
        self.synced += 1
        response = SyncLiteSubscriptionResponse()
        refusals.write(response.status)
        return response

    async def _sync(self, wish: LiteSubscription, call: Call, limit_s: float) -> None:
        """Tell every group of the topic: any of them may get messages for any lite topic."""
        groups = await self._masters.route(wish.topic)
        body = encode_body(LiteSubscriptions([wish]))
        await asyncio.gather(
            *(
                self._masters.carry_out(
                    group.address,
                    lambda: request(RequestCode.LITE_SUBSCRIPTION_CTL, call.behalf, body),
                    limit_s,
                    repeatable=True,
                )
                for group in groups
            )
        )

    def lost(self, asked: RemotingCommand) -> None:
        """A broker says that a client has lost a lite topic."""
        with suppress(GantryError):  # nonsense: nobody is told
            header = from_ext(NotifyUnsubscribeLiteRequestHeader, asked.ext)
            command = TelemetryCommand()
            command.notify_unsubscribe_lite_command.lite_topic = header.lite_topic
            for (_, name), stream in self._clients.streams.items():
                if name == header.client_id and stream.tell(command):
                    self.told += 1

    def _left(self, stream: Stream) -> None:
        """A client of lite topics goes: nobody waits for it any more."""
        settings = stream.said.settings
        if settings.client_type not in LITE_CLIENTS or not settings.subscription.subscriptions:
            return
        task = asyncio.create_task(self._leave(stream))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _leave(self, stream: Stream) -> None:
        named = stream.said.settings.subscription
        with suppress(CallRefused):  # it is silent from now on, and given up
            topic, group = topic_of(named.subscriptions[0].topic), group_of(named.group)
            wish = LiteSubscription(COMPLETE_REMOVE, client_id(stream.call), group, topic)
            await self._sync(wish, stream.call, LEAVE_S)
