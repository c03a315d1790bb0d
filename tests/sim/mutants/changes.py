"""Bugs in what announces changes, and in the figures that prove them."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests, one_edit

_operator = one_edit("gantry_operator")
_LINE = "unit/operator/test_headline.py::"
_COURSE = "unit/operator/test_foresight.py::"
_PROOF = "unit/operator/test_changes.py::"
_COURSES = "unit/controller/liveness/test_courses.py::"
_API = "unit/controller/admin/test_api.py::TestGroups::"
_AREA = "changes"


def _bug(name: str, breaks: str, where: str, old: str, new: str, test: str) -> Mutant:
    return _operator(name, _AREA, breaks, where, old, new, UnitTests(test))


MUTANTS = (
    _bug(
        "stuck-is-under-way",
        "tools wait for their whole time-out for what a person has to change",
        "plan.conditions:Conditions.conclude",
        'name = "Stalled" if reason in STALLED else "Reconciling"',
        'name = "Reconciling"',
        f"{_LINE}test_each_state_has_a_line_and_a_conclusion",
    ),
    _bug(
        "unseen-is-stuck",
        "tools give up because the operator could not ask the controllers",
        "plan.conditions:Conditions.conclude",
        'if status != "False" or reason in _NOT_CARRIED_OUT:',
        'if status == "True" or reason in _NOT_CARRIED_OUT:',
        f"{_LINE}test_what_is_not_ready_is_under_way_or_stuck_and_never_both",
    ),
    _bug(
        "restarts-left-out-of-a-plan",
        "a plan shows one restart, and the operator restarts all",
        "plan.supposed:_replaced",
        "tuple(new if pod.uid == old.uid else pod for pod in seen.pods)",
        "tuple(new if pod.uid == old.uid else replace(pod, revision=new.revision) "
        "for pod in seen.pods)",
        f"{_COURSE}test_a_roll_is_foreseen_pod_by_pod_the_master_last",
    ),
    _bug(
        "scaling-up-foreseen-as-a-roll",
        "a plan says that pods restart for another number of them",
        "plan.supposed:_revision",
        'return f"supposed-{generation}" if rolled or not before else str(before)',
        'return f"supposed-{generation}"',
        f"{_COURSE}test_a_new_template_rolls_and_another_number_of_replicas_does_not",
    ),
    _bug(
        "pod-that-cannot-be-spared-costs-nothing",
        "a plan promises that sends go on while the only replica restarts",
        "plan.foresight:_falls_short",
        "return staying < minimum <= len(group.in_sync())",
        "return False",
        f"{_COURSE}test_steps_and_gaps",
    ),
    _bug(
        "refusal-foreseen-as-nothing-to-do",
        "a plan of a change that will be refused says that nothing is to be done",
        "plan.foresight:foresee",
        'if refused is not None and refused["status"] == "False":',
        "if False:",
        f"{_COURSE}test_a_refusal_is_told_and_nothing_else",
    ),
    _bug(
        "idle-group-has-a-gap",
        "a failover at night is said to have kept clients waiting for hours",
        "plan.changes:gap_ms",
        "or told.last_write_ms < there_ms - IN_USE_MS",
        "",
        f"{_PROOF}test_a_gap_is_told_only_where_somebody_wrote",
    ),
    _bug(
        "gap-of-a-later-move",
        "a change that is over is charged with what came after it",
        "plan.changes:_is_part_of",
        "last = change.to_epoch if finished else told.epoch",
        "last = told.epoch",
        f"{_PROOF}test_the_first_record_may_come_after_the_end_and_a_later_move_is_no_part_of_it",
    ),
    _bug(
        "proved-before-it-is-well",
        "a change is said to be over while its last pod is not Ready",
        "plan.changes:last_change",
        "return _finished(current, seen, now) if ready and kind is None else current",
        "return _finished(current, seen, now) if kind is None else current",
        f"{_PROOF}test_a_roll_that_is_over_and_well_is_proved",
    ),
    _bug(
        "hand-over-told-as-a-failover",
        "a planned move overwrites what is known of the last failover",
        "plan.changes:_failovers",
        "told.planned is False and",
        "",
        f"{_PROOF}test_a_failover_stays_until_the_next_one",
    ),
    _bug(
        "what-was-given-up-is-not-lost",
        "a person gives messages up, and the status says that nothing was lost",
        "plan.changes:lost_bytes",
        "if loss is None or loss.master_epoch != view.master_epoch:",
        "if True:",
        f"{_PROOF}test_what_is_lost",
    ),
    *(
        one_edit("gantry_controller")(name, _AREA, breaks, where, old, new, UnitTests(test))
        for name, breaks, where, old, new, test in (
            (
                "last-suspicion-counts",
                "a failover is told to have been noticed when it was over",
                "liveness.core.courses:Courses.suspected",
                "if known is None or known.epoch != group.master_epoch:",
                "if True:",
                f"{_COURSES}test_only_the_first_suspicion_counts",
            ),
            (
                "course-of-another-epoch",
                "a master is told to have been elected as one before it was",
                "liveness.core.courses:Courses.of",
                "course is not None and course.epoch == group.master_epoch",
                "True",
                f"{_COURSES}test_an_older_epoch_says_nothing_of_the_present_master",
            ),
            (
                "first-record-of-another-mastership",
                "a gap is measured with a record of an earlier mastership of the same broker",
                "admin.views:_mastership_view",
                "row.beat.epoch != group.master_epoch",
                "False",
                f"{_API}test_the_masters_own_word_on_its_first_record_counts_in_its_epoch_only",
            ),
        )
    ),
    one_edit("gantry_broker")(
        "unconfirmed-record-ends-the-gap",
        _AREA,
        "a gap ends with a record that a failover takes back",
        "member.takeover:Takeover.report",
        "confirm > self._start",
        "self._log.end > self._start",
        UnitTests(
            "unit/broker/member/test_takeover.py::test_the_first_record_counts_once_it_is_confirmed"
        ),
    ),
)
