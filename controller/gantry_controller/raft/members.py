"""Membership: the voters, who decide, and the learners, who only receive (thesis §4.2.1).

Values and their history; the rules for changing them are in ``changes``. What is protected here:

- Every count of votes, acknowledgements and echoes goes through a ``Membership``, so that nobody
  who is not a voter is ever part of a majority.
- A membership is in effect from the moment its entry is in the log, committed or not (§4.1), and
  out of effect when that entry is cut; so a node always uses the newest one it holds.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from gantry_protocol.types import Index, NodeId

from gantry_controller.raft.errors import MessageError
from gantry_controller.raft.quorum import quorum_size, reached_by_quorum

MEMBERS_MAX = 32  # bounds an entry, the peers' connections and every count
ADDRESS_LENGTH_MAX = 300  # a DNS name, three ports and their colons


class Membership(msgspec.Struct, frozen=True):
    """One configuration of the quorum.

    Attributes:
        voters: whose votes and acknowledgements count; ascending.
        learners: who receive the log and are never counted; ascending, none of them a voter.
        addresses: where each member is reached, as far as it was stated; the core hands the text
            on and does not read it.
    """

    voters: tuple[NodeId, ...]
    learners: tuple[NodeId, ...] = ()
    addresses: tuple[tuple[NodeId, str], ...] = ()

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """All members, ascending."""
        return tuple(sorted(self.voters + self.learners))

    @property
    def quorum(self) -> int:
        """The size of a majority of the voters."""
        return quorum_size(len(self.voters))

    def reached(self, values: Mapping[NodeId, int]) -> int:
        """The greatest value that a majority of the voters has reached.

        Args:
            values: by node; nodes that are no voters are ignored, voters that are missing may not
                be counted.
        """
        return reached_by_quorum(
            [values[node] for node in self.voters if node in values], len(self.voters)
        )

    def decides(self, nodes: Iterable[NodeId]) -> bool:
        """Whether ``nodes``, each named once, hold a majority of the voters."""
        return sum(node in self.voters for node in nodes) >= self.quorum

    def address_of(self, node: NodeId) -> str | None:
        """The address of ``node``; None if that was never stated."""
        return dict(self.addresses).get(node)

    def with_learner(self, node: NodeId, address: str) -> "Membership":
        """The same with one more learner."""
        stated = {**dict(self.addresses), node: address}
        return Membership(
            self.voters, tuple(sorted((*self.learners, node))), tuple(sorted(stated.items()))
        )

    def with_promoted(self, node: NodeId) -> "Membership":
        """The same with the learner ``node`` as a voter."""
        return msgspec.structs.replace(
            self, voters=tuple(sorted((*self.voters, node))), learners=_without(self.learners, node)
        )

    def without(self, node: NodeId) -> "Membership":
        """The same without ``node``."""
        return Membership(
            _without(self.voters, node),
            _without(self.learners, node),
            tuple(stated for stated in self.addresses if stated[0] != node),
        )


def _without(nodes: tuple[NodeId, ...], node: NodeId) -> tuple[NodeId, ...]:
    return tuple(other for other in nodes if other != node)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Membership)


def encode_members(members: Membership) -> bytes:
    """The command of an entry that brings ``members`` into effect."""
    return _encoder.encode(members)


def decode_members(command: bytes) -> Membership:
    """The membership in an entry's command.

    Raises:
        MessageError: it holds none that a leader could have made.
    """
    try:
        members = _decoder.decode(command)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(f"an entry that changes the members cannot be read: {error}") from None
    nodes = members.nodes
    if (
        not members.voters
        or len(nodes) > MEMBERS_MAX
        or len(set(nodes)) < len(nodes)
        or nodes[0] < 1
        or any(len(address) > ADDRESS_LENGTH_MAX for _, address in members.addresses)
    ):
        raise MessageError(f"an entry that changes the members to {members} is impossible")
    return members


class MemberHistory:
    """The memberships of one log: the first one, and one per change that the log holds.

    The first is that of the snapshot the log begins with, else the founding one of the settings;
    it is never cut, since what it stands for is committed.
    """

    __slots__ = ("_changes",)

    def __init__(self, index: Index, first: Membership) -> None:
        """``first`` is in effect as of ``index``."""
        self._changes = [(index, first)]

    @property
    def current(self) -> Membership:
        """The one in effect."""
        return self._changes[-1][1]

    @property
    def changed_index(self) -> Index:
        """The entry that brought it into effect; where the history begins if there is none."""
        return self._changes[-1][0]

    def at(self, index: Index) -> Membership:
        """The one in effect as of ``index``, which the history must still cover."""
        assert index >= self._changes[0][0]
        return next(members for at, members in reversed(self._changes) if at <= index)

    def append(self, index: Index, members: Membership) -> None:
        """The log's entry ``index`` brings ``members`` into effect."""
        assert index > self.changed_index
        self._changes.append((index, members))

    def keep(self, last: Index) -> bool:
        """The log was cut behind ``last``. True if that took a change out of effect."""
        before = len(self._changes)
        while len(self._changes) > 1 and self.changed_index > last:
            self._changes.pop()
        return len(self._changes) < before

    def release(self, index: Index) -> None:
        """The log no longer holds what stands before ``index``: a snapshot does."""
        covered: Sequence[tuple[Index, Membership]] = [c for c in self._changes if c[0] <= index]
        if covered:
            self._changes = [covered[-1], *self._changes[len(covered) :]]
