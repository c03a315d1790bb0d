"""Values of the replica core: roles, the controller's view of the group, and limits."""

from enum import Enum, auto

import msgspec
from gantry_protocol.types import BrokerId, Epoch


class Role(Enum):
    """The role of this replica."""

    IDLE = "idle"
    FOLLOWING = "following"
    PROMOTING = "promoting"
    MASTER = "master"
    FENCED = "fenced"
    STUCK = "stuck"


class NoWrites(Enum):
    """The reason why a master accepts no write."""

    LEAVING = auto()  # it hands its mastership over
    CUT_OFF = auto()  # another one may have been elected
    NO_DISK = auto()  # its disk does not answer
    TOO_FEW = auto()  # the sync-state set has fewer members than the minimum


class ControllerView(msgspec.Struct, frozen=True):
    """The group as the controller described it in one answer or notification.

    Attributes:
        master_epoch: rises with every election; 0 before the first.
        master_id: None while nobody is master.
        master_incarnation: the start of the master's process that won; a later start of the same
            broker has no claim to the epoch.
        master_ha_address: ``ip:port`` of the master's replication listener.
        sync_state_set_epoch: rises with every change of the set.
        min_in_sync: members the set must have for a write to be accepted.
        draining: members that are about to leave, as far as the controller knows.
        fenced: members that people have taken out of the group for a while.
        preferred: members of the places where the master is wished, the best place first.
    """

    master_epoch: Epoch
    master_id: BrokerId | None = None
    master_incarnation: str = ""
    master_address: str = ""
    master_ha_address: str = ""
    sync_state_set: frozenset[BrokerId] = frozenset()
    sync_state_set_epoch: int = 0
    min_in_sync: int = 1
    replicas: int = 0
    draining: frozenset[BrokerId] = frozenset()
    fenced: frozenset[BrokerId] = frozenset()
    preferred: tuple[frozenset[BrokerId], ...] = ()

    def same_mastership(self, other: "ControllerView") -> bool:
        """Whether ``other`` describes the same master; an epoch without one may still get one."""
        return self.master_epoch == other.master_epoch and self.master_id is not None

    def is_older_than(self, other: "ControllerView") -> bool:
        """Whether ``other`` is a later description of the group."""
        mine = (self.master_epoch, self.sync_state_set_epoch)
        return mine <= (other.master_epoch, other.sync_state_set_epoch)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting times before an action. All in milliseconds unless said.

    Attributes:
        lag_ms: a member that has not been at the end of the log for this long leaves the set.
            Shorter than the 3 s after which a waiting send is answered "not replicated", so that a
            stopped replica costs latency and not an error.
        still_ms: such a member leaves after this long already where the minimum of members stays:
            who waits are clients, and it comes back at once if it was nothing. Longer than a busy
            machine or a disk that clears its cache takes.
        stall_ms: for so long everybody waits for a member without a word; what it takes longer is
            added up. Longer than a sync of a slow disk that works takes, and the one before it.
        slow_ms: a member that was waited for as long as this, all in all, of the last 8 s, leaves
            the set: as long as ``lag_ms``, but not at once. It may cost a quarter of the time.
        probation_ms: how long such a member has to keep up before it comes back, the first time.
        link_closed_ms: a member without a link for this long leaves the set. Short, because writes
            wait for it; a link that closes means a dead process far more often than a lost route,
            and a wrong guess costs two small controller writes.
        connect_grace_ms: the same for a member that has not connected in this epoch yet: it first
            has to learn of the epoch.
        join_wait_ms: how long confirm waits for a replica that is about to join, and how far
            behind such a replica may be.
        pause_ms: a longer gap between two ticks means that this process itself stood still, which
            is no evidence against anybody else.
        retry_first_ms: wait before a proposal is repeated; doubles up to ``retry_last_ms``.
        drain_wait_ms: how long a leaving master waits for a member to hold its whole log.
        drain_settle_ms: how long it waits, once a member holds everything, for the slower ones,
            so that every send in flight is acknowledged before the switch.
        drain_give_up_ms: how long it tries to hand over at all.
        cut_off_ms: controllers that have answered nothing for this long may have elected another
            master: it is the silence after which they do.
        disk_wait_ms: a disk that has made nothing durable for this long, while something waits,
            does not answer: a master with such a disk hands over. As long as a send waits to be
            confirmed; longer than ``lag_ms``, so that a member whose disk stands still as well has
            left the set by then.
        heartbeat_ms: an empty batch goes to a replica to which nothing was sent for this long; well
            below ``silence_ms`` and ``lag_ms``, which it keeps from passing.
        silence_ms: a replica that has not heard its master for this long opens a new link.
        window_bytes: sent and not yet acknowledged, per link. A replica syncs one part of it while
            the other arrives, so a disk that takes 20 ms for a sync still takes 100 MB/s.
        batch_bytes: largest range in one message, except for a single larger record.
        gather_bytes: while an earlier message is not acknowledged, the next one waits for it or for
            so many bytes. A replica syncs once for what comes during the sync before, so bytes that
            follow at once are not on its disk sooner, and every message costs both sides a wake-up.
        held_appends: messages a replica keeps while its lineage is being made durable.
    """

    lag_ms: int = 2_000
    still_ms: int = 700
    stall_ms: int = 200
    slow_ms: int = 2_000
    probation_ms: int = 5_000
    link_closed_ms: int = 300
    connect_grace_ms: int = 800
    join_wait_ms: int = 400
    pause_ms: int = 500
    retry_first_ms: int = 50
    retry_last_ms: int = 1_000
    drain_wait_ms: int = 1_000
    drain_settle_ms: int = 200
    drain_give_up_ms: int = 3_000
    cut_off_ms: int = 2_500
    disk_wait_ms: int = 3_000
    heartbeat_ms: int = 200
    silence_ms: int = 2_000
    window_bytes: int = 4 * 1024 * 1024
    batch_bytes: int = 256 * 1024
    gather_bytes: int = 64 * 1024
    held_appends: int = 256


DEFAULT_LIMITS = Limits()
