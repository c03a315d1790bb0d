"""A quorum of three controller processes, seen through its admin API, for `many_groups`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import aiohttp
from gantry_lab.bench.controller.quorum import ProcessQuorum
from gantry_protocol.admin import GroupDeclaration, GroupList, GroupView
from gantry_protocol.errors import GantryError
from support.loopback_controller import CLUSTER

LOOK_EVERY_S = 0.01  # after the answer to the last look: the grain of what is seen


class RealQuorum:
    """Three processes that sync each write; what they know of the groups is looked at all the time.

    Args:
        directory: for their data and logs; it exists.
    """

    def __init__(self, directory: Path) -> None:
        self.quorum = ProcessQuorum(directory)
        self._groups: dict[str, GroupView] = {}
        self._watch: asyncio.Task[None] | None = None
        self._open = asyncio.Event()

    @property
    def address(self) -> str:
        """Whom brokers talk to."""
        return ",".join(self.quorum.address(node) for node in self.quorum.nodes)

    async def start(self) -> None:
        await self.quorum.__aenter__()
        self._open.set()
        self._watch = asyncio.create_task(self._look())

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        await self.quorum.__aexit__(None, None, None)

    async def declare(self, name: str) -> None:
        wish = GroupDeclaration(uid=name, replicas=3, min_in_sync_replicas=2)
        path = f"/v1/groups/{CLUSTER}/{name}"
        status = await self.quorum.admin("PUT", path, wish.model_dump(mode="json"))
        assert status in (200, 201), status

    def group(self, name: str) -> GroupView | None:
        """As it was at the last look; None if nobody knows it."""
        return self._groups.get(name)

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        """Do not look meanwhile, since that costs controllers and this process something."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    async def _look(self) -> None:
        while True:
            await self._open.wait()
            with suppress(aiohttp.ClientError, TimeoutError, OSError, GantryError):
                url = f"http://{self.quorum.address(self.quorum.leading, 'http')}/v1/groups"
                async with self.quorum.session.get(url) as response:
                    found = GroupList.model_validate_json(await response.read())
                self._groups = {one.name: one for one in found.groups}
            await asyncio.sleep(LOOK_EVERY_S)
