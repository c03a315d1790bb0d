"""The plan for what stands for one thing in the metadata of a cluster: a topic, a user, a group.

The same rules for all kinds; what differs, a ``Compared`` says.

Rules protected:

- The resource owns what it stands for: what others change there is changed back, and told.
- What existed before is taken over only if it is as wished, or if that was said. What the resource
  never owned is neither changed nor deleted with it.
- Of two resources for one thing the one that was there first counts.
- That it owns something is written down before anything is made, so that no deletion forgets it.
- A deletion waits for controllers that serve, and never for such as are gone.
- Not knowing changes nothing: what was in place is said to be so until somebody knows better, or
  ten thousand resources would be written each time that a quorum has no leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from gantry_operator import names
from gantry_operator.models.entity import EntityStatus
from gantry_operator.plan.actions import (
    Action,
    CheckAgain,
    EmitEvent,
    SetFinalizer,
    WriteStatus,
)
from gantry_operator.plan.conditions import Conditions, find
from gantry_operator.plan.deletion import FOR_CONTROLLERS, foreign_finalizers
from gantry_operator.plan.headline import headline
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    import datetime as dt

    from gantry_operator.models.base import ConditionStatus, Metadata
    from gantry_operator.models.entity import Entity
    from gantry_operator.plan.observed import Body

UNHEARD_CHECK_S = 5.0
SETTLED_CHECK_S = 60.0
"""For what was in place when the controllers were heard last."""
_NEVER = (Reason.HAS_QUEUE_MAP,)
"""What no resource of ours could take over."""
State = Literal["Absent", "Same", "Differs", "Unknown"]


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """The thing in the cluster, compared with the wish.

    Attributes:
        state: Unknown also where the controllers cannot say it yet.
        what: why it is unknown, or what differs, for people.
        nowhere: the cluster has nothing that could have it.
        ours: what differs, the owner of the resource has changed, and nobody else.
        refused: the reason not to make it as wished, whoever owns it; `what` says it in full.
    """

    state: State
    what: str = ""
    nowhere: bool = False
    ours: bool = False
    refused: Reason | None = None


class Told(NamedTuple):
    """A condition of a kind's own."""

    type: str
    status: ConditionStatus
    reason: Reason
    message: str


class Following(msgspec.Struct, frozen=True, kw_only=True):
    """A kind's own part of the plan, for a thing that is as wished and this resource's.

    Attributes:
        told: what the status says of it.
        conditions: likewise.
        steps: what is to be done.
    """

    told: dict[str, Any] = {}
    conditions: tuple[Told, ...] = ()
    steps: tuple[Action, ...] = ()


class EntityObserved(msgspec.Struct, frozen=True, kw_only=True):
    """Everything such a plan rests on.

    Attributes:
        named: the name in the cluster.
        first: the resource that stands for it, by age; this one or another.
        quorum_exists: there is a ControllerGroup of the cluster that is not being deleted.
        quorum_serves: there is one that can be asked, or its rest.
        standing: see there.
        refusal: the controllers' words to the last attempt, or the API server's.
        told: what the status says besides.
        following: see there.
        check_s: when to look again at what is in place, of which no watch tells; 0 for never.
    """

    meta: Metadata
    entity: Entity | None
    invalid: str = ""
    previous: EntityStatus | None = None
    status: type[EntityStatus] = EntityStatus
    told: dict[str, Any] = {}
    live_status: Body | None = None
    named: str
    cluster: str
    first: str
    quorum_exists: bool
    quorum_serves: bool
    standing: Compared
    refusal: str = ""
    check_s: float = 0.0
    following: Following = Following()

    @property
    def owns(self) -> bool:
        """Whether what is there is this resource's, by what it wrote down."""
        return self.previous is not None and self.previous.name == self.named


class Make(Action, frozen=True, kw_only=True):
    """Make the thing in the cluster as it is wished; `undoes` are changes of others."""

    undoes: str = ""


class Remove(Action, frozen=True, kw_only=True):
    """Remove the thing from the cluster."""


class _Verdict(msgspec.Struct, frozen=True):
    """What Accepted and Ready say."""

    accepted: bool
    ready: ConditionStatus
    reason: Reason
    message: str
    short: str = ""


def plan_entity(seen: EntityObserved, now: dt.datetime) -> list[Action]:
    """All that is to be done now, in order."""
    if seen.meta.deletion_timestamp is not None:
        return _delete(seen, now)
    refused = _refuse(seen)
    finalizer = _keep_finalizer(seen, accepted=refused is None)
    if finalizer and seen.refusal:  # after it: a status before it would be another version
        told = _refused(Reason.API_REFUSED, seen.refusal)
        return [*finalizer, *_status(seen, told, now, name=_kept_name(seen))]
    if finalizer:
        return finalizer  # looked at again at once, with the finalizer in place
    if refused is not None:
        again = seen.check_s and seen.standing.refused is not None
        check: list[Action] = [CheckAgain(after_s=UNHEARD_CHECK_S)] if again else []
        return [*_status(seen, refused, now, name=_kept_name(seen)), *check]
    standing = seen.standing
    if standing.state == "Unknown":
        return _unknown(seen, now)
    if standing.state == "Same":
        told = _Verdict(True, "True", Reason.IN_PLACE, _in_place(seen))
        check = [CheckAgain(after_s=seen.check_s)] if seen.check_s else []
        return [*_status(seen, told, now, name=seen.named), *check, *seen.following.steps]
    return _make(seen, now)


def _refuse(seen: EntityObserved) -> _Verdict | None:
    """The reason why nothing is done for a resource; None where something may be."""
    if seen.entity is None:
        return _refused(Reason.INVALID_SPEC, seen.invalid)
    kind = type(seen.entity).__name__
    if seen.first != seen.meta.name:
        return _refused(
            Reason.ANOTHER_OWNS_IT,
            f"{kind} {seen.first} was there before and stands for {seen.named} of cluster "
            f"{seen.cluster}: delete one of the two.",
        )
    if not seen.quorum_exists:
        return _refused(
            Reason.CONTROLLER_NOT_FOUND,
            f"There is no ControllerGroup {seen.cluster} in namespace {seen.meta.namespace}: "
            "create it there.",
        )
    standing = seen.standing
    foreign = standing.state == "Differs" and not seen.owns and not seen.entity.spec.adopt
    if standing.refused is not None and (not foreign or standing.refused in _NEVER):
        return _Verdict(True, "False", standing.refused, standing.what)
    if foreign:
        return _refused(
            Reason.EXISTS_OTHERWISE,
            f"{seen.named} exists in cluster {seen.cluster} and is not as wished "
            f"({standing.what}): change the spec accordingly, or set spec.adopt to true.",
        )
    return None


def _refused(reason: Reason, message: str) -> _Verdict:
    return _Verdict(False, "False", reason, message)


def _kept_name(seen: EntityObserved) -> str | None:
    """What was owned stays so while nothing is done, but for a name that is another's."""
    if seen.previous is None or seen.first != seen.meta.name:
        return None
    return seen.previous.name


def _keep_finalizer(seen: EntityObserved, *, accepted: bool) -> list[Action]:
    """Rule: the finalizer is there exactly while a deletion has something to delete."""
    present = names.FINALIZER in seen.meta.finalizers
    deletes = seen.entity is not None and seen.entity.deletes
    wanted = deletes and (accepted or (seen.owns and seen.first == seen.meta.name))
    return [] if wanted == present else [_finalizer(seen, present=wanted)]


def _finalizer(seen: EntityObserved, *, present: bool) -> SetFinalizer:
    others = tuple(f for f in seen.meta.finalizers if f != names.FINALIZER)
    return SetFinalizer(
        present=present,
        finalizers=(*others, names.FINALIZER) if present else others,
        resource_version=seen.meta.resource_version,
    )


def _unknown(seen: EntityObserved, now: dt.datetime) -> list[Action]:
    ready = find(seen.previous.conditions, "Ready") if seen.previous else None
    current = ready is not None and ready.observed_generation == seen.meta.generation
    if ready is not None and current and ready.status == "True":
        return [CheckAgain(after_s=SETTLED_CHECK_S)]
    told = _Verdict(True, "Unknown", Reason.CONTROLLER_UNREACHABLE, seen.standing.what)
    return [
        *_status(seen, told, now, name=_kept_name(seen)),
        CheckAgain(after_s=UNHEARD_CHECK_S),
    ]


def _make(seen: EntityObserved, now: dt.datetime) -> list[Action]:
    """What is made is owned from before on; what was in place, and is not now, others changed."""
    ready = find(seen.previous.conditions, "Ready") if seen.previous else None
    was_in_place = (
        ready is not None
        and ready.status == "True"
        and ready.observed_generation == seen.meta.generation
    )
    if seen.refusal:
        told = _Verdict(True, "False", Reason.REFUSED_BY_CONTROLLERS, seen.refusal)
        return [*_status(seen, told, now, name=seen.named), Make()]
    if was_in_place and not seen.standing.ours:
        gone = "it was gone" if seen.standing.state == "Absent" else seen.standing.what
        return [Make(undoes=gone)]
    if seen.owns:
        return [Make()]
    told = _Verdict(True, "False", Reason.BEING_MADE, "The controllers are about to be told.")
    return [*_status(seen, told, now, name=seen.named), Make()]


def drift_event(seen: EntityObserved, undoes: str) -> EmitEvent:
    """The event about what others had changed; told once it is undone."""
    note = f"{seen.named} of cluster {seen.cluster} was changed by others ({undoes}); undone."
    return EmitEvent(type="Warning", reason=Reason.DRIFT_UNDONE, note=note)


def _delete(seen: EntityObserved, now: dt.datetime) -> list[Action]:
    """Rule: nothing that is deleted waits for a quorum that is gone, and nothing else is deleted.

    A spec that cannot be read deletes nothing, nor does a resource that came second.
    """
    if names.FINALIZER not in seen.meta.finalizers:
        others = foreign_finalizers(seen.meta)
        told = _Verdict(True, "False", Reason.DELETING, others.text, others.short)
        return _status(seen, told, now, name=_kept_name(seen)) if others.short else []
    entity = seen.entity
    to_delete = entity is not None and entity.deletes and seen.owns
    if not to_delete or not seen.quorum_serves or seen.first != seen.meta.name:
        return [_finalizer(seen, present=False)]
    if seen.standing.state == "Absent":
        return [_finalizer(seen, present=False)]
    if seen.standing.nowhere:  # but perhaps groups that clients are not sent to
        return [Remove(), _finalizer(seen, present=False)]
    if seen.standing.state == "Unknown" or seen.refusal:
        why = seen.refusal or seen.standing.what
        told = _Verdict(
            True,
            "False",
            Reason.DELETING,
            f"{seen.named} of cluster {seen.cluster} is to be deleted, and waits: {why} To let go "
            "of it, set spec.deletionPolicy to Retain.",
            FOR_CONTROLLERS,
        )
        steps: list[Action] = [CheckAgain(after_s=UNHEARD_CHECK_S)]
        if seen.refusal:
            steps = [Remove()]
        return [*_status(seen, told, now, name=_kept_name(seen)), *steps]
    return [Remove()]


def _in_place(seen: EntityObserved) -> str:
    return f"Cluster {seen.cluster} has {seen.named} as wished."


def _status(
    seen: EntityObserved, told: _Verdict, now: dt.datetime, *, name: str | None
) -> list[Action]:
    conditions = Conditions(
        seen.previous.conditions if seen.previous else (), seen.meta.generation, now
    )
    conditions.set(
        "Accepted",
        "True" if told.accepted else "False",
        Reason.VALID if told.accepted else told.reason,
        "The spec is valid." if told.accepted else told.message,
    )
    conditions.conclude(told.ready, told.reason, told.message)
    for more in seen.following.conditions if told.accepted else ():
        conditions.set(*more)
    old = seen.previous or seen.status(observed_generation=0)
    body: dict[str, Any] = old.model_copy(
        update={
            "observed_generation": seen.meta.generation,
            "name": name,
            "summary": headline(conditions.result(), ending=told.short),
            "conditions": conditions.result(),
            **seen.told,
            **seen.following.told,
        }
    ).to_object()
    return [] if body == seen.live_status else [WriteStatus(status=body)]
