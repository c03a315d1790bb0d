"""What must never be so in the bucket; judged at each write, by the format's own rules.

=====  ===========================================================================================
T1-3   the chain of versions folds (``gantry_protocol.tier.chain``), by which T9 and T11 hold, too:
       one claim for a pair, nothing appended under another one, no key twice
T4     what a version names is there, with the size and the sum that it says, and stays there
T5     the bytes of every pack are the confirmed log; at the end the bucket alone tells all of it
T6     nothing beyond what some process has confirmed
T7     who serves the newest epoch holds the log around the end of the tier, and no upload halts
T8     what a process takes for the chain is the chain
T10    nobody deletes of its own log what the tier does not hold
T16    after the faults the tier reaches everything confirmed
=====  ===========================================================================================

Every object is a version or a pack of this place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import google_crc32c
from gantry_broker.tier.core.values import State
from gantry_broker.tier.options import tier_place
from gantry_protocol.tier.chain import advance, empty
from gantry_protocol.tier.damage import ChainError, ForeignObject
from gantry_protocol.tier.keys import ManKey, PackKey, parse_key
from gantry_protocol.tier.manifests import Append, decode_version
from gantry_protocol.tier.packs import rebuild_log
from sim.kernel.world import Violation

if TYPE_CHECKING:
    from gantry_broker.tier.core.role import UploadRole
    from gantry_protocol.tier.manifests import PackEntry
    from sim.product.bucket import Bucket
    from sim.product.watch import Watch

SHARD = "u1"


class TierWatch:
    """See the module.

    Attributes:
        chain: the fold of what the bucket holds.
    """

    def __init__(self, bucket: Bucket, watch: Watch, cluster_name: str, shard: str = SHARD) -> None:
        self.place = tier_place(cluster_name, shard)
        self.chain = empty(self.place)
        self._bucket = bucket
        self._sums = {0: self.chain.crc}  # of versions
        bucket.put = self._written
        bucket.deleted = self._deleted
        self.goes_on(watch)

    def goes_on(self, watch: Watch) -> None:
        """From now on what this one says was confirmed counts."""
        self._watch = watch
        watch.more.append(self._look)

    @property
    def first_left(self) -> int:
        """Where the first pack of the chain begins that was not removed."""
        removed, place = self._bucket.removed, self.place
        left = (entry.lo for entry in self.chain.packs if place.key(entry.key) not in removed)
        return next(left, self.chain.end) if removed else 0

    def _look(self) -> None:
        cluster = self._watch.cluster
        for node in cluster.brokers:
            group = cluster.group_of(node)
            if group is None:
                continue
            start = group._store.log.log_start
            if start > max(self.chain.end, 0):
                raise Violation(
                    f"T10: the log of {node.name} begins at {start}, the tier ends at "
                    f"{self.chain.end}"
                )
            if group.tier.service is not None and node.name not in cluster.flipped:
                self._look_at(node.name, group.tier.service.uploader.role)
        master = cluster.master()
        log = None if master is None else cluster.group_of(master)._store.log
        if log is not None and log.end < self.chain.end:
            raise Violation(f"T7: {master} serves up to {log.end}, the tier has {self.chain.end}")

    def _look_at(self, name: str, role: UploadRole) -> None:
        if role.state is State.HALTED:
            raise Violation(f"T7: the upload of {name} halted: {role.status.reason}")
        chain = role.chain
        if chain.crc != self._sums.get(chain.v):
            raise Violation(f"T8: {name} takes another version {chain.v} for the head")

    def _deleted(self, key: str) -> None:
        if any(self.place.key(entry.key) == key for entry in self.chain.packs):
            raise Violation(f"T4: {key} is deleted, and a version names it")

    def _written(self, key: str, data: bytes) -> None:
        try:
            name = parse_key(self.place, key)
        except ForeignObject as error:
            raise Violation(f"foreign: {error}") from error
        if not isinstance(name, ManKey):
            return
        version = decode_version(data, self.place, name.v)
        try:
            self.chain = advance(self.chain, (version,))
        except ChainError as error:
            raise Violation(f"T2: {error}") from error
        self._sums[version.v] = version.crc32c
        self._watch.cluster.world.note("version", version.v, type(version).__name__, version.end)
        if not isinstance(version, Append):
            return
        self._watch.check()  # what was confirmed a moment ago counts
        for entry in version.add:
            log = self._rebuilt(entry)
            confirmed = bytes(self._watch.confirmed[entry.lo : entry.hi])
            if log[: len(confirmed)] != confirmed:
                raise Violation(f"T5: {entry.key} holds other bytes than the confirmed log")
            if entry.hi > len(self._watch.confirmed):
                raise Violation(f"T6: {entry.key} goes beyond what is confirmed")

    def _rebuilt(self, entry: PackEntry) -> bytes:
        """The part of the log that a pack holds. Raises Violation."""
        pack = self._bucket.objects.get(self.place.key(entry.key), b"")
        if (len(pack), f"{google_crc32c.value(pack):08x}") != (entry.size, entry.crc):
            raise Violation(f"T4: {entry.key} is not there as the manifest says")
        packed = parse_key(self.place, self.place.key(entry.key))
        assert isinstance(packed, PackKey)
        return bytes(rebuild_log(pack, self.place, packed))

    def judge(self, within_s: float) -> None:
        """The tier reaches what is confirmed by now, and tells all of it. Raises Violation."""
        end = len(self._watch.confirmed)
        if not self._watch.cluster.run(within_s, until=lambda: self.chain.end >= end):
            raise Violation(f"T16: the tier ends at {self.chain.end}, confirmed is {end}")
        told = b"".join(map(self._rebuilt, self.chain.packs))
        confirmed = bytes(self._watch.confirmed[self.chain.start : self.chain.end])
        if told != confirmed:
            raise Violation("T5: the packs of the bucket are not the confirmed log")
