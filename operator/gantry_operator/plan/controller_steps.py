"""Rules that take something away from a controller quorum, with the argument why each is safe.

The quorum's own log decides what is committed, so no step here can lose a record; a step in the
wrong moment would only stop the quorum until a member is back. The rules prevent that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.admin_client.outcomes import Unreachable

from gantry_operator import names
from gantry_operator.plan.actions import DeletePod
from gantry_operator.plan.broker_steps import PlanStep
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    from gantry_protocol.admin import PeerView, QuorumView

    from gantry_operator.plan.observed import PodView
    from gantry_operator.plan.workload import Workload

LAST_CONTACT_MS = 2000
"""A voter that the leader heard of within this time counts as connected (Kafka's fetch time-out,
which its roller uses for the same question, is 2000 ms)."""
LAG_ENTRIES = 1000
"""A voter that is at most this far behind the commit index counts as caught up; it needs
milliseconds for the rest."""


def roll_controllers(
    quorum: QuorumView | Unreachable, load: Workload, voters: int | None = None
) -> PlanStep | None:
    """Rule: outdated controllers are replaced one by one, the leader last.

    A pod without a running process is replaced first and at any time: it votes for nothing, and
    its log stays on its volume. Any other only goes while the leader sees enough other voters
    caught up, counting the leaving one out, so that one more fault still leaves a majority where
    the size allows it. The leader is asked anew on every step, so a change of leader in the middle
    is honoured. While the size changes there are fewer or more ``voters`` than pods.
    """
    outdated = load.outdated()
    if not outdated:
        return None
    disturbance = load.disturbance()
    if disturbance:
        return PlanStep(Reason.ROLLING_UPDATE, f"Waiting to replace pods: {disturbance}.")
    dead = next((pod for pod in reversed(outdated) if not pod.running), None)
    if dead is not None:
        text = f"Replacing {dead.name}, whose container does not run."
        action = DeletePod(name=dead.name, uid=dead.uid, only_if_dead=True)
        return PlanStep(Reason.ROLLING_UPDATE, text, action)
    if isinstance(quorum, Unreachable):
        text = f"Waiting to replace pods: {quorum.reason}"
        return PlanStep(Reason.ROLLING_UPDATE, text, stalled=True)
    unready = next((pod for pod in load.current() if not pod.ready), None)
    if unready is not None:
        text = f"Waiting to replace pods: {unready.name} is not Ready yet."
        return PlanStep(Reason.ROLLING_UPDATE, text, stalled=True)
    return _replace_next(quorum, load, outdated, load.replicas if voters is None else voters)


def _replace_next(
    quorum: QuorumView, load: Workload, outdated: tuple[PodView, ...], voters: int
) -> PlanStep:
    leader = leader_pod(quorum, load.pods)
    if load.replicas > 1 and leader is None:
        text = "Waiting to replace pods: the quorum has no leader that is one of its pods."
        return PlanStep(Reason.ROLLING_UPDATE, text, stalled=True)
    pod = min(outdated, key=lambda p: (p == leader, p.ready, -(p.ordinal or 0)))
    others = caught_up(quorum, load.pods) - {pod.name}
    needed = required_others(voters)
    if len(others) < needed:
        text = (
            f"Waiting to replace {pod.name}: {len(others)} other controllers are caught up and "
            f"{needed} are needed."
        )
        return PlanStep(Reason.ROLLING_UPDATE, text, stalled=True)
    last = ", the leader" if pod == leader else ""
    return PlanStep(
        Reason.ROLLING_UPDATE,
        f"Replacing {pod.name}{last}.",
        DeletePod(name=pod.name, uid=pod.uid, term=quorum.term),
    )


def required_others(replicas: int) -> int:
    """The number of other voters that must be caught up while one is away.

    ⌊(n + 2) / 2⌋ of the others, as Strimzi asks of KRaft controllers: both others of three, three
    of the other four. A single controller has no others and is simply missed.
    """
    return 0 if replicas == 1 else (replicas + 2) // 2


def caught_up(quorum: QuorumView, pods: tuple[PodView, ...]) -> frozenset[str]:
    """Names of the pods of voters that the leader says are connected and caught up; it included.

    Only the leader knows; a follower's view counts nobody.
    """
    return _caught_up(quorum, pods, "voter")


def filled_learners(quorum: QuorumView, pods: tuple[PodView, ...]) -> frozenset[str]:
    """The same of learners, who may vote then."""
    return _caught_up(quorum, pods, "learner")


def _caught_up(quorum: QuorumView, pods: tuple[PodView, ...], role: str) -> frozenset[str]:
    if quorum.leader_id != quorum.node_id:
        return frozenset()
    known = {pod.name for pod in pods if not pod.terminating}
    return frozenset(
        name
        for peer in quorum.peers
        if peer.role == role
        and (name := _pod_name(peer, pods)) in known
        and _is_caught_up(peer, quorum)
    )


def _is_caught_up(peer: PeerView, quorum: QuorumView) -> bool:
    if peer.id == quorum.leader_id:
        return True
    if peer.match_index is None or peer.last_contact_ms is None or peer.counted is False:
        return False  # one that is still being filled may hold all, and votes for nothing
    lag = quorum.commit_index - peer.match_index
    return peer.last_contact_ms <= LAST_CONTACT_MS and lag <= LAG_ENTRIES


def leader_pod(quorum: QuorumView, pods: tuple[PodView, ...]) -> PodView | None:
    """The pod of the leader."""
    for peer in quorum.peers:
        if peer.id == quorum.leader_id:
            name = _pod_name(peer, pods)
            return next((pod for pod in pods if pod.name == name), None)
    return None


def _pod_name(peer: PeerView, pods: tuple[PodView, ...]) -> str | None:
    """A peer's pod: by name, else by its number, which is the ordinal plus one."""
    for pod in pods:
        if pod.name == peer.name:
            return pod.name
    if names.ordinal(peer.name) is not None:
        return None  # it has the name of a pod that does not exist at the moment
    return next((pod.name for pod in pods if pod.ordinal == peer.id - 1), None)
