"""Three brokers with a tier, and what a reader makes of it."""

from __future__ import annotations

from pathlib import Path

from gantry_broker.host.settings import BrokerSettings
from gantry_broker.tier.uploader import Uploader
from gantry_protocol.tier.chain import ChainState, fold
from gantry_protocol.tier.keys import PackKey, parse_key, shard
from gantry_protocol.tier.manifests import decode_version
from gantry_protocol.tier.packs import rebuild_log, verify_pack
from support.broker_cluster import BrokerCluster, send_command
from support.loopback_controller import CLUSTER

UID = "2f6c1b9e-group"
PLACE = shard(CLUSTER, UID)


class TieredCluster(BrokerCluster):
    """Three brokers that upload small packs soon, by default to a directory of their own.

    Attributes:
        tier: settings besides those, or instead of them.
    """

    def __init__(self, directory: Path, **tier: object) -> None:
        super().__init__(directory)
        self.tier = tier

    @property
    def bucket(self) -> Path:
        return self.directory / "bucket"

    def settings(self, number: int) -> BrokerSettings:
        self.bucket.mkdir(exist_ok=True)
        changes: dict[str, object] = {
            "tier_url": self.bucket.as_uri(),
            "tier_shard": UID,
            "tier_pack_bytes": 64 * 1024,
            "tier_linger_ms": 100,
        }
        return super().settings(number).model_copy(update=changes | self.tier)

    def chain(self) -> ChainState:
        """What a reader of the bucket makes of it."""
        versions = [
            decode_version(path.read_bytes(), PLACE, int(path.name))
            for path in sorted((self.bucket / PLACE.prefix / "man").glob("*"))
        ]
        return fold(PLACE, versions)

    def tiered_log(self) -> bytes:
        """The log as the packs of the chain hold it; every object is verified."""
        data = b""
        for entry in self.chain().packs:
            key = parse_key(PLACE, PLACE.key(entry.key))
            assert isinstance(key, PackKey)
            pack = (self.bucket / PLACE.key(entry.key)).read_bytes()
            verify_pack(pack, PLACE, key)
            data += rebuild_log(pack, PLACE, key)
        return data

    @property
    def uploader(self) -> Uploader:
        """The master's."""
        service = self.master.group.tier.service
        assert service is not None
        return service.uploader

    def caught_up(self) -> bool:
        """Whether everything confirmed is in the tier, and the master knows it."""
        core = self.master.group.core
        assert core is not None
        head = self.uploader.head
        return head is not None and head.end == core.log.confirm > 0


async def send(cluster: BrokerCluster, count: int) -> None:
    """Send to the master; each message must be acknowledged."""
    client = await cluster.client(cluster.master)
    for number in range(count):
        assert (await client.call(send_command(b"message %d" % number))).code == 0
