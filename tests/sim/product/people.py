"""People who write resources and wait for what comes of them, whatever the API server does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sim.kernel.world import Violation
from sim.product.workload import Clients

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.product.operated import OperatedCluster

LOOK_S = 0.2


class People(Clients):
    """See the module.

    Attributes:
        plural: of the resources that these people write.
        waits_for: of whom, for people.
    """

    plural: str
    _cluster: OperatedCluster

    def __init__(self, cluster: OperatedCluster) -> None:
        super().__init__(cluster)
        self.waits_for = ""

    def judge(self) -> None:
        if self._busy:
            raise Violation(f"{self.unsettled}: {self.waits_for}")

    async def _until(self, what: str, holds: Callable[[], bool]) -> None:
        self.waits_for = what
        while not holds():
            await asyncio.sleep(LOOK_S)

    # ---- the API server, and what the controllers know

    def _patch(self, name: str, spec: dict[str, Any]) -> None:
        self._cluster.change(self.plural, name, {"spec": spec})

    def _resource(self, name: str) -> dict[str, Any] | None:
        found = self._cluster.objects(self.plural, "mq.gantry.dev")
        return next((obj for obj in found if obj["metadata"]["name"] == name), None)

    def _status(self, name: str) -> dict[str, Any]:
        """The status; empty unless it is of the present generation."""
        resource = self._resource(name) or {"metadata": {}}
        status = resource.get("status") or {}
        is_present = status.get("observedGeneration") == resource["metadata"].get("generation")
        return status if is_present else {}

    def _condition(self, name: str, kind: str) -> tuple[str, str] | None:
        """Status and reason of a condition of the present generation."""
        conditions = {one["type"]: one for one in self._status(name).get("conditions") or ()}
        found = conditions.get(kind)
        return None if found is None else (found["status"], found["reason"])

    def _is_ready(self, name: str) -> bool:
        return (self._condition(name, "Ready") or ("",))[0] == "True"

    def _owned(self, uid: str) -> list[str]:
        registry = self._cluster.registry
        assert registry is not None
        return [f"{one.resource[1]} {one.key[1]}" for one in registry.store.owned_by(uid)]

    def _state(self) -> Any:
        """The newest state of a controller that runs; None if there is none."""
        states = [
            controller.machine.state
            for controller in map(self._cluster.controller_of, self._cluster.controllers)
            if controller is not None
        ]
        return max(states, key=lambda state: int(state.index), default=None)
