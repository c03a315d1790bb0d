"""Volumes that a template adds to pods: the kinds that the restricted standard allows.

See https://kubernetes.io/docs/reference/kubernetes-api/config-and-storage-resources/volume/
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from gantry_operator.models.base import Model, Rule
from gantry_operator.models.containers import DNS_LABEL, OURS, RELATIVE_PATH, listed
from gantry_operator.models.parts import NOT_NULLABLE, RESOURCE_QUANTITY, ShortMap

RESERVED = ("admin", "config", "data", "member-tls", "quorum-key", "tier-keys", "tls")
"""Names of volumes that Gantry's pods have, or may get with another field of the spec."""
KINDS = ("configMap", "secret", "emptyDir", "persistentVolumeClaim", "projected", "csi")

ObjectName = Annotated[str, Field(min_length=1, max_length=253)]
Mode = Annotated[int, Field(ge=0, le=0o777)]


class VolumeItem(Model):
    """One entry of an object as a file."""

    key: ObjectName = Field(description="Entry of the object.")
    path: str = Field(
        max_length=512, pattern=RELATIVE_PATH, description="Path of the file inside the volume."
    )


Items = Annotated[tuple[VolumeItem, ...], Field(max_length=64)]
_ITEMS = "Entries that become files. At most 64; default: all of them, by their names."
_OPTIONAL = "true: pods start without it where it does not exist. Default false."
_MODE = "Mode of the files as a decimal number, 0 to 511. Default 420, which is 0644."


class ConfigMapVolume(Model):
    """Entries of a ConfigMap as files."""

    name: ObjectName = Field(description="Name of the ConfigMap.")
    items: Items = Field(default=(), description=_ITEMS)
    default_mode: Mode | None = Field(default=None, description=_MODE)
    optional: bool | None = Field(default=None, description=_OPTIONAL)


class SecretVolume(Model):
    """Entries of a Secret as files."""

    secret_name: ObjectName = Field(description="Name of the Secret.")
    items: Items = Field(default=(), description=_ITEMS)
    default_mode: Mode | None = Field(default=None, description=_MODE)
    optional: bool | None = Field(default=None, description=_OPTIONAL)


class EmptyDirVolume(Model):
    """An empty directory that goes with the pod."""

    medium: Literal["", "Memory"] | None = Field(
        default=None, description="Memory, or empty for the node's disk. Default empty."
    )
    size_limit: str | None = Field(
        default=None,
        max_length=20,
        pattern=RESOURCE_QUANTITY,
        description="Size at which a pod is evicted, for example 1Gi. Default none.",
    )


class ClaimVolume(Model):
    """A claim that all pods of the group mount."""

    claim_name: ObjectName = Field(description="Name of the PersistentVolumeClaim.")
    read_only: bool | None = Field(
        default=None, description="true: nobody writes there. Default false."
    )


class TokenSource(Model):
    """A token of the pods' ServiceAccount, for whoever trusts the cluster's issuer."""

    path: str = Field(
        max_length=512, pattern=RELATIVE_PATH, description="Path of the file inside the volume."
    )
    audience: str | None = Field(
        default=None, max_length=512, description="Whom the token is for. Default: the API server."
    )
    expiration_seconds: int | None = Field(
        default=None,
        ge=600,
        le=4_294_967_296,
        description="Seconds that a token is valid; the kubelet renews it. 600 or more; default "
        "3600.",
    )


class ProjectedSource(Model):
    """A source of a projected volume; Secrets and ConfigMaps are volumes of their own."""

    service_account_token: TokenSource = Field(description="A token of the pods' ServiceAccount.")


class ProjectedVolume(Model):
    """Tokens in one directory."""

    sources: tuple[ProjectedSource, ...] = Field(
        min_length=1, max_length=16, description="What is in the directory. 1 to 16."
    )


class SecretRef(Model):
    """A Secret in the namespace."""

    name: ObjectName = Field(description="Name of the Secret.")


class CsiVolume(Model):
    """A volume that a CSI driver makes for each pod, such as that of the Secrets Store."""

    driver: ObjectName = Field(description="Name of the driver.")
    read_only: bool | None = Field(
        default=None, description="true: nobody writes there. Default false."
    )
    volume_attributes: ShortMap = Field(
        default_factory=dict, description="What the driver is told. At most 64; default none."
    )
    node_publish_secret_ref: SecretRef | None = Field(
        default=None, description="A Secret that the driver is given. Default none."
    )


class Volume(Model):
    """A volume of the pods; it holds no data of Gantry's."""

    name: str = Field(
        min_length=1,
        max_length=63,
        pattern=DNS_LABEL,
        description="Name of the volume. Refused: those of Gantry's, and gantry-….",
    )
    config_map: ConfigMapVolume | None = Field(
        default=None,
        description="Entries of a ConfigMap as files. Default none.",
        json_schema_extra=NOT_NULLABLE,
    )
    secret: SecretVolume | None = Field(
        default=None,
        description="Entries of a Secret as files. Default none.",
        json_schema_extra=NOT_NULLABLE,
    )
    empty_dir: EmptyDirVolume | None = Field(
        default=None,
        description="An empty directory that goes with the pod. Default none.",
        json_schema_extra=NOT_NULLABLE,
    )
    persistent_volume_claim: ClaimVolume | None = Field(
        default=None,
        description="A claim that all pods of the group mount. Default none.",
        json_schema_extra=NOT_NULLABLE,
    )
    projected: ProjectedVolume | None = Field(
        default=None,
        description="Tokens of the pods' ServiceAccount as files. Default none.",
        json_schema_extra=NOT_NULLABLE,
    )
    csi: CsiVolume | None = Field(
        default=None,
        description="A volume that a CSI driver makes for each pod. Default none.",
        json_schema_extra=NOT_NULLABLE,
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!(self.name in {listed(RESERVED)}) && !self.name.startsWith('{OURS}')",
            f"a volume must not be named {', '.join(RESERVED)} or {OURS}…, which are Gantry's own: "
            "choose another name",
            lambda volume: volume.name not in RESERVED and not volume.name.startswith(OURS),
        ),
        Rule(
            "["
            + ", ".join(f"has(self.{kind})" for kind in KINDS)
            + "].filter(given, given).size() == 1",
            f"a volume is one of {', '.join(KINDS)}: set exactly one",
            lambda volume: volume.kinds() == 1,
        ),
    )

    def kinds(self) -> int:
        """The number of kinds that are given."""
        return sum(isinstance(getattr(self, name), Model) for name in type(self).model_fields)
