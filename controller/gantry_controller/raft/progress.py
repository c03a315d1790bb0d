"""The leader's view of one peer: what it holds, what is on its way to it (thesis §10.2.1).

A peer is probed until one append has been accepted: one message at a time, each carrying entries
from ``next_index``. From then on appends are sent ahead without waiting, up to a window. A
rejection means that something was lost on the way, and probing begins again behind ``match``.

    match_index < next_index <= last index + 1
"""

from collections import deque

from gantry_protocol.types import Index


class Progress:
    """Replication to one peer in the leader's present term.

    Attributes:
        match_index: the peer's log is durably equal to ours up to here. Of a peer that does not
            count it is only where to go on: a word of its past life may have raised it.
        next_index: the next append begins here.
        streaming: appends are sent ahead (else: one probe at a time).
        inflight: last index of each append that is not answered, oldest first.
        probe_sent: while probing: an append is out; the next waits for an answer or a heartbeat's.
        nudge: send an append even if it carries nothing; its answer tells what was lost.
        heartbeat_due: send a heartbeat in the next pass.
        commit_sent: the newest commit index this peer was told.
        recently_active: the peer answered since the last check of the quorum (thesis §6.2).
        silent_ticks: ticks since it last answered; too many at once when its connection changes.
        priority: the election priority it last stated.
        steady_ticks: for how long it has been fit to lead (``priority``).
        round_sent: newest read round it was sent.
        round_acked: newest read round it has echoed.
        round_valid: a rejection that echoes an older round answers what was sent before probing
            began, and says nothing about what was sent since.
        blank: nonce of a peer that may not be counted, 0 for a voter (``admission``).
        admit_index: once this entry is committed without it and held by it, it may vote.
    """

    __slots__ = (
        "admit_index",
        "blank",
        "commit_sent",
        "heartbeat_due",
        "inflight",
        "match_index",
        "next_index",
        "nudge",
        "priority",
        "probe_sent",
        "recently_active",
        "round_acked",
        "round_sent",
        "round_valid",
        "silent_ticks",
        "steady_ticks",
        "streaming",
    )

    def __init__(self, next_index: Index) -> None:
        """A peer of which nothing is known; probing starts at ``next_index``."""
        self.match_index = Index(0)
        self.next_index = next_index
        self.streaming = False
        self.inflight: deque[Index] = deque()
        self.probe_sent = False
        self.nudge = False
        self.heartbeat_due = False
        self.commit_sent = Index(0)
        self.recently_active = True  # a new leader grants everybody one period of grace
        self.silent_ticks = 0
        self.priority = 0
        self.steady_ticks = 0
        self.round_sent = 0
        self.round_acked = 0
        self.round_valid = 0
        self.blank = 0
        self.admit_index = Index(0)

    @property
    def counts(self) -> bool:
        """Whether its answers may be counted towards a quorum."""
        return self.blank == 0

    def may_send(self, inflight_max: int) -> bool:
        """Whether an append with entries may go out now."""
        return len(self.inflight) < inflight_max if self.streaming else not self.probe_sent

    def sent(self, last: Index) -> None:
        """An append that ends at ``last`` has gone out."""
        if self.streaming:
            if last >= self.next_index:
                self.inflight.append(last)
                self.next_index = Index(last + 1)
        else:
            self.probe_sent = True

    def accepted(self, index: Index) -> bool:
        """The peer's log matches up to ``index``. True if that is news."""
        while self.inflight and self.inflight[0] <= index:
            self.inflight.popleft()
        news = index > self.match_index
        self.match_index = max(self.match_index, index)
        if not self.streaming and index >= self.next_index - 1:
            self.streaming = True
            self.inflight.clear()
        self.probe_sent = False
        self.next_index = max(self.next_index, Index(self.match_index + 1))
        return news

    def rejected(self, prev_index: Index, hint: Index, echoed: int) -> bool:
        """The peer's log did not match at ``prev_index``. False if the answer is old.

        While streaming, an answer at or below match is old; while probing, any that is not about
        the one probe that is out (etcd's MaybeDecrTo). Of a whole window that was lost, only the
        first rejection counts: each of the others would send the next window in vain.
        """
        if echoed < self.round_valid:
            return False
        if not self.counts:
            self.match_index = min(self.match_index, Index(max(prev_index - 1, 0)))
        if self.streaming:
            if prev_index <= self.match_index:
                return False
            self.probe(Index(self.match_index + 1))
            return True
        if prev_index != self.next_index - 1:
            return False
        self.probe(max(Index(self.match_index + 1), min(prev_index, Index(hint + 1))))
        return True

    def probe(self, next_index: Index) -> None:
        """Send one append at a time, beginning at ``next_index``."""
        self.streaming = False
        self.inflight.clear()
        self.probe_sent = False
        self.next_index = max(next_index, Index(1))

    def forget(self) -> None:
        """The peer has lost its disk: nothing it ever confirmed counts any more."""
        self.match_index = Index(0)
        self.round_acked = 0
        self.commit_sent = Index(0)
        self.probe(Index(1))
