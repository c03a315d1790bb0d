"""The write-ahead log's slow reference: the same interface over SQLite.

One transaction is one batch. What SQLite keeps after a crash is decided by code that has nothing in
common with ours, so whatever both recover alike is right, or wrong in two independent ways.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import msgspec
from gantry_controller.raft.messages import HardState, parse_entry
from gantry_controller.raft.snapshot import Base, Marker
from gantry_controller.wal.recovery import Recovered

if TYPE_CHECKING:
    from pathlib import Path

    from gantry_controller.wal.format import Write

SCHEMA = """
CREATE TABLE IF NOT EXISTS entry (place INTEGER PRIMARY KEY, encoded BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value BLOB NOT NULL);
"""


class SqliteLog:
    """Append batches, recover them; what ``gantry_controller.wal.wal.Wal`` promises."""

    def __init__(self, database: sqlite3.Connection) -> None:
        """Use ``open``."""
        self._database = database

    @classmethod
    def open(cls, directory: Path) -> tuple[SqliteLog, Recovered]:
        """The log in ``directory`` and what it holds."""
        directory.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(directory / "log.sqlite", isolation_level=None)
        database.executescript(SCHEMA)
        log = cls(database)
        return log, log._recover()

    def append(self, writes: list[Write], *, fails: bool = False) -> None:
        """Make ``writes`` durable, all or none; none if it ``fails``."""
        self._database.execute("BEGIN")
        for write in writes:
            self._write(write)
        self._database.execute("ROLLBACK" if fails else "COMMIT")

    def close(self) -> None:
        self._database.close()

    def _write(self, write: Write) -> None:
        run = self._database.execute
        for marker in write.markers:
            everything = -1 if marker.restart else marker.base.index
            run("DELETE FROM entry WHERE ? < 0 OR place <= ?", (everything, everything))
            self._put("marker", marker)
        if write.entries:
            run("DELETE FROM entry WHERE place >= ?", (write.entries[0].index,))
            rows = [(entry.index, entry.encoded) for entry in write.entries]
            self._database.executemany("INSERT INTO entry VALUES (?, ?)", rows)
        self._put("hard_state", write.hard_state)

    def _put(self, name: str, value: object) -> None:
        encoded = msgspec.msgpack.encode(value)
        self._database.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, encoded))

    def _recover(self) -> Recovered:
        facts = dict(self._database.execute("SELECT name, value FROM fact"))
        rows = self._database.execute("SELECT encoded FROM entry ORDER BY place")
        marker = facts.get("marker")
        found = Recovered(entries=[parse_entry(encoded) for (encoded,) in rows])
        if "hard_state" in facts:
            found.hard_state = msgspec.msgpack.decode(facts["hard_state"], type=HardState)
        if marker is not None:
            found.marker = msgspec.msgpack.decode(marker, type=Marker)
        found.base = Base() if found.marker is None else found.marker.base
        return found
