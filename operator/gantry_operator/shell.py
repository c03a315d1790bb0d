"""kopf, as far as it is used: watch streams with back-off, credentials, and nothing else.

Its handlers only hear (`on.event`): no progress annotations, no finalizers, no timers, no index. It
is embedded through `spawn_tasks` and never started from a file path. Its own `operator()` is not
used because at its end it waits five seconds for, and then cancels, every task in the loop that was
created after it, which would be the workers and the HTTP server.

A watch goes on from a list, and what is deleted before that list is reported by nobody. So each
watch that begins from a new list is told of (`Listed`), at start and whenever the API server has
forgotten the version that a watch had come to.

This is the only module that knows kopf's machinery, so that it can be replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import aiohttp
import kopf
from gantry_protocol.errors import EXIT_TEMPORARY, GantryError
from gantry_protocol.process import log, runtime
from kopf._core.reactor.inventory import ResourceMemories, ResourceMemory

from gantry_operator import names
from gantry_operator.api.kinds import CUSTOM, WATCHED, Kind
from gantry_operator.api.protocol import Body

if TYPE_CHECKING:
    from gantry_operator.api.credentials import Credentials

STOP_S = 5.0
_log = log.get("watch")

Hear = Callable[[Kind, str | None, Body], None]
"""Called with kind, type of the event (None for an initial list) and object."""

Listed = Callable[[Kind, str | None], None]
"""Called with kind and namespace (None for all) when a watch begins from a new list."""


class WatchEndedError(GantryError):
    """The watches ended; the process starts again with new ones."""

    exit_code = EXIT_TEMPORARY


_IDENTITY = cast("Any", names.FIELD_MANAGER)
"""Of peers, of which there are none. Else kopf asks for the user's name, and a user that the
platform assigned has none."""


class _NoEssence(kopf.DiffBaseStorage):
    """Nobody asks what changed, so no copy of each object is made on each event.

    Measured: these copies were a third of the operator's time while a thousand objects came up.
    """

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> Any:
        return None

    def store(self, **_: Any) -> None:
        return None


class _NoProgress(kopf.ProgressStorage):
    """Handlers that only hear make no progress that could be kept."""

    def fetch(self, **_: Any) -> Any:
        return None

    def store(self, **_: Any) -> None:
        return None

    def purge(self, **_: Any) -> None:
        return None

    def touch(self, **_: Any) -> None:
        return None

    def clear(self, *, essence: Any) -> Any:
        return essence


class _NoMemories(ResourceMemories):
    """Nothing is remembered of an object from one event to the next.

    Handlers that only hear need nothing of that, and for the fifty thousand objects of five
    thousand groups it would be fifty megabytes.
    """

    async def recall(self, raw_body: Any, **_: Any) -> ResourceMemory:
        return await super().recall(raw_body, ephemeral=True)


def kopf_settings() -> kopf.OperatorSettings:
    """The settings that differ from kopf's defaults, each with its reason."""
    settings = kopf.OperatorSettings()
    # With a limit, throughput would be limit ÷ idle timeout. Workers of idle objects go soon.
    settings.queueing.worker_limit = None
    settings.queueing.idle_timeout = 0.1
    # A hung request must not stall a watch for five minutes.
    settings.networking.request_timeout = 30
    # An int: the API server does not parse 300.0. Streams are renewed before middle boxes cut them.
    settings.watching.server_timeout = 300
    # Bounds what is held of initial lists, which all watches read at the same time.
    settings.watching.chunk_size = 50
    # Events are the operator's own, few and deduplicated.
    settings.posting.enabled = False
    # Two kopf operators must not share these, although neither is ever written here.
    settings.persistence.finalizer = f"{names.GROUP}/kopf"
    settings.persistence.diffbase_storage = _NoEssence()
    settings.persistence.progress_storage = _NoProgress()
    # No list and watch of namespaces and CRDs: a namespaced operator has no right to them.
    settings.scanning.disabled = True
    # Otherwise kopf kills the process ten minutes after a stop that it did not cause.
    settings.process.ultimate_exiting_timeout = None
    for kind in WATCHED:
        if kind not in CUSTOM:
            selectors = settings.watching.label_selectors
            selectors[kind.group, kind.version, kind.plural] = names.MANAGED_SELECTOR
    return settings


class _Reopening:
    """A session as far as kopf uses one; a request after its end opens it again.

    When one watch fails, kopf forgets the others, closes the session and leaves them to go on until
    the process ends. With a closed session they would wait for a login that never comes, and no
    cancellation would reach them.
    """

    closed = False

    def __init__(self, make: Callable[[], aiohttp.ClientSession]) -> None:
        self._make = make
        self._session = make()
        self.headers = self._session.headers

    async def request(self, **arguments: Any) -> aiohttp.ClientResponse:
        if self._session.closed:
            self._session = self._make()
        return await self._session.request(**arguments)

    async def close(self) -> None:
        await self._session.close()


class Sessions:
    """Connections for kopf, on which the beginnings of watches are noticed.

    A request for a list is remembered until the first watch of the same collection; a watch that
    only goes on where the last one was cut has no list before it.
    """

    def __init__(self, credentials: Credentials, namespaces: Sequence[str], listed: Listed) -> None:
        self._credentials = credentials
        self._scopes: list[str | None] = list(namespaces) or [None]
        self._listed = listed
        self._lists: set[str] = set()

    async def login(self, **_: Any) -> kopf.AiohttpSession:
        """A session with fresh credentials; kopf closes it."""
        await self._credentials.load()
        info = await self._credentials.connection()
        paths = {
            urlsplit(info.server).path.rstrip("/") + kind.path(scope): (kind, scope)
            for kind in WATCHED
            for scope in self._scopes
        }

        async def note(_: Any, __: Any, request: aiohttp.TraceRequestStartParams) -> None:
            path = request.url.path
            if path not in paths:
                return
            if "watch" not in request.url.query:
                self._lists.add(path)
            elif path in self._lists:
                self._lists.discard(path)
                self._listed(*paths[path])

        trace = aiohttp.TraceConfig()
        trace.on_request_start.append(note)

        def make() -> aiohttp.ClientSession:
            return aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
                headers=info.as_http_headers(),
                proxy=info.proxy_url,
                trust_env=info.trust_env,
                trace_configs=[trace],
            )

        session = cast("aiohttp.ClientSession", _Reopening(make))
        return kopf.AiohttpSession(server=info.server, aiohttp_session=session)


def kopf_registry(sessions: Sessions, hear: Hear) -> kopf.OperatorRegistry:
    """Handlers that only hear, and a login that uses our credentials."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(sessions.login)

    for kind in WATCHED:
        _listen(registry, kind, hear)
    return registry


def _listen(registry: kopf.OperatorRegistry, kind: Kind, hear: Hear) -> None:
    @kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=kind.plural)
    async def handler(event: Any, **_: Any) -> None:
        hear(kind, event["type"], dict(event["object"]))


async def run_watches(
    credentials: Credentials,
    namespaces: Sequence[str],
    hear: Hear,
    listed: Listed,
) -> None:
    """Watches until cancelled.

    Raises:
        WatchEndedError: kopf ended by itself; it does so on errors inside a stream.
    """
    sessions = Sessions(credentials, namespaces, listed)
    tasks = await kopf.spawn_tasks(
        registry=kopf_registry(sessions, hear),
        settings=kopf_settings(),
        memories=_NoMemories(),
        standalone=True,
        identity=_IDENTITY,
        clusterwide=not namespaces,
        namespaces=list(namespaces),
    )
    runtime.take_signals()  # kopf has its own handlers, which fail on a second signal
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        causes = [error for task in done if not task.cancelled() and (error := task.exception())]
        reason = causes[0] if causes else "without an error"
        raise WatchEndedError(f"The watches ended ({reason}); the operator starts again.")
    finally:
        for task in tasks:
            task.cancel()
        _, pending = await asyncio.wait(tasks, timeout=STOP_S)
        if pending:
            _log.warning("kopf did not stop in time", tasks=len(pending))
