"""The broker's settings: one frozen model, read from flags, ``GANTRY_*`` variables or TOML."""

from pathlib import Path
from typing import Annotated, Literal

from gantry_protocol.errors import ConfigError, ResolveError
from gantry_protocol.hosts import join_address, split_address
from gantry_protocol.process.config import Settings
from gantry_protocol.quorum_key import ALLOW_HELP, KEY_FILE_HELP
from pydantic import Field, field_validator, model_validator

from gantry_broker.clients.core.delay.levels import DEFAULT_LEVELS, DelayLevels
from gantry_broker.clients.core.transactions import Policy
from gantry_broker.clients.quotas import Quotas, parse_quotas
from gantry_broker.control.addresses import checked_ip, controller_addresses
from gantry_broker.host.port_map import GroupPort, port_map
from gantry_broker.retention.core.rules import Kept
from gantry_broker.retention.disk_space import Watermarks

REMOTING_PORT = 10911
HA_PORT = 10912
HTTP_PORT = 10913
FILE_BYTES_MIN = 64 * 1024  # of the commit log

Port = Annotated[int, Field(ge=0, le=65535)]


class BrokerSettings(Settings):
    """Everything a broker process can be told."""

    name: str = Field(
        default="broker-0", min_length=1, description="Name of this broker: its pod's name."
    )
    group: str | None = Field(
        default=None,
        min_length=1,
        max_length=127,
        description="Name of the broker group (brokerName), if this process hosts one.",
    )
    groups: list[str] = Field(
        default=[],
        description="Names of the broker groups, if this process hosts many: NAME, NAME:PORT or "
        "a range as in shard-[000-299]. The first listens at remoting_port, each further one at "
        "the next port; add new ones at the end.",
    )
    cluster: str = Field(
        default="gantry", min_length=1, max_length=127, description="Name of its cluster."
    )
    controllers: list[str] = Field(
        default=[],
        description="host:port of every controller; the port defaults to 9878. Needed unless store "
        "is set.",
    )
    store: list[str] = Field(
        default=[],
        description="host:port of the storage processes of the group, as their store_port says: "
        "clients are served from there, and nothing is kept on a disk here. Not set: this process "
        "keeps the log itself.",
    )
    store_port: Port | None = Field(
        default=None,
        description="Port at which a broker in another process is served from this store, and "
        "serves the clients; 0 picks a free one. Not set: clients are served here.",
    )
    quorum_key_file: Path | None = Field(default=None, description=KEY_FILE_HELP)
    allow_unauthenticated: bool = Field(default=False, description=ALLOW_HELP)
    bind: str = Field(default="127.0.0.1", description="IP address to listen on.")
    advertise: str | None = Field(
        default=None, description="IP address that others use; by default the one to listen on."
    )
    data_dir: Path = Field(default=Path("gantry-broker"), description="Directory of the data.")
    lock_wait_s: float = Field(
        default=10.0,
        ge=0,
        le=600,
        description="How long to wait for another process to leave the data directory.",
    )
    frozen_end_ms: int = Field(
        default=0,
        ge=0,
        le=60_000,
        description="How long the process may be stopped (SIGSTOP) before it is ended, so that its"
        " clients look elsewhere; 0 waits for ever.",
    )
    pod_uid: str | None = Field(
        default=None, max_length=128, description="uid of this process's pod, if it has one."
    )
    heartbeat_interval_ms: int = Field(
        default=500, ge=50, le=60_000, description="Between heartbeats to the controllers."
    )
    heartbeat_timeout_ms: int = Field(
        default=2_500,
        ge=200,
        le=600_000,
        description="Silence after which the controllers take this broker for gone.",
    )
    remoting_port: Port = Field(
        default=REMOTING_PORT,
        description="Port for clients, the first group's if there are many; 0 picks a free one.",
    )
    ha_port: Port = Field(
        default=HA_PORT, description="Port for other members of all groups; 0 picks a free one."
    )
    http_port: Port = Field(
        default=HTTP_PORT, description="Port of probes, metrics and status; 0 picks a free one."
    )
    log_segment_bytes: int = Field(
        default=1024 * 1024 * 1024,
        ge=FILE_BYTES_MIN,
        le=2**31,
        description="Size of one file of the commit log, at most a sixteenth of the disk and a "
        "quarter of retention_bytes: only whole files go.",
    )
    log_scrub_hours: float = Field(
        default=24.0,
        ge=0,
        le=8760,
        description="How often every byte of the commit log is read and compared with its "
        "checksums in the background; 0 for never.",
    )

    delay_levels: str = Field(
        default=DEFAULT_LEVELS,
        max_length=1024,
        description="How long messages of delay level 1, 2, … wait (ms, s, m, h, d); RocketMQ's "
        "messageDelayLevel. What is parked already keeps its delay.",
    )
    transaction_timeout_s: float = Field(
        default=6.0,
        gt=0,
        le=86_400,
        description="How old a half message is before its producer is asked how the transaction "
        "ends; RocketMQ's transactionTimeOut. A message may name its own.",
    )
    transaction_check_interval_s: float = Field(
        default=30.0,
        ge=0.1,
        le=86_400,
        description="Between two rounds of asking; RocketMQ's transactionCheckInterval.",
    )
    transaction_check_max: int = Field(
        default=15,
        ge=1,
        le=10_000,
        description="How often a producer is asked before its half message goes to "
        "TRANS_CHECK_MAX_TIME_TOPIC; RocketMQ's transactionCheckMax.",
    )
    offsets_kept_hours: int = Field(
        default=2160,
        ge=0,
        le=876_000,
        description="How long the offsets of a consumer group are kept that has no members and "
        "commits nothing, in hours that masters serve; 0 keeps them for ever.",
    )

    max_batch_messages: int = Field(
        default=16_384,
        ge=1,
        le=1_000_000,
        description="How many messages one batch may hold; beyond it a send is refused in words. "
        "Each takes about 1.5 µs during which nobody else is served.",
    )

    quotas: str | None = Field(
        default=None,
        max_length=65536,
        description='What tenants (namespaces of topics) may do, as JSON: {"perTenant": '
        '{"sendsPerSecond": 1000, "sendBytesPerSecond": 1e6, "readBytesPerSecond": 1e7}, '
        '"tenants": {"NAME": {…}}}; 0 or nothing is no limit. What is too fast waits.',
    )
    disk_refuse_percent: float = Field(
        default=90.0,
        gt=0,
        le=100,
        description="Share of the disk in use from which on messages are refused; reads go on.",
    )
    disk_take_percent: float = Field(
        default=85.0, ge=0, le=100, description="Share below which they are taken again."
    )
    disk_spare_bytes: int = Field(
        default=8 * 1024**3,
        ge=0,
        description="While so much is free nothing is refused, whatever share of the disk it is.",
    )

    retention_hours: float = Field(
        default=72.0,
        ge=0,
        le=1_000_000,
        description="Without a tier, files of the log go once all of their messages are older, "
        "consumed or not; RocketMQ's fileReservedTime. 0 keeps them whatever their age.",
    )
    retention_bytes: int = Field(
        default=0,
        ge=0,
        description="Without a tier, how much of the confirmed log is kept; what is older goes, "
        "consumed or not. 0 sets no bound.",
    )
    retention_when_full: Literal["delete", "refuse"] = Field(
        default="delete",
        description="Without a tier, what becomes of the oldest messages when disk_take_percent of "
        "the disk is in use. delete: they go before their time, a file at a time, and new ones are "
        "taken; RocketMQ's cleanFileForciblyEnable. refuse: they stay, and new ones are refused.",
    )

    tier_url: str | None = Field(
        default=None,
        max_length=1024,
        description="Object store of the tier: file:///DIRECTORY or s3://BUCKET/PREFIX; keys come "
        "from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. Not set: nothing is uploaded.",
    )
    tier_shard: str | None = Field(
        default=None, max_length=63, description="uid of the broker group, its name in the tier."
    )
    tier_endpoint: str | None = Field(
        default=None, max_length=1024, description="http(s)://host:port of an S3 service not AWS."
    )
    tier_region: str | None = Field(
        default=None, max_length=64, description="Region of the bucket."
    )
    tier_credentials_dir: Path | None = Field(
        default=None,
        description="Directory with the files accessKeyId, secretAccessKey and perhaps "
        "sessionToken, as a Secret is mounted; what they hold is used from the next call on. "
        "Not set: keys as tier_url says.",
    )
    tier_pack_bytes: int = Field(
        default=64 * 1024 * 1024,
        ge=4 * 1024,
        le=256 * 1024 * 1024,
        description="Bytes of the log in one object of the tier.",
    )
    tier_linger_ms: int = Field(
        default=30_000,
        ge=100,
        le=3_600_000,
        description="How long a confirmed message waits for its object to fill up.",
    )
    tier_retry_max_ms: int = Field(
        default=30_000,
        ge=200,
        le=3_600_000,
        description="Longest wait before a call that the tier's store refused or did not answer is "
        "made again; the waits before it are shorter.",
    )
    tier_local_bytes: int | None = Field(
        default=None,
        ge=0,
        description="How much of the confirmed log stays on the disk once the tier has it; older "
        "messages are read from the tier. Not set: everything stays.",
    )

    @field_validator("bind", "advertise")
    @classmethod
    def _must_be_ip(cls, value: str | None) -> str | None:
        return None if value is None else checked_ip(value)

    @field_validator("delay_levels")
    @classmethod
    def _must_be_delays(cls, value: str) -> str:
        DelayLevels.parse(value)
        return value

    @field_validator("controllers")
    @classmethod
    def _must_be_addresses(cls, value: list[str]) -> list[str]:
        return controller_addresses(value)

    @model_validator(mode="after")
    def _must_host_something(self) -> "BrokerSettings":
        if (self.group is None) == (not self.groups):
            raise ValueError(
                "group and groups are both set: name all groups in groups"
                if self.groups
                else "group is missing: name the broker group to host, or many with groups"
            )
        if self.hosts_many and self.tier_url is not None:
            raise ValueError(
                "tier_url is set with groups: a tier needs a process for its group alone, so set "
                "group"
            )
        _ = self.port_map
        return self

    @field_validator("store")
    @classmethod
    def _must_have_ports(cls, value: list[str]) -> list[str]:
        try:
            return [join_address(*split_address(one)) for one in value]
        except ResolveError as error:
            raise ValueError(str(error)) from error

    @model_validator(mode="after")
    def _must_keep_records_somewhere(self) -> "BrokerSettings":
        if not self.controllers and not self.store:
            raise ValueError("controllers is missing: name at least one controller")
        if self.store and self.store_port is not None:
            raise ValueError("store and store_port are both set: a process serves, or is served")
        if self.hosts_many and (self.store or self.store_port is not None):
            raise ValueError("store and store_port are for one group: set group, not groups")
        return self

    @model_validator(mode="after")
    def _must_name_its_place(self) -> "BrokerSettings":
        if (self.tier_url is None) != (self.tier_shard is None):
            given, missing = ("tier_url", "tier_shard")[:: 1 if self.tier_url else -1]
            raise ValueError(f"{given} is set without {missing}: set both, or none")
        if self.tier_local_bytes is not None and self.tier_url is None:
            raise ValueError("tier_local_bytes is set without tier_url: nothing would be kept")
        return self

    @field_validator("quotas")
    @classmethod
    def _must_be_quotas(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                parse_quotas(value)
            except ConfigError as error:
                raise ValueError(str(error)) from error
        return value

    @model_validator(mode="after")
    def _must_take_below_refusing(self) -> "BrokerSettings":
        if self.disk_take_percent >= self.disk_refuse_percent:
            raise ValueError(
                f"disk_take_percent {self.disk_take_percent:g} must be below "
                f"disk_refuse_percent {self.disk_refuse_percent:g}"
            )
        return self

    @property
    def parsed_quotas(self) -> Quotas | None:
        """The quotas; None where nobody has one."""
        return None if self.quotas is None else parse_quotas(self.quotas)

    @property
    def kept(self) -> Kept:
        """How much of the log is kept where there is no tier."""
        return Kept(
            self.retention_hours or None,
            self.retention_bytes or None,
            gives_way=self.retention_when_full == "delete",
        )

    @property
    def watermarks(self) -> Watermarks:
        """When a disk is nearly full."""
        return Watermarks(self.disk_refuse_percent, self.disk_take_percent, self.disk_spare_bytes)

    @model_validator(mode="after")
    def _must_outlast_a_heartbeat(self) -> "BrokerSettings":
        if self.heartbeat_timeout_ms < 2 * self.heartbeat_interval_ms:
            raise ValueError(
                f"heartbeat_timeout_ms {self.heartbeat_timeout_ms} must be at least twice "
                f"heartbeat_interval_ms {self.heartbeat_interval_ms}"
            )
        return self

    @property
    def transaction_policy(self) -> Policy:
        """When producers are asked how their transactions end."""
        return Policy(
            timeout_ms=int(self.transaction_timeout_s * 1000),
            interval_ms=int(self.transaction_check_interval_s * 1000),
            checks_max=self.transaction_check_max,
        )

    @property
    def advertised(self) -> str:
        """The address that others use."""
        return self.bind if self.advertise is None else self.advertise

    @property
    def hosts_many(self) -> bool:
        """Whether the data directory is laid out for many groups, even if it holds one yet."""
        return bool(self.groups)

    @property
    def port_map(self) -> list[GroupPort]:
        """The groups and their ports."""
        if self.group is not None:
            return [GroupPort(self.group, self.remoting_port)]
        return port_map(self.groups, self.remoting_port, (self.ha_port, self.http_port))

    @property
    def identity(self) -> dict[str, str]:
        """Whose data directory this is; each group's own subdirectory says whose that is."""
        if self.group is not None:
            return {"cluster": self.cluster, "group": self.group}
        return {"cluster": self.cluster, "holds": "groups"}
