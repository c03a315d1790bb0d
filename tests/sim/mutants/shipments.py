"""Bugs in the way of a snapshot's bytes: from a file, in chunks, into a file of another node."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests
from sim.mutants.planting import Edit

RAFT = "gantry_controller.raft"
WAL = "gantry_controller.wal"
NODE = "gantry_controller.node"
SHIPMENT = "unit/controller/raft/test_shipment.py"
FILES = "unit/controller/wal/test_snapshot_files.py"
POWER = "unit/controller/wal/test_snapshot_power.py"
ORDER = "unit/controller/node/test_snapshot_order.py"
TRAFFIC = "unit/controller/node/test_snapshot_traffic.py"

CHUNKS = (
    Mutant(
        "chunk-out-of-order",
        "shipment",
        "bytes are taken wherever they belong",
        (
            Edit(
                f"{RAFT}.shipment:Receiving.take",
                " or chunk.offset != self.offset",
                "",
            ),
        ),
        UnitTests(SHIPMENT),
    ),
    Mutant(
        "chunk-of-another-snapshot",
        "shipment",
        "bytes of one snapshot go on with those of another",
        (Edit(f"{RAFT}.shipment:Receiving.take", "chunk.shipment != self.shipment or ", ""),),
        UnitTests(SHIPMENT),
    ),
    Mutant(
        "shipment-ends-early",
        "shipment",
        "a snapshot is taken for complete before its last bytes",
        (
            Edit(
                f"{RAFT}.shipment:Receiving.complete",
                "self.offset == self.shipment.size",
                "self.offset >= self.shipment.size - 8",
            ),
        ),
        Seeds("raft-shipments", 4),
    ),
    Mutant(
        "more-than-was-announced",
        "shipment",
        "a snapshot may be longer than its sender said",
        (Edit(f"{RAFT}.shipment:decode_chunk", "if offset + len(data) > size:", "if False:"),),
        UnitTests(SHIPMENT),
    ),
    Mutant(
        "chunk-checksum-unchecked",
        "shipment",
        "bytes that changed on the way are taken",
        (Edit(f"{RAFT}.shipment:decode_chunk", "if value(data) != crc:", "if False:"),),
        UnitTests(SHIPMENT),
    ),
    Mutant(
        "shipment-begins-anew",
        "shipment",
        "every connection begins with the first byte again, so a large snapshot may never arrive",
        (
            Edit(
                f"{RAFT}.shipment:Receiving.offered",
                "if shipment == self.shipment:",
                "if False:",
            ),
        ),
        UnitTests(SHIPMENT),
    ),
    Mutant(
        "sender-begins-anew",
        "shipment",
        "the sender does not go on at the byte that it was asked for",
        (Edit(f"{RAFT}.shipment:Sending.on_reply", "self._next = reply.offset", "self._next = 0"),),
        UnitTests(SHIPMENT),
    ),
    Mutant(
        "chunks-without-bound",
        "shipment",
        "chunks are sent ahead of the answers without a limit",
        (
            Edit(
                f"{RAFT}.shipment:Sending.take",
                "if self._next - self._answered >= INFLIGHT_MAX * self._chunk_bytes:",
                "if False:",
            ),
        ),
        UnitTests(SHIPMENT),
    ),
    Mutant(
        "never-held",
        "shipment",
        "a snapshot that the follower holds is sent again and again",
        (Edit(f"{RAFT}.shipment:Sending.done", "self.holds >= self.shipment.index", "False"),),
        UnitTests(f"{SHIPMENT}::test_who_holds_the_snapshots_entries_needs_no_more_of_it"),
    ),
    Mutant(
        "answer-about-another-snapshot",
        "shipment",
        "what a follower says about an older transfer moves this one",
        (
            Edit(
                f"{RAFT}.shipment:Sending.on_reply",
                "reply.index != self.shipment.index or ",
                "",
            ),
        ),
        UnitTests(SHIPMENT),
    ),
    Mutant(
        "older-snapshot-installed",
        "snapshots",
        "a snapshot is taken that ends before what is committed here",
        (
            Edit(
                f"{RAFT}.snapshots:offered",
                "if index <= log.commit_index:",
                "if False:",
            ),
        ),
        UnitTests("unit/controller/raft/test_snapshots.py"),
    ),
)

FILE = (
    Mutant(
        "slice-checksum-unchecked",
        "snapshot file",
        "a damaged snapshot is loaded",
        (
            Edit(
                f"{WAL}.snapshot_file:parse_slices",
                "checksum != crc or ",
                "",
            ),
        ),
        UnitTests(FILES),
    ),
    Mutant(
        "header-checksum-unchecked",
        "snapshot file",
        "a snapshot of another index, or with other members, is loaded",
        (
            Edit(
                f"{WAL}.snapshot_file:parse_meta",
                "if data[end : end + _CRC.size] != _CRC.pack(checksum):",
                "if False:",
            ),
        ),
        UnitTests(FILES),
    ),
    Mutant(
        "snapshot-end-unchecked",
        "snapshot file",
        "bytes behind a snapshot's end go unnoticed",
        (
            Edit(
                f"{WAL}.snapshot_file:parse_slices",
                " or offset + END_SIZE != len(data)",
                "",
            ),
        ),
        UnitTests(FILES),
    ),
    Mutant(
        "named-before-synced",
        "snapshot file",
        "a snapshot gets its name before its bytes are durable",
        (Edit(f"{WAL}.snapshots:SnapshotFile.publish", "os.fsync(self._fd)", "pass"),),
        UnitTests(POWER),
    ),
    Mutant(
        "name-not-synced",
        "snapshot file",
        "the directory is not synced, so a power cut takes the name of a snapshot the log needs",
        (
            Edit(
                f"{WAL}.snapshots:SnapshotFile.publish",
                "sync_directory(self._path.parent)",
                "pass",
            ),
        ),
        UnitTests(POWER),
    ),
    Mutant(
        "newest-file-goes-too",
        "snapshot file",
        "the file that a durable marker names is removed with the older ones",
        (
            Edit(
                f"{WAL}.snapshots:remove_older",
                "other < index",
                "other <= index",
            ),
        ),
        UnitTests(POWER),
    ),
    Mutant(
        "file-goes-before-its-successor",
        "node",
        "a snapshot is removed before the marker of the next one is durable",
        (
            Edit(
                "gantry_controller.raft.after_persist:AfterPersist.report",
                " and self._markers[0][0] <= self._reported",
                "",
            ),
        ),
        UnitTests("unit/controller/raft/test_after_persist.py"),
    ),
    Mutant(
        "log-told-before-the-file",
        "node",
        "the log begins behind a snapshot of this node that is still being written",
        (
            Edit(
                f"{NODE}.snapshots:Snapshots._write",
                "info = await self.run(writer.finish)",
                "info = SnapshotInfo(meta, 0, 0)",
            ),
        ),
        UnitTests(ORDER),
    ),
    Mutant(
        "half-a-snapshot-is-left",
        "node",
        "what was received of a snapshot that is no longer wanted stays on the disk",
        (
            Edit(
                f"{NODE}.receiving:SnapshotReceiver._give_up",
                "await self._snapshots.run(file.drop)",
                "pass",
            ),
        ),
        UnitTests(TRAFFIC),
    ),
    Mutant(
        "snapshot-sent-once-only",
        "node",
        "a peer that needs the next snapshot as well never gets it",
        (Edit(f"{NODE}.shipping:SnapshotSender._deliver", "del self._tasks[node]", "pass"),),
        UnitTests(f"{TRAFFIC}::TestSending::test_who_needs_the_next_one_is_sent_that_too"),
    ),
    Mutant(
        "snapshot-sent-to-who-has-it",
        "node",
        "a follower takes a whole snapshot that brings it nothing",
        (
            Edit(
                f"{NODE}.receiving:SnapshotReceiver._handle",
                "if not self._core.snapshot_offered(shipment.index, shipment.term):",
                "if False:",
            ),
        ),
        UnitTests(
            f"{TRAFFIC}::TestReceiving::test_half_of_one_that_is_no_longer_wanted_is_removed"
        ),
    ),
    Mutant(
        "installed-before-the-file",
        "node",
        "the log begins behind a received snapshot that has no name yet",
        (Edit(f"{NODE}.snapshots:Snapshots._verify", "file.publish()", "pass"),),
        UnitTests(ORDER),
    ),
    Mutant(
        "announcement-unchecked",
        "node",
        "a received snapshot is installed although it is not the one that was announced",
        (
            Edit(
                f"{NODE}.snapshots:Snapshots._verify",
                "(info.meta.index, info.checksum) != (index, checksum)",
                "False",
            ),
        ),
        UnitTests(ORDER),
    ),
)

MUTANTS = (*CHUNKS, *FILE)
