"""The knobs of the core: counts and bytes, never seconds; the driver turns ticks into time."""

import msgspec
from gantry_protocol.errors import ConfigError
from gantry_protocol.settings.defaults import READ_LAG_MAX
from gantry_protocol.types import NodeId


class RaftConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The members, and the bounds of their work.

    Attributes:
        node_id: this node.
        voters: all founding members, this node included; empty on a node that waits to be taken in.
        founds: whether this node may take part in founding a quorum (``admission``); False where
            it has lost a log whose entries may have been acknowledged.
        addresses: where the founding members are reached, for those who join later.
        election_ticks: a follower that hears no leader campaigns after 1x to 2x this; a leader
            that hears no quorum for this long steps down.
        heartbeat_ticks: pause between heartbeats.
        hurry_ticks: once the leader's process is known to be gone, campaign within this.
        append_bytes_max: entries in one message stop at this size (one entry always fits).
        inflight_max: appends on their way to one peer.
        append_entries_min: while one is, fewer entries than this wait for its answer and travel
            together: group commit on the network, as on the disk.
        uncommitted_bytes_max: proposals are refused beyond this, so memory is bounded while no
            quorum answers.
        apply_entries_max: entries handed out and not yet reported as applied.
        priority: of this node; leadership goes to a steady voter of a higher one (``priority``).
        promote_lag_max: a learner that lacks more entries than this may not vote yet.
        read_lag_max: a follower with more committed entries than this to apply redirects reads.
        lease_ns: how long a quorum's promise is good for reads (``lease``), by the clock that
            ``ready`` is given; less than an election time-out by all that clocks may differ.
            0: never.
        disk_patience_ticks: the own disk hangs when it has confirmed nothing for this long although
            something is under way (``own_disk``).
    """

    node_id: NodeId
    voters: tuple[NodeId, ...]
    founds: bool = True
    addresses: tuple[tuple[NodeId, str], ...] = ()
    election_ticks: int = 20
    heartbeat_ticks: int = 3
    hurry_ticks: int = 6
    append_bytes_max: int = 256 * 1024
    inflight_max: int = 64
    append_entries_min: int = 256
    uncommitted_bytes_max: int = 16 * 1024 * 1024
    apply_entries_max: int = 1024
    priority: int = 0
    promote_lag_max: int = 1000
    read_lag_max: int = READ_LAG_MAX
    lease_ns: int = 0
    disk_patience_ticks: int = 100

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            ConfigError: names the setting.
        """
        if self.voters and self.node_id not in self.voters:
            raise ConfigError(f"Node {self.node_id} is not among the peers {list(self.voters)}.")
        if len(set(self.voters)) != len(self.voters):
            raise ConfigError(f"The peers {list(self.voters)} name a node twice.")
        if any(node < 1 for node in (self.node_id, *self.voters)):
            raise ConfigError(f"The peers {list(self.voters)} must be numbered from 1.")
        if not 0 < self.heartbeat_ticks < self.election_ticks:
            raise ConfigError(
                f"The heartbeat ({self.heartbeat_ticks} ticks) must be shorter than the election "
                f"time-out ({self.election_ticks} ticks)."
            )
