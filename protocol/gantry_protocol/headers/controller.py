"""Headers between brokers, the admin tool and the controller.

Upstream: ``org.apache.rocketmq.remoting.protocol.header.controller``. Fields after the comment
"extension" are ours; they are optional in both directions, so Java brokers and Java controllers
never miss them. An upstream field that Java leaves out at times is optional here as well
(``invokeTime`` before 5.2).
"""

from typing import Annotated

import msgspec

from gantry_protocol.command import Int32, Int64
from gantry_protocol.types import BrokerId, Epoch, Offset

WireBrokerId = Annotated[BrokerId, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
WireEpoch = Annotated[Epoch, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
WireOffset = Annotated[Offset, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

NO_BROKER = BrokerId(-1)
DEFAULT_HEARTBEAT_TIMEOUT_MS = 10_000
LOWEST_ELECTION_PRIORITY = 2**31 - 1


class BrokerHeartbeatRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """BrokerHeartbeat (904), oneway, to every controller.

    ``broker_id`` is None before the broker has one.

    ``confirm_epoch`` is that of the last byte below ``confirm_offset``.
    ``tier_state`` is given by a broker whose group has a tier, and says that the other tier fields
    mean something; a ``tier_reason`` has at most 256 characters. ``disk_stuck`` says why a disk
    that is nearly full takes nothing more, in as many; None while it does. ``log_damage`` says what
    of the log is damaged and was not repaired, in as many; None while nothing is. ``drain_done`` is
    given by the master of a group that is being drained, with the other drain fields: what is left
    (``gantry_protocol.admin.DrainView``); ``drain_waits_for`` has as many characters.
    ``last_write_ms`` and ``first_write_ms`` are given by a master: the store times of the newest
    record of the masters before it, and of the first one that was confirmed in its own mastership.
    ``settings`` is the fingerprint of the configuration file whose settings are in force, as far as
    they are applied while running; ``settings_refused`` says why a newer one is not, in at most 256
    characters.
    """

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: WireBrokerId | None = None
    epoch: WireEpoch = Epoch(-1)
    max_offset: WireOffset = Offset(-1)
    confirm_offset: WireOffset = Offset(-1)
    heartbeat_timeout_ms: Int64 = msgspec.field(
        name="heartbeatTimeoutMills", default=DEFAULT_HEARTBEAT_TIMEOUT_MS
    )
    election_priority: Int32 = LOWEST_ELECTION_PRIORITY
    # extension
    incarnation: str | None = None
    draining: bool = False
    pod_uid: str | None = None
    log_start: WireOffset | None = None
    confirm_epoch: WireEpoch | None = None
    tier_state: str | None = None
    tier_epoch: WireEpoch | None = None
    tier_committed_offset: WireOffset | None = None
    tier_lag_ms: Int64 | None = None
    tier_reason: str | None = None
    tier_version: Int64 | None = None
    disk_stuck: str | None = None
    log_damage: str | None = None
    drain_done: bool | None = None
    drain_unread: Int64 | None = None
    drain_parked: Int64 | None = None
    drain_transactions: Int64 | None = None
    drain_waits_for: str | None = None
    last_write_ms: Int64 | None = None
    first_write_ms: Int64 | None = None
    settings: str | None = None
    settings_refused: str | None = None


class AlterSyncStateSetRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """AlterSyncStateSet (1001). The body is a ``SyncStateSetBody`` with the master's epoch."""

    broker_name: str
    master_broker_id: WireBrokerId
    master_epoch: WireEpoch
    invoke_time: Int64 = 0
    # extension
    cluster_name: str | None = None
    incarnation: str | None = None


class AlterSyncStateSetResponseHeader(msgspec.Struct, frozen=True, rename="camel"):
    """The new epoch, or 0 on a refusal."""

    new_sync_state_set_epoch: WireEpoch = Epoch(0)


class ElectMasterRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """ElectMaster (1002). ``master_epoch``, when given, must be the group's."""

    broker_name: str
    cluster_name: str = ""
    broker_id: WireBrokerId = NO_BROKER
    designate_elect: bool = False
    invoke_time: Int64 = 0
    # extension
    master_epoch: WireEpoch | None = None
    incarnation: str | None = None


class ElectMasterResponseHeader(msgspec.Struct, frozen=True, rename="camel"):
    """On 0 and 2011; all four upstream fields or none, since Java reads the others unchecked.

    ``fenced_ids``: as of GetReplicaInfo.
    """

    master_broker_id: WireBrokerId | None = None
    master_address: str | None = None
    master_epoch: WireEpoch | None = None
    sync_state_set_epoch: WireEpoch | None = None
    # extension
    master_incarnation: str | None = None
    master_ha_address: str | None = None
    replicas: Int32 | None = None
    min_in_sync_replicas: Int32 | None = None
    fenced_ids: str | None = None


class RegisterBrokerToControllerRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """RegisterBroker (1003).

    ``last_epoch`` is the newest one that wrote to the log; ``acted_epoch`` the newest one that the
    broker has taken part in at all; ``register_check_code`` what its volume was given its id for.
    """

    broker_name: str
    broker_id: WireBrokerId
    broker_address: str
    cluster_name: str | None = None
    invoke_time: Int64 = 0
    # extension
    incarnation: str | None = None
    pod_uid: str | None = None
    ha_port: Int32 | None = None
    last_epoch: WireEpoch | None = None
    max_offset: WireOffset | None = None
    election_priority: Int32 | None = None
    acted_epoch: WireEpoch | None = None
    register_check_code: str | None = None


class RegisterBrokerToControllerResponseHeader(msgspec.Struct, frozen=True, rename="camel"):
    """The four master fields are given together, and only while a master is recorded and alive.

    ``fenced_ids``: as of GetReplicaInfo.
    """

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: WireBrokerId | None = None
    master_address: str | None = None
    master_epoch: WireEpoch | None = None
    sync_state_set_epoch: WireEpoch | None = None
    # extension
    master_incarnation: str | None = None
    master_ha_address: str | None = None
    replicas: Int32 | None = None
    min_in_sync_replicas: Int32 | None = None
    topics_version: Int64 | None = None
    subscriptions_version: Int64 | None = None
    group_uid: str | None = None
    fenced_ids: str | None = None


class GetReplicaInfoRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetReplicaInfo (1004). A process that names itself and is not registered hears 2010."""

    broker_name: str
    # extension
    cluster_name: str | None = None
    broker_id: WireBrokerId | None = None
    incarnation: str | None = None


class GetReplicaInfoResponseHeader(msgspec.Struct, frozen=True, rename="camel"):
    """``master_epoch`` is always there (0 before the first election); Java unboxes it.

    ``draining_ids`` lists the ids of brokers that are about to stop as ``1;2``, ``fenced_ids``
    those that people have taken out of the group for a while. ``drain_began_ms``: the group is
    being drained since then. ``preferred_ids``: the members of each place where the master is
    wished, the best place first, as ``3;1/2``.
    """

    master_epoch: WireEpoch
    master_broker_id: WireBrokerId | None = None
    master_address: str | None = None
    # extension
    master_incarnation: str | None = None
    master_ha_address: str | None = None
    replicas: Int32 | None = None
    min_in_sync_replicas: Int32 | None = None
    topics_version: Int64 | None = None
    subscriptions_version: Int64 | None = None
    draining_ids: str | None = None
    group_uid: str | None = None
    drain_began_ms: Int64 | None = None
    fenced_ids: str | None = None
    preferred_ids: str | None = None


class GetMetadataResponseHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetMetadataInfo (1005); both leader fields are absent while no leader is known."""

    group: str
    is_leader: bool
    peers: str
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None


class GetNextBrokerIdRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetNextBrokerId (1012)."""

    broker_name: str
    cluster_name: str | None = None


class GetNextBrokerIdResponseHeader(msgspec.Struct, frozen=True, rename="camel"):
    """The id to apply for; it is not reserved."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: WireBrokerId | None = None


class ApplyBrokerIdRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """ApplyBrokerId (1013), repeatable. ``register_check_code`` is ``<address>;<millis>``."""

    broker_name: str
    applied_broker_id: WireBrokerId
    register_check_code: str
    cluster_name: str | None = None


class ApplyBrokerIdResponseHeader(msgspec.Struct, frozen=True, rename="camel"):
    """Echo, on success and on failure."""

    cluster_name: str | None = None
    broker_name: str | None = None


class CleanBrokerDataRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """CleanBrokerData (1011). ``broker_ids_to_clean`` is ``1;2;3``; None or blank means all.

    ``living`` is ours: ``1=INCARNATION;2=…`` names processes that are struck although they live.
    """

    broker_name: str
    cluster_name: str | None = None
    broker_ids_to_clean: str | None = msgspec.field(name="brokerControllerIdsToClean", default=None)
    clean_living_broker: bool = msgspec.field(name="isCleanLivingBroker", default=False)
    invoke_time: Int64 = 0
    # extension
    living: str | None = msgspec.field(name="gantryLiving", default=None)


class NotifyBrokerRoleChangedRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """NotifyBrokerRoleChanged (1008), oneway; the body is a ``SyncStateSetBody``.

    ``fenced_ids``: as of GetReplicaInfo.
    """

    master_epoch: WireEpoch
    sync_state_set_epoch: WireEpoch
    master_broker_id: WireBrokerId | None = None
    master_address: str | None = None
    # extension
    master_incarnation: str | None = None
    master_ha_address: str | None = None
    cluster_name: str | None = None
    broker_name: str | None = None
    replicas: Int32 | None = None
    min_in_sync_replicas: Int32 | None = None
    fenced_ids: str | None = None
