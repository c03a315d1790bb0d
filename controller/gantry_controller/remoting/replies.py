"""The controller's answers: upstream's fields and bodies, plus our extension fields.

Java reads several of them unchecked. The body is there on every success of AlterSyncStateSet,
ElectMaster (also on 2011), RegisterBroker and GetReplicaInfo; of the four master fields of
ElectMaster and RegisterBroker there are all or none; GetReplicaInfo always has ``masterEpoch``.
"""

from collections.abc import Iterable
from typing import NamedTuple

from gantry_protocol.bodies import (
    BrokerMemberGroup,
    BrokerReplicasInfo,
    ElectMasterBody,
    ReplicaIdentity,
    ReplicasInfo,
    SyncStateSetBody,
    encode_body,
)
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.headers import to_ext
from gantry_protocol.headers.consumers import ConsumersChangedHeader
from gantry_protocol.headers.controller import (
    AlterSyncStateSetResponseHeader,
    ElectMasterResponseHeader,
    GetReplicaInfoResponseHeader,
    NotifyBrokerRoleChangedRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)
from gantry_protocol.types import BrokerId, Epoch

from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import BrokerGroup


class Versions(NamedTuple):
    """Of a group's tables, so that its master knows when to read them; and its drain, if any."""

    topics: int
    subscriptions: int
    drain_began_ms: int | None = None


def sync_state_set_body(group: BrokerGroup) -> bytes:
    """The set and its epoch."""
    body = SyncStateSetBody(list(group.sync_state_set), Epoch(group.sync_state_set_epoch))
    return encode_body(body)


def alter_reply(to: RemotingCommand, result: Result) -> RemotingCommand:
    """AlterSyncStateSet (1001)."""
    if not result.ok or result.group is None:
        refusal = AlterSyncStateSetResponseHeader()
        return reply(to, result.code, result.remark, to_ext(refusal))
    header = AlterSyncStateSetResponseHeader(Epoch(result.group.sync_state_set_epoch))
    return reply(to, ext=to_ext(header), body=sync_state_set_body(result.group))


def elect_reply(to: RemotingCommand, result: Result) -> RemotingCommand:
    """ElectMaster (1002); brokers treat 0 and 2011 alike."""
    group = result.group
    served = result.ok or result.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    if not served or group is None or group.master is None:
        return reply(to, result.code, result.remark, {})
    header = ElectMasterResponseHeader(
        master_broker_id=group.master_id,
        master_address=group.master.address,
        master_epoch=group.master_epoch,
        sync_state_set_epoch=Epoch(group.sync_state_set_epoch),
        master_incarnation=group.master_incarnation,
        master_ha_address=group.master.ha_address,
        replicas=_replicas(group),
        min_in_sync_replicas=_minimum(group),
        fenced_ids=_ids(group.fenced),
    )
    body = ElectMasterBody(
        sync_state_set=list(group.sync_state_set),
        broker_member_group=member_group(group) if result.ok else None,
    )
    return reply(to, result.code, result.remark, to_ext(header), encode_body(body))


def member_group(group: BrokerGroup) -> BrokerMemberGroup:
    """Every member's address by its id."""
    addresses = {member.broker_id: member.address for member in group.members}
    return BrokerMemberGroup(addresses, group.name, group.cluster)


def register_reply(
    to: RemotingCommand,
    result: Result,
    *,
    cluster: str | None,
    name: str,
    broker_id: BrokerId,
    versions: Versions,
) -> RemotingCommand:
    """RegisterBroker (1003).

    The recorded master is named, dead or alive, except to a new process of that very broker: it
    must not take the mastership of its predecessor for its own.
    """
    group = result.group
    if not result.ok or group is None:
        echo = RegisterBrokerToControllerResponseHeader(cluster_name=cluster, broker_name=name)
        return reply(to, result.code, result.remark, to_ext(echo))
    master = group.master
    if group.master_id == broker_id and not group.master_is_current:
        master = None
    header = RegisterBrokerToControllerResponseHeader(
        cluster_name=group.cluster,
        broker_name=group.name,
        master_broker_id=None if master is None else master.broker_id,
        master_address=None if master is None else master.address,
        master_epoch=None if master is None else group.master_epoch,
        sync_state_set_epoch=None if master is None else Epoch(group.sync_state_set_epoch),
        master_incarnation=None if master is None else group.master_incarnation,
        master_ha_address=None if master is None else master.ha_address,
        replicas=_replicas(group),
        min_in_sync_replicas=_minimum(group),
        topics_version=versions.topics,
        subscriptions_version=versions.subscriptions or None,
        group_uid=_uid(group),
        fenced_ids=_ids(group.fenced),
    )
    return reply(to, ext=to_ext(header), body=sync_state_set_body(group))


def no_replica_info_reply(to: RemotingCommand, ambiguity: str | None) -> RemotingCommand:
    """GetReplicaInfo (1004) of no group, or of one of several; then ``ambiguity`` says so."""
    if ambiguity is not None:
        return reply(to, ResponseCode.CONTROLLER_INVALID_REQUEST, ambiguity, {})
    remark = "Broker metadata is not existed"
    return reply(to, ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, remark, {})


def replica_info_reply(
    to: RemotingCommand,
    group: BrokerGroup,
    *,
    versions: Versions,
    draining: Iterable[BrokerId],
) -> RemotingCommand:
    """GetReplicaInfo (1004); reports the recorded master even if it is dead."""
    master = group.master
    header = GetReplicaInfoResponseHeader(
        master_epoch=group.master_epoch,
        master_broker_id=group.master_id,
        master_address=None if master is None else master.address,
        master_incarnation=None if master is None else group.master_incarnation,
        master_ha_address=None if master is None else master.ha_address,
        replicas=_replicas(group),
        min_in_sync_replicas=_minimum(group),
        topics_version=versions.topics,
        subscriptions_version=versions.subscriptions or None,
        draining_ids=_ids(draining),
        group_uid=_uid(group),
        drain_began_ms=versions.drain_began_ms,
        fenced_ids=_ids(group.fenced),
        preferred_ids=_places(group),
    )
    return reply(to, ext=to_ext(header), body=sync_state_set_body(group))


def replicas_info(group: BrokerGroup, alive: Iterable[BrokerId]) -> ReplicasInfo:
    """One group of GetSyncStateData."""
    living = set(alive)
    identities = [
        ReplicaIdentity(group.name, member.broker_id, member.address, member.broker_id in living)
        for member in group.members
    ]
    return ReplicasInfo(
        master_epoch=group.master_epoch,
        sync_state_set_epoch=Epoch(group.sync_state_set_epoch),
        in_sync_replicas=[
            identity for identity in identities if identity.broker_id in group.sync_state_set
        ],
        not_in_sync_replicas=[
            identity for identity in identities if identity.broker_id not in group.sync_state_set
        ],
        master_broker_id=group.master_id,
        master_address=None if group.master is None else group.master.address,
    )


def sync_state_data_reply(to: RemotingCommand, table: dict[str, ReplicasInfo]) -> RemotingCommand:
    """GetSyncStateData (1006)."""
    return reply(to, body=encode_body(BrokerReplicasInfo(table)))


def consumers_changed(cluster: str) -> RemotingCommand:
    """ConsumersChanged (31008), oneway, to masters that hear other members of a consumer group."""
    header = ConsumersChangedHeader(cluster)
    return request(RequestCode.GANTRY_CONSUMERS_CHANGED, to_ext(header), oneway=True)


def role_change(group: BrokerGroup) -> RemotingCommand:
    """NotifyBrokerRoleChanged (1008), oneway, to every living member after an election."""
    master = group.master
    header = NotifyBrokerRoleChangedRequestHeader(
        master_epoch=group.master_epoch,
        sync_state_set_epoch=Epoch(group.sync_state_set_epoch),
        master_broker_id=group.master_id,
        master_address=None if master is None else master.address,
        master_incarnation=None if master is None else group.master_incarnation,
        master_ha_address=None if master is None else master.ha_address,
        cluster_name=group.cluster,
        broker_name=group.name,
        replicas=_replicas(group),
        min_in_sync_replicas=_minimum(group),
        fenced_ids=_ids(group.fenced),
    )
    return request(
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
        to_ext(header),
        sync_state_set_body(group),
        oneway=True,
    )


def _places(group: BrokerGroup) -> str | None:
    """The members of each preferred place."""
    places = () if group.declaration is None else group.declaration.preferred
    return "/".join(_ids(place.members) or "" for place in places) or None


def _ids(broker_ids: Iterable[BrokerId]) -> str | None:
    return ";".join(map(str, broker_ids)) or None


def _replicas(group: BrokerGroup) -> int | None:
    return None if group.declaration is None else group.declaration.replicas


def _minimum(group: BrokerGroup) -> int | None:
    return None if group.declaration is None else group.declaration.min_in_sync_replicas


def _uid(group: BrokerGroup) -> str | None:
    return None if group.declaration is None else group.declaration.uid
