"""The size of a quorum: the next step from the members that there are to those that are wished.

The pods are the members: pod 0 is number 1, and so on. A pod more is started, and waits; it becomes
a learner, is filled, and votes once all that are wished are filled. In a smaller quorum leadership
goes to who stays, members are taken out, and only then their pods go, the highest first. So nobody
is a voter without a process, and no pod is removed whose number counts.

Each step follows from what is observed: the wish, the StatefulSet, the pods, and the leader's word
on its members. An operator that ends anywhere is followed by one that goes on there, and a wish
that is taken back is just another wish. Members change one at a time, which the leader insists on.

Rule protected: a quorum is changed only while all who stay are well. An even number of voters bears
no more losses than one less, so new ones wait for each other, and those who go leave in a row.

The log says who takes part; what pods are told at their start says who founds (``quorum-size``).
They are told of a size before it has an effect, or a member that lost its disk could found a second
quorum beside one that had grown out of it (ADR 0098).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
from gantry_protocol.admin_client.outcomes import Unreachable

from gantry_operator import names
from gantry_operator.plan.controller_steps import LAG_ENTRIES, caught_up, filled_learners
from gantry_operator.plan.objects import setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_protocol.admin import PeerView, QuorumView

    from gantry_operator.plan.observed import Body, PodView
    from gantry_operator.plan.workload import Workload

SIZES = (1, 3, 5)
Change = Literal["wait", "start", "add", "promote", "transfer", "remove", "stop"]
"""`start` and `stop` are of a pod; the others are asked of the leader, but for `wait`."""


class SizeStep(msgspec.Struct, frozen=True):
    """The next step.

    Attributes:
        number: the member that it is about; 0 for none.
        stalled: it waits for something that time alone may not bring.
    """

    change: Change
    message: str
    number: int = 0
    stalled: bool = False


class _Members(msgspec.Struct, frozen=True):
    """The leader's word on its members, by number.

    Attributes:
        well: voters that are caught up and whose pods are Ready.
        filled: learners that are.
    """

    quorum: QuorumView
    voters: frozenset[int]
    learners: frozenset[int]
    well: frozenset[int]
    filled: frozenset[int]

    @property
    def all(self) -> frozenset[int]:
        return self.voters | self.learners

    def peer(self, number: int) -> PeerView:
        return next(peer for peer in self.quorum.peers if peer.id == number)


def next_step(
    wished: int,
    load: Workload,
    quorum: QuorumView | Unreachable,
    told: int,
    name: Callable[[int], str],
) -> SizeStep | None:
    """The next step; None when the members are those that are wished, as far as is known.

    Args:
        wished: how many there are to be.
        load: the StatefulSet and its pods.
        quorum: what the controllers say.
        told: the size that pods are told of when they start.
        name: of a member's pod, by its number.
    """
    if isinstance(quorum, Unreachable) or quorum.leader_id != quorum.node_id:
        if load.replicas == wished:
            return None
        why = quorum.reason if isinstance(quorum, Unreachable) else "The quorum has no leader."
        return SizeStep("wait", f"Waiting to change the size: {why}", stalled=True)
    members = _members(quorum, load.pods, name)
    out = {number for number in members.all if number > wished}
    missing = set(range(1, wished + 1)) - members.all
    if not out and not missing and not members.learners and load.replicas == wished:
        return None
    strangers = [peer for peer in quorum.peers if peer.name != name(peer.id)]
    if strangers:
        who = ", ".join(f"{peer.id} ({peer.name})" for peer in strangers)
        return SizeStep(
            "wait",
            f"Waiting to change the size: {who} takes part and is no pod of this group; remove it "
            "with gantry controllers remove.",
            stalled=True,
        )
    held = max((number for number in members.all if number <= wished), default=0)
    if load.replicas < held:
        return SizeStep("start", f"Starting {name(load.replicas + 1)}, a member.")
    if out:
        return _take_out(wished, members, out, name)
    if load.replicas > wished:
        return _stop(load, name)
    return _take_in(wished, load, members, missing, told, name)


def _members(quorum: QuorumView, pods: tuple[PodView, ...], name: Callable[[int], str]) -> _Members:
    ready = {pod.name for pod in pods if pod.ready}
    voters = frozenset(peer.id for peer in quorum.peers if peer.role == "voter")
    numbers = {name(peer.id): peer.id for peer in quorum.peers}
    return _Members(
        quorum,
        voters,
        frozenset(peer.id for peer in quorum.peers) - voters,
        frozenset(numbers[pod] for pod in caught_up(quorum, pods) & ready if pod in numbers),
        frozenset(numbers[pod] for pod in filled_learners(quorum, pods) & ready if pod in numbers),
    )


def _unwell(members: _Members, staying: frozenset[int], name: Callable[[int], str]) -> str:
    """Who of those that stay is not well; empty if all are."""
    bad = sorted(staying - members.well)
    if not bad:
        return ""
    verb = "is" if len(bad) == 1 else "are"
    return f"{', '.join(map(name, bad))} {verb} not caught up and Ready"


def _take_out(
    wished: int, members: _Members, out: set[int], name: Callable[[int], str]
) -> SizeStep:
    staying = frozenset(number for number in members.voters if number <= wished)
    if not staying:
        text = "Waiting to take members out: none of those who are to stay votes."
        return SizeStep("wait", text, stalled=True)
    unwell = _unwell(members, staying, name)
    if unwell:
        return SizeStep("wait", f"Waiting to take members out: {unwell}.", stalled=True)
    leader = members.quorum.leader_id
    if leader in out:
        target = max(staying, key=lambda number: (_match(members.peer(number)), -number))
        text = f"Handing leadership over to {name(target)}: {name(leader or 0)} is to go."
        return SizeStep("transfer", text, target)
    # Who is lost anyway goes first: then those who are left are as many as can be.
    number = min(out, key=lambda number: (number in members.well, -number))
    left = members.voters - {number}
    if 2 * len(left & members.well) <= len(left):
        text = f"Waiting to take {name(number)} out: too few of the others are well to decide."
        return SizeStep("wait", text, stalled=True)
    return SizeStep("remove", f"Taking {name(number)} out of the quorum.", number)


def _match(peer: PeerView) -> int:
    return -1 if peer.match_index is None else peer.match_index


def _stop(load: Workload, name: Callable[[int], str]) -> SizeStep:
    return SizeStep("stop", f"Removing {name(load.replicas)}, no member any more.", load.replicas)


def _take_in(
    wished: int,
    load: Workload,
    members: _Members,
    missing: set[int],
    told: int,
    name: Callable[[int], str],
) -> SizeStep:
    unwell = _unwell(members, members.voters, name)
    if unwell:
        return SizeStep("wait", f"Waiting to take members in: {unwell}.", stalled=True)
    started = sorted(number for number in missing if number <= load.replicas)
    if started:
        return _add(load, started[0], told, name)
    if load.replicas < wished:
        return SizeStep("start", f"Starting {name(load.replicas + 1)}.")
    for number in sorted(members.learners - members.filled):
        return SizeStep("wait", f"{name(number)} is being filled: {_far(members, number)}.")
    number = min(members.learners)
    return SizeStep("promote", f"{name(number)} holds what it needs, and votes now.", number)


def _add(load: Workload, number: int, told: int, name: Callable[[int], str]) -> SizeStep:
    pod = next((pod for pod in load.pods if pod.name == name(number)), None)
    if pod is None or pod.terminating or not pod.running:
        return SizeStep("wait", f"Waiting for {name(number)} to run.")
    if told < number:
        return SizeStep("wait", f"Waiting until pods are told that there are {number} members.")
    return SizeStep("add", f"Taking {name(number)} in as a learner.", number)


def _far(members: _Members, number: int) -> str:
    peer, end = members.peer(number), members.quorum.commit_index
    if peer.match_index is None or peer.last_contact_ms is None:
        return "it has not answered yet"
    if end - peer.match_index > LAG_ENTRIES:
        return f"it holds {peer.match_index} of {end} entries"
    return "it has all it needs, and is not counted or not Ready yet"


def voting(quorum: QuorumView | Unreachable) -> int | None:
    """The number of voters, by the leader's word; None without it."""
    if isinstance(quorum, Unreachable) or quorum.leader_id != quorum.node_id:
        return None
    return sum(peer.role == "voter" for peer in quorum.peers)


def founding_size(group: str, namespace: str, statefulset: Body | None) -> int | None:
    """The number of members that pods are told founded the quorum.

    It stays what it was when the StatefulSet was made: another one would restart every pod.
    """
    return _size_in(statefulset, "GANTRY_PEERS", lambda size: names.peers(group, size, namespace))


def addressed_size(group: str, namespace: str, workload: Body | None) -> int | None:
    """The number of controllers whose addresses pods of brokers or fronts are told, likewise.

    They learn of all others from the controllers' answers.
    """
    return _size_in(
        workload, "GANTRY_CONTROLLERS", lambda size: names.controllers(group, size, namespace)
    )


def _size_in(workload: Body | None, variable: str, text: Callable[[int], str]) -> int | None:
    found = None if workload is None else setting(workload, variable)
    return next((size for size in SIZES if text(size) == found), None)


def told_size(config_map: Body | None, founders: int) -> int:
    """The size that pods are told of when they start."""
    text = ((config_map or {}).get("data") or {}).get(names.QUORUM_SIZE_KEY, "")
    return int(text) if text.isascii() and text.isdigit() else founders


def size_to_tell(replicas: int, quorum: QuorumView | Unreachable, told: int) -> int:
    """The size that pods are to be told of: never less than one that is in effect."""
    if isinstance(quorum, Unreachable) or quorum.leader_id != quorum.node_id:
        return max(replicas, told)
    return max(replicas, *(peer.id for peer in quorum.peers))
