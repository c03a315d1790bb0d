"""Bugs in what stands for topics, users and consumer groups: whose they are, and their end."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests, one_edit
from sim.mutants.planting import Edit

_operator = one_edit("gantry_operator")
_controller = one_edit("gantry_controller")
_PLAN = "unit/operator/test_plan_entities.py::"
_USERS = "unit/operator/test_plan_users.py::"
_TABLES = "unit/operator/test_tables.py::"
_TOPICS = "unit/controller/admin/test_topics.py::"
_GROUPS = "unit/controller/admin/test_consumer_groups.py::"
_ACCESS = "unit/controller/admin/test_access.py::"
_RESETS = "unit/operator/test_plan_offset_resets.py::"
_ASKED = "unit/controller/admin/test_offset_resets.py::"
_BROKER = "unit/broker/clients/test_resets.py::"
_AREA = "entities"


def _plan(name: str, breaks: str, where: str, old: str, new: str, test: str) -> Mutant:
    return _operator(name, _AREA, breaks, where, old, new, UnitTests(test))


def _api(name: str, breaks: str, where: str, old: str, new: str, test: str) -> Mutant:
    return _controller(name, _AREA, breaks, where, old, new, UnitTests(test))


MUTANTS = (
    _plan(
        "topic-taken-by-force",
        "a topic that somebody made otherwise is changed although nobody said so",
        "plan.entities:_refuse",
        'foreign = standing.state == "Differs" and not seen.owns and not seen.entity.spec.adopt',
        "foreign = False",
        f"{_PLAN}test_what_existed_otherwise_is_left_alone",
    ),
    _plan(
        "second-topic-resource-counts",
        "two resources for one topic change it in turns",
        "plan.entities:_refuse",
        "if seen.first != seen.meta.name:",
        "if False:",
        f"{_PLAN}test_the_first_of_two_counts",
    ),
    _plan(
        "youngest-topic-resource-counts",
        "a second resource takes a topic from the one that had it",
        "cache:Cache.claimants",
        "return sorted(found, key=lambda name: (found[name], name))",
        "return sorted(found, key=lambda name: (found[name], name), reverse=True)",
        f"{_TABLES}test_the_oldest_of_several_counts_whoever_was_heard_first",
    ),
    _plan(
        "second-resource-never-called",
        "a second resource does not take over when the first is gone",
        "heard:Listener.hear",
        "if kind in ENTITIES and (deleted or before is None):",
        "if False:",
        f"{_TABLES}test_the_oldest_of_several_counts_whoever_was_heard_first",
    ),
    _plan(
        "owned-after-it-is-made",
        "a topic that was made just before a crash is never deleted",
        "plan.entities:_make",
        "if seen.owns:",
        "if True:",
        f"{_PLAN}test_what_is_absent_is_owned_first_and_then_made",
    ),
    _plan(
        "strangers-topic-deleted",
        "a resource that never owned a topic deletes it with itself",
        "plan.entities:_delete",
        "entity.deletes and seen.owns",
        "entity.deletes",
        f"{_PLAN}test_nothing_else_is_deleted_and_nothing_hangs",
    ),
    _plan(
        "retained-topic-deleted",
        "a topic that was to be kept goes with its resource",
        "models.entity:Entity.deletes",
        'self.spec.deletion_policy == "Delete"',
        "True",
        f"{_PLAN}test_what_is_retained_has_no_finalizer_and_goes_at_once",
    ),
    _plan(
        "deletion-waits-for-a-quorum-that-is-gone",
        "a resource can never be deleted once its ControllerGroup is",
        "plan.entities:_delete",
        "not seen.quorum_serves or ",
        "",
        f"{_PLAN}test_nothing_else_is_deleted_and_nothing_hangs",
    ),
    _plan(
        "deletion-forgets-the-topic",
        "while controllers are silent a topic that was to go is left behind",
        "plan.entities:_delete",
        'if seen.standing.state == "Absent":',
        'if seen.standing.state in ("Absent", "Unknown"):',
        f"{_PLAN}test_a_deletion_waits_for_controllers_that_are_silent_and_says_so",
    ),
    _plan(
        "silence-rewrites-all-statuses",
        "each pause of a quorum writes the status of every topic twice",
        "plan.entities:_unknown",
        'if ready is not None and current and ready.status == "True":',
        "if False:",
        f"{_PLAN}test_silence_changes_nothing_of_what_was_in_place",
    ),
    _plan(
        "drift-untold",
        "what others change is undone and nobody hears of it",
        "plan.entities:_make",
        "return [Make(undoes=gone)]",
        "return [Make()]",
        f"{_PLAN}test_what_others_changed_is_changed_back_and_told_without_a_status_between",
    ),
    _plan(
        "new-group-lacks-topics",
        "each topic is written again when a broker group comes",
        "plan.topics:_differences",
        "excused = {*held.unheard, *held.new}",
        "excused = {*held.unheard}",
        f"{_PLAN}test_a_group_that_had_no_master_yet_lacks_nothing",
    ),
    _plan(
        "unheard-log-has-no-topics",
        "a topic of an adopted log is made anew before the log was heard",
        "plan.topics:topic_standing",
        "if held.unheard:",
        "if False:",
        f"{_PLAN}test_a_log_that_was_not_heard_says_nothing",
    ),
    _plan(
        "queues-shrink-silently",
        "queues that hold messages are read by nobody any more",
        "plan.topics:topic_standing",
        "if most > wish.read_queues and not wish.fewer_reads:",
        "if False:",
        f"{_PLAN}test_fewer_queues_to_read_need_a_word",
    ),
    _plan(
        "rotated-secret-is-drift",
        "an owner who changes a secret is told that others did",
        "plan.users:user_standing",
        "ours = secret_is_new and len(told) == 1 and not secret_matches",
        "ours = False",
        f"{_USERS}test_a_secret_that_the_owner_changed_is_no_drift",
    ),
    _plan(
        "unknown-secret-is-wrong",
        "a user is written each time that nobody could compare its secret",
        "plan.users:user_standing",
        "if secret_matches is None:",
        "if False:",
        f"{_USERS}test_an_unknown_secret_is_no_difference",
    ),
    _plan(
        "surplus-rules-stay",
        "a right that was taken out of a resource is never taken from the user",
        "plan.users:rule_steps",
        "delete = sorted(before.keys() - after.keys())",
        "delete: list[tuple[str, str]] = []",
        f"{_USERS}test_a_rule_that_is_not_wished_is_named",
    ),
    _plan(
        "table-read-for-each",
        "ten thousand topics are ten thousand reads of all of them",
        "reconcile.tables:Tables._held",
        "if _now_s() - table.at_s < fresh_s:",
        "if False:",
        f"{_TABLES}test_three_thousand_topics_are_read_at_once_and_nothing_is_written",
    ),
    _plan(
        "deletion-in-an-answer-is-lost",
        "a resource that is deleted while its status is written keeps its finalizer for good",
        "reconcile.entities:Entities._write",
        "return take(self._cache, seen.kind, written)",
        "return take(self._cache, seen.kind, written) and False",
        f"{_TABLES}test_a_deletion_just_before_a_status_is_written_brings_the_resource_back",
    ),
    _plan(
        "change-seen-by-another-is-lost",
        "what others changed is undone minutes later, if somebody else read it first",
        "reconcile.tables:Tables._take",
        "table.changed |= {name for name in names if old.get(name) != new.get(name)}",
        "table.changed = set()",
        f"{_TABLES}test_what_others_change_brings_its_resource_back_and_no_other",
    ),
    _plan(
        "old-answer-over-own-write",
        "an answer from before a write makes the operator write it again",
        "reconcile.tables:Tables._take",
        "later = {name: at_s for name, at_s in table.written.items() if at_s >= begun_s}",
        "later: dict[str, float] = {}",
        f"{_TABLES}test_an_answer_from_before_an_own_write_does_not_undo_it",
    ),
    _plan(
        "newer-answer-under-own-write",
        "a change that came between a write and its answer is never seen",
        "reconcile.tables:Tables._take",
        "if told.rows is not None and later:",
        "if False:",
        f"{_TABLES}test_a_change_between_an_own_write_and_its_answer_is_seen",
    ),
    _plan(
        "topics-before-groups",
        "a broker group waits for ten thousand topics",
        "workqueue:WorkQueue.add",
        "_PATIENT if patient else _NORMAL",
        "_NORMAL",
        "unit/operator/test_workqueue.py::"
        "test_patient_keys_come_last_and_their_waiting_is_no_sign_of_trouble",
    ),
    _plan(
        "looks-without-a-pause",
        "ten thousand looks in one turn of the loop stop the operator for seconds",
        "reconcile.worker:Reconciler._look_at_entity",
        "await asyncio.sleep(0)",
        "pass",
        f"{_TABLES}test_looks_that_wait_for_nothing_let_others_have_their_turns",
    ),
    _plan(
        "standby-writes-topics",
        "two operators write the same topics",
        "reconcile.worker:Reconciler._look_at_entity",
        "if self._leads():",
        "if True:",
        f"{_TABLES}test_a_standby_asks_and_tells_nothing",
    ),
    _api(
        "fulfilled-wish-is-logged",
        "each look at a topic is an entry in the controllers' log",
        "admin.topics:TopicsApi._put",
        "if changes or known is None or config != _plain(known):",
        "if True:",
        f"{_TOPICS}test_a_wish_that_is_fulfilled_writes_nothing",
    ),
    _api(
        "leader-lets-queues-shrink",
        "what the operator read was old, and queues with messages are gone",
        "admin.topics:_refuse_unsafe",
        "wish.read_queues < known.read_queue_nums and not wish.fewer_reads",
        "False",
        f"{_TOPICS}test_queues_to_read_are_not_taken_away_unless_that_is_meant",
    ),
    _api(
        "stamp-of-nothing",
        "what others change in a topic is never seen",
        "admin.topics:_stamp",
        "(name, table.version, table.is_partial)",
        "(name, table.is_partial)",
        f"{_TOPICS}test_who_knows_the_stamp_is_told_that_nothing_changed",
    ),
    _api(
        "page-begins-with-its-last",
        "a topic is on two pages",
        "admin.listing:_names_after",
        "name > after",
        "name >= after",
        f"{_TOPICS}test_pages_have_every_topic_once",
    ),
    _api(
        "foreign-attributes-stay",
        "an attribute that others gave a topic is never taken away",
        "admin.topics:modification",
        "gone = [name for name in before if name not in wished and name not in FIXED]",
        "gone: list[str] = []",
        f"{_TOPICS}test_attributes_become_exactly_those_that_are_wished",
    ),
    _api(
        "settings-nobody-named-are-lost",
        "a wish for retries resets all other settings of a consumer group",
        "admin.consumer_groups:_wished",
        "if known is None",
        "if True",
        f"{_GROUPS}test_what_a_wish_does_not_name_stays",
    ),
    _api(
        "any-secret-matches",
        "a changed secret never reaches the controllers",
        "admin.access:AccessApi._check",
        "compare_digest(user.secret.encode(), wish.secret.encode())",
        "True",
        f"{_ACCESS}test_a_secret_is_compared_and_never_told",
    ),
    _plan(
        "reset-asked-for-ever",
        "a reset of offsets that is done is asked for again every five seconds",
        "plan.offset_resets:plan_reset",
        "if known is not None and known.request == reset.request:",
        "if False:",
        f"{_RESETS}test_what_is_done_is_written_down_and_not_made_again",
    ),
    _plan(
        "half-a-reset-is-done",
        "a reset that some broker groups have yet to carry out is called done",
        "plan.offset_resets:has_ended",
        "return bool(heard.refused) or not heard.waiting",
        "return True",
        f"{_RESETS}test_it_is_made_until_it_came_to_its_end",
    ),
    _api(
        "older-brokers-reset-for-ever",
        "a broker that keeps no numbers resets the same offsets every five seconds",
        "admin.offset_resets:_queues",
        "if not queues.isdecimal():",
        'if not queues.isdecimal() and (queues := "1") == "":',
        f"{_ASKED}test_an_older_broker_is_not_asked_again_and_a_busy_one_is",
    ),
    Mutant(
        "reset-request-comes-twice",
        _AREA,
        "an operator that dies before it has written a reset down has it done twice",
        (
            Edit(
                "gantry_broker.clients.resets:OffsetResets._not_done",
                "if last != header.request:",
                "if True:",
            ),
        ),
        UnitTests(f"{_BROKER}test_a_request_is_carried_out_once_in_each_queue"),
    ),
    Mutant(
        "reset-request-done-by-hearsay",
        _AREA,
        "a reset is called done by a record that the next master cuts off",
        (
            Edit(
                "gantry_broker.store.tables.resets:put_request",
                "offsets.must_write(*key)",
                "pass",
            ),
        ),
        UnitTests(f"{_BROKER}test_a_request_that_was_answered_is_in_the_log_behind_its_offsets"),
    ),
)
