"""One member and its group's tier: what is uploaded, and from where on the log is still needed.

Joins the tier's parts with a member's store, role and writes. Without a tier the log has a
retention of its own (``retention.log_retention``), which asks here, too: what must stay does not
depend on one.

Rule protected: the log is kept from the oldest byte on that a replica, a parked message or an open
transaction needs. What it refuses: to decide what goes; the retentions and ``retention.trimming``
do.
"""

from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING

from gantry_protocol.records import MessageRecord
from gantry_protocol.tier.keys import Pair
from gantry_protocol.types import Epoch, Offset

from gantry_broker.log.store_time import store_time_at
from gantry_broker.member.options import GroupOptions
from gantry_broker.member.pins import oldest_parked, pop_pin, transaction_pins
from gantry_broker.member.shared_resources import SharedResources
from gantry_broker.member.writes import GroupWrites
from gantry_broker.queues import MessageStore
from gantry_broker.replica import LogFacts
from gantry_broker.retention.core.pins import Pins, pins
from gantry_broker.retention.log_retention import LogRetention
from gantry_broker.store.contract import Appended, Refusal
from gantry_broker.tier.boots import next_boot
from gantry_broker.tier.core.report import TierReport, tier_report
from gantry_broker.tier.core.values import ChainHead, LocalLog
from gantry_broker.tier.seen import Seen
from gantry_broker.tier.service import TierService

if TYPE_CHECKING:
    from gantry_broker.tier.reader import TierReader


class GroupTier:
    """See the module.

    Implements ``UploadObserver``, both kinds of ``RetentionHost`` and ``TrimHost``.

    Args:
        store: the member's store.
        writes: what is written through it, and under which mastership.
        store_host: for records of our own.

    Attributes:
        store: the member's store.
        store_host: for records of our own.
        service: everything that is done with the tier; None without one, and before ``start``.
        retention: of the log of a group without a tier; None with one, and before ``start``.
    """

    def __init__(
        self, store: MessageStore, writes: GroupWrites, store_host: tuple[str, int]
    ) -> None:
        """Nothing is uploaded or read before ``start``."""
        self.service: TierService | None = None
        self.retention: LogRetention | None = None
        self.store = store
        self.store_host = store_host
        self._writes = writes
        self._boots = 0
        self._facts: LogFacts | None = None
        self._trimmed: Callable[[Offset], None] = lambda start: None
        self._look_for_master: Callable[[], None] = lambda: None

    def start(
        self,
        options: GroupOptions,
        facts: LogFacts,
        shared: SharedResources,
        *,
        trimmed: Callable[[Offset], None],
        look_for_master: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Begin to follow the tier, or to keep the log within its bounds without one.

        Args:
            options: of the group.
            facts: of its log, as its core knows it.
            shared: with the other groups of the process.
            trimmed: told where the log begins from now on.
            look_for_master: asks the controllers who the master is.
            failed: called with an error that ends the process.
        """
        self._facts, self._trimmed, self._look_for_master = facts, trimmed, look_for_master
        if options.tier is None:
            self.retention = LogRetention(self, options.kept, shared.disk_space, failed)
            self.retention.start()
            return
        self._boots = next_boot(options.directory)
        service = TierService(
            options.tier,
            shared.tier_of(options.tier),
            self,
            self,
            group=options.group,
            writer=options.name,
            seen=Seen(options.directory, options.tier.url, options.tier.place),
            failed=failed,
        )
        self.follow(service)
        service.start()

    def tune(self, options: GroupOptions) -> None:
        """Take over what may change while the group takes part: how much is kept without a tier."""
        if self.retention is not None:
            self.retention.kept = options.kept

    def follow(self, service: TierService) -> None:
        """Tell ``service`` of each rise of confirm, once what is confirmed can be read."""
        self.service = service
        self.store.add_listener(lambda touched: self._advanced())

    async def stop(self) -> None:
        """End everything; what is under way at the store may be applied all the same."""
        if self.retention is not None:
            await self.retention.stop()
        if self.service is not None:
            await self.service.stop()

    def promoted(self, epoch: Epoch) -> None:
        """Upload from now on, once the chain is claimed."""
        if self.service is not None:
            self.service.uploader.promoted(Pair(epoch, self._boots))

    def demoted(self) -> None:
        """Upload no more."""
        if self.service is not None:
            self.service.uploader.demoted()

    def _advanced(self) -> None:
        if self.service is not None and self.serving:
            self.service.uploader.advanced()

    @property
    def reader(self) -> "TierReader | None":
        """Reads what the local log no longer has; None without a tier."""
        return None if self.service is None else self.service.reader

    @property
    def disk_stuck(self) -> str:
        """The reason why a disk that is nearly full takes nothing more; empty while it does."""
        retention = self.retention
        return retention.reason if retention is not None and retention.is_stuck else ""

    def report(self) -> TierReport | None:
        """The report on the tier; None without one."""
        facts, store = self._facts, self.store
        if self.service is None or facts is None:
            return None
        return tier_report(
            self.service.uploader.role,
            facts.confirm,
            lambda offset: store_time_at(store.log, offset),
            int(time() * 1000),
            self.service.reader.readable,
        )

    # ---- UploadObserver

    def tier_committed(self, head: ChainHead) -> None:
        """Let followers of the chain look at once."""
        if self.service is not None:
            self.service.reader.poke()

    def tier_fenced(self, own: Pair, by: Pair | None) -> None:
        """A later master has been at the tier: the controllers know who it is."""
        self._look_for_master()

    # ---- RetentionHost, TrimHost

    @property
    def serving(self) -> bool:
        """Whether this is the serving master."""
        return self._writes.mastership is not None

    def accepting_writes(self) -> Refusal | None:
        """None when a record may be appended."""
        return self._writes.accepting()

    def append(self, records: list[MessageRecord], done: Appended) -> None:
        """Store and replicate."""
        self._writes.append(records, done)

    def pins(self) -> Pins:
        """Those who need the log, and from where on."""
        master = self._writes.mastership
        return pins(
            transactions=transaction_pins(self.store),
            popped=pop_pin(self.store),
            parked=oldest_parked(self.store),
            members=() if master is None else master.copying_from(counted=True),
            others=() if master is None else master.copying_from(counted=False),
        )

    def log_trimmed(self, start: Offset) -> None:
        """The log begins at ``start`` now."""
        self._trimmed(start)

    def local_log(self) -> LocalLog:
        """The log as it is now."""
        facts = self._facts
        assert facts is not None, "nobody is master before the volume has a name"
        return LocalLog(
            log_start=facts.log_start,
            end=facts.end,
            flushed=facts.flushed,
            confirm=min(facts.confirm, facts.flushed),
            lineage=facts.lineage,
        )
