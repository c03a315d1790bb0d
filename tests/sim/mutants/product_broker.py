"""Bugs in the code around the broker's cores: member, links, log files, rows."""

from __future__ import annotations

from sim.mutants.mutant import UnitTests, one_edit

_mutant = one_edit("gantry_broker")

MUTANTS = (
    _mutant(
        "reports-before-the-log-is-confirmed",
        "broker member",
        "a topic of the last master is not reported to a quorum that adopts, and is ended",
        "member.topic_sync:TopicSync._report",
        "self._host.store.append([record], confirmed)",
        "confirmed(SendOutcome(ResponseCode.SUCCESS))",
        UnitTests(
            "unit/broker/member/test_topic_sync.py::test_a_quorum_that_adopts_is_told_the_topics_of_the_log"
        ),
    ),
    _mutant(
        "one-in-sync-is-enough",
        "broker member",
        "a send is answered 0 with fewer than minInSyncReplicas",
        "replica.master:Mastership.has_enough",
        "self.in_sync >= self.min_in_sync",
        "self.in_sync >= 1",
        UnitTests(
            "unit/broker/member/test_member.py::test_what_only_the_master_has_is_not_acknowledged_where_two_must"
        ),
    ),
    _mutant(
        "blank-unknown-to-the-core",
        "broker member",
        "the end of a file that was ended for a record without room passes for the next epoch's",
        "member.writes:GroupWrites.append",
        "        shell.appended()\n        self._met_full()\n",
        "        self._met_full()\n",
        UnitTests(
            "unit/broker/member/test_member.py::test_the_end_of_a_file_is_known_although_the_next_one_finds_no_room"
        ),
    ),
    _mutant(
        "flush-speaks-of-a-later-cut",
        "broker member",
        "a flush that began before a cut is believed after it",
        "member.shell:ReplicaShell._flushed",
        "ev.LogFlushed(flushed, cuts)",
        "ev.LogFlushed(min(flushed, self.core.log.end), self.core.log.cuts)",
        UnitTests(
            "unit/broker/member/test_shell.py::test_a_sync_that_ends_after_a_cut_speaks_of_the_log_before_it"
        ),
    ),
    _mutant(
        "fatal-error-of-a-step-survived",
        "broker member",
        "a member goes on after its log or its rows failed",
        "member.shell:ReplicaShell._guarded",
        "self.fail(error)",
        "pass",
        UnitTests(
            "unit/broker/member/test_shell.py::test_an_error_of_the_rows_ends_the_member_and_what_it_hears"
        ),
    ),
    _mutant(
        "steps-after-the-end",
        "broker member",
        "a member that has ended still takes what its links say",
        "member.shell:ReplicaShell.stop",
        "self._ended = True",
        "pass",
        UnitTests("unit/broker/member/test_shell.py::test_a_member_that_has_ended_hears_nothing"),
    ),
    _mutant(
        "cut-inside-a-record",
        "broker member",
        "a replica is told to cut its log inside a record",
        "member.shell:ReplicaShell._send",
        "self._is_in_a_record(message.point)",
        "False",
        UnitTests(
            "unit/broker/member/test_member.py::test_a_replica_whose_log_ends_in_a_record_is_sent_away"
        ),
    ),
    _mutant(
        "cut-before-what-is-confirmed-is-dispatched",
        "broker member",
        "rows miss records that a cut has taken from the cache",
        "member.shell:ReplicaShell._cut",
        "    self._dispatch()\n",
        "",
        UnitTests(
            "unit/broker/member/test_shell.py::test_a_change_of_role_or_log_finds_everything_dispatched"
        ),
    ),
    _mutant(
        "reset-cuts-only",
        "broker member",
        "a replica that begins anew keeps where its log began",
        "member.shell:ReplicaShell._cut",
        "    if reset:",
        "    if False:",
        UnitTests("unit/broker/member/test_shell.py::test_the_core_hears_of_the_cut_it_wanted"),
    ),
    _mutant(
        "cut-untold",
        "broker member",
        "a replica that has cut its log never goes on",
        "member.shell:ReplicaShell._cut",
        "self.step(ev.LogCut())",
        "pass",
        UnitTests("unit/broker/member/test_shell.py::test_the_core_hears_of_the_cut_it_wanted"),
    ),
    _mutant(
        "older-state-saved-over-a-newer",
        "broker member",
        "an epoch that found no room replaces a later one on the disk",
        "member.shell:ReplicaShell._save",
        "if self._ended or token < self._newest_state:",
        "if self._ended:",
        UnitTests(
            "unit/broker/member/test_shell.py::test_a_state_without_room_is_saved_later_unless_a_newer_one_is"
        ),
    ),
    _mutant(
        "no-room-for-the-lineage-forgotten",
        "broker member",
        "an epoch that found no room is never saved",
        "member.shell:ReplicaShell._saved",
        "self._loop.call_later(SAVE_AGAIN_S, self._save, token, state)",
        "pass",
        UnitTests(
            "unit/broker/member/test_shell.py::test_a_state_without_room_is_saved_later_unless_a_newer_one_is"
        ),
    ),
    _mutant(
        "full-disk-untold",
        "broker member",
        "a replica whose disk is full is fed again at once",
        "member.shell:ReplicaShell._append",
        "self._disk_space.met_full()",
        "pass",
        UnitTests(
            "unit/broker/member/test_shell.py::test_what_follows_refused_bytes_is_not_written_in_their_place"
        ),
    ),
    _mutant(
        "replica-never-flushes",
        "broker member",
        "what a replica has received is never synced",
        "member.shell:ReplicaShell._append",
        "    self._flush_due = True\n",
        "",
        UnitTests(
            "unit/broker/member/test_shell.py::test_a_replica_asks_for_the_sync_before_it_dispatches"
        ),
    ),
    _mutant(
        "promoted-before-its-records-are-read",
        "broker member",
        "a master numbers messages by rows that lack the last ones",
        "member.shell:ReplicaShell._promoted",
        "    self._dispatch()\n",
        "",
        UnitTests(
            "unit/broker/member/test_shell.py::test_a_change_of_role_or_log_finds_everything_dispatched"
        ),
    ),
    _mutant(
        "master-of-lost-rows",
        "broker member",
        "a master serves from rows that are lost",
        "member.shell:ReplicaShell._promoted",
        "if self._store.lost:",
        "if False:",
        UnitTests("unit/broker/member/test_lost_rows.py"),
    ),
    _mutant(
        "hand-over-untold-to-the-core",
        "broker member",
        "a hand-over that was refused is never tried with another",
        "member.shell:ReplicaShell._handed_over",
        "self.step(end)",
        "pass",
        UnitTests(
            "unit/broker/member/test_shell.py::test_the_core_hears_of_a_hand_over_that_was_refused"
        ),
    ),
    _mutant(
        "room-untold",
        "broker member",
        "a core never hears that its disk is full",
        "member.shell:ReplicaShell._look_at_room",
        "self._room = room",
        "self._room = room\n        return",
        UnitTests(
            "unit/broker/member/test_shell.py::test_what_follows_refused_bytes_is_not_written_in_their_place"
        ),
    ),
    _mutant(
        "gives-no-way-when-full",
        "broker member",
        "a master with a full disk stays the master",
        "member.shell:ReplicaShell._note_room",
        "self._observer.giving_way()",
        "pass",
        UnitTests(
            "unit/broker/member/test_shell.py::test_who_is_served_hears_of_what_ends_the_service"
        ),
    ),
    _mutant(
        "cut-off-untold",
        "broker member",
        "who is served is not told that the broker is cut off",
        "member.shell:ReplicaShell._note_others",
        "self._observer.cut_off(effect)",
        "pass",
        UnitTests(
            "unit/broker/member/test_shell.py::test_who_is_served_hears_of_what_ends_the_service"
        ),
    ),
    _mutant(
        "cut-off-and-accepting",
        "broker member",
        "a broker that may be deposed takes sends",
        "replica.master:Mastership.no_writes",
        "if self.cut_off:",
        "if False:",
        UnitTests("unit/broker/replica/test_pending.py::test_who_may_write"),
    ),
    _mutant(
        "leaving-and-accepting",
        "broker member",
        "a broker that hands its mastership over takes sends",
        "replica.master:Mastership.no_writes",
        "if self.drain is not None:",
        "if False:",
        UnitTests("unit/broker/member/test_member.py::test_who_leaves_says_so"),
    ),
    _mutant(
        "topics-changed-while-cut-off",
        "broker member",
        "a broker that may be deposed creates topics",
        "member.writes:GroupWrites._topics_refused",
        "if master.cut_off:",
        "if False:",
        UnitTests("unit/broker/member/test_writes.py::test_who_is_cut_off_changes_no_topic"),
    ),
    _mutant(
        "waiting-sends-outlive-a-cut-off",
        "broker member",
        "a send waits on although nobody can confirm it",
        "replica.core:ReplicaCore._look_around",
        ", *master.end_writes(Fate.CUT_OFF)]",
        "]",
        UnitTests(
            "unit/broker/replica/test_pending.py::test_a_master_that_is_cut_off_ends_what_waits"
        ),
    ),
    _mutant(
        "too-few-and-success",
        "broker member",
        "a send is answered 0 although too few were in sync",
        "replica.master:Mastership.advance",
        "if self.has_enough",
        "if True",
        UnitTests(
            "unit/broker/replica/test_pending.py::test_what_too_few_have_confirmed_is_not_acknowledged"
        ),
    ),
    _mutant(
        "expired-and-success",
        "broker member",
        "a send that nobody confirmed in time is answered 0",
        "member.writes:GroupWrites.ended",
        "if fate is Fate.CONFIRMED:",
        "if fate in (Fate.CONFIRMED, Fate.LATE):",
        UnitTests("unit/broker/member/test_writes.py::test_what_whoever_waits_is_answered"),
    ),
    _mutant(
        "ended-sends-hold-their-places",
        "broker member",
        "a send that waited when a mastership ended is told places that may be gone",
        "member.writes:GroupWrites.ended",
        "places = stored if with_places else []",
        "places = stored",
        UnitTests("unit/broker/member/test_writes.py::test_what_whoever_waits_is_answered"),
    ),
    _mutant(
        "lineage-that-covers-nothing",
        "broker member",
        "a broker starts with a log that no epoch covers",
        "member.recovery:_checked",
        "if log.end > log.log_start and stored.lineage.entry_at(log.log_start) is None:",
        "if False:",
        UnitTests("unit/broker/member/test_recover.py::test_a_log_that_nobody_wrote_is_refused"),
    ),
    _mutant(
        "lineage-unsealed",
        "broker member",
        "a damaged lineage is believed",
        "member.lineage_file:load",
        "if sealed.crc32c != _checksum(state):",
        "if False:",
        UnitTests(
            "unit/broker/member/test_recover.py::test_a_lineage_that_is_not_what_was_saved_is_refused"
        ),
    ),
    _mutant(
        "parked-messages-trimmed",
        "broker member",
        "the log is trimmed over a delayed message that is still due",
        "member.pins:oldest_parked",
        "return min(found, default=None)",
        "return max(found, default=None)",
        UnitTests(
            "unit/broker/member/test_delay_pins.py::test_the_oldest_message_of_any_level_that_is_not_delivered_yet"
        ),
    ),
    _mutant(
        "open-transactions-trimmed",
        "broker member",
        "the log is trimmed over a transaction that is still open",
        "member.pins:transaction_pins",
        "for topic in (HALF_TOPIC, OP_TOPIC)",
        "for topic in (OP_TOPIC,)",
        UnitTests(
            "unit/broker/member/test_transaction_pins.py::test_everything_is_kept_before_the_first_table"
        ),
    ),
    _mutant(
        "stop-keeps-the-listener",
        "broker member",
        "a group that has left still takes replicas",
        "member.group:ReplicationGroup.stop",
        "self._shared.listener.remove(self._key)",
        "pass",
        UnitTests(
            "unit/broker/member/test_member.py::test_a_group_that_has_ended_takes_no_replica"
        ),
    ),
    _mutant(
        "damage-gives-no-way",
        "broker member",
        "a master with damage in its log stays the master",
        "member.group:ReplicationGroup._damaged",
        "self.step(ev.LogDamaged(Offset(damage.start)))",
        "pass",
        UnitTests(
            "unit/broker/member/test_member.py::test_a_master_with_damage_asks_for_its_repair_and_gives_way"
        ),
    ),
    _mutant(
        "damage-is-not-repaired",
        "broker member",
        "damage in a log is found and left there",
        "member.group:ReplicationGroup._damaged",
        "self.repairs.wake()",
        "pass",
        UnitTests(
            "unit/broker/member/test_member.py::test_a_master_with_damage_asks_for_its_repair_and_gives_way"
        ),
    ),
    _mutant(
        "unconfirmed-bytes-given-for-a-repair",
        "broker ha",
        "a damaged range is filled with bytes that may still be cut",
        "ha.repair:give",
        "if not (log.log_start <= start < end <= confirm and ask.length <= RANGE_BYTES):",
        "if not (log.log_start <= start < end and ask.length <= RANGE_BYTES):",
        UnitTests(
            "unit/broker/ha/test_repair.py::test_what_is_given_is_confirmed_and_was_compared"
        ),
    ),
    _mutant(
        "replica-of-another-group",
        "broker ha",
        "a replica of another group is fed",
        "ha.links:ReplicationLinks._welcome",
        "if same_group(mine, theirs):",
        "if True:",
        UnitTests("unit/broker/ha/test_links.py::test_only_members_of_the_group_are_heard"),
    ),
    _mutant(
        "links-without-bound",
        "broker ha",
        "links are taken in any number",
        "ha.links:ReplicationLinks.adopt",
        "if len(self._links) >= MAX_LINKS or self._stopped:",
        "if self._stopped:",
        UnitTests("unit/broker/ha/test_links.py::test_links_are_bounded"),
    ),
    _mutant(
        "link-ends-untold",
        "broker ha",
        "a member that has gone counts as connected",
        "ha.links:ReplicationLinks._ended",
        "self.deliver(ev.LinkClosed(link.number))",
        "pass",
        UnitTests("unit/broker/ha/test_links.py::test_messages_arrive_in_order_both_ways"),
    ),
    _mutant(
        "strangers-stay",
        "broker ha",
        "who connects and says nothing stays for ever",
        "ha.listener:ReplicaListener._expect_hello",
        "self._show_out(link)",
        "pass",
        UnitTests("unit/broker/ha/test_links.py::test_a_silent_stranger_is_shown_out"),
    ),
    _mutant(
        "catch-up-without-a-pace",
        "broker ha",
        "a member far behind is fed as fast as the disk reads",
        "ha.feeding:Feeder.fill",
        "self._pace.spend(sent)",
        "pass",
        UnitTests(
            "unit/broker/member/test_shell.py::test_who_is_behind_is_filled_at_a_pace_and_to_the_end"
        ),
    ),
    _mutant(
        "congested-link-fed",
        "broker ha",
        "what a slow member does not read piles up in memory",
        "ha.feeding:Feeder._send",
        "while not links.is_congested(link):",
        "while True:",
        UnitTests(
            "unit/broker/member/test_member.py::test_the_log_stays_from_where_on_a_replica_reads_it"
        ),
    ),
    _mutant(
        "flushed-before-the-sync",
        "broker log",
        "who waits for a flush is told before it began",
        "log.writer:GroupCommit._start_job",
        "    if job.ranges:\n        self._writer.submit(job)",
        "    self._run(job.callbacks)\n    if job.ranges:\n        self._writer.submit(job)",
        UnitTests(
            "unit/broker/log/test_group_commit.py::test_callbacks_run_in_order_after_the_sync"
        ),
    ),
    _mutant(
        "failed-sync-counts",
        "broker log",
        "a sync that failed counts as a flush",
        "log.writer:GroupCommit._take_notice",
        "if job.error is not None:",
        "if False:",
        UnitTests(
            "unit/broker/log/test_group_commit.py::test_a_failed_sync_tells_nobody_and_ends_the_process"
        ),
    ),
    _mutant(
        "ranges-survive-a-cut",
        "broker log",
        "the next flush sums bytes that were cut",
        "log.writer:GroupCommit.cut",
        "    self._ranges.clear()\n",
        "",
        UnitTests("unit/broker/log/test_cutting.py::test_a_reset_forgets_what_was_not_flushed"),
    ),
    _mutant(
        "next-flush-never-starts",
        "broker log",
        "who asks for a flush during another one is never told",
        "log.writer:GroupCommit._settled",
        "        self._start_job()",
        "        pass",
        UnitTests(
            "unit/broker/log/test_group_commit.py::test_callbacks_run_in_order_after_the_sync"
        ),
    ),
    _mutant(
        "sync-after-failure",
        "broker log",
        "a disk that failed is asked again and believed",
        "log.writer:Writer.guarded",
        "    if self._failure is not None:\n        return\n",
        "",
        UnitTests("unit/broker/log/test_disk.py::test_a_disk_that_failed_is_not_asked_again"),
    ),
    _mutant(
        "floor-before-its-sums",
        "broker log",
        "a checkpoint promises sums that are not on the disk",
        "log.disk:DiskWriter._checkpoint",
        "self._sync(writers, files, lambda writer: writer.sync_sums())",
        "pass",
        UnitTests(
            "unit/broker/log/test_disk.py::test_a_checkpoint_promises_only_what_was_synced_before_it"
        ),
    ),
    _mutant(
        "syncfs-failure-believed",
        "broker log",
        "a sync of the file system that failed counts for all its files",
        "log.disk:DiskWriter._sync",
        "self._is_trusted = syncfs(self._root)\n        if self._is_trusted:\n            return",
        "self._is_trusted = syncfs(self._root)\n        return",
        UnitTests(
            "unit/broker/log/test_disk.py::test_an_error_is_blamed_on_the_log_it_hit_and_ends_no_other"
        ),
    ),
    _mutant(
        "start-in-one-slot",
        "broker log",
        "an older slot asks for files that were trimmed",
        "log.writer:Writer.write_start",
        "for _ in range(2):",
        "for _ in range(1):",
        UnitTests("unit/broker/log/test_trim.py::test_both_slots_know_the_new_start"),
    ),
    _mutant(
        "reset-keeps-the-checkpoint",
        "broker log",
        "a log that begins anew is opened with its old start",
        "log.cutting:finish",
        "if cut.is_reset:\n        _restart",
        "if False:\n        _restart",
        UnitTests(
            "unit/broker/log/test_cutting.py::test_reset_begins_an_empty_log_elsewhere_whatever_was_confirmed"
        ),
    ),
    _mutant(
        "cut-sums-left",
        "broker log",
        "sums of bytes that were cut are compared with their successors",
        "log.cutting:_shorten",
        "if not loaded.is_clean or loaded.durable > target:",
        "if False:",
        UnitTests(
            "unit/broker/log/test_cutting.py::test_cut_at_every_boundary_keeps_exactly_what_is_below"
        ),
    ),
    _mutant(
        "kernel-sync-error-believed",
        "broker log",
        "a sync that the kernel reported as failed counts as a flush",
        "log.disk:DiskWriter._finish",
        "if error is not None:",
        "if False:",
        UnitTests(
            "unit/broker/log/test_kernel_syncs.py::test_an_error_of_the_kernel_poisons_the_log_and_no_other"
        ),
    ),
    _mutant(
        "kernel-syncs-take-no-time",
        "broker log",
        "the figure of a disk leaves out the syncs that most sends wait for",
        "log.kernel_syncs:KernelSyncs._ended",
        "self.times.counts[bisect_left(BOUNDS_S, took_s)] += 1",
        "self._under_way.pop(writer)",
        UnitTests("unit/broker/log/test_kernel_syncs.py::test_the_kernel_syncs_what_grows"),
    ),
    _mutant(
        "serves-what-an-earlier-epoch-was-given",
        "routing",
        "a send that waited here for a former master is stored a second time",
        "clients.routing:ClientRouter._is_former",
        "return bool(0 < conn.attrs.get(EPOCH, 0) < self._epoch())",
        "return False",
        UnitTests(
            "unit/broker/clients/test_routing.py::test_what_was_handed_over_for_an_earlier_epoch_is_not_served"
        ),
    ),
    _mutant(
        "epoch-untold",
        "routing",
        "nobody says for which master a client is handed over",
        "clients.routing:ClientRouter._try",
        "pipe.lead_to(target, self._epoch())",
        "pipe.lead_to(target)",
        UnitTests(
            "unit/broker/clients/test_routing.py::test_what_was_handed_over_for_an_earlier_epoch_is_not_served"
        ),
    ),
)
