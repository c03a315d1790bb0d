"""The HTTP edge: connections, the bearer token, dispatch and watches."""

from __future__ import annotations

import asyncio
import hmac
import logging
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import web

from gantry_local.apiserver import discovery, errors, handlers, openapi, replies, routes
from gantry_local.apiserver.watching import WatchStream

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from gantry_local.apiserver.kinds import ResourceType
    from gantry_local.apiserver.registry import Registry
    from gantry_local.apiserver.routes import Target
    from gantry_local.apiserver.selectors import Selector
    from gantry_local.apiserver.watching import WatchOptions

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
    LogReader = Callable[[web.Request, str, str], Awaitable[web.StreamResponse]]

MAX_BODY_BYTES: Final = 3 * 1024 * 1024
"""The real server's own limit on request bodies."""
MAX_WATCHES: Final = 1000
BOOKMARK_INTERVAL_S: Final = 30.0
FAILURES_PATH: Final = "/gantry-local/failures"
_HEALTH_PATHS: Final = frozenset({"/livez", "/readyz", "/healthz"})
_PATH: Final = web.RequestKey("path", str)
_LOG = logging.getLogger("gantry.local.apiserver")


class ApiServer:
    """Serves one registry on one loopback port.

    Args:
        registry: The verbs.
        token: The bearer token every request must carry.
        read_log: Serves ``pods/log``; None answers 404.
        bookmark_interval_s: Between bookmarks on an idle watch.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        token: str,
        read_log: LogReader | None = None,
        bookmark_interval_s: float = BOOKMARK_INTERVAL_S,
    ) -> None:
        self.registry = registry
        self._token = f"Bearer {token}".encode()
        # kubectl sends tokens over TLS only; a secret path serves it as well on loopback.
        self._secret_path = f"/k/{token}"
        self._read_log = read_log
        self._bookmark_interval_s = bookmark_interval_s
        self._watches: set[WatchStream] = set()
        self._runner: web.AppRunner | None = None
        self._documents: dict[routes.Discovery, tuple[int, bytes]] = {}
        self._openapi = openapi.Documents(registry.catalogue)

    async def start(self, listener: socket.socket) -> str:
        """Serve on a listening socket; returns the base URL."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._guard])
        app.router.add_route("*", "/{path:.*}", self._dispatch)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.SockSite(self._runner, listener).start()
        host, port = listener.getsockname()[:2]
        return f"http://{host}:{port}"

    async def stop(self) -> None:
        """End every watch and stop listening."""
        for stream in tuple(self._watches):
            stream.end()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            request[_PATH] = self._authorized_path(request)
            return await handler(request)
        except errors.StatusError as error:
            return replies.refused(error)
        except web.HTTPRequestEntityTooLarge:
            return replies.refused(errors.too_large(MAX_BODY_BYTES))
        except web.HTTPException:
            raise
        except Exception:  # noqa: BLE001  # a fault in one request must not end the server
            _LOG.exception("request failed method=%s path=%s", request.method, request.path)
            return replies.refused(errors.internal("internal error; see the daemon's log"))

    def _authorized_path(self, request: web.Request) -> str:
        """The path below the API's root; 401 unless token, secret path or an open path."""
        path = request.path
        prefix = path[: len(self._secret_path)].encode()
        if hmac.compare_digest(prefix, self._secret_path.encode()):
            return path[len(self._secret_path) :]
        given = request.headers.get("Authorization", "").encode()
        if path not in _HEALTH_PATHS and not hmac.compare_digest(given, self._token):
            raise errors.unauthorized()
        return path

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        path = request[_PATH]
        if path in _HEALTH_PATHS:
            return web.Response(text="ok")
        if path == "/version":
            return replies.as_json(discovery.version())
        if path == FAILURES_PATH:
            return replies.as_json(self.registry.store.failures)
        if path.startswith(openapi.ROOT):
            return replies.raw(self._openapi.encoded(path))
        target = routes.parse(path)
        if isinstance(target, routes.Discovery):
            return self._serve_discovery(target)
        resource = self._resource(target)
        verb = handlers.verb_of(request, target)
        if target.subresource == "log":
            return await self._serve_log(request, target)
        match verb:
            case "get":
                return handlers.get(self.registry, request, resource, target)
            case "list":
                return handlers.list_objects(self.registry, request, resource, target)
            case "watch":
                return await self._watch(request, resource, target)
        return await handlers.write(self.registry, request, resource, target, verb)

    def _resource(self, target: Target) -> ResourceType:
        resource = self.registry.catalogue.find(target.group, target.version, target.plural)
        misplaced = target.namespace is not None and not resource.namespaced
        homeless = target.name and target.namespace is None and resource.namespaced
        unknown = target.subresource and target.subresource not in resource.subresources
        if misplaced or homeless or unknown:
            raise errors.no_such_path()
        return resource

    def _serve_discovery(self, asked: routes.Discovery) -> web.Response:
        version, body = self._documents.get(asked, (-1, b""))
        if version != self.registry.catalogue.version:
            body = msgspec.json.encode(discovery.document(self.registry, asked))
            self._documents[asked] = (self.registry.catalogue.version, body)
        return replies.raw(body)

    async def _serve_log(self, request: web.Request, target: Target) -> web.StreamResponse:
        if self._read_log is None or request.method != "GET":
            raise errors.no_such_path()
        return await self._read_log(request, target.namespace or "", target.name)

    async def _watch(
        self, request: web.Request, resource: ResourceType, target: Target
    ) -> web.StreamResponse:
        if len(self._watches) >= MAX_WATCHES:
            raise errors.too_many_requests(5)
        options = handlers.watch_options(request)
        selector = handlers.selector_of(request, resource, target)
        stream = self._stream(resource, target.namespace, selector, options)
        self._watches.add(stream)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        deadline = asyncio.get_running_loop().call_later(options.timeout_s, stream.end)
        ticker = asyncio.create_task(self._bookmarks(stream)) if options.bookmarks else None
        try:
            await response.prepare(request)
            while (chunk := await stream.take()) is not None:
                await response.write(chunk)
            if stream.aborted and request.transport is not None:
                request.transport.abort()
        except (ConnectionResetError, ConnectionAbortedError):
            pass  # the reader went away; nothing is owed to it
        finally:
            deadline.cancel()
            if ticker is not None:
                ticker.cancel()
            self._watches.discard(stream)
            stream.close()
        return response

    def _stream(
        self, resource: ResourceType, namespace: str | None, selector: Selector, asked: WatchOptions
    ) -> WatchStream:
        return WatchStream(self.registry.store, resource, namespace, selector, asked)

    async def _bookmarks(self, stream: WatchStream) -> None:
        while True:
            await asyncio.sleep(self._bookmark_interval_s)
            stream.bookmark()
