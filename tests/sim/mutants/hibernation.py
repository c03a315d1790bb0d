"""Bugs in what puts a group to sleep and wakes it."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests, one_edit

_operator = one_edit("gantry_operator")
_SLEEP = "unit/operator/test_hibernation.py::"
_AREA = "operator"


def _bug(name: str, breaks: str, where: str, old: str, new: str, test: str) -> Mutant:
    return _operator(name, _AREA, breaks, where, old, new, UnitTests(f"{_SLEEP}{test}"))


MUTANTS = (
    _bug(
        "hibernation-deletes-volumes",
        "all volumes of a group go with its pods, where scaling deletes claims",
        "builders.broker:broker_objects",
        "if group.spec.hibernated:",
        "if False:",
        "test_claims_are_kept_before_a_pod_goes",
    ),
    _bug(
        "pods-go-before-claims-are-kept",
        "pods go under the policy that deletes their claims",
        "plan.hibernation:hibernate",
        "if not keeps_claims(statefulset):",
        "if False:",
        "test_claims_are_kept_before_a_pod_goes",
    ),
    _bug(
        "the-last-copy-sleeps-alone",
        "what a group acknowledged sleeps on a single volume",
        "plan.hibernation:hibernate",
        "count < min_in_sync:",
        "count < 1:",
        "test_too_few_in_sync_keep_their_pods",
    ),
    _bug(
        "fewer-wake-than-fell-asleep",
        "the only member that may be elected never starts again",
        "plan.hibernation:size_known",
        "max([group.spec.replicas, *declared])",
        "group.spec.replicas",
        "test_as_many_wake_as_fell_asleep",
    ),
    _bug(
        "record-of-sleepers-shrinks",
        "the controllers forget how many members there were while these sleep",
        "plan.broker:_ensure",
        "size_known(seen, group) if asleep else replicas",
        "max(replicas, group.spec.replicas)",
        "test_as_many_wake_as_fell_asleep",
    ),
    _bug(
        "woken-blindly",
        "a group wakes with fewer members since nobody could be asked how many there were",
        "plan.hibernation:size_now",
        "return 0 ",
        "return group.spec.replicas ",
        "test_nobody_wakes_while_nobody_can_say_how_many_there_were",
    ),
    _bug(
        "drained-in-its-sleep",
        "the time of a drain passes while nobody could read, and what it held is let go",
        "plan.broker:plan_broker_group",
        "shrink_steps(seen, seen.group, now) if awake else []",
        "shrink_steps(seen, seen.group, now)",
        "test_no_shard_is_drained_or_left_while_nobody_could_read_it",
    ),
    _bug(
        "sleep-is-a-fault",
        "a pipeline waits for a group that sleeps as its spec wishes",
        "plan.conditions:Conditions.sum_up",
        'if asleep is not None and asleep.status == "True" and _is_true(accepted):',
        "if False:",
        "test_a_group_that_sleeps_says_so_and_is_as_wished",
    ),
)
