"""Topics that ended before the broker behind a link had heard of it.

A broker commits offsets in its memory, and they come here a little later. By then the end of their
topic may stand in the log, and be confirmed, while the word of it is on its way. A row that went
into the log behind that end would bring back an offset that a user has deleted, and give it to
whoever consumes the next topic of that name.

Rule protected: a row of a topic goes into the log only if whoever committed it knew of every end
that the topic has had. What the broker knows is the version of its topics, which comes with each
append; ends that it knows are forgotten.
"""

from collections.abc import Sequence

import msgspec
from gantry_protocol.records import MessageRecord

from gantry_broker.store.tables.names import OFFSETS_TOPIC
from gantry_broker.store.tables.offsets import ConsumerOffsets, OffsetRow, decode_rows, encode_rows
from gantry_broker.store.tables.topics import TopicChange

ENDS_MAX = 100_000  # a broker hears of an end within a round trip, and appends many times a second


class TopicEnds:
    """The confirmed ends that one broker may not have heard of yet.

    Attributes:
        stale_rows: that were left out, ever.
    """

    def __init__(self) -> None:
        """It has heard of everything."""
        self.stale_rows = 0
        self._ended: dict[str, int] = {}  # topic: version of the topics at which it ended

    def __len__(self) -> int:
        return len(self._ended)

    def confirmed(self, change: TopicChange) -> None:
        """A change of the topics is confirmed."""
        for name in change.removed:
            self._ended[name] = max(change.version, self._ended.pop(name, 0))
        while len(self._ended) > ENDS_MAX:
            del self._ended[next(iter(self._ended))]

    def heard(self, version: int | None) -> None:
        """The broker knows the topics up to ``version``; None: it is too old to say so."""
        if version is None:
            self._ended.clear()  # or its commits to the next topic of a name would be left out
        elif self._ended:
            self._ended = {name: at for name, at in self._ended.items() if at > version}

    def without_stale(
        self, records: Sequence[MessageRecord], committed: ConsumerOffsets
    ) -> list[MessageRecord]:
        """The records, those of offsets without the rows of topics that have ended.

        Args:
            records: of one append; ``heard`` was told its version.
            committed: knows which ends stand in the log and are not confirmed.

        Raises:
            BodyError: a record of offsets does not read.
        """
        return [
            self._cleaned(record, committed) if record.topic == OFFSETS_TOPIC else record
            for record in records
        ]

    def _cleaned(self, record: MessageRecord, committed: ConsumerOffsets) -> MessageRecord:
        rows = decode_rows(record.body)
        kept = [row for row in rows if not self._is_over(row, committed)]
        if len(kept) == len(rows):
            return record
        self.stale_rows += len(rows) - len(kept)
        return msgspec.structs.replace(record, body=encode_rows(kept))

    def _is_over(self, row: OffsetRow, committed: ConsumerOffsets) -> bool:
        return row[1] in self._ended or committed.is_ending(row[1])
