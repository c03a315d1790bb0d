"""Snapshots as values: the index and term that they stand for (thesis §5.1).

A snapshot replaces the log up to an index by the state that applying it produced. It holds only
what was committed and applied, so it is true on every node and for ever: whoever installs one needs
no leader's word for it, only its bytes.

The log keeps a few entries that the snapshot covers already, so that a follower that is a little
behind gets entries and not the whole state. Where the log begins is therefore a second fact, and
both are noted together in the write-ahead log, by a ``Marker``.
"""

import msgspec
from gantry_protocol.types import Index, Term

from gantry_controller.raft.members import Membership


class SnapshotMeta(msgspec.Struct, frozen=True):
    """The entries that a snapshot replaces, and the members as of the last of them.

    Attributes:
        index: of the last entry it covers.
        term: of that entry.
        members: the configuration as of ``index`` (thesis §5.1: it is part of the state).
        lease: whether leases were switched on as of ``index`` (``lease``).
    """

    index: Index
    term: Term
    members: Membership
    lease: bool = False


class Base(msgspec.Struct, frozen=True, gc=False):
    """The place right before a log's first entry: what an append to that entry must match."""

    index: Index = Index(0)
    term: Term = Term(0)


class Marker(msgspec.Struct, frozen=True, gc=False):
    """A log's note that a snapshot is durable, and that the log begins behind ``base`` from now on.

    Attributes:
        index, term: of the snapshot.
        base: at or before (index, term); entries up to there are gone.
        restart: the snapshot came from another node and this log did not hold its last entry:
            everything before the marker is void. Else the entries behind ``base`` stay.
    """

    index: Index
    term: Term
    base: Base
    restart: bool
