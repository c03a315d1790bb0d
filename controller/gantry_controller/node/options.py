"""Options of a Raft node, in the units people think in; the core counts ticks."""

from pathlib import Path

import msgspec
from gantry_protocol.quorum_key import NO_KEY, KeyFile
from gantry_protocol.settings.defaults import (
    ELECTION_TIMEOUT_MS,
    READ_LAG_MAX,
    RECORDED_BYTES,
    SNAPSHOT_LOG_BYTES,
    SNAPSHOT_MARGIN_ENTRIES,
)
from gantry_protocol.types import NodeId

from gantry_controller.raft.config import RaftConfig
from gantry_controller.wal.wal import SEGMENT_SIZE_BYTES

TICK_MS = 20
COMMAND_BYTES_MAX = 4 * 1024 * 1024
FRAME_BYTES_MAX = 8 * 1024 * 1024  # one entry of the greatest size, or an append full of small ones


LEASE_SLACK_TICKS = 3
"""A voter's promise may end this much early: it counts whole ticks, and may take two at once that
were due before the message it promised on (``ticker``)."""


def lease_ms(election_timeout_ms: int) -> int:
    """The life of a quorum's promise, from the moment it was asked for (ADR 0020).

    A tenth of the time-out and the slack pay for clocks that run at different rates: with the
    default of 400 ms a lease lasts 300 ms of a promise of at least 340 ms, so rates may differ by
    13 %; a tenth of a percent would be a broken clock.
    """
    return max(election_timeout_ms * 9 // 10 - LEASE_SLACK_TICKS * TICK_MS, 0)


DISK_PATIENCE_TIMEOUTS = 5
"""A disk that confirms nothing for so many election time-outs hangs (``raft.own_disk``). With 2 s a
cloud volume's worst hiccups cost no election, and writes that wait are answered before clients give
up after 3 s."""


class NodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One node of one quorum.

    Attributes:
        cluster_uid: identity of the quorum; peers of another one are refused.
        node_id: this node.
        peers: contact (``contacts``) of every founding member, this node included.
        founds: may take part in founding a quorum; not if it has put a damaged log aside
            (``rejoin``).
        join: found nothing: wait to be taken in by a quorum that exists; ``peers`` then only says
            where members are reached, this node at least.
        unnamed: this node, if its contact in ``peers`` is only where it listens; see ``contacts``.
        priority: election priority (``raft.priority``).
        directory: of the write-ahead log; the caller holds its lock.
        bind: IP address to listen on.
        port: to listen on; 0 picks a free one.
        election_timeout_ms: a follower that hears no leader stands after 1x to 2x this; a leader
            that hears no quorum for this long steps down.
        heartbeat_ms: pause between a leader's heartbeats.
        proposals_max: commands that wait for a quorum; more are refused.
        uncommitted_bytes_max: the same in bytes.
        segment_size_bytes: size of a file of the log.
        snapshot_log_bytes: take a snapshot when this much log was applied since the last one, and
            twice as much as that one has bytes.
        snapshot_margin_entries: entries kept before a snapshot's end for followers that are late.
        recorded_bytes: of the last steps of the core that are kept (``decisions``); 0: none are.
        key: what peers show each other before anything is said.
        read_lag_max: a follower with more committed entries than this to apply sends reads to the
            leader.
    """

    cluster_uid: str
    node_id: NodeId
    peers: dict[NodeId, str]
    directory: Path
    founds: bool = True
    join: bool = False
    unnamed: NodeId | None = None
    priority: int = 0
    bind: str = "127.0.0.1"
    port: int = 0
    election_timeout_ms: int = ELECTION_TIMEOUT_MS
    heartbeat_ms: int = 60
    proposals_max: int = 20_000
    uncommitted_bytes_max: int = 32 * 1024 * 1024
    segment_size_bytes: int = SEGMENT_SIZE_BYTES
    snapshot_log_bytes: int = SNAPSHOT_LOG_BYTES
    snapshot_margin_entries: int = SNAPSHOT_MARGIN_ENTRIES
    read_lag_max: int = READ_LAG_MAX
    recorded_bytes: int = RECORDED_BYTES
    key: KeyFile = NO_KEY

    def raft(self) -> RaftConfig:
        """The core's share of it.

        Raises:
            ConfigError: names the setting that cannot work.
        """
        heartbeat_ticks = max(self.heartbeat_ms // TICK_MS, 1)
        return RaftConfig(
            node_id=self.node_id,
            voters=() if self.join else tuple(sorted(self.peers)),
            founds=self.founds,
            addresses=tuple(sorted(self.peers.items())),
            priority=self.priority,
            election_ticks=max(self.election_timeout_ms // TICK_MS, heartbeat_ticks + 1),
            heartbeat_ticks=heartbeat_ticks,
            uncommitted_bytes_max=self.uncommitted_bytes_max,
            read_lag_max=self.read_lag_max,
            disk_patience_ticks=DISK_PATIENCE_TIMEOUTS * self.election_timeout_ms // TICK_MS,
            lease_ns=lease_ms(self.election_timeout_ms) * 1_000_000,
        )
