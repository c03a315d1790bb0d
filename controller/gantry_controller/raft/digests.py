"""Digests of the applied state, compared across the quorum.

Equal logs give equal states only as long as applying an entry depends on nothing else. A mistake
there, or a bit that fell over in memory, makes one replica disagree in silence. So each node takes
a digest at the same indexes (``DigestPoint``), names its newest one in every answer to a heartbeat,
and the leader tells in its heartbeats which digest a majority of the voters has found.

The rules protected here: the majority of the voters is right, a node that differs from it must not
serve (``StateDiffersError`` ends it), and only equal indexes of equal layouts are compared. A
difference without a majority accuses nobody; it is only reported.
"""

from collections.abc import Iterable
from typing import TypeVar

import msgspec
from gantry_protocol.types import Index, NodeId

from gantry_controller.raft.errors import StateDiffersError
from gantry_controller.raft.members import Membership

ValueT = TypeVar("ValueT")

POINTS_MAX = 64
"""Points that are remembered; a follower that is further behind is compared once it caught up."""

LAYOUT_SHIFT = 48
"""The bits above name the layout of what was digested; only digests of one layout compare."""


class DigestPoint(msgspec.Struct, frozen=True, gc=False):
    """A node's state after entry ``index`` had ``digest`` (64 bits); index 0 is no point."""

    index: Index = Index(0)
    digest: int = 0


def comparable(one: int, other: int) -> bool:
    """Whether two digests are of one layout."""
    return one >> LAYOUT_SHIFT == other >> LAYOUT_SHIFT


class Digests:
    """One node's knowledge of the digests of all.

    Attributes:
        newest: the own newest point.
        agreed: the newest point on which a majority was found to agree, here or by the leader.
        differing: nodes that were found to differ from this node (leader only), with the first
            index at which they did.
        layouts: what the peers' newest points are laid out in (leader only). A node says it before
            its first point, too (``say_layout``).
    """

    def __init__(self, node_id: NodeId) -> None:
        self.newest = DigestPoint()
        self.agreed = DigestPoint()
        self.differing: dict[NodeId, Index] = {}
        self.layouts: dict[NodeId, int] = {}
        self._node_id = node_id
        self._own: dict[Index, int] = {}
        self._said: dict[Index, dict[NodeId, int]] = {}  # by peers of this leader
        self._verdicts: dict[Index, int] = {}  # what a majority found

    def say_layout(self, layout: int) -> None:
        """The layout of points to come; an older program takes no notice of a point at 0."""
        assert self.newest.index == 0, self.newest
        self.newest = DigestPoint(Index(0), layout << LAYOUT_SHIFT)

    def share_layout(self, nodes: Iterable[NodeId]) -> bool | None:
        """Whether these write the state as this node does, hence know its events, too.

        No if one is known to be another program; None while most were not heard of. Who else is
        silent is no reason to wait: should it be an older one, it stops at an event that it does
        not know, and goes on once it is started as this one is.
        """
        own = self.newest.digest >> LAYOUT_SHIFT
        said = [own if node == self._node_id else self.layouts.get(node) for node in nodes]
        if any(item not in (own, None) for item in said):
            return False
        return True if 2 * said.count(own) > len(said) else None

    def take(self, point: DigestPoint, members: Membership) -> None:
        """The own state has reached a point.

        Raises:
            StateDiffersError: a majority has found another digest there.
        """
        assert point.index > self.newest.index, (point, self.newest)
        self.newest = point
        _put(self._own, point.index, point.digest)
        self._check(point.index)
        for node, digest in self._said.get(point.index, {}).items():
            self._compare(node, point.index, digest)
        self._count(point.index, members)

    def heard(self, node: NodeId, point: DigestPoint, members: Membership) -> None:
        """A peer names its newest point (leader only).

        Raises:
            StateDiffersError: with this word a majority has found another digest than this node.
        """
        self.layouts[node] = point.digest >> LAYOUT_SHIFT
        if point.index == 0:
            return
        said = self._said.get(point.index)
        if said is None:
            said = {}
            _put(self._said, point.index, said)
        if said.get(node) == point.digest:
            return
        said[node] = point.digest
        self._compare(node, point.index, point.digest)
        self._count(point.index, members)

    def told(self, point: DigestPoint) -> None:
        """The leader names what a majority has found.

        Raises:
            StateDiffersError: this node found something else.
        """
        if point.index > self.agreed.index:
            self._decide(point)

    def _compare(self, node: NodeId, index: Index, digest: int) -> None:
        own = self._own.get(index)
        if own is not None and own != digest and comparable(own, digest):
            self.differing.setdefault(node, index)

    def _count(self, index: Index, members: Membership) -> None:
        """A majority for one digest at ``index`` is a verdict."""
        if index <= self.agreed.index:
            return
        found = dict(self._said.get(index, {}))
        if index in self._own:
            found[self._node_id] = self._own[index]
        for digest in found.values():
            if members.decides(node for node, other in found.items() if other == digest):
                self._decide(DigestPoint(index, digest))
                return

    def _decide(self, point: DigestPoint) -> None:
        self.agreed = point
        _put(self._verdicts, point.index, point.digest)
        self._check(point.index)

    def _check(self, index: Index) -> None:
        own, verdict = self._own.get(index), self._verdicts.get(index)
        if own is None or verdict is None or own == verdict or not comparable(own, verdict):
            return
        raise StateDiffersError(self._node_id, index, own, verdict)


def _put(points: dict[Index, ValueT], index: Index, value: ValueT) -> None:
    """Remembers ``value``; beyond the bound the lowest index is forgotten."""
    points[index] = value
    if len(points) > POINTS_MAX:
        del points[min(points)]
