"""Placement of pods as Kubernetes has it: affinity, tolerations, spread constraints, pull secrets.

The fields and their meaning are Kubernetes' own; they are repeated here so that the API server
refuses what is not of their shape when it is written, and names the field. Passed on unseen, a list
where an object belongs is an internal error of the API server, each time the operator tries again.

See https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#scheduling
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gantry_operator.models.base import Model

Weight = Annotated[int, Field(ge=1, le=100)]
LabelKey = Annotated[
    str,
    Field(
        max_length=317,
        pattern=r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$",
    ),
]
Texts = tuple[str, ...]


class Requirement(Model):
    """One requirement on a label."""

    key: LabelKey = Field(description="Key of the label.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="In, NotIn, Exists or DoesNotExist."
    )
    values: Texts | None = Field(default=None, description="Values, if it takes any.")


class NodeRequirement(Model):
    """One requirement on a label or a field of a node."""

    key: str = Field(description="Key of the label, or the field's name.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = Field(
        description="In, NotIn, Exists, DoesNotExist, Gt or Lt."
    )
    values: Texts | None = Field(default=None, description="Values, if it takes any.")


class LabelSelector(Model):
    """Objects by their labels; an empty selector selects all of them."""

    match_labels: dict[str, str] | None = Field(
        default=None, description="Labels and their values."
    )
    match_expressions: tuple[Requirement, ...] | None = Field(
        default=None, description="Requirements; all must be met."
    )


class NodeSelectorTerm(Model):
    """Nodes by labels and fields."""

    match_expressions: tuple[NodeRequirement, ...] | None = Field(
        default=None, description="Requirements on labels of a node."
    )
    match_fields: tuple[NodeRequirement, ...] | None = Field(
        default=None, description="Requirements on fields of a node."
    )


class NodeSelector(Model):
    """Nodes that meet one of several terms."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = Field(
        description="Terms of which a node must meet one."
    )


class PreferredNodes(Model):
    """Nodes that are preferred."""

    weight: Weight = Field(description="How much it counts, 1 to 100.")
    preference: NodeSelectorTerm = Field(description="The nodes that are preferred.")


class NodeAffinity(Model):
    """The nodes that a pod may run on, and those that it prefers."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = Field(
        default=None, description="Nodes that a pod may be scheduled to."
    )
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredNodes, ...] | None = Field(
        default=None, description="Nodes that are preferred among those."
    )


class PodAffinityTerm(Model):
    """Pods to be near to or far from, and what near means."""

    topology_key: LabelKey = Field(description="Label of nodes; equal values are one place.")
    label_selector: LabelSelector | None = Field(
        default=None, description="The pods; not set means none of them."
    )
    namespaces: Texts | None = Field(
        default=None, description="Namespaces of the pods; not set means the pod's own."
    )
    namespace_selector: LabelSelector | None = Field(
        default=None, description="Further namespaces of the pods, by their labels."
    )
    match_label_keys: Texts | None = Field(
        default=None, description="Labels whose values are those of the new pod."
    )
    mismatch_label_keys: Texts | None = Field(
        default=None, description="Labels whose values are not those of the new pod."
    )


class PreferredPods(Model):
    """A preference for a place."""

    weight: Weight = Field(description="How much it counts, 1 to 100.")
    pod_affinity_term: PodAffinityTerm = Field(description="The place that is preferred.")


class PodAffinity(Model):
    """Places by the pods that run there."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] | None = Field(
        default=None, description="Terms that all must be met when a pod is scheduled."
    )
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredPods, ...] | None = Field(
        default=None, description="Terms that count for a place."
    )


class Affinity(Model):
    """The placement of pods, by nodes and by other pods."""

    node_affinity: NodeAffinity | None = Field(
        default=None, description="Which nodes the pods may run on, and which they prefer."
    )
    pod_affinity: PodAffinity | None = Field(
        default=None, description="Pods to run near to; see the Kubernetes documentation."
    )
    pod_anti_affinity: PodAffinity | None = Field(
        default=None,
        description="Pods to keep away from. Set, it replaces Gantry's default altogether.",
    )


class Toleration(Model):
    """A taint that the pods tolerate."""

    key: str | None = Field(default=None, description="Key of the taint; not set means every key.")
    operator: str | None = Field(default=None, description="Exists or Equal; not set means Equal.")
    value: str | None = Field(default=None, description="Value of the taint, with Equal.")
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None,
        description="NoSchedule, PreferNoSchedule or NoExecute; not set or empty means all.",
    )
    toleration_seconds: int | None = Field(
        default=None, description="How long NoExecute is tolerated; not set means for ever."
    )


class SpreadConstraint(Model):
    """The evenness of pods over places."""

    max_skew: int = Field(
        ge=1, description="How many pods more than the emptiest a place may have."
    )
    topology_key: LabelKey = Field(description="Label of nodes; equal values are one place.")
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = Field(
        description="DoNotSchedule or ScheduleAnyway, where the constraint cannot be met."
    )
    label_selector: LabelSelector | None = Field(
        default=None, description="The pods that are counted."
    )
    match_label_keys: Texts | None = Field(
        default=None, description="Labels whose values are those of the new pod."
    )
    min_domains: int | None = Field(
        default=None, ge=1, description="The least number of places, with DoNotSchedule."
    )
    node_affinity_policy: Literal["Honor", "Ignore"] | None = Field(
        default=None, description="Honor or Ignore: whether nodes that affinity rules out count."
    )
    node_taints_policy: Literal["Honor", "Ignore"] | None = Field(
        default=None, description="Honor or Ignore: whether nodes that taints rule out count."
    )


class PullSecret(Model):
    """A Secret for pulling images."""

    name: str = Field(min_length=1, description="Name of a Secret in the same namespace.")
