"""Bodies between brokers, the admin tool and the controller.

Upstream: ``SyncStateSet``, ``ElectMasterResponseBody``, ``BrokerMemberGroup``,
``BrokerReplicasInfo``, ``EpochEntryCache``, ``HARuntimeInfo``. Java reads several of them
unchecked: ``syncStateSet`` is never absent, and its ids are numbers.
"""

from gantry_protocol.bodies.codec import Body
from gantry_protocol.types import BrokerId, Epoch, Offset


class SyncStateSetBody(Body, frozen=True):
    """A set and its epoch: AlterSyncStateSet, and what answers and notices tell of a group."""

    sync_state_set: list[BrokerId]
    sync_state_set_epoch: Epoch = Epoch(0)


class BrokerMemberGroup(Body, frozen=True):
    """Addresses of a group's members, by broker id."""

    broker_addrs: dict[BrokerId, str]
    broker_name: str
    cluster: str


class ElectMasterBody(Body, frozen=True, omit_defaults=True):
    """ElectMaster (1002): with the group on 0, without it on 2011."""

    sync_state_set: list[BrokerId]
    broker_member_group: BrokerMemberGroup | None = None


class BrokerMemberGroupBody(Body, frozen=True):
    """GetBrokerMemberGroup (901)."""

    broker_member_group: BrokerMemberGroup


class ReplicaIdentity(Body, frozen=True):
    """One member in GetSyncStateData."""

    broker_name: str
    broker_id: BrokerId
    broker_address: str
    alive: bool


class ReplicasInfo(Body, frozen=True, omit_defaults=True):
    """One group in GetSyncStateData; both lists and both epochs are always there."""

    master_epoch: Epoch
    sync_state_set_epoch: Epoch
    in_sync_replicas: list[ReplicaIdentity]
    not_in_sync_replicas: list[ReplicaIdentity]
    master_broker_id: BrokerId | None = None
    master_address: str | None = None


class BrokerReplicasInfo(Body, frozen=True):
    """GetSyncStateData (1006)."""

    replicas_info_table: dict[str, ReplicasInfo]


class EpochCacheEntry(Body, frozen=True):
    """One epoch in GetBrokerEpochCache; the last one ends at ``OPEN_END``."""

    epoch: Epoch
    start_offset: Offset
    end_offset: Offset


OPEN_END = Offset(2**63 - 1)


class EpochEntryCache(Body, frozen=True):
    """GetBrokerEpochCache (1007); ``broker_id`` is the role id, 0 for the master."""

    cluster_name: str
    broker_name: str
    broker_id: BrokerId
    epoch_list: list[EpochCacheEntry]
    max_offset: Offset


class HaConnectionInfo(Body, frozen=True):
    """One replica in a master's 907."""

    addr: str
    slave_ack_offset: Offset
    diff: int
    in_sync: bool
    transferred_byte_in_second: int = 0
    transfer_from_where: Offset = Offset(0)


class HaClientInfo(Body, frozen=True):
    """A replica's own side in 907."""

    master_addr: str = ""
    max_offset: Offset = Offset(0)
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    transferred_byte_in_second: int = 0
    master_flush_offset: Offset = Offset(0)


class HaStatus(Body, frozen=True):
    """GetBrokerHaStatus (907)."""

    master: bool
    master_commit_log_max_offset: Offset
    in_sync_slave_nums: int
    ha_connection_info: list[HaConnectionInfo]
    ha_client_runtime_info: HaClientInfo
