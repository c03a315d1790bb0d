"""The newest keys of a log, against a model that keeps all of them; and their life in a store."""

from __future__ import annotations

import shutil
import tracemalloc
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from gantry_broker.queues import lookups, recent_keys
from gantry_broker.queues.message_store import MessageStore
from gantry_broker.queues.recent_keys import SAME_KEY_MAX, RecentKeys
from gantry_protocol.records import MessageRecord, scan_run
from gantry_protocol.records.batch import BatchMessage, encode_batch
from hypothesis import given
from hypothesis import strategies as st
from support import stores

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = b"orders"
# What happens: a record with this key, or the cut of so many of the last records; and so much time.
STEPS = st.lists(st.tuples(st.integers(-4, 12), st.integers(0, 3)), max_size=60)


def properties(key: object) -> bytes:
    return f"TAGS\x01a\x02UNIQ_KEY\x01{key}\x02".encode()


def keyed(key: object, *, body: bytes = b"x", topic: str = "orders", queue: int = 0):
    record = stores.message(topic=topic, queue_id=queue, body=body)
    record.properties = properties(key).decode()
    return record


def known(keys: RecentKeys, key: object, topic: bytes = TOPIC) -> list[int]:
    return [offset for offset, _ in keys.find(keys.mark(topic, properties(key)))]


@given(STEPS, st.integers(1, 9))
def test_it_knows_the_last_keys_wherever_the_log_was_cut(
    steps: list[tuple[int, int]], most: int
) -> None:
    keys, log, now_ms = RecentKeys(most, window_ms=500), list[tuple[int, int, int]](), 0
    for what, passed_s in steps:
        now_ms += passed_s * 1_000
        if what < 0:
            del log[what:]
            keys.cut(len(log))
        else:
            log.append((len(log), what, now_ms))
            keys.note(keys.mark(TOPIC, properties(what)), len(log) - 1, now_ms)
    assert len(keys) <= most
    wanted: dict[int, list[int]] = defaultdict(list)
    for offset, key, _ in log[max(0, len(log) - len(keys)) :]:
        wanted[key].append(offset)
    for key in range(13):
        assert known(keys, key) == wanted[key][-SAME_KEY_MAX:]
    if log and keys.evicted == 0:  # nothing is missing that was never too old
        held = log[len(log) - len(keys) :]
        assert all(one in held for one in log if one[2] >= now_ms - 5_000)


def test_what_is_too_old_goes() -> None:
    keys = RecentKeys(1_000, window_ms=6_000)
    for number in range(400):
        keys.note(keys.mark(TOPIC, properties(number)), number, number * 500)
    assert 120 <= len(keys) <= 124
    assert keys.evicted == 0
    assert (len(known(keys, 279)), len(known(keys, 270))) == (1, 0)


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=8), max_size=12))
def test_a_run_is_noted_as_its_records_are(runs: list[list[int]]) -> None:
    one, other, at = RecentKeys(20), RecentKeys(20), 0
    for number, run in enumerate(runs):
        marks = [one.mark(TOPIC, properties(key)) if key else 0 for key in run]
        offsets = list(range(at, at + len(run) + 1))  # and where the next one will stand
        one.note_all(marks, offsets, number * 500, [7] if number % 2 else run)
        for key, offset in zip(run, offsets, strict=False):
            way = 7 if number % 2 else key
            other.note(other.mark(TOPIC, properties(key)) if key else 0, offset, number * 500, way)
        at += len(run)
    assert len(one) == len(other)
    for key in range(1, 31):
        mark = one.mark(TOPIC, properties(key))
        assert one.find(mark) == other.find(mark)


def test_a_run_has_the_marks_of_its_records() -> None:
    keys = RecentKeys()
    for texts in (["UNIQ_KEY\x01a\x02", "UNIQ_KEY\x01b\x02"], ["TAGS\x01t\x02UNIQ_KEY\x01a", ""]):
        body = encode_batch([BatchMessage(b"x", text) for text in texts])
        run = scan_run(body, MessageRecord(topic="orders"))
        assert run is not None
        assert keys.look(run)[0] == [keys.mark(TOPIC, text.encode()) for text in texts]
        assert keys.look(list(run))[0] == keys.look(run)[0]


@pytest.mark.parametrize(
    "topic",
    ["%RETRY%g", "%DLQ%g", "GANTRY_SYS_OFFSETS", "RMQ_SYS_TRANS_HALF_TOPIC"],
)
def test_what_no_producer_sends_as_it_is_has_no_mark(topic: str) -> None:
    keys = RecentKeys()
    assert keys.mark(topic.encode(), properties(1)) == 0
    assert keys.look([keyed(1, topic=topic)])[0] == [0]
    assert keys.mark(b"orders", properties(1)) != 0
    assert keys.mark(b"orders2", properties(1)) != keys.mark(b"orders", properties(1))


def test_what_is_off_remembers_nothing() -> None:
    keys = RecentKeys(window_ms=0)
    keys.note(keys.mark(TOPIC, properties(1)), 0, 0)
    keys.note_all([1, 2], [10, 20, 30], 0, [0])
    assert (len(keys), keys.look([keyed(1)], 1)) == (0, ([0], [0], False))


# ---- in a store


def at(store: MessageStore, key: object) -> list[bytes]:
    """The bodies of what a store knows of a key."""
    found = [lookups.record_at(store.log, offset) for offset in known(store.recent, key)]
    return [stores.decode_records(data)[0].body for data in found if data is not None]


def test_a_master_knows_what_is_under_way_and_forgets_it_with_its_mastership(
    tmp_path: Path,
) -> None:
    store = stores.open_store(tmp_path)
    stores.put(store, keyed(1, body=b"one"))
    stores.confirm(store)
    stores.put(store, keyed(2, body=b"two"))
    assert (at(store, 1), at(store, 2)) == ([b"one"], [b"two"])
    store.drop_mastership()
    assert (at(store, 1), known(store.recent, 2)) == ([b"one"], [])
    store.truncate(store.dispatched)
    store.take_mastership()
    stores.put(store, keyed(3, body=b"three"))
    assert (known(store.recent, 2), at(store, 3)) == ([], [b"three"])
    store.close()


def test_the_next_master_knows_what_it_has_not_confirmed_yet(tmp_path: Path) -> None:
    store = stores.open_store(tmp_path)
    stores.put(store, keyed(1))
    stores.put(store, keyed(2))
    store.log.flush()
    store.drop_mastership()
    assert len(store.recent) == 0
    store.take_mastership()
    assert (len(known(store.recent, 1)), len(known(store.recent, 2))) == (1, 1)
    stores.confirm(store)
    assert len(store.recent) == 2, "noted once"
    store.close()


def test_a_replica_knows_what_was_dispatched(tmp_path: Path) -> None:
    store = stores.open_store(tmp_path)
    stores.put(store, keyed(1), keyed(2))
    store.drop_mastership()
    stores.confirm(store)
    assert (len(known(store.recent, 1)), len(known(store.recent, 2))) == (1, 1)
    store.close()


def test_a_log_that_is_thrown_away_takes_its_keys_along(tmp_path: Path) -> None:
    store = stores.open_store(tmp_path)
    stores.put(store, keyed(1))
    stores.confirm(store)
    store.drop_mastership()
    store.reset(store.log.end)
    assert len(store.recent) == 0
    store.take_mastership()
    stores.put(store, keyed(2))
    store.drop_mastership()
    stores.confirm(store)
    assert len(known(store.recent, 2)) == 1
    store.close()


@pytest.mark.parametrize("is_saved", [True, False], ids=["rows", "replay"])
def test_a_start_knows_the_keys_of_before(tmp_path: Path, *, is_saved: bool) -> None:
    store = stores.open_store(tmp_path)
    for number in range(50):
        stores.put(store, keyed(number, body=b"%d" % number, queue=number % 3))
    stores.confirm(store)
    before = {key: known(store.recent, key) for key in range(50)}
    store.close()
    if not is_saved:
        shutil.rmtree(tmp_path / "kv")
    again = stores.open_store(tmp_path, master=False)
    stores.confirm(again)
    assert {key: known(again.recent, key) for key in range(50)} == before
    again.close()


def test_a_start_reads_no_more_than_the_end_of_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantry_broker.queues.dispatcher.REBUILD_BYTES", 20_000)
    store = stores.open_store(tmp_path)
    for number in range(300):
        stores.put(store, keyed(number, body=b"x" * 1_000))
    stores.confirm(store)
    store.close()
    again = stores.open_store(tmp_path, master=False)
    assert known(again.recent, 299)
    assert not known(again.recent, 100)
    assert 0 < len(again.recent) <= 20
    again.close()


def test_bounds_are_those_that_are_documented() -> None:
    assert (recent_keys.ENTRIES_MAX, recent_keys.WINDOW_MS) == (262_144, 60_000)


def test_a_key_costs_what_is_documented() -> None:
    keys, count = RecentKeys(), 50_000
    tracemalloc.start()
    try:
        for number in range(count):
            keys.note(hash(b"%d" % number), 10**9 + number * 1_000, number, 77)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 80 < size / count < 160


@pytest.mark.parametrize(("window_ms", "most", "found"), [(0, 100, 0), (60_000, 3, 3)])
def test_a_store_remembers_as_it_is_told_although_it_begins_with_nothing(
    tmp_path: Path, window_ms: int, most: int, found: int
) -> None:
    store = MessageStore.open(tmp_path, stores.SEGMENT_BYTES, recent=RecentKeys(most, window_ms))
    store.take_mastership()
    for number in range(5):
        store.put([keyed(number)], now_ms=1_000)
    assert len(store.recent) == found
    store.close()
