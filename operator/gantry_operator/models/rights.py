"""The user of pods and the rights of containers, within the restricted Pod Security Standard.

Nothing here can make a pod leave that standard: no root, no privileges, no capabilities, a seccomp
profile. So a namespace that enforces it takes every group.

See https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from gantry_operator.models.base import Model, Rule
from gantry_operator.models.parts import NOT_NULLABLE

ID_MAX = 2_147_483_647
"""Of the kernel's ids those that Kubernetes takes."""
GroupId = Annotated[int, Field(ge=0, le=ID_MAX)]


class SeccompProfile(Model):
    """The system calls that processes may make."""

    type: Literal["RuntimeDefault", "Localhost"] = Field(
        default="RuntimeDefault",
        description="RuntimeDefault, or Localhost with localhostProfile. Default RuntimeDefault.",
    )
    localhost_profile: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        description="File of the profile below the kubelet's folder of profiles. Default none.",
        json_schema_extra=NOT_NULLABLE,
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.localhostProfile) == (self.type == 'Localhost')",
            "seccompProfile.localhostProfile goes with the type Localhost and with no other: set "
            "or remove it",
            lambda wish: (wish.localhost_profile is not None) == (wish.type == "Localhost"),
        ),
    )


class SeLinuxOptions(Model):
    """The SELinux label of processes, as far as the standard lets a pod choose it."""

    level: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        pattern=r"^s[0-9]+[-s0-9:c,.]*$",
        description="Level, for example s0:c123,c456. Default: the container runtime's choice.",
    )
    type: (
        Literal["container_t", "container_init_t", "container_kvm_t", "container_engine_t"] | None
    ) = Field(
        default=None,
        description="A type that the Pod Security Standards allow. Default: the runtime's choice.",
    )


class PodSecurity(Model):
    """The user of the pods and their rights."""

    any_user: bool = Field(
        default=False,
        description=(
            "true: pods name no user, group and fsGroup, so that the platform assigns them, as "
            "OpenShift does by its restricted-v2 SecurityContextConstraints. Where nobody assigns "
            "an fsGroup, pods cannot write their volumes. Default false: 10001 for all three."
        ),
    )
    run_as_user: int | None = Field(
        default=None,
        ge=1,
        le=ID_MAX,
        description="User of the processes, never 0. 1 to 2147483647; default 10001.",
        json_schema_extra=NOT_NULLABLE,
    )
    run_as_group: int | None = Field(
        default=None,
        ge=0,
        le=ID_MAX,
        description="Group of the processes. 0 to 2147483647; default 10001.",
        json_schema_extra=NOT_NULLABLE,
    )
    fs_group: int | None = Field(
        default=None,
        ge=0,
        le=ID_MAX,
        description=(
            "Group to which volumes and files of Secrets are given. 0 to 2147483647; default 10001."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    fs_group_change_policy: Literal["OnRootMismatch", "Always"] | None = Field(
        default=None,
        description=(
            "OnRootMismatch gives a volume's files to the group when its root is of another, "
            "Always at each start. Default: Always with anyUser or runAsUser, since files of "
            "another user may be there; else OnRootMismatch."
        ),
    )
    supplemental_groups: tuple[GroupId, ...] = Field(
        default=(),
        max_length=32,
        description="Further groups of the processes. At most 32; default none.",
    )
    seccomp_profile: SeccompProfile | None = Field(
        default=None, description="System calls of the processes. Default RuntimeDefault."
    )
    se_linux_options: SeLinuxOptions | None = Field(
        default=None, description="SELinux label of the processes. Default none."
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!self.anyUser || !has(self.runAsUser) && !has(self.runAsGroup) && !has(self.fsGroup)",
            "securityContext.anyUser leaves user and groups to the platform: remove runAsUser, "
            "runAsGroup and fsGroup, or anyUser",
            lambda wish: (
                not wish.any_user
                or (wish.run_as_user, wish.run_as_group, wish.fs_group) == (None, None, None)
            ),
        ),
    )


class ContainerSecurity(Model):
    """The rights of one container; it never gets privileges or capabilities."""

    run_as_user: int | None = Field(
        default=None,
        ge=1,
        le=ID_MAX,
        description="User, never 0. 1 to 2147483647; default: the pod's.",
    )
    run_as_group: int | None = Field(
        default=None, ge=0, le=ID_MAX, description="Group. 0 to 2147483647; default: the pod's."
    )
    read_only_root_filesystem: bool = Field(
        default=True,
        description="Whether only volumes can be written. Default true.",
    )
