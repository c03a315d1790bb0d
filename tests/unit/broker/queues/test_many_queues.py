"""Many queues in one store: no file, thread or object for each, and bounded pieces of work."""

from __future__ import annotations

import os
import threading
from itertools import islice
from pathlib import Path

import pytest
from gantry_broker.queues import MessageStore, dispatcher, queue_table, rows
from gantry_broker.store.contract import ReadLimits
from gantry_protocol.records import decode_records
from support import stores

QUEUES = 20_000
SEGMENT_BYTES = 1 << 22


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with one record in each of many queues."""
    made = tmp_path_factory.mktemp("many")
    store = MessageStore.open(made, SEGMENT_BYTES)
    store.take_mastership()
    for start in range(0, QUEUES, 1000):
        records = [
            stores.message(f"T{number % 20}", number // 20, b"%d" % number)
            for number in range(start, start + 1000)
        ]
        stores.put(store, *records)
        stores.confirm(store)
    assert store._next == {}, "only what is in flight is remembered"
    store.close()
    return made


@pytest.fixture
def store(directory: Path):
    opened = MessageStore.open(directory, SEGMENT_BYTES)
    opened.take_mastership()
    yield opened
    opened.close()


def _handles(store: MessageStore) -> int:
    table = store._queues
    return len(table._changed) + len(table._hot) + len(table._cooling)


def _held() -> tuple[int, int, int]:
    """Threads of Python, threads in all, and open descriptors of this process."""
    tasks, files = (len(list(Path(f"/proc/self/{name}").iterdir())) for name in ("task", "fd"))
    return threading.active_count(), tasks, files


def test_a_queue_takes_no_file_and_no_thread(directory: Path) -> None:
    before = _held()
    store = MessageStore.open(directory, SEGMENT_BYTES)
    added = [after - was for after, was in zip(_held(), before, strict=True)]
    store.close()
    assert added[0] <= 3
    assert added[1] <= 12  # RocksDB's are shared by all stores
    assert added[2] <= 60
    assert sum(len(files) for _, _, files in os.walk(directory / "kv")) < 30


def test_all_of_them_are_there_and_few_are_in_memory(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_table, "HOT_QUEUES", 100)
    assert _handles(store) == 0
    for number in range(0, QUEUES, 7):
        found = store.get(f"T{number % 20}", number // 20, 0, ReadLimits(1, 1000))
        assert decode_records(found.body)[0].body == b"%d" % number
        assert _handles(store) <= 200
    assert sum(1 for _ in store._queues.stored()) == QUEUES


def test_a_batch_is_bounded(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    write = store._kv.write
    monkeypatch.setattr(store._kv, "write", lambda batch: (sizes.append(len(batch)), write(batch)))
    monkeypatch.setattr(dispatcher, "BATCH_ENTRIES", 500)
    for number in range(3000):
        stores.put(store, stores.message(f"T{number % 20}", number // 20))
    stores.confirm(store)
    assert len(sizes) >= 6
    assert max(sizes) <= 2 * 500 + 2  # a queue and its entries, and what is said once


def test_going_through_all_queues_yields_at_each_and_reads_pages(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []
    pairs = store._kv.pairs

    def counted(start: bytes, stop: bytes, **more: bytes):
        for key, value in pairs(start, stop, **more):
            read.append(key)
            yield key, value

    monkeypatch.setattr(store._kv, "pairs", counted)
    steps = store.raise_minimums(store.log.log_start)
    assert len(list(islice(steps, 3))) == 3
    queues = [key for key in read if key[:1] == rows.QUEUES[0]]
    assert len(queues) == queue_table.PAGE_QUEUES
    steps.close()


def test_pieces_of_the_state_are_bounded(store: MessageStore) -> None:
    records = store.state_records()
    assert records is not None
    assert max(len(record.body) for record in records) < 64 * 1024
    assert len(records) >= QUEUES // 500


def test_a_topic_goes_with_all_its_queues(store: MessageStore) -> None:
    store._queues.hide_topic("T3")
    assert store.min_offset("T3", 999) == store.max_offset("T3", 999) > 0
    assert store.min_offset("T4", 999) == 0
    assert store.min_offset("T30", 0) == 0
