"""Opening the store of what is derived from the log: sound and of this version, or empty.

What is damaged, unreadable or of another version is thrown away: everything in it follows from the
log. A log line names the file.
"""

from itertools import chain
from pathlib import Path

import msgspec
from gantry_protocol.errors import CorruptionError
from gantry_protocol.process import log as logs

from gantry_broker.queues import kv, rows
from gantry_broker.queues.kv import KeyValue
from gantry_broker.queues.rows import Head

VERIFY_AT_START_BYTES = 256 * 1024 * 1024  # of files; what is damaged in more is found when read

_log = logs.get("store")


def open_derived(directory: Path) -> tuple[KeyValue, Head | None]:
    """The store in ``directory``, and how far it has come; None where it is empty.

    Raises:
        OSError: the disk failed.
    """
    try:
        return _open(directory)
    except CorruptionError as error:
        _log.warning(
            "derived state is damaged, making it again from the log",
            file=error.file,
            reason=str(error),
        )
    kv.remove(directory)
    return KeyValue(directory), None


def begin_again(store: KeyValue) -> KeyValue:
    """An empty store instead of ``store``, which is closed; durable on return."""
    store.close()
    kv.remove(store.directory)
    return KeyValue(store.directory)


def _open(directory: Path) -> tuple[KeyValue, Head | None]:
    store = KeyValue(directory)
    try:
        value = store.get(rows.HEAD)
        if value is None:
            return store, None
        version = rows.decode_version(value)
        if version != rows.VERSION:
            _log.warning(
                "derived state has another version, making it again from the log",
                file=directory,
                version=version,
                expected=rows.VERSION,
            )
            return begin_again(store), None
        _check(store)
        return store, rows.decode_head(value)
    except msgspec.DecodeError as error:
        store.close()
        raise CorruptionError(directory, 0, f"a row does not read: {error}") from error
    except CorruptionError:
        store.close()
        raise


def _check(store: KeyValue) -> None:
    """Read what a start relies on, or everything where that is little."""
    ranges = [rows.TOPICS, rows.OFFSETS]
    if store.size_bytes <= VERIFY_AT_START_BYTES:
        ranges = [rows.EVERYTHING]
    for key, value in chain.from_iterable(store.pairs(*bounds) for bounds in ranges):
        if key[:1] == rows.TOPICS[0]:
            rows.decode_topic(value)
        elif key[:1] == rows.OFFSETS[0]:
            rows.decode_used(value)
            rows.decode_offset_key(key)
