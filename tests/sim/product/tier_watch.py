"""What must never be so in the bucket; judged at each write, by the format's own rules.

====  ============================================================================================
T1    an object is written once
T2-3  the chain of versions folds (``gantry_protocol.tier.chain``)
T4    what a version names is there, with the size and the sum that it says
T5    the bytes of every pack are the confirmed log
T6    nothing beyond what some process has confirmed
T10   nobody deletes of its own log what the tier does not hold
T16   after the faults the tier reaches everything confirmed
====  ============================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_broker.tier.options import tier_place
from gantry_protocol.tier.chain import advance, empty
from gantry_protocol.tier.damage import ChainError
from gantry_protocol.tier.keys import ManKey, PackKey, parse_key
from gantry_protocol.tier.manifests import Append, decode_version
from gantry_protocol.tier.packs import rebuild_log
from sim.kernel.world import Violation

if TYPE_CHECKING:
    from sim.product.bucket import Bucket
    from sim.product.watch import Watch

SHARD = "u1"


class TierWatch:
    """See the module.

    Attributes:
        chain: the fold of what the bucket holds.
    """

    def __init__(self, bucket: Bucket, watch: Watch, cluster_name: str) -> None:
        self.place = tier_place(cluster_name, SHARD)
        self.chain = empty(self.place)
        self._bucket = bucket
        self._watch = watch
        bucket.put = self._written
        watch.more.append(self._look)

    def _look(self) -> None:
        """T10: nobody deletes of its log what the tier does not hold."""
        cluster = self._watch.cluster
        for node in cluster.brokers:
            group = cluster.group_of(node)
            if group is not None and group._store.log.log_start > max(self.chain.end, 0):
                start = group._store.log.log_start
                raise Violation(
                    f"T10: the log of {node.name} begins at {start}, the tier ends at "
                    f"{self.chain.end}"
                )

    def _written(self, key: str, data: bytes) -> None:
        name = parse_key(self.place, key)
        if not isinstance(name, ManKey):
            return
        version = decode_version(data, self.place, name.v)
        try:
            self.chain = advance(self.chain, (version,))
        except ChainError as error:
            raise Violation(f"T2: {error}") from error
        self._watch.cluster.world.note("version", version.v, type(version).__name__, version.end)
        if not isinstance(version, Append):
            return
        self._watch.check()  # what was confirmed a moment ago counts
        for entry in version.add:
            pack = self._bucket.objects.get(self.place.key(entry.key))
            if pack is None or len(pack) != entry.size:
                raise Violation(f"T4: {entry.key} is not there as version {version.v} says")
            packed = parse_key(self.place, self.place.key(entry.key))
            assert isinstance(packed, PackKey)
            log = rebuild_log(pack, self.place, packed)
            confirmed = bytes(self._watch.confirmed[entry.lo : entry.hi])
            if log[: len(confirmed)] != confirmed:
                raise Violation(f"T5: {entry.key} holds other bytes than the confirmed log")
            if entry.hi > len(self._watch.confirmed):
                raise Violation(f"T6: {entry.key} goes beyond what is confirmed")

    def reaches(self, end: int) -> bool:
        """Whether everything below ``end`` is in the tier."""
        return self.chain.end >= end
