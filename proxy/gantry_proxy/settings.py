"""A proxy's settings: one frozen model, read from flags, ``GANTRY_*`` variables or TOML."""

from __future__ import annotations

import ipaddress
from pathlib import Path  # noqa: TC003 - pydantic reads it when the program runs
from typing import Annotated, Final, Literal, Self

from gantry_protocol.errors import ResolveError
from gantry_protocol.hosts import join_address, split_address
from gantry_protocol.settings.tracing import TracedSends
from gantry_protocol.tls.settings import TlsFiles
from pydantic import Field, field_validator, model_validator

GRPC_PORT = 8081  # as of rocketmq-proxy
HTTP_PORT = 10922
NAME_SERVER_PORT = 9876
CONTROLLER_PORT = 9878

LIVE: Final = frozenset({"access_log", "log_level", "tracing_endpoint", "tracing_ratio"})
"""Settings that a proxy applies while it runs; it keeps nothing that could depend on one."""


class ProxySettings(TracedSends, TlsFiles):
    """Everything a proxy can be told."""

    nameserver: list[str] = Field(
        min_length=1, description="host:port of every name server; the port defaults to 9876."
    )
    bind: str = Field(default="127.0.0.1", description="IP address to listen on.")
    grpc_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=GRPC_PORT, description="Port for clients that speak gRPC; 0 picks a free one."
    )
    http_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=HTTP_PORT, description="Port of probes, metrics and status; 0 picks a free one."
    )
    calls: int = Field(
        default=20_000,
        ge=1,
        le=1_000_000,
        description="How many calls are served at once, those that wait for messages among them.",
    )

    cluster: str = Field(
        default="gantry", min_length=1, max_length=127, description="Name of the cluster to serve."
    )
    controllers: list[str] = Field(
        default=[],
        description="host:port of every controller, for a proxy with quorum_key_file; the port "
        "defaults to 9878.",
    )
    quorum_key_file: Path | None = Field(
        default=None,
        description="File with the quorum's key. With it the proxy is told the users of the "
        "cluster, and judges its clients by their own where access is on.",
    )
    access_log: Literal["denied", "all"] = Field(
        default="denied",
        description="Decisions about clients' calls that are logged, where access is on.",
    )
    access_key: str | None = Field(
        default=None,
        description="User with which a proxy without quorum_key_file signs what it asks brokers, "
        "where they ask for one; every client of the proxy may do what this user may.",
    )
    secret_key_file: Path | None = Field(
        default=None, description="File whose first line is the secret of that user."
    )

    @field_validator("bind")
    @classmethod
    def _must_be_ip(cls, value: str) -> str:
        try:
            return str(ipaddress.ip_address(value))
        except ValueError:
            raise ValueError(f"{value!r} is no IP address: 0.0.0.0 or :: is every one") from None

    @field_validator("nameserver")
    @classmethod
    def _must_be_addresses(cls, value: list[str]) -> list[str]:
        return _addresses(value, NAME_SERVER_PORT)

    @field_validator("controllers")
    @classmethod
    def _must_be_controllers(cls, value: list[str]) -> list[str]:
        return _addresses(value, CONTROLLER_PORT)

    @model_validator(mode="after")
    def _must_fit(self) -> Self:
        if bool(self.controllers) is not (self.quorum_key_file is not None):
            raise ValueError("controllers and quorum_key_file need each other: give both or none")
        if (self.access_key is None) is not (self.secret_key_file is None):
            raise ValueError("access_key and secret_key_file need each other: give both or none")
        if self.access_key is not None and self.quorum_key_file is not None:
            raise ValueError(
                "with quorum_key_file clients are users themselves: leave access_key out, or "
                "quorum_key_file to have all of them be one user"
            )
        return self


def _addresses(value: list[str], port: int) -> list[str]:
    try:
        return [join_address(*split_address(item, port)) for item in value]
    except ResolveError as error:
        raise ValueError(str(error)) from None
