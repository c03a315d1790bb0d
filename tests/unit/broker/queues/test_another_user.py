"""The store of what is derived from a log, after a change of the process's user."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gantry_broker.queues.kv import KeyValue, KvBatch


def test_the_lock_of_another_user_is_replaced_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = KeyValue(tmp_path / "kv")
    batch = KvBatch()
    batch.put(b"k", b"v")
    store.write(batch)
    store.flush()
    store.close()
    lock = tmp_path / "kv" / "LOCK"
    kept = lock.stat().st_ino
    KeyValue(tmp_path / "kv").close()
    assert lock.stat().st_ino == kept, "our own lock stays"
    held = lock.open("rb")  # or the file system gives the number again
    monkeypatch.setattr(os, "access", lambda path, how: (Path(path), how) != (lock, os.W_OK))
    store = KeyValue(tmp_path / "kv")
    assert lock.stat().st_ino != kept
    assert store.get(b"k") == b"v"
    store.close()
    held.close()
