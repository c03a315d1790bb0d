"""A map from names to two numbers each that stays small when it has very many names.

A dict takes some 200 bytes for each name. Nearly all maps have few names, and are one. Beyond
``SMALL_MAX`` of them the names stand in sorted blocks of bytes with their numbers in arrays beside
them: the length of the name and 16 bytes each. What is known there is changed in place; what is new
gathers in a dict of its block, which is packed by itself, so no step takes long.

Of maps there may be very many, too, one for each place, and nearly all of them have one name. Such
a map is a tuple.
"""

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import TypeAlias

SMALL_MAX = 512  # names of a map that is a dict
FRESH_MAX = 128  # names of a block that are not packed yet
BLOCK_MAX = 1024  # names in one block: to pack it anew takes a millisecond

Row: TypeAlias = tuple[int, int]  # an offset, and the hour in which it was used last
Place: TypeAlias = tuple[str, int]  # topic and queue id


class _Block:
    """Names from its first one on, up to that of the next block."""

    __slots__ = ("ends", "fresh", "hours", "names", "offsets")

    def __init__(self, rows: list[tuple[bytes, Row]]) -> None:
        """Pack ``rows``, which are sorted."""
        self.names = b"".join([name for name, _ in rows])
        self.ends = array("I", accumulate([len(name) for name, _ in rows], initial=0))
        self.offsets = array("q", [row[0] for _, row in rows])
        self.hours = array("I", [row[1] for _, row in rows])
        self.fresh: dict[bytes, Row] = {}

    def __len__(self) -> int:
        return len(self.offsets) + len(self.fresh)

    def find(self, name: bytes) -> int:
        """The index of ``name``, -1 for nowhere."""
        names, ends = self.names, self.ends
        low, high = 0, len(ends) - 1
        while low < high:
            middle = (low + high) // 2
            found = names[ends[middle] : ends[middle + 1]]
            if found < name:
                low = middle + 1
            elif found == name:
                return middle
            else:
                high = middle
        return -1

    def rows(self) -> list[tuple[bytes, Row]]:
        """Everything, packed or not, in no order."""
        names, ends = self.names, self.ends
        split = [names[start:end] for start, end in pairwise(ends)]
        packed = zip(split, zip(self.offsets, self.hours, strict=True), strict=True)
        return [*packed, *self.fresh.items()]


class CompactRows:
    """See the module."""

    __slots__ = ("_blocks", "_firsts")

    def __init__(self) -> None:
        """No name."""
        self._blocks = [_Block([])]
        self._firsts = [b""]  # of each block

    def __len__(self) -> int:
        return sum(len(block) for block in self._blocks)

    def get(self, name: str) -> Row | None:
        """The numbers of ``name``."""
        key = name.encode()
        block = self._block(key)
        row = block.fresh.get(key)
        if row is not None or not block.names:
            return row
        index = block.find(key)
        return None if index < 0 else (block.offsets[index], block.hours[index])

    def put(self, name: str, row: Row) -> bool:
        """Set what is known; returns whether the name is new."""
        key = name.encode()
        block = self._block(key)
        fresh = block.fresh
        if key in fresh:
            fresh[key] = row
            return False
        index = block.find(key) if block.names else -1
        if index >= 0:
            block.offsets[index], block.hours[index] = row
            return False
        fresh[key] = row
        if len(fresh) > (FRESH_MAX if block.names else SMALL_MAX):
            self._replace(block, block.rows())
        return True

    def pop(self, name: str) -> bool:
        """Forget ``name``; returns whether it was known."""
        key = name.encode()
        block = self._block(key)
        if block.fresh.pop(key, None) is not None:
            return True
        if block.find(key) < 0:
            return False
        self._replace(block, [row for row in block.rows() if row[0] != key])
        return True

    def items(self) -> Iterator[tuple[str, Row]]:
        """All names with what is known, in no order; the map may change meanwhile."""
        for block in list(self._blocks):
            for name, row in block.rows():
                yield name.decode(), row

    def _block(self, key: bytes) -> _Block:
        blocks = self._blocks
        if len(blocks) == 1:
            return blocks[0]
        return blocks[bisect_right(self._firsts, key) - 1]

    def _replace(self, block: _Block, rows: list[tuple[bytes, Row]]) -> None:
        """Pack ``rows`` instead of ``block``, into two blocks if they are too many for one."""
        at = self._blocks.index(block)
        if not rows and at:
            del self._blocks[at], self._firsts[at]
            return
        rows.sort()
        half = len(rows) if len(rows) <= BLOCK_MAX else len(rows) // 2
        self._blocks[at] = _Block(rows[:half])
        if rows[half:]:
            self._blocks.insert(at + 1, _Block(rows[half:]))
            self._firsts.insert(at + 1, rows[half][0])


class PlacedRows:
    """Maps as `CompactRows`, by place. Names are kept once, so they should be few.

    Attributes:
        count: of names, over all places.
    """

    __slots__ = ("_maps", "count")

    def __init__(self) -> None:
        """No place."""
        self.count = 0
        self._maps: dict[Place, CompactRows | tuple[str, int, int]] = {}

    def places(self) -> list[Place]:
        """Those that have some name."""
        return list(self._maps)

    def get(self, place: Place, name: str) -> Row | None:
        """The numbers of ``name``."""
        found = self._maps.get(place)
        if found is None or isinstance(found, CompactRows):
            return None if found is None else found.get(name)
        return found[1:] if found[0] == name else None

    def items(self, place: Place) -> Iterator[tuple[str, Row]]:
        """All names of a place with what is known, in no order; they may change meanwhile."""
        found = self._maps.get(place)
        if isinstance(found, CompactRows):
            yield from found.items()
        elif found is not None:
            yield found[0], found[1:]

    def put(self, place: Place, name: str, row: Row) -> None:
        """Set what is known."""
        found = self._maps.get(place)
        if found is None or (found.__class__ is tuple and found[0] == name):
            self._maps[place] = (sys.intern(name), *row)
            self.count += found is None
            return
        if not isinstance(found, CompactRows):
            only, found = found, CompactRows()
            found.put(only[0], only[1:])
            self._maps[place] = found
        self.count += found.put(name, row)

    def pop(self, place: Place, name: str) -> None:
        """Forget ``name``."""
        found = self._maps.get(place)
        if found is None:
            return
        if isinstance(found, CompactRows):
            self.count -= found.pop(name)
            if not len(found):
                del self._maps[place]
        elif found[0] == name:
            self.count -= 1
            del self._maps[place]

    def drop(self, place: Place) -> list[str]:
        """Forget a place; returns the names that it had."""
        names = [name for name, _ in self.items(place)]
        self._maps.pop(place, None)
        self.count -= len(names)
        return names
