"""Bugs in the local cluster over a real API server (``gantry_local.real``)."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

LOCAL = "unit/local"
WISHES = f"{LOCAL}/test_real_wishes.py"
PARTS = f"{LOCAL}/test_real_parts.py"


def _mutant(name: str, breaks: str, where: str, old: str, new: str, killer: str) -> Mutant:
    return Mutant(
        name, "real api", breaks, (Edit(f"gantry_local.{where}", old, new),), UnitTests(killer)
    )


MUTANTS = (
    _mutant(
        "a-status-under-way-is-taken-back",
        "a pod's address is gone again when anybody writes the pod before the server answers",
        "real.wishes:Wishes.shown",
        " and wish.under_way is None",
        "",
        f"{WISHES}::test_what_was_said_is_shown_until_the_server_has_it",
    ),
    _mutant(
        "an-older-revision-takes-a-status-back",
        "news that were on their way when a status was taken undo it",
        "real.wishes:Wishes.shown",
        " and revision_of(pod) >= wish.revision",
        "",
        f"{WISHES}::test_what_was_said_is_shown_until_the_server_has_it",
    ),
    _mutant(
        "a-pod-loses-its-node-on-the-way",
        "a container that asks for its node's name may be told none",
        "real.wishes:Wishes.shown",
        " and bound",
        "",
        f"{WISHES}::test_a_bound_pod_has_its_node_until_the_server_shows_it",
    ),
    _mutant(
        "an-ended-pod-begins-again",
        "a pod whose processes have ended is started once more before its object is gone",
        "real.wishes:Wishes.shown",
        "if wish.gone:",
        "if False:",
        f"{WISHES}::test_an_ended_pod_is_not_shown_again_and_only_its_removal_is_sent",
    ),
    _mutant(
        "a-step-is-sent-once",
        "what the kubelet says while the server is away is never told",
        "real.wishes:Wishes.failed",
        "wish.unsent.add(wish.under_way)",
        "pass",
        f"{WISHES}::test_a_step_without_an_answer_is_due_again",
    ),
    _mutant(
        "anybodys-pod-is-removed",
        "the pod that follows one of its name is removed with it",
        "real.wishes:_due",
        ', "preconditions": {"uid": wish.uid}',
        "",
        f"{WISHES}::test_an_ended_pod_is_not_shown_again_and_only_its_removal_is_sent",
    ),
    _mutant(
        "conditions-of-others-are-overwritten",
        "a condition that somebody else keeps on a pod goes back to what it was",
        "real.wishes:status_patch",
        ' if c["type"] in OWN_CONDITIONS',
        "",
        f"{WISHES}::test_conditions_of_others_are_theirs",
    ),
    _mutant(
        "a-bound-volume-is-removed",
        "a volume in use loses its data",
        "real.provisioner:plan",
        '== "Released"',
        '!= "Available"',
        f"{PARTS}::test_volumes_follow_claims",
    ),
    _mutant(
        "a-strangers-volume-is-removed",
        "a volume that somebody made by hand is deleted",
        "real.provisioner:plan",
        "_is_ours(volume)",
        "True",
        f"{PARTS}::test_volumes_follow_claims",
    ),
    _mutant(
        "a-forgotten-revision-ends-the-mirror",
        "after a pause nothing of the cluster is seen any more",
        "real.mirror:Mirror._watch",
        'obj.get("code") == 410',
        "True",
        f"{PARTS}::test_a_server_that_does_not_answer_takes_nothing_away",
    ),
    _mutant(
        "slices-outlive-their-service",
        "a Service made anew under a name leads nowhere",
        "real.endpoints:_is_left",
        'reference["uid"] != owner',
        "False",
        f"{PARTS}::test_slices_are_the_living_services",
    ),
    _mutant(
        "logs-for-every-user",
        "every user of the machine reads the logs of all pods",
        "kubelet.serving:LogServer._guard",
        "!= os.getuid()",
        "is None",
        f"{PARTS}::test_logs_are_their_owners",
    ),
    _mutant(
        "another-api-server-over-a-clusters-data",
        "a cluster comes up empty beside its objects",
        "state:StateDir.open",
        "if api not in (None, cluster.api):",
        "if False:",
        f"{LOCAL}/test_state.py::test_a_directory_keeps_its_api_server",
    ),
)
