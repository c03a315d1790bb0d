"""What happens to objects of the tier: hidden for a while, damaged, removed; the whole bucket, too.

Faults in a schedule, as in ``faults``. A rule of the bucket removes what is oldest, in the order in
which it was written; whether a person restores it once there is peace is drawn with the run. What
is hidden or damaged is as it was after ``for_ms``, as if it had been restored from a copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_broker.tier.options import tier_place
from gantry_protocol.tier.damage import ForeignObject
from gantry_protocol.tier.keys import ManKey, PackKey, parse_key
from sim.kernel.world import MS
from sim.product.cluster import CLUSTER, Cluster
from sim.product.tier_watch import SHARD

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.product.faults import Fault

PLACE = tier_place(CLUSTER, SHARD)
KEPT_OBJECTS = 6  # no rule removes what was written within its time


def _keys(cluster: Cluster, kinds: tuple[type, ...]) -> list[str]:
    """The keys that are shown, in the order in which they were written."""
    bucket = cluster.network.bucket
    return [
        key
        for key in bucket.objects
        if bucket.read(key) is not None and isinstance(parse_key(PLACE, key), kinds)
    ]


def _hide_object(cluster: Cluster, fault: Fault) -> None:
    """A pack or a version is not shown for a while, wherever it stands."""
    bucket = cluster.network.bucket
    keys = _keys(cluster, (ManKey,) if fault.target % 3 == 0 else (PackKey,))
    if not keys:
        return
    key = keys[fault.target // 3 % len(keys)]
    bucket.hidden[key] += 1

    def end() -> None:
        bucket.hidden[key] = max(0, bucket.hidden[key] - 1)

    cluster.world.after(fault.for_ms * MS, end)


def _hide_bucket(cluster: Cluster, fault: Fault) -> None:
    """The bucket looks empty, and takes nothing."""
    bucket = cluster.network.bucket
    bucket.is_away = True
    cluster.world.after(fault.for_ms * MS, setattr, bucket, "is_away", False)


def _damage_object(cluster: Cluster, fault: Fault) -> None:
    """A bit of a pack is another one, or its end is missing."""
    bucket = cluster.network.bucket
    keys = _keys(cluster, (PackKey,))
    if not keys:
        return
    key = keys[fault.target % len(keys)]
    rng = cluster.world.stream(f"damage/{fault.at_ms}")
    data = bytearray(bucket.objects[key])
    at = rng.randrange(len(data))
    if rng.random() < 0.3:
        del data[at:]
    else:
        data[at] ^= 16
    bucket.damaged[key] = bytes(data)
    cluster.world.after(fault.for_ms * MS, bucket.damaged.pop, key, None)


def _remove_oldest(cluster: Cluster, fault: Fault) -> None:
    """A rule of the bucket removes a part of what is there, by its age."""
    bucket = cluster.network.bucket
    there = [key for key in bucket.objects if key not in bucket.removed]
    newest = max((at for at, key in enumerate(there) if _is_version(key)), default=0)
    most = min(newest, len(there) - KEPT_OBJECTS)
    if most > 0:
        cluster.world.count("removed")
        bucket.removed.update(there[: 1 + fault.target % most])


def _is_version(key: str) -> bool:
    try:
        return isinstance(parse_key(PLACE, key), ManKey)
    except ForeignObject:
        return False


KINDS: dict[str, Callable[[Cluster, Fault], None]] = {
    "hide-object": _hide_object,
    "hide-bucket": _hide_bucket,
    "damage-object": _damage_object,
    "remove-oldest": _remove_oldest,
}


class LosingCluster(Cluster):
    """A cluster whose bucket loses objects."""

    more_faults = KINDS
