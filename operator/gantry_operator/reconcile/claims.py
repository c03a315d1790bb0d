"""The claims of volumes, read by name: which quorum do they say they belong to, and how large?

They are not watched: the operator needs no more of them than the first, at the start of a quorum
and once for each pod, and the second, while they are to grow. What was read and is as it should be
is not read again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gantry_operator import names
from gantry_operator.api.errors import Denied, NotFound
from gantry_operator.api.kinds import CLAIM
from gantry_operator.plan.growth import RETRY_S, has_grown
from gantry_operator.plan.observed import (
    ClaimView,
    RefusedGrowth,
    VolumeView,
    claim_view,
    volume_view,
)
from gantry_operator.plan.volumes import claim_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_operator.api.protocol import Body, ReadOnlyApi
    from gantry_operator.cache import Key
    from gantry_operator.models import ControllerGroup
    from gantry_operator.plan.observed import PodView

MAX_CONTROLLERS = 5
Settled = dict[tuple[str, str], dict[str, tuple[str, int]]]


class Claims:
    """ReadOnlyApi claims; remembers with which pod, and of how many, a controller's was settled.

    Args:
        api: where they are read.
        clock: seconds, by which what was refused is tried again.
    """

    def __init__(self, api: ReadOnlyApi, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._settled: Settled = {}
        self._grown: dict[Key, tuple[str, frozenset[str]]] = {}
        self._refused: dict[Key, dict[str, tuple[str, str, float]]] = {}

    async def of(
        self, group: ControllerGroup, pods: tuple[PodView, ...], *, running: bool
    ) -> tuple[ClaimView, ...]:
        """The claims, as far as a plan needs them.

        Before there is a StatefulSet (`running` is false) that is every claim that exists; later
        those of Ready pods on which no mark of this size was seen yet.

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
            known = ready.get(ordinal, ""), group.spec.replicas
            if ordinal not in ready or settled.get(name) == known:
                continue
            claim = await self._read(meta.namespace, name)
            if claim is not None and claim.quorum and claim.size == group.spec.replicas:
                settled[name] = known
            if claim is not None:
                result.append(claim)
        return tuple(result)

    async def volumes(
        self, key: Key, pods: tuple[PodView, ...], size: str
    ) -> tuple[VolumeView, ...] | None:
        """The claims of these pods; None when all are known to have a size.

        That is remembered for these very pods: a later one may have a smaller volume.

        Raises:
            ApiError: the API server did not say whether one exists.
        """
        known = size, frozenset(pod.uid for pod in pods)
        if self._grown.get(key) == known:
            return None
        found = []
        for pod in pods:
            body = await self._get(key.namespace, f"data-{pod.name}")
            if body is not None:
                found.append(volume_view(body))
        if len(found) == len(pods) and all(has_grown(volume, size) for volume in found):
            self._grown[key] = known
            self._refused.pop(key, None)
        else:
            self._grown.pop(key, None)
        return tuple(found)

    async def left(self, namespace: str, statefulset: str, replicas: int) -> tuple[VolumeView, ...]:
        """The claims that a StatefulSet that is yet to be made would take up.

        Whoever may not read claims, such as a person who plans a group, knows of none.

        Raises:
            ApiError: the API server did not say whether one exists.
        """
        wanted = (f"data-{names.pod(statefulset, ordinal)}" for ordinal in range(replicas))
        try:
            found = [await self._get(namespace, name) for name in wanted]
        except Denied:
            return ()
        return tuple(
            volume_view(body)
            for body in found
            if body is not None and body["metadata"].get("deletionTimestamp") is None
        )

    def refused(self, key: Key) -> dict[str, RefusedGrowth]:
        """The claims of a group that were refused to become larger."""
        now_s = self._clock()
        return {
            name: RefusedGrowth(size, message, due=now_s - at_s >= RETRY_S)
            for name, (size, message, at_s) in self._refused.get(key, {}).items()
        }

    def note(self, key: Key, claim: str, size: str, refusal: str) -> None:
        """Remembers the answer to an attempt to make a claim larger; empty for no refusal."""
        of_group = self._refused.setdefault(key, {})
        of_group.pop(claim, None)
        if refusal:
            of_group[claim] = size, refusal, self._clock()
        if not of_group:
            del self._refused[key]

    def drop(self, key: Key) -> None:
        """Forgets a group that is gone."""
        self._settled.pop((key.namespace, key.name), None)
        self._grown.pop(key, None)
        self._refused.pop(key, None)

    async def _read(self, namespace: str, name: str) -> ClaimView | None:
        body = await self._get(namespace, name)
        if body is None:
            return None
        claim = claim_view(body)
        return None if claim.ending else claim

    async def _get(self, namespace: str, name: str) -> Body | None:
        try:
            return await self._api.get(CLAIM, namespace, name)
        except NotFound:
            return None
