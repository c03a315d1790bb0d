"""The quorum that the volumes of a ControllerGroup belong to, and the identity it runs under.

Controllers refuse volumes of another quorum: a fresh quorum beside a log that holds acknowledged
metadata would be a loss that nobody noticed. A ControllerGroup that was deleted leaves its volumes
(`storage.whenDeleted: Retain`); one that is created again has another uid. So each claim carries
the identity and size of its quorum, written when a controller runs on it, and a new ControllerGroup
takes the identity over from the claims, if they allow only one answer. Else nothing is started,
and a person decides.

Rule protected: an identity that is in use never changes by itself. What the StatefulSet says
counts before any claim.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gantry_operator import names
from gantry_operator.builders.controller import CLUSTER_UID
from gantry_operator.plan.actions import MarkClaim
from gantry_operator.plan.objects import setting

if TYPE_CHECKING:
    from gantry_operator.models import ControllerGroup
    from gantry_operator.plan.observed import Body, ClaimView, ControllerObserved, PodView


class Identity(msgspec.Struct, frozen=True):
    """Under which identity the controllers run, or why that is for a person to say.

    Attributes:
        uid: the identity; empty if it is refused.
        refused: why no identity follows from the claims, and what to do; empty if one does.
    """

    uid: str
    refused: str = ""


def identity(
    group: ControllerGroup, statefulset: Body | None, claims: tuple[ClaimView, ...]
) -> Identity:
    """The identity of a quorum: what was given, what runs, what the volumes say, else its own uid.

    The volumes' word is taken if all of those that say anything say the same, if the quorum has the
    same size, and if they are a majority: with fewer, the log's newest entries may be on those that
    are missing. A claim without a mark decides nothing; the controller on it looks by itself. Nor
    does one that is left of a member that was taken out, which says that the quorum was larger.
    """
    if group.spec.cluster_uid:
        return Identity(group.spec.cluster_uid)
    running = setting(statefulset, CLUSTER_UID) if statefulset is not None else None
    if running:
        return Identity(running)
    marked = _of_members([claim for claim in claims if claim.quorum])
    if not marked:
        return Identity(group.metadata.uid)
    found = sorted({(claim.quorum, claim.size) for claim in marked})
    uid, size = found[0]
    if len(found) > 1:
        return Identity("", _several(marked))
    if size != group.spec.replicas:
        return Identity(
            "",
            f"The volumes belong to a quorum of {size} controllers, {uid}: delete this resource "
            f"and create it with spec.replicas {size}, or delete {_names(marked)} for an empty "
            "quorum.",
        )
    if 2 * len(marked) <= size:
        return Identity(
            "",
            f"Only {len(marked)} of {size} volumes of the quorum {uid} exist ({_names(marked)}), "
            "so what it knew last may be missing: bring the others back, or set spec.clusterUid "
            f"to {uid} (delete this resource and create it with it) to go on without them, or "
            "delete the claims for an empty quorum.",
        )
    return Identity(uid)


def _of_members(marked: list[ClaimView]) -> list[ClaimView]:
    """Without those whose numbers the quorum has outgrown downwards."""
    return [
        claim
        for claim in marked
        if not any(
            other.quorum == claim.quorum and 0 < other.size <= (claim.ordinal or 0)
            for other in marked
        )
    ]


def marks(
    seen: ControllerObserved, uid: str, claims: tuple[ClaimView, ...], voters: int | None
) -> tuple[MarkClaim, ...]:
    """Rule: a claim carries the identity of the quorum whose controller runs on it, and its size.

    Safe because only a Ready pod counts: its process has opened the volume under this identity, so
    the volume is the quorum's. A size that is marked changes only by the leader's word that there
    are as many `voters`.
    """
    assert seen.group is not None, "an accepted resource has been parsed"
    size = seen.group.spec.replicas
    ready: dict[int | None, PodView] = {pod.ordinal: pod for pod in seen.pods if pod.ready}
    return tuple(
        MarkClaim(name=claim.name, uid=claim.uid, quorum=uid, size=size)
        for claim in sorted(claims, key=lambda claim: claim.ordinal or 0)
        if claim.ordinal in ready
        and (claim.quorum, claim.size) != (uid, size)
        and (claim.quorum != uid or voters == size)
    )


def _several(marked: list[ClaimView]) -> str:
    each = "; ".join(
        f"{claim.name}: {claim.quorum}, of {claim.size} controllers" for claim in marked
    )
    return (
        f"The volumes belong to different quorums ({each}): delete the claims of all but one, or "
        "delete this resource and create it with spec.clusterUid set to the one to take up."
    )


def _names(claims: list[ClaimView]) -> str:
    return ", ".join(claim.name for claim in claims)


def claim_names(group: str, size: int) -> tuple[str, ...]:
    """The claims of a quorum's pods, by ordinal."""
    statefulset = names.controller_statefulset(group)
    return tuple(f"data-{names.pod(statefulset, ordinal)}" for ordinal in range(size))
