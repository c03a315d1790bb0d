"""Linearizable reads without the log (thesis §6.4, etcd's ReadIndex).

A read may be served from the state machine once it has applied the commit index of the moment the
read arrived, provided the leader was still the leader after that moment. Proof of the latter: the
leader raises a counter when reads arrive, every append and heartbeat carries it, replies echo it,
and a quorum of echoes of that value (or a later one) was sent by nodes that were then still in the
leader's term. One counter confirms all reads before it, and under write load the appends carry it,
so reads cost no messages.

A leader does not know what is committed until an entry of its own term is (thesis §3.6.2); reads
that arrive before wait. A leader that steps down drops its reads: only the next leader can answer.
"""

from collections import deque

import msgspec
from gantry_protocol.types import Index


class ReadState(msgspec.Struct, frozen=True):
    """Reads that are linearizable once ``index`` is applied."""

    index: Index
    contexts: list[object]


class _PendingRead(msgspec.Struct, frozen=True):
    round: int
    index: Index
    contexts: list[object]


class ReadQueue:
    """Reads that wait for a quorum's word.

    Attributes:
        round: the counter; messages sent from now on carry it. Replication raises it too, to tell
            answers to older messages from newer ones (``progress``).
        wanted: the round that the newest read waits for.
    """

    __slots__ = ("_early", "_pending", "round", "wanted")

    def __init__(self) -> None:
        """No read waits."""
        self.round = 0
        self.wanted = 0
        self._early: list[object] = []
        self._pending: deque[_PendingRead] = deque()

    def add(self, contexts: list[object], commit_index: Index | None) -> None:
        """Queue reads; ``commit_index`` is None while no entry of this term is committed."""
        if commit_index is None:
            self._early.extend(contexts)
            return
        self.round += 1
        self.wanted = self.round
        self._pending.append(_PendingRead(self.round, commit_index, contexts))

    def term_committed(self, commit_index: Index) -> None:
        """An entry of this leader's term is committed; reads that waited for that may go on."""
        if self._early:
            early, self._early = self._early, []
            self.add(early, commit_index)

    def confirmed(self, acked_round: int) -> list[ReadState]:
        """Reads for which a quorum has echoed their round, in order of arrival."""
        done: list[ReadState] = []
        while self._pending and self._pending[0].round <= acked_round:
            read = self._pending.popleft()
            done.append(ReadState(read.index, read.contexts))
        return done

    def drop(self) -> list[object]:
        """Forget all reads; returns their contexts."""
        contexts = [context for read in self._pending for context in read.contexts]
        contexts += self._early
        self._pending.clear()
        self._early = []
        return contexts
