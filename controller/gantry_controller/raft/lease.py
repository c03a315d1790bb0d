"""Leases: while a quorum has promised not to elect anybody else, reads need no round (§6.4.1).

The setting is an entry of the log of its own kind, so that every node knows it before it matters,
restarts included. Docs: ADR 0020, with the transitions.

**The promise.** A node that is *bound* gives its vote to nobody, in whatever term, for one election
time-out after it last followed a leader's message, and for one after its start, since it may have
forgotten what it promised. It does not campaign early either (``election.leader_lost``). A node is
bound from the moment its log holds an entry that switches leases on, committed or not, until one
that switches them off is committed.

**The lease.** It counts from the *send* time of the newest round that a quorum has echoed, and only
echoes of voters count whose log is known to hold the setting: the others have promised nothing. It
lasts ``lease_ns``, shorter than the promise by what clocks and ticks may differ. It is measured by
the caller's clock, which must go on while the machine sleeps.

**The end.** The leader's newest setting decides, committed or not: appending "off" ends the lease
at once, appending "on" begins it when that entry is committed. A leader that tells another node to
take over (``transfer``) breaks the others' promises by that; it has no lease for the rest of its
term, since its word may be acted on at any later time.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from gantry_controller.raft.messages import LEASE_OFF, LEASE_ON, Entry, EntryKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_protocol.types import Index

    from gantry_controller.raft.state import RaftState

_LEASE = EntryKind.LEASE  # per entry (``messages.COMMAND``)


class Lease:
    """One node's knowledge of leases.

    Attributes:
        settings: (index, on), ascending: what a snapshot says, as of its end, and each entry behind
            it. Before the first entry leases are off.
        renew: begin a round in the next pass, so that the lease goes on.
    """

    __slots__ = ("_rounds", "renew", "settings")

    def __init__(self, index: Index, *, on: bool) -> None:
        """The log is known from behind ``index`` on, where leases were ``on`` or not."""
        self.settings = [(index, on)]
        self.renew = False
        self._rounds: deque[tuple[int, int]] = deque()  # (round, ns at which it began)

    def restart(self, index: Index, *, on: bool) -> None:
        """The log begins anew behind ``index``."""
        self.settings = [(index, on)]

    def note(self, entries: Iterable[Entry]) -> None:
        """Entries were added to the log."""
        for entry in entries:
            if entry.kind is _LEASE:
                self.settings.append((entry.index, entry.command == LEASE_ON))

    def keep(self, last: Index) -> None:
        """The log was cut behind ``last``."""
        self.settings = [setting for setting in self.settings if setting[0] <= last]

    def release(self, index: Index) -> None:
        """Nobody will ask for the settings before ``index`` any more."""
        while len(self.settings) > 1 and self.settings[1][0] <= index:
            del self.settings[0]

    def at(self, index: Index) -> bool:
        """Whether leases are on as of ``index``."""
        return next(on for place, on in reversed(self.settings) if place <= index)

    def binds(self, commit_index: Index) -> bool:
        """Whether "on" is committed and not replaced, or may come to be committed."""
        for index, on in reversed(self.settings):
            if on or index <= commit_index:
                return on
        raise AssertionError("the first setting is committed")

    def begin_term(self) -> None:
        """This node has become the leader; what it sent in earlier terms proves nothing."""
        self._rounds.clear()

    def round_began(self, number: int, now_ns: int, lease_ns: int) -> None:
        """Messages with the round ``number`` are sent from now on, and not before."""
        while self._rounds and self._rounds[0][1] <= now_ns - lease_ns:
            self._rounds.popleft()
        self._rounds.append((number, now_ns))

    def began_at(self, acked_round: int) -> int | None:
        """The beginning of the newest round up to ``acked_round``; None if that is too long ago."""
        for number, at_ns in reversed(self._rounds):
            if number <= acked_round:
                return at_ns
        return None


def log_followed(state: RaftState, kept: Index, entries: tuple[Entry, ...]) -> None:
    """A leader's ``entries`` are in the log; of what was there before, up to ``kept`` is left."""
    state.lease.keep(kept)
    state.lease.note(entry for entry in entries if entry.index > kept)


def is_on(state: RaftState) -> bool:
    """Whether the newest committed setting is "on"."""
    return state.lease.at(state.log.commit_index)


def binds(state: RaftState) -> bool:
    """Whether this node has to keep the promise (see the module)."""
    return state.lease.binds(state.log.commit_index)


def promised(state: RaftState) -> bool:
    """Whether this node must not vote now, whoever asks and in whatever term."""
    return state.promise_elapsed < state.config.election_ticks and binds(state)


def may_begin(state: RaftState) -> Index | None:
    """The index of the setting under which this leader may have a lease; None if it may not."""
    if not state.leads or not state.may_hold_lease:
        return None
    index, on = state.lease.settings[-1]
    return index if on and index <= state.log.commit_index else None


def is_valid(state: RaftState, now_ns: int | None) -> bool:
    """Whether nobody else can have been elected up to ``now_ns``.

    That is in nanoseconds, by the clock that ``round_began`` was told; None: there is no clock.
    """
    setting = may_begin(state)
    if now_ns is None or setting is None or not state.term_is_committed:
        return False
    acked = state.reached(
        state.reads.round,
        lambda peer: peer.round_acked if peer.match_index >= setting else 0,
    )
    began_ns = state.lease.began_at(acked)
    return began_ns is not None and 0 <= now_ns - began_ns < state.config.lease_ns


def renew(state: RaftState, now_ns: int | None) -> None:
    """Once per heartbeat: begin a round, so that its echoes prolong the lease."""
    if not state.lease.renew:
        return
    state.lease.renew = False
    if now_ns is not None and may_begin(state) is not None:
        state.reads.round += 1
        state.lease.round_began(state.reads.round, now_ns, state.config.lease_ns)


def append_setting(state: RaftState, *, on: bool) -> Index:
    """Switch leases on or off (leader only); returns the index of the entry."""
    return state.append_own(EntryKind.LEASE, [LEASE_ON if on else LEASE_OFF])
