"""Message stores for tests: records, and a master that confirms when it is told to."""

from __future__ import annotations

import shutil
from pathlib import Path

from gantry_broker.queues import MessageStore, rows
from gantry_broker.store.contract import GetResult, StoredAt
from gantry_protocol.records import MessageRecord, decode_records
from gantry_protocol.types import Offset

SEGMENT_BYTES = 1 << 16
HOST = ("10.0.0.2", 10911)


def message(
    topic: str = "T",
    queue_id: int = 0,
    body: bytes = b"hello",
    *,
    tag: str | None = None,
    properties: str = "",
) -> MessageRecord:
    """A record without positions."""
    return MessageRecord(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties=properties if tag is None else f"TAGS\x01{tag}\x02",
        born_host=("10.0.0.1", 4000),
        store_host=HOST,
    )


def open_store(directory: Path, *, master: bool = True) -> MessageStore:
    """A store, by default the master's."""
    store = MessageStore.open(directory, SEGMENT_BYTES)
    if master:
        store.take_mastership()
    return store


def put(store: MessageStore, *records: MessageRecord, now_ms: int = 1000) -> list[StoredAt]:
    """Append, not confirmed."""
    return store.put(records, now_ms=now_ms)


def confirm(store: MessageStore, upto: int | None = None) -> None:
    """Flush everything and confirm it, or what is below `upto`."""
    store.log.flush()
    store.dispatch(store.log.end if upto is None else Offset(upto))


def bodies(result: GetResult) -> list[bytes]:
    """Of the records that a read found."""
    return [record.body for record in decode_records(result.body)]


def as_replica(store: MessageStore) -> MessageStore:
    """Open the same directory again without mastership, after a clean end."""
    directory = store._directory
    store.close()
    return open_store(directory, master=False)


def forget_derived(directory: Path) -> None:
    """Of a closed store: keep the log, and nothing that follows from it."""
    shutil.rmtree(directory / "kv")


def derived(store: MessageStore) -> list[tuple[bytes, bytes]]:
    """Every row, written as of now.

    How entries and keys are cut into rows is left out, and entries that are not served any more.
    """
    store._dispatcher.store()
    found: dict[bytes, bytes] = {}
    for key, value in store._kv.pairs(*rows.EVERYTHING):
        is_piece = key[:1] == b"k"  # of the key index, behind two store times
        name = b"k" if is_piece else key[:-8] if key[:1] == b"e" else key
        found[name] = found.get(name, b"") + (value[16:] if is_piece else value)
    for name in [name for name in found if name[:1] == b"e"]:
        _, minimum, maximum = rows.decode_queue(found[b"q" + name[1:]])
        served = (maximum - minimum) * rows.ENTRY_BYTES
        found[name] = found[name][-served:] if served else b""
    return sorted((name, value) for name, value in found.items() if value)
