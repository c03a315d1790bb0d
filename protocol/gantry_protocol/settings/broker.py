"""Settings of a broker, as people make them in `spec.config`, `spec.tier` and `spec.retention`."""

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from gantry_protocol.errors import ConfigError
from gantry_protocol.process.config import Settings
from gantry_protocol.settings import defaults
from gantry_protocol.settings.delays import parse_delays
from gantry_protocol.settings.logs import lower
from gantry_protocol.settings.quotas import parse_quotas
from gantry_protocol.settings.tracing import TracedSends

FILE_BYTES_MIN = 64 * 1024  # of the commit log


class BrokerTuning(TracedSends):
    """The working of a broker, whoever it is; all of it in `spec.config` of a BrokerGroup."""

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
    access_log: Annotated[Literal["denied", "all"], BeforeValidator(lower)] = Field(
        default="denied",
        description="Which decisions about requests of users are logged: denied ones, at most one "
        "a second for each user with the number of those between, or all, one line each.",
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
        default=defaults.DELAY_LEVELS,
        max_length=1024,
        description="How long messages of delay level 1, 2, … wait (ms, s, m, h, d); RocketMQ's "
        "messageDelayLevel. What is parked already keeps its delay.",
    )
    transaction_timeout_s: float = Field(
        default=float(defaults.TRANSACTION_TIMEOUT_S),
        gt=0,
        le=86_400,
        description="How old a half message is before its producer is asked how the transaction "
        "ends; RocketMQ's transactionTimeOut. A message may name its own.",
    )
    transaction_check_interval_s: float = Field(
        default=float(defaults.TRANSACTION_CHECK_INTERVAL_S),
        ge=0.1,
        le=86_400,
        description="Between two rounds of asking; RocketMQ's transactionCheckInterval.",
    )
    transaction_check_max: int = Field(
        default=defaults.TRANSACTION_CHECK_MAX,
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
    drain_grace_s: float = Field(
        default=60.0,
        ge=0,
        le=3600,
        description="How long a group that is being drained still takes messages, so that clients "
        "find other groups in their routes first: they ask every 30 s. Without producers it takes "
        "none after 2 s.",
    )
    max_batch_messages: int = Field(
        default=16_384,
        ge=1,
        le=1_000_000,
        description="How many messages one batch may hold; beyond it a send is refused in words. "
        "Each takes about 1.5 µs during which nobody else is served.",
    )
    repeat_window_s: int = Field(
        default=60,
        ge=0,
        le=3600,
        description="How long a group knows the unique keys of its newest messages, so that a send "
        "that is repeated after a lost answer is stored once; 0 stores every send.",
    )
    repeat_keys: int = Field(
        default=262_144,
        ge=1024,
        le=16_777_216,
        description="How many such keys are known at most, 130 bytes of memory each; groups of one "
        "process have equal parts of them.",
    )
    quotas: str | None = Field(
        default=None,
        max_length=65536,
        description='What tenants (namespaces of topics) may do, as JSON: {"perTenant": '
        '{"sendsPerSecond": 1000, "sendBytesPerSecond": 1e6, "readBytesPerSecond": 1e7}, '
        '"tenants": {"NAME": {…}}}; 0 or nothing is no limit. What is too fast waits.',
    )
    recorded_bytes: int = Field(
        default=defaults.RECORDED_BYTES,
        ge=0,
        le=32 * 1024**2,
        description="Memory for the last steps of the replica cores, in equal parts for the groups "
        "of a process, which kubectl gantry report puts into its bundle and kubectl gantry replay "
        "takes again. At least 65536 for each group, or none are kept; 262144 are better. 0: none "
        "are kept.",
    )
    disk_refuse_percent: float = Field(
        default=defaults.DISK_REFUSE_PERCENT,
        gt=0,
        le=100,
        description="Share of the disk in use from which on messages are refused; reads go on.",
    )
    disk_take_percent: float = Field(
        default=defaults.DISK_TAKE_PERCENT,
        ge=0,
        le=100,
        description="Share below which they are taken again.",
    )
    disk_spare_bytes: int = Field(
        default=defaults.DISK_SPARE_BYTES,
        ge=0,
        description="While so much is free nothing is refused, whatever share of the disk it is.",
    )

    @field_validator("delay_levels")
    @classmethod
    def _must_be_delays(cls, value: str) -> str:
        parse_delays(value)
        return value

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
    def _must_take_below_refusing(self) -> "BrokerTuning":
        if self.disk_take_percent >= self.disk_refuse_percent:
            raise ValueError(
                f"disk_take_percent {self.disk_take_percent:g} must be below "
                f"disk_refuse_percent {self.disk_refuse_percent:g}"
            )
        return self

    @model_validator(mode="after")
    def _must_outlast_a_heartbeat(self) -> "BrokerTuning":
        if self.heartbeat_timeout_ms < 2 * self.heartbeat_interval_ms:
            raise ValueError(
                f"heartbeat_timeout_ms {self.heartbeat_timeout_ms} must be at least twice "
                f"heartbeat_interval_ms {self.heartbeat_interval_ms}"
            )
        return self


class RetentionSettings(Settings):
    """The time for which messages stay on the disk where there is no tier; `spec.retention`."""

    retention_hours: float = Field(
        default=72.0,
        ge=0,
        le=1_000_000,
        description="Without a tier, files of the log go once all of their messages are older, "
        "like RocketMQ's fileReservedTime; 0 keeps them whatever their age.",
    )
    retention_bytes: int = Field(
        default=0,
        ge=0,
        description="Without a tier, bytes of the confirmed log that each replica keeps, if this "
        "is not 0; whole files go, so up to one more stays.",
    )
    retention_when_full: Annotated[Literal["delete", "refuse"], BeforeValidator(lower)] = Field(
        default="delete",
        description="Without a tier, what becomes of the oldest messages when a volume is nearly "
        "full (85 %). Delete: they go before their time, and new ones are taken. Refuse: they "
        "stay, and new ones are refused with code 14.",
    )


class TierSettings(Settings):
    """The object store that the master uploads the confirmed log to; `spec.tier`."""

    tier_url: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="Object store of the tier: file:///DIRECTORY or s3://BUCKET/PREFIX; keys come "
        "from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. Not set: nothing is uploaded.",
    )
    tier_shard: str | None = Field(
        default=None,
        max_length=63,
        description="uid of the broker group, its name in the tier. Of many groups in a process "
        "each one's name is this, a dot and its own name.",
    )
    tier_owner: str | None = Field(
        default=None,
        max_length=63,
        description="uid of the broker group, where tier_shard is that of one that is gone: an "
        "empty volume is filled from that tier, and the group goes on in it. One group only.",
    )
    tier_former_owner: str | None = Field(
        default=None,
        max_length=63,
        description="uid of the group that is gone, where that one had taken the tier over itself. "
        "Not set: tier_shard.",
    )
    tier_endpoint: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="http(s)://HOST:PORT of an S3 service that is not AWS, for example "
        "https://minio.storage.svc:9000. It must lead to the same bucket at all times.",
    )
    tier_region: str | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="Region of the bucket, for example eu-central-1.",
    )
    tier_credentials_dir: Path | None = Field(
        default=None,
        description="Directory with the files accessKeyId, secretAccessKey and perhaps "
        "sessionToken, as a Secret is mounted; what they hold is used from the next call on. "
        "Not set: keys as tier_url says.",
    )
    tier_pack_bytes: int = Field(
        default=defaults.TIER_PACK_BYTES,
        ge=4 * 1024,
        le=256 * 1024 * 1024,
        description="Bytes of the log in one object: large ones are cheap to write and to list, "
        "small ones are quick to read from. While it makes one, the master needs six times as much "
        "memory besides its own.",
    )
    tier_linger_ms: int = Field(
        default=defaults.TIER_LINGER_MS,
        ge=100,
        le=3_600_000,
        description="How long a confirmed message waits for its object to fill up, in "
        "milliseconds: about how far the tier lies behind a quiet group.",
    )
    tier_retry_max_ms: int = Field(
        default=defaults.TIER_RETRY_MAX_MS,
        ge=200,
        le=3_600_000,
        description="Longest wait, in milliseconds, before the uploader asks a store again that "
        "refused or did not answer; its first waits are shorter.",
    )
    tier_local_bytes: int | None = Field(
        default=None,
        ge=0,
        description="Bytes of the confirmed log that each replica keeps on its volume; older "
        "messages are read from the tier. Whole files of the log go (log_segment_bytes, 1 GiB "
        "unless config says otherwise), so up to one more stays, and nothing goes that is not in "
        "the tier.",
    )


_LIVE_AT_FIRST: Final = frozenset(
    {
        "access_log",
        "disk_refuse_percent",
        "disk_spare_bytes",
        "disk_take_percent",
        "drain_grace_s",
        "log_level",
        "max_batch_messages",
        "offsets_kept_hours",
        "quotas",
        "retention_bytes",
        "retention_hours",
        "retention_when_full",
        "transaction_check_interval_s",
        "transaction_check_max",
        "transaction_timeout_s",
    }
)
LIVE_SINCE: Final[dict[str, frozenset[str]]] = {
    "known": _LIVE_AT_FIRST,
    "tracing": _LIVE_AT_FIRST | {"tracing_endpoint", "tracing_ratio"},
}
"""What images apply while running, by a word for those that do; the newest is the last.

The operator notes the word with the image that it gives a group. When ``LIVE`` grows, another one
is added here: an image from before would not apply the new ones.
"""

LIVE: Final = LIVE_SINCE["tracing"]
"""Settings that a broker applies while it runs, when its configuration file says another value.

Each is read anew by every decision that it is for, so that none rests on two values, and members of
a group may have different ones for a while: of none does the log, an epoch or an answer of another
member depend. Never here: places, ports, names, the format of what is stored or replicated, and
times that two processes rest on, such as those of heartbeats.
"""
