"""What the operator knows at one moment: the only input of a plan.

Not knowing is a value here (`Unreachable`), never an exception and never an empty list: a rule has
to say what it does when it cannot see. Nothing in these values is derived from the operator's own
memory except `refusals`, what the API server said to the last attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gantry_operator import names

if TYPE_CHECKING:
    from gantry_protocol.admin import GroupView, QuorumView

    from gantry_operator.models import (
        BrokerGroup,
        BrokerGroupStatus,
        ControllerGroup,
        ControllerGroupStatus,
    )
    from gantry_operator.models.base import Metadata

Body = dict[str, Any]
ObjectKey = tuple[str, str]
"""Kind and name; the namespace is always the resource's."""


class Unreachable(msgspec.Struct, frozen=True):
    """The controllers could not be asked; `reason` says why, for people."""

    reason: str


class NotDeclared(msgspec.Struct, frozen=True):
    """The controllers answered, and do not know the group."""


class Refusal(msgspec.Struct, frozen=True):
    """The API server, or our own check, refused to write an object in the last attempt."""

    kind: str
    name: str
    taken: bool
    message: str


class PodView(msgspec.Struct, frozen=True):
    """The facts about a pod that decisions rest on.

    Attributes:
        running: a process may be alive in it. False only on the kubelet's word that the container
            waits or has terminated, or before the pod has a node; unknown counts as running.
        finished: the kubelet says that the container has terminated and nothing will start it
            again. A pod object that merely went away never gets this far.
        revision: the `controller-revision-hash` label.
        role: the role label, None if there is none.
        traffic: whether the Service of the group leads to it while it is Ready.
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


class BrokerObserved(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a plan for a BrokerGroup rests on.

    Attributes:
        group: the parsed resource; None if it is invalid, and then `invalid` says why.
        controllers: the ControllerGroup it refers to; None if there is none that is valid.
        controllers_exist: whether there is one at all.
        objects: live owned objects by kind and name; only those that the operator manages.
        view: what the controllers say about the group.
        refusals: what could not be written in the last attempt.
        directory_tiers: whether all pods see the same files, so that a tier may lie in a directory.
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
    image: str
    refusals: tuple[Refusal, ...] = ()
    directory_tiers: bool = False


class ControllerObserved(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a plan for a ControllerGroup rests on.

    Attributes:
        has_secret: whether the admin Secret exists.
        quorum: the leader's view of the quorum, or a follower's while there is no leader.
    """

    meta: Metadata
    group: ControllerGroup | None
    invalid: str = ""
    previous: ControllerGroupStatus | None = None
    live_status: Body | None = None
    objects: dict[ObjectKey, Body]
    pods: tuple[PodView, ...]
    has_secret: bool
    quorum: QuorumView | Unreachable
    image: str
    refusals: tuple[Refusal, ...] = ()


def pod_view(body: Body) -> PodView:
    """Reads a pod from the API server; missing parts mean that the fact is not established."""
    meta, status = body.get("metadata", {}), body.get("status") or {}
    states = [c.get("state") or {} for c in status.get("containerStatuses") or ()]
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
    )


def _is_ready(status: Body) -> bool:
    conditions = status.get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _has_node(body: Body) -> bool:
    return bool((body.get("spec") or {}).get("nodeName"))


def _may_run(state: Body) -> bool:
    return not ("waiting" in state or "terminated" in state)
