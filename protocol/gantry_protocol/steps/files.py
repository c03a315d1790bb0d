"""The rings of a process as a file, and back; pure.

A file is lines of JSON: a heading, the sizes of logs, and each stretch as its state and its steps,
a step in a line; the last line says how many there are, so what was cut off is noticed. Numbers and
names of the core's own is all that it holds, and the addresses of members. A process that runs one
core for each of its groups names the group with each stretch.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gantry_protocol.steps.plain import NotStepsError, Plain, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gantry_protocol.steps.ring import HeldSteps, LogThen, Stretch

FORMAT: Final = 1
"""Of the whole file; another one is read by the version that wrote it."""
LINES_MAX: Final = 2_000_000
_encode = msgspec.json.Encoder().encode


class Heading(msgspec.Struct, frozen=True):
    """The first line.

    Attributes:
        core: which machine took the steps.
        version: of the process.
        code: fingerprint of that machine's code (``fingerprint``).
        process: whose steps they are.
        dropped: steps that made room for others.
        ended: why it was not recorded any more; empty if it was.
    """

    format: int
    core: str
    version: str
    code: str
    process: str
    dropped: int = 0
    ended: str = ""


class StretchRead(msgspec.Struct, frozen=True):
    """A state, and the steps behind it as they stand in a file.

    Attributes:
        of: the group whose core it is; empty where a process has one core.
    """

    number: int
    at: str
    state: Any
    sizes: Any
    runs: list[tuple[int, int]]
    steps: list[list[Any]]
    of: str = ""


class StepsRead(msgspec.Struct, frozen=True):
    """A file of steps."""

    heading: Heading
    stretches: list[StretchRead]


class _Sizes(msgspec.Struct, frozen=True):
    sizes: int
    first: int
    values: list[int]


class _Start(msgspec.Struct, frozen=True):
    start: int
    at: str
    state: dict[str, Any]
    log: int | None = None
    first: int = 0
    count: int = 0
    runs: list[tuple[int, int]] = []
    of: str = ""


class _End(msgspec.Struct, frozen=True):
    end: int


class _Format(msgspec.Struct, frozen=True):
    format: int


_format = msgspec.json.Decoder(_Format)
_heading = msgspec.json.Decoder(Heading)
_sizes = msgspec.json.Decoder(_Sizes)
_start = msgspec.json.Decoder(_Start)
_step = msgspec.json.Decoder(list[Any])
_end = msgspec.json.Decoder(_End)


def written_file(
    rings: Mapping[str, HeldSteps],
    plain: Plain,
    *,
    core: str,
    process: str,
    version: str,
    code: str,
    note: str = "",
) -> bytes:
    """The file of a process; may be written in another thread than the cores'.

    Args:
        rings: by group; of a process that has one core, by an empty name.
        plain: the form of the core's values.
        core: see ``Heading``.
        process: as above.
        version: as above.
        code: as above.
        note: why nothing is recorded at all.
    """
    dropped = sum(held.dropped for held in rings.values())
    ended = {of: held.ended for of, held in rings.items() if held.ended}
    why = note or "; ".join(f"{of}: {text}" if of else text for of, text in ended.items())
    lines = [_encode(Heading(FORMAT, core, version, code, process, dropped, why))]
    logs: dict[int, tuple[int, LogThen]] = {}
    for then in (one.log for held in rings.values() for one, _ in held.stretches):
        if then is not None:
            number, before = logs.get(id(then.sizes), (len(logs), then))
            newest = max(before, then, key=lambda one: one.first_index + one.count)
            logs[id(then.sizes)] = number, newest
    for number, then in logs.values():
        lines.append(_encode(_Sizes(number, then.first_index, then.sizes[: then.count].tolist())))
    for of, held in rings.items():
        for stretch, count in held.stretches:
            start = _start_of(stretch, of, logs)
            lines.append(_encode(start))
            lines.extend(_lines(stretch, count, plain))
    lines.append(_encode(_End(len(lines) + 1)))
    return b"\n".join(lines) + b"\n"


def _start_of(stretch: Stretch, of: str, logs: Mapping[int, tuple[int, LogThen]]) -> dict[str, Any]:
    start: dict[str, Any] = {"start": stretch.number, "at": stretch.at}
    then = stretch.log
    if of:
        start["of"] = of
    if then is not None:
        start |= {"log": logs[id(then.sizes)][0], "first": then.first_index}
        start |= {"count": then.count, "runs": then.runs}
    return start | {"state": msgspec.Raw(stretch.state)}


def _lines(stretch: Stretch, count: int, plain: Plain) -> Iterator[bytes]:
    for kind, given, drawn, outcome in stretch.steps[:count]:
        step = [kind, plain.written(given), drawn, plain.written(outcome)]
        while step[-1] is None:
            step.pop()
        yield _encode(step)


def steps_of(data: bytes, place: str) -> StepsRead:
    """The steps in a file.

    Raises:
        NotStepsError: it holds none, is cut off or damaged, or is of another format.
    """
    lines = data.splitlines()
    if not lines or len(lines) > LINES_MAX:
        raise NotStepsError(f"{place} holds no steps: {len(lines)} lines.")
    try:
        form = _format.decode(lines[0]).format
        if form != FORMAT:
            raise NotStepsError(
                f"{place} has format {form}, and this version reads {FORMAT}: use the version that "
                "took the bundle."
            )
        heading = _heading.decode(lines[0])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise NotStepsError(f"{place} holds no steps: {error}.") from None
    if not _is_whole(lines):
        raise NotStepsError(f"{place} is cut off after {len(lines)} lines.")
    return StepsRead(heading, _Reading(place).all_of(lines[1:-1]))


def _is_whole(lines: list[bytes]) -> bool:
    try:
        return _end.decode(lines[-1]).end == len(lines)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False


class _Reading:
    def __init__(self, place: str) -> None:
        self._place = place
        self._sizes: dict[int, _Sizes] = {}
        self._found: list[StretchRead] = []

    def all_of(self, lines: list[bytes]) -> list[StretchRead]:
        """The stretches of all lines between the first and the last."""
        for number, line in enumerate(lines, start=2):
            try:
                self._line(line)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
                raise NotStepsError(f"{self._place}, line {number}: {error}.") from None
        return self._found

    def _line(self, line: bytes) -> None:
        if line.startswith(b"["):
            step = _step.decode(line)
            if not self._found or not 1 <= len(step) <= 4 or not isinstance(step[0], str):
                raise NotStepsError(f"{self._place}: {shown(step)} is no step behind a state.")
            self._found[-1].steps.append(step)
        elif line.startswith(b'{"sizes"'):
            sizes = _sizes.decode(line)
            self._sizes[sizes.sizes] = sizes
        else:
            self._found.append(self._start(_start.decode(line)))

    def _start(self, start: _Start) -> StretchRead:
        if start.log is None:
            return StretchRead(start.start, start.at, start.state, array("I"), [], [], start.of)
        known = self._sizes.get(start.log)
        begin = -1 if known is None else start.first - known.first
        if known is None or begin < 0 or begin + start.count > len(known.values):
            raise NotStepsError(f"{self._place}: the log of step {start.start} is missing.")
        try:
            sizes = array("I", known.values[begin : begin + start.count])
        except (OverflowError, TypeError) as error:
            raise NotStepsError(f"{self._place}: sizes of entries: {error}.") from None
        return StretchRead(start.start, start.at, start.state, sizes, start.runs, [], start.of)
