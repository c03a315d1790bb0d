"""What a start believes of its volume: never less than was confirmed on it."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_broker.log.disk import Disks
from gantry_broker.member import lineage_file
from gantry_broker.member.recovery import recover
from gantry_broker.replica import StoredState
from gantry_protocol.errors import CorruptionError
from gantry_protocol.types import Epoch, Offset
from support import stores
from support.replicas import lineage


def volume(directory: Path, confirm: int) -> int:
    """A store of two records, all flushed and known to be confirmed; returns its end."""
    store = stores.open_store(directory / "store")
    stores.put(store, stores.message(), stores.message())
    stores.confirm(store)
    end = store.log.end
    store.close()
    state = StoredState(Epoch(1), lineage((1, 0)), Offset(confirm))
    lineage_file.save(directory, state)
    return end


def found(directory: Path) -> StoredState:
    disks = Disks()
    try:
        store, stored = recover(directory, stores.SEGMENT_BYTES, disks)
        store.close()
        return stored
    finally:
        disks.close()


def test_the_log_knows_better_what_was_confirmed(tmp_path: Path) -> None:
    end = volume(tmp_path, confirm=0)
    assert found(tmp_path).confirm == end


def test_a_log_that_is_shorter_than_what_was_confirmed_is_refused(tmp_path: Path) -> None:
    end = volume(tmp_path, confirm=100_000)
    with pytest.raises(CorruptionError, match=f"ends at {end} and was flushed up to 100000"):
        found(tmp_path)


def test_a_log_that_nobody_wrote_is_refused(tmp_path: Path) -> None:
    volume(tmp_path, confirm=0)
    lineage_file.save(tmp_path, StoredState(Epoch(1), lineage((1, 10)), Offset(0)))
    with pytest.raises(CorruptionError, match="no epoch in it covers the log"):
        found(tmp_path)


def test_a_lineage_that_is_not_what_was_saved_is_refused(tmp_path: Path) -> None:
    volume(tmp_path, confirm=0)
    path = tmp_path / lineage_file.FILE
    path.write_bytes(path.read_bytes().replace(b'"epoch":1', b'"epoch":2'))
    with pytest.raises(CorruptionError, match="checksum"):
        found(tmp_path)
