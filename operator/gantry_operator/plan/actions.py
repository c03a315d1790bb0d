"""Actions that a plan may ask for. Values only; carrying them out is the shell's work.

An action is disruptive if it takes a process away from clients or moves the mastership. A plan
holds at most one of those, and it is the last thing in it that changes the world.

What is told to the controllers is about the group of the resource's name, unless `group` names one
of its shards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from gantry_operator import names

if TYPE_CHECKING:
    from gantry_protocol.admin import FrontsDeclaration, GroupDeclaration

Body = dict[str, Any]
Role = Literal["master", "replica"]


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a plan.

    Attributes:
        disruptive: see the module.
        for_standby: an operator without the Lease does it, too, since clients wait for it, and two
            that do it at once do no harm.
    """

    disruptive: ClassVar[bool] = False
    for_standby: ClassVar[bool] = False


class ApplyObject(Action, frozen=True, kw_only=True):
    """Server-side apply of an owned object.

    Attributes:
        exists: seen live and owned by the resource.
        manager: in whose name.
        kept: applied before, under a manager of its own: fields that stay as they are although the
            manifest does not name them any more.
    """

    manifest: Body
    exists: bool
    kept: Body | None = None
    manager: str = names.FIELD_MANAGER


class DeleteObject(Action, frozen=True, kw_only=True):
    """Delete an owned object that the wish no longer has, if it still is the one with this uid."""

    kind: str
    name: str
    uid: str


class EnsureSecret(Action, frozen=True, kw_only=True):
    """Create a Secret of the quorum, as it was if that is known, unless it exists by now."""

    name: str


class MarkClaim(Action, frozen=True, kw_only=True):
    """Write on the claim of a controller's volume which quorum it is of, if it still is that claim.

    Attributes:
        quorum: identity of the quorum.
        size: how many controllers the quorum has.
    """

    name: str
    uid: str
    quorum: str
    size: int


class GrowClaim(Action, frozen=True, kw_only=True):
    """Ask for a larger volume, if the claim still is that claim; what is refused is told."""

    name: str
    uid: str
    size: str


class SetFinalizer(Action, frozen=True, kw_only=True):
    """Add or remove the operator's finalizer, if the resource is still what was observed."""

    present: bool
    finalizers: tuple[str, ...]
    resource_version: str


class Declare(Action, frozen=True, kw_only=True):
    """Tell the controllers what the group is to be like."""

    declaration: GroupDeclaration
    group: str = ""


class DeclareFronts(Action, frozen=True, kw_only=True):
    """Have the controllers lead clients of the cluster to the fronts."""

    declaration: FrontsDeclaration


class RemoveFronts(Action, frozen=True, kw_only=True):
    """Have the controllers lead clients of the cluster to the brokers again."""


class ReportGone(Action, frozen=True, kw_only=True):
    """Tell the controllers that the process in this pod has ended."""

    pod_uid: str
    group: str = ""


class LabelPod(Action, frozen=True, kw_only=True):
    """Write the role label of a pod, if it is still the pod with this uid."""

    name: str
    uid: str
    role: Role


class RouteTraffic(Action, frozen=True, kw_only=True):
    """Let new connections reach a pod, or not, if it is still the pod with this uid."""

    for_standby: ClassVar[bool] = True

    name: str
    uid: str
    on: bool


class RenewFiles(Action, frozen=True, kw_only=True):
    """Have the kubelet renew a pod's files, by an annotation, if it is still the pod with this uid.

    Attributes:
        settings: fingerprint of those that are to be there.
    """

    name: str
    uid: str
    settings: str


class WriteStatus(Action, frozen=True, kw_only=True):
    """Replace the resource's status."""

    status: Body


class EmitEvent(Action, frozen=True, kw_only=True):
    """Post an event about the resource."""

    type: Literal["Normal", "Warning"]
    reason: str
    note: str


class Elect(Action, frozen=True, kw_only=True):
    """Ask for a master by designated election; refused unless the epoch is still this one."""

    disruptive: ClassVar[bool] = True
    broker_id: int
    master_epoch: int
    group: str = ""


class ElectEach(Action, frozen=True, kw_only=True):
    """Ask for masters of several shards: all that one pod has to give up, as one step."""

    disruptive: ClassVar[bool] = True
    elections: tuple[Elect, ...]


class Counted(msgspec.Struct, frozen=True):
    """A shard as it was when a step was decided; the step is dropped if it has changed.

    Attributes:
        group: name of the shard.
        master_epoch, sync_state_set: as in `DeletePod`.
    """

    group: str
    master_epoch: int
    sync_state_set: tuple[int, ...]


class DeletePod(Action, frozen=True, kw_only=True):
    """Let the StatefulSet controller replace a pod.

    Attributes:
        uid: the pod that was observed; its successor must not be deleted in its place.
        master_epoch: of the group when the decision was made; the shell reads it live once more
            and drops the action if it has changed. None for controllers, and with `only_if_dead`.
        sync_state_set: likewise, the members that were counted on.
        term: of the quorum when the decision was made, likewise; controllers only.
        only_if_dead: the decision rests on the container not running; no role is at stake.
        shards: epoch and set of each shard, in place of those of a single group.
    """

    disruptive: ClassVar[bool] = True
    name: str
    uid: str
    master_epoch: int | None = None
    sync_state_set: tuple[int, ...] = ()
    shards: tuple[Counted, ...] = ()
    term: int | None = None
    only_if_dead: bool = False


class ScaleDown(Action, frozen=True, kw_only=True):
    """Apply a StatefulSet with fewer replicas; what was counted on is as in `DeletePod`.

    Attributes:
        manager: in whose name.
        number: of a controller whose pod goes; dropped if it takes part in the quorum.
    """

    disruptive: ClassVar[bool] = True
    manifest: Body
    manager: str = names.FIELD_MANAGER
    number: int | None = None
    master_epoch: int | None = None
    sync_state_set: tuple[int, ...] = ()
    shards: tuple[Counted, ...] = ()


class ChangeMembers(Action, frozen=True, kw_only=True):
    """Ask the quorum's leader to change its members, or to hand leadership over.

    Attributes:
        number: the member that is added, promoted, removed, or is to lead.
        address: where one that is added is reached.
    """

    disruptive: ClassVar[bool] = True
    change: Literal["add", "promote", "remove", "transfer"]
    number: int
    address: str = ""


class DeleteStatefulSet(Action, frozen=True, kw_only=True):
    """Stop all pods of a resource that is being deleted."""

    disruptive: ClassVar[bool] = True
    name: str
    uid: str


class ForgetGroup(Action, frozen=True, kw_only=True):
    """Let the controllers clean the metadata of a deleted group; a tombstone stays."""

    uid: str
    group: str = ""


class DrainGroup(Action, frozen=True, kw_only=True):
    """Let the controllers lead new messages elsewhere while the group serves those that it has."""

    uid: str
    group: str = ""


class EndDrain(Action, frozen=True, kw_only=True):
    """Let a shard that is wished again take messages again."""

    group: str


class AdoptCopies(Action, frozen=True, kw_only=True):
    """Let the controllers elect one of these copies, which are of epochs that they never decided.

    They refuse once they have elected anybody, and if other copies knock by now.
    """

    broker_ids: tuple[int, ...]


class RetireGroup(Action, frozen=True, kw_only=True):
    """Let the controllers send nobody to a group whose resource goes; what it was is kept."""

    uid: str
    group: str = ""


class ForgetMember(Action, frozen=True, kw_only=True):
    """Let the controllers strike a member that is gone; they refuse unless that is proved."""

    broker_id: int
    incarnation: str | None
    group: str = ""


class FenceMember(Action, frozen=True, kw_only=True):
    """Let the controllers take a member out of its group; they refuse if writes would stop."""

    disruptive: ClassVar[bool] = True
    broker_id: int
    group: str = ""


class UnfenceMember(Action, frozen=True, kw_only=True):
    """Let the controllers let a fenced member in again."""

    broker_id: int
    group: str = ""


class CheckAgain(Action, frozen=True, kw_only=True):
    """Plan again after this many seconds, even if nothing is heard."""

    for_standby: ClassVar[bool] = True

    after_s: float
