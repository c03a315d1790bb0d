"""Linearizable reads that a follower serves from its own state (thesis §6.4).

The follower asks the leader how new the state must be; the leader answers with its commit index
once it has proved that it led after the question arrived (``reads``). One question per pass stands
for all reads that wait, and the answer to a question is an answer to all asked before it.

Each question carries a nonce drawn for it, and only the answer with that nonce, in the present
term, counts: an answer to an earlier life of this node, or of a leader replaced since, is about an
older moment than the reads that wait.

A read is not served but **redirected** to the leader, in three places: before asking, if the leader
was not heard within an election time-out or this node is known to lag by more than
``read_lag_max`` entries; after the answer, by the same limit; and when no answer came within an
election time-out. So a follower that is cut off or far behind says so at once, and nobody waits for
it to catch up.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.types import Index

from gantry_controller.raft.errors import ReadRedirect
from gantry_controller.raft.messages import ReadIndexReply, ReadIndexRequest
from gantry_controller.raft.reads import ReadMode, ReadState, RemoteRead

if TYPE_CHECKING:
    from gantry_controller.raft.state import RaftState

QUESTIONS_MAX = 16
"""Questions on their way to the leader; while there are as many, reads wait for the next one."""


class _Question(msgspec.Struct, frozen=True):
    nonce: int
    asked_at: int  # tick
    contexts: list[object]


class FollowerReads:
    """Reads of a follower that wait for the leader's answer.

    Attributes:
        leader_commit: the newest commit index the present leader was heard to have.
    """

    __slots__ = ("_asked", "_repeat", "_ticks", "_waiting", "leader_commit")

    def __init__(self) -> None:
        """No read waits."""
        self.leader_commit = Index(0)
        self._ticks = 0
        self._repeat = False
        self._waiting: list[object] = []
        self._asked: deque[_Question] = deque()

    def add(self, contexts: list[object]) -> None:
        """Let these reads be part of the next question."""
        self._waiting.extend(contexts)

    def note_commit(self, index: Index) -> None:
        """The leader has committed up to ``index``, or more."""
        self.leader_commit = max(self.leader_commit, index)

    def question(self, nonce: int) -> None:
        """A question with ``nonce`` goes out for all that wait."""
        self._asked.append(_Question(nonce, self._ticks, self._waiting))
        self._waiting = []
        self._repeat = False

    @property
    def has_question(self) -> bool:
        """Whether there is something to ask, and room for it on the way."""
        return (bool(self._waiting) or self._repeat) and len(self._asked) < QUESTIONS_MAX

    def answered(self, nonce: int) -> list[object]:
        """The reads that the answer with ``nonce`` is about; none if nobody waits for it."""
        if all(question.nonce != nonce for question in self._asked):
            return []
        contexts: list[object] = []
        while True:
            question = self._asked.popleft()
            contexts += question.contexts
            if question.nonce == nonce:
                return contexts

    def tick(self, repeat_ticks: int, wait_ticks: int) -> list[object]:
        """One tick; returns the reads that have waited for ``wait_ticks`` in vain.

        A question that may have been lost is repeated: the next one is an answer to both.
        """
        self._ticks += 1
        late: list[object] = []
        while self._asked and self._ticks - self._asked[0].asked_at >= wait_ticks:
            late += self._asked.popleft().contexts
        if self._asked and self._ticks - self._asked[-1].asked_at >= repeat_ticks:
            self._repeat = True
        return late

    def drop(self) -> list[object]:
        """Forget all reads and what the leader said; returns the reads."""
        contexts = [context for question in self._asked for context in question.contexts]
        contexts += self._waiting
        self._asked.clear()
        self._waiting = []
        self._repeat = False
        self.leader_commit = Index(0)
        return contexts


# ---- follower ----------------------------------------------------------------------------------


def ask(state: RaftState, contexts: list[object]) -> None:
    """Begin reads on a node that does not lead.

    Raises:
        ReadRedirect: this node cannot tell, or lags; the leader should be asked.
    """
    assert not state.leads
    if not state.hears_leader:
        raise ReadRedirect(state.leader, "since it hears no leader")
    if lags(state, state.follower_reads.leader_commit):
        raise ReadRedirect(state.leader, "since it lags behind the leader")
    state.follower_reads.add(contexts)


def lags(state: RaftState, leader_commit: Index) -> bool:
    """Whether more than the limit is committed and not applied here."""
    return leader_commit - state.log.applied_index > state.config.read_lag_max


def send(state: RaftState) -> None:
    """Once per pass: one question for all reads that wait."""
    reads = state.follower_reads
    if state.leader is None or not reads.has_question:
        return
    nonce = state.rng.getrandbits(63)
    reads.question(nonce)
    state.now.append(ReadIndexRequest(state.node_id, state.leader, state.term, nonce))


def on_reply(state: RaftState, reply: ReadIndexReply) -> None:
    """The leader's answer, in the present term."""
    contexts = state.follower_reads.answered(reply.nonce)
    if not contexts:
        return
    if lags(state, reply.index):
        state.trace("read-lag", index=reply.index, applied=state.log.applied_index)
        state.reads_redirected += contexts
    else:
        state.reads_confirmed.append(ReadState(reply.index, contexts, ReadMode.FOLLOWER))


def tick(state: RaftState) -> None:
    """One tick of a node that does not lead."""
    state.reads_redirected += state.follower_reads.tick(
        state.config.heartbeat_ticks, state.config.election_ticks
    )


# ---- leader ------------------------------------------------------------------------------------


def on_request(state: RaftState, request: ReadIndexRequest) -> None:
    """A follower asks how new its state must be. Whoever does not lead keeps silent."""
    if state.leads:
        state.reads.remote.append(RemoteRead(request.source, request.nonce))
