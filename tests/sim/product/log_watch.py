"""What must never be so in the logs of a group's members, their lineages, and their set.

=====  ===========================================================================================
H2     an epoch begins at one place, whoever tells of it; a new one is never refused
H3     bytes at the same (epoch, offset) that are on a disk are the same everywhere
H4     a master serves once (epoch, start) is on its disk
H6     a set epoch names one set, and masters go by the sets that the controllers agreed on
H7     who joins the set holds everything confirmed, and what the epoch began with
H8     nobody's log ends below what was known to be confirmed on that volume
H12    each confirmed record is the next one of its queue
H13    a new master's log has everything that was confirmed in earlier epochs
=====  ===========================================================================================

At the end members that have applied the same log have the same tables (H10, H12).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_broker.log.units import parse_unit
from gantry_broker.member.lineage_file import FILE, load
from sim.kernel.world import Violation

if TYPE_CHECKING:
    from collections.abc import Collection

    from gantry_broker.replica.lineage import Lineage
    from gantry_controller.metadata.state import BrokerGroup
    from sim.product.cluster import Cluster, Node


class LogWatch:
    """See the module.

    Args:
        cluster: that is looked at.
        group: of whose brokers.
        confirmed: the confirmed log, as it is known so far.
    """

    def __init__(self, cluster: Cluster, group: str, confirmed: bytearray) -> None:
        self._cluster = cluster
        self._group = group
        self._confirmed = confirmed
        self._starts: dict[int, int] = {}  # of epochs
        self._lineages: dict[str, Lineage] = {}  # that were looked at, by node
        self._written: dict[int, tuple[int, bytearray]] = {}  # by epoch: from where on, bytes
        self._compared: dict[str, tuple[object, int]] = {}  # by incarnation: history, how far
        self._served: dict[int, int] = {}  # epoch: how far its master has confirmed
        self._known: dict[str, tuple[int, int]] = {}  # by node: volumes it had, confirmed
        self._agreed: dict[tuple[int, int], frozenset[int]] = {}
        self._set: BrokerGroup | None = None
        self._index = 0
        self._parsed = 0
        self._numbers: dict[tuple[str, int], int] = {}  # queue: its next number

    @property
    def epochs(self) -> tuple[int, int]:
        """The newest epochs of master and set that the controllers are known to have had."""
        return max(self._agreed, default=(0, 0))

    @property
    def starts(self) -> Collection[int]:
        """The offsets at which epochs begin."""
        return self._starts.values()

    def check_member(self, node: Node, group: Any) -> None:
        """Look at a member that knows its log. Raises Violation."""
        if group.core.stuck is not None:
            raise Violation(f"H13: {node.name} is stuck: {group.core.stuck.sentence}")
        self._lineage(node, group.core)
        self._cut(node, group)
        self._same_bytes(node, group)
        if group.core.serving is not None:
            self._mastership(node, group)

    # ---- lineage and bytes

    def _lineage(self, node: Node, core: Any) -> None:
        lineage = core.log.lineage
        if self._lineages.get(node.name) is lineage:
            return
        self._lineages[node.name] = lineage
        for entry in lineage.entries:
            start = self._starts.setdefault(int(entry.epoch), int(entry.start_offset))
            if start != entry.start_offset:
                raise Violation(
                    f"H2: for {node.name} epoch {entry.epoch} begins at {entry.start_offset}, "
                    f"it began at {start}"
                )

    def _cut(self, node: Node, group: Any) -> None:
        lives, before = self._known.get(node.name, (0, 0))
        if node.machine.volume.lives != lives:
            before = 0
        end = min(int(group.core.log.end), int(group._store.log.end))
        if end < before:
            raise Violation(f"H8: the log of {node.name} ends at {end}, {before} is confirmed")
        confirm = max(before, int(group.core.log.confirm))
        self._known[node.name] = (node.machine.volume.lives, confirm)

    def _same_bytes(self, node: Node, group: Any) -> None:
        """What is on its disk beyond confirm, since the last look."""
        facts, log = group.core.log, group._store.log
        history = (facts.cuts, facts.lineage.entries)  # of which epoch bytes are may change, too
        known, seen = self._compared.get(group.incarnation, (history, 0))
        start = max(int(facts.confirm), seen if known == history else 0)
        end = min(int(facts.flushed), int(log.flushed), int(log.end))
        if end <= start or node.name in self._cluster.flipped:
            return
        data = self._cluster.logs.read(node, self._group, start, end)
        if len(data) < end - start:
            return  # a file that is just being made or cut; looked at again
        self._compared[group.incarnation] = (history, end)
        lineage = facts.lineage
        while start < end:
            entry = lineage.entry_at(start)
            if entry is None:
                raise Violation(f"H2: nobody wrote byte {start} of {node.name}: {lineage}")
            stop = min(end, lineage.boundary_after(start) or end)
            self._same(node, int(entry.epoch), start, data[: stop - start])
            data, start = data[stop - start :], stop

    def _same(self, node: Node, epoch: int, start: int, data: bytes) -> None:
        begin, known = self._written.setdefault(epoch, (start, bytearray()))
        if start > begin + len(known):
            begin, known = self._written[epoch] = (start, bytearray())
        data, start = data[max(0, begin - start) :], max(begin, start)
        there = known[start - begin :][: len(data)]
        if data[: len(there)] != there:
            at = next(i for i, (a, b) in enumerate(zip(data, there, strict=False)) if a != b)
            raise Violation(f"H3: {node.name} has other bytes of epoch {epoch} at {start + at}")
        known.extend(data[len(there) :])

    # ---- masters

    def _mastership(self, node: Node, group: Any) -> None:
        core = group.core
        epoch, confirm = int(core.serving.epoch), int(core.log.confirm)
        if epoch not in self._served:
            self._promoted(node, core, epoch)
        self._served[epoch] = max(confirm, self._served.get(epoch, 0))
        key = (epoch, int(core.serving.set.epoch))
        agreed = self._agreed.get(key)
        if agreed is not None and agreed != core.serving.set.members:
            raise Violation(
                f"H6: {node.name} goes by {set(core.serving.set.members)}, {key} is {set(agreed)}"
            )

    def _promoted(self, node: Node, core: Any, epoch: int) -> None:
        last = core.log.lineage.last
        if last is None or last.epoch != epoch:
            raise Violation(f"H2: {node.name} serves epoch {epoch}, its lineage ends with {last}")
        directory = self._cluster.store_of(node, self._group).parent
        stored = load(directory).lineage.entries
        if last not in stored or not node.machine.volume.holds(directory / FILE):
            raise Violation(f"H4: {node.name} serves {last}, its disk says {stored}")
        needed = max((end for one, end in self._served.items() if one < epoch), default=0)
        if last.start_offset < needed:
            raise Violation(
                f"H13: {node.name} begins epoch {epoch} at {last.start_offset}, {needed} was "
                f"confirmed before"
            )

    # ---- the set

    def check_set(self, agreed: BrokerGroup, index: int) -> None:
        """The controllers have a group as ``agreed`` at their entry ``index``. Raises Violation."""
        before = self._set
        if before is agreed or index < self._index:
            return  # after an outage the newest word may be one from before
        self._set, self._index = agreed, index
        key = (int(agreed.master_epoch), agreed.sync_state_set_epoch)
        members = frozenset(map(int, agreed.sync_state_set))
        if self._agreed.setdefault(key, members) != members:
            raise Violation(f"H6: {key} names {set(self._agreed[key])} and {set(members)}")
        if before is None or before.master_epoch != agreed.master_epoch:
            return
        if before.sync_state_set != agreed.sync_state_set:
            if before.sync_state_set_epoch >= agreed.sync_state_set_epoch:
                raise Violation(f"H6: {before.sync_state_set} became {agreed.sync_state_set}")
            self._joined(members - set(before.sync_state_set), key[0])

    def _joined(self, members: frozenset[int], epoch: int) -> None:
        needed = max(len(self._confirmed), self._starts.get(epoch, 0))
        for node in self._cluster.brokers:
            group = self._cluster.group_of(node, self._group)
            if group is None or group.core is None or group.core.me not in members:
                continue
            held = int(group._store.log.flushed)
            if held < needed:
                raise Violation(f"H7: {node.name} joins with {held} of {needed} bytes")

    # ---- queues and tables

    def check_numbers(self) -> None:
        """Look at what was confirmed since the last time. Raises Violation."""
        confirmed = self._confirmed
        while self._parsed < len(confirmed):
            data = bytes(confirmed[self._parsed : self._parsed + (1 << 17)])
            unit = parse_unit(data, 0, self._parsed, check_body=False)
            record = unit.record
            self._parsed += unit.size
            if record is None:
                continue
            queue = (record.topic, record.queue_id)
            expected = self._numbers.get(queue)
            if expected is None:
                expected = self._cluster.first_offset(*queue)
            if record.queue_offset != expected:
                raise Violation(
                    f"H12: record {record.queue_offset} of {queue} is confirmed, {expected} is next"
                )
            self._numbers[queue] = expected + 1

    def judge(self) -> None:
        """Compare the tables of members that have applied the same log. Raises Violation."""
        known: dict[int, tuple[str, Any]] = {}
        for node in self._cluster.brokers:
            group = self._cluster.group_of(node, self._group)
            if group is None or group.core is None:
                continue
            store = group._store
            tables = {
                "topics": sorted(topic.topic_name for topic in store.topics.all()),
                "offsets": sorted(store.offsets.applied_rows()),
                "queues": {queue: store.max_offset(*queue) for queue in self._numbers},
            }
            first, theirs = known.setdefault(int(store.dispatched), (node.name, tables))
            for name, table in tables.items():
                if table != theirs[name]:
                    rule = "H12" if name == "queues" else "H10"
                    raise Violation(
                        f"{rule}: at {store.dispatched} {first} has {name} {theirs[name]}, "
                        f"{node.name} has {table}"
                    )
            if store.dispatched == self._parsed and tables["queues"] != self._numbers:
                raise Violation(
                    f"H12: {node.name} has queues {tables['queues']}, the log says {self._numbers}"
                )
