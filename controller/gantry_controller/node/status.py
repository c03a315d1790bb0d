"""The status of a node: values, taken when asked for."""

import msgspec
from gantry_protocol.types import Index, NodeId, Term

from gantry_controller.raft.core import RaftCore
from gantry_controller.raft.members import Membership
from gantry_controller.raft.reads import ReadMode
from gantry_controller.raft.state import Role


class NodeStatus(msgspec.Struct, frozen=True):
    """The node's place in the quorum.

    Attributes:
        serving: it leads, and has applied an entry of its own term, hence everything before it.
    """

    role: Role
    term: Term
    leader: NodeId | None
    serving: bool


class PeerStatus(msgspec.Struct, frozen=True):
    """One other member, as this node sees it.

    Attributes:
        match_index: how far its log is known to agree; None where this node does not lead.
        last_contact_ms: since its last message; None if there was none.
        connected: it can be sent to.
        role: voter or learner.
        priority: its election priority, as it last said; None where this node does not lead.
        counted: its word counts (``raft.admission``); None where this node does not lead, or does
            not hear it.
    """

    node_id: NodeId
    role: str
    match_index: Index | None
    last_contact_ms: int | None
    connected: bool
    counted: bool | None
    priority: int | None


def peer_statuses(
    members: Membership,
    own: NodeId,
    core: RaftCore | None,
    connected: list[NodeId],
    silent_s: dict[NodeId, float],
) -> list[PeerStatus]:
    """One status per other member, from what the core, the links and the clock know of it."""
    progress = {} if core is None else core.peers
    return [
        PeerStatus(
            node_id=node,
            role=role_of(members, node),
            match_index=progress[node].match_index if node in progress else None,
            last_contact_ms=round(silent_s[node] * 1000) if node in silent_s else None,
            connected=node in connected,
            counted=None if core is None else core.counted(node),
            priority=progress[node].priority if node in progress else None,
        )
        for node in members.nodes
        if node != own
    ]


def role_of(members: Membership, node: NodeId) -> str:
    """``voter``, ``learner``, or ``none`` for a node that is (still, or no longer) outside."""
    if node in members.voters:
        return "voter"
    return "learner" if node in members.learners else "none"


class NodeStats(msgspec.Struct):
    """Plain counters since the start.

    Attributes:
        reads: that were answered, by what made them linearizable.
        reads_redirected: a follower's, that it sent to the leader.
        gave_way: times this leader's disk hung, and it let another lead.
    """

    reads: dict[ReadMode, int] = msgspec.field(default_factory=lambda: dict.fromkeys(ReadMode, 0))

    passes: int = 0
    proposals: int = 0
    proposals_refused: int = 0
    reads_redirected: int = 0
    entries_applied: int = 0
    leader_changes: int = 0
    transfers: int = 0
    gave_way: int = 0
