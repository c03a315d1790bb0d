"""Everything one node knows, and the roles it can take (thesis §3.3, figure 3.3).

                   hears nothing           quorum would vote        quorum voted
      FOLLOWER ──────────────▶ PRE_CANDIDATE ──────────▶ CANDIDATE ──────────▶ LEADER
          ▲                        │                         │                   │
          └────────────────────────┴──── a leader, or a higher term ────────────┘
                                          (a leader also: no quorum heard)

The functions of the other modules read and change this state; the transitions are here, because
each must leave everything consistent in one step. State is changed by one caller at a time and no
callback leaves the package, so there is nothing to lock.
"""

from collections.abc import Callable
from enum import Enum
from typing import Protocol

import msgspec
from gantry_protocol.types import Index, NodeId, Term

from gantry_controller.raft.config import RaftConfig
from gantry_controller.raft.digests import Digests
from gantry_controller.raft.follower_reads import FollowerReads
from gantry_controller.raft.lease import Lease
from gantry_controller.raft.log import RaftLog
from gantry_controller.raft.members import MemberHistory, Membership, decode_members
from gantry_controller.raft.messages import Entry, EntryKind, HardState, Message, make_entry
from gantry_controller.raft.progress import Progress
from gantry_controller.raft.reads import ReadQueue, ReadState
from gantry_controller.raft.snapshot import Base, Marker, SnapshotMeta

PATIENCE_TIMEOUTS = 10  # a preferred peer must be steady for so many election time-outs at first


class Role(Enum):
    """The role of a node in its present term."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Transfer(msgspec.Struct, frozen=True):
    """Leadership is being handed over (``transfer``).

    Attributes:
        target: to whom.
        elapsed_ticks: since it began; bounded by the election time-out.
        told: the target holds the whole log and was told to campaign.
    """

    target: NodeId
    elapsed_ticks: int = 0
    told: bool = False


class Patience:
    """For how long a preferred peer must be steady before this node hands over (``priority``).

    Attributes:
        ticks: that time; between its first value and ``LIMIT`` times that.
    """

    LIMIT = 64
    CALM = 4  # after this many times ``ticks`` without a handover, patience shrinks again

    def __init__(self, first_ticks: int) -> None:
        self.ticks = first_ticks
        self._first_ticks = first_ticks
        self._calm_ticks = 0

    def tick(self) -> None:
        """Time passes, in whatever role."""
        self._calm_ticks += 1
        if self._calm_ticks >= self.CALM * self.ticks:
            self._calm_ticks = 0
            self.ticks = max(self.ticks // 2, self._first_ticks)

    def handed_over(self) -> None:
        """It may come back: the next time takes longer."""
        self._calm_ticks = 0
        self.ticks = min(self.ticks * 2, self.LIMIT * self._first_ticks)


class Randomness(Protocol):
    """A source of chance; ``random.Random`` is one."""

    def randrange(self, start: int, stop: int) -> int:
        """A number in [start, stop)."""

    def getrandbits(self, k: int, /) -> int:
        """A number in [0, 2**k)."""


Tracer = Callable[[str, dict[str, object]], None]
"""Gets an event's name and facts, for tests and diagnosis; must not call back."""


class RaftState:
    """One node's state.

    Attributes:
        history: who takes part, now and as of earlier entries.
        transfer: how far a leader is in handing over; None if it is not.
        lease_barred: a leader has said ``TimeoutNow`` in this term.
        patience: outlives roles, since losing leadership is what it is about.
        leaving: members whose removal a leader has committed and still has to tell.
        term: the newest term seen; persisted before anything that depends on it is sent.
        vote: whom this node voted for in ``term``.
        leader: who leads ``term`` as far as is known.
        voter_marked: the disk holds, or is to hold, the mark that this node may vote.
        blank: 0 if that mark is durable; else the nonce of this life (``admission``).
        founders: while blank: peers that have said they are new as well.
        peers: the leader's view of each other member, by id; rebuilt at every election.
        votes: answers to the present campaign.
        election_elapsed: ticks since a leader was heard, or since the campaign began.
        promise_elapsed: ticks since a leader was followed, or since the start; goes on across terms
            (``lease``).
        election_timeout: ticks after which to campaign; drawn anew for every wait.
        disk_silent_ticks: since the own disk last confirmed a batch, or was given the first one
            that it owes; 0 while it owes none (``own_disk``).
        overtaken_ticks: for how long a quorum has had what this leader's disk has not.
        uncommitted_bytes: encoded size of the entries beyond commit (leader only).
        digests: what the applied states of all members look like.
        now, after_persist: messages of this pass (see ``ready.Ready``).
        reads: a leader's reads. follower_reads: those of a node that does not lead.
        lease: the setting, and what this leader knows of promises.
        reads_confirmed, reads_dropped, reads_redirected: reads that ended in this pass.
        snapshot: the newest one on this node's disk; None before the first.
        markers: of this pass: what the disk is to note of snapshots, before any entry.
    """

    def __init__(
        self,
        config: RaftConfig,
        rng: Randomness,
        hard: HardState,
        entries: list[Entry],
        tracer: Tracer | None,
        *,
        snapshot: SnapshotMeta | None = None,
        base: Base = Base(),  # noqa: B008 - a frozen value
    ) -> None:
        self.config = config
        self.rng = rng
        self.tracer = tracer
        self.snapshot = snapshot
        self.markers: list[Marker] = []
        founding = Membership(tuple(sorted(config.voters)), (), tuple(sorted(config.addresses)))
        covered = Index(0) if snapshot is None else snapshot.index
        self.history = MemberHistory(covered, snapshot.members if snapshot else founding)
        for entry in entries:
            if entry.kind is EntryKind.MEMBERS and entry.index > covered:
                self.history.append(entry.index, decode_members(entry.command))
        self.leaving: list[NodeId] = []
        self.transfer: Transfer | None = None
        self.lease_barred = False
        self.patience = Patience(PATIENCE_TIMEOUTS * config.election_ticks)
        self.log = RaftLog(entries, max(hard.commit, covered), base, covered)
        self.role = Role.FOLLOWER
        self.term = hard.term
        self.vote = hard.vote
        self.leader: NodeId | None = None
        # Alone by a log that is being filled: no founder, but a member that comes back.
        self.voter_marked = hard.voting or (self.is_alone and config.founds and self.is_pristine)
        self.blank = 0 if self.voter_marked else (rng.getrandbits(63) | 1)
        self.founders: list[NodeId] = []
        self.peers: dict[NodeId, Progress] = {}
        self.votes: dict[NodeId, bool] = {}
        self.election_elapsed = 0
        self.heartbeat_elapsed = 0
        self.election_timeout = 0
        self.disk_silent_ticks = 0
        self.overtaken_ticks = 0
        self.uncommitted_bytes = 0
        self.promise_elapsed = 0
        self.reads = ReadQueue()
        self.digests = Digests(config.node_id)
        self.follower_reads = FollowerReads()
        self.lease = Lease(covered, on=snapshot is not None and snapshot.lease)
        self.lease.note(entry for entry in entries if entry.index > covered)
        self.now: list[Message] = []
        self.after_persist: list[Message] = []
        self.reads_confirmed: list[ReadState] = []
        self.reads_dropped: list[object] = []
        self.reads_redirected: list[object] = []
        self.restart_election_timer()

    @property
    def node_id(self) -> NodeId:
        """This node."""
        return self.config.node_id

    @property
    def members(self) -> Membership:
        """The members now."""
        return self.history.current

    @property
    def is_alone(self) -> bool:
        """Whether this node is the only voter."""
        return self.members.voters == (self.node_id,)

    @property
    def disk_hangs(self) -> bool:
        """Whether the own disk has been silent for too long (``own_disk``)."""
        return self.disk_silent_ticks >= self.config.disk_patience_ticks

    @property
    def may_campaign(self) -> bool:
        """Only a voter stands for election, and only one whose disk is not new (``admission``).

        Nor one whose disk hangs, as it could not vote for itself (``own_disk``).

        One whose removal is not committed is a voter still: it may hold the only log that a
        majority of the others can follow (thesis §4.2.2, figure 4.6). It does not count itself.
        """
        if self.blank != 0 or self.disk_hangs:
            return False
        committed = self.history.at(self.log.commit_index)
        return self.node_id in self.members.voters or self.node_id in committed.voters

    @property
    def others(self) -> list[NodeId]:
        """The other members, ascending."""
        return [node for node in self.members.nodes if node != self.node_id]

    @property
    def counted(self) -> dict[NodeId, Progress]:
        """Of each peer whose word counts, what a leader knows."""
        return {
            node: progress
            for node, progress in self.peers.items()
            if progress.counts and node in self.members.voters
        }

    def reached(self, own: int, of_peer: Callable[[Progress], int]) -> int:
        """The index that a majority has reached: this node ``own``, the others ``of_peer``."""
        values = {node: of_peer(progress) for node, progress in self.counted.items()}
        values[self.node_id] = own
        return self.members.reached(values)

    @property
    def hard_state(self) -> HardState:
        """The state that must be durable before this pass's ``after_persist`` messages leave."""
        return HardState(self.term, self.vote, self.log.commit_index, self.voter_marked)

    @property
    def may_hold_lease(self) -> bool:
        """Whether nothing this leader has said can make a voter break its promise of time."""
        return self.transfer is None and not self.lease_barred

    @property
    def is_pristine(self) -> bool:
        """Whether this node has never been in a term and holds no entry."""
        return self.term == 0 and self.log.last_index == 0

    @property
    def leads(self) -> bool:
        """Whether this node leads the present term."""
        return self.role is Role.LEADER

    @property
    def hears_leader(self) -> bool:
        """Whether a leader was heard within the shortest election time-out (thesis §6.2)."""
        return self.leader is not None and self.election_elapsed < self.config.election_ticks

    @property
    def term_is_committed(self) -> bool:
        """Whether an entry of the present term is committed (thesis §3.6.2, §6.4)."""
        return self.log.term_at(self.log.commit_index) == self.term

    def trace(self, event: str, **facts: object) -> None:
        """Report an event to the tracer, if there is one."""
        if self.tracer is not None:
            self.tracer(event, facts)

    def restart_election_timer(self) -> None:
        """Wait anew, for a newly drawn time, so that split votes do not repeat (thesis §3.4).

        A quorum of one has nobody to wait for.
        """
        self.election_elapsed = 0
        ticks = self.config.election_ticks
        self.election_timeout = self.rng.randrange(ticks, 2 * ticks) if not self.is_alone else 1

    def become_follower(self, term: Term, leader: NodeId | None) -> None:
        """Enter ``term`` (or stay in it) without claims."""
        assert term >= self.term
        if (term, leader, Role.FOLLOWER) != (self.term, self.leader, self.role):
            self.trace("follower", term=term, leader=leader)
        if term > self.term:
            self.term = term
            self.vote = None
        self.role = Role.FOLLOWER
        self.leader = leader
        self.peers = {}
        self.votes = {}
        self.leaving = []
        self.transfer = None
        self._drop_reads()
        self.restart_election_timer()

    def become_pre_candidate(self) -> None:
        """Ask whether a campaign could succeed; the term stays (thesis §9.6)."""
        assert self.role is not Role.LEADER
        self.trace("pre-candidate", term=self.term)
        self.role = Role.PRE_CANDIDATE
        self.leader = None
        self._drop_reads()
        self.votes = {self.node_id: True}
        self.restart_election_timer()

    def become_candidate(self) -> None:
        """Enter the next term and vote for oneself; the vote counts once it is durable."""
        assert self.role is Role.PRE_CANDIDATE
        assert self.blank == 0
        self.term = Term(self.term + 1)
        self.trace("candidate", term=self.term)
        self.role = Role.CANDIDATE
        self.vote = self.node_id
        self.leader = None
        self.votes = {}
        self.restart_election_timer()

    def become_leader(self) -> None:
        """Lead ``term``: nothing is known of the peers; a no-op will settle what is committed."""
        assert self.role is Role.CANDIDATE
        self.trace("leader", term=self.term)
        self.role = Role.LEADER
        self.leader = self.node_id
        self.votes = {}
        self.lease_barred = False
        self.election_elapsed = 0
        self.heartbeat_elapsed = 0
        following = Index(self.log.last_index + 1)
        self.peers = {node: Progress(following) for node in self.others}
        self.uncommitted_bytes = self.log.bytes_between(self.log.commit_index, self.log.last_index)
        self.lease.begin_term()
        self.append_own(EntryKind.NOOP, [b""])

    def _drop_reads(self) -> None:
        """No read that waits can be answered in the role that begins."""
        self.reads_dropped += self.reads.drop()
        self.reads_redirected += self.follower_reads.drop()

    def append_own(self, kind: EntryKind, commands: list[bytes]) -> Index:
        """Append entries of the own term; returns the index of the first."""
        first = self.log.last_index + 1
        entries = [
            make_entry(kind, self.term, Index(first + position), command)
            for position, command in enumerate(commands)
        ]
        self.log.append(entries)
        if kind is EntryKind.LEASE:
            self.lease.note(entries)
        self.uncommitted_bytes += sum(len(entry.encoded) for entry in entries)
        return Index(first)
