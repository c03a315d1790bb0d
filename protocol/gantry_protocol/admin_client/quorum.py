"""One request to whoever leads a quorum.

A follower answers 421 with a hint. The hint is taken only if it names one of the quorum's own pods,
and it changes only whom we ask next, so a wrong or hostile one costs one attempt. Pods are dialled
by the addresses that the API server reports for them: no DNS, no Service that would balance over
followers.

Every request has a bounded number of attempts and a deadline. A request that may have been carried
out is not distinguished from one that was not: everything sent here is idempotent or guarded by an
epoch.

Who has to be asked by TLS hears nothing before he was believed (`member_tls.asking`), the token
least of all; only where members are permissive he is asked without, if TLS fails.

Time-outs are `asyncio.timeout`'s alone. aiohttp's own total undoes two cancellations for the one it
made: one of another time-out, or the task's own that comes in the same turn of the loop, as after a
while in which the process was frozen. The task then goes on although it was told to end.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit

import aiohttp
from pydantic import ValidationError

from gantry_protocol.admin import ErrorView
from gantry_protocol.admin_client.errors import AdminRefusedError, QuorumUnreachableError
from gantry_protocol.errors import ConfigError
from gantry_protocol.hosts import join_address
from gantry_protocol.member_tls.process import why_not
from gantry_protocol.process import log

if TYPE_CHECKING:
    from gantry_protocol.member_tls.asking import Trust

CONNECT_TIMEOUT_S = 1.0
HANDSHAKE_TIMEOUT_S = 2.0
"""The same by TLS: it needs a turn of the controller's event loop, and not only its kernel."""
ATTEMPT_TIMEOUT_S = 3.0
"""Longer than a controller waits for its quorum (2.5 s), so that its own words are heard."""
DEADLINE_S = 8.0
READ_DEADLINE_S = 4.0
"""Of a question: what was true before is doubtful by then, and status has to say so."""
DOUBT_S = 2.0
"""So long after a question that ran into its deadline the next ones fail at once. Thousands of
groups would otherwise wait one after the other for controllers that do not answer."""
EXTRA_ATTEMPTS = 2
"""Beyond one per pod: for a leader that changes while it is looked for."""
NOT_LEADER = 421
_UNAVAILABLE = (429, 502, 503, 504)
_NO_TLS = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, ConfigError)
"""Before hands were shaken, so nothing was said."""
_log = log.get("controllers")


class Endpoint(NamedTuple):
    """A controller pod's HTTP address.

    Attributes:
        trust: whom to believe there; None: it is asked without TLS.
    """

    pod: str
    host: str
    port: int
    trust: Trust | None = None

    def url(self, path: str, *, tls: bool) -> str:
        """The URL of a path."""
        return f"{'https' if tls else 'http'}://{join_address(self.host, self.port)}{path}"


Endpoints = Callable[[], list[Endpoint]]
Token = Callable[[bool], Awaitable[str]]
"""The bearer token; True asks for it to be read anew."""


class Answer(NamedTuple):
    """A controller's answer."""

    status: int
    data: bytes


class Quorum:
    """The controllers of one ControllerGroup.

    Args:
        name: for people.
        endpoints: the pods that exist at the moment.
        token: the bearer token of the admin API.
        session: shared by all quorums.
    """

    def __init__(
        self, name: str, endpoints: Endpoints, token: Token, session: aiohttp.ClientSession
    ) -> None:
        self.name = name
        self.answers = 0
        """Requests that a leader answered and streams that it opened, since the start."""
        self._endpoints = endpoints
        self._token = token
        self._session = session
        self._leader: str | None = None  # pod name of the last that led
        self._doubt_until = float("-inf")

    async def ask_leader(self, method: str, path: str, body: str | None = None) -> bytes:
        """The leader's answer.

        Raises:
            QuorumUnreachableError: no leader answered in time.
            AdminRefusedError: the leader refused.
        """
        reading, clock = method == "GET", asyncio.get_running_loop().time
        deadline_s = READ_DEADLINE_S if reading else DEADLINE_S
        silence = f"No leader of {self.name} answered within {READ_DEADLINE_S:.0f} s."
        if reading and clock() < self._doubt_until:
            raise QuorumUnreachableError(silence)
        try:
            async with asyncio.timeout(deadline_s):
                data = await self._search(method, path, body)
        except TimeoutError as error:
            self._doubt_until = clock() + DOUBT_S
            silence = f"No leader of {self.name} answered within {deadline_s:.0f} s."
            raise QuorumUnreachableError(silence) from error
        self._doubt_until = float("-inf")
        return data

    async def ask_anyone(self, path: str) -> list[tuple[Endpoint, bytes]]:
        """Each answering pod's word about itself; all are asked at once.

        Raises:
            QuorumUnreachableError: none answers; says why the first one does not.
        """
        endpoints = self._endpoints()
        answers = await asyncio.gather(*(self._try(e, "GET", path, None) for e in endpoints))
        found = [
            (endpoint, answer.data)
            for endpoint, answer in zip(endpoints, answers, strict=True)
            if isinstance(answer, Answer) and answer.status == 200
        ]
        if found:
            return found
        why = next(iter(answers), "it has no pod with an address")
        why = why if isinstance(why, str) else _refusal(why).message
        raise QuorumUnreachableError(f"{self.name} does not answer: {why.rstrip('.')}.")

    async def open_stream(self, path: str) -> aiohttp.ClientResponse:
        """A stream from the leader; the caller closes it.

        Raises:
            QuorumUnreachableError: no leader answered.
        """
        for endpoint in self._in_order():
            try:
                async with asyncio.timeout(ATTEMPT_TIMEOUT_S):
                    response = await self._request(endpoint, "GET", path, None)
            except (aiohttp.ClientError, TimeoutError, OSError, ConfigError):
                continue
            if response.status == 200:
                self._leader = endpoint.pod
                self.answers += 1
                return response
            response.close()
            if response.status == 401:
                await self._token(True)
        raise QuorumUnreachableError(f"No leader of {self.name} streams its changes.")

    async def _search(self, method: str, path: str, body: str | None) -> bytes:
        untried = self._in_order()
        if not untried:
            raise QuorumUnreachableError(f"{self.name} has no pod with an address.")
        last = "no controller answered"
        for _ in range(len(untried) + EXTRA_ATTEMPTS):
            if not untried:
                break
            endpoint = untried.pop(0)
            answer = await self._try(endpoint, method, path, body)
            if isinstance(answer, str):
                last = answer
            elif answer.status == NOT_LEADER:
                last = "there is no leader at the moment"
                self._follow(answer.data, endpoint, untried)
            elif answer.status in _UNAVAILABLE:
                last = _refusal(answer).message
            else:
                self._leader = endpoint.pod
                self.answers += 1
                return _unwrap(answer)
        raise QuorumUnreachableError(f"{self.name} cannot be asked: {last}.")

    def _in_order(self) -> list[Endpoint]:
        """All pods, the last known leader first."""
        return sorted(self._endpoints(), key=lambda e: (e.pod != self._leader, e.pod))

    def _follow(self, data: bytes, asked: Endpoint, untried: list[Endpoint]) -> None:
        """Moves the pod that a hint names to the front of those to be tried."""
        try:
            hint = ErrorView.model_validate_json(data).leader
        except ValidationError:
            return
        host = urlsplit(hint).hostname if hint else None
        for endpoint in self._endpoints():
            if host in (endpoint.host, endpoint.pod) or (
                host is not None and host.startswith(f"{endpoint.pod}.")
            ):
                if endpoint != asked:
                    if endpoint in untried:
                        untried.remove(endpoint)
                    untried.insert(0, endpoint)
                return

    async def _try(
        self, endpoint: Endpoint, method: str, path: str, body: str | None
    ) -> Answer | str:
        """One attempt; a text says why there was no answer. A refused token is read anew once."""
        try:
            async with asyncio.timeout(ATTEMPT_TIMEOUT_S):
                response = await self._request(endpoint, method, path, body)
                if response.status == 401:
                    response.close()
                    await self._token(True)
                    response = await self._request(endpoint, method, path, body)
                async with response:
                    return Answer(response.status, await response.read())
        except TimeoutError:
            return f"{endpoint.pod} did not answer within {ATTEMPT_TIMEOUT_S:.0f} s"
        except (aiohttp.ClientError, OSError, ConfigError) as error:
            _log.debug("controller not reached", pod=endpoint.pod, error=error)
            return _why(endpoint, error)

    async def _request(
        self, endpoint: Endpoint, method: str, path: str, body: str | None
    ) -> aiohttp.ClientResponse:
        """One request, by TLS where whoever is asked was given a certificate.

        Authorities that do not vouch for him are read anew once, as they may have been changed.
        """
        trust = endpoint.trust
        if trust is None:
            return await self._send(method, endpoint.url(path, tls=False), body, True)
        url = endpoint.url(path, tls=True)
        try:
            context = await trust.context(fresh=False)
            try:
                return await self._send(method, url, body, context)
            except aiohttp.ClientConnectorCertificateError:
                newer = await trust.context(fresh=True)
                if newer is context:
                    raise
                return await self._send(method, url, body, newer)
        except _NO_TLS as error:
            if not trust.plainly or _is_refused(error):
                raise
            _log.debug("controller asked without TLS", pod=endpoint.pod, reason=error)
            return await self._send(method, endpoint.url(path, tls=False), body, True)

    async def _send(
        self, method: str, url: str, body: str | None, tls: ssl.SSLContext | Literal[True]
    ) -> aiohttp.ClientResponse:
        headers = {"Authorization": f"Bearer {await self._token(False)}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        within_s = CONNECT_TIMEOUT_S if tls is True else HANDSHAKE_TIMEOUT_S
        return await self._session.request(
            method,
            url,
            data=body,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=within_s),
            allow_redirects=False,
            ssl=tls,
        )


def _is_refused(error: Exception) -> bool:
    """Whether nobody listens there: a process that is gone speaks no other way either."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    return isinstance(cause, ConnectionRefusedError)


def _why(endpoint: Endpoint, error: Exception) -> str:
    """Why somebody was not asked, for people."""
    if isinstance(error, ConfigError):
        return str(error).removesuffix(".")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"{endpoint.pod} is not asked, {why_not(error.certificate_error)}"
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else None
    if isinstance(cause, ssl.SSLError | ConnectionResetError):
        return f"{endpoint.pod} does not agree to TLS"
    return f"{endpoint.pod} cannot be reached"


def _unwrap(answer: Answer) -> bytes:
    if 200 <= answer.status < 300:
        return answer.data
    refusal = _refusal(answer)
    raise AdminRefusedError(answer.status, refusal.error, refusal.message)


def _refusal(answer: Answer) -> ErrorView:
    try:
        return ErrorView.model_validate_json(answer.data)
    except ValidationError:
        text = answer.data[:200].decode("utf-8", "replace").strip()
        return ErrorView(error=f"HTTP_{answer.status}", message=text or "no details")
