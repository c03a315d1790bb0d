"""``LocalRetention``: gathers the facts for ``retention.decide``; ``RetentionLoop`` acts on it.

Rule protected: what is read in the chain counts for this broker only after the chain was compared
with its own log (lineage, and the bytes of the tier's last record), and only while its upload role
does not object (a fenced or halted one deletes nothing).
"""

from collections.abc import Callable
from typing import Protocol

import google_crc32c
from gantry_protocol.tier.chain import ChainState
from gantry_protocol.types import Offset

from gantry_broker.retention.core.pins import Pins
from gantry_broker.retention.core.rules import Decision, Keep
from gantry_broker.retention.loop import LoopHost, RetentionLoop
from gantry_broker.tier.core.reconcile import mismatch
from gantry_broker.tier.core.retention import Facts, decide
from gantry_broker.tier.core.role import UploadRole
from gantry_broker.tier.core.values import ChainHead, LocalLog


class RetentionHost(LoopHost, Protocol):
    """The part of a group that the retention needs."""

    def local_log(self) -> LocalLog:
        """The log as it is now."""

    def pins(self) -> Pins:
        """Those who need the log, and from where on."""


class LocalRetention(RetentionLoop):
    """See the module.

    Args:
        host: the group.
        role: the upload role of this process.
        chain: as far as it was read.
        readable_end: how far the tier can be read here.
        local_bytes: how much of the confirmed log is kept.
        failed: called with an error that ends the process.
    """

    def __init__(
        self,
        host: RetentionHost,
        role: UploadRole,
        *,
        chain: Callable[[], ChainState],
        readable_end: Callable[[], Offset],
        local_bytes: int,
        failed: Callable[[BaseException], None],
    ) -> None:
        """Nothing is deleted before ``start``."""
        super().__init__(host, failed)
        self._host = host
        self._role = role
        self._chain = chain
        self._readable_end = readable_end
        self._local_bytes = local_bytes
        self._compared = 0  # the newest version whose last record was found in our log

    # ---- facts

    def _decide(self) -> Decision:
        host = self._host
        local, chain = host.local_log(), self._chain()
        committed_end, objection = self._committed_end(local, chain)
        decision = decide(
            Facts(
                local_bytes=self._local_bytes,
                starts=host.store.log.starts,
                log_start=local.log_start,
                end=local.end,
                confirm=host.store.dispatched,
                committed_end=committed_end,
                tail_at=None if chain.tail is None else Offset(chain.tail.at),
                readable_end=self._readable_end(),
                whole_from=host.store.whole_from,
                pins=host.pins().offsets,
                state_bytes=self._state_bytes,
                state_end=self._state_end,
                writes=self._may_write,
            )
        )
        if isinstance(decision, Keep) and decision.reason and objection:
            return Keep(objection)
        return decision

    def _committed_end(self, local: LocalLog, chain: ChainState) -> tuple[Offset | None, str]:
        """Up to where the chain may be gone by, and what is in the way."""
        if chain.v == 0 or chain.tail is None:
            return None, "the tier holds nothing yet"
        vouched = self._role.end_for_trim(ChainHead(chain.v, chain.pair, Offset(chain.end)))
        if vouched is None:
            return None, f"the upload role is {self._role.state.value}: {self._role.status.reason}"
        wrong = mismatch(chain, local)
        if wrong is None and self._compared < chain.v:
            wrong = self._tail_differs(local, chain)
        if wrong is not None:
            return None, wrong
        self._compared = chain.v
        return Offset(min(vouched, chain.end)), ""

    def _tail_differs(self, local: LocalLog, chain: ChainState) -> str | None:
        tail = chain.tail
        assert tail is not None
        if not local.log_start <= tail.at or tail.at + tail.size > local.limit:
            return f"the tier's last record, at {tail.at}, is not in the confirmed part of this log"
        found = f"{google_crc32c.value(self._host.store.log.read(Offset(tail.at), tail.size)):08x}"
        if found != tail.crc:
            return (
                f"the record at {tail.at} has the sum {found} here and {tail.crc} in the tier; "
                f"keep both and compare them"
            )
        return None
