"""Everything one member does with its group's tier: uploads, reads, local retention.

What it refuses: to decide anything; the parts do. What it needs of the machine it shares with the
other groups of its process (``shared``).
"""

from collections.abc import Callable

from gantry_protocol.tier.chain import ChainState

from gantry_broker.tier.local_retention import LocalRetention, RetentionHost
from gantry_broker.tier.options import TierOptions, make_uploader
from gantry_broker.tier.reader import TierReader
from gantry_broker.tier.seen import Seen
from gantry_broker.tier.shared import SharedTier
from gantry_broker.tier.uploader import UploadObserver


class TierService:
    """See the module.

    Attributes:
        uploader: uploads while this is the master.
        reader: follows the tier, and reads from it.
        retention: trims the local log; None keeps everything.
    """

    def __init__(
        self,
        options: TierOptions,
        shared: SharedTier,
        host: RetentionHost,
        observer: UploadObserver,
        *,
        group: str,
        writer: str,
        seen: Seen,
        failed: Callable[[BaseException], None],
    ) -> None:
        """Nothing is asked of the store before ``start``."""
        self._shared = shared
        self.uploader = make_uploader(
            options,
            shared.uploads,
            group=group,
            writer=writer,
            log=host.store.log,
            local=host.local_log,
            observer=observer,
            failed=failed,
            seen=lambda: seen.why,
            line=shared.line,
            room=shared.room,
        )
        self._seen = seen
        self.reader = TierReader(
            shared.reads,
            options.place,
            follow_s=options.limits.linger_ms / 1000,
            moved=self._chain_moved,
            failed=failed,
            seen=lambda: seen.why,
            cache=shared.cache,
            budget=shared.budget,
            looks=shared.looks,
            rest_s=shared.rest_s,
            has_room=lambda: shared.runs_left() > 0,
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
        self._shared.begins(self.reader)
        self.reader.start()
        if self.retention is not None:
            self.retention.start()

    async def stop(self) -> None:
        """End everything; what is under way at the store may be applied all the same."""
        if self.retention is not None:
            await self.retention.stop()
        await self.uploader.stop()
        await self.reader.stop()
        self._shared.ends(self.reader)

    def _chain_moved(self, chain: ChainState) -> None:
        self._seen.mark()
        self.uploader.chain_seen(chain)
