"""Checks of a peer's message before the module it concerns handles it (thesis §3.3).

Whatever it says, a message is judged in this order: is it for this node; is it of no term at all
(``PristineQuery``); is it a question for a vote, which must not raise a term before it is clear
that this node would answer; else its term, a higher one adopted, a lower one refused. Only then
what it says.

The rules protected here: a node that hears a leader, or has promised, or is blank, votes for nobody
and stays in its term (§4.2.3, §9.6; ``lease``, ``admission``); the *answer* of a stranger
deposes nobody; there is one leader in a term.
"""

from gantry_protocol.types import NodeId

from gantry_controller.raft import admission, election, follower_reads, lease, replication, transfer
from gantry_controller.raft.errors import MessageError
from gantry_controller.raft.messages import (
    Append,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    Message,
    PristineQuery,
    PristineReply,
    ReadIndexReply,
    ReadIndexRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from gantry_controller.raft.state import RaftState, Role

InTerm = (
    Append
    | AppendReply
    | Heartbeat
    | HeartbeatReply
    | VoteReply
    | TimeoutNow
    | ReadIndexRequest
    | ReadIndexReply
)
"""Messages of a term: a higher one is adopted, a lower one refused, before anything else."""


def step(state: RaftState, message: Message) -> None:
    """Take a peer's message; a leader or candidate this node does not know yet may be one.

    Raises:
        MessageError: no honest peer of this quorum sends that; nothing was changed.
        LogLostError: the own disk has lost what this node acknowledged.
        StateDiffersError: a majority disagrees with this node's state.
    """
    if message.target != state.node_id or message.source == state.node_id:
        raise MessageError(
            f"a message from node {message.source} to node {message.target} reached node "
            f"{state.node_id} of {list(state.members.nodes)}"
        )
    match message:
        case PristineQuery():
            admission.on_pristine_query(state, message)
        case PristineReply():
            admission.on_pristine_reply(state, message)
        case VoteRequest():
            _step_vote_request(state, message)
        case _:
            _step_in_term(state, message)


def _step_vote_request(state: RaftState, request: VoteRequest) -> None:
    """Voting is refused by silence while a leader is heard, and by a blank node always."""
    if state.blank != 0:
        return
    if request.term < state.term:
        reply = VoteReply(state.node_id, request.source, state.term, False, request.pre)
        state.now.append(reply)
        return
    if not request.transfer and (state.hears_leader or lease.promised(state)):
        return
    if request.pre:
        election.on_pre_vote_request(state, request)
        return
    if request.term > state.term:
        state.become_follower(request.term, None)
    election.on_vote_request(state, request)


def _step_in_term(state: RaftState, message: InTerm) -> None:
    """Adopt a higher term, refuse a lower one (thesis §3.3), then handle the message."""
    if isinstance(message, VoteReply) and message.pre and message.granted:
        if message.term == state.term + 1:  # about a term that nobody has entered
            election.on_vote_reply(state, message)
        return
    if message.term > state.term:
        if _is_answer_of_stranger(state, message):
            return
        state.become_follower(message.term, None)
    elif message.term < state.term:
        _answer_old_term(state, message)
        return
    match message:
        case Append():
            _follow(state, message.source)
            replication.on_append(state, message)
        case Heartbeat():
            _follow(state, message.source)
            replication.on_heartbeat(state, message)
        case VoteReply():
            election.on_vote_reply(state, message)
        case TimeoutNow():
            _follow(state, message.source)
            transfer.on_timeout_now(state)
        case ReadIndexRequest():
            follower_reads.on_request(state, message)
        case ReadIndexReply():
            follower_reads.on_reply(state, message)
        case _:
            _step_reply(state, message)


def _is_answer_of_stranger(state: RaftState, message: Message) -> bool:
    """A server that was removed may be in any term; it must not depose a leader (§4.2.3).

    A *request* of a stranger is heard: its sender may lead a quorum that has grown since.
    """
    request = isinstance(message, (Append, Heartbeat, TimeoutNow))
    return not request and message.source not in state.members.nodes


def _step_reply(state: RaftState, message: AppendReply | HeartbeatReply) -> None:
    if state.role is not Role.LEADER or message.source not in state.peers:
        return
    if isinstance(message, HeartbeatReply):
        replication.on_heartbeat_reply(state, message)
        return
    if message.index > state.log.last_index:
        raise MessageError(
            f"node {message.source} answers for entry {message.index} of term {message.term}, "
            f"but this leader has sent no more than {state.log.last_index}"
        )
    replication.on_append_reply(state, message)


def _follow(state: RaftState, leader: NodeId) -> None:
    """A leader of the present term speaks (thesis §3.4: candidates give way)."""
    assert state.role is not Role.LEADER, "two leaders in one term"
    if state.role is not Role.FOLLOWER or state.leader is None:
        state.become_follower(state.term, leader)
    assert state.leader == leader, "two leaders in one term"
    state.restart_election_timer()
    state.promise_elapsed = 0


def _answer_old_term(state: RaftState, message: InTerm) -> None:
    """Tell a leader of an older term; with pre-vote it may not learn otherwise (etcd #8517).

    This node's term is higher although somebody leads an older one, so no vote will raise the
    others; the answer makes that leader step down and the election settles the term.
    """
    if isinstance(message, (Append, Heartbeat)):
        state.now.append(HeartbeatReply(state.node_id, message.source, state.term, 0, state.blank))
