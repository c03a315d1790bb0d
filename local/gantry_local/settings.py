"""Settings of ``gantry local``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from gantry_protocol.process.config import Settings
from pydantic import Field, field_validator

from gantry_local.state import DEFAULT_STATE_DIR


class LocalSettings(Settings):
    """One local cluster."""

    local_dir: Path = Field(
        default=Path(DEFAULT_STATE_DIR), description="State directory of the cluster."
    )
    api: Literal["own", "real"] | None = Field(
        default=None,
        description="API server: own is Gantry's stand-in, real is Kubernetes' own etcd, "
        "kube-apiserver and kube-controller-manager; a cluster keeps its first, by default own.",
    )
    api_binaries: Path | None = Field(
        default=None,
        description="Directory with the programs of --api real; by default those on the PATH.",
    )
    api_emulated: str = Field(
        default="",
        pattern=r"^(1\.[0-9]+)?$",
        description="Minor version of Kubernetes, such as 1.31, whose API is served by --api real; "
        "by default that of the program.",
    )
    api_port: int = Field(
        default=0, ge=0, le=65535, description="Port of the API server; 0 keeps the last one."
    )
    operators: int = Field(default=1, ge=0, le=5, description="Operator processes to run.")
    controller_replicas: int = Field(
        default=3, description="Size of the ControllerGroup that is created first: 1, 3 or 5."
    )
    log_segment_bytes: int = Field(
        default=64 * 1024 * 1024,
        ge=1024 * 1024,
        description="Commit log segments of brokers whose group's spec.config says nothing.",
    )

    @field_validator("controller_replicas")
    @classmethod
    def _quorum_size(cls, value: int) -> int:
        if value not in {1, 3, 5}:
            raise ValueError("input should be 1, 3 or 5")
        return value
