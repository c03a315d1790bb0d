"""Turns to move a master to a zone that is preferred: which broker group may do so now?

A whole zone that comes back makes hundreds of groups ready to move in the same minute, and each
move is a gap in the writes of its group. So a group that could move says so in its status (`Due`),
and one of them gets the turn, here.

Rule protected: no turn is given while another group moves, or was given one that its status does
not show yet. A group that stays so, say since nobody can reach its controllers, keeps the others
waiting for `GIVEN_S` and no longer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_operator.api.kinds import BROKER_GROUP
from gantry_operator.cache import Key
from gantry_operator.reconcile.fleet import GIVEN_S

if TYPE_CHECKING:
    from gantry_operator.cache import Cache
    from gantry_operator.plan.observed import Body


class Moves:
    """Gives the turns.

    Args:
        cache: what exists.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._given: tuple[Key, float] | None = None
        self._moving: dict[Key, tuple[str, float]] = {}

    def turn_of(self, key: Key, body: Body) -> bool:
        """Whether a group may move its master now; always for one that is about to already."""
        told = _told(body)
        if told.get("state") == "Moving":
            return True
        if told.get("state") != "Due":
            return False
        now_s = asyncio.get_running_loop().time()
        if self._given is not None:
            other, given_s = self._given
            if other != key and now_s - given_s < GIVEN_S and self._has_use(other):
                return False
        if self._somebody_moves(key, now_s):
            return False
        self._given = key, now_s
        return True

    def _has_use(self, key: Key) -> bool:
        """Whether a turn that was given is still to be used."""
        body = self._cache.get(BROKER_GROUP, key.namespace, key.name)
        return body is not None and _told(body).get("state") in ("Due", "Moving")

    def _somebody_moves(self, key: Key, now_s: float) -> bool:
        """Whether another group is moving, and has been for less than `GIVEN_S`."""
        before, self._moving = self._moving, {}
        for namespace, name in self._cache.names(BROKER_GROUP):
            other = Key(BROKER_GROUP.kind, namespace, name)
            told = _told(self._cache.get(BROKER_GROUP, namespace, name) or {})
            if other == key or told.get("state") != "Moving":
                continue
            began = str(told.get("since"))
            seen = before.get(other)
            same = seen is not None and seen[0] == began
            self._moving[other] = seen if seen is not None and same else (began, now_s)
        return any(now_s - since_s < GIVEN_S for _, since_s in self._moving.values())


def _told(body: Body) -> Body:
    told = (body.get("status") or {}).get("preferredMaster")
    return told if isinstance(told, dict) else {}
