"""The closed subset of a pod template that a group takes.

What is closed can be checked when it is written, and can be kept: a name, a path or a port that
Gantry's own processes use is refused, and nothing in here makes a pod leave the restricted Pod
Security Standard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from gantry_operator.models.base import Model, Rule
from gantry_operator.models.containers import (
    LIST_BY_NAME,
    ExtraContainer,
    InitContainer,
    MainContainer,
    Sidecar,
)
from gantry_operator.models.parts import NOT_NULLABLE, LabelMap, ShortMap
from gantry_operator.models.rights import PodSecurity  # noqa: TC001 - pydantic reads it
from gantry_operator.models.scheduling import Affinity, PullSecret, SpreadConstraint, Toleration
from gantry_operator.models.volumes import Volume  # noqa: TC001 - pydantic reads it

if TYPE_CHECKING:
    from collections.abc import Iterable

GRACE_MIN_S, GRACE_MAX_S = 30, 3600
"""The floor is what a master on a slow disk has for handing over, and a front for its answers."""
Spread = Annotated[tuple[SpreadConstraint, ...], Field(max_length=32)]


class TemplateMetadata(Model):
    """Extra metadata of the pods."""

    labels: LabelMap = Field(
        default_factory=dict,
        description=(
            "Extra labels of the pods; labels that Gantry sets itself win. "
            "At most 64; a change restarts the pods one by one."
        ),
    )
    annotations: ShortMap = Field(
        default_factory=dict,
        description=(
            "Extra annotations of the pods. At most 64; a change restarts the pods one by one."
        ),
    )


def _mounts_exist(container: str) -> str:
    """CEL: every mount of a container is one of a volume of the template."""
    return (
        f"(!has({container}.volumeMounts) || {container}.volumeMounts.all(m,"
        " has(self.volumes) && self.volumes.exists(v, v.name == m.name)))"
    )


class TemplateSpec(Model):
    """The nodes, the rights and the further containers of the pods."""

    node_selector: LabelMap = Field(
        default_factory=dict, description="Labels a node must have to run a pod. Default none."
    )
    tolerations: tuple[Toleration, ...] = Field(
        default=(),
        max_length=32,
        description="Taints the pods tolerate, as in a Kubernetes pod. At most 32; default none.",
    )
    affinity: Affinity | None = Field(
        default=None,
        description=(
            "Node and pod affinity, as in a Kubernetes pod. Without a podAntiAffinity in it, and "
            "without topologySpreadConstraints, Gantry adds its default: replicas prefer "
            "different nodes (weight 100) and different zones (50)."
        ),
    )
    topology_spread_constraints: Spread | None = Field(
        default=None,
        description=(
            "Constraints as in a Kubernetes pod, instead of the default pod anti-affinity. An "
            "empty list switches that off and puts nothing in its place. At most 32; default none."
        ),
    )
    priority_class_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        description="PriorityClass of the pods. Default: the cluster's.",
    )
    service_account_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        description=(
            "ServiceAccount of the pods; no token is mounted, since they never call the API "
            "server. Default: the namespace's default account."
        ),
    )
    image_pull_secrets: tuple[PullSecret, ...] = Field(
        default=(),
        max_length=32,
        description="Secrets for pulling the image, as [{name: …}]. At most 32; default none.",
    )
    scheduler_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        description="Scheduler that places the pods. Default: the cluster's.",
    )
    runtime_class_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        description="RuntimeClass of the pods, such as one of gVisor. Default: the cluster's.",
    )
    termination_grace_period_seconds: int | None = Field(
        default=None,
        ge=GRACE_MIN_S,
        le=GRACE_MAX_S,
        description=(
            "Seconds between the signal to end and the end by force. Less than 30 would cut off "
            "a master that hands over on a slow disk. 30 to 3,600; default 30 for brokers and "
            "fronts, 10 for controllers."
        ),
    )
    security_context: PodSecurity | None = Field(
        default=None,
        description=(
            "User, groups and profiles of the pods, which are never root. Default: user and "
            "groups 10001, the runtime's default seccomp profile."
        ),
    )
    container: MainContainer | None = Field(
        default=None,
        description=(
            "Additions to the container of the broker, the controller or the front; a door gets "
            "none of them. Default none."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    volumes: tuple[Volume, ...] = Field(
        default=(),
        max_length=32,
        description="Volumes for the containers of this template. At most 32; default none.",
        json_schema_extra=LIST_BY_NAME,
    )
    init_containers: tuple[InitContainer, ...] = Field(
        default=(),
        max_length=8,
        description=(
            "Containers that end, one after the other, before Gantry's start. At most 8; default "
            "none."
        ),
        json_schema_extra=LIST_BY_NAME,
    )
    sidecars: tuple[Sidecar, ...] = Field(
        default=(),
        max_length=8,
        description=(
            "Containers beside Gantry's. A pod is Ready, and gets clients, only while they run. "
            "At most 8; default none."
        ),
        json_schema_extra=LIST_BY_NAME,
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"(!has(self.container) || {_mounts_exist('self.container')})"
            f" && (!has(self.sidecars) || self.sidecars.all(c, {_mounts_exist('c')}))"
            f" && (!has(self.initContainers) || self.initContainers.all(c, {_mounts_exist('c')}))",
            "every volumeMounts entry of template.spec must name a volume of "
            "template.spec.volumes: add the volume, or correct the name",
            lambda spec: (
                {mount.name for made in spec.made_of() for mount in made.volume_mounts}
                <= {volume.name for volume in spec.volumes}
            ),
        ),
        Rule(
            "!has(self.sidecars) || !has(self.initContainers)"
            " || self.initContainers.all(i, !self.sidecars.exists(s, s.name == i.name))",
            "template.spec.sidecars and template.spec.initContainers must have names of their own, "
            "because a pod tells containers apart by them: rename one",
            lambda spec: _unique(made.name for made in spec.added()),
        ),
        Rule(
            None,  # the API server knows these lists by their keys
            "template.spec must name each volume, variable and mountPath of a list once: remove "
            "the second",
            lambda spec: (
                _unique(volume.name for volume in spec.volumes)
                and all(
                    _unique(variable.name for variable in made.env)
                    and _unique(mount.mount_path for mount in made.volume_mounts)
                    for made in spec.made_of()
                )
            ),
        ),
    )

    def added(self) -> tuple[ExtraContainer, ...]:
        """All containers that are not Gantry's."""
        return (*self.init_containers, *self.sidecars)

    def made_of(self) -> tuple[MainContainer | ExtraContainer, ...]:
        """All containers about which the template says something."""
        return (*((self.container,) if self.container else ()), *self.added())


def _unique(items: Iterable[str]) -> bool:
    found = list(items)
    return len(found) == len(set(found))


class Template(Model):
    """A closed subset of a pod template."""

    metadata: TemplateMetadata = Field(
        default_factory=TemplateMetadata, description="Extra labels and annotations of the pods."
    )
    spec: TemplateSpec = Field(
        default_factory=TemplateSpec,
        description="Scheduling, rights and further containers of the pods.",
    )
