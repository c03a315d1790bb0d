"""Bugs in what a member does with a log that is damaged: who serves, what is said, what goes."""

from __future__ import annotations

from sim.mutants.mutant import UnitTests, one_edit

_mutant = one_edit("gantry_broker")
REPAIR = "unit/broker/ha/test_repair.py"
DAMAGED = "unit/broker/member/test_damaged_log.py"
RECOVERY = "unit/broker/log/test_recovery.py"
LAST_FILE = "test_a_flip_in_the_last_file_is_noted_where_units_behind_it_say_how_it_ends"
UNREADABLE = "test_a_record_that_cannot_be_read_and_has_no_sum_is_damage_up_to_the_floor"
CONTINUITY = "unit/broker/queues/test_continuity.py"
UNPROVED = f"{CONTINUITY}::test_what_does_not_go_on_is_wanted_anew_at_every_start"
NEVER_A_SUM = f"{REPAIR}::test_a_range_that_never_had_a_sum_is_taken_once_it_is_confirmed"

MUTANTS = (
    _mutant(
        "rotten-file-refused",
        "broker log",
        "one flipped bit near the end of a file keeps a member from starting, for ever",
        "log.recovery:_ends_in_blank",
        "keeps and is_followed",
        "False",
        UnitTests(f"{RECOVERY}::test_a_flip_of_any_byte_in_a_file_that_others_follow_is_noted"),
    ),
    _mutant(
        "rotten-file-ends-anyhow",
        "broker log",
        "records are appended behind a file that goes on, and are not found at the next start",
        "log.recovery:_ending_behind_damage",
        "return check_units(data[at:], start + at)",
        "return True",
        UnitTests(f"{RECOVERY}::{LAST_FILE}"),
    ),
    _mutant(
        "unreadable-without-sum-refused",
        "broker log",
        "a record that rotted before its sum was durable keeps a member from starting, for ever",
        "log.recovery:_tail",
        "if not keeps or",
        "if True or",
        UnitTests(f"{RECOVERY}::{UNREADABLE}"),
    ),
    _mutant(
        "unreadable-is-vouched-for",
        "broker log",
        "a record that cannot be read gets a sum, and is never fetched from another member",
        "log.recovery:_repair",
        "if crc < 0:",
        "if True:",
        UnitTests(f"{RECOVERY}::{UNREADABLE}"),
    ),
    _mutant(
        "last-record-or-blank",
        "broker log",
        "a file whose last record rotted is taken for one that goes on, perhaps behind its blank",
        "log.recovery:_tail",
        "if ending is None:",
        "if False:",
        UnitTests(f"{RECOVERY}::test_the_last_record_is_refused_if_it_cannot_be_read"),
    ),
    _mutant(
        "damaged-master-serves-at-once",
        "broker member",
        "a master that cannot read all of its log serves while another may have what it lacks",
        "member.shell:ReplicaShell._serve",
        "self.now_ms < self._held_until_ms",
        "False",
        UnitTests(f"{DAMAGED}::test_it_does_not_serve_while_another_may_have_what_is_damaged"),
    ),
    _mutant(
        "damaged-master-never-serves",
        "broker member",
        "a master alone with a damaged log serves nothing of it, for ever",
        "member.shell:ReplicaShell._serve",
        "self.now_ms < self._held_until_ms",
        "True",
        UnitTests(f"{DAMAGED}::test_alone_it_serves_what_stands_before_and_takes_nothing"),
    ),
    _mutant(
        "damage-ends-the-role",
        "broker member",
        "a master that meets damage while it derives its queues ends, is elected again, and so on",
        "queues.message_store:MessageStore.take_mastership",
        "except DamagedError as error:",
        "except KeyError as error:",
        UnitTests(f"{DAMAGED}::test_alone_it_serves_what_stands_before_and_takes_nothing"),
    ),
    _mutant(
        "damage-ends-who-serves",
        "broker member",
        "a master that meets damage in what was just confirmed ends, and answers nobody",
        "member.shell:ReplicaShell._dispatch",
        "isinstance(error, DamagedError)",
        "False",
        UnitTests(f"{DAMAGED}::test_what_cannot_be_read_once_it_is_confirmed_is_not_acknowledged"),
    ),
    _mutant(
        "unreadable-and-acknowledged",
        "broker member",
        "a record that nobody can read here is answered 0",
        "member.shell:ReplicaShell._confirm",
        "Fate.LATE if is_damaged else moved.fate",
        "moved.fate",
        UnitTests(f"{DAMAGED}::test_what_cannot_be_read_once_it_is_confirmed_is_not_acknowledged"),
    ),
    _mutant(
        "numbers-behind-damage",
        "broker member",
        "a master takes messages though it does not know which numbers come next",
        "member.writes:GroupWrites._refused_for_damage",
        "damage is None",
        "True",
        UnitTests(f"{DAMAGED}::test_alone_it_serves_what_stands_before_and_takes_nothing"),
    ),
    _mutant(
        "mended-and-not-looked-at",
        "broker store",
        "a master numbers records before it has looked at those behind what was mended",
        "queues.message_store:MessageStore.dispatch",
        "(self._next is None or self._foresees)",
        "True",
        UnitTests("unit/broker/queues/test_damage.py::test_it_goes_on_once_the_bytes_are_back"),
    ),
    _mutant(
        "end-of-a-queue-guessed",
        "broker store",
        "a consumer at the damage is told that its queue ends there, and is sent back",
        "queues.message_store:MessageStore.get",
        "self.in_the_way is not None and",
        "False and",
        UnitTests(
            "unit/broker/queues/test_damage.py"
            "::test_what_stands_behind_it_is_neither_served_nor_written_to"
        ),
    ),
    _mutant(
        "mastership-handed-round",
        "broker replica",
        "members that lack the same range hand the mastership to each other for ever",
        "replica.stall:DamageRelief.is_due",
        "any(self._given_away[start] < DAMAGE_RELIEFS_MAX for start in self._found)",
        "bool(self._found)",
        UnitTests(
            "unit/broker/replica/test_damage.py"
            "::test_members_that_lack_the_same_range_ask_each_other_a_few_times_only"
        ),
    ),
    _mutant(
        "same-heir-again",
        "broker replica",
        "a damaged master asks the one that lacks the range, too, and never the one that has it",
        "replica.stall:DamageRelief.heirs",
        "sorted(holders, key=lambda item: self._tried[item])",
        "holders",
        UnitTests(
            "unit/broker/replica/test_damage.py"
            "::test_members_that_lack_the_same_range_ask_each_other_a_few_times_only"
        ),
    ),
    _mutant(
        "refused-without-a-start",
        "broker ha",
        "a replica asks for ever for a range that its master has trimmed",
        "ha.repair:give",
        "max(start, log.log_start)",
        "start",
        UnitTests(f"{REPAIR}::test_what_is_given_is_confirmed_and_was_compared"),
    ),
    _mutant(
        "part-of-a-range-is-gone",
        "broker ha",
        "a damaged range is given up though the master has a part of it",
        "ha.repair:Repairs._repair_all",
        "error.log_start >= damage.end",
        "True",
        UnitTests(f"{REPAIR}::test_what_the_master_has_trimmed_is_told_of"),
    ),
    _mutant(
        "given-up-on-no-word",
        "broker member",
        "a member drops a part of its log though it follows nobody",
        "member.group:ReplicationGroup._trimmed_by_the_master",
        "core is None or not core.streaming or in_the_way is None",
        "in_the_way is None",
        UnitTests(f"{DAMAGED}::test_what_the_master_has_trimmed_is_done_without"),
    ),
    _mutant(
        "any-damage-is-given-up",
        "broker member",
        "a member drops what is in force of its log for a range that hinders nothing",
        "member.group:ReplicationGroup._trimmed_by_the_master",
        "in_the_way.start != damage.start",
        "False",
        UnitTests(f"{DAMAGED}::test_what_the_master_has_trimmed_is_done_without"),
    ),
    _mutant(
        "trimmed-and-asked-for-ever",
        "broker member",
        "a member never gets past damage that its master has trimmed",
        "member.group:ReplicationGroup._trimmed_by_the_master",
        "store.begin_behind(found[-1])",
        "pass",
        UnitTests(f"{DAMAGED}::test_what_the_master_has_trimmed_is_done_without"),
    ),
    _mutant(
        "rows-outlive-their-log",
        "broker store",
        "a member goes on with rows whose log was dropped",
        "queues.message_store:MessageStore.begin_behind",
        'self._lose(f"they ended at {self.dispatched}, and the log begins at {to}")',
        "pass",
        UnitTests(
            "unit/broker/queues/test_damage.py::test_it_begins_behind_what_nobody_has_any_more"
        ),
    ),
    _mutant(
        "unproved-bytes-believed",
        "broker log",
        "a bit flips in bytes whose newest sums a power cut took: that broker never starts again",
        "queues.message_store:MessageStore._prove",
        "if reason:",
        "if False:",
        UnitTests(UNPROVED),
    ),
    _mutant(
        "doubt-until-the-next-start",
        "broker log",
        "a broker that ends before its bytes were fetched takes them for sound at its next start",
        "log.mending:Mending.doubt",
        "self._restate(sums.RangeSum(start, length, sums.UNKNOWN))",
        "self._checks.forget(start, start + length)",
        UnitTests(UNPROVED),
    ),
    _mutant(
        "rows-of-unproved-bytes",
        "broker log",
        "queues are derived from a record with a flipped bit before anybody looks whether it fits",
        "queues.message_store:MessageStore._prove",
        "min(upto, Offset(mending.unproved[0].start))",
        "upto",
        UnitTests(UNPROVED),
    ),
    _mutant(
        "any-number-begins-a-queue",
        "broker log",
        "the last record of a queue, in another queue by a flipped bit, is served from there",
        "queues.continuity:Continuity._goes_on",
        "0 if self._is_whole else number",
        "number",
        UnitTests(UNPROVED),
    ),
    _mutant(
        "unconfirmed-bytes-of-the-master",
        "broker log",
        "bytes of another epoch are written where this member's own unconfirmed ones stand",
        "ha.repair:Repairs._repair",
        "damage.end > self._confirmed()",
        "False",
        UnitTests(NEVER_A_SUM),
    ),
    _mutant(
        "anything-instead-of-unknown-bytes",
        "broker log",
        "what is no run of whole records is written into a log",
        "ha.repair:Repairs._repair",
        "check_units(data, damage.start)",
        "pass",
        UnitTests(NEVER_A_SUM),
    ),
    _mutant(
        "fetched-and-still-unknown",
        "broker log",
        "bytes that were fetched stay damaged by their sum, and are fetched for ever",
        "log.mending:Mending.state",
        "self._restate(sums.RangeSum(damage.start, damage.length, crc))",
        "pass",
        UnitTests(NEVER_A_SUM),
    ),
)
