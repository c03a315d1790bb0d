"""The observation of one moment: the only input of a plan.

Not knowing is a value here (`Unreachable`), never an exception and never an empty list: a rule has
to say what it does when it cannot see. Nothing in these values is derived from the operator's own
memory except `refusals` and `refused_drains`, the answers to the last attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
from gantry_protocol.tier.keys import shared_uid

from gantry_operator import names
from gantry_operator.plan.crashes import OURS, Ended, last_end

if TYPE_CHECKING:
    from gantry_protocol.admin import FrontsView, GroupView, QuorumView
    from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable

    from gantry_operator.models import (
        BrokerGroup,
        BrokerGroupStatus,
        ControllerGroup,
        ControllerGroupStatus,
        FrontGroup,
        FrontGroupStatus,
    )
    from gantry_operator.models.base import Metadata
    from gantry_operator.plan.turns import ImageWait, RollTurn

Body = dict[str, Any]
ObjectKey = tuple[str, str]
"""Kind and name; the namespace is always the resource's."""


class Refusal(msgspec.Struct, frozen=True):
    """The API server, or our own check, refused to write an object in the last attempt.

    Attributes:
        passing: a fault of the server, which the next attempt may not meet.
        step: it was a disruptive step, which is planned again all the same: nothing else would find
            out that it is taken by now.
    """

    kind: str
    name: str
    taken: bool
    message: str
    passing: bool = False
    step: bool = False


class PodView(msgspec.Struct, frozen=True):
    """The facts about a pod that decisions rest on.

    Attributes:
        running: the process of a replica may be alive in it, whatever its door does. False only on
            the kubelet's word that the container waits or has terminated, or before the pod has a
            node; unknown counts as running.
        finished: the kubelet says that the container has terminated and nothing will start it
            again. A pod object that merely went away never gets this far.
        revision: the `controller-revision-hash` label.
        role: the role label, None if there is none.
        traffic: whether the Service of the group leads to it while it is Ready.
        ended: how the last finished run of a container of ours ended; None if all ended well.
        shards: how many shards it hosts, from the first on; None if it does not say.
        created: when it was; empty if it does not say.
        host_ip: the address of its node; None before it has one.
        node: the name of its node; empty before it has one.
        zone: the zone of its node; empty while it is not known.
        ready_since: since when it is Ready; empty if it is not, or nobody says.
        files: fingerprint of the settings for which its files were renewed last; empty for none.
    """

    name: str
    uid: str
    resource_version: str
    ordinal: int | None
    ip: str | None
    ready: bool
    running: bool
    finished: bool
    terminating: bool
    revision: str | None
    role: str | None
    traffic: bool
    ended: Ended | None = None
    shards: int | None = None
    created: str = ""
    host_ip: str | None = None
    node: str = ""
    zone: str = ""
    ready_since: str = ""
    files: str = ""

    def hosts(self, shard: str) -> bool:
        """Whether a member of this shard lives here, as far as the pod says."""
        return self.shards is None or not shard or names.shard_index(shard) < self.shards


class ClaimView(msgspec.Struct, frozen=True):
    """The claim of a controller's volume.

    Attributes:
        quorum: identity of the quorum that it says it is of; empty if it does not say.
        size: how many controllers that quorum has; 0 if it does not say.
        ending: it is being deleted.
    """

    name: str
    uid: str
    ordinal: int | None
    quorum: str
    size: int
    ending: bool


class VolumeView(msgspec.Struct, frozen=True):
    """The claim of a group's volume, read while volumes are to grow.

    Attributes:
        requested: the size that it asks for.
        capacity: the size that its file system has; empty before it is bound.
        bound: it has a volume; before that, its size cannot change.
        pending_since: since when the volume has grown and its file system has not; empty if not so.
        trouble: why the driver could not make it larger, in its words; empty while it could.
    """

    name: str
    uid: str
    ordinal: int | None
    requested: str
    capacity: str
    bound: bool
    pending_since: str = ""
    trouble: str = ""


class RefusedGrowth(msgspec.Struct, frozen=True):
    """The API server's refusal to make a claim larger.

    Attributes:
        due: it was long enough ago that the same may be asked for again.
    """

    size: str
    message: str
    due: bool = False


class CertificateView(msgspec.Struct, frozen=True):
    """The Secret of a listener, as its last look found it.

    Attributes:
        state: `Read`, it holds a certificate; `Unread`, nobody could say.
        text: what is wrong with one that is unusable.
        ends: when its certificate ends, in seconds since 1970.
    """

    secret: str
    state: Literal["Read", "Missing", "Unusable", "Unread"]
    text: str = ""
    ends: int = 0


class ShardView(msgspec.Struct, frozen=True):
    """The controllers' word on one of the shards of a BrokerGroup; `name` is the group's there."""

    name: str
    view: GroupView | NotDeclared | Unreachable


class BrokerObserved(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a plan for a BrokerGroup rests on.

    Attributes:
        group: the parsed resource; None if it is invalid, and then `invalid` says why.
        controllers: the ControllerGroup it refers to; None if there is none that is valid.
        controllers_exist: whether there is one at all; one that is being deleted and has neither a
            StatefulSet nor pods answers nobody any more.
        objects: live owned objects by kind and name; only those that the operator manages.
        view: what the controllers say about the group; of several shards, that they cannot be
            asked, if so of any.
        shards: what they say of each shard that is wished or hosted, from the first on; empty for
            a group without a number of shards.
        shard: name of the group that `view` is about, where it is one of several (`shards`).
        refusals: what could not be written in the last attempt.
        refused_drains: why the last attempt to drain a group failed, by `shard`.
        image: the image of pods whose spec names none.
        image_wait: why that is not the operator's; None if it is.
        directory_tiers: whether all pods see the same files, so that a tier may lie in a directory.
        fronts: whether the cluster has a FrontGroup.
        neighbours: whether other BrokerGroups refer to the same quorum and stay.
        roll_turn: whether it may begin to restart pods; None if it need not wait for a turn.
        move_turn: whether its mastership may move to a preferred zone now.
        volumes: the claims, while more is wished than their template has, and None when all of
            them are known to have it; before there is a StatefulSet, those that are left of an
            earlier one.
        refused_growth: what was refused of them, by claim.
        certificates: of listeners that have their own; empty where nobody looks.
    """

    meta: Metadata
    group: BrokerGroup | None
    invalid: str = ""
    previous: BrokerGroupStatus | None = None
    live_status: Body | None = None
    controllers: ControllerGroup | None
    controllers_exist: bool
    objects: dict[ObjectKey, Body]
    pods: tuple[PodView, ...]
    view: GroupView | NotDeclared | Unreachable
    shards: tuple[ShardView, ...] = ()
    shard: str = ""
    image: str
    refusals: tuple[Refusal, ...] = ()
    refused_drains: dict[str, str] = msgspec.field(default_factory=dict)
    directory_tiers: bool = False
    fronts: bool = False
    neighbours: bool = False
    volumes: tuple[VolumeView, ...] | None = None
    refused_growth: dict[str, RefusedGrowth] = msgspec.field(default_factory=dict)
    image_wait: ImageWait | None = None
    roll_turn: RollTurn | None = None
    move_turn: bool = False
    certificates: tuple[CertificateView, ...] = ()

    @property
    def uid(self) -> str:
        """The identity of the group at the controllers.

        That of a shard is the name of its part of the tier, which fronts take from there.
        """
        return shared_uid(self.meta.uid, self.shard) if self.shard else self.meta.uid


def hosted_shards(statefulset: Body | None) -> int | None:
    """The number of shards that new pods host; None where they host one group, or none yet."""
    annotations = (statefulset or {}).get("metadata", {}).get("annotations") or {}
    return _number(annotations.get(names.ANNOTATION_SHARDS))


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None


class FrontObserved(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a plan for a FrontGroup rests on; what is not explained is as of a broker group.

    Attributes:
        cluster: name of the cluster, which is that of its ControllerGroup.
        before: the FrontGroup that was there first and serves the cluster; empty for none.
        broker_groups: names of the groups of BrokerGroups that refer to the same quorum and stay.
        view: where the controllers lead clients of the cluster.
    """

    meta: Metadata
    group: FrontGroup | None
    invalid: str = ""
    previous: FrontGroupStatus | None = None
    live_status: Body | None = None
    cluster: str
    controllers: ControllerGroup | None
    controllers_exist: bool
    before: str = ""
    broker_groups: tuple[str, ...] = ()
    objects: dict[ObjectKey, Body]
    pods: tuple[PodView, ...]
    view: FrontsView | Unreachable
    image: str
    image_wait: ImageWait | None = None
    refusals: tuple[Refusal, ...] = ()

    @property
    def deployment(self) -> Body | None:
        """That of the fronts."""
        return self.objects.get(("Deployment", names.front_deployment(self.meta.name)))


class ControllerObserved(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a plan for a ControllerGroup rests on.

    Attributes:
        missing_secrets: names of those of the quorum's Secrets that do not exist.
        image: as of a broker group; `image_wait`, too.
        claims: of the volumes: all before there is a StatefulSet, then those without a mark.
        dependents: names of BrokerGroups and FrontGroups that refer to it; while it is not being
            deleted, one of them is enough.
        operator_namespace: where the operator's own pods are; empty outside a cluster.
        volumes, refused_growth, certificates: as of a broker group.
        quorum: the leader's view of the quorum, or a follower's while there is no leader.
    """

    meta: Metadata
    group: ControllerGroup | None
    invalid: str = ""
    previous: ControllerGroupStatus | None = None
    live_status: Body | None = None
    objects: dict[ObjectKey, Body]
    pods: tuple[PodView, ...]
    missing_secrets: tuple[str, ...] = ()
    operator_namespace: str = ""
    claims: tuple[ClaimView, ...] = ()
    dependents: tuple[str, ...] = ()
    volumes: tuple[VolumeView, ...] | None = None
    refused_growth: dict[str, RefusedGrowth] = msgspec.field(default_factory=dict)
    image_wait: ImageWait | None = None
    quorum: QuorumView | Unreachable
    image: str
    refusals: tuple[Refusal, ...] = ()
    certificates: tuple[CertificateView, ...] = ()


_FAILED_RESIZES = frozenset({"ControllerResizeError", "NodeResizeError"})
Observed = BrokerObserved | ControllerObserved | FrontObserved


def claim_view(body: Body) -> ClaimView:
    """Reads a claim from the API server."""
    meta = body["metadata"]
    annotations = meta.get("annotations") or {}
    size = annotations.get(names.ANNOTATION_QUORUM_SIZE, "")
    return ClaimView(
        name=meta["name"],
        uid=meta.get("uid", ""),
        ordinal=names.ordinal(meta["name"]),
        quorum=annotations.get(names.ANNOTATION_QUORUM, ""),
        size=int(size) if size.isascii() and size.isdigit() else 0,
        ending=meta.get("deletionTimestamp") is not None,
    )


def volume_view(body: Body) -> VolumeView:
    """Reads a claim from the API server."""
    meta, status = body["metadata"], body.get("status") or {}
    conditions = [one for one in status.get("conditions") or () if one.get("status") == "True"]
    pending = [one for one in conditions if one.get("type") == "FileSystemResizePending"]
    failed = [one for one in conditions if one.get("type") in _FAILED_RESIZES]
    return VolumeView(
        name=meta["name"],
        uid=meta.get("uid", ""),
        ordinal=names.ordinal(meta["name"]),
        requested=body["spec"]["resources"]["requests"]["storage"],
        capacity=(status.get("capacity") or {}).get("storage", ""),
        bound=status.get("phase") == "Bound",
        pending_since=(pending[0].get("lastTransitionTime") or "") if pending else "",
        trouble=(failed[0].get("message") or failed[0]["type"]) if failed else "",
    )


def pod_view(body: Body) -> PodView:
    """Reads a pod from the API server; missing parts mean that the fact is not established."""
    meta, status = body.get("metadata", {}), body.get("status") or {}
    containers = status.get("containerStatuses") or ()
    # Of our container: one that others added may live on without it, or never start.
    ours = [container for container in containers if container.get("name") in OURS] or containers
    states = [our.get("state") or {} for our in ours]
    terminating = meta.get("deletionTimestamp") is not None
    terminal = status.get("phase") in ("Succeeded", "Failed")
    all_ended = bool(states) and all("terminated" in state for state in states)
    labels = meta.get("labels") or {}
    return PodView(
        name=meta["name"],
        uid=meta.get("uid", ""),
        resource_version=meta.get("resourceVersion", ""),
        ordinal=names.ordinal(meta["name"]),
        ip=status.get("podIP"),
        ready=_is_ready(status) and not terminating,
        running=any(_may_run(state) for state in states) if states else _has_node(body),
        # The garbage collector of lost nodes sets the phase to Failed without the kubelet's word,
        # so the phase alone proves nothing; a terminated container alone may be restarted.
        finished=all_ended and (terminal or terminating),
        terminating=terminating,
        revision=labels.get(names.LABEL_REVISION),
        role=labels.get(names.LABEL_ROLE),
        traffic=labels.get(names.LABEL_TRAFFIC) != names.TRAFFIC_OFF,
        ended=last_end([*containers, *(status.get("initContainerStatuses") or ())]),
        shards=_number(labels.get(names.LABEL_SHARDS)),
        created=meta.get("creationTimestamp") or "",
        host_ip=status.get("hostIP") or None,
        node=(body.get("spec") or {}).get("nodeName") or "",
        zone=labels.get(names.LABEL_ZONE) or "",
        ready_since=_ready_since(status),
        files=(meta.get("annotations") or {}).get(names.ANNOTATION_FILES, ""),
    )


def _is_ready(status: Body) -> bool:
    conditions = status.get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _ready_since(status: Body) -> str:
    conditions = status.get("conditions") or ()
    ready = (c for c in conditions if c.get("type") == "Ready" and c.get("status") == "True")
    return next((c.get("lastTransitionTime") or "" for c in ready), "")


def _has_node(body: Body) -> bool:
    return bool((body.get("spec") or {}).get("nodeName"))


def _may_run(state: Body) -> bool:
    return not ("waiting" in state or "terminated" in state)
