"""A broker group as rules see it: members, pods, and which pod holds which member.

Members are matched to pods by pod uid, never by ordinal or address alone: a replaced pod has the
name of its predecessor and may have its address, and is another incarnation. A pod whose member is
not known by uid has simply not registered yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gantry_protocol.admin import GroupView, MemberView

    from gantry_operator.plan.observed import PodView


class ObservedGroup(msgspec.Struct, frozen=True):
    """The controllers' view of a group joined with its pods.

    Attributes:
        shard: name of the group, where it is one of several in the same pods; else empty.
    """

    view: GroupView
    pods: tuple[PodView, ...]
    shard: str = ""

    @property
    def named(self) -> str:
        """The shard behind a noun, for people; nothing for a single group."""
        return f" of {self.shard}" if self.shard else ""

    def pod_of(self, member: MemberView) -> PodView | None:
        """The pod in which a member's incarnation lives; None if it is not among the pods."""
        for pod in self.pods:
            if _is_in(member, pod):
                return pod if self.member_in(pod) == member else None
        return None

    def member_in(self, pod: PodView) -> MemberView | None:
        """The member whose incarnation lives in a pod; None if it has not registered.

        The record may name a pod more than once: a container that began with an empty volume has a
        new id in its old pod, and an old member without a pod uid may have had the pod's address.
        Who lives comes first, then who names the pod itself, then the newest.
        """
        tenants = [member for member in self.view.members if _is_in(member, pod)]
        return max(
            tenants, key=lambda m: (m.alive, m.pod_uid is not None, m.broker_id), default=None
        )

    def master(self) -> MemberView | None:
        """The member that the controllers call master."""
        return next(
            (m for m in self.view.members if m.broker_id == self.view.master_broker_id), None
        )

    def serves(self) -> bool:
        """Whether a master serves: alive, and not in a pod that is known to be not Ready."""
        master = self.master()
        if master is None or not master.alive:
            return False
        pod = self.pod_of(master)
        return pod is None or pod.ready

    def in_sync(self) -> frozenset[int]:
        """Members that can be counted on: in the sync-state set, alive and not shutting down.

        The bare set is not enough: it keeps a dead member until the master shrinks it, and all of
        its members while a whole group is down.
        """
        members = frozenset(self.view.sync_state_set)
        return frozenset(
            m.broker_id
            for m in self.view.members
            if m.broker_id in members and m.alive and not m.draining
        )

    def successor(
        self,
        *,
        below_ordinal: int | None = None,
        burdens: Mapping[str, int] | None = None,
        avoid: Collection[int] = (),
    ) -> MemberView | None:
        """The best member to move the mastership to, or None.

        Only members that `in_sync` counts and whose pods are Ready qualify, but for the ordinals to
        `avoid`; among them the one with the least burden, by the name of its pod, where that is
        given, then one in a zone where the master is wished, then the one that is furthest ahead,
        then the lowest ordinal.
        """
        in_sync = self.in_sync()
        candidates = []
        for member in self.view.members:
            pod = self.pod_of(member)
            if member.broker_id not in in_sync or member.broker_id == self.view.master_broker_id:
                continue
            if pod is None or not pod.ready or pod.ordinal is None:
                continue
            if pod.ordinal in avoid or (below_ordinal is not None and pod.ordinal >= below_ordinal):
                continue
            burden = burdens.get(pod.name, 0) if burdens else 0
            rank = self._rank(member)
            candidates.append((burden, rank, -member.max_offset, pod.ordinal, member))
        return min(candidates, key=lambda c: c[:4])[4] if candidates else None

    def _rank(self, member: MemberView) -> int:
        """The number of zones that are preferred to a member's, as declared."""
        places = self.view.preferred or []
        ranks = (n for n, place in enumerate(places) if member.broker_id in place.broker_ids)
        return next(ranks, len(places))

    def at_ordinal(self, ordinal: int) -> MemberView | None:
        """The registered member in the pod with an ordinal."""
        pod = next((p for p in self.pods if p.ordinal == ordinal), None)
        return None if pod is None else self.member_in(pod)


def _is_in(member: MemberView, pod: PodView) -> bool:
    return member.pod_uid == pod.uid or (member.pod_uid is None and _same_host(member, pod))


def _same_host(member: MemberView, pod: PodView) -> bool:
    return pod.ip is not None and member.address.rpartition(":")[0] == pod.ip
