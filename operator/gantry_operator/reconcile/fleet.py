"""The fleet as the cache has it: which image does a group get now?

A look at the whole fleet costs a few microseconds for each object of it. So a group far from its
turn is answered from the last look for a few seconds, which can only make it wait. A turn is given
by a fresh look alone, and the StatefulSet that was written is in the cache before anybody else can
be given one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_operator import names
from gantry_operator.api.kinds import (
    BROKER_GROUP,
    CONTROLLER_GROUP,
    CUSTOM,
    DEPLOYMENT,
    FRONT_GROUP,
    POD,
    STATEFULSET,
)
from gantry_operator.cache import Cache, Key
from gantry_operator.plan.front_steps import rolled_out
from gantry_operator.plan.objects import container
from gantry_operator.plan.observed import pod_view
from gantry_operator.plan.turns import ImageWait, Line, Place, line_up
from gantry_operator.plan.workload import fenced_in, workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gantry_operator.metrics import Metrics
    from gantry_operator.plan.observed import Body

LOOK_S = 5.0
GIVEN_S = 60.0
"""How long a turn that was given and not used keeps the next from being given."""
NOBODY = Line(under_way=(), waiting=(), turns=0)
_WORKLOADS = {
    CONTROLLER_GROUP.kind: (STATEFULSET, names.CONTROLLER, names.controller_statefulset),
    BROKER_GROUP.kind: (STATEFULSET, names.BROKER, names.broker_statefulset),
    FRONT_GROUP.kind: (DEPLOYMENT, names.FRONT, names.front_deployment),
}
"""By kind of resource: what runs its pods, their container, and the name of the former."""


class Fleet:
    """Gives each group its image.

    Args:
        cache: what exists.
        image: the default image.
        at_a_time: how many groups may roll to it at a time.
        metrics: where the line is shown.
    """

    def __init__(self, cache: Cache, image: str, at_a_time: int, metrics: Metrics) -> None:
        self._cache = cache
        self._image = image
        self._at_a_time = at_a_time
        self._metrics = metrics
        self._line = NOBODY
        self._looked_s = float("-inf")
        self._given: dict[tuple[str, str, str], float] = {}

    def image_of(self, key: Key, body: Body) -> tuple[str, ImageWait | None]:
        """The default image for a group, and what it waits for if it has not got the operator's.

        A group whose changes wait for a person is given the image at once, to be announced, and
        stands in line once it is approved.
        """
        place = self._place(key, body)
        if place is None or place.image == self._image or waits_for_approval(body):
            return self._image, None
        line = self._line if self._is_far(place) else self._look()
        if line.has_turn(place.id) and self._give(place, line):
            return self._image, None
        position = line.position(place.id)
        image = self._image if _is_supervised(body) else place.image
        return image, ImageWait(self._image, self._at_a_time, position)

    def _give(self, place: Place, line: Line) -> bool:
        """Gives a turn, unless as many were given whose StatefulSets are not in the cache yet."""
        now_s = asyncio.get_running_loop().time()
        on_their_way = {
            other: given_s
            for other, given_s in self._given.items()
            if other in line.waiting and other != place.id and now_s - given_s < GIVEN_S
        }
        if len(on_their_way) >= line.turns:
            return False
        self._given = on_their_way | {place.id: now_s}
        return True

    def _is_far(self, place: Place) -> bool:
        """Whether the last look says that a group's turn does not come soon."""
        fresh = asyncio.get_running_loop().time() - self._looked_s < LOOK_S
        return fresh and place.id in self._line.waiting[self._at_a_time :]

    def _look(self) -> Line:
        self._line = line_up(self._places(), self._image, self._at_a_time)
        self._looked_s = asyncio.get_running_loop().time()
        self._metrics.image_groups.labels("under_way").set(len(self._line.under_way))
        self._metrics.image_groups.labels("waiting").set(len(self._line.waiting))
        return self._line

    def _places(self) -> Iterator[Place]:
        for kind in CUSTOM:
            for namespace, name in self._cache.names(kind):
                body = self._cache.get(kind, namespace, name)
                if body is None:
                    continue
                place = self._place(Key(kind.kind, namespace, name), body)
                if place is not None:
                    yield place

    def _place(self, key: Key, body: Body) -> Place | None:
        """A group's place; None if it has an image of its own, or nothing runs its pods yet."""
        spec = body.get("spec") or {}
        if spec.get("image"):
            return None
        kind, component, name = _WORKLOADS[key.kind]
        found = self._cache.get(kind, key.namespace, name(key.name))
        ours = None if found is None else container(found, component)
        image = None if ours is None else ours.get("image")
        if found is None or image is None:
            return None
        deleting = body["metadata"].get("deletionTimestamp") is not None
        return Place(
            *key,
            image=image,
            well=rolled_out(found) if kind is DEPLOYMENT else self._is_well(key, found, body),
            rolls=not spec.get("paused") and not deleting,
            usable=_is_usable(body) and not waits_for_approval(body),
        )

    def _is_well(self, key: Key, statefulset: Body, body: Body) -> bool:
        """Whether nothing is left of a roll; a set that was never changed has had none."""
        if statefulset["metadata"].get("generation") == 1:
            return True
        pods = tuple(pod_view(body) for body in self._cache.owned(key, POD))
        load = workload(statefulset, pods, fenced_in(body))
        if load is None or load.revision is None or load.disturbance() or load.outdated():
            return False
        return all(pod.ready for pod in load.unfenced())


def _is_supervised(body: Body) -> bool:
    update = (body.get("spec") or {}).get("update") or {}
    return bool(update.get("strategy") == "Supervised")


def waits_for_approval(body: Body) -> bool:
    """Whether nobody has approved what the group's status announces; it takes no turn until then.

    What it does not announce yet is not approved either.
    """
    update = (body.get("spec") or {}).get("update") or {}
    announced = ((body.get("status") or {}).get("pendingChange") or {}).get("id")
    return _is_supervised(body) and (announced is None or announced != update.get("approved"))


def _is_usable(body: Body) -> bool:
    """Whether the last reconcile could write the group's objects, or none has said."""
    for condition in (body.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Accepted":
            return bool(condition.get("status") != "False")
    return True
