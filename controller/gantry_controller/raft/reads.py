"""Linearizable reads without the log (thesis §6.4, etcd's ReadIndex), the leader's side.

A read may be served from the state machine once it has applied the commit index of the moment the
read arrived, provided the leader was still the leader after that moment. Proof of the latter: the
leader raises a counter when reads arrive, every append and heartbeat carries it, replies echo it,
and a quorum of echoes of that value (or a later one) was sent by nodes that were then still in the
leader's term. One counter confirms all reads before it, and under write load the appends carry it,
so reads cost no messages. While a lease is valid (``lease``) the proof is there already.

A leader does not know what is committed until an entry of its own term is (thesis §3.6.2); reads
that arrive before wait. A leader that steps down drops its reads: only the next leader can answer.

Reads are taken in when they arrive and judged in the next pass, all of them together: that pass
knows the time, and what it sends carries their round.
"""

from collections import deque
from enum import Enum

import msgspec
from gantry_protocol.types import Index, NodeId


class ReadMode(Enum):
    """The means by which a read is linearizable."""

    LEADER = "leader"  # a quorum has echoed a round that began after the read
    LEASE = "lease"  # a quorum has promised not to elect anybody else yet
    FOLLOWER = "follower"  # the leader has said how new the state must be


class ReadState(msgspec.Struct, frozen=True):
    """Reads that are linearizable once ``index`` is applied."""

    index: Index
    contexts: list[object]
    mode: ReadMode = ReadMode.LEADER


class RemoteRead(msgspec.Struct, frozen=True, gc=False):
    """All reads that one request of a follower stands for."""

    source: NodeId
    nonce: int


class _PendingRead(msgspec.Struct, frozen=True):
    round: int
    index: Index
    contexts: list[object]
    remote: list[RemoteRead]


class ReadQueue:
    """Reads that wait for a quorum's word.

    Attributes:
        round: the counter; messages sent from now on carry it. Replication raises it too, to tell
            answers to older messages from newer ones (``progress``).
        wanted: the round that the newest read waits for.
        contexts, remote: reads that no round was begun for yet, of this node and of followers.
    """

    __slots__ = ("_pending", "contexts", "remote", "round", "wanted")

    def __init__(self) -> None:
        """No read waits."""
        self.round = 0
        self.wanted = 0
        self.contexts: list[object] = []
        self.remote: list[RemoteRead] = []
        self._pending: deque[_PendingRead] = deque()

    def begin(self, commit_index: Index) -> None:
        """Raise the counter for all reads that have arrived; ``commit_index`` answers them."""
        self.round += 1
        self.wanted = self.round
        self._pending.append(_PendingRead(self.round, commit_index, *self.take()))

    def take(self) -> tuple[list[object], list[RemoteRead]]:
        """Take out the reads that no round was begun for."""
        taken = self.contexts, self.remote
        self.contexts, self.remote = [], []
        return taken

    def confirmed(self, acked_round: int) -> list[tuple[ReadState, list[RemoteRead]]]:
        """Reads for which a quorum has echoed their round, in order of arrival."""
        done: list[tuple[ReadState, list[RemoteRead]]] = []
        while self._pending and self._pending[0].round <= acked_round:
            read = self._pending.popleft()
            done.append((ReadState(read.index, read.contexts), read.remote))
        return done

    def drop(self) -> list[object]:
        """Forget all reads; returns this node's own. Followers learn by themselves."""
        contexts = [context for read in self._pending for context in read.contexts]
        contexts += self.take()[0]
        self._pending.clear()
        return contexts
