"""The observed state of a BrokerGroup, as its `status` has it.

Members are told by broker id and, where their pod is known, by ordinal.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gantry_operator.models.base import Condition, Model
from gantry_operator.models.bootstrap import BootstrapStatus  # noqa: TC001 - as below
from gantry_operator.models.changes import ChangeStatus, FailoverStatus  # noqa: TC001 - as below
from gantry_operator.models.listeners import BY_NAME, ListenerStatus
from gantry_operator.models.operations import (  # noqa: TC001 - as below
    ForgetStatus,
    PendingChangeStatus,
)
from gantry_operator.models.parts import NOT_NULLABLE
from gantry_operator.models.preference import PreferredMasterStatus  # noqa: TC001 - as below
from gantry_operator.models.tier import TierStatus  # noqa: TC001 - pydantic reads it


class MasterStatus(Model):
    """The master, by the controllers' word."""

    replica: int | None = Field(
        default=None, description="Ordinal of the master, where its pod is known."
    )
    pod: str | None = Field(default=None, description="Name of the master's pod, where known.")
    broker_id: int = Field(description="The master's broker id.")
    epoch: int = Field(description="Master epoch; each change of master raises it.")
    since: str = Field(
        description="When the operator first saw this epoch.",
        json_schema_extra={"format": "date-time"},
    )


class MemberStatus(Model):
    """One member of the group as the controller knows it."""

    broker_id: int = Field(description="Broker id, kept on the replica's volume.")
    replica: int | None = Field(
        default=None, description="Ordinal, where the member's pod is known."
    )
    role: Literal["Master", "Replica"] = Field(description="Role by the controller's word.")
    state: Literal["InSync", "CatchingUp", "Draining", "Lost", "Hibernated", "Fenced"] = Field(
        description=(
            "InSync: in the sync-state set. CatchingUp: alive and not in it. Draining: shutting "
            "down. Lost: no sign of life. Hibernated: stopped with its group. Fenced: by "
            "spec.fenced."
        )
    )
    address: str | None = Field(default=None, description="Address that the member registered.")


class SwitchoverStatus(Model):
    """The outcome of the last switchover request."""

    id: str = Field(description="Identity of the request.")
    to: int | None = Field(default=None, description="Ordinal that was chosen.")
    state: Literal["InProgress", "Completed", "Refused"] = Field(
        description="InProgress, Completed or Refused; the last two are final for this id."
    )
    message: str = Field(description="What happened, for people.")


class DrainStatus(Model):
    """The progress of a drain; there while a deletion, or the end of shards, waits for it."""

    progress: str = Field(description="What is left in a few words, for example 40 left.")
    unread: int | None = Field(
        default=None,
        description="Messages that were not consumed, each counted for each consumer group.",
    )
    parked: int | None = Field(default=None, description="Delayed messages.")
    transactions: int | None = Field(default=None, description="Open transactions.")
    shards: tuple[str, ...] = Field(
        default=(), description="The shards that are drained since fewer are wished."
    )
    deadline: str = Field(
        description="When it goes in any case.", json_schema_extra={"format": "date-time"}
    )
    message: str = Field(description="What waits for what, for people.")


class PodMasters(Model):
    """The masterships of one pod."""

    pod: str = Field(description="Name of the pod.")
    masters: int = Field(ge=0, description="Shards whose master lives in it.")


class WorstShard(Model):
    """The shard that is furthest from well."""

    name: str = Field(description="Name of the broker group.")
    condition: str = Field(description="Its first condition that is not as it should be.")
    reason: str = Field(description="Why, as one word.")
    message: str = Field(description="The same for people.")


class ShardsStatus(Model):
    """The broker groups of a resource with spec.shards, summed up."""

    count: int = Field(ge=0, description="Shards that the controllers know.")
    ready_count: int = Field(ge=0, description="Shards that serve, with all replicas in sync.")
    ready: str = Field(description="Ready shards of wished shards, for example 12/12.")
    masters: tuple[PodMasters, ...] = Field(
        default=(),
        description="Masters per pod, by name of the pod.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["pod"],
        },
    )
    worst: WorstShard | None = Field(
        default=None,
        description="A shard that is not Ready; absent while all are.",
        json_schema_extra=NOT_NULLABLE,
    )


class BrokerGroupStatus(Model):
    """The operator's observations; they could be rebuilt from the world if they were lost."""

    observed_generation: int = Field(
        ge=-1, description="The generation of the spec this status was concluded from."
    )
    summary: str = Field(
        default="",
        description=(
            "All of it in one line, for example Healthy, Rolling 2/3, Refused NameTaken, Crashing "
            "with the process's last words, or Deleting with what it waits for."
        ),
    )
    image: str | None = Field(
        default=None,
        description="Image that a new pod gets now; absent before there is a StatefulSet.",
        json_schema_extra=NOT_NULLABLE,
    )
    pending_change: PendingChangeStatus | None = Field(
        default=None,
        description="A change that waits for a person; absent otherwise.",
        json_schema_extra=NOT_NULLABLE,
    )
    replicas: int = Field(default=0, ge=0, description="Pods that exist.")
    ready_replicas: int = Field(default=0, ge=0, description="Pods that are Ready.")
    ready: str = Field(default="", description="Ready pods of wished pods, for example 3/3.")
    in_sync: str = Field(
        default="",
        description="Sync-state set of wished replicas, for example 3/3; of the worst shard.",
    )
    selector: str = Field(default="", description="Selector of the pods, for scaling by kubectl.")
    shards: ShardsStatus | None = Field(
        default=None,
        description="The shards, summed up; absent without spec.shards.",
        json_schema_extra=NOT_NULLABLE,
    )
    master: MasterStatus | None = Field(
        default=None,
        description="The master; absent before the first election, and with shards.",
    )
    in_sync_replicas: tuple[int, ...] = Field(
        default=(),
        description=(
            "Ordinals in the sync-state set, with shards in all of them, as far as their pods are "
            "known."
        ),
    )
    members: tuple[MemberStatus, ...] = Field(
        default=(),
        description="All members that the controller knows, by broker id; none with shards.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["brokerId"],
        },
    )
    listeners: tuple[ListenerStatus, ...] | None = Field(
        default=None, description="Their addresses.", json_schema_extra=BY_NAME | NOT_NULLABLE
    )
    tier: TierStatus | None = Field(
        default=None,
        description="How far the tier has come; absent without spec.tier and before a claim.",
        json_schema_extra=NOT_NULLABLE,
    )
    queues: int | None = Field(
        default=None,
        ge=0,
        description="Queues of mapped topics that messages are taken for; absent before the first.",
        json_schema_extra=NOT_NULLABLE,
    )
    switchover: SwitchoverStatus | None = Field(
        default=None, description="What became of the last switchover request."
    )
    preferred_master: PreferredMasterStatus | None = Field(
        default=None,
        description="Why the master is where it is; absent without spec.preferredMaster.",
        json_schema_extra=NOT_NULLABLE,
    )
    bootstrap: BootstrapStatus | None = Field(
        default=None,
        description="What came of spec.bootstrap; absent without it.",
        json_schema_extra=NOT_NULLABLE,
    )
    forget: ForgetStatus | None = Field(
        default=None, description="What became of the last request to forget a member."
    )
    last_change: ChangeStatus | None = Field(
        default=None,
        description=(
            "The last change that was carried out in steps, or the one under way; absent before "
            "the first."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    last_failover: FailoverStatus | None = Field(
        default=None,
        description="The last change of master that nobody asked for; absent before the first.",
        json_schema_extra=NOT_NULLABLE,
    )
    drain: DrainStatus | None = Field(
        default=None,
        description="What is left of groups that are drained before they go; absent otherwise.",
        json_schema_extra=NOT_NULLABLE,
    )
    conditions: tuple[Condition, ...] = Field(
        default=(),
        description=(
            "Accepted, Available, InSync, FullyReplicated, Progressing, TierHealthy (with "
            "spec.tier only), DiskFull (while a disk is nearly full), LogDamaged (while bytes of a "
            "log are damaged and nobody could repair them), "
            "Altered (while others have changed the pods), QueuesMoving (while queues of mapped "
            "topics are to come or go), Fenced (while a replica is), ListenersServed (with "
            "listeners only), Hibernated (with spec.hibernated only), Paused, Ready, which sums "
            "the others up, and while it is False Stalled or Reconciling, which tools by the rules "
            "of kstatus read; one entry each."
        ),
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
