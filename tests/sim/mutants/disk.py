"""Bugs in what the controller writes to its log, and in the log's recovery."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests
from sim.mutants.planting import Edit

WAL = "gantry_controller.wal"
RECOVERY = "unit/controller/wal/test_wal_recovery.py"
POWER = "unit/controller/wal/test_wal_power.py"

MUTANTS = (
    Mutant(
        "answer-before-sync",
        "wal",
        "a batch is reported as durable before it is written and synced",
        (
            Edit(
                f"{WAL}.writer:WalWriter._write_one_batch",
                "        self._wal.append([write for _, write in work])\n",
                "        self._durable(work[-1][0])\n"
                "        self._wal.append([write for _, write in work])\n",
            ),
        ),
        UnitTests("unit/controller/wal/test_wal_writer.py"),
    ),
    Mutant(
        "recovery-without-sync",
        "wal",
        "a restarted process takes what it reads for durable; it may be in the page cache only",
        (Edit(f"{WAL}.wal:_settle", "    os.fsync(fd)", "    pass"),),
        UnitTests(f"{RECOVERY}::test_what_is_recovered_is_synced_before_it_counts"),
    ),
    Mutant(
        "torn-tail-believed",
        "wal",
        "a record whose checksum does not continue the chain is replayed",
        (
            Edit(
                f"{WAL}.recovery:_record",
                "return body if extend(chain, body) == crc else None",
                "return body",
            ),
        ),
        UnitTests(f"{RECOVERY}::test_older_bytes_in_place_of_newer_ones_do_not_pass"),
    ),
    Mutant(
        "corruption-taken-for-a-torn-tail",
        "wal",
        "a damaged batch below a durable one is cut off, and acknowledged entries with it",
        (Edit(f"{WAL}.recovery:_torn_bytes", "if later is not None:", "if False:"),),
        UnitTests(f"{RECOVERY}::test_lost_write_below_the_floor_is_damage_not_a_torn_tail"),
    ),
    Mutant(
        "missing-segment-unnoticed",
        "wal",
        "a log without one of its segments is read as if it were whole",
        (
            Edit(
                f"{WAL}.recovery:_check_link",
                "if header.sequence != head.sequence + 1:",
                "if False:",
            ),
        ),
        UnitTests(f"{RECOVERY}::test_swapped_segments_are_damage"),
    ),
    Mutant(
        "truncation-not-replayed",
        "wal",
        "recovery ignores that a leader's entries replaced others",
        (
            Edit(
                f"{WAL}.replay:Replay._truncate",
                "del self.entries[index - self._begin - 1 :]",
                "pass",
            ),
        ),
        Seeds("raft", 40),
    ),
    Mutant(
        "torn-end-zeroed-from-the-front",
        "wal",
        "a crash amid the overwriting of a torn batch leaves what passes for damage for ever",
        (
            Edit(
                f"{WAL}.wal:_settle",
                "behind = found.torn_bytes - FLOOR_SIZE",
                "behind = zero(fd, head.offset, found.torn_bytes) or 0",
            ),
        ),
        UnitTests(f"{RECOVERY}::test_a_start_that_is_cut_off_at_any_byte_is_followed_by_another"),
    ),
    Mutant(
        "piece-of-a-floor-is-damage",
        "wal",
        "a piece of a floor with nothing behind it passes for damage",
        (
            Edit(
                f"{WAL}.recovery:_torn_bytes",
                "if len(rest) <= FLOOR_SIZE:",
                "if False:",
            ),
        ),
        UnitTests(f"{RECOVERY}::test_a_start_that_is_cut_off_at_any_byte_is_followed_by_another"),
    ),
    Mutant(
        "wal-pages-believed",
        "wal",
        "after EIO a restarted process takes a batch for durable once it has synced what it read",
        (
            Edit(
                f"{WAL}.wal:_settle",
                "if os.pwrite(fd, found.newest, start) != len(found.newest):",
                "if False:",
            ),
        ),
        UnitTests(
            f"{POWER}::test_a_batch_whose_sync_failed_is_durable_once_a_start_has_counted_it"
        ),
    ),
)
