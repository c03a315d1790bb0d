"""Deletion of a ControllerGroup, and of a BrokerGroup.

A ControllerGroup keeps who may be elected in every BrokerGroup that refers to it, and its volumes
keep where clients are led by a FrontGroup that does. So its deletion waits until they are gone,
while it serves on; the section before the last.

A finalizer waits for an operator, so the last section says what one that ends leaves behind.

The rest is about a BrokerGroup: nobody is sent there any more; on request the metadata is cleaned.

With storage.whenDeleted Retain there is no finalizer, so that nothing stands in the way of a
deletion, operator or not: garbage collection removes what the resource owns. The group is retired
when the operator hears of the deletion, or finds at its start that the controllers know a group
whose resource is no more (`has_departed`). A resource of the same name brings it back as it was.

Where other groups take its messages it is drained before all that (`drain`).

A deletion that leaves the pods to somebody else (`kubectl delete --cascade=orphan`) takes the
resource away and nothing else: its group is neither drained nor retired nor forgotten.

With Delete, the operator's finalizer holds the resource, and the order is: retire the group, stop
the pods, let the controllers forget the group, let the resource go. A group that was forgotten
while its brokers still ran would be registered again.

If the controllers cannot be reached the finalizer stays, since removing it would leave metadata
behind that nobody looks for; people can remove it by hand, which is documented with its name. If
the ControllerGroup itself is gone, so is the metadata. It counts as gone once it is being deleted
and its pods are no more: in a namespace that is deleted as a whole both wait for each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gantry_protocol.admin import GroupView
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable
from gantry_protocol.tier.keys import shared_uid

from gantry_operator import names
from gantry_operator.plan.actions import (
    Action,
    CheckAgain,
    DeleteStatefulSet,
    ForgetGroup,
    RetireGroup,
    SetFinalizer,
)
from gantry_operator.plan.drain import are_pods_kept, drain_steps
from gantry_operator.plan.objects import owner_uids
from gantry_operator.plan.shards import each_group
from gantry_operator.plan.steady import finalizer_action

if TYPE_CHECKING:
    import datetime as dt

    from gantry_operator.models.base import Metadata
    from gantry_operator.plan.observed import Body, BrokerObserved, ControllerObserved

RETRY_S = 2.0


class Obstacle(NamedTuple):
    """The subject of a deletion: for a line among others, and for people who want to know."""

    short: str
    text: str


FOR_CONTROLLERS = "waits for controllers"


def has_departed(
    view: GroupView | NotDeclared | Unreachable, owner: Body | None, statefulset: Body | None
) -> bool:
    """Whether the controllers know a group that nobody stands for and that comes to an end.

    `owner` and `statefulset` are the live objects of its name, None for none. Pods that somebody
    keeps (`kubectl delete --cascade=orphan`) go on serving, and so do brokers that never were in a
    pod: the first have a StatefulSet that is not owned any more, the second have no pod uid.
    """
    if not isinstance(view, GroupView) or view.uid is None or view.retired or owner is not None:
        return False
    if any(member.alive and member.pod_uid is None for member in view.members):
        return False
    if statefulset is None:
        return True
    owned = any(view.uid in (uid, shared_uid(uid, view.name)) for uid in owner_uids(statefulset))
    return owned or statefulset["metadata"].get("deletionTimestamp") is not None


def delete_broker_group(seen: BrokerObserved, now: dt.datetime) -> list[Action]:
    """The next step for a resource with a deletion timestamp."""
    waiting = drain_steps(seen, now)
    if waiting:
        return waiting
    if names.DRAIN_FINALIZER in seen.meta.finalizers:
        return [
            *_retire(seen),
            finalizer_action(seen, present=False, finalizer=names.DRAIN_FINALIZER),
        ]
    return [*_retire(seen), *_clean(seen)]


def _retire(seen: BrokerObserved) -> list[RetireGroup]:
    if are_pods_kept(seen):
        return []
    return [
        RetireGroup(uid=part.uid, group=part.shard)
        for part in each_group(seen)
        if isinstance(part.view, GroupView) and part.view.uid == part.uid and not part.view.retired
    ]


def _clean(seen: BrokerObserved) -> list[Action]:
    if names.FINALIZER not in seen.meta.finalizers:
        return []
    if are_pods_kept(seen):
        return [finalizer_action(seen, present=False)]
    name = names.broker_statefulset(seen.meta.name)
    statefulset = seen.objects.get(("StatefulSet", name))
    if statefulset is not None:
        meta = statefulset["metadata"]
        if meta.get("deletionTimestamp") is None:
            return [DeleteStatefulSet(name=name, uid=meta["uid"]), CheckAgain(after_s=RETRY_S)]
        return [CheckAgain(after_s=RETRY_S)]
    if seen.pods:
        return [CheckAgain(after_s=RETRY_S)]
    left = [part for part in each_group(seen) if _is_to_clean(part)]
    if not seen.controllers_exist or not left:
        return [finalizer_action(seen, present=False)]
    known = [part for part in left if isinstance(part.view, GroupView)]
    forgotten = [ForgetGroup(uid=part.uid, group=part.shard) for part in known]
    return [*forgotten, CheckAgain(after_s=RETRY_S)]


def _is_to_clean(seen: BrokerObserved) -> bool:
    """Whether the controllers know the group, or do not say.

    One that a newer resource of the same name has taken over is not ours to clean.
    """
    if isinstance(seen.view, GroupView):
        return seen.view.uid in (None, seen.uid)
    return not isinstance(seen.view, NotDeclared)


def deletion_waits_for(seen: BrokerObserved) -> Obstacle:
    """The subject of a deletion, in the order in which it goes on."""
    if names.FINALIZER not in seen.meta.finalizers:
        return foreign_finalizers(seen.meta)
    name = names.broker_statefulset(seen.meta.name)
    if ("StatefulSet", name) in seen.objects or seen.pods:
        count = len(seen.pods)
        return Obstacle(f"{count} pods left", f"The pods are being stopped; {count} still exist.")
    if seen.controllers_exist and isinstance(seen.view, Unreachable):
        text = f"Waiting for the controllers, to clean the group's metadata: {seen.view.reason}"
        return Obstacle(FOR_CONTROLLERS, text)
    return Obstacle("cleans up", "The controllers clean the group's metadata.")


def foreign_finalizers(meta: Metadata) -> Obstacle:
    """The obstacle of a deletion that is none of ours."""
    others = ", ".join(meta.finalizers)
    if not others:
        return Obstacle("", "Being deleted.")
    return Obstacle(
        "waits for finalizers of others", f"Waiting for finalizers of others: {others}."
    )


# ControllerGroups

FOREGROUND = "foregroundDeletion"
MAX_NAMED = 10


def keep_quorum_finalizer(seen: ControllerObserved) -> list[SetFinalizer]:
    """Rule: the finalizer exists exactly while BrokerGroups or FrontGroups refer to the quorum.

    Without any, nothing stands in the way of a deletion, operator or not. A deletion never gets a
    finalizer that it did not have: the API server would refuse it.
    """
    wanted = bool(seen.dependents)
    if wanted == (names.QUORUM_FINALIZER in seen.meta.finalizers):
        return []
    if wanted and seen.meta.deletion_timestamp is not None:
        return []
    return [finalizer_action(seen, present=wanted, finalizer=names.QUORUM_FINALIZER)]


def is_held(seen: ControllerObserved) -> bool:
    """Whether a quorum that is being deleted serves on, since others depend on it."""
    return bool(seen.dependents) and names.QUORUM_FINALIZER in seen.meta.finalizers


def held_by(seen: ControllerObserved) -> Obstacle:
    """The obstacle of the deletion."""
    named = ", ".join(seen.dependents[:MAX_NAMED])
    more = len(seen.dependents) - MAX_NAMED
    others = f" and {more} more" if more > 0 else ""
    rest = f" and {len(seen.dependents) - 1} more" if len(seen.dependents) > 1 else ""
    return Obstacle(
        f"waits for {seen.dependents[0]}{rest}",
        f"The deletion waits for the groups that refer to it, {named}{others}: delete them, or "
        f"take the finalizer {names.QUORUM_FINALIZER} off to delete it in spite of them; without "
        "it brokers cannot fail over, and its volumes go on leading clients to fronts.",
    )


# The operator's end

OURS = frozenset(
    {names.FINALIZER, names.QUORUM_FINALIZER, names.FRONTS_FINALIZER, names.DRAIN_FINALIZER}
)


def waits_for_operator(meta: Body, *, held: bool, drains: bool = False) -> bool:
    """Whether a deletion ends as soon as the operator has done its part, so that it stays for it.

    `held`: groups that nobody deletes refer to it, so this deletion does not end soon.
    `drains`: its quorum stays, so it may be drained, which does not end soon either.
    """
    if meta.get("deletionTimestamp") is None:
        return False
    finalizers = meta.get("finalizers") or ()
    if names.DRAIN_FINALIZER in finalizers:
        return not drains
    if names.FINALIZER in finalizers or names.FRONTS_FINALIZER in finalizers:
        return True
    return names.QUORUM_FINALIZER in finalizers and not held


def let_go(meta: Body) -> Body | None:
    """The patch that takes the operator's finalizers off, and no others; None where none is.

    For a resource in a namespace that is being deleted, together with the only operator. That is
    never taken back: the groups go, the quorum they refer to goes, since it is in the same
    namespace, and the metadata goes with its volumes. Nothing is left that a finalizer could keep.
    """
    finalizers = meta.get("finalizers") or ()
    kept = [finalizer for finalizer in finalizers if finalizer not in OURS]
    if len(kept) == len(finalizers):
        return None
    versions = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    return {"metadata": versions | {"finalizers": kept}}
