"""The digest of the state: a sum over its records, kept by what changed.

Each record (a group, a topic of a group, …) counts as the CRC of its table, key and value; the
digest is their sum, so it depends on the state alone and on no order or history, and a snapshot
that was read back can be checked against the digest it carries. A change adds what the new record
counts and takes away what the old one did; ``RecordSum`` says when.

A CRC finds accidents, not forgery, which is all that replicas of one log need.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from gantry_controller.raft.digests import LAYOUT_SHIFT

SHARE_MAX = 256
"""Records of one table that are counted in one go: less than a millisecond."""

_SUM_MASK = (1 << LAYOUT_SHIFT) - 1
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def record_sum(table: str, key: object, value: object) -> int:
    """The addend of one record; nothing if there is none."""
    return 0 if value is None else zlib.crc32(_encode((table, key, value)))


def layout_of(kinds: Iterable[type], tables: Iterable[str]) -> int:
    """A number of 16 bits that tells the layouts of records in these tables apart.

    Programs of different versions may write the same state in different fields; comparing their
    digests would accuse a healthy node in the middle of an upgrade.
    """
    fields = [(kind.__name__, *_fields(kind)) for kind in kinds]
    return zlib.crc32(_encode((fields, tuple(tables)))) & 0xFFFF


def _fields(kind: type) -> list[str]:
    return [f"{field.name}:{field.type}" for field in msgspec.structs.fields(kind)]


class Parted(msgspec.Struct, frozen=True, array_like=True):
    """A record that counts part by part: one topic among many thousands then costs little.

    ``version`` grows by one with each change and never falls.
    """

    version: int = 0

    @property
    def parts(self) -> Mapping[str, object]:
        """The parts by name; values, of which a changed one is another object."""
        raise NotImplementedError  # a msgspec struct cannot be an abstract base class


class RecordSum:
    """The running sum; ``changed`` or ``touched`` at each change, ``settle`` for the value.

    A record that changes often and is small counts as it changes (``changed``), while it is in the
    processor's caches: that costs less than to look for it again among 100,000. One that changes
    seldom and is large is noted (``touched``) and counted for the next digest. To count many of
    those takes longer than a request may wait, so it can be done bit by bit while the state goes
    on: ``begin`` notes which values the digest is about, ``count`` counts some of them.
    """

    __slots__ = ("_at_begin", "_before", "_layout", "_noted_sum", "_open", "_sum")

    def __init__(self, layout: int) -> None:
        self._layout = layout
        self._sum = 0  # of what counts as it changes
        self._at_begin = 0  # the same, as of the last ``begin``
        self._noted_sum = 0  # of what is counted for digests
        self._before: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
        self._open: list[_Share] = []  # begun and not counted

    def changed(self, table: str, key: object, before: object, after: object) -> None:
        """The record of ``key`` changes from ``before``, None if there is none yet."""
        self._sum += record_sum(table, key, after) - record_sum(table, key, before)

    def touched(self, table: str, key: object, before: object) -> None:
        """The record of ``key`` is about to change from ``before``; likewise."""
        self._before[table].setdefault(key, before)

    def begin(self, tables: Mapping[str, Mapping[Any, Any]]) -> None:
        """From now on ``count`` counts the state that ``tables`` are now."""
        assert not self._open, "one digest at a time"
        self._at_begin = self._sum
        for table, changed in self._before.items():
            records = tables[table]
            changes = [(key, before, records.get(key)) for key, before in changed.items()]
            for start in range(0, len(changes), SHARE_MAX):
                self._open.append(_Share(table, changes[start : start + SHARE_MAX]))
            changed.clear()

    def count(self) -> int | None:
        """Counts some hundred records.

        Returns the digest of the state as it was at ``begin``, None while more is to be counted.
        """
        counted = 0
        while self._open and counted < SHARE_MAX:
            share = self._open.pop()
            self._noted_sum += _difference(share)
            counted += len(share.changes)
        if self._open:
            return None
        return self._layout << LAYOUT_SHIFT | (self._at_begin + self._noted_sum) & _SUM_MASK

    def settle(self, tables: Mapping[str, Mapping[Any, Any]]) -> int:
        """The digest of the state that ``tables`` are."""
        while self._open:
            self.count()
        self.begin(tables)
        while (digest := self.count()) is None:
            pass
        return digest


class _Share(NamedTuple):
    """Records of one table that are counted together: key, value before and after."""

    table: str
    changes: list[tuple[Any, Any, Any]]


def _difference(share: _Share) -> int:
    """What the records count now, less what they counted before they changed."""
    total = 0
    for key, before, after in share.changes:
        total += value_sum(share.table, key, after, before)
        total -= value_sum(share.table, key, before, after)
    return total


def value_sum(table: str, key: object, value: object, other: object) -> int:
    """The addend of ``value``, apart from those of its parts that ``other`` shares."""
    if not isinstance(value, Parted):
        return record_sum(table, key, value)
    shared = other.parts if isinstance(other, Parted) else {}
    total = record_sum(table, key, value.version)
    for name, part in value.parts.items():
        if shared.get(name) is not part:
            total += record_sum(table, (key, name), part)
    return total
