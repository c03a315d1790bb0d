"""Admission of a node with an empty disk: when it may vote, and be counted.

A node that lost its disk has forgotten votes it cast and entries it acknowledged; counted again at
once it could elect a leader without a committed entry, or let two leaders commit (thesis §3.8 rests
on stable storage). So a node that starts without a stored ``voting`` mark is *blank*: it follows
and stores, but it neither votes, asks for votes, nor takes a heartbeat's commit index, and all its
replies say so with ``blank``, a nonce drawn at every start. There are two ways out.

**Founding.** A blank node asks all initial peers whether they are pristine (never in a term, no
entry); the answer must repeat the nonce, so it was given during this life. When *all* have said
yes, it marks itself as a voter, and votes once the mark is on disk. Whatever an earlier life may
have promised, it promised to nodes that have since been pristine themselves: nothing that was
committed with it is left anywhere. A pristine voter still says "pristine", and no term is entered
before a quorum votes, so the first nodes to finish do not lock the others out.

**Admission.** A leader that hears ``blank`` from a peer forgets everything that peer confirmed,
does not count it, keeps replicating to it, and appends a no-op *x*. When x is committed by a quorum
without the peer, and the peer holds x, the leader's next append carries ``admit`` = nonce, and the
peer votes once its mark is on disk. Why that is enough, for leader L of term T:

- An entry committed before T is in L's log (leader completeness); one committed in T lies before x
  or was counted without the peer. The peer holds both.
- Suppose an earlier life of the peer voted for X in T' > T. The quorum Q that stored x did so in
  term T, after the peer's loss. X, being in T', is not in Q, and its log ends before x. A member of
  Q that is asked for T' later refuses X, one that had voted in T' would not have stored x in T. So
  X gets no vote from Q, and without Q there is no majority.
- A confirmation of an earlier life that arrives late cannot name x or anything behind it. Only a
  voter's reply that confirms x or more makes the peer count again, and then whatever such late
  words have raised ``match_index`` to lies before x, so the peer does hold it.

So one lost volume of three heals by itself, and two need a person: nobody may count them.
"""

from gantry_protocol.types import Index

from gantry_controller.raft.messages import EntryKind, PristineQuery, PristineReply
from gantry_controller.raft.progress import Progress
from gantry_controller.raft.state import RaftState


def is_founder(state: RaftState) -> bool:
    """Whether this node is new, and has not put a damaged log aside (``RaftConfig.founds``).

    That log may hold the last copy of something acknowledged; an empty quorum that began beside it
    would be a loss that nobody noticed. So a node that has files aside can only be admitted.
    """
    return state.config.founds and state.is_pristine


def tick(state: RaftState) -> None:
    """Ask, at every heartbeat's pace, those who have not said that they are new."""
    if state.blank == 0 or not is_founder(state):
        return
    state.heartbeat_elapsed += 1
    if state.heartbeat_elapsed >= state.config.heartbeat_ticks:
        state.heartbeat_elapsed = 0
        state.now.extend(
            PristineQuery(state.node_id, node, state.blank)
            for node in state.others
            if node not in state.founders
        )


def on_pristine_query(state: RaftState, query: PristineQuery) -> None:
    """Say whether this node is new, as of now."""
    reply = PristineReply(state.node_id, query.source, query.nonce, is_founder(state))
    state.now.append(reply)


def on_pristine_reply(state: RaftState, reply: PristineReply) -> None:
    """Note a founder; with all of them this node may vote."""
    if state.blank == 0 or reply.nonce != state.blank or not is_founder(state):
        return
    founder = reply.pristine and reply.source in state.others
    if founder and reply.source not in state.founders:
        state.founders.append(reply.source)
        if len(state.founders) == len(state.others):
            state.trace("founder")
            state.voter_marked = True


def on_admit(state: RaftState, nonce: int) -> None:
    """A leader's append carried ``nonce``, and this node holds what stands before it."""
    if nonce and nonce == state.blank and not state.voter_marked:
        state.trace("admitted")
        state.voter_marked = True


def mark_is_durable(state: RaftState) -> None:
    """The mark is on disk, and only now it means anything: a crash cannot take it back."""
    state.trace("voter")
    state.blank = 0
    state.restart_election_timer()
    if state.is_pristine:
        # Nobody leads yet, so there is no leader's silence to wait for; spread the attempts.
        state.election_timeout = state.rng.randrange(1, state.config.election_ticks + 1)


def judge(state: RaftState, progress: Progress, blank: int, confirmed: int) -> bool:
    """A reply came with this ``blank`` and confirms up to ``confirmed``: does the peer count?

    Returns:
        True if it counts from now on and did not before.
    """
    if blank == progress.blank:
        return False
    if blank != 0:
        progress.forget()
        progress.blank = blank
        progress.admit_index = state.append_own(EntryKind.NOOP, [b""])
        state.trace("uncounted", admit_index=progress.admit_index)
        return False
    if confirmed < progress.admit_index:
        return False  # of the time before the loss, or after it but of no weight
    progress.blank = 0
    # What it said while it was not counted does not count later: a nudge has it said again.
    progress.match_index = min(progress.match_index, Index(confirmed))
    state.trace("counted", confirmed=confirmed)
    return True


def nonce_to_admit(state: RaftState, progress: Progress) -> int:
    """The nonce an append to this peer shall carry: its own if it may vote from now on, else 0."""
    ready = min(progress.match_index, state.log.commit_index) >= progress.admit_index
    return progress.blank if ready else 0
