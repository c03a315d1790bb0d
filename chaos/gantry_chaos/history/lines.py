"""History lines as OpenChaos writes them: one event per line, fields separated by tabs.

    CLIENT  OP  REQUEST   VALUE  KEY  AT_MS  EXTRA
    CLIENT  OP  RESPONSE  SUCCESS|FAILURE|UNKNOWN  VALUE  KEY  AT_MS  TOOK_MS  EXTRA  E2E_MS
    fault   NAME  start|end  AT_MS

The rule protected here: FAILURE means that the request surely had no effect; everything else that
is no success is UNKNOWN. Times are milliseconds of CLOCK_MONOTONIC, which all pods of one machine
share. `extra` holds `name=text` pairs separated by `;`.

What it refuses: fields with a tab or a line break, lines that are too long, and histories that are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from gantry_chaos.errors import HistoryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

LINES_MAX = 5_000_000
LINE_BYTES_MAX = 4096
NONE = "null"

Outcome = Literal["SUCCESS", "FAILURE", "UNKNOWN"]
_OUTCOMES: tuple[Outcome, ...] = ("SUCCESS", "FAILURE", "UNKNOWN")


class Request(msgspec.Struct, frozen=True):
    """A client is about to ask."""

    client: str
    op: str
    value: str | None
    key: str | None
    at_ms: int
    extra: str = ""


class Response(msgspec.Struct, frozen=True):
    """A client was answered, or gave up.

    Attributes:
        took_ms: since the request.
        e2e_ms: for a message that was consumed, since it was sent; -1: not known.
    """

    client: str
    op: str
    outcome: Outcome
    value: str | None
    key: str | None
    at_ms: int
    took_ms: int
    extra: str = ""
    e2e_ms: int = -1


class FaultMark(msgspec.Struct, frozen=True):
    """A fault began or ended."""

    name: str
    edge: Literal["start", "end"]
    at_ms: int


Line = Request | Response | FaultMark


def encode(line: Line) -> str:
    """A line without its line break.

    Raises:
        ValueError: a field holds a tab or a line break, or the line is too long.
    """
    match line:
        case Request(client, op, value, key, at_ms, extra):
            fields: tuple[object, ...] = (client, op, "REQUEST", value, key, at_ms, extra)
        case Response(client, op, outcome, value, key, at_ms, took_ms, extra, e2e_ms):
            answer = (client, op, "RESPONSE", outcome, value, key, at_ms, took_ms, extra, e2e_ms)
            fields = answer
        case FaultMark(name, edge, at_ms):
            fields = ("fault", name, edge, at_ms)
    words = [NONE if field is None or field == "" else str(field) for field in fields]
    for word in words:
        if re.search(r"[\t\r\n]", word):
            raise ValueError(f"{word!r} holds a tab or a line break")
    text = "\t".join(words)
    if len(text.encode()) > LINE_BYTES_MAX:
        raise ValueError(f"a line of more than {LINE_BYTES_MAX} bytes")
    return text


def decode(text: str) -> Line:
    """A line without its line break.

    Raises:
        ValueError: it is none.
    """
    words = text.split("\t")
    match words:
        case ["fault", name, "start" | "end" as edge, at_ms]:
            return FaultMark(name, edge, _number(at_ms))
        case [client, op, "REQUEST", value, key, at_ms, extra]:
            return Request(client, op, _text(value), _text(key), _number(at_ms), _text(extra) or "")
        case [client, op, "RESPONSE", outcome, value, key, at_ms, took_ms, extra, e2e_ms]:
            return Response(
                client,
                op,
                _outcome(outcome),
                _text(value),
                _text(key),
                _number(at_ms),
                _number(took_ms),
                _text(extra) or "",
                _number(e2e_ms),
            )
        case _:
            raise ValueError(f"{len(words)} fields that are no request, response or fault")


def _text(word: str) -> str | None:
    return None if word == NONE else word


def _outcome(word: str) -> Outcome:
    if word not in _OUTCOMES:
        raise ValueError(f"the outcome is {word!r}, not one of {', '.join(_OUTCOMES)}")
    return word


def _number(word: str) -> int:
    if not re.fullmatch(r"-?\d{1,18}", word):
        raise ValueError(f"{word!r} is no whole number")
    return int(word)


def pairs(extra: str) -> dict[str, str]:
    """`a=1;b=2` as a mapping; what is no pair is left out."""
    found = (part.partition("=") for part in extra.split(";"))
    return {name: text for name, sign, text in found if sign}


def join(extra: Mapping[str, object]) -> str:
    """A mapping as `a=1;b=2`."""
    return ";".join(f"{name}={text}" for name, text in extra.items())


class Recorder:
    """Writes a history; use as a context manager.

    Args:
        path: of a new file.
        lines_max: how many lines it may have.
    """

    def __init__(self, path: Path, *, lines_max: int = LINES_MAX) -> None:
        self._path = path
        self._lines_left = lines_max
        self._file = path.open("x", encoding="utf-8", newline="\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def write(self, line: Line) -> None:
        """Append a line.

        Raises:
            HistoryError: the history has as many lines as it may have.
            ValueError: see `encode`.
        """
        text = encode(line)
        if self._lines_left == 0:
            raise HistoryError(self._path, self._file.tell(), "it is as long as a history may be")
        self._lines_left -= 1
        self._file.write(f"{text}\n")


def read(path: Path, *, lines_max: int = LINES_MAX) -> Iterator[Line]:
    """All lines of a history; a last line without its end is left out, its writer was killed.

    Raises:
        HistoryError: a line is none, or there are too many.
    """
    offset = 0
    with path.open("rb") as file:
        for number in range(lines_max + 1):
            text = file.readline(LINE_BYTES_MAX + 2)
            if not text.endswith(b"\n"):
                if len(text) > LINE_BYTES_MAX:
                    raise HistoryError(path, offset, f"a line of more than {LINE_BYTES_MAX} bytes")
                return
            if number == lines_max:
                break
            try:
                yield decode(text[:-1].decode())
            except ValueError as error:
                raise HistoryError(path, offset, f"line {number + 1}: {error}") from error
            offset += len(text)
    raise HistoryError(path, offset, f"it has more than {lines_max} lines")


def write_all(path: Path, lines: Iterable[Line]) -> None:
    """A new history with these lines."""
    with Recorder(path) as recorder:
        for line in lines:
            recorder.write(line)
