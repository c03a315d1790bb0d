"""Entries, hard state, and what peers say to each other (thesis figure 3.1, extended).

An entry is encoded once, by the leader that makes it: the same bytes go to its own disk, to every
peer, and from there to the peer's disk. Messages are frozen values, so a simulator or a transport
may hold, repeat and reorder them.

Some fields go beyond the thesis:

``round``   the leader's read counter when the message was sent; a reply echoes it. A quorum of
            echoes proves that nobody else led when the counter was raised (``reads``).
``blank``   in replies: 0 from a voter, else the nonce of a node that may not be counted
            (``admission``).
``priority``  in replies to heartbeats: the election priority of the node (``priority``).
``admit``   in appends: the nonce of such a node that may vote from now on.
"""

import struct
from enum import IntEnum

import msgspec
from gantry_protocol.types import Index, NodeId, Term

from gantry_controller.raft.errors import MessageError
from gantry_controller.raft.members import decode_members

ENTRY_HEADER = struct.Struct(">BQQ")  # kind, term, index; the command follows


class EntryKind(IntEnum):
    """The purpose of an entry. The values are the first byte of its encoding, on disk and wire."""

    COMMAND = 1  # for the state machine
    NOOP = 2  # a leader's first entry, or the mark of an admission; applies as nothing
    MEMBERS = 3  # who takes part from here on (``members``); applies as nothing
    LEASE = 4  # switches leases on or off (``lease``); the state machine does not see it


COMMAND = EntryKind.COMMAND
"""By this name for what is done per entry: to look a member up costs a tenth of a microsecond."""

LEASE_ON, LEASE_OFF = b"\x01", b"\x00"
"""The commands of an entry of the kind ``LEASE``."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry of the log.

    Attributes:
        encoded: kind, term, index and command; what is stored and sent.
    """

    index: Index
    term: Term
    kind: EntryKind
    encoded: bytes

    @property
    def command(self) -> bytes:
        """The bytes the state machine gets; empty for a no-op."""
        return self.encoded[ENTRY_HEADER.size :]


def make_entry(kind: EntryKind, term: Term, index: Index, command: bytes = b"") -> Entry:
    """Encode a new entry."""
    return Entry(index, term, kind, ENTRY_HEADER.pack(kind, term, index) + command)


_KINDS = {int(kind): kind for kind in EntryKind}


def parse_entry(encoded: bytes) -> Entry:
    """The entry that ``encoded`` holds.

    Raises:
        MessageError: too short, of a kind this program does not know, or with members or a setting
            that cannot be.
    """
    if len(encoded) < ENTRY_HEADER.size:
        raise MessageError(f"an entry of {len(encoded)} bytes is shorter than its header")
    kind, term, index = ENTRY_HEADER.unpack_from(encoded)
    known = _KINDS.get(kind)
    if known is None:
        raise MessageError(f"entry {index} is of the unknown kind {kind}")
    entry = Entry(index, term, known, encoded)
    if known is not COMMAND:
        _check_content(entry)
    return entry


def _check_content(entry: Entry) -> None:
    """What is not for the state machine is for the core, so it must be readable."""
    if entry.kind is EntryKind.MEMBERS:
        decode_members(entry.command)
    if entry.kind is EntryKind.LEASE and entry.command not in (LEASE_ON, LEASE_OFF):
        raise MessageError(f"entry {entry.index} switches leases to {entry.command!r}")


class HardState(msgspec.Struct, frozen=True, gc=False):
    """The state that must survive a crash beside the log (thesis §3.8).

    Attributes:
        term: the newest term this node has seen.
        vote: whom it voted for in ``term``; None for nobody.
        commit: a lower bound of what is committed; spares a restart the wait, proves nothing new.
        voting: whether the node may vote and be counted (``admission``).
    """

    term: Term = Term(0)
    vote: NodeId | None = None
    commit: Index = Index(0)
    voting: bool = False


class Append(msgspec.Struct, frozen=True):
    """AppendEntries: ``entries`` follow the entry (``prev_index``, ``prev_term``)."""

    source: NodeId
    target: NodeId
    term: Term
    prev_index: Index
    prev_term: Term
    commit: Index
    round: int
    admit: int
    entries: tuple[Entry, ...]


class AppendReply(msgspec.Struct, frozen=True, gc=False):
    """Answer to an Append.

    Attributes:
        index: accepted: the log matches the leader's, durably, up to here.
            rejected: the ``prev_index`` that did not match.
        hint_index: rejected: where the follower's log may match at the earliest look.
        hint_term: rejected: the follower's term there.
    """

    source: NodeId
    target: NodeId
    term: Term
    index: Index
    rejected: bool
    hint_index: Index
    hint_term: Term
    round: int
    blank: int


class Heartbeat(msgspec.Struct, frozen=True, gc=False):
    """The leader lives. ``commit`` never exceeds what this peer is known to hold.

    Attributes:
        digest_index, digest: the newest point on which a majority agrees (``digests``).
    """

    source: NodeId
    target: NodeId
    term: Term
    commit: Index
    round: int
    digest_index: Index = Index(0)
    digest: int = 0


class HeartbeatReply(msgspec.Struct, frozen=True, gc=False):
    """Answer to a Heartbeat; with a higher term also to messages of a leader that was replaced.

    Attributes:
        digest_index, digest: the sender's own newest point.
    """

    source: NodeId
    target: NodeId
    term: Term
    round: int
    blank: int
    priority: int = 0
    digest_index: Index = Index(0)
    digest: int = 0


class VoteRequest(msgspec.Struct, frozen=True, gc=False):
    """RequestVote; with ``pre`` a question about a term that nobody has entered (thesis §9.6).

    ``transfer`` says that the leader itself asked for this campaign (§3.10).
    """

    source: NodeId
    target: NodeId
    term: Term
    last_index: Index
    last_term: Term
    pre: bool
    transfer: bool = False


class VoteReply(msgspec.Struct, frozen=True, gc=False):
    """Answer to a VoteRequest. A granted pre-vote carries the asked term, all else the own."""

    source: NodeId
    target: NodeId
    term: Term
    granted: bool
    pre: bool


class TimeoutNow(msgspec.Struct, frozen=True, gc=False):
    """The leader hands over: the target shall campaign at once (thesis §3.10)."""

    source: NodeId
    target: NodeId
    term: Term


class PristineQuery(msgspec.Struct, frozen=True, gc=False):
    """A node with an empty disk asks whether the peer is new as well (``admission``)."""

    source: NodeId
    target: NodeId
    nonce: int


class PristineReply(msgspec.Struct, frozen=True, gc=False):
    """Answer to a PristineQuery: whether this node has never been in a term and holds no entry."""

    source: NodeId
    target: NodeId
    nonce: int
    pristine: bool


class ReadIndexRequest(msgspec.Struct, frozen=True, gc=False):
    """A follower asks how new its state must be for all its reads that wait (thesis §6.4)."""

    source: NodeId
    target: NodeId
    term: Term
    nonce: int


class ReadIndexReply(msgspec.Struct, frozen=True, gc=False):
    """Answer to the ReadIndexRequest with this ``nonce``: serve once ``index`` is applied."""

    source: NodeId
    target: NodeId
    term: Term
    nonce: int
    index: Index


Message = (
    Append
    | AppendReply
    | Heartbeat
    | HeartbeatReply
    | VoteRequest
    | VoteReply
    | TimeoutNow
    | PristineQuery
    | PristineReply
    | ReadIndexRequest
    | ReadIndexReply
)
