"""Routes: which queues a topic has, and where their masters are reached.

A route is asked for once and then kept. After a failure the caller goes on with the route it has
while a new one is fetched behind its back: the address of a group is normally the same before and
after a failover, so waiting for name servers would only make the gap longer. A route that cannot be
fetched never replaces one that could.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.bodies import TopicRouteData, decode_body
from gantry_protocol.bodies.route import MASTER_ID, PERM_READ, PERM_WRITE
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import GantryError, RemotingError, ResolveError, WireError
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.headers.nameserver import GetRouteInfoRequestHeader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_cli.client.calls import Caller


class NameServiceError(GantryError):
    """No name server gave an answer that could be used."""


class TopicNotFoundError(NameServiceError):
    """The name servers answer, and know no such topic."""


class Queue(msgspec.Struct, frozen=True):
    """One queue of a topic, and where it is read and written.

    Attributes:
        address: at which the group's master is reached.
        readers: by broker id, the addresses of replicas that serve reads; a tuple of pairs.
    """

    broker_name: str
    queue_id: int
    address: str
    readers: tuple[tuple[int, str], ...] = ()

    def at(self, broker_id: int) -> str:
        """The address of a member; the master's where the route does not name it."""
        return dict(self.readers).get(broker_id, self.address)


class Route(msgspec.Struct, frozen=True):
    """The queues of a topic, in the order of broker names and queue ids."""

    topic: str
    writable: tuple[Queue, ...]
    readable: tuple[Queue, ...]


def route_of(topic: str, data: TopicRouteData) -> Route:
    """The queues in an answer of 105; groups without an address for broker 0 are left out."""
    addresses = {
        broker.broker_name: broker.broker_addrs
        for broker in data.broker_datas
        if MASTER_ID in broker.broker_addrs
    }
    writable: list[Queue] = []
    readable: list[Queue] = []
    for queues in sorted(data.queue_datas, key=lambda item: item.broker_name):
        known = addresses.get(queues.broker_name)
        if known is None:
            continue
        address = known[MASTER_ID]
        readers = tuple(sorted(item for item in known.items() if item[0] != MASTER_ID))
        for perm, count, found in (
            (PERM_WRITE, queues.write_queue_nums, writable),
            (PERM_READ, queues.read_queue_nums, readable),
        ):
            if queues.perm & perm:
                found.extend(Queue(queues.broker_name, n, address, readers) for n in range(count))
    return Route(topic, tuple(writable), tuple(readable))


class Routes:
    """The routes one client knows, and the name servers it asks.

    Args:
        name_servers: `host:port` of each; asked in turn, starting with the one that answered last.
        calls: the network.
        timeout_s: for one name server; the next is asked after it.
        refresh_interval_s: the least time between two fetches of one topic behind a caller's back.
    """

    def __init__(
        self,
        name_servers: Sequence[str],
        calls: Caller,
        *,
        timeout_s: float = 1.0,
        refresh_interval_s: float = 0.1,
    ) -> None:
        assert name_servers, "a client needs a name server"
        self._name_servers = list(name_servers)
        self._calls = calls
        self._timeout_s = timeout_s
        self._refresh_interval_s = refresh_interval_s
        self._known: dict[str, Route] = {}
        self._refreshing: dict[str, asyncio.Task[None]] = {}
        self._refreshed_at: dict[str, float] = {}

    async def find(self, topic: str) -> Route:
        """The known route of `topic`, or a fetched one.

        Raises:
            NameServiceError: there is none yet (`TopicNotFoundError`), or nobody answers.
        """
        known = self._known.get(topic)
        return known if known is not None else await self.fetch(topic)

    async def fetch(self, topic: str) -> Route:
        """Ask for the route of `topic` now, and keep it. Raises like `find`."""
        command = request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            to_ext(GetRouteInfoRequestHeader(topic, accept_standard_json_only=True)),
        )
        answer = await self.ask(command)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise TopicNotFoundError(
                f"There is no topic {topic!r}; make it with: gantry topics create {topic}"
            )
        if answer.code != ResponseCode.SUCCESS:
            raise refusal(answer, f"The route of topic {topic!r} was refused")
        route = route_of(topic, decode_body(TopicRouteData, answer.body))
        self._known[topic] = route
        return route

    async def ask(self, command: RemotingCommand) -> RemotingCommand:
        """The first answer that any name server gives to `command`.

        Raises:
            NameServiceError: none answered; names all of them and the last trouble.
        """
        trouble: Exception | None = None
        for address in tuple(self._name_servers):
            try:
                answer = await self._calls.call(address, command, self._timeout_s)
            except (RemotingError, ResolveError, WireError) as error:
                trouble = error
                self._name_servers.remove(address)  # the others first, next time
                self._name_servers.append(address)
            else:
                return answer
        raise NameServiceError(
            f"No name server answers at {', '.join(sorted(self._name_servers))} ({trouble}); "
            "is the cluster running?"
        )

    def refresh_soon(self, topic: str) -> None:
        """Fetch the route of `topic` behind the caller's back, if that was not just done."""
        loop = asyncio.get_running_loop()
        last = self._refreshed_at.get(topic, float("-inf"))
        if topic in self._refreshing or loop.time() - last < self._refresh_interval_s:
            return
        self._refreshed_at[topic] = loop.time()
        task = loop.create_task(self._refresh(topic))
        self._refreshing[topic] = task
        task.add_done_callback(lambda _: self._refreshing.pop(topic, None))

    async def close(self) -> None:
        """End the fetches that are under way."""
        tasks = tuple(self._refreshing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _refresh(self, topic: str) -> None:
        try:
            await self.fetch(topic)
        except (NameServiceError, WireError):
            return  # the known route stays; whoever needs another one asks again


def refusal(answer: RemotingCommand, what: str) -> NameServiceError:
    """The error for an answer that says no: its remark is the reason that people get to read."""
    return NameServiceError(f"{what}: {answer.remark or 'no reason given'} (code {answer.code}).")
