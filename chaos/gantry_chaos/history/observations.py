"""Observations beside the clients: roles, leaders and offsets, as JSON lines. Pure.

Times are milliseconds of CLOCK_MONOTONIC, as in histories. Observations are readings: what is not
in them may have happened, so checkers use them to find contradictions and reports to draw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gantry_chaos.errors import HistoryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

LINES_MAX = 2_000_000
LINE_BYTES_MAX = 4096


class RoleSeen(msgspec.Struct, frozen=True, tag="role"):
    """The observed role of a broker: `master`, `replica`, or `gone`.

    Attributes:
        epoch: under which it is master; 0 where that does not apply.
    """

    at_ms: int
    group: str
    broker: str
    role: str
    epoch: int = 0


class LeaderSeen(msgspec.Struct, frozen=True, tag="leader"):
    """The observed leader of the controllers; empty: nobody."""

    at_ms: int
    controller: str
    term: int = 0


class OffsetSeen(msgspec.Struct, frozen=True, tag="offset"):
    """An observed offset: `confirm`, `tier`, …, in bytes of the group's log."""

    at_ms: int
    group: str
    name: str
    value: int


Observation = RoleSeen | LeaderSeen | OffsetSeen

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Observation] = msgspec.json.Decoder(Observation)


def encode(observations: Iterable[Observation]) -> bytes:
    """One line per observation."""
    return b"".join(_ENCODER.encode(observation) + b"\n" for observation in observations)


def decode(text: str | bytes) -> Observation:
    """One line.

    Raises:
        msgspec.DecodeError: it is no observation.
    """
    return _DECODER.decode(text)


def read(path: Path) -> Iterator[Observation]:
    """All observations of a file; a last line without its end is left out.

    Raises:
        HistoryError: a line is none, or there are too many.
    """
    offset = 0
    with path.open("rb") as file:
        for _ in range(LINES_MAX):
            text = file.readline(LINE_BYTES_MAX)
            if not text.endswith(b"\n"):
                if len(text) == LINE_BYTES_MAX:
                    raise HistoryError(path, offset, f"a line of more than {LINE_BYTES_MAX} bytes")
                return
            try:
                yield _DECODER.decode(text)
            except msgspec.DecodeError as error:
                raise HistoryError(path, offset, f"no observation: {error}") from error
            offset += len(text)
    raise HistoryError(path, offset, f"it has more than {LINES_MAX} lines")
