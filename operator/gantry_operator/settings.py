"""The operator's settings: one frozen model, read from flags, `GANTRY_*` variables or TOML."""

from pathlib import Path

from gantry_protocol.process.config import Settings
from pydantic import Field

from gantry_operator import names


class OperatorSettings(Settings):
    """Everything an operator process can be told."""

    namespaces: tuple[str, ...] = Field(
        default=(), description="Namespaces to serve, separated by commas; none means all of them."
    )
    kubeconfig: Path | None = Field(
        default=None,
        description="Kubeconfig file; by default the pod's service account, else $KUBECONFIG.",
    )
    image: str = Field(
        default="gantry:latest",
        min_length=1,
        description="Image of controllers and brokers whose spec names none.",
    )
    image_rolls: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="How many groups may roll to a new default image at a time.",
    )
    max_concurrent_rolls: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="How many broker groups may roll at a time, whatever the change; none: a new "
        "default image alone goes in turns.",
    )
    name: str | None = Field(
        default=None,
        min_length=1,
        description="Identity in the leader election; by default the host's name.",
    )
    bind: str = Field(default="127.0.0.1", description="IP address to serve HTTP at.")
    http_port: int = Field(
        default=names.OPERATOR_HTTP_PORT,
        ge=0,
        le=65535,
        description="Port of /livez, /readyz, /metrics and, on loopback, /decisions; 0 takes a "
        "free one.",
    )
    workers: int = Field(
        default=20, ge=1, le=200, description="How many resources are reconciled at the same time."
    )
    resync_interval_s: float = Field(
        default=300.0,
        ge=1.0,
        le=86_400.0,
        description="Seconds between two comparisons with full lists, give or take a fifth.",
    )
    leader_election: bool | None = Field(
        default=None,
        description="Work only while holding a Lease; by default inside a cluster only.",
    )
    lease_namespace: str | None = Field(
        default=None,
        min_length=1,
        description="Namespace of the Lease; by default the pod's own, else the first one served.",
    )
    read_nodes: bool = Field(
        default=False,
        description="Read the zone of a node whose pods do not have it as a label, as before "
        "Kubernetes 1.35; needs the right to get nodes.",
    )
    directory_tiers: bool = Field(
        default=False,
        description="Accept tiers in a directory (file://), where all pods see one file system.",
    )
