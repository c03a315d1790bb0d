"""Bugs in what holds a change back until a person approves it, and in what writes such wishes."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests, one_edit

_operator = one_edit("gantry_operator")
_WAIT = "unit/operator/test_approval.py::"
_TURN = "unit/operator/test_rolls.py::"
_WISH = "unit/operator/test_wishes.py::"
_AREA = "changes"


def _bug(name: str, breaks: str, where: str, old: str, new: str, test: str) -> Mutant:
    return _operator(name, _AREA, breaks, where, old, new, UnitTests(test))


MUTANTS = (
    _bug(
        "approval-of-another-change",
        "an approval lets the next change go, too",
        "plan.approval:held_change",
        "may_go = given == change or not supervised",
        "may_go = bool(given) or not supervised",
        f"{_WAIT}test_the_approved_change_goes_and_nothing_else_does",
    ),
    _bug(
        "approved-before-it-is-announced",
        "a change begins that the status never told of, and takes no turn",
        "plan.approval:held_change",
        "if may_go and is_shown",
        "if may_go",
        f"{_WAIT}test_what_was_not_announced_does_not_go_even_if_it_is_approved",
    ),
    _bug(
        "approved-groups-all-at-once",
        "whoever approves the fleet restarts it in the same second",
        "plan.approval:held_change",
        "in_line |= supervised and seen.image_wait is not None",
        "pass",
        f"{_WAIT}test_the_line_of_the_fleet_comes_after_the_approval",
    ),
    _bug(
        "settings-before-their-approval",
        "a process that crashes comes back with settings that nobody approved",
        "plan.approval:ensure_meanwhile",
        "hold_config = _is_config_new(statefulset, live)",
        "hold_config = False",
        f"{_WAIT}test_settings_are_held_with_the_template_that_they_belong_to",
    ),
    _bug(
        "size-takes-the-template-along",
        "scaling up while a change waits takes fields of the pods away",
        "plan.approval:ensure_meanwhile",
        "manager = names.REPLICAS_FIELD_MANAGER",
        "manager = names.FIELD_MANAGER",
        f"{_WAIT}test_what_restarts_no_pod_waits_for_nobody",
    ),
    _bug(
        "scaling-down-takes-the-new-template-along",
        "a pod that dies after a replica was removed has a template that nobody approved",
        "plan.broker:_next_step",
        "manifest=size_of(manifest) if held else manifest",
        "manifest=manifest",
        f"{_WAIT}test_scaling_down_goes_on_with_the_old_template",
    ),
    _bug(
        "approval-of-a-state",
        "an approval of long ago lets the same template go from anywhere",
        "plan.approval:change_id",
        "digest([before, _hash(wished)])",
        "digest([_hash(wished)])",
        f"{_WAIT}test_an_approval_is_for_one_way_only",
    ),
    _bug(
        "older-sets-count-as-the-same",
        "the first change after an upgrade of the operator waits for nobody",
        "plan.approval:change_id",
        "after = _unmarked(wished)",
        "before = after",
        f"{_WAIT}test_a_set_of_an_older_operator_is_the_same_only_if_it_is_proved",
    ),
    _bug(
        "held-back-is-as-wished",
        "a tool that waits is told that a change was carried out, and it waits for a person",
        "plan.conditions:Conditions.sum_up",
        "if found.reason in _NOT_CARRIED_OUT:",
        "if found.reason == Reason.PAUSED_BY_SPEC:",
        f"{_WAIT}test_a_change_that_restarts_pods_waits_and_says_what_it_would_do",
    ),
    _bug(
        "a-person-holds-the-fleet-up",
        "a group that waits for a person keeps a new image from all behind it",
        "reconcile.fleet:Fleet._place",
        "_is_usable(body) and not waits_for_approval(body)",
        "_is_usable(body)",
        "unit/operator/test_image_turns.py::"
        "test_who_waits_for_a_person_keeps_nobody_waiting_and_then_stands_in_line",
    ),
    _bug(
        "wish-written-to-another-spec",
        "a command changes a group that is not any more what the command was judged by",
        "operations.asking:ask",
        '("uid", "resourceVersion")',
        '("uid",)',
        f"{_WISH}test_a_wish_is_written_to_what_it_was_judged_by",
    ),
    _bug(
        "any-change-is-approved-by-name",
        "who names the change that he has read about lets a newer one go",
        "operations.wishes:approval",
        "if change not in (None, pending.id):",
        "if False:",
        f"{_WISH}test_what_does_not_wait_is_not_approved",
    ),
    _bug(
        "end-of-another-time",
        "a command says that all is done by a status from before it",
        "operations.wishes:_is_seen",
        'return bool(_status(body).observed_generation == body["metadata"].get("generation"))',
        "return True",
        f"{_WISH}test_the_change_that_waits_is_approved_by_its_id",
    ),
    _bug(
        "who-is-broken-waits-for-its-turn",
        "the change that would mend a group waits behind one that is stuck",
        "reconcile.rolls:Rolls.turn_of",
        " or not self._is_well(key, new_is_well=False)",
        "",
        f"{_TURN}test_what_is_not_well_waits_for_nobody",
    ),
    _bug(
        "turns-for-all-at-once",
        "all groups are given a turn before the first one is seen to roll",
        "reconcile.rolls:Rolls._room_for",
        "under_way += 1  # its StatefulSet is about to be written",
        "under_way += 0",
        f"{_TURN}test_so_many_begin_and_the_next_when_one_is_well",
    ),
    _bug(
        "unused-roll-turn-kept-for-ever",
        "a group that does not use its turn keeps all others from theirs",
        "reconcile.rolls:Rolls._room_for",
        " and now_s - given_s < GIVEN_S",
        "",
        f"{_TURN}test_a_turn_that_nobody_uses_goes_to_the_next",
    ),
    _bug(
        "roll-without-its-turn",
        "a change goes without its turn",
        "plan.approval:held_change",
        "in_line = turn is not None and not turn.given",
        "in_line = False",
        f"{_TURN}test_a_change_is_announced_before_its_turn_and_goes_with_it",
    ),
)
