"""An API server that can be told to fail: the local one, with switches that a test holds.

Every fault is stated by its test and bounded by a count or by its removal; nothing is random. It
also has users whose rights are not all that there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

import msgspec
from aiohttp import web
from gantry_local.apiserver import handlers, routes
from gantry_local.apiserver.errors import (
    StatusError,
    conflict,
    expired,
    forbidden,
    internal,
    too_many_requests,
)
from gantry_local.apiserver.http import _PATH as PATH
from gantry_local.apiserver.http import ApiServer
from gantry_local.apiserver.kinds import ResourceType
from gantry_local.apiserver.watching import WatchStream
from support.admission import Refusal
from support.port_forward import forward
from support.rights import Rights, demands_of

Policy = Callable[[dict[str, Any]], Any]
_OPERATIONS: Final = {"POST": "CREATE", "PATCH": "UPDATE", "PUT": "UPDATE", "DELETE": "DELETE"}
MAX_RULES: Final = 100
MAX_DELAY_S: Final = 300.0


class Rule(msgspec.Struct):
    """Delay, then refuse, the next ``count`` requests that match; ``*`` matches everything.

    With code 200 a request is only delayed.
    """

    code: Literal[200, 409, 429, 500]
    verb: str = "*"
    plural: str = "*"
    count: int = 1
    retry_after_s: int = 1
    delay_s: float = 0.0

    def hits(self, verb: str, plural: str) -> bool:
        """Whether the rule applies to a request."""
        return self.count > 0 and self.verb in {"*", verb} and self.plural in {"*", plural}


class Faults:
    """The faults in force."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        # True: every connection is cut without an answer, as if no server were there.
        self.outage = False
        # Watches of these resources deliver nothing, not even bookmarks ("*": all).
        self.silent: set[str] = set()

    def add(self, rule: Rule) -> None:
        """Put a rule in force."""
        if len(self._rules) >= MAX_RULES:
            raise ValueError(f"at most {MAX_RULES} fault rules at a time")
        self._rules.append(rule)

    def clear(self) -> None:
        """No faults."""
        self._rules.clear()
        self.silent.clear()
        self.outage = False

    def rules(self) -> list[Rule]:
        """Rules that can still hit."""
        self._rules = [rule for rule in self._rules if rule.count > 0]
        return list(self._rules)

    async def meet(self, verb: str, resource: ResourceType, name: str) -> None:
        """Let a request meet the first rule that matches it; uses up one count.

        Raises:
            StatusError: what the rule refuses with.
        """
        for rule in self.rules():
            if rule.hits(verb, resource.plural):
                rule.count -= 1
                await asyncio.sleep(min(rule.delay_s, MAX_DELAY_S))
                if rule.code != 200:
                    raise _error(rule, resource, name)
                return

    def is_silent(self, plural: str) -> bool:
        """Whether watches of the resource deliver nothing for now."""
        return bool(self.silent & {"*", plural})


def _error(rule: Rule, resource: ResourceType, name: str) -> StatusError:
    match rule.code:
        case 409:
            return conflict(resource, name)
        case 429:
            return too_many_requests(rule.retry_after_s)
        case _:
            return internal("an injected fault")


class HushedStream(WatchStream):
    """A watch that delivers nothing while it is hushed; what happens meanwhile is queued."""

    hushed = False

    def hush(self, *, on: bool) -> None:
        self.hushed = on
        self._wake.set()

    async def take(self) -> bytes | None:
        while not self.ended and (self.hushed or not self._lines):
            self._wake.clear()
            await self._wake.wait()
        return None if self.hushed else await super().take()


class FaultyApiServer(ApiServer):
    """The API server with its switches."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.faults = Faults()
        self._users: dict[str, Rights] = {}
        self._policies: list[Policy] = []

    @contextmanager
    def rule(self, policy: Policy) -> Iterator[None]:
        """A rule about writes in force, as by an admission webhook (`support.admission`)."""
        self._policies.append(policy)
        try:
            yield
        finally:
            self._policies.remove(policy)

    async def _judge(
        self, request: web.Request, resource: ResourceType, target: routes.Target
    ) -> None:
        name = target.name
        if self._policies and request.method == "POST":
            name = (await request.json())["metadata"]["name"]
        for policy in self._policies if request.method in _OPERATIONS else ():
            refusal = policy(
                {
                    "resource": {"resource": resource.plural},
                    "subResource": target.subresource,
                    "operation": _OPERATIONS[request.method],
                    "name": name,
                    "options": {"fieldManager": request.query.get("fieldManager", "")},
                }
            )
            if isinstance(refusal, Refusal):
                message = f"admission webhook policy denied the request: {refusal.message}"
                raise StatusError(refusal.code, "Forbidden", message)

    def admit(self, token: str, rights: Rights) -> None:
        """From now on there is a user of this token, who may do what these rights allow."""
        self._users[f"Bearer {token}"] = rights

    def _rights(self, request: web.Request) -> Rights | None:
        """Those of who asks; None for who may do everything."""
        return self._users.get(request.headers.get("Authorization", ""))

    def _authorized_path(self, request: web.Request) -> str:
        return request.path if self._rights(request) else super()._authorized_path(request)

    def drop_watches(self, plural: str = "*") -> int:
        """Cut the connections of current watches; returns how many."""
        return self._each_watch(plural, WatchStream.abort)

    def expire_watches(self, plural: str = "*") -> int:
        """Forget the history and end current watches with 410."""
        self.compact()
        gone = expired("too old resource version")
        return self._each_watch(plural, lambda stream: stream.fail(gone))

    def fail_watches(self, code: int = 500, plural: str = "*") -> int:
        """End current watches with an ERROR line of the given code."""
        error = StatusError(code, "InternalError", "an injected fault")
        return self._each_watch(plural, lambda stream: stream.fail(error))

    def silence_watches(self, plural: str = "*") -> int:
        """Current and later watches deliver nothing, not even bookmarks."""
        self.faults.silent.add(plural)
        return self._each_watch(plural, lambda stream: stream.hush(on=True))

    def outage(self, *, on: bool) -> None:
        """While on, every connection is cut without an answer."""
        self.faults.outage = on
        if on:
            self.drop_watches()

    def compact(self) -> None:
        """Forget history and list snapshots: older resourceVersions and tokens answer 410."""
        self.registry.store.compact()
        self.registry.lists.expire_all()

    def _each_watch(self, plural: str, action: Callable[[Any], None]) -> int:
        hit = [stream for stream in self._watches if plural in {"*", stream.resource.plural}]
        for stream in hit:
            action(stream)
        return len(hit)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.faults.outage:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=503)
        return await super()._guard(request, handler)

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        if request[PATH].endswith("/portforward"):
            assert self._rights(request) is None, "no right of the chart's covers that"
            return await forward(request)
        try:
            target = routes.parse(request[PATH])
        except StatusError:
            target = None  # no object's path
        if isinstance(target, routes.Target):
            resource, verb = self._resource(target), handlers.verb_of(request, target)
            rights = self._rights(request)
            if rights is not None:
                for demand in await demands_of(self.registry, request, resource, target, verb):
                    if not rights.allows(demand):
                        raise forbidden(resource, target.name, f"no right to {demand}")
            await self.faults.meet(verb, resource, target.name)
            await self._judge(request, resource, target)
        return await super()._dispatch(request)

    def _stream(self, *args: Any) -> HushedStream:
        stream = HushedStream(self.registry.store, *args)
        stream.hush(on=self.faults.is_silent(stream.resource.plural))
        return stream
