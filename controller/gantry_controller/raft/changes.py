"""Changing who takes part, one member at a time (thesis §4.1, §4.2).

The majorities of two memberships that differ by one voter share a node, so no two leaders of a term
can be elected by them. That argument needs three rules, and each refusal below is one of them:

- One change at a time: the entry before must be committed (§4.1).
- An entry of the leader's own term must be committed first. Otherwise two leaders in turn could
  each append a change to the *same* membership; the results differ by two, and their majorities
  need not meet (Ongaro to raft-dev, 2015-07-10: "bug in single-server membership changes").
- A new member starts as a learner and votes only when it holds nearly everything, so that a quorum
  never waits for one that must first receive the whole log (§4.2.1).

A leader that removes itself leads on until that is committed, without counting itself, then hands
over (§4.2.2). Until then it stands for election, too: it may be the only one who can lead (figure
4.6). Between the two it changes nothing: taken back as a learner it would go on leading.
A member that was removed is told of the commit, if it still listens, and no more.
"""

from gantry_protocol.types import Index, NodeId

from gantry_controller.raft.errors import ChangeRefused, NotLeader
from gantry_controller.raft.members import (
    ADDRESS_LENGTH_MAX,
    MEMBERS_MAX,
    Membership,
    decode_members,
    encode_members,
)
from gantry_controller.raft.messages import Entry, EntryKind
from gantry_controller.raft.progress import Progress
from gantry_controller.raft.state import RaftState, Role

_MEMBERS = EntryKind.MEMBERS  # per entry (``messages.COMMAND``)

# ---- a leader's administrator --------------------------------------------------------------------


def add_learner(state: RaftState, node: NodeId, address: str) -> Index:
    """Take ``node`` in as a learner; returns the entry's index.

    Raises:
        NotLeader: with the leader, if one is known.
        ChangeRefused: says why; nothing was appended.
    """
    _check_may_change(state)
    if node in state.members.nodes:
        raise ChangeRefused(f"Node {node} is a member already.")
    if node < 1 or not 0 < len(address) <= ADDRESS_LENGTH_MAX:
        raise ChangeRefused(
            f"A member needs a number from 1 and an address of 1 to {ADDRESS_LENGTH_MAX} "
            f"characters; got {node} and {len(address)} characters."
        )
    if len(state.members.nodes) >= MEMBERS_MAX:
        raise ChangeRefused(f"The quorum has {MEMBERS_MAX} members, which is the limit.")
    return _append(state, state.members.with_learner(node, address))


def promote(state: RaftState, node: NodeId) -> Index:
    """Let the learner ``node`` vote; returns the entry's index.

    Raises:
        NotLeader: with the leader, if one is known.
        ChangeRefused: it is no learner, or not ready: says how far it is.
    """
    _check_may_change(state)
    if node not in state.members.learners:
        raise ChangeRefused(f"Node {node} is not a learner; the members are {_listed(state)}.")
    reason = _why_not_ready(state, state.peers[node])
    if reason:
        raise ChangeRefused(f"Learner {node} may not vote yet: {reason}.")
    return _append(state, state.members.with_promoted(node))


def remove(state: RaftState, node: NodeId) -> Index:
    """Take ``node`` out; returns the entry's index.

    Raises:
        NotLeader: with the leader, if one is known.
        ChangeRefused: it is no member, or what is left could not decide.
    """
    _check_may_change(state)
    if node not in state.members.nodes:
        raise ChangeRefused(f"Node {node} is not a member; the members are {_listed(state)}.")
    left = state.members.without(node)
    if not left.voters:
        raise ChangeRefused(f"Node {node} is the only voter; promote another one first.")
    answering = [state.node_id, *(n for n, peer in state.counted.items() if answers(state, peer))]
    if not left.decides(answering):
        raise ChangeRefused(
            f"Without node {node} the voters are {list(left.voters)}, and too few of them answer "
            "to decide anything; bring them back first."
        )
    return _append(state, left)


def answers(state: RaftState, peer: Progress) -> bool:
    """Whether this leader heard the peer within one election time-out, and in this leadership."""
    return peer.match_index > 0 and peer.silent_ticks <= state.config.election_ticks


def connection_changed(state: RaftState, node: NodeId) -> None:
    """Take ``node`` for silent until it answers again: its disk may have been lost in between."""
    if node in state.peers:
        state.peers[node].silent_ticks = state.config.election_ticks + 1


def _why_not_ready(state: RaftState, peer: Progress) -> str:
    lag = state.log.last_index - peer.match_index
    if not answers(state, peer):
        return "it has not answered within the last election time-out"
    if not peer.counts:
        return "its disk is new and it is still being admitted; try again in a second"
    if lag > state.config.promote_lag_max:
        return (
            f"it holds {peer.match_index} of {state.log.last_index} entries and may lack "
            f"{state.config.promote_lag_max} at most"
        )
    return ""


def _check_may_change(state: RaftState) -> None:
    if state.role is not Role.LEADER:
        raise NotLeader(state.leader)
    if state.transfer is not None:
        raise ChangeRefused("Leadership is being handed over; try again in a moment.")
    if not may_begin(state):
        raise ChangeRefused(
            "This leader has not committed an entry of its own term yet; try again in a moment."
        )
    if state.history.changed_index > state.log.commit_index:
        raise ChangeRefused(
            f"Another change of the members (entry {state.history.changed_index}) is under way; "
            "try again when it is committed."
        )
    if state.node_id not in state.members.voters:
        raise ChangeRefused(
            f"Node {state.node_id} was taken out and leads only until another one does; try again "
            "in a moment."
        )


def may_begin(state: RaftState) -> bool:
    """The own-term rule; see the module."""
    return state.term_is_committed


def _listed(state: RaftState) -> str:
    return ", ".join(map(str, state.members.nodes))


def _append(state: RaftState, members: Membership) -> Index:
    index = state.append_own(EntryKind.MEMBERS, [encode_members(members)])
    state.history.append(index, members)
    _in_effect(state)
    return index


# ---- the log, on every node ----------------------------------------------------------------------


def log_followed(state: RaftState, kept: Index, entries: tuple[Entry, ...]) -> None:
    """A leader's ``entries`` are in the log; of what was there before, up to ``kept`` is left."""
    changed = state.history.keep(kept)
    for entry in entries:
        if entry.kind is _MEMBERS and entry.index > kept:
            state.history.append(entry.index, decode_members(entry.command))
            changed = True
    if changed:
        _in_effect(state)


def _in_effect(state: RaftState) -> None:
    members = state.members
    state.trace("members", voters=list(members.voters), learners=list(members.learners))
    if state.role is Role.LEADER:
        for node in state.others:
            if node not in state.peers:
                state.peers[node] = Progress(Index(state.log.last_index + 1))


def committed(state: RaftState, before: Index) -> None:
    """A leader's commit index rose from ``before``; those who are out now are told, once."""
    if before < state.history.changed_index <= state.log.commit_index:
        nodes = (state.node_id, *state.peers)
        state.leaving = [node for node in nodes if node not in state.members.nodes]
        for progress in state.peers.values():
            progress.heartbeat_due = True
