"""Messages to the controllers and views of the group out of their answers; no state, no sockets.

A view is what one answer says: master, epoch, set. Answers that do not know a master (1003 before
the first election) give none; GetReplicaInfo always does. Values that an older controller leaves
out keep their last known value (``Known``).
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from gantry_protocol.bodies import ElectMasterBody, SyncStateSetBody, decode_body, encode_body
from gantry_protocol.bodies.batches import HeartbeatsBody, LookRow, LooksBody, heartbeat_row
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import WireError
from gantry_protocol.headers.codec import from_ext, to_ext
from gantry_protocol.headers.controller import (
    LOWEST_ELECTION_PRIORITY,
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    BrokerHeartbeatRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    NotifyBrokerRoleChangedRequestHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)
from gantry_protocol.process.settings_word import SettingsWord
from gantry_protocol.types import BrokerId, Epoch, Offset

from gantry_broker.clients.core.drain import DrainReport
from gantry_broker.replica.effects import HandOver, Propose
from gantry_broker.replica.events import Adopted
from gantry_broker.replica.values import ControllerView
from gantry_broker.tier.core.report import TierReport


class Speaker(NamedTuple):
    """The sender of a request.

    Attributes:
        address: ``ip:port`` of our remoting service.
        ha_port: of our replication listener, on the same ip.
        priority: among members of the same (epoch, end) the one with the lowest is elected.
    """

    cluster: str
    group: str
    address: str
    ha_port: int
    incarnation: str
    pod_uid: str | None
    priority: int = LOWEST_ELECTION_PRIORITY


class TakeoverReport(NamedTuple):
    """Store times, ms: of the newest record of the masters before, and of a master's own first."""

    last_ms: int | None
    first_ms: int | None


class Report(NamedTuple):
    """The state of our log in a heartbeat or a registration.

    Attributes:
        confirm_epoch: of the last byte below ``confirm``; None while there is none.
        acted_epoch: the newest one we have taken part in; in registrations only.
        tier: of our tier, in heartbeats only; None without one.
        disk_stuck: why a disk that is nearly full takes nothing more; empty while it does.
        log_damage: what of the log is damaged and was not repaired; empty while nothing is.
        drain: of the group, by its master; None where there is none.
        takeover: by a master.
        settings: those that may change while running.
    """

    epoch: Epoch
    log_start: Offset
    end: Offset
    confirm: Offset
    draining: bool
    confirm_epoch: Epoch | None = None
    acted_epoch: Epoch | None = None
    tier: TierReport | None = None
    disk_stuck: str = ""
    log_damage: str = ""
    drain: DrainReport | None = None
    takeover: TakeoverReport | None = None
    settings: SettingsWord = SettingsWord()


class Known(msgspec.Struct, frozen=True):
    """Properties of the group, kept while an answer leaves them out.

    Attributes:
        drain_began_ms: the group is drained since then; None: it is not.
        preferred: as of ``ControllerView``; GetReplicaInfo alone tells it.
    """

    replicas: int = 0
    min_in_sync: int = 1
    group_uid: str = ""
    topics_version: int = 0
    subscriptions_version: int = 0
    drain_began_ms: int | None = None
    preferred: tuple[frozenset[BrokerId], ...] = ()


# ---- requests


def heartbeat(
    me: Speaker, broker_id: BrokerId, report: Report, *, timeout_ms: int
) -> BrokerHeartbeatRequestHeader:
    """The header of a heartbeat."""
    tier, drain, takeover = report.tier, report.drain, report.takeover
    return BrokerHeartbeatRequestHeader(
        cluster_name=me.cluster,
        broker_addr=me.address,
        broker_name=me.group,
        broker_id=broker_id,
        epoch=report.epoch,
        max_offset=report.end,
        confirm_offset=report.confirm,
        heartbeat_timeout_ms=timeout_ms,
        election_priority=me.priority,
        incarnation=me.incarnation,
        draining=report.draining,
        pod_uid=me.pod_uid,
        log_start=report.log_start,
        confirm_epoch=report.confirm_epoch,
        tier_state=None if tier is None else tier.state,
        tier_epoch=None if tier is None else tier.epoch,
        tier_committed_offset=None if tier is None else tier.committed_offset,
        tier_lag_ms=None if tier is None else tier.lag_ms,
        tier_reason=None if tier is None else tier.reason or None,
        tier_version=None if tier is None else tier.version,
        disk_stuck=report.disk_stuck or None,
        log_damage=report.log_damage or None,
        drain_done=None if drain is None else drain.done,
        drain_unread=None if drain is None else drain.unread,
        drain_parked=None if drain is None else drain.parked,
        drain_transactions=None if drain is None else drain.transactions,
        drain_waits_for=None if drain is None else drain.waits_for or None,
        last_write_ms=None if takeover is None else takeover.last_ms,
        first_write_ms=None if takeover is None else takeover.first_ms,
        settings=report.settings.applied or None,
        settings_refused=report.settings.refused or None,
    )


def heartbeat_command(header: BrokerHeartbeatRequestHeader) -> RemotingCommand:
    """BrokerHeartbeat (904)."""
    return request(RequestCode.BROKER_HEARTBEAT, to_ext(header), oneway=True)


def heartbeats_body(
    cluster: str,
    headers: Sequence[BrokerHeartbeatRequestHeader],
    *,
    timeout_ms: int,
    pod_uid: str | None,
) -> bytes:
    """The body of Heartbeats that says what all ``headers`` say; made once for all controllers."""
    rows = [heartbeat_row(header) for header in headers]
    return encode_body(HeartbeatsBody(cluster, timeout_ms, rows, pod_uid))


def heartbeats_command(body: bytes) -> RemotingCommand:
    """Heartbeats (31003)."""
    return request(RequestCode.GANTRY_HEARTBEATS, body=body, oneway=True)


def looks(cluster: str, rows: Sequence[LookRow]) -> RemotingCommand:
    """GetChangedGroups (31004)."""
    body = encode_body(LooksBody(cluster, list(rows)))
    return request(RequestCode.GANTRY_GET_CHANGED_GROUPS, body=body)


def next_id(me: Speaker) -> RemotingCommand:
    """GetNextBrokerId (1012)."""
    header = GetNextBrokerIdRequestHeader(broker_name=me.group, cluster_name=me.cluster)
    return request(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, to_ext(header))


def apply_id(me: Speaker, broker_id: BrokerId, check_code: str) -> RemotingCommand:
    """ApplyBrokerId (1013)."""
    header = ApplyBrokerIdRequestHeader(
        broker_name=me.group,
        applied_broker_id=broker_id,
        register_check_code=check_code,
        cluster_name=me.cluster,
    )
    return request(RequestCode.CONTROLLER_APPLY_BROKER_ID, to_ext(header))


def register(me: Speaker, broker_id: BrokerId, check_code: str, report: Report) -> RemotingCommand:
    """RegisterBroker (1003)."""
    header = RegisterBrokerToControllerRequestHeader(
        broker_name=me.group,
        broker_id=broker_id,
        broker_address=me.address,
        cluster_name=me.cluster,
        incarnation=me.incarnation,
        pod_uid=me.pod_uid,
        ha_port=me.ha_port,
        last_epoch=report.epoch,
        max_offset=report.end,
        election_priority=me.priority,
        acted_epoch=report.acted_epoch,
        register_check_code=check_code or None,
    )
    return request(RequestCode.CONTROLLER_REGISTER_BROKER, to_ext(header))


def replica_info(me: Speaker, broker_id: BrokerId | None) -> RemotingCommand:
    """GetReplicaInfo (1004). A controller refuses once another process of ours is registered."""
    header = GetReplicaInfoRequestHeader(
        broker_name=me.group,
        cluster_name=me.cluster,
        broker_id=broker_id,
        incarnation=me.incarnation,
    )
    return request(RequestCode.CONTROLLER_GET_REPLICA_INFO, to_ext(header))


def alter(me: Speaker, broker_id: BrokerId, proposal: Propose) -> RemotingCommand:
    """AlterSyncStateSet (1001)."""
    header = AlterSyncStateSetRequestHeader(
        broker_name=me.group,
        master_broker_id=broker_id,
        master_epoch=proposal.master_epoch,
        cluster_name=me.cluster,
        incarnation=me.incarnation,
    )
    body = SyncStateSetBody(sorted(proposal.sync_state_set), Epoch(proposal.sync_state_set_epoch))
    return request(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, to_ext(header), encode_body(body))


def elect(me: Speaker, broker_id: BrokerId) -> RemotingCommand:
    """ElectMaster (1002): see to it that there is a master."""
    header = ElectMasterRequestHeader(
        broker_name=me.group,
        cluster_name=me.cluster,
        broker_id=broker_id,
        incarnation=me.incarnation,
    )
    return request(RequestCode.CONTROLLER_ELECT_MASTER, to_ext(header))


def hand_over(me: Speaker, effect: HandOver) -> RemotingCommand:
    """ElectMaster (1002), designated, by compare on our own epoch.

    It says which process asks: a person who moves a mastership says none, and what a person moved
    stays there for a while.
    """
    header = ElectMasterRequestHeader(
        broker_name=me.group,
        cluster_name=me.cluster,
        broker_id=effect.target,
        designate_elect=True,
        master_epoch=effect.epoch,
        incarnation=me.incarnation,
    )
    return request(RequestCode.CONTROLLER_ELECT_MASTER, to_ext(header))


# ---- answers


class ViewAnswer(NamedTuple):
    """The contents of an answer or notification: a view, if it had one, and what is known since."""

    view: ControllerView | None
    known: Known


def read_registration(response: RemotingCommand, known: Known) -> ViewAnswer:
    """The answer to RegisterBroker.

    Raises:
        WireError: it is malformed.
    """
    header = from_ext(RegisterBrokerToControllerResponseHeader, response.ext)
    known = _learn(
        known, header.replicas, header.min_in_sync_replicas, header.group_uid, header.topics_version
    )
    known = _learn_settings(known, header.subscriptions_version)
    if header.master_epoch is None:
        return ViewAnswer(None, known)
    body = decode_body(SyncStateSetBody, response.body)
    return ViewAnswer(_view(header, known, body, header.master_epoch), known)


def read_replica_info(response: RemotingCommand, known: Known) -> ViewAnswer:
    """The answer to GetReplicaInfo.

    Raises:
        WireError: it is malformed.
    """
    header = from_ext(GetReplicaInfoResponseHeader, response.ext)
    known = _learn(
        known, header.replicas, header.min_in_sync_replicas, header.group_uid, header.topics_version
    )
    known = _learn_settings(known, header.subscriptions_version)
    known = msgspec.structs.replace(
        known,
        drain_began_ms=header.drain_began_ms,
        preferred=parse_places(header.preferred_ids),
    )
    body = decode_body(SyncStateSetBody, response.body)
    view = _view(header, known, body, header.master_epoch)
    return ViewAnswer(msgspec.structs.replace(view, draining=parse_ids(header.draining_ids)), known)


def read_election(response: RemotingCommand, known: Known) -> ViewAnswer:
    """The answer to ElectMaster; only 0 and 2011 tell anything.

    Raises:
        WireError: it is malformed.
    """
    if response.code not in (
        ResponseCode.SUCCESS,
        ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
    ):
        return ViewAnswer(None, known)
    header = from_ext(ElectMasterResponseHeader, response.ext)
    known = _learn(known, header.replicas, header.min_in_sync_replicas, None, None)
    if header.master_epoch is None:
        return ViewAnswer(None, known)
    members = decode_body(ElectMasterBody, response.body).sync_state_set
    body = SyncStateSetBody(members, header.sync_state_set_epoch or Epoch(0))
    return ViewAnswer(_view(header, known, body, header.master_epoch), known)


def read_notice(notice: RemotingCommand, known: Known) -> ViewAnswer:
    """NotifyBrokerRoleChanged (1008).

    Raises:
        WireError: it is malformed.
    """
    header = from_ext(NotifyBrokerRoleChangedRequestHeader, notice.ext)
    known = _learn(known, header.replicas, header.min_in_sync_replicas, None, None)
    body = decode_body(SyncStateSetBody, notice.body)
    return ViewAnswer(_view(header, known, body, header.master_epoch), known)


def read_alteration(response: RemotingCommand) -> Adopted:
    """The answer 0 to AlterSyncStateSet.

    Raises:
        WireError: it is malformed.
    """
    body = decode_body(SyncStateSetBody, response.body)
    return Adopted(frozenset(body.sync_state_set), body.sync_state_set_epoch)


def read_next_id(response: RemotingCommand) -> BrokerId | None:
    """The answer 0 to GetNextBrokerId; None when it is malformed."""
    try:
        return from_ext(GetNextBrokerIdResponseHeader, response.ext).next_broker_id
    except WireError:
        return None


def notice_group(notice: RemotingCommand) -> tuple[str | None, str | None]:
    """The group of NotifyBrokerRoleChanged; None where it does not say.

    Raises:
        WireError: it is malformed.
    """
    header = from_ext(NotifyBrokerRoleChangedRequestHeader, notice.ext)
    return header.cluster_name, header.broker_name


def parse_ids(text: str | None) -> frozenset[BrokerId]:
    """``1;2`` as ids; what is no number is nobody."""
    words = (text or "").split(";")
    return frozenset(BrokerId(int(word)) for word in words if word.isascii() and word.isdigit())


def parse_places(text: str | None) -> tuple[frozenset[BrokerId], ...]:
    """``3;1/2`` as ids by place, the best one first."""
    return tuple(parse_ids(place) for place in text.split("/")) if text else ()


_Header = (
    RegisterBrokerToControllerResponseHeader
    | GetReplicaInfoResponseHeader
    | ElectMasterResponseHeader
    | NotifyBrokerRoleChangedRequestHeader
)


def _view(header: _Header, known: Known, body: SyncStateSetBody, epoch: Epoch) -> ControllerView:
    return ControllerView(
        master_epoch=epoch,
        master_id=header.master_broker_id,
        master_incarnation=header.master_incarnation or "",
        master_address=header.master_address or "",
        master_ha_address=header.master_ha_address or "",
        sync_state_set=frozenset(body.sync_state_set),
        sync_state_set_epoch=body.sync_state_set_epoch,
        min_in_sync=known.min_in_sync,
        replicas=known.replicas,
        fenced=parse_ids(header.fenced_ids),
        preferred=known.preferred,
    )


def _learn(
    known: Known,
    replicas: int | None,
    min_in_sync: int | None,
    group_uid: str | None,
    topics_version: int | None,
) -> Known:
    return Known(
        replicas=known.replicas if replicas is None else replicas,
        min_in_sync=known.min_in_sync if min_in_sync is None else min_in_sync,
        group_uid=known.group_uid if group_uid is None else group_uid,
        topics_version=max(known.topics_version, topics_version or 0),
        subscriptions_version=known.subscriptions_version,
        drain_began_ms=known.drain_began_ms,
        preferred=known.preferred,
    )


def _learn_settings(known: Known, version: int | None) -> Known:
    newest = max(known.subscriptions_version, version or 0)
    return msgspec.structs.replace(known, subscriptions_version=newest)
