"""Bugs in the operator's shell: queue, cache, watches, and how a plan is carried out."""

from __future__ import annotations

from sim.mutants import (
    changes,
    entities_operator,
    fronts_operator,
    hibernation,
    shards_operator,
    supervised,
)
from sim.mutants.mutant import Seeds, UnitTests, one_edit

_mutant = one_edit("gantry_operator")

MUTANTS = (
    _mutant(
        "filling-voter-counts",
        "operator",
        "a controller is replaced while another is still being filled and votes for nothing",
        "plan.controller_steps:_is_caught_up",
        " or peer.counted is False",
        "",
        UnitTests(
            "unit/operator/test_plan_controller.py::"
            "test_a_voter_that_fell_silent_or_is_being_filled_does_not_count"
        ),
    ),
    _mutant(
        "old-definitions-are-taken",
        "operator",
        "an operator works by definitions that lack what it notes",
        "definitions:lacking_fields",
        "model_paths(model) - paths(served.get(name, {}))",
        "model_paths(model) - model_paths(model)",
        Seeds("product-old-definitions", 6),
    ),
    _mutant(
        "definitions-that-become-older-are-endured",
        "operator",
        "an operator goes on by statuses that lack what it has noted",
        "api.kube:KubeApi.apply_status",
        "except Undeclared as error:",
        "except ZeroDivisionError as error:",
        UnitTests("unit/operator/test_api.py::test_a_status_that_is_not_declared_is_the_end"),
    ),
    _mutant(
        "key-in-two-hands",
        "operator",
        "two workers reconcile one resource at a time",
        "workqueue:WorkQueue.add",
        "if key in self._active:",
        "if False:",
        UnitTests("unit/operator/test_workqueue.py::test_an_active_key_is_never_given_twice"),
    ),
    _mutant(
        "added-while-active-forgotten",
        "operator",
        "a change during a reconciliation is not looked at",
        "workqueue:WorkQueue.done",
        "if urgent is not None:",
        "if False:",
        UnitTests("unit/operator/test_workqueue.py::test_an_active_key_is_never_given_twice"),
    ),
    _mutant(
        "retries-do-not-grow",
        "operator",
        "a failing resource is tried at the first pace for ever",
        "workqueue:WorkQueue.retry",
        "self._failures[key] = failures + 1",
        "self._failures[key] = 1",
        UnitTests(
            "unit/operator/test_workqueue.py::test_failures_wait_longer_each_time_and_success_forgets"
        ),
    ),
    _mutant(
        "failures-never-forgotten",
        "operator",
        "a resource that is well again is tried at the slowest pace",
        "workqueue:WorkQueue.forget",
        "self._failures.pop(key, None)",
        "pass",
        UnitTests(
            "unit/operator/test_workqueue.py::test_failures_wait_longer_each_time_and_success_forgets"
        ),
    ),
    _mutant(
        "earlier-timer-waits-for-the-later",
        "operator",
        "a look that is due waits for a later one",
        "workqueue:WorkQueue._arm",
        "if self._timer_due_s <= when:",
        "if True:",
        UnitTests("unit/operator/test_workqueue.py::test_delays"),
    ),
    _mutant(
        "only-the-first-delay-rings",
        "operator",
        "of several looks that wait only the first comes due",
        "workqueue:WorkQueue._ring",
        "    if self._delayed:\n        self._arm()",
        "    pass",
        UnitTests("unit/operator/test_workqueue.py::test_delays"),
    ),
    _mutant(
        "timer-outlives-the-queue",
        "operator",
        "a closed queue goes on ringing",
        "workqueue:WorkQueue.close",
        "self._timer.cancel()",
        "pass",
        UnitTests("unit/operator/test_workqueue.py::test_a_closed_queue_rings_no_more"),
    ),
    _mutant(
        "older-object-replaces-a-newer",
        "operator",
        "a list from before a change undoes it in the cache",
        "cache:Cache.put",
        "if _is_not_newer(meta, old):",
        "if False:",
        UnitTests("unit/operator/test_cache.py::test_an_older_version_never_replaces_a_newer_one"),
    ),
    _mutant(
        "deletion-of-a-predecessor",
        "operator",
        "the end of an older object removes its successor",
        "cache:Cache.remove",
        'if old is None or old.uid != body["metadata"].get("uid"):',
        "if old is None:",
        UnitTests(
            "unit/operator/test_cache.py::test_a_successor_of_the_same_name_is_another_object"
        ),
    ),
    _mutant(
        "new-uid-taken-for-older",
        "operator",
        "an object that was made again is ignored",
        "cache:_is_not_newer",
        'if meta.get("uid") != old.uid:',
        "if False:",
        UnitTests(
            "unit/operator/test_cache.py::test_an_object_that_was_made_again_is_taken_whatever_its_version"
        ),
    ),
    _mutant(
        "list-overrides-the-watch",
        "operator",
        "a list that began earlier overrides what a watch said since",
        "cache:Cache.compare",
        "if self._heard.get((kind, name), -1) > begun or self.is_current(kind, body):",
        "if self.is_current(kind, body):",
        UnitTests("unit/operator/test_cache.py::test_what_is_heard_during_a_list_outranks_it"),
    ),
    _mutant(
        "prunes-what-came-since",
        "operator",
        "an object that came after a list began is pruned",
        "cache:Cache.compare",
        " and self._heard.get((kind, name), -1) <= begun",
        "",
        UnitTests("unit/operator/test_cache.py::test_what_is_heard_during_a_list_outranks_it"),
    ),
    _mutant(
        "prunes-other-namespaces",
        "operator",
        "a list of one namespace prunes the others",
        "cache:Cache.compare",
        "inside = namespace is None or name[0] == namespace",
        "inside = True",
        UnitTests(
            "unit/operator/test_cache.py::test_a_list_of_one_namespace_says_nothing_about_others"
        ),
    ),
    _mutant(
        "owner-of-a-dropped-object",
        "operator",
        "an object that is gone still counts as owned",
        "cache:Cache._unlink",
        "self._owned[old.owner].pop((kind, name[1]), None)",
        "pass",
        UnitTests("unit/operator/test_cache.py::test_put_get_remove"),
    ),
    _mutant(
        "cached-object-stays-as-it-was",
        "operator",
        "the cache keeps the first version of an object for ever",
        "cache:Cache._pack",
        "old is not None and old.packed.text() == text",
        "old is not None",
        UnitTests("unit/operator/test_cache.py::test_a_later_version_has_what_changed"),
    ),
    _mutant(
        "texts-without-a-pattern-in-common",
        "operator",
        "each cached text is a pattern of its own, so that memory holds all of each object",
        "packing:Packer.pack",
        "if pattern is None or len(text) > GROWTH * len(pattern):",
        "if True:",
        UnitTests("unit/operator/test_packing.py::test_a_text_takes_what_it_has_of_its_own"),
    ),
    _mutant(
        "pattern-of-a-young-object-for-ever",
        "operator",
        "what has a status is packed by what had none",
        "packing:Packer.pack",
        " or len(text) > GROWTH * len(pattern)",
        "",
        UnitTests(
            "unit/operator/test_packing.py::test_texts_that_grow_have_the_grown_one_as_their_pattern"
        ),
    ),
    _mutant(
        "long-queue-ends-the-operator",
        "operator",
        "an operator of thousands of groups is ended before it has looked at all of them",
        "health:Health.live",
        " + KEY_S * self.queue.went_before()",
        "",
        UnitTests(
            "unit/operator/test_reconcile.py::test_a_long_queue_that_gets_on_is_no_sign_of_trouble"
        ),
    ),
    _mutant(
        "own-writes-look-like-news",
        "operator",
        "every own write starts another reconciliation",
        "cache:_trimmed",
        " if key not in _BOOKKEEPING",
        "",
        UnitTests(
            "unit/operator/test_cache.py::test_what_the_api_server_keeps_for_itself_is_no_news"
        ),
    ),
    _mutant(
        "strangers-objects-are-ours",
        "operator",
        "objects that somebody else manages count as owned",
        "cache:key_of",
        "labels.get(names.LABEL_MANAGED_BY) != names.MANAGED_BY:",
        "False:",
        UnitTests("unit/operator/test_cache.py::test_whose_an_object_is"),
    ),
    _mutant(
        "frozen-watch-survived",
        "operator",
        "a watch that delivers nothing is trusted for ever",
        "resync:Resync._strike",
        "if strikes >= MAX_STRIKES:",
        "if False:",
        UnitTests("unit/operator/test_resync.py::test_a_watch_that_is_behind_twice_is_frozen"),
    ),
    _mutant(
        "strikes-never-end",
        "operator",
        "a watch that was late twice in its life ends the operator",
        "resync:Resync._compare",
        "self._strikes.pop(kind, None)",
        "pass",
        UnitTests(
            "unit/operator/test_resync.py::test_a_good_comparison_in_between_wipes_the_slate"
        ),
    ),
    _mutant(
        "gap-forgotten-after-a-failure",
        "operator",
        "what happened while a watch was away is never looked at",
        "resync:Resync.close_gaps",
        "self._gaps[kind, scope] = None",
        "pass",
        UnitTests(
            "unit/operator/test_resync.py::test_a_watch_that_begins_anew_is_followed_by_a_list"
        ),
    ),
    _mutant(
        "no-grace-for-a-watch",
        "operator",
        "a watch that is on time counts as frozen",
        "resync:Resync._differences",
        "await asyncio.sleep(grace_s)",
        "pass",
        UnitTests(
            "unit/operator/test_resync.py::test_a_watch_that_catches_up_in_time_is_no_strike"
        ),
    ),
    _mutant(
        "lost-deletion-unqueued",
        "operator",
        "a deletion that no watch reported is not reconciled",
        "resync:Resync._take_in",
        "self._enqueue(key)",
        "pass",
        UnitTests(
            "unit/operator/test_resync.py::test_a_watch_that_begins_anew_is_followed_by_a_list"
        ),
    ),
    _mutant(
        "expired-list-given-up",
        "operator",
        "a list that became too old while it was read is not begun again",
        "resync:Resync._list",
        "if error.status != 410 or attempt == ATTEMPTS:",
        "if True:",
        UnitTests("unit/operator/test_resync.py::test_a_list_that_became_too_old_is_read_again"),
    ),
    _mutant(
        "looks-before-watches-begin",
        "operator",
        "the first look misses what happens before the watches begin",
        "resync:Resync.fill",
        "await self._watches_begun()",
        "pass",
        UnitTests(
            "unit/operator/test_resync.py::test_nothing_is_listed_before_every_watch_has_begun"
        ),
    ),
    _mutant(
        "nothing-looked-at-after-a-comparison",
        "operator",
        "a resource whose change was lost is never looked at",
        "resync:Resync.compare",
        "    self.look_at_all()\n",
        "",
        UnitTests("unit/operator/test_resync.py::test_everything_is_looked_at_after_a_comparison"),
    ),
    _mutant(
        "disrupts-after-a-refusal",
        "operator",
        "a pod is deleted although a step before it failed",
        "reconcile.apply:Applier.apply",
        "if action.disruptive and (outcome.refusals or outcome.failure):",
        "if False:",
        UnitTests(
            "unit/operator/test_apply.py::test_a_refused_object_stops_what_is_disruptive_only"
        ),
    ),
    _mutant(
        "failed-write-untold",
        "operator",
        "a write that failed counts as done",
        "reconcile.apply:Applier.apply",
        "self._failed(key, action, error, outcome)",
        "pass",
        UnitTests(
            "unit/operator/test_apply.py::test_a_refused_object_stops_what_is_disruptive_only"
        ),
    ),
    _mutant(
        "dead-api-server-survived",
        "operator",
        "a plan goes on against an API server that does not answer",
        "reconcile.apply:Applier.apply",
        "if error.status == 0:",
        "if False:",
        UnitTests("unit/operator/test_apply.py::test_a_server_that_does_not_answer_ends_the_plan"),
    ),
    _mutant(
        "contradiction-without-a-new-look",
        "operator",
        "a plan made of old facts is not made again",
        "reconcile.apply:Applier._contradicted",
        "outcome.again |= news",
        "pass",
        UnitTests(
            "unit/operator/test_apply.py::test_a_pod_that_changes_between_look_and_deed_survives"
        ),
    ),
    _mutant(
        "stopped-for-an-older-wish",
        "operator",
        "pods are stopped for a wish that was taken back, since a watch is behind",
        "reconcile.apply:Applier._disrupt",
        "changed = changed or await self._outdated(key, seen)",
        "",
        UnitTests(
            "unit/operator/test_apply.py::test_no_pod_is_stopped_for_a_wish_that_was_taken_back"
        ),
    ),
    _mutant(
        "deletes-without-looking-again",
        "operator",
        "a pod is deleted that is needed by now",
        "reconcile.apply:Applier._disrupt",
        "if isinstance(pod, str):\n                return pod",
        "if False:\n                return pod",
        UnitTests("unit/operator/test_apply.py::test_a_changed_group_saves_the_pod"),
    ),
    _mutant(
        "deletes-the-pods-successor",
        "operator",
        "a pod that was made again is deleted for its predecessor",
        "reconcile.apply:Applier._disrupt",
        "                uid=pod.uid,\n                resource_version=pod.resource_version,\n",
        "",
        UnitTests("unit/operator/test_apply.py::test_a_pod_is_deleted_as_it_was_seen"),
    ),
    _mutant(
        "scales-down-on-old-facts",
        "operator",
        "a group is scaled down although its controllers say otherwise by now",
        "reconcile.apply:Applier._disrupt",
        "if changed:",
        "if False:",
        UnitTests("unit/operator/test_apply.py::test_scaling_down_takes_a_last_look_too"),
    ),
    _mutant(
        "statefulset-of-another-uid-deleted",
        "operator",
        "a StatefulSet that was made again is deleted for its predecessor",
        "reconcile.apply:Applier._disrupt",
        "await self._api.delete(STATEFULSET, key.namespace, name, uid=uid)",
        "await self._api.delete(STATEFULSET, key.namespace, name)",
        UnitTests("unit/operator/test_apply.py::test_a_statefulset_is_deleted_by_uid"),
    ),
    _mutant(
        "strangers-object-overwritten",
        "operator",
        "an object of somebody else is taken over",
        "reconcile.apply:Applier._apply_object",
        "if stranger is not None:",
        "if False:",
        UnitTests("unit/operator/test_apply.py::test_a_strangers_object_is_not_taken_over"),
    ),
    _mutant(
        "applies-for-who-leaves",
        "operator",
        "a resource that is being deleted gets its objects back",
        "reconcile.apply:Applier._apply_object",
        "elif not _owns(seen, manifest) and await self._is_leaving(key, seen):",
        "elif False:",
        UnitTests(
            "unit/operator/test_reconcile.py::test_what_a_deletion_has_cut_loose_is_not_taken_back"
        ),
    ),
    _mutant(
        "apply-without-change-looks-again",
        "operator",
        "an apply that changed nothing starts the next one",
        "reconcile.apply:Applier._apply_object",
        "if self._cache.put(kind, live):",
        "self._cache.put(kind, live)\n    if True:",
        UnitTests("unit/operator/test_reconcile.py"),
    ),
    _mutant(
        "status-of-a-successor-written",
        "operator",
        "the status of a resource is written on its successor",
        "reconcile.apply:Applier._write_status",
        ', "uid": seen.meta.uid}',
        "}",
        UnitTests("unit/operator/test_apply.py::test_a_status_is_for_one_resource"),
    ),
    _mutant(
        "finalizer-of-old-facts",
        "operator",
        "a finalizer list from old facts overwrites what others added",
        "reconcile.apply:Applier._set_finalizer",
        '            "resourceVersion": action.resource_version,\n',
        "",
        UnitTests("unit/operator/test_apply.py::test_a_finalizer_needs_the_version_that_was_seen"),
    ),
    _mutant(
        "quorum-goes-before-its-groups",
        "operator",
        "a quorum is let go while groups refer to it",
        "reconcile.apply:Applier._set_finalizer",
        "if kind is CONTROLLER_GROUP and last and await is_referred_to(self._api, key):",
        "if False:",
        UnitTests(
            "unit/operator/test_reconcile.py::test_a_quorum_keeps_its_finalizer_for_a_group_that_no_watch_has_brought"
        ),
    ),
    _mutant(
        "label-of-a-successor",
        "operator",
        "a pod gets the role of its predecessor",
        "reconcile.apply:Applier._label",
        '"uid": action.uid, ',
        "",
        UnitTests("unit/operator/test_apply.py::test_a_label_is_for_one_incarnation"),
    ),
    _mutant(
        "own-label-is-news",
        "operator",
        "a label the operator wrote itself starts another look",
        "reconcile.reread:_of_others",
        "if k not in OWN_LABELS",
        "if True",
        UnitTests(
            "unit/operator/test_apply.py::test_the_answer_to_a_label_may_bring_a_change_of_the_pod"
        ),
    ),
    _mutant(
        "refused-retirement-ends-the-plan",
        "operator",
        "a retirement that was refused is not tried again",
        "reconcile.apply:Applier._take_off_record",
        "outcome.check_after_s = outcome.check_after_s or OFF_RECORD_AGAIN_S",
        "pass",
        UnitTests(
            "unit/operator/test_apply.py::test_who_the_controllers_keep_on_record_is_asked_for_again"
        ),
    ),
    _mutant(
        "retires-who-is-back",
        "operator",
        "a group that was created again is retired",
        "reconcile.departed:_retire",
        "if not has_departed(view, owner, pods):",
        "if False:",
        UnitTests("unit/operator/test_departed.py::test_who_was_created_again_stays"),
    ),
    _mutant(
        "unreachable-quorum-taken-for-no-group",
        "operator",
        "a group is left on record because its quorum did not answer",
        "reconcile.departed:_retire",
        "if isinstance(view, Unreachable):",
        "if False:",
        UnitTests(
            "unit/operator/test_departed.py::test_a_quorum_that_does_not_answer_is_asked_again"
        ),
    ),
    _mutant(
        "all-images-at-once",
        "operator",
        "all groups roll to a new image at a time",
        "reconcile.fleet:Fleet._give",
        "if len(on_their_way) >= line.turns:",
        "if False:",
        UnitTests(
            "unit/operator/test_image_turns.py::test_a_turn_that_was_given_is_given_to_nobody_else_before_it_is_seen"
        ),
    ),
    _mutant(
        "turn-kept-for-ever",
        "operator",
        "a turn that is not used keeps all others from rolling",
        "reconcile.fleet:Fleet._give",
        "and now_s - given_s < GIVEN_S",
        "",
        UnitTests(
            "unit/operator/test_image_turns.py::test_a_turn_that_was_given_is_given_to_nobody_else_before_it_is_seen"
        ),
    ),
    _mutant(
        "refusals-outlive-their-resource",
        "operator",
        "a new resource shows the refusals of its predecessor",
        "reconcile.observe:Observer.observe",
        "self.refusals.pop(key, None)",
        "pass",
        UnitTests(
            "unit/operator/test_reconcile.py::test_a_resource_that_is_gone_leaves_no_refusals_to_its_successor"
        ),
    ),
    _mutant(
        "ending-claim-read",
        "operator",
        "a claim that is being deleted counts as a member's data",
        "reconcile.claims:Claims._read",
        "None if claim.ending else claim",
        "claim",
        UnitTests(
            "unit/operator/test_quorum_deletion.py::test_before_a_quorum_starts_all_of_its_claims_are_read"
        ),
    ),
    *changes.MUTANTS,
    *supervised.MUTANTS,
    *hibernation.MUTANTS,
    *entities_operator.MUTANTS,
    *fronts_operator.MUTANTS,
    *shards_operator.MUTANTS,
)
