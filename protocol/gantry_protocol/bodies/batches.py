"""Bodies of Heartbeats (31003) and GetChangedGroups (31004): all groups of a process at once.

A process that holds hundreds of groups would send hundreds of heartbeats (904) and polls (1004) a
second, each with its header as text. Here they are rows of a JSON array, and what all rows share is
said once. A row means exactly what the single request means; BrokerHeartbeat and GetReplicaInfo
stay what Java brokers send.
"""

from typing import Annotated

import google_crc32c
import msgspec

from gantry_protocol.command import Int32, Int64, RemotingCommand
from gantry_protocol.headers.controller import (
    LOWEST_ELECTION_PRIORITY,
    BrokerHeartbeatRequestHeader,
    WireBrokerId,
    WireEpoch,
    WireOffset,
)

BATCH_MAX = 500
"""Groups in one message, which has then about 60 kB; a process with more sends several."""

Name = Annotated[str, msgspec.Meta(max_length=255)]


class TierRow(msgspec.Struct, frozen=True, array_like=True):
    """The tier fields of BrokerHeartbeat, in their order."""

    state: str
    epoch: WireEpoch | None = None
    committed_offset: WireOffset | None = None
    lag_ms: Int64 | None = None
    reason: str | None = None
    version: Int64 | None = None


class DrainRow(msgspec.Struct, frozen=True, array_like=True):
    """The drain fields of BrokerHeartbeat, in their order."""

    done: bool
    unread: Int64 | None = None
    parked: Int64 | None = None
    transactions: Int64 | None = None
    waits_for: str | None = None


class HeartbeatRow(msgspec.Struct, frozen=True, array_like=True):
    """One group's heartbeat; fields as in 904."""

    broker_name: Name
    broker_addr: Name
    broker_id: WireBrokerId
    incarnation: Name
    epoch: WireEpoch
    max_offset: WireOffset
    confirm_offset: WireOffset
    log_start: WireOffset | None = None
    draining: bool = False
    election_priority: Int32 = LOWEST_ELECTION_PRIORITY
    tier: TierRow | None = None
    confirm_epoch: WireEpoch | None = None
    disk_stuck: str | None = None
    log_damage: str | None = None
    drain: DrainRow | None = None
    last_write_ms: Int64 | None = None
    first_write_ms: Int64 | None = None
    settings: str | None = None
    settings_refused: str | None = None


class HeartbeatsBody(msgspec.Struct, frozen=True, rename="camel"):
    """Heartbeats (31003), oneway, to every controller: the heartbeats of one process.

    Attributes:
        rows: at most ``BATCH_MAX``.
    """

    cluster_name: Name
    heartbeat_timeout_ms: Int64
    rows: Annotated[list[HeartbeatRow], msgspec.Meta(max_length=BATCH_MAX)]
    pod_uid: Name | None = None


class LookRow(msgspec.Struct, frozen=True, array_like=True):
    """One group in GetChangedGroups.

    Attributes:
        digest: ``answer_digest`` of the answer to GetReplicaInfo that the sender holds; 0 for none.
    """

    broker_name: Name
    broker_id: WireBrokerId
    incarnation: Name
    digest: int


class LooksBody(msgspec.Struct, frozen=True, rename="camel"):
    """GetChangedGroups (31004): groups, with digests of the answers that the sender holds."""

    cluster_name: Name
    rows: Annotated[list[LookRow], msgspec.Meta(max_length=BATCH_MAX)]


class ChangedBody(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to GetChangedGroups: names of groups to ask GetReplicaInfo about."""

    changed: list[str]


def answer_digest(answer: RemotingCommand) -> int:
    """The digest of an answer to GetReplicaInfo; never 0.

    Equal answers have equal digests whoever computes them. Two that differ have different ones but
    for one case in four billion, and then the next change is noticed.
    """
    ext = sorted((answer.ext or {}).items())
    crc = google_crc32c.extend(google_crc32c.value(msgspec.json.encode(ext)), answer.body)
    return int(crc) or 1


def heartbeat_row(header: BrokerHeartbeatRequestHeader) -> HeartbeatRow:
    """The row that says what ``header`` says, but for what all rows share."""
    assert header.broker_id is not None, "who has no id yet sends no heartbeat"
    tier = None
    if header.tier_state is not None:
        tier = TierRow(
            header.tier_state,
            header.tier_epoch,
            header.tier_committed_offset,
            header.tier_lag_ms,
            header.tier_reason,
            header.tier_version,
        )
    drain = None
    if header.drain_done is not None:
        drain = DrainRow(
            header.drain_done,
            header.drain_unread,
            header.drain_parked,
            header.drain_transactions,
            header.drain_waits_for,
        )
    return HeartbeatRow(
        broker_name=header.broker_name,
        broker_addr=header.broker_addr,
        broker_id=header.broker_id,
        incarnation=header.incarnation or "",
        epoch=header.epoch,
        max_offset=header.max_offset,
        confirm_offset=header.confirm_offset,
        log_start=header.log_start,
        draining=header.draining,
        election_priority=header.election_priority,
        tier=tier,
        confirm_epoch=header.confirm_epoch,
        disk_stuck=header.disk_stuck,
        log_damage=header.log_damage,
        drain=drain,
        last_write_ms=header.last_write_ms,
        first_write_ms=header.first_write_ms,
        settings=header.settings,
        settings_refused=header.settings_refused,
    )


def heartbeat_header(body: HeartbeatsBody, row: HeartbeatRow) -> BrokerHeartbeatRequestHeader:
    """The BrokerHeartbeat that ``row`` stands for."""
    tier = row.tier
    drain = row.drain or DrainRow(done=False)
    return BrokerHeartbeatRequestHeader(
        cluster_name=body.cluster_name,
        broker_addr=row.broker_addr,
        broker_name=row.broker_name,
        broker_id=row.broker_id,
        epoch=row.epoch,
        max_offset=row.max_offset,
        confirm_offset=row.confirm_offset,
        heartbeat_timeout_ms=body.heartbeat_timeout_ms,
        election_priority=row.election_priority,
        incarnation=row.incarnation,
        draining=row.draining,
        pod_uid=body.pod_uid,
        log_start=row.log_start,
        confirm_epoch=row.confirm_epoch,
        tier_state=None if tier is None else tier.state,
        tier_epoch=None if tier is None else tier.epoch,
        tier_committed_offset=None if tier is None else tier.committed_offset,
        tier_lag_ms=None if tier is None else tier.lag_ms,
        tier_reason=None if tier is None else tier.reason,
        tier_version=None if tier is None else tier.version,
        disk_stuck=row.disk_stuck,
        log_damage=row.log_damage,
        drain_done=None if row.drain is None else drain.done,
        drain_unread=drain.unread,
        drain_parked=drain.parked,
        drain_transactions=drain.transactions,
        drain_waits_for=drain.waits_for,
        last_write_ms=row.last_write_ms,
        first_write_ms=row.first_write_ms,
        settings=row.settings,
        settings_refused=row.settings_refused,
    )
