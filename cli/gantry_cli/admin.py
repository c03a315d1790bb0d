"""The controllers' admin API, as the command line reads it.

How a leader is found is the business of `gantry_protocol.admin_client`; here are the few questions
that people and trials ask. What it refuses: to turn silence into an empty answer.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

import aiohttp
from gantry_protocol.admin import (
    FrontsDeclaration,
    FrontsView,
    GroupList,
    GroupView,
    MovesView,
    QueueMapsView,
    QueuesWish,
    QuorumView,
    RebalanceRequest,
    WatchEvent,
)
from gantry_protocol.admin_client.admin import Admin
from gantry_protocol.admin_client.errors import (
    AdminError,
    AdminRefusedError,
    QuorumUnreachableError,
)
from gantry_protocol.admin_client.outcomes import Unreachable
from gantry_protocol.admin_client.quorum import Endpoint, Quorum
from gantry_protocol.admin_client.session import open_session
from gantry_protocol.errors import GantryError
from gantry_protocol.process.probes import TLS_NEEDED
from pydantic import BaseModel, ValidationError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence
    from types import TracebackType
    from typing import Self

UNAUTHORIZED = (401, 403)
WATCH_SILENCE_S = 3.0  # the controllers send a line at least every second
WATCH_RETRY_S = 0.1
ViewT = TypeVar("ViewT", bound=BaseModel)


class AdminClient:
    """Reads groups and the quorum from whichever member leads.

    Args:
        endpoints: every member's HTTP server.
        token: the bearer token of the admin Secret.
    """

    def __init__(self, endpoints: Sequence[Endpoint], token: str) -> None:
        assert endpoints, "a quorum has members"
        self._endpoints = list(endpoints)
        self._token = token
        self._session: aiohttp.ClientSession | None = None
        self._opened: Quorum | None = None

    async def __aenter__(self) -> Self:
        self._session = open_session()
        self._opened = Quorum(
            "The controller group", lambda: self._endpoints, self._read_token, self._session
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def groups(self) -> list[GroupView]:
        """All broker groups, as the leader knows them; read a page at a time.

        Raises:
            GantryError: no member answers as leader.
        """
        groups: list[GroupView] = []
        path = "/v1/groups"
        while True:
            page = _read(GroupList, await self._ask_leader("GET", path))
            groups += page.groups
            if page.continue_token is None:
                return groups
            path = f"/v1/groups?continue={quote(page.continue_token)}"

    async def forget(self, group: GroupView, broker_id: int | None = None) -> None:
        """Have a member of a group struck from the record, or a retired group removed for good.

        Raises:
            GantryError: the leader refused, or no member answers as leader.
        """
        admin = Admin(self._quorum, group.cluster)
        member = next((item for item in group.members if item.broker_id == broker_id), None)
        with _in_words():
            if broker_id is None:
                await admin.forget(group.name, group.uid or "")
            else:
                incarnation = None if member is None else member.incarnation
                await admin.forget_member(group.name, broker_id, incarnation)

    async def drain(self, group: GroupView) -> None:
        """Have a group take no new messages, and serve those that it has.

        Raises:
            GantryError: the leader refused, or no member answers as leader.
        """
        with _in_words():
            await Admin(self._quorum, group.cluster).drain(group.name, group.uid)

    async def end_drain(self, group: GroupView) -> None:
        """Have a group take messages again.

        Raises:
            GantryError: no member answers as leader.
        """
        with _in_words():
            await Admin(self._quorum, group.cluster).end_drain(group.name)

    async def accept_loss(self, group: GroupView, broker_id: int) -> None:
        """Have a member elected that lacks what was confirmed.

        Raises:
            GantryError: the leader refused, or no member answers as leader.
        """
        with _in_words():
            await Admin(self._quorum, group.cluster).accept_loss(group, broker_id)

    async def adopt(self, group: GroupView, broker_ids: list[int], *, accept_missing: bool) -> None:
        """Have the quorum take over the copies of another one.

        Raises:
            GantryError: the leader refused, or no member answers as leader.
        """
        with _in_words():
            await Admin(self._quorum, group.cluster).adopt(
                group, broker_ids, accept_missing=accept_missing
            )

    async def fronts(self, cluster: str) -> FrontsView:
        """Fronts to which clients of a cluster are led, and each group's index there.

        Raises:
            GantryError: no member answers as leader.
        """
        view = await Admin(self._quorum, cluster).fronts()
        if isinstance(view, Unreachable):
            raise GantryError(view.reason)
        return view

    async def declare_fronts(self, cluster: str, name: str, wish: FrontsDeclaration) -> None:
        """Lead clients of a cluster to fronts.

        Raises:
            GantryError: the leader refused, or no member answers as leader.
        """
        with _in_words():
            await Admin(self._quorum, cluster).declare_fronts(name, wish)

    async def remove_fronts(self, cluster: str, name: str) -> None:
        """Lead clients of a cluster back to the brokers.

        Raises:
            GantryError: the leader refused, or no member answers as leader.
        """
        with _in_words():
            await Admin(self._quorum, cluster).remove_fronts(name)

    @contextmanager
    def of(self, cluster: str) -> Iterator[Admin]:
        """The admin API of one cluster.

        Raises:
            GantryError: the leader refused, or no member answers as leader.
        """
        with _in_words():
            yield Admin(self._quorum, cluster)

    async def queue_maps(self, cluster: str, topic: str | None = None) -> QueueMapsView:
        """The queue maps of a cluster; of one topic, with each of its queues.

        Raises:
            GantryError: the leader refused, or no member answers as leader.
        """
        with _in_words():
            return await Admin(self._quorum, cluster).queue_maps(topic)

    async def map_queues(self, cluster: str, topic: str, wish: QueuesWish) -> QueueMapsView:
        """Make or change the map of a topic.

        Raises:
            GantryError: the leader refused, or no member answers as leader.
        """
        with _in_words():
            return await Admin(self._quorum, cluster).map_queues(topic, wish)

    async def rebalance(self, cluster: str, wish: RebalanceRequest) -> MovesView:
        """Even out the queues of a cluster.

        Raises:
            GantryError: the leader refused, or no member answers as leader.
        """
        with _in_words():
            return await Admin(self._quorum, cluster).rebalance(wish)

    async def change(self, method: str, path: str, wish: BaseModel | None = None) -> QuorumView:
        """Have the leader change the quorum; what it is like then.

        Raises:
            GantryError: it refused, or no member answers as leader (then the outcome is unknown).
        """
        body = None if wish is None else wish.model_dump_json(by_alias=True, exclude_none=True)
        return _read(QuorumView, await self._ask_leader(method, path, body))

    async def members(self) -> list[QuorumView]:
        """Each answering member's word about itself and the quorum, by node id."""
        try:
            found = await self._quorum.ask_anyone("/v1/quorum")
        except QuorumUnreachableError:
            return []
        return sorted((_read(QuorumView, data) for _, data in found), key=lambda view: view.node_id)

    async def leader(self) -> QuorumView | None:
        """The leader's view of the quorum, else that of whoever answers; None: nobody does."""
        view = await Admin(self._quorum, cluster="").view()
        return None if isinstance(view, Unreachable) else view

    async def watch(self) -> AsyncGenerator[WatchEvent]:
        """Group changes as they happen, from whichever member leads, until cancelled.

        Begins anew with the state of every group whenever the connection is lost.
        """
        while True:
            try:
                response = await self._quorum.open_stream("/v1/watch?since=0")
                async with response:
                    while True:
                        async with asyncio.timeout(WATCH_SILENCE_S):
                            line = await response.content.readline()
                        if not line.endswith(b"\n"):
                            break
                        event = _read(WatchEvent, line)
                        if not event.heartbeat:
                            yield event
            except (AdminError, aiohttp.ClientError, OSError, TimeoutError):
                pass  # whoever leads next goes on; the silence shows in the readings
            await asyncio.sleep(WATCH_RETRY_S)

    async def _ask_leader(self, method: str, path: str, body: str | None = None) -> bytes:
        with _in_words():
            return await self._quorum.ask_leader(method, path, body)

    @property
    def _quorum(self) -> Quorum:
        assert self._opened is not None, "use the client as a context manager"
        return self._opened

    async def _read_token(self, _: bool) -> str:
        return self._token


@contextmanager
def _in_words() -> Iterator[None]:
    """What the controllers refuse, or do not answer, as one sentence."""
    try:
        yield
    except AdminRefusedError as error:
        if error.status in UNAUTHORIZED and error.code != TLS_NEEDED:
            raise GantryError(f"The controllers refuse the admin token: {error}") from error
        raise GantryError(f"The controllers refused: {error}") from error
    except QuorumUnreachableError as error:
        raise GantryError(str(error)) from error


def _read(kind: type[ViewT], data: bytes) -> ViewT:
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise GantryError(
            f"The controllers gave an answer ({kind.__name__}) that this version cannot read."
        ) from error
