"""A cluster whose pods are only objects: API server and controllers, nothing is executed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from gantry_local.apiserver.ambient import SystemAmbient
from gantry_local.apiserver.standalone import StandaloneServer
from gantry_local.controllers.direct import Direct
from gantry_local.controllers.runner import Runner
from gantry_local.kubelet.pretend import PretendKubelet
from gantry_local.runtime import controllers

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class PretendCluster(StandaloneServer):
    """``async with PretendCluster() as cluster``: for tests of the operator, small or large.

    Attributes:
        kubelet: Decides which pods become Ready (all of them unless told otherwise).
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        ambient = SystemAmbient()
        self.kubelet = PretendKubelet(Direct(self.registry, "kubelet", ambient))
        parts = controllers(self.registry, ambient, lambda _volume: None)
        self._runner = Runner(self.registry.store, [*parts, self.kubelet])
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._task = asyncio.create_task(self._runner.run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await super().__aexit__(kind, error, trace)
