"""Bugs in what takes a member out of its group, and in what strikes one that is gone."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests, one_edit
from sim.mutants.planting import Edit

_METADATA = "gantry_controller.metadata"
_CORE = "gantry_broker.replica.core:ReplicaCore"
_STATED = "unit/controller/metadata/test_fencing.py::"
_FENCED = "unit/broker/replica/test_fenced.py::"
_operator = one_edit("gantry_operator")
_UNCHECKED = Edit(
    f"{_METADATA}.invariants:check_group",
    "assert not new.fenced or not set(new.fenced) & set(new.sync_state_set), new",
    "pass",
)


def _bug(name: str, breaks: str, where: str, old: str, new: str, test: str) -> Mutant:
    return _operator(name, "operator", breaks, where, old, new, UnitTests(f"unit/operator/{test}"))


MUTANTS = (
    Mutant(
        "fenced-member-taken-in",
        "metadata",
        "H14: a master that has not heard of a fence takes the member into the set",
        (
            _UNCHECKED,
            Edit(
                f"{_METADATA}.mastership:_refuse_alteration",
                "if broker_id in group.fenced:",
                "if False:",
            ),
        ),
        UnitTests(f"{_STATED}test_a_fenced_member_leaves_the_set_at_once_and_is_not_taken_in"),
    ),
    Mutant(
        "fenced-member-stays-in-the-set",
        "metadata",
        "H14: a fenced member stays in the set, and is elected when the others die",
        (
            _UNCHECKED,
            Edit(
                f"{_METADATA}.fencing:fence_member",
                "if item not in fenced)",
                "if item)",
            ),
        ),
        Seeds("product-fenced", 1),
    ),
    Mutant(
        "fenced-member-is-named-master",
        "metadata",
        "H14: where the whole set was struck a fenced member may be named",
        (
            Edit(
                f"{_METADATA}.election:_election_without_a_set",
                "if named in group.fenced:",
                "if False:",
            ),
            _UNCHECKED,
        ),
        UnitTests(f"{_STATED}test_where_the_whole_set_was_struck_it_cannot_be_named"),
    ),
    Mutant(
        "fence-leaves-the-set-epoch",
        "metadata",
        "an older word lets a fenced member in again, or fences one that was let in",
        (
            Edit(
                f"{_METADATA}.fencing:fence_member",
                "sync_state_set_epoch=group.sync_state_set_epoch + 1",
                "sync_state_set_epoch=group.sync_state_set_epoch + (kept != group.sync_state_set)",
            ),
        ),
        UnitTests(f"{_STATED}test_let_in_again_it_may_be_proposed"),
    ),
    Mutant(
        "fence-stops-writes",
        "metadata",
        "a member is fenced without whom fewer than the minimum are in sync",
        (Edit(f"{_METADATA}.fencing:_reason_against", "if len(staying) < needed:", "if False:"),),
        UnitTests(f"{_STATED}test_writes_do_not_end_with_it"),
    ),
    Mutant(
        "fenced-member-is-fed",
        "replica",
        "H14: a fenced member that has not heard of it gets the log",
        (
            Edit(
                f"{_CORE}._hello",
                "if self.view is not None and hello.broker_id in self.view.fenced:",
                "if False:",
            ),
        ),
        UnitTests(f"{_FENCED}test_its_master_gives_it_nothing_though_it_has_not_heard"),
    ),
    Mutant(
        "fenced-member-follows",
        "replica",
        "H14: a fenced member follows the next master",
        (
            Edit(
                f"{_CORE}._end_role",
                "self.role = Role.FENCED if fenced else Role.IDLE",
                "self.role = Role.IDLE",
            ),
        ),
        UnitTests(f"{_FENCED}test_it_asks_for_no_election_and_follows_no_later_master"),
    ),
    _bug(
        "master-moves-to-who-is-fenced-next",
        "the mastership goes to a replica that is to be fenced, and moves once more",
        "plan.members:ObservedGroup.successor",
        "if pod.ordinal in avoid or (",
        "if (",
        "test_fencing.py::test_the_master_hands_over_first_and_not_to_one_that_is_to_be_fenced",
    ),
    _bug(
        "mastership-moves-for-a-fence-that-is-refused",
        "a mastership moves although its replica may not be fenced afterwards",
        "plan.fencing:fence",
        "if short:",
        "if short and member.broker_id != group.view.master_broker_id:",
        "test_fencing.py::test_no_write_stops_for_it",
    ),
    _bug(
        "fenced-pod-is-rolled",
        "a roll replaces the pod that somebody looks at, or waits for it for ever",
        "plan.workload:Workload.unfenced",
        "if pod.ordinal not in self.fenced",
        "if pod",
        "test_fencing.py::test_a_roll_leaves_the_fenced_pod_alone",
    ),
    _bug(
        "a-pause-lets-members-in",
        "fenced members come back while spec.paused says that nothing is changed",
        "plan.broker:plan_broker_group",
        "acting = accepted.usable and seen.group is not None and not seen.group.spec.paused",
        "acting = accepted.usable and seen.group is not None",
        "test_fencing.py::test_it_is_let_in_again_at_any_time",
    ),
    _bug(
        "a-restart-is-forgotten",
        "a member whose pod is being made again is struck, and has to be filled anew",
        "plan.forgetting:reason_to_keep",
        "ordinal < replicas and",
        "ordinal < 0 and",
        "test_forgetting.py::test_a_member_whose_pod_is_being_made_again_is_kept",
    ),
    _bug(
        "an-old-request-strikes-again",
        "a request that was refused strikes the member weeks later",
        "plan.forgetting:forget",
        'if begun is not None and begun.state != "InProgress":',
        "if False:",
        "test_forgetting.py::test_who_may_be_missed_is_kept_and_the_refusal_is_final",
    ),
)
