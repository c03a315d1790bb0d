"""Bugs in the shell around the broker's cores: what is answered, flushed, ended, asked and told.

Everything here runs the product's own shell; the simulated worlds have one of their own.
"""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

BROKER = "gantry_broker"
MEMBER = "unit/broker/member/test_member.py"
SHELL = "unit/broker/member/test_shell.py"
AGENT = "unit/broker/control/test_agent.py"
LINE = "unit/broker/control/test_line.py"
LINKS = "unit/broker/ha/test_links.py"
HOSTING = "unit/broker/host/test_hosting.py"
CLIENTS = "unit/broker/clients"
FULL = "unit/broker/replica/test_full_disk.py"
PENDING = "unit/broker/replica/test_pending.py"
PINS = "unit/broker/retention/test_pins.py"
STALL = "unit/broker/replica/test_stall.py"


def _mutant(name: str, breaks: str, where: str, old: str, new: str, killer: str) -> Mutant:
    edit = Edit(f"{BROKER}.{where}", old, new)
    return Mutant(name, "shell", breaks, (edit,), UnitTests(killer))


_ANSWERS = (
    _mutant(
        "too-few-acknowledge",
        "a send is answered 0 while the set is smaller than it must be (H11)",
        "replica.master:Mastership.advance",
        "Fate.CONFIRMED if self.has_enough else Fate.TOO_FEW",
        "Fate.CONFIRMED if self.in_sync >= 1 else Fate.TOO_FEW",
        f"{MEMBER}::test_what_only_the_master_has_is_not_acknowledged_where_two_must",
    ),
    _mutant(
        "confirmed-beyond-confirm",
        "a send is answered 0 while its last byte is not confirmed",
        "replica.master:PendingWrites.confirmed",
        "waiting[0][0] <= confirm",
        "waiting[0][0] <= confirm + 1",
        f"{PENDING}::test_confirmed_up_to_and_including_the_end",
    ),
    _mutant(
        "stood-still-and-late",
        "a process that stood still answers 12 to what came just now",
        "replica.core:ReplicaCore.appended",
        "master.pending.add(end, now_ms, write)",
        "master.pending.add(end, self._now_ms, write)",
        f"{PENDING}::test_a_process_that_stood_still_finds_no_new_write_late",
    ),
    _mutant(
        "sends-outlive-their-mastership",
        "who waits when a mastership ends is told nothing, or 0 by the next one",
        "replica.core:ReplicaCore._end_role",
        "self.master.pending.end()",
        "[]",
        f"{MEMBER}::test_the_end_of_a_mastership_ends_what_belongs_to_it",
    ),
    _mutant(
        "demotion-ends-no-writes",
        "the same, by the group",
        "member.group:ReplicationGroup.demoted",
        "self.writes.ended(Fate.DEPOSED, writes)",
        "pass",
        f"{MEMBER}::test_the_end_of_a_mastership_ends_what_belongs_to_it",
    ),
    _mutant(
        "topics-outlive-their-mastership",
        "who waits for a topic when a mastership ends is never answered",
        "member.writes:GroupWrites.end",
        "self.topics.end()",
        "pass",
        f"{MEMBER}::test_who_waits_for_a_topic_is_told_of_the_end",
    ),
    _mutant(
        "answered-before-it-is-visible",
        "a producer is answered 0 before its record can be read",
        "member.shell:ReplicaShell._confirm",
        "self._dispatch()\n",
        "self._answer(moved.fate, moved.writes)\n        self._dispatch()\n        return\n",
        f"{MEMBER}::test_who_is_acknowledged_finds_its_record",
    ),
    _mutant(
        "waits-without-end",
        "sends that nobody confirms wait for ever",
        "replica.master:Mastership.tick",
        "self.pending.late(now_ms)",
        "None",
        f"{PENDING}::test_a_write_that_nobody_confirms_is_late_and_does_not_end_again",
    ),
    _mutant(
        "stop-answers-nobody",
        "a process that ends leaves its producers to their time-outs",
        "member.group:ReplicationGroup.stop",
        "self.core.stopped()",
        "()",
        f"{MEMBER}::test_the_end_of_a_member_answers_who_waits",
    ),
)

_DISK = (
    _mutant(
        "refused-append-untold",
        "the core believes that bytes are in the log that the disk refused",
        "member.shell:ReplicaShell._append",
        "self.step(ev.LogRefused(self._store.log.end, str(error)))",
        "pass",
        f"{MEMBER}::test_bytes_that_were_not_written_are_asked_for_again",
    ),
    _mutant(
        "written-behind-a-gap",
        "what follows refused bytes is written in their place",
        "member.shell:ReplicaShell._append",
        "offset != self._store.log.end",
        "False",
        f"{SHELL}::test_what_follows_refused_bytes_is_not_written_in_their_place",
    ),
    _mutant(
        "cut-bytes-count-as-flushed",
        "a sync that was asked for before a cut vouches for the bytes behind it",
        "member.shell:ReplicaShell._work",
        "partial(self._flushed, self.core.log.cuts)",
        "lambda flushed: self._flushed(self.core.log.cuts, flushed)",
        f"{SHELL}::test_a_sync_that_ends_after_a_cut_speaks_of_the_log_before_it",
    ),
    _mutant(
        "append-not-flushed",
        "a master's own bytes are never synced",
        "member.shell:ReplicaShell.appended",
        "self._flush_due = True",
        "pass",
        f"{MEMBER}::test_a_send_is_acknowledged_once_the_set_has_it",
    ),
    _mutant(
        "saved-when-handed-over",
        "a master serves before its epoch is on the disk (H4)",
        "member.shell:ReplicaShell._save",
        "future.add_done_callback(partial(self._saved, token, state))",
        "self._loop.call_soon(self.step, ev.StateSaved(token))",
        f"{MEMBER}::test_nobody_is_served_before_the_epoch_is_on_the_disk",
    ),
    _mutant(
        "unsaved-state-believed",
        "a state that could not be saved counts as saved",
        "member.shell:ReplicaShell._saved",
        "error is None",
        "True",
        f"{MEMBER}::test_a_state_that_cannot_be_saved_ends_the_member",
    ),
    _mutant(
        "stop-forgets-the-state",
        "a process ends before the state that it is saving is saved",
        "member.shell:ReplicaShell.stop",
        "self._saver.wait()",
        "pass",
        f"{MEMBER}::test_a_stop_keeps_the_state_that_is_being_saved",
    ),
    _mutant(
        "damage-survived",
        "a broker goes on after its store has refused",
        "member.shell:ReplicaShell.step",
        "self.fail(error)",
        "pass",
        f"{MEMBER}::test_a_store_that_refuses_ends_the_member",
    ),
    _mutant(
        "trimmed-below-a-replica",
        "the log loses what a connected replica still reads",
        "retention.core.pins:pins",
        "for at, broker_id in others",
        "for at, broker_id in ()",
        f"{MEMBER}::test_the_log_stays_from_where_on_a_replica_reads_it",
    ),
    _mutant(
        "silent-disk-unnoticed",
        "a master whose disk does not answer keeps its role for ever",
        "replica.stall:DiskWatch.is_silent",
        "self.waited_ms >= self._limits.disk_wait_ms",
        "False",
        f"{STALL}::test_a_master_whose_disk_does_not_answer_hands_over",
    ),
    _mutant(
        "handed-to-a-silent-disk",
        "where all disks stand still the mastership goes round",
        "replica.master:Mastership.heirs",
        " if member.acked > flushed",
        "",
        f"{STALL}::test_whose_disk_stands_still_as_well_is_not_asked_for",
    ),
    _mutant(
        "handed-to-a-full-disk",
        "where all disks are full the mastership goes round",
        "replica.master:Mastership.heirs_with_room",
        " if member.has_room",
        "",
        f"{FULL}::test_where_nobody_has_room_it_stays_and_says_so_once",
    ),
    _mutant(
        "follows-with-a-silent-disk",
        "a deposed master's event loop waits for its disk in a cut",
        "replica.core:ReplicaCore._reopen",
        " or self.disk.is_silent",
        "",
        f"{STALL}::test_a_deposed_master_waits_for_its_disk_before_it_follows",
    ),
    _mutant(
        "writes-to-a-silent-disk",
        "a master whose disk does not answer takes sends",
        "replica.master:Mastership.no_writes",
        "self.disk_is_silent",
        "False",
        f"{MEMBER}::test_a_master_whose_disk_does_not_answer_takes_no_write",
    ),
)

_ROLES = (
    _mutant(
        "uploads-outlive-their-mastership",
        "a deposed master goes on uploading",
        "member.group:ReplicationGroup.demoted",
        "self.tier.demoted()",
        "pass",
        f"{MEMBER}::test_the_end_of_a_mastership_ends_what_belongs_to_it",
    ),
    _mutant(
        "deposed-store-stays-master",
        "a deposed master's store goes on numbering",
        "member.shell:ReplicaShell._demoted",
        "self._store.drop_mastership()",
        "pass",
        f"{MEMBER}::test_the_store_is_the_masters_while_clients_are_served",
    ),
    _mutant(
        "served-before-mastership",
        "clients are served by a store that numbers nothing yet",
        "member.shell:ReplicaShell._promoted",
        "self._store.take_mastership()\n",
        "self._observer.promoted(epoch, start)\n    self._store.take_mastership()\n",
        f"{MEMBER}::test_the_store_is_the_masters_while_clients_are_served",
    ),
    _mutant(
        "pulls-outlive-their-mastership",
        "pulls that wait for tier or disk are answered by a deposed master",
        "member.group:ReplicationGroup.demoted",
        "self.view.store.end()",
        "pass",
        f"{MEMBER}::test_a_demotion_sends_pulls_back_and_ends_reports",
    ),
    _mutant(
        "reports-outlive-their-mastership",
        "a deposed master goes on reporting consumers",
        "member.group:ReplicationGroup._end_books",
        "self._consumers.end()",
        "pass",
        f"{MEMBER}::test_a_demotion_sends_pulls_back_and_ends_reports",
    ),
    _mutant(
        "demotion-untold",
        "clients' sessions stay with a deposed master",
        "member.group:ReplicationGroup.demoted",
        "self.watcher.serving_ends()",
        "pass",
        f"{MEMBER}::test_the_end_of_a_mastership_ends_what_belongs_to_it",
    ),
    _mutant(
        "leaves-without-a-word",
        "heartbeats do not say that a broker is leaving, and it is elected",
        "member.group:ReplicationGroup._report",
        "draining=self.writes.leaving",
        "draining=False",
        f"{MEMBER}::test_who_leaves_says_so",
    ),
    _mutant(
        "early-replica-kept",
        "a replica that calls before the core is there waits for its time-out",
        "member.group:ReplicationGroup._too_early",
        "self.links.close(event.link)",
        "pass",
        f"{MEMBER}::test_who_calls_too_early_is_sent_away",
    ),
    _mutant(
        "announced-topics-unread",
        "a master does not read the topics that the controllers announce",
        "member.group:ReplicationGroup._learned",
        "self._catch_up_topics()",
        "pass",
        f"{MEMBER}::test_a_master_reads_the_topics_that_controllers_name",
    ),
)

_CONTROLLERS = (
    _mutant(
        "answers-after-the-end",
        "an answer that comes after the stop changes the role",
        "control.agent:ControlAgent._take",
        "self._stopped",
        "False",
        f"{AGENT}::test_after_the_stop_nothing_is_learned",
    ),
    _mutant(
        "refused-hand-over-accepted",
        "a hand-over that was refused is not tried with the next member",
        "control.agent:ControlAgent.hand_over",
        "accepted=code == ResponseCode.SUCCESS",
        "accepted=True",
        f"{AGENT}::test_the_end_of_a_hand_over_is_told_once_and_truly",
    ),
    _mutant(
        "silence-of-controllers-refuses-a-hand-over",
        "a controller that leads no more counts as one that refuses the member",
        "control.agent:ControlAgent.hand_over",
        "and code not in _UNANSWERED",
        "",
        f"{AGENT}::test_the_end_of_a_hand_over_is_told_once_and_truly",
    ),
    _mutant(
        "a-member-nobody-refused-is-not-asked-for-again",
        "a leaving master gives up a member because the controllers' leader was leaving, too",
        "replica.drain:Drain.finished",
        "if end.answered:",
        "if True:",
        "unit/broker/replica/test_drain.py::test_who_could_not_be_asked_for_is_asked_for_again",
    ),
    _mutant(
        "an-heir-nobody-refused-is-not-asked-for-again",
        "a master with a silent disk gives up an heir because nobody could be asked",
        "replica.stall:Relief.finished",
        "if end.answered and not end.accepted:",
        "if not end.accepted:",
        "unit/broker/replica/test_stall.py::test_whom_nobody_has_refused_is_asked_for_again",
    ),
    _mutant(
        "one-election-only",
        "after one request for an election there is never another",
        "control.agent:ControlAgent._elected",
        "self._electing = False",
        "pass",
        f"{AGENT}::test_elections_are_asked_for_one_at_a_time_and_again",
    ),
    _mutant(
        "one-look-only",
        "after one look at the controllers there is never another",
        "control.agent:ControlAgent._refresh_done",
        "self._refreshing = False",
        "pass",
        f"{AGENT}::test_an_answer_is_learned_and_the_next_look_asks_anew",
    ),
    _mutant(
        "forgotten-and-silent",
        "a broker that the controllers forgot does not register again",
        "control.agent:ControlAgent._refresh_done",
        "self.register_again()",
        "pass",
        f"{AGENT}::test_who_was_forgotten_registers_again",
    ),
    _mutant(
        "speaks-for-who-left",
        "a process heartbeats for a group that it hosts no more",
        "control.line:ControllerLine.leave",
        "self._members.pop(member.group, None)",
        "pass",
        f"{LINE}::test_nobody_speaks_for_a_group_that_left",
    ),
    _mutant(
        "new-controller-unheard",
        "a controller that has just started hears of nobody for a while",
        "control.line:ControllerLine._connected",
        "self._say(list(self._members.values()))",
        "pass",
        f"{LINE}::test_a_controller_that_connects_hears_of_everybody_at_once",
    ),
    _mutant(
        "unread-link-kept",
        "a link whose peer does not read never ends",
        "ha.links:Link.close",
        "asyncio.get_running_loop().call_later(_CLOSE_GRACE_S, transport.abort)",
        "pass",
        f"{LINKS}::test_a_link_whose_peer_does_not_read_ends_all_the_same",
    ),
)

_PINS = (
    *(
        _mutant(
            f"trimmed-over-{name[2:]}",
            f"the log is trimmed over what {name} needs",
            "retention.core.pins:pins",
            old,
            new,
            f"{PINS}::test_everybody_counts",
        )
        for name, old, new in (
            ("a transaction", "for at in transactions]", "for at in ()]"),
            ("a member", "for at, broker_id in members]", "for at, broker_id in ()]"),
            ("a pop", "if popped is not None:", "if False:"),
        )
    ),
    _mutant(
        "trimmed-above-confirm",
        "the log loses what is not confirmed, since nobody reads it",
        "retention.core.pins:Pins.bound",
        "min((confirm, *self.offsets))",
        "min(self.offsets, default=confirm)",
        f"{PINS}::test_nothing_goes_that_is_not_confirmed",
    ),
)

_SERVING = (
    _mutant(
        "batch-by-what-stands-before-it",
        "a batch is answered 0 before its last record is confirmed",
        "replica.core:ReplicaCore.appended",
        "    self.log.appended(end)\n    if write is not None:\n        master.pending.add(end,",
        "    before = self.log.end\n    self.log.appended(end)\n    if write is not None:\n"
        "        master.pending.add(before,",
        f"{MEMBER}::test_a_batch_is_acknowledged_with_its_last_record",
    ),
    _mutant(
        "part-of-a-table-compared",
        "topics that the log has not told of yet look deleted",
        "member.writes:GroupWrites.catch_up_topics",
        "if not self._topics_due:",
        "if True:",
        f"{MEMBER}::test_topics_are_read_once_the_whole_state_is_known",
    ),
    _mutant(
        "topics-never-due",
        "topics that could not be compared at first never are",
        "member.group:ReplicationGroup.ticked",
        "self.writes.topics_due",
        "False",
        f"{MEMBER}::test_topics_are_read_once_the_whole_state_is_known",
    ),
    _mutant(
        "leaves-without-offsets",
        "a planned hand-over forgets the offsets of the last moments",
        "host.hosting:HostedGroup._hand_over",
        "self.processor.flush_offsets(lambda: None)",
        "pass",
        f"{HOSTING}::test_who_leaves_writes_offsets_hands_over_and_cuts_pipes",
    ),
    _mutant(
        "leaves-amid-answers",
        "a process ends with pipes that are in the middle of an answer",
        "host.hosting:HostedGroup.leave",
        "await self.router.cut_all()",
        "pass",
        f"{HOSTING}::test_who_leaves_writes_offsets_hands_over_and_cuts_pipes",
    ),
    _mutant(
        "processor-outlives-its-mastership",
        "a deposed master's timers go on: offsets, deliveries, questions to producers",
        "host.hosting:HostedGroup.serving_ends",
        "processor.close()",
        "pass",
        f"{HOSTING}::test_the_end_of_a_mastership_ends_whom_it_served",
    ),
    _mutant(
        "sessions-outlive-their-mastership",
        "clients heartbeat to a deposed master",
        "host.hosting:HostedGroup.serving_ends",
        "self.router.end_sessions(list(self.remoting.connections.values()))",
        "pass",
        f"{HOSTING}::test_the_end_of_a_mastership_ends_whom_it_served",
    ),
    _mutant(
        "store-session-outlives-its-mastership",
        "a front stays with a deposed store",
        "host.hosting:HostedGroup.serving_ends",
        'self.stores.end(self.name, "this is not the master of its group any more")',
        "pass",
        f"{HOSTING}::test_the_end_of_a_mastership_ends_whom_it_served",
    ),
    _mutant(
        "lost-session-goes-on",
        "the session of a front that is gone reads on, for ever",
        "remote.serving:StoreServer._lost",
        "sessions.pop(link).end()",
        "sessions.pop(link)",
        "unit/broker/remote/test_serving.py::test_the_session_of_a_front_that_was_lost_ends_and_no_other",
    ),
    _mutant(
        "ended-session-answers",
        "answers of an ended session reach whoever is served now",
        "remote.session:Session._tell",
        "if self._ended:",
        "if False:",
        "unit/broker/remote/test_remote_store.py::test_nobody_is_told_anything_once_the_session_ended",
    ),
    _mutant(
        "trimmed-before-the-state",
        "the log loses its beginning while the state behind it is not confirmed (H12)",
        "retention.trimming:LogTrim._trim",
        "said.code != ResponseCode.SUCCESS",
        "False",
        f"{CLIENTS}/test_trim.py::test_nothing_goes_before_the_state_behind_it_is_confirmed",
    ),
    _mutant(
        "two-trims-at-once",
        "a second trim begins while one is under way",
        "retention.trimming:LogTrim.trim",
        "self._task is not None",
        "False",
        f"{CLIENTS}/test_trim.py::test_nothing_goes_before_the_state_behind_it_is_confirmed",
    ),
    _mutant(
        "undelivered-noted",
        "a delayed message whose delivery was refused may be trimmed",
        "clients.delivery:Delivery._append",
        "self._view.store.committed.take_back([(*key, before)])",
        "pass",
        f"{CLIENTS}/test_delayed.py::test_what_was_not_delivered_is_not_noted_as_delivered",
    ),
    _mutant(
        "offsets-after-the-end",
        "a deposed master writes offsets",
        "clients.processor:ClientProcessor.close",
        "self._writer.close()",
        "pass",
        f"{CLIENTS}/test_positions.py::test_nothing_is_written_once_the_mastership_is_over",
    ),
    _mutant(
        "members-of-an-earlier-mastership",
        "consumers that were read in an earlier mastership are remembered in this one",
        "clients.consumers:Consumers._ask_members",
        "self._claim is claim",
        "True",
        f"{CLIENTS}/test_consumers.py::"
        "test_what_an_earlier_mastership_asked_for_is_not_believed_in_this_one",
    ),
    _mutant(
        "topic-changes-unbounded",
        "topic changes wait in any number",
        "member.topic_sync:TopicSync._ask",
        "len(self._waiting) >= MAX_WAITING",
        "False",
        "unit/broker/member/test_topic_sync.py::test_changes_that_wait_are_bounded",
    ),
    _mutant(
        "topic-of-a-former-mastership",
        "a send that waited for its topic at a deposed master is stored when that one is back",
        "member.topic_sync:TopicSync._ask",
        "ended == self._ended",
        "True",
        "unit/broker/member/test_topic_sync.py::test_who_asked_under_a_former_mastership_is_refused",
    ),
    _mutant(
        "confirm-of-the-lineage-only",
        "a start forgets what the log itself knows to be confirmed",
        "member.recovery:_checked",
        "max(stored.confirm, log.confirm_floor, log.log_start)",
        "max(stored.confirm, log.log_start)",
        "unit/broker/member/test_recover.py::test_the_log_knows_better_what_was_confirmed",
    ),
)

MUTANTS = (*_ANSWERS, *_DISK, *_PINS, *_ROLES, *_CONTROLLERS, *_SERVING)
