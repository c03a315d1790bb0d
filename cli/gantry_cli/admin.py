"""The controllers' admin API, as the command line reads it.

Any member of a quorum may be asked; only its leader answers what people act on. The rule protected
here: a leader's name is a hint, tried first and never followed without end. What it refuses: to
turn silence into an empty answer; whoever asks gets views or one error that says what is wrong.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, TypeVar

import aiohttp
from gantry_protocol.admin import ErrorView, GroupList, GroupView, QuorumView, WatchEvent
from gantry_protocol.errors import GantryError, ResolveError
from gantry_protocol.hosts import join_address, resolve, split_address
from pydantic import BaseModel, ValidationError
from yarl import URL

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from types import TracebackType
    from typing import Self

DEFAULT_PORT = 9880
NOT_LEADER_STATUS = 421
TIMEOUT_S = 1.0
WATCH_SILENCE_S = 3.0  # the controllers send a line at least every second
ViewT = TypeVar("ViewT", bound=BaseModel)


class AdminError(GantryError):
    """The admin API gave no answer that could be used."""


class _RefusedError(Exception):
    """One member does not answer this; `leader` is whom it names instead."""

    def __init__(self, why: str, leader: str | None) -> None:
        super().__init__(why)
        self.leader = leader


class AdminClient:
    """Reads groups and the quorum from whichever member leads.

    Args:
        addresses: `host:port` of every member's HTTP server.
        token: the bearer token of the admin Secret.
    """

    def __init__(self, addresses: Sequence[str], token: str) -> None:
        assert addresses, "a quorum has members"
        self._addresses = [join_address(*split_address(a, DEFAULT_PORT)) for a in addresses]
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        headers = {"Authorization": f"Bearer {self._token}"}
        self._session = aiohttp.ClientSession(headers=headers)
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
        """All broker groups, as the leader knows them.

        Raises:
            AdminError: no member answers as leader.
        """
        return (await self._from_leader("/v1/groups", GroupList)).groups

    async def quorum(self) -> QuorumView:
        """The quorum as its leader sees it. Raises like `groups`."""
        return await self._from_leader("/v1/quorum", QuorumView, leader_only=True)

    async def members(self) -> list[QuorumView]:
        """What every member that answers says about itself and the quorum."""
        found = await asyncio.gather(
            *(self._one(address, "/v1/quorum", QuorumView) for address in self._addresses),
            return_exceptions=True,
        )
        return sorted(
            (view for view in found if isinstance(view, QuorumView)), key=lambda view: view.node_id
        )

    async def watch(self) -> AsyncGenerator[WatchEvent]:
        """Group changes as they happen, from whichever member leads, until cancelled.

        Begins anew with the state of every group whenever the connection is lost.
        """
        while True:
            for address in tuple(self._addresses):
                try:
                    async for event in self._watch_one(address):
                        yield event
                except _RefusedError as error:
                    self._prefer(error.leader)
            await asyncio.sleep(0.1)

    async def _from_leader(
        self, path: str, kind: type[ViewT], *, leader_only: bool = False
    ) -> ViewT:
        trouble = "nobody answered"
        for _ in range(2):  # the second round follows a leader that the first one named
            for address in tuple(self._addresses):
                try:
                    view = await self._one(address, path, kind)
                except _RefusedError as error:
                    trouble = str(error)
                    if self._prefer(error.leader):
                        break
                    continue
                if not leader_only or getattr(view, "role", "") == "leader":
                    self._prefer(address)
                    return view
        raise AdminError(
            f"No controller answers as leader at {', '.join(sorted(self._addresses))} ({trouble})."
        )

    def _prefer(self, leader: str | None) -> bool:
        """Ask `leader` first from now on; True when that changes the order."""
        if leader is None:
            return False
        url = URL(leader if "://" in leader else f"http://{leader}")
        address = join_address(url.host or "", url.port or DEFAULT_PORT)
        if self._addresses[0] == address:
            return False
        if address in self._addresses:
            self._addresses.remove(address)
        self._addresses.insert(0, address)
        del self._addresses[16:]  # names of members that came and went
        return True

    async def _one(self, address: str, path: str, kind: type[ViewT]) -> ViewT:
        session = self._open_session()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                async with session.get(await _url(address, path)) as response:
                    return kind.model_validate_json(await _body(address, response))
        except (aiohttp.ClientError, OSError, TimeoutError, ResolveError) as error:
            raise _RefusedError(f"{address}: {error or type(error).__name__}", None) from error
        except ValidationError as error:
            raise AdminError(
                f"The controller at {address} answers {path} in a form this version cannot read."
            ) from error

    async def _watch_one(self, address: str) -> AsyncGenerator[WatchEvent]:
        session = self._open_session()
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=TIMEOUT_S, sock_read=WATCH_SILENCE_S
        )
        try:
            url = await _url(address, "/v1/watch?since=0")
            async with session.get(url, timeout=timeout) as response:
                if response.status != 200:
                    await _body(address, response)
                async for line in response.content:
                    event = WatchEvent.model_validate_json(line)
                    if not event.heartbeat:
                        yield event
        except (aiohttp.ClientError, OSError, TimeoutError, ResolveError, ValidationError) as error:
            raise _RefusedError(f"{address}: {error}", None) from error

    def _open_session(self) -> aiohttp.ClientSession:
        assert self._session is not None, "use the client as a context manager"
        return self._session


async def _url(address: str, path: str) -> URL:
    """The URL of `path` at `address`, its name resolved as everywhere in Gantry."""
    host, port = split_address(address, DEFAULT_PORT)
    return URL(f"http://{join_address(await resolve(host), port)}{path}")


async def _body(address: str, response: aiohttp.ClientResponse) -> bytes:
    """The answer's body, or the refusal in it."""
    body = await response.read()
    if response.status == 200:
        return body
    try:
        error = ErrorView.model_validate(json.loads(body))
    except (ValueError, ValidationError):
        raise _RefusedError(f"{address}: HTTP {response.status}", None) from None
    if response.status == NOT_LEADER_STATUS:
        raise _RefusedError(f"{address}: {error.message}", error.leader)
    if response.status in (401, 403):
        raise AdminError(f"The controller at {address} refuses the admin token: {error.message}")
    raise _RefusedError(f"{address}: {error.message}", None)
