"""The snapshots that come and go between this node and its peers: both directions together."""

from collections.abc import Callable

from gantry_protocol.types import Index, NodeId

from gantry_controller.node.options import NodeOptions
from gantry_controller.node.receiving import Connection, SnapshotReceiver
from gantry_controller.node.shipping import SnapshotSender
from gantry_controller.node.snapshots import Snapshots
from gantry_controller.raft.core import RaftCore


class SnapshotTraffic:
    """Joins the sender and the receiver to the core.

    Args:
        options: this node.
        snapshots: what is sent, and what completes a received one.
        address_of: where a peer listens; None if nobody knows.
        news: called when the core has something to send.
        failed: called on the loop when the node must not go on.

    Attributes:
        sender, receiver: the two directions.
    """

    def __init__(
        self,
        options: NodeOptions,
        snapshots: Snapshots,
        *,
        address_of: Callable[[NodeId], str | None],
        news: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._news = news
        self._core: RaftCore | None = None  # None while the node does not run
        self.sender = SnapshotSender(
            options, snapshots, address_of=address_of, delivered=self._delivered
        )
        self.receiver = SnapshotReceiver(options, snapshots, failed=failed)

    def begin(self, core: RaftCore) -> None:
        """``core`` runs."""
        self._core = core
        self.receiver.start(core)

    def end(self) -> None:
        """Nothing more may leave this node or change it."""
        self._core = None
        self.sender.serve([])

    async def stop(self) -> None:
        """End every transfer; a half-received file is removed at the next start."""
        self.end()
        await self.receiver.stop()
        await self.sender.stop()

    def on_frames(self, peer: NodeId, bodies: list[bytes], connection: Connection) -> None:
        """A peer sent parts of a snapshot.

        Raises:
            MessageError: the connection they came from is closed.
        """
        if self._core is not None:
            self.receiver.on_frames(peer, bodies, connection)

    def serve(self, core: RaftCore) -> None:
        """Once per pass: send a snapshot to exactly those peers that wait for one."""
        self.sender.serve(core.awaiting_snapshot)

    def _delivered(self, peer: NodeId, holds: Index) -> None:
        if self._core is not None:
            self._core.snapshot_delivered(peer, holds)
            self._news()
