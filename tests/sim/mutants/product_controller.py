"""Bugs in the code around the controller's cores: log, snapshots, connections, the node's end."""

from __future__ import annotations

from sim.mutants.mutant import UnitTests, one_edit

_mutant = one_edit("gantry_controller")

MUTANTS = (
    _mutant(
        "wal-failure-untold",
        "wal",
        "a log thread dies of its disk, and the node waits for it for ever",
        "wal.writer:WalWriter._run",
        "self._failed(error)",
        "pass",
        UnitTests(
            "unit/controller/wal/test_wal_writer.py::test_failing_disk_confirms_nothing_and_ends_the_thread"
        ),
    ),
    _mutant(
        "wal-written-after-a-failure",
        "wal",
        "a batch is written behind one whose sync failed",
        "wal.wal:Wal.append",
        "self._failed = error",
        "pass",
        UnitTests(
            "unit/controller/wal/test_wal_recovery.py::test_failed_disk_refuses_everything_after_it"
        ),
    ),
    _mutant(
        "wal-written-without-a-sync",
        "wal",
        "a batch is reported as durable once it is written, not synced",
        "wal.wal:write_durably",
        "os.pwritev(fd, parts, offset, os.RWF_DSYNC)",
        "os.pwritev(fd, parts, offset)",
        UnitTests(
            "unit/controller/wal/test_wal_power.py::test_a_batch_whose_sync_failed_is_durable_once_a_start_has_counted_it"
        ),
    ),
    _mutant(
        "wal-segment-released-with-its-marker",
        "wal",
        "a segment goes that holds the marker which others depend on",
        "wal.wal:Wal._release",
        "not (oldest := self._segments[0]).marked and oldest",
        "(oldest := self._segments[0]).path and oldest",
        UnitTests("unit/controller/wal/test_wal_against_sqlite.py::test_equal_after_any_sequence"),
    ),
    _mutant(
        "wal-short-write-believed",
        "wal",
        "a batch of which only a part was written is reported as durable",
        "wal.wal:write_durably",
        "if written != len(data) + ahead:",
        "if False:",
        UnitTests(
            "unit/controller/wal/test_wal_recovery.py::test_failed_disk_refuses_everything_after_it"
        ),
    ),
    _mutant(
        "snapshot-named-before-its-sync",
        "snapshot file",
        "a snapshot has its name while its bytes are in the page cache",
        "wal.snapshots:SnapshotFile.publish",
        "    os.fsync(self._fd)\n    self._unfinished.rename(self._path)",
        "    self._unfinished.rename(self._path)\n    os.fsync(self._fd)",
        UnitTests(
            "unit/controller/wal/test_snapshot_power.py::test_what_a_marker_may_name_is_there_and_whole"
        ),
    ),
    _mutant(
        "snapshot-name-not-synced",
        "snapshot file",
        "a snapshot's name may be gone after a power cut, and a marker names it",
        "wal.snapshots:SnapshotFile.publish",
        "    sync_directory(self._path.parent)\n",
        "",
        UnitTests(
            "unit/controller/wal/test_snapshot_power.py::test_what_a_marker_may_name_is_there_and_whole"
        ),
    ),
    _mutant(
        "younger-snapshot-removed",
        "snapshot file",
        "a snapshot whose marker is under way is removed with the older ones",
        "wal.snapshots:remove_older",
        "other < index",
        "other != index",
        UnitTests(
            "unit/controller/wal/test_snapshot_files.py::test_a_younger_one_stays_until_its_own_marker_is_durable"
        ),
    ),
    _mutant(
        "snapshot-never-again",
        "controller node",
        "after one snapshot, or one failure, there is never another",
        "node.snapshots:Snapshots.take",
        "    finally:\n        self._taking = False",
        "    finally:\n        pass",
        UnitTests(
            "unit/controller/node/test_snapshot_order.py::test_the_core_hears_of_a_taken_one_when_it_is_durable"
        ),
    ),
    _mutant(
        "snapshots-eio-survived",
        "controller node",
        "a node goes on with a disk that lost a snapshot's bytes",
        "node.snapshots:Snapshots._judge",
        "if error.errno not in (errno.ENOSPC, errno.EDQUOT):",
        "if False:",
        UnitTests(
            "unit/controller/node/test_snapshot_order.py::test_an_error_of_the_disk_ends_the_node_unless_it_is_full"
        ),
    ),
    _mutant(
        "received-snapshot-not-restored",
        "controller node",
        "a node begins behind a snapshot with the state it had before",
        "node.snapshots:Snapshots.install",
        "self._machine.restore(assembled)",
        "pass",
        UnitTests(
            "unit/controller/node/test_snapshot_order.py::test_the_core_hears_of_a_received_one_when_it_is_durable"
        ),
    ),
    _mutant(
        "received-snapshot-unnamed",
        "controller node",
        "a node that was sent a snapshot has none to send",
        "node.snapshots:Snapshots.install",
        "        self.info = info\n",
        "",
        UnitTests(
            "unit/controller/node/test_snapshot_order.py::test_the_core_hears_of_a_received_one_when_it_is_durable"
        ),
    ),
    _mutant(
        "snapshot-in-anothers-name",
        "controller node",
        "a peer sends a snapshot in the name of another",
        "node.receiving:SnapshotReceiver.on_frames",
        "if (chunk.source, chunk.target) != (peer, self._options.node_id):",
        "if False:",
        UnitTests(
            "unit/controller/node/test_snapshot_traffic.py::TestReceiving::test_nobody_sends_one_in_anothers_name"
        ),
    ),
    _mutant(
        "refused-snapshot-delivered",
        "controller node",
        "a peer is told that a node holds a snapshot which it refused",
        "node.receiving:SnapshotReceiver._take",
        "if await self._snapshots.install(file, shipment.index, shipment.checksum):",
        "if await self._snapshots.install(file, shipment.index, shipment.checksum) or True:",
        UnitTests("unit/controller/node/test_snapshot_traffic.py"),
    ),
    _mutant(
        "snapshot-disk-error-survived",
        "controller node",
        "a node goes on with a disk that lost a received snapshot's bytes",
        "node.receiving:SnapshotReceiver._run",
        "if error.errno not in (errno.ENOSPC, errno.EDQUOT):",
        "if False:",
        UnitTests("unit/controller/node/test_snapshot_traffic.py"),
    ),
    _mutant(
        "disk-failure-untold",
        "controller node",
        "a node whose log thread died goes on without a disk",
        "node.disk:Disk._in_thread_failed",
        "self._loop.call_soon_threadsafe(self._tell_failed, failure)",
        "pass",
        UnitTests("unit/controller/node/test_end.py::test_an_error_of_the_disk_ends_the_node"),
    ),
    _mutant(
        "end-leaves-proposals",
        "controller node",
        "who waits for a proposal when a node ends is never answered",
        "node.node:RaftNode._end",
        "self._proposals.drop(ProposalDropped())",
        "pass",
        UnitTests("unit/controller/node/test_end.py::test_a_node_that_stops_tells_who_waits"),
    ),
    _mutant(
        "end-leaves-queued-proposals",
        "controller node",
        "who has just proposed when a node ends is never answered",
        "node.node:RaftNode._end",
        "    for _, done in queued:\n        done(NotLeader(None))",
        "    pass",
        UnitTests("unit/controller/node/test_end.py::test_a_node_that_stops_tells_who_waits"),
    ),
    _mutant(
        "end-leaves-reads",
        "controller node",
        "who waits for a read index when a node ends is never answered",
        "node.node:RaftNode._end",
        "    self._reads.drop(NotLeader(None))",
        "    pass",
        UnitTests("unit/controller/node/test_end.py::test_who_waits_for_a_read_index_is_told"),
    ),
    _mutant(
        "failed-node-untold",
        "controller node",
        "a process lives on around a node that has failed",
        "node.node:RaftNode._fail",
        "    self._on_fatal(error)",
        "    pass",
        UnitTests("unit/controller/node/test_end.py::test_an_error_of_the_disk_ends_the_node"),
    ),
    _mutant(
        "proposals-survive-the-role",
        "controller node",
        "a proposal is answered by the entry of another leader at its index",
        "node.node:RaftNode._on_soft_state",
        "    self._proposals.drop(ProposalDropped())\n",
        "    pass\n",
        UnitTests(
            "unit/controller/node/test_end.py::test_proposals_end_with_the_leadership_they_were_made_in"
        ),
    ),
    _mutant(
        "proposals-without-bound",
        "controller node",
        "proposals wait in any number",
        "node.node:RaftNode.propose",
        "if len(self._proposals) + len(self._queued) >= self._options.proposals_max:",
        "if False:",
        UnitTests("unit/controller/node/test_end.py::test_so_many_proposals_wait_and_no_more"),
    ),
    _mutant(
        "reads-are-not-counted-down",
        "controller node",
        "a node refuses every read after a while",
        "node.pending:Reads.answer",
        "self.open -= len(contexts)",
        "pass",
        UnitTests("unit/controller/node/test_pending.py::test_reads_wait_for_their_index"),
    ),
    _mutant(
        "read-before-it-is-applied",
        "controller node",
        "a read is answered from a state older than its index",
        "node.pending:Reads.serve",
        " and self._waiting[0].index <= applied",
        "",
        UnitTests("unit/controller/node/test_pending.py::test_reads_wait_for_their_index"),
    ),
    _mutant(
        "speaks-in-anothers-name",
        "controller node",
        "a peer votes and acknowledges in the name of another",
        "node.links:PeerLinks._on_frames",
        "if message.source != peer:",
        "if False:",
        UnitTests("unit/controller/node/test_node.py::test_a_peer_speaks_only_for_itself"),
    ),
    _mutant(
        "replaced-connection-kept",
        "controller node",
        "a peer that connects again is heard twice",
        "node.listener:PeerListener.greet",
        "before.abort()",
        "pass",
        UnitTests(
            "unit/controller/node/test_connections.py::test_the_end_of_a_connection_that_was_replaced_says_nothing"
        ),
    ),
    _mutant(
        "strangers-without-bound",
        "controller node",
        "connections are taken in any number",
        "node.listener:PeerListener.admit",
        "if len(self._connections) >= CONNECTIONS_MAX:",
        "if False:",
        UnitTests(
            "unit/controller/node/test_connections.py::test_strangers_make_room_for_who_comes_later"
        ),
    ),
    _mutant(
        "silent-stranger-kept",
        "controller node",
        "who connects and says nothing keeps its place",
        "node.listener:_Incoming._check_idle",
        "if self.peer is None or silent_s > IDLE_MAX_S:",
        "if silent_s > IDLE_MAX_S:",
        UnitTests("unit/controller/node/test_connections.py::test_who_says_nothing_is_shown_out"),
    ),
)
