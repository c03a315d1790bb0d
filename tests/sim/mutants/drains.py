"""Bugs in how broker groups come and go: what a new one takes over, what one that leaves owes."""

from __future__ import annotations

from sim.mutants.mutant import UnitTests, one_edit

_controller = one_edit("gantry_controller")
_broker = one_edit("gantry_broker")
_operator = one_edit("gantry_operator")
_cli = one_edit("gantry_cli")
_META = "unit/controller/metadata/test_drains.py::"
_SHARES = "unit/controller/metadata/test_shares.py::"
_MASTER = "unit/broker/clients/test_drain.py::"
_JUDGE = "unit/broker/clients/core/test_drain.py::"
_OFFSETS = "unit/broker/clients/mapped/test_committed_later.py::"
_PLAN = "unit/operator/test_plan_drain.py::"
_DELETION = "unit/operator/test_plan_deletion.py::"

MUTANTS = (
    _controller(
        "newcomer-takes-what-one-has",
        "drains",
        "a new group takes over a topic that other groups do not have",
        "metadata.newcomers:_in_all",
        "if name in common",
        "if True",
        UnitTests(f"{_META}test_a_newcomer_takes_what_all_others_have"),
    ),
    _controller(
        "newcomer-with-a-topic-gets-no-other",
        "drains",
        "a group that was given a mapped topic before it had a master never gets the others",
        "metadata.newcomers:take_topics",
        "and not event.beside",
        "",
        UnitTests(f"{_META}test_what_it_has_stays_and_an_adopted_one_is_left_alone"),
    ),
    _controller(
        "newcomer-misses-what-is-being-made",
        "drains",
        "a group that is elected while a topic is made never gets the topic",
        "metadata.newcomers:may_take",
        "any(True for _ in _others(state, group))",
        "any(_missing(state, group))",
        UnitTests(
            "unit/controller/liveness/test_watchman.py::test_a_new_group_has_the_topic_that_is_being_made_while_it_is_elected"
        ),
    ),
    _cli(
        "newcomer-comes-between",
        "drains",
        "a group that gets its first master while a topic is made never gets the topic",
        "client.brokers:everywhere",
        "while some :=",
        "if some :=",
        UnitTests(
            "unit/cli/test_administration.py::test_a_group_that_comes_meanwhile_is_changed_as_well"
        ),
    ),
    _controller(
        "newcomer-waits-for-silent-controllers",
        "drains",
        "a group that comes while one controller is away never gets the topics of its cluster",
        "raft.digests:Digests.share_layout",
        "2 * said.count(own) > len(said)",
        "said.count(own) == len(said)",
        UnitTests(
            "unit/controller/raft/test_digests.py::test_a_leader_knows_whether_all_lay_the_state_out_as_it_does"
        ),
    ),
    _controller(
        "older-controllers-are-stopped",
        "drains",
        "a controller of an older version is sent an event at which it stops",
        "raft.digests:Digests.share_layout",
        "if any(item not in (own, None) for item in said):",
        "if False:",
        UnitTests(
            "unit/controller/raft/test_digests.py::test_a_leader_knows_whether_all_lay_the_state_out_as_it_does"
        ),
    ),
    _controller(
        "newcomer-gets-no-queues",
        "drains",
        "a group that was added to take load gets no queue of a mapped topic",
        "metadata.newcomers:take_topics",
        "if event.shares and",
        "if False and",
        UnitTests(f"{_SHARES}test_a_newcomer_gets_one_queue_in_n_of_each_topic"),
    ),
    _controller(
        "share-of-a-group-without-master",
        "drains",
        "queues move to a group that nobody serves yet, and their sends wait for it",
        "metadata.shares:Shares._is_ready",
        "or self._has_living_master(group)",
        "or True",
        UnitTests(f"{_SHARES}test_it_waits_for_the_living_master"),
    ),
    _controller(
        "share-for-ever",
        "drains",
        "a group that somebody emptied is filled again",
        "metadata.shares:take_share",
        'state.put_plain("newcomers", key, None)',
        "pass",
        UnitTests(f"{_SHARES}test_a_group_that_somebody_empties_stays_empty"),
    ),
    _controller(
        "share-too-large",
        "drains",
        "more queues move to a new group than it is to have",
        "metadata.shares:Share.of",
        "self._has < self._seen",
        "self._has <= self._seen",
        UnitTests(f"{_SHARES}test_a_share_is_one_in_n_and_taken_from_those_who_have_most"),
    ),
    _controller(
        "share-of-a-drained-group",
        "drains",
        "queues go on moving to a group that is to leave",
        "metadata.shares:Shares._is_out",
        " or group.key in self._state.drains",
        "",
        UnitTests(f"{_SHARES}test_a_newcomer_that_is_drained_is_given_nothing"),
    ),
    _controller(
        "share-proposed-once",
        "drains",
        "a newcomer whose share was proposed in vain waits for the next leader",
        "metadata.shares:Shares.due",
        "elif now_s - self._said_all_s > ANSWERED_WITHIN_S:",
        "elif False:",
        UnitTests(f"{_SHARES}test_what_was_proposed_in_vain_is_proposed_again"),
    ),
    _controller(
        "newcomer-takes-of-an-adopted-log",
        "drains",
        "a group whose log holds topics that nobody knows yet gets them with other queues",
        "metadata.newcomers:is_new",
        " or state.topic_table(group.key).is_partial",
        "",
        UnitTests(f"{_META}test_what_it_has_stays_and_an_adopted_one_is_left_alone"),
    ),
    _controller(
        "last-group-is-drained",
        "drains",
        "no group of the cluster takes messages",
        "metadata.drains:_problem",
        "if not takers:",
        "if False:",
        UnitTests(f"{_META}test_the_last_group_that_takes_messages_is_not_drained"),
    ),
    _controller(
        "drained-beside-dead-groups",
        "drains",
        "a group is drained while the brokers of all others are dead, and no group takes messages",
        "admin.api:AdminApi._drain",
        "not self._watchman.others_serve(group)",
        "False",
        UnitTests(
            "unit/controller/admin/test_api.py"
            "::TestDrain::test_not_while_the_brokers_of_all_others_are_dead"
        ),
    ),
    _controller(
        "queues-asked-to-leave-once",
        "drains",
        "a queue whose move was refused, or was lost with the leader, goes with the drained group",
        "metadata.leaving:DrainedGroups.due",
        "(not groups or now_s < self._again_s)",
        "True",
        UnitTests(
            "unit/controller/metadata/test_leaving.py"
            "::test_what_came_to_nothing_is_proposed_again_and_at_once_by_the_next_leader"
        ),
    ),
    _controller(
        "queues-leave-in-one-turn",
        "drains",
        "the leader computes the moves of a million queues at once, and is deposed",
        "metadata.leaving:DrainedGroups._turn",
        " and looked_at < QUEUES_AT_ONCE",
        "",
        UnitTests("unit/controller/metadata/test_leaving.py::test_a_turn_is_bounded"),
    ),
    _controller(
        "drained-with-queues",
        "drains",
        "a group goes while queues of mapped topics are there, and their sends wait",
        "admin.views:_drain_view",
        "drain.done and not queues",
        "drain.done",
        UnitTests(
            "unit/controller/admin/test_queue_maps.py"
            "::test_a_drain_is_not_done_before_the_queues_have_left"
        ),
    ),
    _controller(
        "drained-topics-have-no-place",
        "drains",
        "producers of a topic that only the drained group has can send nowhere",
        "metadata.drains:drain_group",
        "_hand_over(state, group, takers)",
        "pass",
        UnitTests(f"{_META}test_what_no_other_group_has_is_handed_over"),
    ),
    _controller(
        "routes-write-to-a-drained-group",
        "drains",
        "routes lead new messages to a group that is drained",
        "nameserver.routes:_part_in_route",
        " or key in state.drains",
        "",
        UnitTests(f"{_META}test_a_draining_group_is_read_and_not_written_in_routes"),
    ),
    _controller(
        "drain-outlives-its-owner",
        "drains",
        "a group that comes back, or has another owner, takes no messages",
        "metadata.groups:declare_group",
        'state.put_plain("drains", group.key, None)',
        "pass",
        UnitTests(f"{_META}test_a_drain_ends_with_the_owner_that_wanted_it"),
    ),
    _broker(
        "drained-group-refuses-at-once",
        "drains",
        "sends fail whose producers had no time to see the new route",
        "clients.core.drain:may_close",
        "if waited_s >= grace_s:",
        "if True:",
        UnitTests(f"{_MASTER}test_sends_go_on_while_producers_have_not_asked_for_routes"),
    ),
    _broker(
        "drained-group-refuses-retries",
        "drains",
        "a message that a consumer gives back to a drained group is refused",
        "clients.drain:GroupDrain.refuse",
        " or is_retry(topic)",
        "",
        UnitTests(f"{_MASTER}test_what_was_begun_goes_on"),
    ),
    _broker(
        "drain-forgets-what-was-read",
        "drains",
        "a drain that many consumer groups have read to the end never says so",
        "clients.drain:GroupDrain._unread",
        "if queue.max_offset > max(queue.min_offset, committed or 0):",
        "if queue.max_offset > max(queue.min_offset, position or 0):",
        UnitTests(f"{_OFFSETS}test_a_drain_waits_until_what_it_holds_is_read_there"),
    ),
    _broker(
        "drained-offsets-stay",
        "drains",
        "a consumer group that was away skips messages once a drained group is retired",
        "clients.drain:GroupDrain._look",
        "self.offsets = self._handing.look()",
        "pass",
        UnitTests(f"{_OFFSETS}test_a_drain_hands_on_what_was_committed_before_it_is_done"),
    ),
    _broker(
        "drained-offsets-at-the-end",
        "drains",
        "a consumer group skips what it had not read of a group that was drained",
        "clients.mapped.handing_over:HandingOver._left",
        "HandedOffset(group, topic, place, offset)",
        "HandedOffset(group, topic, place, place.end)",
        UnitTests(f"{_OFFSETS}test_what_was_read_only_in_part_is_handed_on_as_it_is"),
    ),
    _broker(
        "drained-before-it-is-read",
        "drains",
        "a group goes with messages that a consumer group has not read",
        "clients.core.drain:_waits_for",
        "    if unread:\n        return _about_unread(unread)\n",
        "",
        UnitTests(f"{_MASTER}test_it_waits_for_each_group_that_has_read_here"),
    ),
    _broker(
        "drained-while-messages-are-delayed",
        "drains",
        "a group goes with delayed messages",
        "clients.core.drain:_waits_for",
        "if seen.parked:",
        "if False:",
        UnitTests(f"{_MASTER}test_delayed_messages_are_waited_for_and_then_read"),
    ),
    _broker(
        "drained-while-transactions-are-open",
        "drains",
        "a group goes with transactions that nobody has ended",
        "clients.core.drain:_waits_for",
        "if seen.transactions:",
        "if False:",
        UnitTests(f"{_JUDGE}test_a_drain_is_done_or_says_what_it_waits_for"),
    ),
    _broker(
        "drained-before-all-is-confirmed",
        "drains",
        "what is stored, and not confirmed yet, is not counted as left",
        "clients.drain:GroupDrain._look",
        "is_whole=self._group.is_confirmed and self._is_known,",
        "is_whole=True,",
        UnitTests(f"{_MASTER}test_nothing_is_said_to_be_over_before_all_is_confirmed"),
    ),
    _operator(
        "drain-never-ends",
        "drains",
        "a deletion waits for a consumer group that never comes",
        "plan.drain:is_awaited",
        "now >= _deadline(seen, seen.group)",
        "False",
        UnitTests(f"{_PLAN}test_it_goes_at_the_deadline"),
    ),
    _operator(
        "cut-loose-and-stopped",
        "drains",
        "pods that a deletion leaves to others are stopped once their reference is cut",
        "plan.drain:are_pods_kept",
        "return found is not None and seen.meta.uid not in owner_uids(found)",
        "return False",
        UnitTests(f"{_DELETION}test_pods_that_a_deletion_leaves_to_others_serve_on"),
    ),
    _operator(
        "cut-loose-and-forgotten",
        "drains",
        "a group whose pods a deletion keeps is forgotten by the controllers",
        "plan.deletion:_clean",
        "if are_pods_kept(seen):",
        "if False:",
        UnitTests(f"{_DELETION}test_pods_that_a_deletion_leaves_to_others_serve_on"),
    ),
    _operator(
        "cut-loose-by-a-late-watch",
        "drains",
        "a group whose pods a deletion keeps is retired where a watch is behind",
        "reconcile.apply:Applier._are_pods_kept",
        "return found is not None and seen.meta.uid not in owner_uids(found)",
        "return False",
        UnitTests(
            "unit/operator/test_reconcile.py::test_a_group_that_a_deletion_has_cut_loose_is_not_retired"
        ),
    ),
    _operator(
        "drain-holds-a-namespace",
        "drains",
        "groups of a namespace that is deleted wait for consumers",
        "plan.drain:is_awaited",
        " or quorum.metadata.deletion_timestamp",
        "",
        UnitTests(f"{_PLAN}test_a_quorum_that_goes_is_not_waited_for"),
    ),
    _operator(
        "queues-that-move-untold",
        "drains",
        "nobody sees in Kubernetes that queues come to a group, or leave it",
        "plan.broker_status:_queues",
        "group.view.queues != group.view.queues_wished",
        "False",
        UnitTests(
            "unit/operator/test_plan_status.py"
            "::test_queues_that_are_to_come_or_go_are_told_while_they_are"
        ),
    ),
    _operator(
        "drain-believes-a-former-master",
        "drains",
        "a group goes by the word of a member that is not its master",
        "plan.drain:left_by",
        "member.broker_id == view.master_broker_id and member.alive",
        "member.drain is not None",
        UnitTests(f"{_PLAN}test_the_word_of_another_member_does_not_count"),
    ),
    _operator(
        "pods-go-before-the-drain",
        "drains",
        "with whenDeleted Delete the pods are stopped while consumers read",
        "plan.deletion:delete_broker_group",
        "    if waiting:\n        return waiting\n",
        "",
        UnitTests(f"{_PLAN}test_volumes_are_deleted_after_the_drain"),
    ),
    _operator(
        "refused-drain-untold",
        "drains",
        "the controllers refuse a drain, and a deletion waits without a word why",
        "plan.drain:refusal",
        'return seen.refused_drains.get(seen.shard, "")',
        'return ""',
        UnitTests(f"{_PLAN}test_a_drain_that_is_refused_is_told_with_what_to_do"),
    ),
    _operator(
        "refused-drain-forgotten",
        "drains",
        "the operator does not remember why a drain did not begin",
        "reconcile.worker:Reconciler._remember",
        "if outcome.refused_drains:",
        "if False:",
        UnitTests("unit/operator/test_reconcile.py::test_a_refused_drain_is_told_until_it_begins"),
    ),
)
