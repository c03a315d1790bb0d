"""Everything one member does with its group's tier: uploads, reads, local retention.

Rule protected: uploads and reads have bounds of their own, so that neither can keep the other from
the store. What it refuses: to decide anything; the parts do.
"""

from collections.abc import Callable

from gantry_protocol.tier.chain import ChainState

from gantry_broker.tier.local_retention import LocalRetention, RetentionHost
from gantry_broker.tier.options import TierOptions, make_uploader, open_tier
from gantry_broker.tier.reader import TierReader
from gantry_broker.tier.seen import Seen
from gantry_broker.tier.stores.calls import CallStats, DeadlineCalls
from gantry_broker.tier.uploader import UploadObserver


class TierService:
    """See the module.

    Attributes:
        uploader: uploads while this is the master.
        reader: follows the tier, and reads from it.
        retention: trims the local log; None keeps everything.
        calls: counts of the store's calls, by who makes them.
    """

    def __init__(
        self,
        options: TierOptions,
        host: RetentionHost,
        observer: UploadObserver,
        *,
        group: str,
        writer: str,
        seen: Seen,
        failed: Callable[[BaseException], None],
    ) -> None:
        """Nothing is asked of the store before ``start``."""
        uploads, reads = DeadlineCalls("tier-upload"), DeadlineCalls("tier-read")
        self.calls: dict[str, CallStats] = {"upload": uploads.stats, "read": reads.stats}
        self.uploader = make_uploader(
            options,
            open_tier(options, uploads),
            group=group,
            writer=writer,
            log=host.store.log,
            local=host.local_log,
            observer=observer,
            failed=failed,
            seen=lambda: seen.why,
        )
        self._seen = seen
        self.reader = TierReader(
            open_tier(options, reads),
            options.place,
            follow_s=options.limits.linger_ms / 1000,
            moved=self._chain_moved,
            failed=failed,
            seen=lambda: seen.why,
        )
        self.retention: LocalRetention | None = None
        if options.local_bytes is not None:
            self.retention = LocalRetention(
                host,
                self.uploader.role,
                chain=lambda: self.reader.index.chain,
                readable_end=lambda: self.reader.readable_end,
                local_bytes=options.local_bytes,
                failed=failed,
            )

    def start(self) -> None:
        """Begin to follow the tier, and to trim."""
        self.reader.start()
        if self.retention is not None:
            self.retention.start()

    async def stop(self) -> None:
        """End everything; what is under way at the store may be applied all the same."""
        if self.retention is not None:
            await self.retention.stop()
        await self.uploader.stop()
        await self.reader.stop()

    def _chain_moved(self, chain: ChainState) -> None:
        self._seen.mark()
        self.uploader.chain_seen(chain)
