"""Bugs in how volumes grow."""

from __future__ import annotations

from sim.mutants.mutant import UnitTests, one_edit

_operator = one_edit("gantry_operator")
_GROWTH = "unit/operator/test_growth.py"


def _tests(name: str) -> UnitTests:
    return UnitTests(f"{_GROWTH}::{name}")


MUTANTS = (
    _operator(
        "volumes-shrink-in-the-middle",
        "operator",
        "a size below what claims have got already is accepted while the template has less",
        "plan.acceptance:_changed_storage",
        "wished_last(statefulset) or claimed_size(statefulset)",
        "claimed_size(statefulset)",
        _tests("test_what_was_wished_once_is_never_shrunk"),
    ),
    _operator(
        "grown-in-its-sleep",
        "operator",
        "claims of a group that is to sleep are made larger, and nobody mounts them",
        "plan.broker:plan_broker_group",
        "    if awake:\n            growth",
        "    if True:\n            growth",
        _tests("test_a_group_that_is_to_sleep_grows_when_it_has_woken"),
    ),
    _operator(
        "claims-that-were-left-stay-small",
        "operator",
        "a resource that takes up smaller claims of a deleted one never makes them larger",
        "plan.growth:template_size",
        "sizes = [volume.requested for volume in left]",
        "sizes = []",
        _tests("test_a_new_statefulset_grows_the_claims_that_are_left"),
    ),
    _operator(
        "claims-before-the-wish-is-noted",
        "operator",
        "an operator that ends at once leaves larger claims, and nothing says what was wished",
        "plan.growth:grow",
        "if under_way or noted != size else",
        "if under_way else",
        _tests("test_the_first_plan_notes_the_wish_and_leaves_template_and_pods_alone"),
    ),
    _operator(
        "all-volumes-at-once",
        "operator",
        "a driver that spoils a volume gets the next one before anybody looked at the first",
        "plan.growth:grow",
        "[] if under_way or noted != size else",
        "[] if noted != size else",
        _tests("test_which_claim_is_next"),
    ),
    _operator(
        "masters-volume-first",
        "operator",
        "the volume of the master is the first that a driver may spoil",
        "plan.growth:grow",
        "(pods[volume.ordinal].name in last, -(volume.ordinal or 0))",
        "(pods[volume.ordinal].name not in last, -(volume.ordinal or 0))",
        _tests("test_which_claim_is_next"),
    ),
    _operator(
        "pods-restart-while-the-kubelet-grows",
        "operator",
        "a pod restarts as soon as its volume is larger, although its file system grows by itself",
        "plan.growth:_state",
        "_RESTART if waited_s >= FILE_SYSTEM_WAIT_S else _FILE_SYSTEM",
        "_RESTART",
        _tests("test_no_other_pod_restarts"),
    ),
    _operator(
        "pods-restart-again-and-again",
        "operator",
        "a pod whose file system did not grow with its restart restarts for ever",
        "plan.growth:_state",
        "if not pod.created or pod.created > volume.pending_since:",
        "if not pod.created:",
        _tests("test_no_other_pod_restarts"),
    ),
    _operator(
        "pod-of-the-same-second-waits-for-ever",
        "operator",
        "a replica that is added to a group with larger volumes is never restarted for its own",
        "plan.growth:_state",
        "pod.created > volume.pending_since",
        "pod.created >= volume.pending_since",
        _tests("test_a_claim_that_grew_in_the_second_of_its_pod_waits_for_a_restart_too"),
    ),
    _operator(
        "one-refusal-ends-the-growth",
        "operator",
        "a claim that was refused is asked for again before the others were",
        "plan.growth:grow",
        "(untried or again)[:1]",
        "(again or untried)[:1]",
        _tests("test_the_others_are_asked_for_before_one_that_was_refused"),
    ),
    _operator(
        "refusals-are-asked-for-at-once",
        "operator",
        "what the API server refuses is asked for on every look",
        "plan.growth:grow",
        "if v.name in refused and refused[v.name].due",
        "if v.name in refused",
        _tests("test_a_refusal_is_told_and_tried_again_later"),
    ),
    _operator(
        "grown-before-the-file-system",
        "operator",
        "a volume counts as grown when it was asked for, and not when it has the size",
        "plan.growth:has_grown",
        "return asked and bool(volume.capacity) and not is_larger(size, volume.capacity)",
        "return asked",
        _tests("test_what_counts_as_grown"),
    ),
    _operator(
        "a-refused-claim-stops-the-plan",
        "operator",
        "a storage class without expansion holds up every later step of the group",
        "reconcile.apply:Applier._grow",
        "except (Denied, Invalid) as error:",
        "except Invalid as error:",
        UnitTests("unit/operator/test_apply.py::test_a_claim_that_is_refused_stops_nothing"),
    ),
)
