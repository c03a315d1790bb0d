"""Bugs in the broker's log and what is made from it: recovery, cuts, failed disks, visibility."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

LOG = "gantry_broker.log"
POWER = "unit/broker/log/test_power.py"
RECOVERY = "unit/broker/log/test_recovery.py"
CHECKED = "unit/broker/log/test_checked.py"
FULL = "unit/broker/log/test_full_disk.py"
CUTTING = "unit/broker/log/test_cutting.py"
COMMIT = "unit/broker/log/test_group_commit.py"
TWO_FILES = "test_a_flush_over_two_files_leaves_both_and_their_names_on_the_disk"
STORE = "unit/broker/queues/test_message_store.py"
STATE = "unit/broker/store/test_state_records.py"
POSITIONS = "unit/broker/clients/test_positions.py"
NAMES = "unit/broker/clients/test_names.py"
TRANSACTIONS = "unit/broker/clients/test_transactions.py"
CLOCK = "unit/broker/store/test_clock.py"

CUT_OF_DAMAGE = "test_what_a_cut_keeps_of_a_damaged_range_gets_no_sum_of_its_own"

MUTANTS = (
    Mutant(
        "checkpoint-without-replay",
        "log",
        "a restarted broker takes its rows for those of the log's end",
        (
            Edit(
                "gantry_broker.queues.dispatcher:Dispatcher.__init__",
                "log.log_start if head is None else head.offset",
                "log.log_start if head is None else log.end",
            ),
        ),
        UnitTests("unit/broker/queues/test_derived_rows.py"),
    ),
    Mutant(
        "damaged-disk-believed",
        "log",
        "after EIO a process goes on as if its sync had succeeded",
        (Edit(f"{LOG}.writer:Writer.fail", "self._failure = error", "pass"),),
        UnitTests(POWER),
    ),
    Mutant(
        "failed-sync-believed",
        "log",
        "after EIO a restarted process takes what it reads for durable once it has synced it",
        (
            Edit(
                f"{LOG}.recovery:_repair",
                "segment.write_again(start - segment.start, length)",
                "pass",
            ),
        ),
        UnitTests(f"{POWER}::test_after_an_io_error_nothing_is_believed_that_the_disk_has_not_got"),
    ),
    Mutant(
        "failed-sums-believed",
        "log",
        "after EIO a checkpoint promises sums that are not on the disk",
        (Edit(f"{LOG}.recovery:_repair", " and segment.end <= synced", ""),),
        UnitTests(
            f"{POWER}::test_after_an_io_error_sums_are_not_believed_that_the_disk_has_not_got"
        ),
    ),
    Mutant(
        "trimmed-files-go-first",
        "log",
        "after EIO the files of a trim go by a start that is not on the disk",
        (Edit(f"{LOG}.cutting:without_trimmed", "if trimmed or leftovers:", "if False:"),),
        UnitTests(
            f"{POWER}::test_after_an_io_error_no_file_goes_before_the_start_of_a_trim_is_on_the_disk"
        ),
    ),
    Mutant(
        "flushed-damage-taken-for-a-torn-tail",
        "log",
        "a damaged record below what was flushed is cut off, and acknowledged ones with it",
        (Edit(f"{LOG}.recovery:_tail", "if offset >= durable:", "if True:"),),
        UnitTests(f"{RECOVERY}::test_damage_that_only_the_callers_floor_speaks_for_is_explained"),
    ),
    Mutant(
        "damage-given-out",
        "log",
        "a byte that is not what was flushed is served, copied and sealed anew",
        (Edit(f"{LOG}.checked:Checks._look", "!= item.crc", "is None"),),
        UnitTests(f"{CHECKED}::test_any_flipped_bit_is_found_by_whoever_reads_it"),
    ),
    Mutant(
        "repaired-with-any-bytes",
        "log",
        "a damaged range is overwritten with whatever another member sends",
        (
            Edit(
                "gantry_broker.ha.repair:Repairs._repair",
                "if google_crc32c.value(data) != damage.crc:",
                "if not data:",
            ),
        ),
        UnitTests("unit/broker/ha/test_repair.py::test_only_what_matches_the_sum_is_written"),
    ),
    Mutant(
        "cut-without-its-marker",
        "log",
        "a crash in the middle of a cut leaves a newer file behind a shortened older one (#10666)",
        (Edit(f"{LOG}.cutting:carry_out", "write_marker(directory, cut)", "pass"),),
        UnitTests(f"{CUTTING}::test_a_crash_at_any_change_ends_in_the_cut_or_leaves_all"),
    ),
    Mutant(
        "cut-not-synced",
        "log",
        "a cut is reported before the shorter file is durable",
        (Edit(f"{LOG}.segments:Segment.cut", "os.fsync(self.descriptor)", "pass"),),
        UnitTests(
            f"{POWER}::test_a_power_cut_at_any_sync_of_a_cut_ends_in_the_cut_or_leaves_all[cut]"
        ),
    ),
    Mutant(
        "cut-below-the-floor",
        "log",
        "the log itself lets confirmed records be cut",
        (Edit(f"{LOG}.commit_log:CommitLog._check_cut", "self._floor <= to", "0 <= to"),),
        UnitTests(f"{CUTTING}::test_a_cut_below_the_confirm_floor_or_beyond_the_end_is_refused"),
    ),
    Mutant(
        "visible-beyond-confirm",
        "H9",
        "the store shows consumers everything that is in the log",
        (
            Edit(
                "gantry_broker.queues.message_store:MessageStore.dispatch",
                "self._dispatcher.dispatch(upto)",
                "self._dispatcher.dispatch(self.log.end)",
            ),
        ),
        UnitTests(f"{STORE}::test_nothing_is_visible_before_it_is_confirmed"),
    ),
    Mutant(
        "offsets-stay-beside-the-log",
        "H10",
        "consumer offsets are kept by the master and never become records",
        (
            Edit(
                "gantry_broker.store.tables.offsets:ConsumerOffsets.take_records",
                "return records, keys",
                "return [], keys",
            ),
        ),
        UnitTests(f"{STORE}::test_consumer_offsets_and_topics_replicate_through_the_log"),
    ),
    Mutant(
        "topics-of-a-part-compared",
        "H10",
        "a new master ends topics whose records in its log are not confirmed yet",
        (
            Edit(
                "gantry_broker.queues.message_store:MessageStore.knows_its_topics",
                "self.is_whole and self.dispatched >= self._found_end",
                "self.is_whole",
            ),
        ),
        UnitTests(
            f"{STORE}::test_a_new_master_knows_its_topics_once_all_that_it_found_is_confirmed"
        ),
    ),
    Mutant(
        "commits-answered-from-memory",
        "H10",
        "a commit is answered 0 before its record is confirmed, and a kill takes it back",
        (
            Edit(
                "gantry_broker.clients.offsets:Positions.update",
                "self._writer.confirmed(key, written)",
                "written(_KEPT)",
            ),
        ),
        UnitTests(f"{POSITIONS}::test_a_commit_is_answered_when_it_is_confirmed"),
    ),
    Mutant(
        "records-of-offsets-by-rows",
        "H10",
        "records of offsets are cut by rows alone, so one that is too large stops all commits",
        (
            Edit(
                "gantry_broker.store.tables.offsets:ConsumerOffsets.take_records",
                "if len(record.body) > MAX_BODY_BYTES:",
                "if False:",
            ),
        ),
        UnitTests(f"{POSITIONS}::test_a_commit_no_record_can_carry_keeps_nobody_else_from_the_log"),
    ),
    Mutant(
        "names-are-not-checked",
        "names",
        "a request with a name that can be none is served",
        (Edit("gantry_protocol.headers.codec:_look_at", "raise NameRefused(problem)", "pass"),),
        UnitTests(f"{NAMES}::test_every_code_that_takes_a_name_refuses_one_that_is_none"),
    ),
    Mutant(
        "transactions-fail-for-good",
        "transactions",
        "a read that fails turns transactions off until the next master",
        (
            Edit(
                "gantry_broker.clients.transactions:Transactions._read_again",
                "self._begin(self._read_log())",
                "pass",
            ),
        ),
        UnitTests(f"{TRANSACTIONS}::test_a_read_that_failed_once_stops_transactions_for_a_moment"),
    ),
    Mutant(
        "store-times-jump",
        "store times",
        "store times go where the wall clock jumps, and stay there for as long as it jumped",
        (
            Edit(
                "gantry_broker.store.stored:StoreClock.now_ms",
                "min(wall_ms, expected_ms + passed_ms)",
                "wall_ms",
            ),
        ),
        UnitTests(f"{CLOCK}::test_a_jump_that_is_taken_back_leads_astray_by_its_duration_at_most"),
    ),
    Mutant(
        "a-state-is-use",
        "age",
        "a state that is written again makes every offset young, so none ever goes",
        (
            Edit(
                "gantry_broker.queues.dispatcher:Dispatcher._complete",
                "self.offsets.apply(piece.offsets, again=True)",
                "self.offsets.apply(piece.offsets)",
            ),
        ),
        UnitTests(f"{STATE}::test_a_state_makes_no_offset_young"),
    ),
    Mutant(
        "equal-record-taken-for-the-last",
        "offsets",
        "an offset falls back to an older one while records of it are confirmed one by one",
        (
            Edit(
                "gantry_broker.store.tables.offsets:ConsumerOffsets.apply",
                "key not in self._dirty and key not in self._on_the_way",
                "key not in self._dirty",
            ),
        ),
        UnitTests(
            "unit/broker/store/test_tables.py"
            "::test_the_last_record_in_the_log_counts_until_it_is_confirmed"
        ),
    ),
    Mutant(
        "numbers-from-confirm",
        "H12",
        "a promoted master's store gives out numbers that unconfirmed records have already",
        (
            Edit(
                "gantry_broker.queues.message_store:MessageStore.take_mastership",
                "self._dispatcher.look_ahead(self._foresee)",
                "pass",
            ),
        ),
        UnitTests(f"{STORE}::test_a_new_master_knows_what_is_in_its_log_and_not_confirmed_yet"),
    ),
    Mutant(
        "flushed-is-what-is-written",
        "log",
        "what is written while a sync is under way counts as flushed when that sync ends",
        (
            Edit(
                f"{LOG}.writer:GroupCommit._take_notice",
                "max(self.flushed, job.target)",
                "max(self.flushed, self.written)",
            ),
        ),
        UnitTests(f"{COMMIT}::test_what_is_written_during_a_sync_is_not_flushed_by_it"),
    ),
    Mutant(
        "waits-lost-in-a-cut",
        "log",
        "who waits for a flush while the log is cut is never told",
        (
            Edit(
                f"{LOG}.writer:GroupCommit.cut",
                "self._loop.call_soon(self._run, callbacks)",
                "pass",
            ),
        ),
        UnitTests(f"{COMMIT}::test_who_waits_for_nothing_more_is_told_the_cut"),
    ),
    Mutant(
        "new-file-unnamed-on-disk",
        "log",
        "a flush of a new file leaves its name in memory, and a power cut takes the file",
        (
            Edit(
                f"{LOG}.writer:Writer.sync_ranges",
                "fsync_directory(self._directory)",
                "pass",
            ),
        ),
        UnitTests(f"{COMMIT}::{TWO_FILES}"),
    ),
    Mutant(
        "only-the-last-file-synced",
        "log",
        "of a flush over two files only the newer one is synced",
        (
            Edit(
                f"{LOG}.writer:Writer.sync_ranges",
                "{segment.start: segment for segment, _ in ranges}.values()",
                "[ranges[-1].segment]",
            ),
        ),
        UnitTests(f"{COMMIT}::{TWO_FILES}"),
    ),
    Mutant(
        "cut-of-damage",
        "log",
        "a cut gives damaged bytes beside it a sum of their own",
        (Edit(f"{LOG}.cutting:_sums_below", "crc = sums.UNKNOWN", "crc = whole.crc + 1"),),
        UnitTests(f"{CUTTING}::{CUT_OF_DAMAGE}"),
    ),
    Mutant(
        "sum-of-damage-made-anew",
        "log",
        "what a cut keeps of a damaged range passes for sound",
        (
            Edit(
                f"{LOG}.cutting:_sums_below",
                "not sums.is_match(segment.descriptor, segment.start, whole)",
                "False",
            ),
        ),
        UnitTests(f"{CUTTING}::{CUT_OF_DAMAGE}"),
    ),
    Mutant(
        "damage-at-a-cut-refused",
        "log",
        "a member whose damage is at the cut can never follow",
        (
            Edit(
                f"{LOG}.commit_log:CommitLog._check_cut",
                "pass  # it goes, and what is kept of its range has no sum then",
                "raise",
            ),
        ),
        UnitTests(f"{CHECKED}::test_a_cut_forgets_what_it_took"),
    ),
    Mutant(
        "waiting-sums-unread",
        "log",
        "on a full disk a member takes what it flushed for damaged, and derives no more from it",
        (Edit(f"{LOG}.checked:Checks._entries", "_continue(known, start, late)", "pass"),),
        UnitTests(f"{FULL}::test_what_is_flushed_is_read_by_the_sums_that_wait"),
    ),
    Mutant(
        "waiting-sums-lost-in-a-cut",
        "log",
        "what a cut on a full disk keeps is damage that nobody can mend",
        (
            Edit(
                f"{LOG}.commit_log:CommitLog.truncate",
                "self._forget_from(to, due)",
                "self._forget_from(to, [])",
            ),
        ),
        UnitTests(f"{FULL}::test_sums_that_wait_go_on_waiting_after_a_cut"),
    ),
)
