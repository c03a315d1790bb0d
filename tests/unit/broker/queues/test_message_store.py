"""Positions, visibility, and reading."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from gantry_broker.log import CutRefusedError
from gantry_broker.queues import MessageStore
from gantry_broker.store.contract import GetStatus, ReadLimits
from gantry_broker.store.tables.topics import TopicChange, change_record
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.errors import CorruptionError, RecordError
from gantry_protocol.records import (
    MAX_BODY_BYTES,
    BatchMessage,
    decode_record,
    encode_batch,
    scan_run,
    tags_code,
)
from gantry_protocol.types import Offset
from support import stores

ALL = ReadLimits(32, 256 * 1024)


@pytest.fixture
def store(tmp_path: Path):
    opened = stores.open_store(tmp_path / "store")
    yield opened
    opened.close()


def test_put_numbers_each_queue_and_places_records_back_to_back(store: MessageStore) -> None:
    first = stores.put(store, stores.message(queue_id=1))
    rest = stores.put(store, *(stores.message(queue_id=q) for q in (0, 1, 1)))
    assert [at.queue_offset for at in first + rest] == [0, 0, 1, 2]
    for before, after in zip(first + rest, rest, strict=False):
        assert after.offset == before.end
    stores.confirm(store)
    stored = decode_record(store.view(rest[1].offset) or b"")
    assert (stored.queue_id, stored.queue_offset, stored.physical_offset) == (1, 1, rest[1].offset)


def test_a_batch_over_the_end_of_a_file_is_placed_as_it_is_reported(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path, 1024)
    store.take_mastership()
    stored = store.put([stores.message(body=bytes(300)) for _ in range(10)], now_ms=1)
    stores.confirm(store)
    for number, at in enumerate(stored):
        record = decode_record(store.view(at.offset) or b"")
        assert (record.queue_offset, record.size) == (number, at.size)
    assert store.get("T", 0, 0, ALL).count == 10
    store.close()


@pytest.mark.parametrize("in_flight", [0, 2])
def test_a_run_is_stored_as_its_records_would_be(tmp_path: Path, in_flight: int) -> None:
    """File by file to the byte, also where a file ends within a run or has no room for it."""
    sent = [BatchMessage(bytes(300), f"KEYS\x01k{n}\x02TAGS\x01t\x02", n) for n in range(3)]
    run = scan_run(encode_batch(sent), stores.message(queue_id=1))
    assert run is not None
    one, other = (MessageStore.open(tmp_path / name, 2048) for name in ("one", "other"))
    for store in (one, other):
        store.take_mastership()
        stores.put(store, *(stores.message(queue_id=1) for _ in range(in_flight)))
    for now_ms in (1000, 2000, 1500, 3000):
        assert list(one.put(run, now_ms=now_ms)) == other.put(list(run), now_ms=now_ms)
    for store in (one, other):
        stores.confirm(store)
    assert one.log.starts == other.log.starts
    assert len(one.log.starts) > 1
    for start in one.log.starts:
        assert one.log.read(start, 1 << 20) == other.log.read(start, 1 << 20)
    assert stores.derived(one) == stores.derived(other)
    assert one.get("T", 1, 0, ALL).count == 12 + in_flight
    one.close()
    other.close()


def test_store_times_never_fall(tmp_path: Path) -> None:
    store = stores.open_store(tmp_path)
    for now_ms in (1000, 900, 1100):
        stores.put(store, stores.message(), now_ms=now_ms)
    stores.confirm(store)
    assert [store.store_time("T", 0, number) for number in range(3)] == [1000, 1000, 1100]
    again = stores.as_replica(store)
    again.take_mastership()
    stores.put(again, stores.message(), now_ms=5)
    stores.confirm(again)
    assert again.store_time("T", 0, 3) == 1100
    again.close()


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(stores.message(body=bytes(MAX_BODY_BYTES + 65 * 1024)), id="too large"),
        pytest.param(stores.message(tag="a\0b"), id="zero byte in the properties"),
        pytest.param(stores.message(topic="t" * 300), id="topic too long"),
    ],
)
def test_what_cannot_be_a_record_is_refused_whole(store: MessageStore, record) -> None:
    with pytest.raises(RecordError):
        stores.put(store, stores.message(), record)
    assert store.log.end == 0
    assert stores.put(store, stores.message())[0].queue_offset == 0


def test_a_new_master_knows_its_topics_once_all_that_it_found_is_confirmed(
    store: MessageStore,
) -> None:
    """One whose records alone are known would pass for a topic of an earlier life, and be ended."""
    stores.put(store, change_record(TopicChange(1, [TopicConfig("T")], [])))
    (last,) = stores.put(store, stores.message())
    store.log.flush()
    store.drop_mastership()
    store.take_mastership()
    known = [store.knows_its_topics]
    for end in (last.offset, last.end):
        store.dispatch(end)
        known.append(store.knows_its_topics)
    stores.put(store, stores.message())
    assert [*known, store.knows_its_topics] == [False, False, True, True]


def test_queues_that_grew_are_told_in_the_order_of_the_log(store: MessageStore) -> None:
    """Who waits for them is answered in that order: equal logs, equal answers, in any process."""
    told: list[list[tuple[str, int]]] = []
    store.add_listener(lambda keys: told.append(list(keys)))
    places = [(f"topic-{number}", number % 3) for number in random.Random(7).sample(range(99), 12)]
    for topic, queue_id in (*places, places[0]):
        stores.put(store, stores.message(topic, queue_id=queue_id))
    stores.confirm(store)
    assert told == [places]


def test_nothing_is_visible_before_it_is_confirmed(store: MessageStore) -> None:
    arrivals: list[set[tuple[str, int]]] = []
    store.add_listener(lambda keys: arrivals.append(set(keys)))
    first, second = (stores.put(store, stores.message())[0] for _ in range(2))
    store.log.flush()
    assert store.max_offset("T", 0) == 0
    assert store.next_offset("T", 0) == 2
    assert store.view(first.offset) is None
    assert store.get("T", 0, 0, ALL).status is GetStatus.NO_MESSAGE_IN_QUEUE
    store.dispatch(first.end)
    assert (store.max_offset("T", 0), store.dispatched) == (1, first.end)
    assert store.get("T", 0, 0, ALL).count == 1
    assert store.view(second.offset) is None
    store.dispatch(second.end)
    store.dispatch(first.end)
    assert store.max_offset("T", 0) == 2
    assert arrivals == [{("T", 0)}, {("T", 0)}]
    assert store.log.confirm_floor == second.end


def test_who_waits_for_a_topic_hears_of_no_other(store: MessageStore) -> None:
    heard: list[set[tuple[str, int]]] = []

    def listen(keys: object) -> None:
        heard.append(set(keys))  # type: ignore[call-overload]  # keys of queues

    store.add_listener(listen, {"U"})
    stores.put(store, stores.message())
    stores.confirm(store)
    assert heard == []
    stores.put(store, stores.message(), stores.message(topic="U"))
    stores.confirm(store)
    assert heard == [{("T", 0), ("U", 0)}]
    store.remove_listener(listen)
    stores.put(store, stores.message(topic="U"))
    stores.confirm(store)
    assert len(heard) == 1


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        pytest.param(0, GetStatus.FOUND, 3, id="start"),
        pytest.param(2, GetStatus.FOUND, 3, id="last"),
        pytest.param(3, GetStatus.OFFSET_OVERFLOW_ONE, 3, id="end"),
        pytest.param(4, GetStatus.OFFSET_OVERFLOW_BADLY, 3, id="beyond"),
        pytest.param(-1, GetStatus.OFFSET_TOO_SMALL, 0, id="negative"),
    ],
)
def test_positions(store: MessageStore, offset: int, status: GetStatus, next_offset: int) -> None:
    stores.put(store, *(stores.message() for _ in range(3)))
    stores.confirm(store)
    result = store.get("T", 0, offset, ALL)
    assert (result.status, result.next_offset) == (status, next_offset)
    assert (result.min_offset, result.max_offset) == (0, 3)
    assert (result.count > 0) == (status is GetStatus.FOUND) == bool(result.body)


@pytest.mark.parametrize("offset", [0, 5, -1])
def test_an_empty_queue(store: MessageStore, offset: int) -> None:
    result = store.get("T", 0, offset, ALL)
    assert (result.status, result.next_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)
    assert store.store_time("T", 0, 0) is None
    assert store.offset_at_time("T", 0, 5) == 0


def test_limits_of_one_read(store: MessageStore) -> None:
    stores.put(store, *(stores.message(body=b"%03d" % n + bytes(97)) for n in range(50)))
    stores.confirm(store)
    size = len(store.get("T", 0, 0, ReadLimits(1, 1)).body)
    assert store.get("T", 0, 0, ReadLimits(1, 1)).count == 1, "the first one always goes out"
    assert store.get("T", 0, 0, ReadLimits(32, 1 << 20)).count == 32
    assert store.get("T", 0, 0, ReadLimits(32, 3 * size)).count == 3
    assert store.get("T", 0, 0, ReadLimits(32, 4 * size - 1)).next_offset == 3


def test_tags_are_filtered_and_the_position_goes_past_what_was_examined(
    store: MessageStore,
) -> None:
    tags = ["A", "B", None, "A", "C"]
    stores.put(store, *(stores.message(tag=tag, body=b"%d" % n) for n, tag in enumerate(tags)))
    stores.confirm(store)
    only_a = frozenset({tags_code("A")})
    found = store.get("T", 0, 0, ALL, only_a)
    assert (stores.bodies(found), found.next_offset) == ([b"0", b"3"], 5)
    none = store.get("T", 0, 1, ALL, frozenset({tags_code("Z")}))
    assert (none.status, none.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 5)
    untagged = store.get("T", 0, 0, ALL, frozenset({0}))
    assert stores.bodies(untagged) == [b"2"]


def test_one_read_examines_a_bounded_number_of_entries(store: MessageStore) -> None:
    stores.put(store, *(stores.message(tag="A") for _ in range(1000)))
    stores.confirm(store)
    result = store.get("T", 0, 0, ALL, frozenset({1}))
    assert result.next_offset == 800
    assert store.get("T", 0, 0, ReadLimits(64, 1), frozenset({1})).next_offset == 1000


@pytest.mark.parametrize(
    ("timestamp", "lower", "upper"),
    [
        (50, 0, 0),
        (100, 0, 1),
        (150, 2, 1),
        (200, 2, 4),
        (300, 5, 5),
        (301, 6, 5),
    ],
)
def test_offset_at_time(store: MessageStore, timestamp: int, lower: int, upper: int) -> None:
    for now_ms in (100, 100, 200, 200, 200, 300):
        stores.put(store, stores.message(), now_ms=now_ms)
    stores.confirm(store)
    assert store.offset_at_time("T", 0, timestamp) == lower
    assert store.offset_at_time("T", 0, timestamp, upper=True) == upper


def test_view_wants_the_start_of_a_record(store: MessageStore) -> None:
    at = stores.put(store, stores.message(), stores.message())[1]
    stores.confirm(store)
    assert len(store.view(at.offset) or b"") == at.size
    for wrong in (at.offset - 1, at.offset + 1, at.end, -5, 10**9):
        assert store.view(wrong) is None


def test_a_removed_topic_hides_its_messages_and_keeps_numbering(store: MessageStore) -> None:
    stores.put(store, change_record(TopicChange(1, [TopicConfig("T")])), stores.message())
    stores.put(store, change_record(TopicChange(2, [], ["T"])))
    stores.confirm(store)
    assert store.topics.lookup("T") is None
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (1, 1)
    stores.put(store, change_record(TopicChange(3, [TopicConfig("T")])), stores.message(body=b"2"))
    stores.confirm(store)
    assert stores.bodies(store.get("T", 0, 1, ALL)) == [b"2"]


def test_offsets_of_a_removed_topic_go_with_it_whoever_is_master(store: MessageStore) -> None:
    stores.put(store, change_record(TopicChange(1, [TopicConfig("T")])), stores.message())
    store.offsets.commit("g", "T", 0, 1)
    stores.put(store, *store.offsets.take_records()[0])
    stores.confirm(store)
    stores.put(store, change_record(TopicChange(2, [], ["T"])))
    store.drop_mastership()
    store.take_mastership()  # the end of the topic is in its log, and not confirmed
    store.offsets.commit("g", "T", 0, 0)
    assert store.offsets.take_records() == ([], [])
    stores.confirm(store)
    assert store.offsets.all() == store.offsets.applied_rows() == []
    stores.put(store, change_record(TopicChange(3, [TopicConfig("T")])))
    stores.confirm(store)
    store.offsets.commit("g", "T", 0, 1)
    assert store.offsets.query("g", "T", 0) == 1


def test_consumer_offsets_and_topics_replicate_through_the_log(tmp_path: Path) -> None:
    master = stores.open_store(tmp_path / "master")
    replica = stores.open_store(tmp_path / "replica", master=False)
    master.offsets.commit("g", "T", 0, 7)
    records, _ = master.offsets.take_records()
    stores.put(master, change_record(TopicChange(1, [TopicConfig("T")])), *records)
    master.log.flush()
    replica.log.append_raw(Offset(0), master.log.read_units(Offset(0), 1 << 20))
    replica.log.flush()
    assert replica.offsets.query("g", "T", 0) is None
    assert replica.topics.lookup("T") is None
    replica.dispatch(replica.log.end)
    assert replica.offsets.query("g", "T", 0) == 7
    assert replica.topics.lookup("T") is not None
    master.close()
    replica.close()


def test_a_new_master_knows_what_is_in_its_log_and_not_confirmed_yet(tmp_path: Path) -> None:
    store = stores.open_store(tmp_path)
    stores.put(store, stores.message(), now_ms=500)
    stores.confirm(store)
    store.offsets.commit("g", "T", 0, 1)
    records, _ = store.offsets.take_records()
    stores.put(store, stores.message(), stores.message(queue_id=3), *records, now_ms=900)
    store.log.flush()
    store.drop_mastership()
    assert store.offsets.query("g", "T", 0) is None
    assert store.next_offset("T", 0) == 1
    store.take_mastership()
    assert store.offsets.query("g", "T", 0) == 1
    assert (store.next_offset("T", 0), store.next_offset("T", 3)) == (2, 1)
    after = stores.put(store, stores.message(), now_ms=1)[0]
    assert after.queue_offset == 2
    stores.confirm(store)
    assert store.store_time("T", 0, 2) == 900
    store.drop_mastership()
    assert store.offsets.query("g", "T", 0) == 1
    store.close()


def test_a_cut_takes_unconfirmed_numbers_back_and_nothing_else(tmp_path: Path) -> None:
    store = stores.open_store(tmp_path)
    stores.put(store, stores.message(body=b"kept"))
    stores.confirm(store)
    end = store.log.end
    stores.put(store, stores.message(body=b"lost"))
    store.drop_mastership()
    store.truncate(end)
    store.take_mastership()
    assert stores.put(store, stores.message(body=b"new"))[0].queue_offset == 1
    stores.confirm(store)
    assert stores.bodies(store.get("T", 0, 0, ALL)) == [b"kept", b"new"]
    store.drop_mastership()
    with pytest.raises(CutRefusedError):
        store.truncate(end)
    store.close()


@pytest.mark.parametrize("topic", ["../evil", "a/b", "."])
def test_a_topic_name_that_is_no_name_makes_no_directories(tmp_path: Path, topic: str) -> None:
    store = stores.open_store(tmp_path / "store")
    stores.put(store, stores.message(topic=topic))
    store.log.flush()
    with pytest.raises(CorruptionError, match="is no topic name"):
        store.dispatch(store.log.end)
    store.log.close()
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_queue_may_begin_above_zero_when_the_log_does(tmp_path: Path) -> None:
    master = stores.open_store(tmp_path / "master")
    stores.put(master, *(stores.message() for _ in range(5)))
    middle = stores.put(master, stores.message(body=b"first here"))[0]
    stores.confirm(master)
    replica = stores.open_store(tmp_path / "replica", master=False)
    replica.reset(middle.offset)
    replica.log.append_raw(middle.offset, master.log.read_units(middle.offset, 1 << 20))
    stores.confirm(replica)
    assert (replica.min_offset("T", 0), replica.max_offset("T", 0)) == (5, 6)
    assert replica.get("T", 0, 0, ALL).status is GetStatus.OFFSET_TOO_SMALL
    again = stores.as_replica(replica)
    assert stores.bodies(again.get("T", 0, 5, ALL)) == [b"first here"]
    again.close()
    master.close()
