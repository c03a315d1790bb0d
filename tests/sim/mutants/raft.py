"""Bugs in the consensus core; the first dozen is the calibration table of the Raft study."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Script, Seeds, UnitTests
from sim.mutants.planting import Edit
from sim.raft import scripts

RAFT = "gantry_controller.raft"
CORE = "unit/controller/raft/test_core.py"
STORY = "unit/controller/raft/test_scenarios.py::test_story"


MUTANTS = (
    Mutant(
        "truncate-without-conflict",
        "log",
        "every append cuts what stands behind it (PySyncObj's rule)",
        (
            Edit(
                f"{RAFT}.log:RaftLog.merge",
                "for position, entry",
                "keep = max(prev_index, self.commit_index)\n"
                "    if keep < self.last_index:\n"
                "        self._cut(Index(keep + 1))\n"
                "    for position, entry",
            ),
        ),
        Seeds("raft", 40),
    ),
    Mutant(
        "vote-is-forgotten",
        "election",
        "a restart forgets whom the node voted for",
        (Edit(f"{RAFT}.state:RaftState.__init__", "self.vote = hard.vote", "self.vote = None"),),
        Script(scripts.vote_after_restart),
    ),
    Mutant(
        "ack-before-persist",
        "durability",
        "a follower answers an append before the entries are on its disk",
        (Edit(f"{RAFT}.replication:_accept", "state.after_persist.append", "state.now.append"),),
        Seeds("raft", 20),
    ),
    Mutant(
        "leader-counts-itself-early",
        "durability",
        "the leader takes its own entries for durable before they are",
        (
            Edit(
                f"{RAFT}.replication:update_commit",
                "state.reached(state.log.persisted_index,",
                "state.reached(state.log.last_index,",
            ),
        ),
        Seeds("raft", 20),
    ),
    Mutant(
        "commit-beyond-the-message",
        "replication",
        "a follower commits up to its last entry, not up to the last one the message covers",
        (
            Edit(
                f"{RAFT}.replication:commit_covered",
                "return min(leader_commit, last)",
                "return leader_commit",
            ),
            Edit(
                f"{RAFT}.log:RaftLog.commit_to",
                "assert index <= self.last_index",
                "index = min(index, self.last_index)",
            ),
        ),
        Script(scripts.commit_beyond_the_message),
    ),
    Mutant(
        "vote-without-log-check",
        "election",
        "a vote is given to a candidate whose log is behind",
        (
            Edit(
                f"{RAFT}.election:may_vote_for",
                "return free and state.log.is_up_to_date(request.last_index, request.last_term)",
                "return free",
            ),
        ),
        Seeds("raft", 40),
    ),
    Mutant(
        "heartbeat-with-bare-commit",
        "replication",
        "a heartbeat tells the leader's commit index, whatever the peer holds",
        (
            Edit(
                f"{RAFT}.replication:commit_vouched",
                "return min(progress.match_index, state.log.commit_index)",
                "return state.log.commit_index",
            ),
        ),
        Seeds("raft", 20),
    ),
    Mutant(
        "quorum-of-half",
        "election",
        "half of the members are taken for a majority",
        (
            Edit(
                f"{RAFT}.quorum:quorum_size", "return members // 2 + 1", "return (members + 1) // 2"
            ),
        ),
        Seeds("raft", 40),
    ),
    Mutant(
        "two-votes-in-a-term",
        "election",
        "a vote does not bind",
        (Edit(f"{RAFT}.election:may_vote_for", "return free and ", "return "),),
        Seeds("raft", 40),
    ),
    Mutant(
        "old-term-ack",
        "replication",
        "an acknowledgement of an earlier term counts",
        (
            Edit(
                f"{RAFT}.stepping:_step_in_term",
                "elif message.term < state.term:",
                "elif message.term < state.term and not isinstance(message, AppendReply):",
            ),
        ),
        Script(scripts.old_term_ack),
    ),
    Mutant(
        "old-term-commit-by-counting",
        "replication",
        "a leader commits an entry of an older term because a majority holds it (Figure 8)",
        (
            Edit(
                f"{RAFT}.replication:may_commit_by_counting",
                "return state.log.term_at(index) == state.term",
                "return True",
            ),
        ),
        Script(scripts.figure_8),
    ),
    Mutant(
        "term-is-forgotten",
        "election",
        "a restart forgets the term",
        (Edit(f"{RAFT}.state:RaftState.__init__", "self.term = hard.term", "self.term = Term(0)"),),
        Seeds("raft", 20),
    ),
    Mutant(
        "vote-before-persist",
        "durability",
        "a vote is told before it is on the disk",
        (
            Edit(
                f"{RAFT}.election:on_vote_request",
                "state.after_persist.append(reply)",
                "state.now.append(reply)",
            ),
        ),
        Script(scripts.vote_told_too_early),
    ),
    Mutant(
        "candidacy-before-persist",
        "durability",
        "a candidate asks for votes before its term, and the log it shows, are on its disk",
        (
            Edit(
                f"{RAFT}.election:_request_votes",
                "outbox = state.now if pre else state.after_persist",
                "outbox = state.now",
            ),
        ),
        Script(scripts.forgotten_candidacy),
    ),
    Mutant(
        "replaced-entry-confirmed",
        "durability",
        "a disk's confirmation counts although the entry was replaced meanwhile (ABA)",
        (
            Edit(
                f"{RAFT}.log:RaftLog._cut",
                "self._under_way = deque(min(last, keep) for last in self._under_way)",
                "pass",
            ),
        ),
        Script(scripts.aba_persist_race),
    ),
    Mutant(
        "old-term-append",
        "replication",
        "a follower obeys a leader of an earlier term",
        (
            Edit(
                f"{RAFT}.stepping:_step_in_term",
                "elif message.term < state.term:",
                "elif message.term < state.term and not isinstance(message, Append):",
            ),
        ),
        Seeds("raft", 40),
    ),
    Mutant(
        "commit-falls",
        "log",
        "an old message lowers the commit index",
        (
            Edit(
                f"{RAFT}.log:RaftLog.commit_to",
                "self.commit_index = max(self.commit_index, index)",
                "self.commit_index = index",
            ),
        ),
        Seeds("raft", 20),
    ),
    Mutant(
        "leader-without-quorum-stays",
        "election",
        "a leader that hears nobody goes on leading (no check-quorum)",
        (
            Edit(
                f"{RAFT}.election:tick_leader",
                "if not state.members.decides([state.node_id, *active]):",
                "if False:",
            ),
        ),
        UnitTests(f"{STORY}[check_quorum]"),
    ),
    Mutant(
        "heard-leader-is-no-reason",
        "election",
        "a node that hears its leader votes for another all the same",
        (
            Edit(
                f"{RAFT}.stepping:_step_vote_request",
                "if not request.transfer and (state.hears_leader or lease.promised(state)):",
                "if False:",
            ),
        ),
        UnitTests(CORE),
    ),
    Mutant(
        "window-without-bound",
        "replication",
        "appends are sent ahead without a limit",
        (
            Edit(
                f"{RAFT}.progress:Progress.may_send",
                "len(self.inflight) < inflight_max if self.streaming",
                "True if self.streaming",
            ),
        ),
        UnitTests("unit/controller/raft/test_progress.py"),
    ),
    Mutant(
        "uncommitted-without-bound",
        "replication",
        "a leader without a quorum takes proposals for ever",
        (
            Edit(
                f"{RAFT}.core:RaftCore.propose",
                "if state.uncommitted_bytes and",
                "if False and",
            ),
        ),
        UnitTests(CORE),
    ),
    Mutant(
        "refusal-counts-as-a-vote",
        "election",
        "a candidate takes every answer for a vote",
        (
            Edit(
                f"{RAFT}.election:on_vote_reply",
                "reply.granted)",
                "True)",
            ),
        ),
        Seeds("raft", 10),
    ),
    Mutant(
        "old-news-confirms-everything",
        "replication",
        "an append about committed entries is answered with the end of a log nobody compared",
        (
            Edit(
                f"{RAFT}.replication:on_append",
                "_accept(state, message, log.commit_index)",
                "_accept(state, message, log.last_index)",
            ),
        ),
        Script(scripts.tail_confirmed_unseen),
    ),
)
