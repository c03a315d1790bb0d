"""A group that is created from the tier of one that is gone, with controllers that knew neither."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from gantry_controller.metadata.events import AdoptGroup, encode_event
from gantry_protocol.types import Epoch
from support.broker_cluster import eventually
from support.loopback_controller import CLUSTER, GROUP
from support.tiered_cluster import TieredCluster


class GroupFromTier(TieredCluster):
    """Brokers that begin from the tier in ``bucket``; entered once they have a master.

    Attributes:
        awaits_copies: without them it is entered as soon as the brokers run.
    """

    awaits_copies = True

    def __init__(self, directory: Path, bucket: Path, owner: str = "new", **tier: object) -> None:
        super().__init__(directory, tier_url=bucket.as_uri(), tier_owner=owner, **tier)
        self._bucket = bucket

    @property
    def bucket(self) -> Path:
        return self._bucket

    async def __aenter__(self) -> Self:
        await self.controller.start()
        self.controller.declare(self.replicas, self.min_in_sync)
        for number in range(self.replicas):
            self.boot(number)
        if self.awaits_copies:
            await self.adopted()
            await self.settled()
        return self

    async def adopted(self) -> None:
        """As soon as all copies knock, the group is adopted."""
        watchman = self.controller.watchman
        await eventually(
            lambda: len(watchman.claims(self.controller.group)) == len(self.brokers),
            "all brokers hold a copy",
        )
        claims = watchman.claims(self.controller.group).values()
        event = AdoptGroup(
            cluster=CLUSTER,
            name=GROUP,
            epoch=max(claim.epoch for claim in claims),
            expected_epoch=Epoch(0),
        )
        self.controller.quorum._apply(encode_event(event))
