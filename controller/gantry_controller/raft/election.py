"""Elections: pre-vote, vote, check-quorum, and what to do when a leader's process is gone.

- A node votes once per term, durably, and only for a log at least as up to date as its own (thesis
  §3.4, §3.6.1). The request for real votes leaves after the candidate's own term and vote are on
  its disk: a candidate that forgets a term could otherwise count old answers for a log it lost.
- Pre-vote (§9.6): before entering a term a node asks whether it would win. Being asked changes
  nothing, so asking early, or wrongly, does no harm.
- Who hears a leader grants nothing and ignores the question (§6.2, §4.2.3), so a node that cannot
  hear the leader does not disturb the others; a leader that hears no quorum steps down.
- ``leader_lost`` is a hint from outside: the leader's process closed its connection and its address
  refuses a new one. It only ends the wait early. A node that is bound to a promise (``lease``) does
  not take a hint for its end.
"""

from gantry_protocol.types import NodeId, Term

from gantry_controller.raft import lease
from gantry_controller.raft.messages import VoteReply, VoteRequest
from gantry_controller.raft.state import RaftState, Role

COURTESY_TICKS = 5  # after granting a pre-vote: leave the other this long to finish


def tick(state: RaftState) -> None:
    """One tick of a node that does not lead."""
    state.election_elapsed += 1
    state.promise_elapsed += 1
    due = state.election_elapsed >= state.election_timeout and state.may_campaign
    if due and not lease.promised(state):  # its own vote is bound, too, if it is alone by now
        campaign(state)
    elif _asks_again(state):
        _request_votes(state, Term(state.term + 1), pre=True)


def _asks_again(state: RaftState) -> bool:
    """Whether to repeat the question to those who kept silent; they may hear no leader by now."""
    again = state.election_elapsed % state.config.hurry_ticks == 0
    return again and state.role is Role.PRE_CANDIDATE


def tick_leader(state: RaftState) -> None:
    """One tick of a leader: once per election time-out, is there still a quorum (§6.2)?"""
    for progress in state.peers.values():
        progress.silent_ticks += 1
    state.election_elapsed += 1
    if state.election_elapsed < state.config.election_ticks:
        return
    state.election_elapsed = 0
    active = [node for node, progress in state.counted.items() if progress.recently_active]
    for progress in state.peers.values():
        progress.recently_active = False
    if not state.members.decides([state.node_id, *active]):
        state.trace("quorum-lost", term=state.term)
        state.become_follower(state.term, None)


def leader_lost(state: RaftState, node: NodeId) -> None:
    """The process of ``node`` is gone; if it led, campaign soon, at a drawn tick."""
    if state.role is not Role.FOLLOWER or state.leader != node:
        return
    if lease.binds(state):
        state.trace("leader-lost-in-lease", leader=node)
        return
    state.trace("leader-lost", leader=node)
    state.leader = None
    wait = state.rng.randrange(1, state.config.hurry_ticks + 1)
    state.election_timeout = min(state.election_timeout, state.election_elapsed + wait)


def campaign(state: RaftState) -> None:
    """Ask everybody whether they would vote for this node in the next term."""
    state.become_pre_candidate()
    _request_votes(state, Term(state.term + 1), pre=True)
    count_votes(state)


def campaign_at_once(state: RaftState) -> None:
    """Campaign on the leader's word (``transfer``): nobody is asked before, and nobody waits."""
    state.become_pre_candidate()
    state.become_candidate()
    _request_votes(state, state.term, pre=False, transfer=True)


def _request_votes(state: RaftState, term: Term, *, pre: bool, transfer: bool = False) -> None:
    log = state.log
    outbox = state.now if pre else state.after_persist
    outbox.extend(
        VoteRequest(state.node_id, node, term, log.last_index, log.last_term, pre, transfer)
        for node in state.members.voters
        if node != state.node_id and node not in state.votes
    )


def count_votes(state: RaftState) -> None:
    """Act on the answers so far."""
    granted = [node for node, vote in state.votes.items() if vote]
    refused = [node for node, vote in state.votes.items() if not vote]
    if state.members.decides(granted):
        if state.role is Role.PRE_CANDIDATE:
            state.become_candidate()
            _request_votes(state, state.term, pre=False)
        else:
            state.become_leader()
    elif state.members.decides(refused):
        state.become_follower(state.term, None)


def own_vote_is_durable(state: RaftState) -> None:
    """The candidate's vote for itself in the present term has reached the disk."""
    if state.role is Role.CANDIDATE:
        state.votes[state.node_id] = True
        count_votes(state)


def may_vote_for(state: RaftState, request: VoteRequest) -> bool:
    """Whether this node is free to vote (§3.4) and the candidate's log is good enough (§3.6.1)."""
    free = state.vote in (None, request.source) if request.term == state.term else request.pre
    return free and state.log.is_up_to_date(request.last_index, request.last_term)


def on_pre_vote_request(state: RaftState, request: VoteRequest) -> None:
    """Would this node vote? Nothing changes by answering.

    One whose disk hangs keeps silent: its vote itself would never leave (``own_disk``).
    """
    if state.disk_hangs or _goes_first(state, request):
        return
    granted = may_vote_for(state, request)
    if granted:
        state.election_timeout = max(
            state.election_timeout, state.election_elapsed + COURTESY_TICKS
        )
    term = request.term if granted else state.term
    state.trace("pre-vote", source=request.source, term=request.term, granted=granted)
    state.now.append(VoteReply(state.node_id, request.source, term, granted, pre=True))


def _goes_first(state: RaftState, request: VoteRequest) -> bool:
    """Whether two nodes began to ask within a tick, with equal logs, and this one has the lower id.

    Both would get each other's word, enter the same term and split the vote. One tick is enough
    to break the tie, and too short for a node that cannot win to be in the way for long.
    """
    return (
        state.role is Role.PRE_CANDIDATE
        and state.election_elapsed == 0
        and state.node_id < request.source
        and (request.last_term, request.last_index) == (state.log.last_term, state.log.last_index)
    )


def on_vote_request(state: RaftState, request: VoteRequest) -> None:
    """Vote or refuse in the present term. The answer leaves when it is durable."""
    granted = may_vote_for(state, request)
    state.trace("vote", source=request.source, term=request.term, granted=granted)
    if granted:
        state.vote = request.source
        state.restart_election_timer()
    reply = VoteReply(state.node_id, request.source, state.term, granted, pre=False)
    state.after_persist.append(reply)


def on_vote_reply(state: RaftState, reply: VoteReply) -> None:
    """Count an answer, if it is one to the present campaign."""
    expected = Role.PRE_CANDIDATE if reply.pre else Role.CANDIDATE
    if state.role is expected and reply.source in state.members.voters:
        state.votes.setdefault(reply.source, reply.granted)
        count_votes(state)
