"""The store on disk: one checksummed line per change, so that a cluster survives its daemon.

Every line is written before anybody hears of the change and needs no sync: it protects against the
end of the process, not of the machine. A torn last line is cut; damage anywhere else is refused
with file and offset. What controllers rebuild anyway (endpoints, events) is left out.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import google_crc32c
import msgspec
from gantry_protocol.errors import CorruptionError, DataDirError
from gantry_protocol.process.files import atomic_write

from gantry_local.apiserver.store import Record

if TYPE_CHECKING:
    from pathlib import Path

    from gantry_local.apiserver.store import Event, Store

FORMAT: Final = 1
_HEADER: Final = {"journal": "gantry-local", "format": FORMAT}
_TRANSIENT: Final = frozenset(
    {
        ("", "endpoints"),
        ("", "events"),
        ("events.k8s.io", "events"),
        ("discovery.k8s.io", "endpointslices"),
    }
)
_REWRITE_AFTER_LINES: Final = 20_000
"""Lines beyond the live objects before the file is rewritten."""


class JournalLine(msgspec.Struct, array_like=True):
    """One change: revision, resource, key and the object (None: deleted)."""

    revision: int
    resource: tuple[str, str]
    key: tuple[str, str]
    obj: dict[str, Any] | None


class Journal:
    """Keeps a store's changes in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._store: Store | None = None
        self._surplus = 0

    def load(self, store: Store) -> None:
        """Fill an empty store from the file, if there is one.

        Raises:
            CorruptionError: a line other than the last is not what was written.
            DataDirError: the file is of another version.
        """
        if not self._path.exists():
            return
        records: dict[tuple[tuple[str, str], tuple[str, str]], Record] = {}
        revision = 0
        for line in self._lines():
            revision = max(revision, line.revision)
            if line.obj is None:
                records.pop((line.resource, line.key), None)
            else:
                record = Record(line.resource, line.key, line.obj, line.revision)
                records[line.resource, line.key] = record
        store.restore(records.values(), revision)

    def _lines(self) -> list[JournalLine]:
        content = self._path.read_bytes()
        found: list[JournalLine] = []
        position = 0
        while position < len(content):
            end = content.find(b"\n", position)
            if end < 0:
                break  # torn by the end of the process
            payload = _payload(content[position:end])
            if payload is None:
                if end == len(content) - 1:
                    break
                raise CorruptionError(self._path, position, "the line's checksum does not match")
            if position == 0:
                self._check_header(payload)
            else:
                found.append(msgspec.json.decode(payload, type=JournalLine))
            position = end + 1
        return found

    def _check_header(self, payload: bytes) -> None:
        header = msgspec.json.decode(payload)
        if header != _HEADER:
            raise DataDirError(
                f"{self._path} has the header {header}, this version reads {_HEADER}; start the "
                "version that wrote it, or remove the cluster with gantry local down --purge."
            )

    def follow(self, store: Store) -> None:
        """Write the present state as a fresh file and append every later change."""
        self._store = store
        self._rewrite()
        store.subscribe(self._on_event, name="journal", resync=self._rewrite)

    def close(self) -> None:
        """Stop writing."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _on_event(self, event: Event) -> None:
        record = event.record
        if self._file is None or record.resource in _TRANSIENT:
            return
        obj = None if event.type == "DELETED" else record.obj
        line = JournalLine(record.revision, record.resource, record.key, obj)
        self._file.write(_line(msgspec.json.encode(line)))
        self._file.flush()
        self._surplus += 1
        if self._surplus > _REWRITE_AFTER_LINES:
            self._rewrite()

    def _rewrite(self) -> None:
        assert self._store is not None
        self.close()
        lines = [_line(msgspec.json.encode(_HEADER))]
        for resource in self._store.resources():
            if resource not in _TRANSIENT:
                for record in self._store.records(resource):
                    line = JournalLine(record.revision, resource, record.key, record.obj)
                    lines.append(_line(msgspec.json.encode(line)))
        # The revision counter itself, which no surviving object may carry any more.
        marker = JournalLine(self._store.revision, ("", "revision"), ("", ""), None)
        lines.append(_line(msgspec.json.encode(marker)))
        atomic_write(self._path, b"".join(lines), mode=0o600)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        self._file = os.fdopen(descriptor, "ab")
        self._surplus = 0


def _line(payload: bytes) -> bytes:
    return b"%08x %s\n" % (google_crc32c.value(payload), payload)


def _payload(line: bytes) -> bytes | None:
    """The line without its checksum; None when that does not match."""
    checksum, _, payload = line.partition(b" ")
    if len(checksum) != 8:
        return None
    expected = b"%08x" % google_crc32c.value(payload)
    return payload if checksum == expected else None
