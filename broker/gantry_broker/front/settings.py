"""A front's settings: one frozen model, read from flags, ``GANTRY_*`` variables or TOML."""

from pathlib import Path
from typing import Annotated

from gantry_protocol.member_tls.settings import MemberTlsSettings
from gantry_protocol.quorum_key import ALLOW_HELP, KEY_FILE_HELP
from gantry_protocol.settings.tracing import TracedSends
from gantry_protocol.tls.settings import TlsSettings, demand_ca
from pydantic import Field, field_validator, model_validator

from gantry_broker.control.addresses import checked_ip, controller_addresses

FIRST_PORT = 10950
PORTS = 16
PORTS_MAX = 64
HTTP_PORT = 10921
STORE_PORT = 10914

Port = Annotated[int, Field(ge=1, le=65535)]


class FrontSettings(TracedSends, MemberTlsSettings, TlsSettings):
    """Everything a front can be told."""

    name: str = Field(
        default="front-0", min_length=1, description="Name of this process: its pod's name."
    )
    cluster: str = Field(
        default="gantry", min_length=1, max_length=127, description="Name of the cluster to serve."
    )
    controllers: list[str] = Field(
        min_length=1, description="host:port of every controller; the port defaults to 9878."
    )
    quorum_key_file: Path | None = Field(default=None, description=KEY_FILE_HELP)
    allow_unauthenticated: bool = Field(default=False, description=ALLOW_HELP)
    bind: str = Field(default="127.0.0.1", description="IP address to listen on.")
    first_port: Port = Field(
        default=FIRST_PORT,
        description="Port for clients of the group with the index 0; the others follow.",
    )
    ports: int = Field(
        default=PORTS,
        ge=1,
        le=PORTS_MAX,
        description="How many broker groups are served at most: one on each port. Groups with a "
        "higher index are not.",
    )
    store_port: Port = Field(
        default=STORE_PORT,
        description="store_port of the brokers. Where none listens at it, a group is served all "
        "the same: all requests are passed on to its master.",
    )
    connection_age_s: float = Field(
        default=120.0,
        ge=0,
        le=86_400,
        description="Seconds, give or take a quarter, after which a producer's connection is ended "
        "with an answer: it connects again, to another front perhaps. 0: never.",
    )
    tier_url: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="Object store of the groups' tiers, as brokers are told it: a group that has "
        "no master is served from there, to be read. Not set: it is not served.",
    )
    tier_shards: list[str] = Field(
        default=[],
        description="GROUP=UID: names of groups in the store, where the brokers' tier_shard is "
        "not the uid with which the group was declared, or nobody declared it.",
    )
    tier_endpoint: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="http(s)://HOST:PORT of an S3 service that is not AWS.",
    )
    tier_region: str | None = Field(
        default=None, min_length=1, max_length=64, description="Region of the bucket."
    )
    tier_credentials_dir: Path | None = Field(
        default=None,
        description="Directory with the files accessKeyId, secretAccessKey and perhaps "
        "sessionToken. Not set: keys from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    )
    http_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=HTTP_PORT, description="Port of probes, metrics and status; 0 picks a free one."
    )

    @field_validator("bind")
    @classmethod
    def _must_be_ip(cls, value: str) -> str:
        return checked_ip(value)

    @field_validator("tier_shards")
    @classmethod
    def _must_name_places(cls, value: list[str]) -> list[str]:
        named_places(value)
        return value

    @model_validator(mode="after")
    def _must_have_a_store(self) -> "FrontSettings":
        if self.tier_shards and self.tier_url is None:
            raise ValueError("tier_shards is set without tier_url: nothing would be read")
        return self

    @model_validator(mode="after")
    def _must_reach_masters(self) -> "FrontSettings":
        demand_ca(self)
        return self

    @field_validator("controllers")
    @classmethod
    def _must_be_addresses(cls, value: list[str]) -> list[str]:
        return controller_addresses(value)


def named_places(value: list[str]) -> dict[str, str]:
    """By group: its name in the store.

    Raises:
        ValueError: an item is not GROUP=UID, or a group comes twice.
    """
    found: dict[str, str] = {}
    for item in value:
        group, equals, uid = item.partition("=")
        if not (group and equals and uid):
            raise ValueError(f"{item!r} is not GROUP=UID, as in orders=7c9e6679-7425-40de")
        if group in found:
            raise ValueError(f"the group {group} is named twice")
        found[group] = uid
    return found
