"""Rows of a table in pieces that a record of the log can carry, however long the rows are."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Row = TypeVar("Row")

MAX_ROWS = 500  # in one piece: about 40 KB with names of the usual length
PIECE_BYTES = 256 * 1024  # of encoded rows; a longer row is a piece by itself


def pieces(rows: Iterable[Row], encode: Callable[[Row], bytes]) -> Iterator[list[Row]]:
    """The rows in their order, at most ``MAX_ROWS`` and ``PIECE_BYTES`` in each piece."""
    piece: list[Row] = []
    size = 0
    for row in rows:
        row_bytes = len(encode(row)) + 1
        if piece and (len(piece) == MAX_ROWS or size + row_bytes > PIECE_BYTES):
            yield piece
            piece, size = [], 0
        piece.append(row)
        size += row_bytes
    if piece:
        yield piece
