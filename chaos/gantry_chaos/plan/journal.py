"""The journal of faults: what must be undone is durable before anything is done.

One line per record, each with its checksum: a header, then `begin` with the undo before a fault is
injected, `injected` when it is, `healed` once its undo was run and seen to have worked. A fault
that has begun and is not healed is open, whatever became of the process that injected it.

What it refuses: a journal that another process or another version writes, and one that is damaged
anywhere but in its last line. A torn last line was never acted upon, so it is cut off.
"""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Literal

import google_crc32c
import msgspec
from gantry_protocol.process.files import fsync_directory

from gantry_chaos.core.actions import Undo  # noqa: TC001 -- msgspec reads it
from gantry_chaos.errors import JournalError, JournalInUseError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

FORMAT = 1
BYTES_MAX = 64 << 20
CHECKSUM_LEN = 9  # eight hexadecimal digits and a blank


class Header(msgspec.Struct, frozen=True, tag="header"):
    """The first record."""

    format: int
    run: str


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """A fault is about to be injected."""

    fault: str
    targets: tuple[str, ...]
    undo: tuple[Undo, ...]


class FaultProgress(msgspec.Struct, frozen=True, tag="progress"):
    """The course of a fault since it began."""

    fault: str
    state: Literal["injected", "healed"]


Record = Header | Begin | FaultProgress


class Journal:
    """The journal of one run. Use as a context manager.

    Args:
        path: made if there is none; otherwise it is continued.
        run: name of the run, for a new journal.

    Raises:
        JournalError: the file cannot be continued.
        JournalInUseError: another process writes it, so its run is still alive.
    """

    def __init__(self, path: Path, run: str) -> None:
        self.path = path
        existing = path.exists()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock(self._file, path)
            data = b""
            if existing:
                if os.fstat(self._file).st_size > BYTES_MAX:
                    raise JournalError(path, BYTES_MAX, "it is longer than any run's")
                data = os.pread(self._file, BYTES_MAX, 0)
            records, whole = parse(data, path)
            os.ftruncate(self._file, whole)
            os.lseek(self._file, whole, os.SEEK_SET)
            self._open: dict[str, Begin] = {}
            self.run = run
            for record in records:
                self._enter(record)
            if not records:
                self._write(Header(FORMAT, run))
                fsync_directory(path.parent)
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)

    @property
    def open_faults(self) -> list[Begin]:
        """Faults that have begun and are not healed, in the order of their beginning."""
        return list(self._open.values())

    def begin(self, fault: str, targets: tuple[str, ...], undo: tuple[Undo, ...]) -> None:
        """Make durable how `fault` is undone; only then may it be injected."""
        assert fault not in self._open, "a fault is healed before it begins again"
        self._append(Begin(fault, targets, undo))

    def injected(self, fault: str) -> None:
        """All of `fault` was brought about."""
        self._append(FaultProgress(fault, "injected"))

    def healed(self, fault: str) -> None:
        """The undo of `fault` worked."""
        assert fault in self._open, "only what has begun is healed"
        self._append(FaultProgress(fault, "healed"))

    def _append(self, record: Record) -> None:
        self._write(record)
        self._enter(record)

    def _write(self, record: Record) -> None:
        rest = memoryview(line(record))
        while rest:
            rest = rest[os.write(self._file, rest) :]
        os.fsync(self._file)

    def _enter(self, record: Record) -> None:
        match record:
            case Header(run=run):
                self.run = run
            case Begin(fault=fault):
                self._open[fault] = record
            case FaultProgress(fault=fault, state="healed"):
                self._open.pop(fault, None)
            case FaultProgress():
                pass


def _lock(file: int, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise JournalInUseError(
            f"The journal {path} belongs to a run that is still alive: end that first."
        ) from None


def line(record: Record) -> bytes:
    """A record as it stands in the file."""
    body = msgspec.json.encode(record)
    return b"%08x %s\n" % (google_crc32c.value(body), body)


_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def parse(data: bytes, source: Path | str) -> tuple[list[Record], int]:
    """All records of a journal, and how many bytes they take; a torn last line is left out.

    Raises:
        JournalError: a line that is not the last one is damaged, or the format is another.
    """
    records: list[Record] = []
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        last = end in (-1, len(data) - 1)
        record = _decode(data[at:end] if end >= 0 else b"")
        if record is None:
            if last:
                break
            raise JournalError(source, at, "the line's checksum does not fit its text")
        if isinstance(record, Header) != (at == 0):
            raise JournalError(source, at, "the header is not the first line and the only one")
        if isinstance(record, Header) and record.format != FORMAT:
            raise JournalError(
                source, at, f"it has format {record.format}, this version reads {FORMAT}"
            )
        records.append(record)
        at = end + 1
    return records, at


def _decode(text: bytes) -> Record | None:
    body = text[CHECKSUM_LEN:]
    if text[:CHECKSUM_LEN] != b"%08x " % google_crc32c.value(body):
        return None
    try:
        return _DECODER.decode(body)
    except msgspec.DecodeError:  # whole, but by another version
        return None
