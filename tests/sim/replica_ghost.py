"""What must never be so above and beside the log of a broker group: H2, H6, H7, H9 to H12.

The ghost sees everything that is confirmed, promised and served in a run, of all processes and all
their lives, and is asked whenever something happens. ``sim.replica_world`` calls it, and checks
the rules of the log itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.kernel.world import Violation
from sim.replica_disk import RECORD, SIZE, durable_log, epoch_at
from sim.replica_tables import Tables, content_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_broker.replica import ReplicaCore
    from gantry_controller.metadata.state import BrokerGroup
    from gantry_protocol.types import BrokerId
    from sim.kernel.disk import Disk


class Ghost:
    """Of one run.

    Attributes:
        history: the confirmed log: the bytes that some replica has reported as confirmed.
        served_end: everything below was read by a consumer.
    """

    def __init__(self) -> None:
        self.history = bytearray()
        self.served_end = 0
        self._tables = Tables()
        self._positions: dict[int, dict[int, int]] = {}  # epoch: queue: newest acknowledged offset
        self._acknowledged: dict[int, int] = {}  # epoch: the end of its newest one
        self._agreed: dict[tuple[int, int], frozenset[BrokerId]] = {}
        self._starts: dict[int, int] = {}

    # ---- what is confirmed, acknowledged and served

    def confirm(self, data: bytes | bytearray) -> None:
        """More is confirmed: each message is the next one of its queue (H12)."""
        start = len(self.history)
        self.history += data
        for offset in range(start, len(self.history), SIZE):
            content = content_of(RECORD.unpack_from(self.history, offset)[1])
            expected = self._tables.ends[content.queue]
            if not content.is_position and content.value != expected:
                raise Violation(
                    f"H12: message {content.value} of queue {content.queue} is confirmed, "
                    f"{expected} is the next"
                )
            self._tables.fold(self.history, offset + SIZE)

    def copied(self, end: int, disks: Iterable[Disk], copies_min: int) -> None:
        """A send is answered 0: so many disks hold its record (H11)."""
        copies = sum(len(disk.file("log").durable) >= end for disk in disks)
        if copies < copies_min:
            raise Violation(f"H11: acknowledged up to {end} with {copies} copies of {copies_min}")

    def acknowledge(self, name: str, epoch: int, end: int) -> None:
        """The master of ``epoch`` answers 0: later ones began above that record.

        Their promotions are what was checked; one that came before this answer is checked here.
        """
        for later, start in self._starts.items():
            if later > epoch and start < end:
                raise Violation(
                    f"ack: {name} acknowledges {end} in epoch {epoch}, epoch {later} began at "
                    f"{start}"
                )
        self._acknowledged[epoch] = max(self._acknowledged.get(epoch, 0), end)
        content = content_of(RECORD.unpack_from(self.history, end - SIZE)[1])
        if content.is_position:
            newest = self._positions.setdefault(epoch, {})
            newest[content.queue] = max(newest.get(content.queue, -1), end - SIZE)

    def serve(self, name: str, start: int, data: bytes) -> None:
        """A consumer gets ``data``: it is confirmed (H9)."""
        if self.history[start : start + len(data)] != data:
            raise Violation(
                f"H9: {name} serves [{start}, {start + len(data)}), of which "
                f"{len(self.history)} is confirmed"
            )
        self.served_end = max(self.served_end, start + len(data))

    # ---- tables

    def tabled(self, name: str, tables: Tables, log: bytes | bytearray) -> None:
        """Tables are what the log says, and say what was acknowledged (H10, H12)."""
        honest = Tables().fold(log, tables.offset)
        if tables.ends != honest.ends:
            raise Violation(
                f"H12: {name} numbers its queues {tables.ends} at {tables.offset}, "
                f"its log says {honest.ends}"
            )
        if tables.positions != honest.positions:
            raise Violation(
                f"H10: {name} has consumers at {tables.positions}, "
                f"its log says {honest.positions} at {tables.offset}"
            )

    def promoted(self, name: str, core: ReplicaCore, log: bytes | bytearray) -> None:
        """The log of a new master has what was acknowledged in every earlier epoch.

        Positions of consumers included. Of what a later one has acknowledged it may know nothing.
        """
        self._starts[core.epoch] = core.log.end
        last = core.log.lineage.last
        if last is None or (last.epoch, last.start_offset) != (core.epoch, core.log.end):
            raise Violation(f"H2: {name} begins epoch {core.epoch} at {core.log.end} as {last}")
        earlier = [end for epoch, end in self._acknowledged.items() if epoch < core.epoch]
        end = max(earlier, default=0)
        if log[:end] != self.history[:end]:
            raise Violation(f"ack: {name} was promoted without an acknowledged record")
        found = Tables().fold(log, core.log.end)
        for epoch, positions in self._positions.items():
            for queue, offset in positions.items():
                if epoch < core.epoch and found.positions[queue][1] < offset:
                    raise Violation(
                        f"H10: {name} lacks the position of consumer {queue} at {offset}"
                    )

    # ---- the set

    def agreed(self, before: BrokerGroup | None, after: BrokerGroup) -> None:
        """The controllers have a set: its epoch names it (H6)."""
        key = (after.master_epoch, after.sync_state_set_epoch)
        members = frozenset(after.sync_state_set)
        if self._agreed.setdefault(key, members) != members:
            raise Violation(f"H6: {key} names {set(self._agreed[key])} and {set(members)}")
        if before is None or members == frozenset(before.sync_state_set):
            return
        if after.sync_state_set_epoch <= before.sync_state_set_epoch:
            raise Violation(f"H6: {before.sync_state_set} became {after.sync_state_set} unseen")

    def joined(self, name: str, disk: Disk, epoch: int) -> None:
        """Who joins the set holds the confirmed, and what the epoch began with (H7)."""
        held = len(durable_log(disk))
        needed = max(len(self.history), self._starts.get(epoch, 0))
        if held < needed:
            raise Violation(f"H7: {name} joins with {held} of {needed} bytes")

    def in_set(self, name: str, core: ReplicaCore) -> None:
        """A master goes by a set that the controllers have agreed on (H6)."""
        master = core.master
        if master is None:
            return
        agreed = self._agreed.get((master.epoch, master.set.epoch))
        if agreed is not None and master.set.members != agreed:
            raise Violation(
                f"H6: {name} goes by {set(master.set.members)}, "
                f"set {master.set.epoch} is {set(agreed)}"
            )

    # ---- the lineage

    def lineage(self, name: str, core: ReplicaCore, log: bytes | bytearray, end: int) -> None:
        """The lineage says of every record below ``end`` who wrote it (H2)."""
        entries = core.log.lineage.entries
        starts = [entry.start_offset for entry in entries]
        if end > core.log.log_start and not (starts and starts[0] <= core.log.log_start):
            raise Violation(
                f"H2: the lineage of {name} begins at {starts[:1]}, its log at {core.log.log_start}"
            )
        for entry, stop in zip(entries, [*starts, end][1:], strict=True):
            first = max(entry.start_offset, core.log.log_start)
            below = min(stop, end)
            for offset in (first, below - SIZE):
                if first <= offset < below and epoch_at(log, offset) != entry.epoch:
                    raise Violation(
                        f"H2: the lineage of {name} gives {offset} to epoch {entry.epoch}, "
                        f"epoch {epoch_at(log, offset)} wrote it"
                    )
