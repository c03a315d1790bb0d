"""The zones of nodes, for pods that do not carry their node's label.

Kubernetes copies topology labels to pods from version 1.35 on. Before that the nodes say it, which
only an operator that was given that right may read: a node belongs to no namespace.

What it refuses: to guess. A node that cannot be read, or has no such label, has no zone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from gantry_operator import names
from gantry_operator.api.errors import ApiError
from gantry_operator.api.kinds import NODE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_operator.api.protocol import ReadOnlyApi
    from gantry_operator.plan.observed import PodView

KNOWN_S = 300.0
"""A node is read again after so long; its zone is that of its machine, and does not change."""
UNKNOWN_S = 30.0
NODES_MAX = 5_000


class Zones:
    """Completes pods.

    Args:
        api: where nodes are read, one at a time.
    """

    def __init__(self, api: ReadOnlyApi) -> None:
        self._api = api
        self._known: dict[str, tuple[str, float]] = {}

    async def complete(self, pods: Iterable[PodView]) -> tuple[PodView, ...]:
        """The pods, with zones as far as anybody knows them."""
        return tuple([await self._complete(pod) for pod in pods])

    async def _complete(self, pod: PodView) -> PodView:
        if pod.zone or not pod.node:
            return pod
        return msgspec.structs.replace(pod, zone=await self._zone(pod.node))

    async def _zone(self, node: str) -> str:
        now_s = asyncio.get_running_loop().time()
        found, until_s = self._known.get(node, ("", 0.0))
        if now_s < until_s:
            return found
        try:
            body = await self._api.get(NODE, None, node)
        except ApiError:
            zone = found  # what was read before holds while nobody answers
        else:
            zone = (body["metadata"].get("labels") or {}).get(names.LABEL_ZONE) or ""
        if len(self._known) >= NODES_MAX:
            self._known.pop(next(iter(self._known)))
        self._known[node] = zone, now_s + (KNOWN_S if zone else UNKNOWN_S)
        return zone
