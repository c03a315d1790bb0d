"""The tables of a group as of the head of its tier, from the records of its system topics. Pure.

Topics and their versions come from the controllers; which of them were made anew, and how far
consumer groups had come, stands in the log, and so in the tier. Rules protected:

* Records below the removal of a topic belong to a former topic of that name, whatever its queues
  look like: their numbers go on. A topic that was made after the head has nothing in the tier.
* Of the rows of an offset the last in the log counts. They are read from the newest one backwards,
  down to a state that is whole, since that says everything that was so where it begins.
"""

from collections.abc import Iterable, Mapping

import msgspec
from gantry_protocol.bodies import SubscriptionGroupTable, TopicConfig
from gantry_protocol.bodies.consumers import ConsumerMembership

from gantry_broker.store.tables.offsets import GONE, OFFSETS_MAX, OffsetKey, OffsetRow, UsedRow
from gantry_broker.store.tables.state_records import StatePiece
from gantry_broker.store.tables.topics import TopicChange


class Removals:
    """The removals of topics in the log.

    Attributes:
        version: the controllers' version of the newest change of topics.
    """

    def __init__(self) -> None:
        """Nothing was changed."""
        self.version = 0
        self._at: dict[str, int] = {}  # by topic: where in the log the last one stands

    def take(self, change: TopicChange, at: int) -> None:
        """A change that stands at the log offset ``at``."""
        self.version = max(self.version, change.version)
        for name in change.removed:
            self._at[name] = max(at, self._at.get(name, -1))

    def below(self, topics: Mapping[str, int], end: int) -> dict[str, int]:
        """By topic, the log offset below which records belong to a former one; where there is any.

        Args:
            topics: those that there are, with the version at which each was created.
            end: of the log as far as it is known.
        """
        found: dict[str, int] = {}
        for name, since in topics.items():
            if since > self.version:
                found[name] = end
            elif name in self._at:
                found[name] = self._at[name]
        return found


class OffsetsBack:
    """Consumer offsets, read from the newest record backwards.

    Args:
        removed: by topic, where its last removal stands.

    Attributes:
        is_whole: nothing older can add anything: a whole state was read.
        is_full: there are too many to keep; what is missing is not known.
    """

    def __init__(self, removed: Mapping[str, int]) -> None:
        """Nothing was read."""
        self.is_whole = False
        self.is_full = False
        self._removed = removed
        self._rows: dict[OffsetKey, int] = {}
        self._next = (-1, 0)  # index and count of the piece that makes a state whole further

    def take_rows(self, rows: Iterable[OffsetRow], at: int) -> None:
        """The rows of a record that stands at ``at``, below all that were taken."""
        for group, topic, queue_id, offset in reversed(list(rows)):
            key = (group, topic, queue_id)
            if key in self._rows or at < self._removed.get(topic, -1):
                continue
            if len(self._rows) >= OFFSETS_MAX:
                self.is_full = True
                return
            self._rows[key] = offset

    def take_piece(self, piece: StatePiece, at: int) -> None:
        """A piece of a state; the last one of a state comes first."""
        self.take_rows(piece.offsets, at)
        is_last = piece.index == piece.count - 1
        if not is_last and (piece.index, piece.count) != self._next:
            self._next = (-1, 0)  # its end was never written
            return
        self._next = (piece.index - 1, piece.count)
        self.is_whole = piece.index == 0

    @property
    def rows(self) -> list[UsedRow]:
        """The offsets that there are."""
        return [(*key, offset, 0) for key, offset in self._rows.items() if offset != GONE]


class AsOf(msgspec.Struct, frozen=True):
    """The tables of a group as of a version of its tier.

    Attributes:
        version: of the chain.
        topics: as the controllers have them.
        offsets: of consumer groups.
        settings: of consumer groups, as the controllers have them.
        members: of consumer groups, as the last master heard them.
        begins: of queues, by topic and number, in which the tier has a former topic's records: the
            first offset behind them.
    """

    version: int
    topics: list[TopicConfig]
    offsets: list[UsedRow]
    settings: SubscriptionGroupTable
    members: dict[str, ConsumerMembership]
    begins: dict[tuple[str, int], int] = {}
