"""Texts that are much alike, as thousands of StatefulSets are: each is kept as what is its own.

The first text of a place is the pattern of those that follow there: a compressor that has seen it
names its parts instead of repeating them. To unpack a text takes less than its decoding.

A text that is clearly longer than the pattern is the next one, since what a resource was when it
was created says little of what its status will say. What was packed before keeps its own, so there
are few: each is by a `GROWTH` longer than the one before it.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, TypeVar

PlaceT = TypeVar("PlaceT", bound=Hashable)

GROWTH: Final = 1.25
LEVEL: Final = 3
"""Half the time of the default level; what that would find more is a tenth."""
RAW: Final = -zlib.MAX_WBITS
"""Without a head and a checksum: these never leave the process."""


class Packed(NamedTuple):
    """A text, packed.

    Attributes:
        data: what is its own.
        pattern: the rest.
    """

    data: bytes
    pattern: bytes

    def text(self) -> bytes:
        """The text as it was."""
        return zlib.decompressobj(RAW, self.pattern).decompress(self.data)


class Packer(Generic[PlaceT]):
    """Packs texts, those of a place by one pattern."""

    def __init__(self) -> None:
        self._patterns: dict[PlaceT, bytes] = {}

    def pack(self, place: PlaceT, text: bytes) -> Packed:
        """A text; two that are the same may differ in their patterns."""
        pattern = self._patterns.get(place)
        if pattern is None or len(text) > GROWTH * len(pattern):
            pattern = self._patterns[place] = text
        packer = zlib.compressobj(LEVEL, zlib.DEFLATED, RAW, zdict=pattern)
        return Packed(packer.compress(text) + packer.flush(), pattern)
