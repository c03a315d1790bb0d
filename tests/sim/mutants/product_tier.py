"""Bugs in the code around the tier's cores: calls, uploads, what is remembered, waiting pulls."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests, one_edit
from sim.mutants.planting import Edit

_mutant = one_edit("gantry_broker")

MUTANTS = (
    _mutant(
        "maybe-counts-as-created",
        "tier",
        "a version that may not be there counts as committed",
        "tier.calls:_ended",
        "ev.Created(ticket) if isinstance(made, Created) else ev.Maybe(ticket, made.reason)",
        "ev.Created(ticket)",
        UnitTests(
            "unit/broker/tier/test_calls.py::test_a_version_that_is_there_already_may_be_anothers"
        ),
    ),
    _mutant(
        "anothers-pack-is-ours",
        "tier",
        "a pack with other bytes under the name counts as stored",
        "tier.calls:Calls._is_there",
        "return found == call.end",
        "return found is not None",
        UnitTests(
            "unit/broker/tier/test_calls.py::test_a_pack_of_doubtful_outcome_is_there_only_whole"
        ),
    ),
    _mutant(
        "refused-call-tried-for-ever",
        "tier",
        "a damaged object is asked for again and again",
        "tier.calls:Calls.run",
        "return ev.CallRefused(call.ticket, str(error))",
        "return ev.CallFailed(call.ticket, str(error))",
        UnitTests(
            "unit/broker/tier/test_calls.py::test_what_must_not_be_used_is_told_apart_from_what_may_pass"
        ),
    ),
    _mutant(
        "rot-ends-uploads",
        "tier",
        "one rotten byte of a master's own log ends its uploads for good",
        "tier.calls:Calls.run",
        "return ev.CallFailed(call.ticket, str(error))",
        "return ev.CallRefused(call.ticket, str(error))",
        UnitTests(
            "unit/broker/tier/test_calls.py::test_a_byte_that_rotted_is_told_to_the_log_and_the_pack_tried_again"
        ),
    ),
    _mutant(
        "rot-untold-to-the-log",
        "tier",
        "what the pack maker finds damaged is never repaired",
        "tier.calls:Calls._cut_below",
        "self._log.compare(error.damage.start, error.damage.end)",
        "pass",
        UnitTests(
            "unit/broker/tier/test_calls.py::test_a_byte_that_rotted_is_told_to_the_log_and_the_pack_tried_again"
        ),
    ),
    _mutant(
        "waiting-sums-end-packs",
        "tier",
        "a full disk that needs the upload to have room again never gets it",
        "tier.calls:Calls._cut_below",
        "return await self._cut_below(call, Offset(error.damage.start))",
        "raise",
        UnitTests(
            "unit/broker/tier/test_calls.py::test_what_waits_for_room_for_its_sums_stays_out_of_a_pack"
        ),
    ),
    _mutant(
        "pack-beyond-the-limit",
        "tier",
        "a pack holds what is not confirmed",
        "tier.calls:Calls._cut",
        "Offset(min(call.limit, most))",
        "Offset(most)",
        UnitTests(
            "unit/broker/tier/test_calls.py::test_a_pack_holds_nothing_at_or_above_the_limit"
        ),
    ),
    _mutant(
        "shared-prefix-unnoticed",
        "tier",
        "two groups write one tier",
        "tier.calls:Calls._run",
        "await own_prefix(store, place, self._group, int(time() * 1000))",
        "pass",
        UnitTests(
            "unit/broker/tier/test_calls.py::test_what_must_not_be_used_is_told_apart_from_what_may_pass"
        ),
    ),
    _mutant(
        "cancelled-call-goes-on",
        "tier",
        "a call of an earlier mastership goes on",
        "tier.uploader:Uploader._carry_out",
        "                self._call.cancel()\n",
        "",
        UnitTests(
            "unit/broker/tier/test_uploader.py::test_a_call_of_an_earlier_mastership_is_cancelled_before_the_next_begins"
        ),
    ),
    _mutant(
        "fence-untold",
        "tier",
        "a fenced uploader does not look for its master",
        "tier.uploader:Uploader._carry_out",
        "self._observer.tier_fenced(own, by)",
        "pass",
        UnitTests(
            "unit/broker/tier/test_uploader.py::test_an_event_from_within_an_effect_waits_for_the_effects_before_it"
        ),
    ),
    _mutant(
        "commit-untold",
        "tier",
        "readers hear of an upload only when they look",
        "tier.uploader:Uploader._carry_out",
        "self._observer.tier_committed(head)",
        "pass",
        UnitTests(
            "unit/broker/tier/test_uploader.py::test_each_advance_is_looked_at_and_each_commit_is_told"
        ),
    ),
    _mutant(
        "one-look-at-the-log",
        "tier",
        "what is confirmed after the first look is never uploaded",
        "tier.uploader:Uploader._look",
        "    self._advance = None\n",
        "",
        UnitTests(
            "unit/broker/tier/test_uploader.py::test_each_advance_is_looked_at_and_each_commit_is_told"
        ),
    ),
    _mutant(
        "fault-of-a-call-unheard",
        "tier",
        "uploads stop for good and nobody hears",
        "tier.uploader:Uploader._run",
        "        self._failed(error)\n        return",
        "        return",
        UnitTests("unit/broker/tier/test_uploader.py::test_a_fault_of_ours_is_told"),
    ),
    _mutant(
        "uploads-what-is-not-flushed",
        "tier",
        "the tier holds records that the log may lose",
        "member.tier:GroupTier.local_log",
        "confirm=min(facts.confirm, facts.flushed)",
        "confirm=facts.end",
        UnitTests(
            "unit/broker/member/test_tier.py::test_what_is_confirmed_and_not_on_this_disk_is_not_the_tiers"
        ),
    ),
    _mutant(
        "tier-waits-without-bound",
        "tier",
        "pulls wait for the tier in any number",
        "tier.waits:TierWaits.ask",
        " or len(self._waiting) >= WAITING_MAX",
        "",
        UnitTests("unit/broker/clients/test_tier_pulls.py::test_too_many_are_refused_as_busy"),
    ),
    _mutant(
        "tier-waits-outlive-their-mastership",
        "tier",
        "pulls that wait for the tier when a mastership ends are never answered",
        "tier.waits:TierWaits.release",
        "        done(result)",
        "        pass",
        UnitTests(
            "unit/broker/clients/test_tier_pulls.py::test_the_end_of_the_mastership_sends_everybody_back"
        ),
    ),
    _mutant(
        "seen-is-not-marked",
        "tier",
        "a broker that has read its tier takes an empty listing for a new tier after a restart",
        "tier.service:TierService._chain_moved",
        "self._seen.mark()",
        "pass",
        UnitTests(
            "unit/broker/tier/test_service.py::test_who_reads_the_tier_remembers_that_it_is_there"
        ),
    ),
    _mutant(
        "seen-of-another-place",
        "tier",
        "the mark of another place forbids a new tier here",
        "tier.seen:Seen.__init__",
        "found == self._mark",
        "found is not None",
        UnitTests(
            "unit/broker/tier/test_calls.py::test_a_volume_remembers_that_it_has_seen_its_tier"
        ),
    ),
    _mutant(
        "chain-untold-to-the-uploader",
        "tier",
        "an uploader does not hear that another master uploads, and looks only by itself",
        "tier.service:TierService._chain_moved",
        "self.uploader.chain_seen(chain)",
        "pass",
        UnitTests(
            "unit/broker/tier/test_service.py::test_who_reads_the_tier_remembers_that_it_is_there"
        ),
    ),
    _mutant(
        "old-timer-rings",
        "tier",
        "an uploader wakes at a time that it has given up",
        "tier.uploader:Uploader._arm",
        "self._timer.cancel()",
        "pass",
        UnitTests(
            "unit/broker/tier/test_uploader.py::test_a_timer_that_was_set_anew_rings_as_set_last"
        ),
    ),
    _mutant(
        "versions-all-or-none",
        "tier",
        "a reader far behind never catches up with a store that fails now and then",
        "tier.reader:TierReader._catch_up",
        "for at in range(0, len(numbers), AT_ONCE):\n"
        "            versions = await read_versions(store, place, numbers[at : at + AT_ONCE])",
        "for at in (0,):\n            versions = await read_versions(store, place, numbers)",
        UnitTests(
            "unit/broker/tier/test_reader.py::test_a_reader_far_behind_catches_up_though_calls_fail_now_and_then"
        ),
    ),
    _mutant(
        "progress-uncounted",
        "tier",
        "a reader that gets on rests as long as one that does not",
        "tier.reader:TierReader._run",
        "TROUBLE_S if self._progress == known else self._follow_s",
        "TROUBLE_S",
        UnitTests(
            "unit/broker/tier/test_reader.py::test_a_reader_far_behind_catches_up_though_calls_fail_now_and_then"
        ),
    ),
    _mutant(
        "never-begins-at-what-is-left",
        "tier",
        "a reader whose versions were all removed follows the tier no more until a restart",
        "tier.reader:TierReader._begin_at",
        "0 < known < v - 1",
        "False",
        UnitTests(
            "unit/broker/tier/test_reader.py::test_a_reader_that_fell_behind_a_rule_of_the_bucket_goes_on_from_what_is_left"
        ),
    ),
    _mutant(
        "begins-behind-any-hole",
        "tier",
        "a version that is hidden for a moment makes a reader forget what is before it",
        "tier.reader:TierReader._begin_at",
        " and await first_version(self._store, self._place) == v",
        "",
        UnitTests(
            "unit/broker/tier/test_reader.py::test_a_version_that_is_hidden_is_no_reason_to_begin_anew"
        ),
    ),
    _mutant(
        "hole-waited-for-alone",
        "tier",
        "a master waits for removed versions that its own reader has long passed",
        "tier.core.session:UploadSession.doubt",
        "self.commit is None and chain.v > self.chain.v",
        "False",
        UnitTests(
            "unit/broker/tier/core/test_upload_role.py::test_a_hole_that_another_reader_has_passed_is_waited_for_no_more"
        ),
    ),
    _mutant(
        "doubt-is-dropped",
        "tier",
        "a listing without the oldest objects is followed by none: that they are gone is not told",
        "tier.reader:TierReader._lacks_its_beginning",
        "or index.losses.in_doubt",
        "",
        UnitTests(
            "unit/broker/tier/test_reader.py"
            "::test_a_look_that_lacks_the_beginning_is_followed_by_others"
        ),
    ),
    _mutant(
        "looks-of-a-former-absence",
        "tier",
        "an object that was back in between counts as removed at the first look that lacks it",
        "tier.core.losses:Losses.read",
        "self._forget_looks()",
        "pass",
        UnitTests(
            "unit/broker/tier/core/test_losses.py::test_what_was_read_in_between_is_not_removed"
        ),
    ),
    _mutant(
        "nobody-asks-for-the-oldest",
        "tier",
        "a rule of the bucket removes what nobody reads, and the tier is healthy",
        "tier.reader:TierReader._ask_for_the_oldest",
        "now_s < self._oldest_due_s",
        "True",
        UnitTests(
            "unit/broker/tier/test_reader.py"
            "::test_removed_packs_are_found_though_nobody_asks_the_store_for_them"
        ),
    ),
    _mutant(
        "removed-pack-asked-for",
        "tier",
        "once the oldest packs were removed nobody asks for the one that is the oldest now",
        "tier.core.reading:TierIndex.oldest",
        "if entry.hi > removed_below",
        "",
        UnitTests(
            "unit/broker/tier/test_reader.py"
            "::test_removed_packs_are_found_though_nobody_asks_the_store_for_them"
        ),
    ),
    _mutant(
        "silence-about-the-oldest",
        "tier",
        "a store that does not answer for one pack keeps its reader from following the tier",
        "tier.reader:TierReader._ask_for_the_oldest",
        "except (StoreError, OSError) as error:",
        "except ArithmeticError as error:",
        UnitTests(
            "unit/broker/tier/test_reader.py"
            "::test_an_oldest_pack_that_is_damaged_is_told_and_one_without_an_answer_is_not"
        ),
    ),
    _mutant(
        "removed-records-promised",
        "tier",
        "GET_MIN_OFFSET says a record that a rule of the bucket has removed",
        "tier.waits:first_offset",
        "if tier is None or low >= local:",
        "if True:",
        UnitTests(
            "unit/broker/clients/test_tier_pulls.py"
            "::test_what_was_removed_from_the_tier_is_not_promised"
        ),
    ),
    _mutant(
        "sent-on-for-a-missing-pack",
        "tier",
        "the first offset of a queue rises while a pack is missing that may come back",
        "tier.reader:TierReader.first",
        "found.next_valid if isinstance(found, Gone) else offset",
        "self.index.runs.start(queue) or offset",
        UnitTests(
            "unit/broker/tier/test_reader.py"
            "::test_when_the_oldest_packs_were_removed_the_rest_is_served"
        ),
    ),
    _mutant(
        "tier-copied-that-a-master-claimed",
        "tier",
        "a member of a group that serves copies the tier, and passes for what wrote it",
        "tier.core.beginning:beginning",
        "CopyTier() if chain.v == chain.taken_v else BeginEmpty()",
        "CopyTier()",
        UnitTests(
            "unit/broker/member/test_restoring.py"
            "::test_once_a_master_of_the_group_has_claimed_a_member_begins_empty"
        ),
    ),
    _mutant(
        "tier-taken-from-anybody",
        "tier",
        "a group takes the tier of one that it was not told of",
        "tier.core.beginning:beginning",
        "if chain.owner == former:",
        "if True:",
        UnitTests("unit/broker/member/test_restoring.py::test_a_second_group_is_refused"),
    ),
    _mutant(
        "half-a-copy-is-the-log",
        "tier",
        "a crash amid a copy leaves a log that ends too early",
        "member.restoring:Restoring._holds_nothing",
        "if stored.epoch and staged.exists() and not store.exists():",
        "if staged.exists() and not store.exists():",
        UnitTests("unit/broker/member/test_restoring.py::test_a_crash_at_any_step_is_begun_again"),
    ),
    Mutant(
        "copy-without-its-take",
        "tier",
        "members that copied a tier do not know where the new group's history begins",
        (
            Edit(
                "gantry_broker.member.restoring:Restoring._finish",
                "EpochEntry(Epoch(chain.pair.epoch), Offset(chain.end))",
                "EpochEntry(Epoch(chain.pair.epoch), Offset(chain.start))",
            ),
        ),
        Seeds("product-from-tier", 2),
    ),
)
