"""Additions of a template to containers, and containers that it adds to pods.

The fields and their meaning are Kubernetes' own; they are repeated here so that the API server
refuses what is not of their shape when it is written. Names, variables, ports and paths that Gantry
uses itself are refused: a pod that lost one of them would start, and not be the one that the
operator looks after.

See https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#Container
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from gantry_operator import names
from gantry_operator.models.base import Model, Rule
from gantry_operator.models.parts import NOT_NULLABLE, QuantityMap
from gantry_operator.models.rights import (
    ContainerSecurity,  # noqa: TC001 - pydantic reads it
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic.config import JsonDict

LIST_BY_NAME: JsonDict = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
LIST_BY_PATH: JsonDict = {
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["mountPath"],
}
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
ENV_NAME = r"^[-._a-zA-Z][-._a-zA-Z0-9]*$"
FIELD_PATH = (
    r"^(metadata\.(name|namespace|uid)|metadata\.(labels|annotations)\['[-._/a-zA-Z0-9]+'\]"
    r"|spec\.(nodeName|serviceAccountName)|status\.(hostIPs?|podIPs?))$"
)
_STEP = r"\.?[A-Za-z0-9_-][A-Za-z0-9._-]*"
PATH = f"^(/{_STEP})+$"
"""Absolute, and written in one way: no `.`, no `..`, no second or last slash."""
RELATIVE_PATH = f"^{_STEP}(/{_STEP})*$"

OURS = "gantry-"
"""Names that begin so are kept free for what a later version adds to pods."""
VARIABLES = ("PATH", "POD_IP")
CONTAINERS = (names.BROKER, names.CONTROLLER, names.DOOR, names.FRONT)
PORT_NAMES = ("direct", "door-http", "ha", "http", "nameserver", "raft", "remoting", "store")
PORT_RANGES = ((9876, 9880), (10910, 11199))
"""The ports of controllers; those of brokers, doors, fronts and shards."""
TREES = (names.DATA_DIR, "/etc/gantry", "/opt/gantry")
"""The data, the files of the operator, and the program itself."""
_ABOVE = tuple(
    sorted({str(path) for tree in TREES for path in PurePosixPath(tree).parents} - {"/"})
)


def listed(items: Iterable[str]) -> str:
    """Texts as CEL writes them in a list."""
    return "[" + ", ".join(f"'{item}'" for item in items) + "]"


class KeyRef(Model):
    """One entry of a Secret or a ConfigMap in the namespace."""

    name: str = Field(min_length=1, max_length=253, description="Name of the object.")
    key: str = Field(min_length=1, max_length=253, description="Entry of it.")
    optional: bool | None = Field(
        default=None,
        description="true: without an entry a pod starts without the variable. Default false.",
    )


class FieldRef(Model):
    """One field of the pod itself."""

    field_path: str = Field(
        max_length=400,
        pattern=FIELD_PATH,
        description="Path of the field, for example metadata.labels['team'] or spec.nodeName.",
    )


class EnvSource(Model):
    """The place where a value comes from."""

    secret_key_ref: KeyRef | None = Field(
        default=None,
        description="An entry of a Secret. Default none.",
        json_schema_extra=NOT_NULLABLE,
    )
    config_map_key_ref: KeyRef | None = Field(
        default=None,
        description="An entry of a ConfigMap. Default none.",
        json_schema_extra=NOT_NULLABLE,
    )
    field_ref: FieldRef | None = Field(
        default=None,
        description="A field of the pod. Default none.",
        json_schema_extra=NOT_NULLABLE,
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef)]"
            ".filter(given, given).size() == 1",
            "valueFrom takes one of secretKeyRef, configMapKeyRef and fieldRef: set exactly one",
            lambda source: (
                [source.secret_key_ref, source.config_map_key_ref, source.field_ref].count(None)
                == 2
            ),
        ),
    )


class EnvVar(Model):
    """An environment variable."""

    name: str = Field(
        min_length=1, max_length=128, pattern=ENV_NAME, description="Name of the variable."
    )
    value: str | None = Field(
        default=None,
        max_length=4096,
        description="The value; $(NAME) stands for a variable before it. Default empty.",
        json_schema_extra=NOT_NULLABLE,
    )
    value_from: EnvSource | None = Field(
        default=None,
        description="A Secret, ConfigMap or field of the pod instead of a value. Default none.",
        json_schema_extra=NOT_NULLABLE,
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.value) || !has(self.valueFrom)",
            "a variable takes value or valueFrom, not both: remove one of them",
            lambda variable: variable.value is None or variable.value_from is None,
        ),
    )


class VolumeMount(Model):
    """The place of a volume in a container."""

    name: str = Field(
        min_length=1, max_length=63, description="Name of a volume of template.spec.volumes."
    )
    mount_path: str = Field(
        max_length=512,
        pattern=PATH,
        description="Absolute path in the container, without a slash at its end.",
    )
    sub_path: str | None = Field(
        default=None,
        max_length=512,
        pattern=RELATIVE_PATH,
        description="Path inside the volume. Default: the whole volume.",
    )
    read_only: bool | None = Field(
        default=None, description="true: the container cannot write there. Default false."
    )


Env = Annotated[tuple[EnvVar, ...], Field(max_length=64, json_schema_extra=LIST_BY_NAME)]
Mounts = Annotated[tuple[VolumeMount, ...], Field(max_length=32, json_schema_extra=LIST_BY_PATH)]
Words = Annotated[tuple[Annotated[str, Field(max_length=4096)], ...], Field(max_length=64)]


class StartupTiming(Model):
    """The patience with a process that starts."""

    period_seconds: int = Field(
        default=1, ge=1, le=60, description="Seconds between two questions. 1 to 60; default 1."
    )
    timeout_seconds: int = Field(
        default=1, ge=1, le=60, description="Seconds to wait for an answer. 1 to 60; default 1."
    )
    failure_threshold: int = Field(
        default=600,
        ge=1,
        le=86_400,
        description="Questions without an answer before it is restarted. 1 to 86,400; default 600.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.periodSeconds * self.failureThreshold >= 60",
            "startupProbe must give a process at least 60 seconds, since it checks its log before "
            "it answers: raise failureThreshold or periodSeconds",
            lambda probe: probe.period_seconds * probe.failure_threshold >= 60,
        ),
    )


class LivenessTiming(Model):
    """The patience with a process that does not answer."""

    period_seconds: int = Field(
        default=5, ge=1, le=60, description="Seconds between two questions. 1 to 60; default 5."
    )
    timeout_seconds: int = Field(
        default=5, ge=1, le=60, description="Seconds to wait for an answer. 1 to 60; default 5."
    )
    failure_threshold: int = Field(
        default=6,
        ge=1,
        le=3600,
        description="Questions without an answer before it is restarted. 1 to 3,600; default 6.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.periodSeconds * self.failureThreshold >= 10",
            "livenessProbe must give a process at least 10 seconds, since a slow disk is no reason "
            "to restart it: raise failureThreshold or periodSeconds",
            lambda probe: probe.period_seconds * probe.failure_threshold >= 10,
        ),
    )


class MainContainer(Model):
    """Additions to the container of the broker, the controller or the front."""

    env: Env = Field(
        default=(),
        description=(
            "Environment variables. Refused: those that Gantry sets itself (GANTRY_…, POD_IP, "
            "PATH); settings go into spec.config. At most 64; default none."
        ),
    )
    volume_mounts: Mounts = Field(
        default=(),
        description=(
            "Where volumes of template.spec.volumes are. Refused: paths at, below or above "
            "/var/lib/gantry, /etc/gantry and /opt/gantry. At most 32; default none."
        ),
    )
    startup_probe: StartupTiming | None = Field(
        default=None,
        description="How long a process may take to start; what is asked stays. Default ten "
        "minutes.",
    )
    liveness_probe: LivenessTiming | None = Field(
        default=None,
        description="How long a process may be silent; what is asked stays. Default 30 seconds. "
        "Readiness cannot be changed: clients are led by it.",
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!has(self.env) || self.env.all(e, !(e.name in {listed(VARIABLES)})"
            " && !e.name.startsWith('GANTRY_'))",
            "template.spec.container.env must not name PATH, POD_IP or a variable that begins with "
            "GANTRY_, which are Gantry's: rename it, or set what you mean in spec.config",
            lambda main: (
                not any(
                    variable.name in VARIABLES or variable.name.startswith("GANTRY_")
                    for variable in main.env
                )
            ),
        ),
        Rule(
            "!has(self.volumeMounts) || self.volumeMounts.all(m, !(m.mountPath in "
            + listed((*TREES, *_ABOVE))
            + ")"
            + "".join(f" && !m.mountPath.startsWith('{tree}/')" for tree in TREES)
            + ")",
            f"template.spec.container.volumeMounts must keep away from {', '.join(TREES)} and from "
            "what is above them, where Gantry keeps data, files and its program: choose another "
            "mountPath",
            lambda main: not any(_is_ours(mount.mount_path) for mount in main.volume_mounts),
        ),
    )


def _is_ours(path: str) -> bool:
    return any(f"{tree}/".startswith(f"{path}/") or path.startswith(f"{tree}/") for tree in TREES)


class ContainerPort(Model):
    """A port of a sidecar, for people and for monitors that find it by its name."""

    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=15,
        pattern=DNS_LABEL,
        description="Name of the port. Default none.",
        json_schema_extra=NOT_NULLABLE,
    )
    container_port: int = Field(ge=1, le=65535, description="Number of the port, 1 to 65535.")
    protocol: Literal["TCP", "UDP", "SCTP"] = Field(
        default="TCP", description="TCP, UDP or SCTP. Default TCP."
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            " && ".join(
                f"(self.containerPort < {first} || self.containerPort > {last})"
                for first, last in PORT_RANGES
            ),
            "containerPort must not be one of "
            + " or ".join(f"{first} to {last}" for first, last in PORT_RANGES)
            + ", which processes of Gantry use in the same pod: choose another port",
            lambda port: (
                not any(first <= port.container_port <= last for first, last in PORT_RANGES)
            ),
        ),
        Rule(
            f"!has(self.name) || !(self.name in {listed(PORT_NAMES)})"
            " && !self.name.matches('^(at|group)-')",
            f"a sidecar's port must not be named {', '.join(PORT_NAMES)}, at-… or group-…, by "
            "which Services and monitors find Gantry's own: choose another name",
            lambda port: (
                port.name is None
                or (port.name not in PORT_NAMES and not port.name.startswith(("at-", "group-")))
            ),
        ),
    )


class ContainerResources(Model):
    """CPU and memory of a container beside Gantry's."""

    requests: QuantityMap | None = Field(default=None, description="Reserved. Default none.")
    limits: QuantityMap | None = Field(default=None, description="Upper bound. Default none.")


class ExtraContainer(Model):
    """A container that people add to the pods."""

    name: str = Field(
        min_length=1,
        max_length=63,
        pattern=DNS_LABEL,
        description="Name of the container. Refused: those of Gantry's, and gantry-….",
    )
    image: str = Field(min_length=1, max_length=512, description="Container image.")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None,
        description="Always, IfNotPresent or Never. Default: Kubernetes' own for the image's tag.",
    )
    command: Words = Field(default=(), description="Program and arguments. Default: the image's.")
    args: Words = Field(default=(), description="Arguments. Default: the image's.")
    env: Env = Field(default=(), description="Environment variables. At most 64; default none.")
    resources: ContainerResources | None = Field(
        default=None, description="CPU and memory. Default none."
    )
    volume_mounts: Mounts = Field(
        default=(),
        description=(
            "Where volumes of template.spec.volumes are; Gantry's own are nobody else's. At most "
            "32; default none."
        ),
    )
    security_context: ContainerSecurity | None = Field(
        default=None,
        description="Rights of the container, beyond those of the pod. Default none.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!(self.name in {listed(CONTAINERS)}) && !self.name.startsWith('{OURS}')",
            f"a container must not be named {', '.join(CONTAINERS)} or {OURS}…, which are Gantry's "
            "own: choose another name",
            lambda made: made.name not in CONTAINERS and not made.name.startswith(OURS),
        ),
    )


class Sidecar(ExtraContainer):
    """A container beside Gantry's for as long as the pod lives."""

    ports: Annotated[tuple[ContainerPort, ...], Field(max_length=16)] = Field(
        default=(),
        description=(
            "Ports of the container. They need a NetworkPolicy of yours where one of Gantry's "
            "selects the pods. At most 16; default none."
        ),
    )


class InitContainer(ExtraContainer):
    """A container that ends before Gantry's start."""
