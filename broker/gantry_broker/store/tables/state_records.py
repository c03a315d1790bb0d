"""The whole state that follows from the log, written into the log, so that its beginning can go.

Topics, consumer offsets and the numbers of queues are in records of the log (H10, H12). Who reads
the log from its first byte has them all; who begins later, because the oldest files are in the tier
only, lacks what was said before. So before a broker trims, its master appends everything that is
known at that place, to the system topic ``GANTRY_SYS_STATE``, in pieces of bounded size.

Rules protected:

* A state says what is true where its first piece stands. Whoever has read the log from its first
  byte learns nothing new from it; whoever has not, knows everything after the last piece.
* A log is trimmed only below the first piece of a state that is confirmed as a whole.

Each piece can be taken in by itself and twice, so a checkpoint may stand between two of them.
"""

from collections.abc import Sequence

import msgspec
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.errors import BodyError
from gantry_protocol.records import MessageRecord
from gantry_protocol.types import Offset

from gantry_broker.store.tables.names import STATE_TOPIC
from gantry_broker.store.tables.offsets import OffsetRow
from gantry_broker.store.tables.pieces import pieces

QueueRow = tuple[str, int, int, int]  # topic, queue id, first offset served, next offset


class StatePiece(msgspec.Struct, frozen=True, omit_defaults=True):
    """One piece of a state.

    Attributes:
        index: of this piece, from 0.
        count: of all pieces of this state.
        topics_version: the controllers' version of the topic table.
        topics: some of the topics.
        offsets: some of the consumer offsets.
        queues: some of the queues; not the one that the pieces stand in.
    """

    index: int
    count: int
    topics_version: int
    topics: list[TopicConfig] = []
    offsets: list[OffsetRow] = []
    queues: list[QueueRow] = []


class Gathered(msgspec.Struct, frozen=True, array_like=True):
    """Pieces of one state that came one after the other.

    Attributes:
        start: log offset of the first.
        pieces: how many came.
        count: how many there are.
    """

    start: int
    pieces: int
    count: int

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing."""
        return self.pieces == self.count


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(StatePiece)


def state_records(
    topics_version: int,
    topics: Sequence[TopicConfig],
    offsets: Sequence[OffsetRow],
    queues: Sequence[QueueRow],
) -> list[MessageRecord]:
    """The records of a state; to be appended together, with nothing between them."""
    encode = _encoder.encode
    filled: list[dict[str, object]] = [{"topics": part} for part in pieces(topics, encode)]
    filled += [{"offsets": part} for part in pieces(offsets, encode)]
    filled += [{"queues": part} for part in pieces(queues, encode)]
    filled = filled or [{}]
    return [
        MessageRecord(
            topic=STATE_TOPIC,
            body=_encoder.encode(
                {"index": index, "count": len(filled), "topics_version": topics_version, **rows}
            ),
        )
        for index, rows in enumerate(filled)
    ]


def decode_piece(body: bytes) -> StatePiece:
    """The piece in a record of the system topic.

    Raises:
        BodyError: it is none.
    """
    try:
        piece = _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise BodyError(f"a piece of the state does not read: {error}") from error
    if not 0 <= piece.index < piece.count:
        raise BodyError(f"piece {piece.index} of a state in {piece.count} pieces")
    return piece


def gather(before: Gathered | None, piece: StatePiece, offset: Offset) -> Gathered | None:
    """The pieces that are together once ``piece``, which stands at ``offset``, has come.

    Pieces of one state follow each other; a state whose master died in between is never whole.
    """
    if piece.index == 0:
        return Gathered(offset, 1, piece.count)
    if before is None or (before.pieces, before.count) != (piece.index, piece.count):
        return None
    return Gathered(before.start, before.pieces + 1, before.count)
