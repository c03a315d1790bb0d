"""The broker groups behind a proxy: their routes, and requests to their masters.

A route is asked for when it is older than ``ROUTE_AGE_S``; while nobody answers, the last one
holds. A group's address leads to whoever is its master, through doors or fronts, which pass a
request on to the next one. Where it is a broker's own, the next master has another one: a request
that fails has its route asked for again. What was surely not stored is tried again here until the
client's time is over; what may be stored is told to the client, whose word it is whether to send it
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from gantry_protocol.bodies import decode_body
from gantry_protocol.bodies.client import SubscriptionGroupConfig
from gantry_protocol.bodies.route import TopicRouteData
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import (
    Busy,
    ConnectError,
    ConnectionClosed,
    RemotingError,
    RequestTimeout,
    ResolveError,
    WireError,
)
from gantry_protocol.headers.brokeradmin import QueryTopicsByConsumerRequestHeader
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.headers.nameserver import GetRouteInfoRequestHeader
from gantry_protocol.remoting.pool import ClientPool
from gantry_protocol.send_answer import MAY_BE_STORED
from gantry_protocol.tls.process import NO_TLS, Tls

from gantry_proxy.core.refusals import CallRefused, of_broker
from gantry_proxy.core.routes import GroupQueues, queues_of

if TYPE_CHECKING:
    from gantry_protocol.remoting.client import RemotingClient, RequestHandler, Sign

ROUTE_AGE_S = 5.0
DOUBT_AGE_S = 0.2  # of a route, while requests fail
DOUBT_S = 0.2  # that a failed request waits for a newer one
GROUP_AGE_S = 10.0
KNOWN_MAX = 4096  # topics, and consumer groups
CONNECT_S = 1.0
HEDGE_AFTER_S = 0.25
CALL_S = 3.0
AGAIN_S = 0.05

Make = Callable[[], RemotingCommand]
Known = TypeVar("Known")


class Masters:
    """Requests to name servers and masters.

    Args:
        name_servers: ``host:port`` of each.
        sign: makes each request one that a user has signed; None signs none.
        tls: of the process.

    Attributes:
        when_asked: serves what brokers ask; set before the first call.
        tried_again: requests that were surely not carried out, and sent again.
        calls: the connections that requests take; long polls have their own.
    """

    def __init__(
        self, name_servers: Sequence[str], sign: Sign | None = None, tls: Tls = NO_TLS
    ) -> None:
        self.when_asked: RequestHandler = lambda client, asked: None
        self.tried_again = 0
        self.calls = ClientPool(
            on_request=self._serve,
            hedge_after_s=HEDGE_AFTER_S,
            sign=sign,
            tls=tls,
        )
        self._polls = ClientPool(hedge_after_s=HEDGE_AFTER_S, sign=sign, tls=tls)
        self._name_servers = list(name_servers)
        self._routes: dict[str, tuple[float, tuple[GroupQueues, ...]]] = {}
        self._groups: dict[str, tuple[float, SubscriptionGroupConfig]] = {}
        self._places: dict[str, tuple[str, str]] = {}  # topic and group of an address

    async def close(self) -> None:
        """End all connections."""
        await asyncio.gather(self.calls.close(), self._polls.close())

    def _serve(self, client: RemotingClient, asked: RemotingCommand) -> RemotingCommand | None:
        return self.when_asked(client, asked)

    async def route(self, topic: str) -> tuple[GroupQueues, ...]:
        """The groups of a topic.

        Raises:
            CallRefused: there is no such topic, or nobody knows any.
        """
        now_s = asyncio.get_running_loop().time()
        known = self._routes.get(topic)
        if known is not None and now_s - known[0] < ROUTE_AGE_S:
            return known[1]
        try:
            groups = queues_of(await self._ask_route(topic))
        except (RemotingError, ResolveError, WireError) as error:
            if known is None:
                raise CallRefused(
                    "INTERNAL_SERVER_ERROR", f"no name server answers: {error}"
                ) from None
            return known[1]
        except CallRefused:
            self._routes.pop(topic, None)
            raise
        self._learn(topic, groups, now_s)
        return groups

    def _learn(self, topic: str, groups: tuple[GroupQueues, ...], now_s: float) -> None:
        _remember(self._routes, topic, (now_s, groups))
        for group in groups:
            _remember(self._places, group.address, (topic, group.broker_name))

    async def _next_address(self, address: str) -> str:
        """The address of the group that was at this one, after a request to it has failed.

        Of those that fail at once one asks. A group that a route has no longer keeps its address:
        it may have no master for a moment.
        """
        loop = asyncio.get_running_loop()
        topic, name = self._places.get(address, ("", ""))
        known = self._routes.get(topic)
        if known is None:
            return address
        groups = known[1]
        if loop.time() - known[0] >= DOUBT_AGE_S:
            _remember(self._routes, topic, (loop.time(), groups))
            with suppress(RemotingError, ResolveError, WireError, CallRefused, TimeoutError):
                async with asyncio.timeout(DOUBT_S):
                    newer = queues_of(await self._ask_route(topic))
                if any(group.broker_name == name for group in newer):
                    groups = newer
                    self._learn(topic, groups, loop.time())
        return next((group.address for group in groups if group.broker_name == name), address)

    async def place(self, topic: str, broker_name: str) -> str:
        """The address of a group.

        Raises:
            CallRefused: the topic has no queue there.
        """
        for group in await self.route(topic):
            if group.broker_name == broker_name:
                return group.address
        raise CallRefused(
            "BAD_REQUEST", f"topic {topic} has no queue in group {broker_name[:64]!r}"
        )

    async def consumer_group(self, topic: str, name: str) -> SubscriptionGroupConfig:
        """The settings of a consumer group; the defaults where it has none, or nobody says."""
        now_s = asyncio.get_running_loop().time()
        known = self._groups.get(name)
        if known is not None and now_s - known[0] < GROUP_AGE_S:
            return known[1]
        found = SubscriptionGroupConfig(name) if known is None else known[1]
        try:
            groups = await self.route(topic)
            if groups:
                header = to_ext(QueryTopicsByConsumerRequestHeader(name))
                answer = await self._once(
                    groups[0].address,
                    request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header),
                    CALL_S,
                )
                if answer.code == ResponseCode.SUCCESS:
                    found = decode_body(SubscriptionGroupConfig, answer.body)
                elif answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    found = SubscriptionGroupConfig(name)
        except (RemotingError, ResolveError, WireError, CallRefused):
            return found
        _remember(self._groups, name, (now_s, found))
        return found

    async def call(
        self, address: str, make: Make, within_s: float, *, repeatable: bool = False
    ) -> RemotingCommand:
        """The answer to a request, again and again while it surely was not carried out.

        Args:
            address: of a group.
            make: the request, anew for each try.
            within_s: for all tries.
            repeatable: to carry it out twice is as good as once: it is also sent again where nobody
                knows.

        Raises:
            CallRefused: nobody answered in time.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + within_s
        while True:
            left_s = deadline_s - loop.time()
            why: object
            try:
                answer = await self._once(address, make(), max(left_s, AGAIN_S))
                stored = MAY_BE_STORED in (answer.ext or {})
                if answer.code != ResponseCode.SERVICE_NOT_AVAILABLE or stored:
                    return answer
                why = answer.remark
            except (ConnectError, ResolveError, Busy) as error:
                why = error
            except (RequestTimeout, ConnectionClosed) as error:
                if not repeatable:
                    await self._next_address(address)  # for the client's next call
                    text = f"it may have been carried out: {error}"
                    raise CallRefused("PROXY_TIMEOUT", text) from error
                why = error
            if loop.time() + AGAIN_S >= deadline_s:
                raise CallRefused("INTERNAL_SERVER_ERROR", f"no master takes it: {why}")
            self.tried_again += 1
            await asyncio.sleep(AGAIN_S)
            address = await self._next_address(address)

    async def carry_out(
        self, address: str, make: Make, within_s: float, *, repeatable: bool = False
    ) -> RemotingCommand:
        """The answer 0 to a request; see ``call``.

        Raises:
            CallRefused: there is another answer, or none.
        """
        answer = await self.call(address, make, within_s, repeatable=repeatable)
        if answer.code != ResponseCode.SUCCESS:
            raise of_broker(answer.code, answer.remark)
        return answer

    async def poll(
        self, address: str, command: RemotingCommand, within_s: float
    ) -> RemotingCommand:
        """The answer to a request that may wait for messages.

        Raises:
            CallRefused: nobody answered in time.
        """
        try:
            client = await self._polls.get(address, CONNECT_S)
            return await client.call(command, within_s)
        except (RemotingError, ResolveError) as error:
            await self._next_address(address)  # for the client's next call
            raise CallRefused("INTERNAL_SERVER_ERROR", str(error)) from error

    async def _ask_route(self, topic: str) -> TopicRouteData:
        command = request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            to_ext(GetRouteInfoRequestHeader(topic, accept_standard_json_only=True)),
        )
        trouble: Exception | None = None
        for address in tuple(self._name_servers):
            try:
                answer = await self._once(address, command, CALL_S)
            except (RemotingError, ResolveError) as error:
                trouble = error
                self._name_servers.append(self._name_servers.pop(0))
                continue
            if answer.code != ResponseCode.SUCCESS:
                raise of_broker(answer.code, answer.remark)
            return decode_body(TopicRouteData, answer.body)
        assert trouble is not None
        raise trouble

    async def _once(
        self, address: str, command: RemotingCommand, within_s: float
    ) -> RemotingCommand:
        client = await self.calls.get(address, min(CONNECT_S, within_s))
        return await client.call(command, within_s)


def _remember(known: dict[str, Known], name: str, item: Known) -> None:
    known.pop(name, None)
    known[name] = item
    if len(known) > KNOWN_MAX:
        del known[next(iter(known))]
