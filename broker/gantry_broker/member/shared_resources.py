"""Resources that the groups of one process share, so that 300 cost little more than one.

One line to the controllers, one port for replicas, one thread for each disk, one clock, a few
threads for small files, one client of the tier's store. A group finds everything that is not its
own here; nothing is global.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from gantry_protocol.process.settings_word import SettingsWord
from gantry_protocol.process.steps import utc_now
from gantry_protocol.quorum_key import NO_KEY, KeyFile
from gantry_protocol.tls.process import NO_TLS, Tls

from gantry_broker.clients.access import ClusterUsers
from gantry_broker.clients.elsewhere import Elsewhere
from gantry_broker.clients.mapped.maps import ClusterMaps
from gantry_broker.clients.mapped.masters import OtherMasters
from gantry_broker.control.line import ControllerLine
from gantry_broker.decisions.rings import GroupRings
from gantry_broker.ha.listener import ReplicaListener
from gantry_broker.log.disk import Disks
from gantry_broker.member import cold_reads
from gantry_broker.member.ticker import Ticker
from gantry_broker.retention.disk_space import DiskSpace
from gantry_broker.tier.options import TierOptions
from gantry_broker.tier.shared import SharedTier

SAVERS = 4  # threads that write lineage files: two syncs each, and a failover writes many at once


class SharedResources:
    """See the module.

    Args:
        line: to the controllers.
        disk_space: of the data directory.
        key: what members of groups show each other.
        tls: of the process.
        rings: for the steps of its groups; None: none are recorded.

    Attributes:
        elsewhere: whom masters of other processes hear.
        queue_maps: of the cluster.
        other_masters: of its groups.
        access: users of the cluster.
        tier: of all groups; None before the first one that has a tier has begun.
        ha_port: of the listener; 0 before ``start``.
        settings: the word of the process about them, for heartbeats.
    """

    def __init__(
        self,
        line: ControllerLine,
        disk_space: DiskSpace,
        key: KeyFile = NO_KEY,
        tls: Tls = NO_TLS,
        *,
        logs_all_access: bool = False,
        rings: GroupRings | None = None,
    ) -> None:
        """Nothing runs before ``start``, and disks' threads not before a volume is opened."""
        self.line = line
        self.elsewhere = Elsewhere(line.cluster, line.peers)
        self.queue_maps = ClusterMaps(line.cluster, line.peers)
        self.access = ClusterUsers(line.cluster, line.peers, key, logs_all=logs_all_access)
        self.other_masters = OtherMasters(self.queue_maps, self.access.sign, tls)
        self.disk_space = disk_space
        self.key = key
        self.rings = GroupRings(0, 1, utc_now) if rings is None else rings
        self.listener = ReplicaListener(key)
        self.disks = Disks()
        self.ticker = Ticker()
        self.savers = ThreadPoolExecutor(SAVERS, thread_name_prefix="lineage")
        self.readers = ThreadPoolExecutor(cold_reads.THREADS, thread_name_prefix="cold-read")
        self.tier: SharedTier | None = None
        self.ha_port = 0
        self.settings = SettingsWord()

    async def start(self, host: str, ha_port: int) -> None:
        """Listen for replicas and connect to the controllers.

        Raises:
            PortInUseError: the port is taken.
        """
        self.ha_port = await self.listener.start(host, ha_port)
        self.line.start()
        self.access.start()
        self.disk_space.start()

    def say(self, settings: SettingsWord) -> None:
        """From the next heartbeats on."""
        self.settings = settings

    def tier_of(self, options: TierOptions) -> SharedTier:
        """The part of its tier that a group shares; options of all differ in places only."""
        if self.tier is None:
            self.tier = SharedTier(options)
        return self.tier

    async def stop(self) -> None:
        """End everything; the groups have stopped."""
        if self.tier is not None:
            await self.tier.close()
        self.disk_space.stop()
        await self.listener.stop()
        self.access.stop()
        await self.other_masters.stop()
        await self.line.stop()
        await asyncio.to_thread(self._end_threads)

    def _end_threads(self) -> None:
        self.savers.shutdown()
        self.readers.shutdown(cancel_futures=True)
        self.disks.close()
