"""Parts that several resources use: storage, resources, the rules of settings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from gantry_protocol.member_tls.settings import MemberTlsSettings
from gantry_protocol.settings.broker import RetentionSettings, TierSettings
from gantry_protocol.tls.listeners import ListenerSettings
from pydantic import Field

from gantry_operator import names
from gantry_operator.models.base import Model, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic.config import JsonDict

SETTING_NAME = re.compile(r"[a-z][a-z0-9_]*")
QUANTITY = r"^[1-9][0-9]*(\.[0-9]+)?(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?$"

NOT_NULLABLE: JsonDict = {"nullable": False}
"""For optional fields that a CEL rule reads: has() is true for a null, which then compares with
nothing."""

RESOURCE_QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
QuantityMap = Annotated[
    dict[str, Annotated[str, Field(pattern=RESOURCE_QUANTITY)] | Annotated[int, Field(ge=0)]],
    Field(
        max_length=16,
        json_schema_extra={
            "additionalProperties": {
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": True,
                "pattern": RESOURCE_QUANTITY,
                "maxLength": 20,
            }
        },
    ),
]
ShortMap = Annotated[dict[str, Annotated[str, Field(max_length=1024)]], Field(max_length=64)]
LabelValue = Annotated[
    str, Field(max_length=63, pattern=r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
]
LabelMap = Annotated[dict[str, LabelValue], Field(max_length=64)]

_IDENTITY = (
    "admin_token_file",
    "advertise",
    "allow_unauthenticated",
    "bind",
    "cluster",
    "cluster_uid",
    "controllers",
    "data_dir",
    "group",
    "groups",
    "ha_port",
    "http_port",
    "join",
    "name",
    "nameserver_port",
    "node_id",
    "peers",
    "pod_uid",
    "quorum_key_file",
    "quorum_size",
    "raft_port",
    "rejoin",
    "remoting_port",
    "store",
    "store_port",
)
RESERVED_SETTINGS = tuple(
    sorted(
        (
            *_IDENTITY,
            *RetentionSettings.model_fields,
            *TierSettings.model_fields,
            *MemberTlsSettings.model_fields,
            *ListenerSettings.model_fields,
        )
    )
)
"""Settings that are no matter of taste: identity, addresses and paths are the operator's; tier,
retention and TLS have fields of their own in the spec; and the others (groups, store, join, rejoin)
would make another process of it than the one that the operator looks after."""


class ControllerRef(Model):
    """The ControllerGroup in the same namespace whose cluster the resource belongs to."""

    name: str = Field(
        default="gantry",
        min_length=1,
        max_length=names.MAX_CONTROLLER_GROUP_NAME,
        description=(
            "Name of a ControllerGroup in the same namespace. It is also the cluster name that "
            "clients see. Default gantry; cannot change after creation."
        ),
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.name == oldSelf.name",
            "controllerRef.name is fixed at creation, because epochs and broker ids belong to that "
            "controller: set it back, and create a new resource under the other controller",
        ),
    )


class Storage(Model):
    """The storage of each replica's data."""

    type: Literal["PersistentVolumeClaim", "EmptyDir"] = Field(
        default="PersistentVolumeClaim",
        description=(
            "PersistentVolumeClaim keeps the data when a pod is replaced. EmptyDir loses it with "
            "the pod and is for trying things out; it is allowed with one replica only. "
            "Default PersistentVolumeClaim; cannot change after creation."
        ),
    )
    size: str = Field(
        default="10Gi",
        max_length=20,
        pattern=QUANTITY,
        description=(
            "Size of each replica's volume as a Kubernetes quantity, for example 200Gi. It may "
            "grow where the StorageClass allows it, and never shrinks; of EmptyDir it is fixed. "
            "Default 10Gi."
        ),
    )
    class_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        description=(
            "StorageClass of the claims. Not set means the cluster's default class. "
            "Cannot change after creation."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    when_deleted: Literal["Retain", "Delete"] = Field(
        default="Retain",
        description=(
            "What happens to the claims when the resource is deleted. Retain keeps them, and a "
            "resource of the same name takes them up again. Delete removes them, but for those of "
            "replicas that were scaled away while it was Retain. Default Retain."
        ),
    )
    when_scaled: Literal["Retain", "Delete"] = Field(
        default="Retain",
        description=(
            "What happens to the claim of a replica that scaling down removes: Retain or Delete. "
            "Default Retain."
        ),
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.type == oldSelf.type && (self.type != 'EmptyDir' || self.size == oldSelf.size)"
            " && has(self.className) == has(oldSelf.className)"
            " && (!has(self.className) || self.className == oldSelf.className)",
            "storage.type, storage.className and the size of an EmptyDir are fixed at creation, "
            "because the data would be lost: set them back, and create a new resource for other "
            "storage",
        ),
    )


class Resources(Model):
    """CPU and memory of a container."""

    requests: QuantityMap | None = Field(
        default=None,
        description=(
            'Reserved per replica, for example {cpu: "1", memory: 2Gi}; {} reserves nothing. '
            "Default, without what limits names: 250m and 256Mi for a broker, 150m and 128Mi for a "
            "controller, 100m and 96Mi for a door, 250m and 128Mi for a front."
        ),
    )
    limits: QuantityMap | None = Field(
        default=None,
        description="Upper bound per replica; keys as in requests. Default none.",
    )


FAMILIES = ("member_tls_", "retention_", "tier_", "tls_")
"""Settings of which all are reserved."""


def _shown(settings: Iterable[str]) -> tuple[str, ...]:
    """The names of settings for people, one for each family."""
    found = (
        next((f"{family}..." for family in FAMILIES if name.startswith(family)), name)
        for name in settings
    )
    return tuple(dict.fromkeys(found))


def config_rules() -> tuple[Rule, ...]:
    """Rules of a `config` map: well-formed keys, none that the operator sets itself."""
    reserved = ", ".join(f"'{name}'" for name in RESERVED_SETTINGS)
    return (
        Rule(
            f"!has(self.config) || self.config.all(k, !(k in [{reserved}]))",
            "config must not name a setting that the operator sets itself: remove "
            + ", ".join(_shown(RESERVED_SETTINGS)),
            lambda spec: not set(spec.config) & set(RESERVED_SETTINGS),
        ),
        Rule(
            None,  # keys have no length limit in a schema, so matches() is estimated too dear
            "config takes setting names in lower case with underscores, such as "
            "log_segment_bytes: rename the keys that are written otherwise",
            lambda spec: all(SETTING_NAME.fullmatch(key) for key in spec.config),
        ),
    )
