"""The claims of a quorum's volumes, read by name: which quorum do they say they belong to?

They are not watched: the operator needs no more of them than this, at the start of a quorum and
once for each pod. What was read and is as it should be is not read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator.api.errors import NotFound
from gantry_operator.api.kinds import CLAIM
from gantry_operator.plan.observed import ClaimView, claim_view
from gantry_operator.plan.volumes import claim_names

if TYPE_CHECKING:
    from gantry_operator.api.protocol import ReadOnlyApi
    from gantry_operator.models import ControllerGroup
    from gantry_operator.plan.observed import PodView

MAX_CONTROLLERS = 5
Settled = dict[tuple[str, str], dict[str, str]]


class Claims:
    """ReadOnlyApi claims; remembers, by ControllerGroup and claim, with which pod it was settled.

    Args:
        api: where they are read.
    """

    def __init__(self, api: ReadOnlyApi) -> None:
        self._api = api
        self._settled: Settled = {}

    async def of(
        self, group: ControllerGroup, pods: tuple[PodView, ...], *, running: bool
    ) -> tuple[ClaimView, ...]:
        """The claims, as far as a plan needs them.

        Before there is a StatefulSet (`running` is false) that is every claim that exists; later
        those of Ready pods on which no mark was seen yet.

        Raises:
            ApiError: the API server did not say whether one exists.
        """
        meta = group.metadata
        if group.spec.storage.type != "PersistentVolumeClaim":
            return ()
        if not running:
            self._settled.pop((meta.namespace, meta.name), None)
            everything = claim_names(meta.name, MAX_CONTROLLERS)
            found = [await self._read(meta.namespace, name) for name in everything]
            return tuple(claim for claim in found if claim is not None)
        return await self._unsettled(group, pods)

    async def _unsettled(
        self, group: ControllerGroup, pods: tuple[PodView, ...]
    ) -> tuple[ClaimView, ...]:
        meta = group.metadata
        settled = self._settled.setdefault((meta.namespace, meta.name), {})
        ready = {pod.ordinal: pod.uid for pod in pods if pod.ready}
        result = []
        for ordinal, name in enumerate(claim_names(meta.name, group.spec.replicas)):
            if ordinal not in ready or settled.get(name) == ready[ordinal]:
                continue
            claim = await self._read(meta.namespace, name)
            if claim is not None and claim.quorum:
                settled[name] = ready[ordinal]
            if claim is not None:
                result.append(claim)
        return tuple(result)

    def drop(self, namespace: str, group: str) -> None:
        """Forgets a ControllerGroup that is gone."""
        self._settled.pop((namespace, group), None)

    async def _read(self, namespace: str, name: str) -> ClaimView | None:
        try:
            body = await self._api.get(CLAIM, namespace, name)
        except NotFound:
            return None
        claim = claim_view(body)
        return None if claim.ending else claim
