"""What a Raft node is told, in the units people think in; the core counts ticks."""

from pathlib import Path

import msgspec
from gantry_protocol.types import NodeId

from gantry_controller.raft.config import RaftConfig

TICK_MS = 20
HEARTBEAT_TICKS = 3
HURRY_MS = 120
"""Once the leader's process is known to be gone, a follower stands within this, at random, so that
two of them rarely split the vote."""


class NodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One node of one quorum.

    Attributes:
        cluster_uid: identity of the quorum; peers of another one are refused.
        node_id: this node.
        peers: address (``host:port``) of every initial member, this node included.
        directory: of the write-ahead log.
        bind: IP address to listen on.
        port: to listen on; 0 picks a free one.
        election_timeout_ms: a follower that hears no leader stands after 1x to 2x this.
    """

    cluster_uid: str
    node_id: NodeId
    peers: dict[NodeId, str]
    directory: Path
    bind: str = "127.0.0.1"
    port: int = 0
    election_timeout_ms: int = 400

    @property
    def raft(self) -> RaftConfig:
        """The same in ticks.

        Raises:
            ConfigError: names the setting that cannot work.
        """
        return RaftConfig(
            node_id=self.node_id,
            voters=tuple(sorted(self.peers)),
            election_ticks=max(HEARTBEAT_TICKS + 1, self.election_timeout_ms // TICK_MS),
            heartbeat_ticks=HEARTBEAT_TICKS,
            hurry_ticks=max(1, HURRY_MS // TICK_MS),
        )
