"""People who make broker groups with shards, more of them and fewer, and delete them.

What cannot be meant with shards is refused. All shards that are wished come to be Ready, and the
status counts them. One that is not wished any more is drained, retired, and taken off the pods; one
that is wished again has all that was acknowledged in it. A resource that was deleted leaves its
claims, and the controllers know its shards as retired; or it leaves nothing, of no shard that it
ever had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_local.apiserver.errors import StatusError
from gantry_operator import names
from gantry_operator.plan.observed import hosted_shards
from sim.kernel.world import Violation
from sim.product.cluster import SEGMENT_BYTES
from sim.product.guests import SHARDED, Guests

if TYPE_CHECKING:
    from random import Random

    from gantry_cli.client.session import Session

MEANINGLESS: tuple[dict[str, Any], ...] = (  # the API server refuses these
    {"shards": 0},
    {"shards": 2, "clients": {"route": "Master"}},
    {"shards": 2, "switchover": {"id": "x"}},
)
MOST = 3


class ShardedGuests(Guests):
    """See the module."""

    unsettled = "shards are still changed"
    people = "shards-people"
    kind = SHARDED

    async def _one(self, client: Session, name: str, rng: Random) -> None:
        """One resource, from the first mistake to its end."""
        self._refuse(name, rng.choice(MEANINGLESS))
        deletes = rng.random() < 0.5
        spec: dict[str, Any] = {
            "replicas": rng.choice([1, 2]),
            "shards": rng.choice([1, 2]),
            "replication": {"minInSyncReplicas": 1},
            "config": {"log_segment_bytes": str(SEGMENT_BYTES), "disk_spare_bytes": "0"},
            "drain": {"deadlineSeconds": rng.choice([0, 5, 3600])},
            "storage": {"size": "1Gi", "whenDeleted": "Delete" if deletes else "Retain"},
        }
        self._create(name, spec)
        self._books: dict[str, tuple[dict[str, tuple[str, int]], set[str]]] = {}
        self._ever = 0
        await self._come_to(client, name, spec["shards"], rng)
        self._refuse_change(name, {"shards": None})
        for _ in range(2):
            wished = rng.choice([one for one in range(1, MOST + 1) if one != spec["shards"]])
            self._cluster.world.count("sharded-more" if wished > spec["shards"] else "sharded-less")
            spec["shards"] = wished
            self._patch(name, {"shards": wished})
            await self._come_to(client, name, wished, rng)
        await self._end(name, deletes=deletes)

    def _refuse(self, name: str, spec: dict[str, Any]) -> None:
        """Raises Violation: the API server takes what cannot be meant."""
        try:
            self._create(name, {"replicas": 1, **spec})
        except StatusError:
            return
        raise Violation(f"the API server takes {spec}")

    def _refuse_change(self, name: str, spec: dict[str, Any]) -> None:
        try:
            self._patch(name, spec)
        except StatusError:
            return
        raise Violation(f"{name} is changed to {spec}")

    async def _come_to(self, client: Session, name: str, count: int, rng: Random) -> None:
        """Until there are so many shards, each with all that it ever had, and some more."""
        await self._until(f"{name} to have {count} shards", lambda: self._has(name, count))
        self._ever = max(self._ever, count)
        for index in range(count):
            shard = names.shard(name, index)
            self._kept, self._possible = self._books.setdefault(shard, ({}, set()))
            if self._kept:
                await self._read(client, shard)
            await self._send(client, shard, rng)

    def _has(self, name: str, count: int) -> bool:
        shards = self._status(name).get("shards") or {}
        if not self._is_ready(name) or shards.get("ready") != f"{count}/{count}":
            return False
        found = self._cluster.objects("statefulsets", "apps")
        wanted = names.broker_statefulset(name)
        pods = next((obj for obj in found if obj["metadata"]["name"] == wanted), None)
        return hosted_shards(pods) == count and all(
            (self._record(names.shard(name, index)) == "known") is (index < count)
            for index in range(max(self._ever, count))
        )

    async def _end(self, name: str, *, deletes: bool) -> None:
        """Delete it; what it leaves is as the wish says. Raises Violation."""
        resource = self._resource(name)
        assert resource is not None, "only people delete it"
        uid, claims = resource["metadata"]["uid"], self._claims(name)
        if deletes:
            self._cluster.disposable |= set(claims.values())
        self._cluster.remove("brokergroups", name)
        await self._until(f"{name} to go", lambda: self._resource(name) is None)
        await self._until(f"all of {name} to go", lambda: not self._owned(uid))
        left = None if deletes else "retired"
        for index in range(self._ever):
            shard = names.shard(name, index)
            await self._until(f"{shard} to be {left}", lambda one=shard: self._record(one) == left)
        if deletes:
            await self._until(f"the claims of {name} to go", lambda: not self._claims(name))
        elif self._claims(name) != claims:
            raise Violation(f"{name} had {claims}, left {self._claims(name)}")
        self._cluster.world.count("sharded-deleted" if deletes else "sharded-retained")
