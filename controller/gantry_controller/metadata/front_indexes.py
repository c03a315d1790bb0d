"""Indexes of broker groups at the fronts of their cluster (ADR 0067).

Old clients name no broker in their requests: the port says which group they mean. So an index
belongs to one group while that serves. Clients keep a route for half a minute, so what one group
gives back goes to another as late as can be: who comes gets the index that it had, else one that
nobody had, else the one that has been free for the longest.

Indexes are written down when fronts are declared for the first time. Until then they follow the
order of names, which every member of the quorum makes of what it holds, whatever its version.
"""

from collections.abc import Iterable, Iterator

import msgspec
from gantry_protocol.types import Index


class Fronts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The fronts of one cluster: clients reach the group of index n at ``first_port`` + n.

    Attributes:
        name: of who declared it.
        address: a host name or an IP address, without brackets.
        first_port: 1 to 65535, and the last one likewise.
        ports: 1 to ``MAX_FRONT_PORTS``; groups of higher indexes are not served by fronts.
    """

    name: str
    address: str
    first_port: int
    ports: int


class FrontSlot(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One index of a cluster.

    Attributes:
        group: which has it, or had it last.
        left: when that group was retired or removed, as an index in the log; 0 while it serves.
    """

    group: str
    left: Index = Index(0)


class FrontIndexes(msgspec.Struct):
    """The indexes of one cluster, as ``slots`` say; derived, and never empty.

    Attributes:
        names: by index, the group that has it, or had it last.
        index_of: the inverse.
        left: the indexes that are free, and since when.
    """

    names: list[str] = []
    index_of: dict[str, int] = {}
    left: dict[int, Index] = {}

    def change(self, group: str, left: Index, ports: int) -> tuple[int, FrontSlot]:
        """The group begins to serve (``left`` is 0), or ends at this index in the log.

        Returns the index that it is given, or loses, and the slot which that has now. ``ports`` are
        those of the fronts, 0 while there are none.
        """
        index = self.index_of[group] if left else self.choose(group, ports)
        slot = FrontSlot(group, left)
        self.put(index, slot)
        return index, slot

    def put(self, index: int, slot: FrontSlot) -> None:
        """The slot of ``index`` is now this one; a new one follows the last."""
        assert index <= len(self.names), (index, slot)
        if index == len(self.names):
            self.names.append(slot.group)
        elif self.names[index] != slot.group:
            assert index in self.left, (index, slot)
            del self.index_of[self.names[index]]
            self.names[index] = slot.group
        self.index_of[slot.group] = index
        self.left.pop(index, None)
        if slot.left:
            self.left[index] = slot.left

    def choose(self, group: str, ports: int) -> int:
        """The index for a ``group`` that begins to serve, where fronts have so many ports."""
        own = self.index_of.get(group)
        if own is not None:
            assert own in self.left, group
            return own
        new = len(self.names)
        at_fronts = [index for index in self.left if index < ports]
        if new >= ports and at_fronts:
            return min(at_fronts, key=lambda index: (self.left[index], index))
        return new if new < ports else min(self.left, default=new)

    def having(self, group: str) -> int | None:
        """The index of ``group`` while it serves."""
        index = self.index_of.get(group)
        return None if index in self.left else index

    def serving(self, indexes_max: int) -> Iterator[tuple[int, str]]:
        """The groups that have the first indexes."""
        for index, name in enumerate(self.names[:indexes_max]):
            if index not in self.left:
                yield index, name


def derive(slots: Iterable[tuple[tuple[str, int], FrontSlot]]) -> dict[str, FrontIndexes]:
    """The indexes of each cluster, from all slots by cluster and index."""
    found: dict[str, FrontIndexes] = {}
    for (cluster, index), slot in sorted(slots):
        found.setdefault(cluster, FrontIndexes()).put(index, slot)
    return found
