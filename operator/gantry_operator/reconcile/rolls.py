"""Turns to roll, whatever the change: which broker groups may begin to restart their pods now?

`Fleet` gives turns for a new default image. A change of many specs at once, as one commit may be,
is not known to it. With a number of rolls at a time a group announces its change first, and begins
when fewer than so many others are under way.

Rule protected: only a group that is well waits. One whose pods are not all Ready and of its present
template is under way itself, or needs the change to be mended, and waits for nobody.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_operator import names
from gantry_operator.api.kinds import BROKER_GROUP, POD, STATEFULSET
from gantry_operator.cache import Key
from gantry_operator.plan.observed import pod_view
from gantry_operator.plan.turns import RollTurn
from gantry_operator.plan.workload import fenced_in, workload
from gantry_operator.reconcile.fleet import GIVEN_S, LOOK_S, waits_for_approval

if TYPE_CHECKING:
    from gantry_operator.cache import Cache
    from gantry_operator.plan.observed import Body


class Rolls:
    """Gives turns.

    Args:
        cache: what exists.
        at_a_time: how many groups may be under way; None where nobody waits.
    """

    def __init__(self, cache: Cache, at_a_time: int | None) -> None:
        self._cache = cache
        self._at_a_time = at_a_time
        self._given: dict[Key, float] = {}
        self._full_until_s = float("-inf")
        self._waiting = 1

    def turn_of(self, key: Key, body: Body) -> RollTurn | None:
        """A group's turn; None if it needs none: it waits for nobody."""
        if self._at_a_time is None or not self._is_well(key, new_is_well=False):
            return None
        turn = RollTurn(at_a_time=self._at_a_time, waiting=self._waiting, given=False)
        if not _announces(body) or waits_for_approval(body):
            return turn
        now_s = asyncio.get_running_loop().time()
        if key not in self._given and now_s < self._full_until_s:
            return turn
        if self._room_for(key, now_s) <= 0:
            self._full_until_s = now_s + LOOK_S
            return RollTurn(at_a_time=self._at_a_time, waiting=self._waiting, given=False)
        self._given[key] = now_s
        return RollTurn(at_a_time=self._at_a_time, waiting=self._waiting, given=True)

    def _room_for(self, key: Key, now_s: float) -> int:
        """How many more may begin, this group not counted; and how many wait."""
        assert self._at_a_time is not None, "asked for above"
        under_way = waiting = 0
        given: dict[Key, float] = {}
        for namespace, name in self._cache.names(BROKER_GROUP):
            other = Key(BROKER_GROUP.kind, namespace, name)
            body = self._cache.get(BROKER_GROUP, namespace, name)
            if body is None or other == key or not _may_roll(body):
                continue
            given_s = self._given.get(other)
            if not self._is_well(other, new_is_well=True):
                under_way += 1
            elif _announces(body) and given_s is not None and now_s - given_s < GIVEN_S:
                under_way += 1  # its StatefulSet is about to be written
                given[other] = given_s
            elif _announces(body) and not waits_for_approval(body):
                waiting += 1
        self._given, self._waiting = given, waiting + 1
        return self._at_a_time - under_way

    def _is_well(self, key: Key, *, new_is_well: bool) -> bool:
        """Whether all pods are Ready and of the present template; none need be there.

        Args:
            key: which group.
            new_is_well: the answer for a StatefulSet that was never changed, which rolls nothing.
        """
        found = self._cache.get(STATEFULSET, key.namespace, names.broker_statefulset(key.name))
        if found is None or not found["spec"].get("replicas"):
            return new_is_well
        if new_is_well and found["metadata"].get("generation") == 1:
            return True
        pods = tuple(pod_view(body) for body in self._cache.owned(key, POD))
        load = workload(found, pods, fenced_in(self._cache.get(BROKER_GROUP, *key[1:]) or {}))
        if load is None or load.revision is None or load.disturbance() or load.outdated():
            return False
        return all(pod.ready for pod in load.unfenced())


def _announces(body: Body) -> bool:
    return bool((body.get("status") or {}).get("pendingChange"))


def _may_roll(body: Body) -> bool:
    """Whether a group may be restarted at all: neither paused nor being deleted."""
    paused = (body.get("spec") or {}).get("paused")
    return not paused and body["metadata"].get("deletionTimestamp") is None
