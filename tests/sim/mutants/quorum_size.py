"""Bugs in how a quorum gets another size, and in who hears of it."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

_SIZE = "unit/operator/test_quorum_size.py::"
_STATES = f"{_SIZE}test_every_state_has_its_next_step"
_COURSE = f"{_SIZE}test_any_course_of_wishes_ends_as_the_last_one"
_HEARD = "unit/broker/control/test_whereabouts.py::"
_PEERS = "unit/broker/control/test_peers.py::"
_NODE = "unit/controller/test_settings.py::"
_PLAN = "gantry_operator.plan.quorum_size"
_ASKER = "gantry_broker.control"


def _bug(name: str, breaks: str, where: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(name, "size", breaks, (Edit(where, old, new),), UnitTests(test))


MUTANTS = (
    _bug(
        "grown-while-a-member-is-away",
        "a quorum of which one is lost gets a fourth voter, and the next loss stops it",
        f"{_PLAN}:_take_in",
        "if unwell:",
        "if False:",
        _STATES,
    ),
    _bug(
        "shrunk-while-one-who-stays-is-away",
        "those who are well are taken out, and who is left cannot decide",
        f"{_PLAN}:_take_out",
        "if unwell:",
        "if False:",
        _STATES,
    ),
    _bug(
        "leader-taken-out",
        "the leader is removed while it leads, and writes wait for an election",
        f"{_PLAN}:_take_out",
        "if leader in out:",
        "if False:",
        _STATES,
    ),
    _bug(
        "well-one-leaves-before-the-lost",
        "of four voters two are left that answer",
        f"{_PLAN}:_take_out",
        "(number in members.well, -number)",
        "(number not in members.well, -number)",
        _STATES,
    ),
    _bug(
        "pod-removed-before-its-member",
        "a pod goes, and its volume, while its number counts",
        f"{_PLAN}:next_step",
        "if out:\n        return _take_out",
        "if out and load.replicas <= wished:\n        return _take_out",
        _STATES,
    ),
    _bug(
        "votes-before-it-is-filled",
        "a majority waits for a member that must first receive the whole log",
        f"{_PLAN}:_take_in",
        "sorted(members.learners - members.filled)",
        "()",
        _STATES,
    ),
    _bug(
        "added-before-pods-are-told",
        "the founder loses its disk, and founds a second quorum beside the one that grew out of it",
        f"{_PLAN}:_add",
        "if told < number:",
        "if False:",
        _STATES,
    ),
    _bug(
        "pods-told-of-fewer-than-there-are",
        "the file goes while members are there that the founders do not know",
        f"{_PLAN}:size_to_tell",
        "return max(replicas, *(peer.id for peer in quorum.peers))",
        "return replicas",
        f"{_SIZE}test_pods_are_told_of_no_smaller_size_than_one_in_effect",
    ),
    _bug(
        "peers-follow-the-wish",
        "a change of the size restarts every controller",
        f"{_PLAN}:founding_size",
        'return _size_in(statefulset, "GANTRY_PEERS",'
        " lambda size: names.peers(group, size, namespace))",
        "return None",
        f"{_SIZE}test_no_pod_has_another_template_for_another_size",
    ),
    _bug(
        "addresses-follow-the-wish",
        "a change of the size restarts every broker",
        f"{_PLAN}:_size_in",
        "next((size for size in SIZES if text(size) == found), None)",
        "None",
        f"{_SIZE}test_brokers_and_fronts_keep_the_addresses_that_they_were_started_with",
    ),
    _bug(
        "learner-counts-as-caught-up",
        "a controller restarts while too few of the others vote",
        "gantry_operator.plan.controller_steps:_caught_up",
        "peer.role == role",
        "True",
        f"{_SIZE}test_a_learner_does_not_count_for_those_who_must_stay",
    ),
    _bug(
        "pod-of-a-member-goes-after-all",
        "who was taken in between the look and the deed loses its pod",
        "gantry_operator.reconcile.checks:still_to_scale",
        "if action.number in {peer.id for peer in quorum.peers}:",
        "if False:",
        "unit/operator/test_apply.py::test_the_pod_of_a_controller_stays_while_it_takes_part",
    ),
    _bug(
        "founder-founds-beside-those-it-took-in",
        "one that lost its disk is alone with itself, and begins anew under the same identity",
        "gantry_controller.settings:ControllerSettings.founds",
        "self.quorum_size == max(len(self.named), 1)",
        "True",
        f"{_NODE}test_a_quorum_of_another_size_founds_nothing_and_takes_in_who_is_new",
    ),
    _bug(
        "followers-word-takes-members-away",
        "a broker leaves controllers because one was behind, and is taken for gone there",
        f"{_ASKER}.core.whereabouts:Whereabouts.heard",
        "said if leads else",
        "said if True else",
        f"{_HEARD}test_only_the_leader_takes_away",
    ),
    _bug(
        "strangers-addresses-believed",
        "controllers that call themselves by other names are dialled where they cannot be reached",
        f"{_ASKER}.core.whereabouts:Whereabouts.heard",
        "if not {*self.dialled, *self.named}.intersection(said):",
        "if not said:",
        f"{_HEARD}test_a_list_without_a_known_address_changes_nothing",
    ),
    _bug(
        "new-members-not-dialled",
        "a leader that came later hears no broker, and elects new masters everywhere",
        f"{_ASKER}.peers:ControllerPeers._learn",
        "self._settle(self._whereabouts.heard(header.peers, leads=header.is_leader))",
        "pass",
        f"{_PEERS}test_members_that_come_are_connected_to_and_those_that_go_are_left",
    ),
    _bug(
        "lost-for-good",
        "a broker whose controllers all moved never finds the quorum again",
        f"{_ASKER}.peers:ControllerPeers._discover_now_and_then",
        "await self._ask_once(address)",
        "pass",
        f"{_PEERS}test_a_process_whose_controllers_all_went_finds_the_others_behind_their_service",
    ),
)
