"""Values of the upload role: its states, the local log it uploads from, and its limits."""

from enum import Enum

import msgspec
from gantry_protocol.settings.defaults import TIER_LINGER_MS, TIER_PACK_BYTES, TIER_RETRY_MAX_MS
from gantry_protocol.tier.keys import Pair
from gantry_protocol.types import Offset

from gantry_broker.replica.lineage import Lineage


class State(Enum):
    """The state of the upload role; the transitions are in ``role``."""

    STANDBY = "standby"
    CLAIMING = "claiming"
    RECONCILING = "reconciling"
    UPLOADING = "uploading"
    BACKOFF = "backoff"
    DRAINING = "draining"
    FENCED = "fenced"
    HALTED = "halted"


ACTIVE = frozenset({State.CLAIMING, State.RECONCILING, State.UPLOADING, State.BACKOFF})


class LocalLog(msgspec.Struct, frozen=True, kw_only=True):
    """The master's own log at one moment: ``log_start <= confirm <= flushed <= end``.

    Attributes:
        log_start: the oldest byte that is still here.
        end: one past the newest byte.
        flushed: everything below is on this disk.
        confirm: everything below is on the disk of every member of the sync-state set.
        lineage: who wrote what; it may begin above the tier's oldest line.
    """

    log_start: Offset
    end: Offset
    flushed: Offset
    confirm: Offset
    lineage: Lineage

    @property
    def limit(self) -> Offset:
        """The upload limit (H9, T6): what no clean election can take back, and is on this disk."""
        return min(self.confirm, self.flushed)


class ChainHead(msgspec.Struct, frozen=True):
    """The newest version of the chain: what replicas are told, as a hint."""

    v: int
    pair: Pair
    end: Offset


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The upload role for people.

    Attributes:
        reason: why it waits, is fenced or halted; empty while all is well.
        stalled: nothing was committed for ``TierLimits.alarm_ms`` although something waits.
    """

    state: State
    reason: str = ""
    stalled: bool = False


class TierLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds and waiting times. Times in milliseconds.

    Attributes:
        pack_bytes: a pack is cut when so much waits; a single larger record makes a larger pack.
        linger_ms: a smaller pack is cut when its oldest byte has waited this long.
        retry_min_ms: shortest wait after a failed call of the store.
        retry_max_ms: longest.
        alarm_ms: without a commit for this long although something waits: somebody should look.
        drain_ms: how long a demoted master waits for the call that is under way.
        versions: manifest versions asked for in one read; the reader asks again for more.
        head_ms: an idle master reads the head this often. It costs one LIST, and shows a master
            that nobody told of its demotion that it is no longer one.
    """

    pack_bytes: int = TIER_PACK_BYTES
    linger_ms: int = TIER_LINGER_MS
    retry_min_ms: int = 200
    retry_max_ms: int = TIER_RETRY_MAX_MS
    alarm_ms: int = 60_000
    drain_ms: int = 5_000
    versions: int = 256
    head_ms: int = 60_000


DEFAULT_LIMITS = TierLimits()
