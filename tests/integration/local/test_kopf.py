"""The real kopf, embedded as the operator embeds it, against the stand-in API server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

import kopf
import pytest
from gantry_local.apiserver.admission import Options
from gantry_local.apiserver.deletion import DeleteOptions
from support.patience import PATIENCE_S
from support.pretend_cluster import StandaloneServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.test.gantry.dev"},
    "spec": {
        "group": "test.gantry.dev",
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"size": {"type": "integer"}}}
                        },
                    }
                },
            }
        ],
    },
}


class Seen:
    """What kopf reported, newest last."""

    def __init__(self) -> None:
        self.events: list[tuple[str | None, str, int | None]] = []
        self._changed = asyncio.Event()

    def note(self, kind: str | None, name: str, size: int | None) -> None:
        self.events.append((kind, name, size))
        self._changed.set()

    async def until(
        self, check: Callable[[list[tuple[str | None, str, int | None]]], bool]
    ) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not check(self.events):
                self._changed.clear()
                await self._changed.wait()


@contextlib.asynccontextmanager
async def embedded(server: StandaloneServer, seen: Seen) -> AsyncIterator[None]:
    registry = kopf.OperatorRegistry()
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.watching.reconnect_backoff = 0.05
    settings.watching.inactivity_timeout = 1.0
    settings.networking.error_backoffs = [0.05, 0.1, 0.2]

    @kopf.on.event("test.gantry.dev", "v1", "widgets", registry=registry)
    async def on_event(type: str | None, name: str, spec: Any, **_: Any) -> None:  # noqa: A002  # kopf's keyword
        seen.note(type, name, spec.get("size"))

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=server.url, token=server.token)

    stop = asyncio.Event()
    task = asyncio.create_task(
        kopf.operator(
            registry=registry,
            settings=settings,
            namespaces=["default"],
            standalone=True,
            stop_flag=stop,
        )
    )
    try:
        yield
    finally:
        stop.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Widgets:
    """Arranges widgets on the server without HTTP."""

    def __init__(self, server: StandaloneServer) -> None:
        self._registry = server.registry

    @property
    def type(self) -> Any:
        return self._registry.catalogue.type("test.gantry.dev", "widgets")

    def create(self, name: str, size: int) -> None:
        body = {"metadata": {"name": name}, "spec": {"size": size}}
        self._registry.create(self.type, "default", body, Options())

    def resize(self, name: str, size: int) -> None:
        patch = {"spec": {"size": size}}
        kind = "application/merge-patch+json"
        self._registry.patch(self.type, "default", name, kind, patch, Options())

    def delete(self, name: str) -> None:
        self._registry.delete(self.type, "default", name, DeleteOptions())


@pytest.fixture
async def server() -> AsyncIterator[StandaloneServer]:
    logging.getLogger("kopf").setLevel(logging.CRITICAL)
    async with StandaloneServer(bookmark_interval_s=0.2) as running:
        running.apply(CRD)
        yield running


async def test_add_modify_delete_are_seen(server: StandaloneServer) -> None:
    seen, widgets = Seen(), Widgets(server)
    widgets.create("early", 1)
    async with embedded(server, seen):
        await seen.until(lambda events: (None, "early", 1) in events)
        widgets.create("late", 2)
        await seen.until(lambda events: ("ADDED", "late", 2) in events)
        widgets.resize("late", 3)
        await seen.until(lambda events: ("MODIFIED", "late", 3) in events)
        widgets.delete("late")
        await seen.until(lambda events: ("DELETED", "late", 3) in events)


async def test_a_dropped_stream_is_resumed_without_loss(server: StandaloneServer) -> None:
    seen, widgets = Seen(), Widgets(server)
    async with embedded(server, seen):
        widgets.create("a", 1)
        await seen.until(lambda events: any(e[1:] == ("a", 1) for e in events))
        assert server.api.drop_watches("widgets") == 1
        widgets.resize("a", 2)
        await seen.until(lambda events: ("MODIFIED", "a", 2) in events)


async def test_after_410_everything_is_listed_again(server: StandaloneServer) -> None:
    seen, widgets = Seen(), Widgets(server)
    async with embedded(server, seen):
        widgets.create("a", 1)
        await seen.until(lambda events: any(e[1:] == ("a", 1) for e in events))
        server.api.expire_watches("widgets")
        widgets.resize("a", 2)
        await seen.until(lambda events: (None, "a", 2) in events)


async def test_a_deletion_in_the_gap_of_a_410_is_never_reported(server: StandaloneServer) -> None:
    seen, widgets = Seen(), Widgets(server)
    async with embedded(server, seen):
        widgets.create("kept", 1)
        widgets.create("lost", 1)
        await seen.until(lambda events: {"kept", "lost"} <= {e[1] for e in events})
        server.api.expire_watches("widgets")
        widgets.delete("lost")
        await seen.until(lambda events: (None, "kept", 1) in events[2:])
        assert not [event for event in seen.events if event[0] == "DELETED"]


async def test_a_silent_stream_is_given_up_and_reopened(server: StandaloneServer) -> None:
    seen, widgets = Seen(), Widgets(server)
    async with embedded(server, seen):
        widgets.create("a", 1)
        await seen.until(lambda events: any(e[1:] == ("a", 1) for e in events))
        before = server.api.silence_watches("widgets")
        assert before == 1
        widgets.resize("a", 2)
        await asyncio.sleep(0)
        server.api.faults.silent.clear()  # only streams opened later are audible again
        await seen.until(lambda events: ("MODIFIED", "a", 2) in events)


async def test_429_on_the_list_is_retried(server: StandaloneServer) -> None:
    from support.api_faults import Rule

    seen, widgets = Seen(), Widgets(server)
    widgets.create("a", 1)
    server.api.faults.add(Rule(code=429, verb="list", plural="widgets", count=2, retry_after_s=0))
    async with embedded(server, seen):
        await seen.until(lambda events: (None, "a", 1) in events)
    assert server.api.faults.rules() == []
