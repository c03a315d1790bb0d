"""Lite topics as state of the log: found, ended, trimmed, and the same from wherever it is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_broker.queues import MessageStore, lite_index
from gantry_broker.store.contract import GetStatus, ReadLimits
from gantry_broker.store.tables.expired import expired_record
from gantry_broker.store.tables.topics import TopicChange, change_record
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.lite import lite_queue
from gantry_protocol.records import MessageRecord, decode_records
from support import stores

SEGMENT_BYTES = 1 << 16
PARENT = "sessions"
MANY = ReadLimits(max_count=32, max_bytes=1 << 20)


def lite(name: str, body: str, *, topic: str = PARENT, queue_id: int = 0) -> MessageRecord:
    return MessageRecord(
        topic=topic,
        queue_id=queue_id,
        body=body.encode(),
        properties=f"__LITE_TOPIC\x01{name}\x02",
    )


def opened(directory: Path) -> MessageStore:
    store = MessageStore.open(directory, SEGMENT_BYTES)
    store.take_mastership()
    return store


@pytest.fixture
def store(tmp_path: Path):
    made = opened(tmp_path / "store")
    yield made
    made.close()


def put(store: MessageStore, *records: MessageRecord) -> None:
    stores.put(store, *records)
    stores.confirm(store)


def bodies(store: MessageStore, name: str, offset: int | None = None) -> list[str]:
    queue = lite_queue(PARENT, name)
    at = store.min_offset(queue, 0) if offset is None else offset
    found = store.get(queue, 0, at, MANY)
    return [record.body.decode() for record in decode_records(found.body)]


def test_a_lite_topic_has_its_messages_of_all_queues_in_the_order_of_the_log(store) -> None:
    put(store, lite("a", "1"), lite("b", "2", queue_id=3), lite("a", "3", queue_id=1))
    put(store, lite("a", "4"))
    assert bodies(store, "a") == ["1", "3", "4"]
    assert bodies(store, "b") == ["2"]
    assert store.max_offset(PARENT, 0) == 2, "and each is stored once, in its parent"


def test_a_record_says_its_offset_in_the_lite_topic_and_reads_go_on_behind_it(store) -> None:
    put(store, lite("a", "1"), lite("b", "2"), lite("a", "3", queue_id=2))
    queue = lite_queue(PARENT, "a")
    first = store.get(queue, 0, 0 + store.min_offset(queue, 0), ReadLimits(1, 1))
    (record,) = decode_records(first.body)
    assert (record.queue_id, record.queue_offset) == (0, record.physical_offset)
    second = store.get(queue, 0, first.next_offset, MANY)
    (record,) = decode_records(second.body)
    assert (record.body, record.queue_id) == (b"3", 0)
    assert second.next_offset == second.max_offset == store.max_offset(queue, 0)
    assert store.get(queue, 0, second.next_offset, MANY).status is GetStatus.OFFSET_OVERFLOW_ONE


@pytest.mark.parametrize("topic", ["%DLQ%g", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "GANTRY_SYS_X"])
def test_copies_elsewhere_are_in_no_lite_topic(store, topic: str) -> None:
    put(store, lite("a", "1", topic=topic))
    assert len(store._queues.lite) == 0


def test_all_is_there_after_a_start_and_the_same_when_it_is_derived_anew(tmp_path: Path) -> None:
    store = opened(tmp_path / "store")
    for number in range(300):
        put(store, lite(f"s{number % 7}", str(number)))
    put(store, expired_record([(lite_queue(PARENT, "s3"), store.max_offset(_("s3"), 0) - 1)]))
    wanted = {name: bodies(store, name) for name in map("s{}".format, range(7)) if name != "s3"}
    store.close()
    again = opened(tmp_path / "store")
    assert {name: bodies(again, name) for name in wanted} == wanted
    again.close()
    for file in (tmp_path / "store" / "kv").iterdir():
        file.unlink()
    anew = MessageStore.open(tmp_path / "store", SEGMENT_BYTES)
    anew.dispatch(anew.log.end)
    assert {name: bodies(anew, name) for name in wanted} == wanted
    assert anew._queues.lite.counts == {PARENT: 6}
    anew.close()


def _(name: str) -> str:
    return lite_queue(PARENT, name)


def test_an_end_takes_a_lite_topic_with_all_its_rows(store) -> None:
    put(store, lite("a", "1"), lite("a", "2"), lite("b", "3"))
    store._dispatcher.store()
    put(store, expired_record([(_("a"), store.max_offset(_("a"), 0) - 1)]))
    store._dispatcher.store()
    assert store.max_offset(_("a"), 0) == 0
    assert store._queues.lite.counts == {PARENT: 1}
    rows = [key for key, _value in store._kv.pairs(b"l", b"n") if b"$a" in key]
    assert rows == []


def test_an_end_that_does_not_know_the_newest_message_ends_nothing(store) -> None:
    put(store, lite("a", "1"))
    late = expired_record([(_("a"), store.max_offset(_("a"), 0) - 1)])
    put(store, lite("a", "2"))
    put(store, late)
    assert bodies(store, "a") == ["1", "2"]


def test_what_comes_after_an_end_is_found_and_nothing_from_before(store) -> None:
    put(store, lite("a", "old"))
    before = store.max_offset(_("a"), 0)
    put(store, expired_record([(_("a"), before - 1)]), lite("a", "new"))
    assert bodies(store, "a") == ["new"]
    assert store.min_offset(_("a"), 0) >= before, "no offset comes twice"
    store._dispatcher.store()
    assert bodies(store, "a", store.min_offset(_("a"), 0)) == ["new"]


def test_a_topic_that_goes_takes_its_lite_topics_with_it(store) -> None:
    put(store, lite("a", "1"), lite("b", "2"), lite("a", "3", topic="sessions2"))
    store._dispatcher.store()
    put(store, lite("c", "4"))
    topic = TopicConfig(topic_name=PARENT)
    put(store, change_record(TopicChange(1, [topic])), change_record(TopicChange(2, [], [PARENT])))
    assert store._queues.lite.counts == {"sessions2": 1}
    assert [store.max_offset(_(name), 0) for name in "abc"] == [0, 0, 0]


def test_a_trimmed_log_takes_messages_from_the_front(store, monkeypatch) -> None:
    monkeypatch.setattr(lite_index, "PAGE", 3)
    for number in range(10):
        put(store, lite(f"old{number}", "x"))
    put(store, lite("a", "1"))
    start = store.log.end
    put(store, lite("a", "2"), lite("b", "3"))
    for _step in store.raise_minimums(start):
        pass
    assert bodies(store, "a") == ["2"]
    assert bodies(store, "b") == ["3"]
    assert store._queues.lite.counts == {PARENT: 2}


def paged(store: MessageStore, count: int) -> list[str]:
    """Names of all lite topics of the parent, by pages."""
    index, found, after = store._queues.lite, list[str](), lite_queue(PARENT, "")
    while page := index.page(lite_queue(PARENT, ""), after, count):
        assert all(head == index.head(name) for name, head in page)
        found += [name for name, _head in page]
        after = page[-1][0]
    return found


def test_lite_topics_are_paged_in_order(store) -> None:
    put(store, *(lite(f"s{number}", "x") for number in range(9)))
    put(store, lite("a", "x", topic="sessionsa"), lite("a", "x", topic="session"))
    store._dispatcher.store()
    assert paged(store, 4) == [_(f"s{number}") for number in range(9)]


@pytest.mark.parametrize("count", [1, 2, 4, 100])
def test_what_waits_for_the_next_batch_is_among_them(store, count: int) -> None:
    put(store, *(lite(f"s{number}", "x") for number in (0, 2, 3, 4, 45, 6)))
    store._dispatcher.store()
    put(store, *(lite(f"s{number}", "y") for number in (1, 2, 5, 7, 8)))
    put(store, lite("a", "x", topic="sessionsa"))
    gone = [(_(f"s{number}"), store.max_offset(_(f"s{number}"), 0) - 1) for number in (3, 4)]
    put(store, expired_record(gone))
    assert store._queues.lite.fresh
    assert paged(store, count) == [_(f"s{number}") for number in (0, 1, 2, 45, 5, 6, 7, 8)]


def test_a_log_that_begins_later_says_the_same_of_what_it_has(tmp_path: Path) -> None:
    """Rows of the member that trimmed its log, and of one that knows only what is left of it."""
    store = opened(tmp_path / "store")
    body = "x" * 1000
    for number in range(200):  # several files
        put(store, lite(f"s{number % 9}", f"{number}{body}", queue_id=number % 3))
        if number == 120:
            put(store, *(store.state_records() or []))
    put(store, expired_record([(_("s4"), store.max_offset(_("s4"), 0) - 1)]))
    start = max(at for at in store.log.starts if at <= store.whole_from)
    assert start > 0
    for _step in store.raise_minimums(start):
        pass
    for segment in store.trim(start):
        segment.remove()
    wanted = {name: bodies(store, name) for name in map("s{}".format, range(9))}
    counts = dict(store._queues.lite.counts)
    store.close()
    stores.forget_derived(tmp_path / "store")
    anew = MessageStore.open(tmp_path / "store", SEGMENT_BYTES)
    anew.dispatch(anew.log.end)
    assert {name: bodies(anew, name) for name in wanted} == wanted
    assert wanted["s4"] == []
    assert anew._queues.lite.counts == counts
    anew.close()
