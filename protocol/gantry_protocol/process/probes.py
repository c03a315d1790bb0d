"""The HTTP side every process has: liveness, readiness, metrics, and routes of its own.

``/livez`` and ``/readyz`` answer 200 or 503 with the reason as text; ``/metrics`` is Prometheus
text from a registry that belongs to this server, never the global one, so that many processes'
worth of objects can live in one test. The three need no token, and no TLS; everything else does
where a token or TLS is set, but for paths that are answered to this machine's own loopback address
alone: that is who may look into the process anyway, or has the API server forward a port. To others
there is no such path. The loopback address is listened on besides the one that is asked for.

Connections are bounded, and so is what an address may make of them, and what it may say before its
first request (``strangers``); further ones are closed as they come. Requests without the token are
served at a bounded pace, each address at its own, so that a stranger's flood delays no probe. Who
asks for metrics while others wait for them gets the same text: making it takes milliseconds of the
event loop, and anybody may ask.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, cast

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from gantry_protocol.admin import ErrorView
from gantry_protocol.process.listening import bind, bind_inside, is_loopback, stop_listening
from gantry_protocol.process.metrics import LookupsCollector
from gantry_protocol.process.strangers import AddressRate, Comers, Guard, quiet_logger

Probe = Callable[[], tuple[bool, str]]
HttpHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]

DECISIONS_PATH = "/decisions"
"""Of what a process has decided lately, for a support bundle; answered on loopback alone."""
OPEN_PATHS = frozenset({"/livez", "/readyz", "/metrics"})
TLS_NEEDED = "TLS_NEEDED"
_NO_TLS = (
    "Without TLS nothing but probes and metrics is answered here: ask by https, and give commands "
    "of gantry --member-tls-ca-file with the file of the members' authorities."
)
MAX_BODY_BYTES = 1024 * 1024
MAX_CONNECTIONS = 1000  # probes, scrapes, operators, watches of every broker
METRICS_REST = 9.0  # times what they took to make: a tenth of the event loop's time at most
METRICS_REST_MIN_S = 0.1
_SHUTDOWN_S = 0.25  # watches are always open; nobody is helped by waiting for them


def always_live() -> tuple[bool, str]:
    """A probe that holds as long as the event loop turns."""
    return True, "ok"


class Cover(Protocol):
    """TLS below an HTTP port, on the same port as plain connections."""

    def over(self, inner: asyncio.Protocol) -> asyncio.Protocol:
        """The protocol of a new connection; ``inner`` is that of what is said on it."""

    def refuses(self, address: str) -> bool:
        """Whether a request that came from there without TLS is refused; then it is counted."""

    def served(self) -> None:
        """A request with the token came without TLS, and is served."""


class HttpServer:
    """Probes, metrics and extra routes on one port.

    Args:
        live: whether the process should go on living; False makes the platform restart it.
        ready: whether it should be given work.
        registry: metrics of this process; None makes a new one.
        token: what ``Authorization: Bearer`` must carry outside the open paths; a callable is asked
            on each request, so a rotated token file takes effect at once; None asks for nothing.
        max_connections: further ones are turned away, and counted in ``refused``.
        cover: who speaks TLS is spoken to by it; None: nobody does.
    """

    def __init__(
        self,
        *,
        live: Probe = always_live,
        ready: Probe,
        registry: CollectorRegistry | None = None,
        token: str | Callable[[], str] | None = None,
        max_connections: int = MAX_CONNECTIONS,
        cover: Cover | None = None,
    ) -> None:
        self.refused = 0
        self._cover = cover
        self._max_connections = max_connections
        self._listeners: list[asyncio.Server] = []
        self._local_paths: set[str] = set()
        self.registry = CollectorRegistry() if registry is None else registry
        self.registry.register(LookupsCollector())
        self.pace = AddressRate()
        self._comers = Comers(max(1, max_connections // 2))  # the rest is for probes
        self._rendering: asyncio.Task[bytes] | None = None  # has not begun, so others may share it
        self._renders: set[asyncio.Task[bytes]] = set()
        self._rested_s = 0.0  # loop time from which on metrics may be made again
        middlewares: list[Middleware] = [self._check_place, _paced(self.pace, token)]
        if cover is not None:
            middlewares.append(_covered(cover, token, self._is_open))
        if token is not None:
            middlewares.append(bearer_token(token, self._is_open))
        self.app = web.Application(middlewares=middlewares, client_max_size=MAX_BODY_BYTES)
        self.app.router.add_get("/livez", _probe_handler(live))
        self.app.router.add_get("/readyz", _probe_handler(ready))
        self.app.router.add_get("/metrics", self._metrics)
        self._runner: web.AppRunner | None = None

    def add_route(self, method: str, path: str, handler: HttpHandler) -> None:
        """Serve ``handler`` at ``path``; before :meth:`start`."""
        self.app.router.add_route(method, path, handler)

    def add_local_route(self, path: str, handler: HttpHandler) -> None:
        """Answer GET ``path`` to the loopback address, whoever asks there; before :meth:`start`."""
        self._local_paths.add(path)
        self.add_route("GET", path, handler)

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port.

        Raises:
            PortInUseError: somebody listens there.
        """
        listener = bind(host, port, purpose="HTTP")
        bound_port: int = listener.getsockname()[1]
        runner = web.AppRunner(
            self.app, access_log=None, logger=quiet_logger(), shutdown_timeout=_SHUTDOWN_S
        )
        try:
            await runner.setup()
            loop = asyncio.get_running_loop()
            admit = partial(self._admit, runner)
            self._listeners.append(await loop.create_server(admit, sock=listener))
            inside = bind_inside(host, bound_port, purpose="HTTP")
            if inside is not None:
                self._listeners.append(await loop.create_server(admit, sock=inside))
        except BaseException:
            listener.close()
            await runner.cleanup()
            raise
        self._runner = runner
        return bound_port

    def _is_open(self, request: web.Request) -> bool:
        """Whether neither a token nor TLS is asked for.

        Raises:
            HTTPNotFound: it is for this machine alone, and comes from another.
        """
        if request.path not in self._local_paths:
            return request.path in OPEN_PATHS
        if not is_loopback(request.remote or ""):
            raise web.HTTPNotFound
        return True

    @web.middleware
    async def _check_place(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._is_open(request)
        return await handler(request)

    async def stop(self) -> None:
        """Close the listeners and every connection; stopping twice is harmless."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            await stop_listening(listener)
        for task in list(self._renders):
            task.cancel()
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    @property
    def connections(self) -> int:
        """Open now."""
        runner = self._runner
        return 0 if runner is None or runner.server is None else len(runner.server.connections)

    def _admit(self, runner: web.AppRunner) -> asyncio.BaseProtocol:
        """The protocol of a new connection."""
        assert runner.server is not None
        if len(runner.server.connections) >= self._max_connections:
            self.refused += 1
            return _TurnedAway()
        guard = Guard(runner.server(), self._comers, self._turn_away)
        return guard if self._cover is None else self._cover.over(guard)

    def _turn_away(self) -> None:
        self.refused += 1

    async def _metrics(self, request: web.Request) -> web.Response:
        if self._rendering is None:
            self._rendering = asyncio.create_task(self._render())
            self._renders.add(self._rendering)
            self._rendering.add_done_callback(self._renders.discard)
        body = await asyncio.shield(self._rendering)  # who hangs up takes it from nobody
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _render(self) -> bytes:
        """The metrics for all who asked before it begins."""
        loop = asyncio.get_running_loop()
        rest_s = self._rested_s - loop.time()
        if rest_s > 0:
            await asyncio.sleep(rest_s)
        self._rendering = None
        begun_s = loop.time()
        body = generate_latest(self.registry)
        took_s = loop.time() - begun_s
        self._rested_s = begun_s + took_s + max(METRICS_REST * took_s, METRICS_REST_MIN_S)
        return body


class _TurnedAway(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()  # uvloop's is no subclass


def _paced(pace: AddressRate, token: str | Callable[[], str] | None) -> Middleware:
    """Middleware that has strangers wait for their turn."""

    @web.middleware
    async def wait(request: web.Request, handler: Handler) -> web.StreamResponse:
        if token is None or not _is_shown(request, token):
            wait_s = pace.wait_s(request.remote or "", asyncio.get_running_loop().time())
            if wait_s > 0:
                await asyncio.sleep(wait_s)
        return await handler(request)

    return wait


def _covered(
    cover: Cover, token: str | Callable[[], str] | None, is_open: Callable[[web.Request], bool]
) -> Middleware:
    """Middleware that serves what is open to everybody, and all else by TLS if that is needed."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not (request.secure or is_open(request)):
            if cover.refuses(request.remote or "?"):  # the token is not even looked at
                refusal = ErrorView(error=TLS_NEEDED, message=_NO_TLS)
                return web.json_response(text=refusal.to_json(), status=403)
            if token is not None and _is_shown(request, token):
                cover.served()
        return await handler(request)

    return check


def _is_shown(request: web.Request, token: str | Callable[[], str]) -> bool:
    """Whether a request carries the token."""
    expected = token if isinstance(token, str) else token()
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    matches = hmac.compare_digest(given.strip().encode(), expected.encode())
    return scheme.lower() == "bearer" and bool(expected) and matches


def bearer_token(
    token: str | Callable[[], str], is_open: Callable[[web.Request], bool]
) -> Middleware:
    """Middleware that lets only holders of the token past what is open.

    An empty token on the server's side admits nobody.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if is_open(request):
            return await handler(request)
        if not _is_shown(request, token):
            refusal = ErrorView(error="UNAUTHORIZED", message="A valid bearer token is needed.")
            return web.json_response(
                text=refusal.to_json(), status=401, headers={"WWW-Authenticate": "Bearer"}
            )
        return await handler(request)

    return check


def _probe_handler(probe: Probe) -> HttpHandler:
    async def handle(request: web.Request) -> web.Response:
        good, reason = probe()
        return web.Response(text=reason + "\n", status=200 if good else 503)

    return handle
