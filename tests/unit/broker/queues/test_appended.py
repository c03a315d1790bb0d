"""What a master remembers of the runs it appended says the same as the log."""

from pathlib import Path

import pytest
from gantry_broker.log.units import scan_units
from gantry_broker.queues import dispatcher, message_store, rows
from gantry_broker.queues.dispatcher import AppendedRun, AppendedRuns
from gantry_broker.queues.key_index import KeyIndex
from gantry_broker.store.contract import StoredAt
from gantry_broker.store.stored import StoredRun, offsets_of
from gantry_broker.store.tables.names import STATE_TOPIC
from gantry_protocol.errors import CorruptionError
from gantry_protocol.records import BatchMessage, RecordRun, encode_batch, entry_code, scan_run
from gantry_protocol.records.layout import TRANSACTION_PREPARED
from gantry_protocol.records.properties import SCHEDULE_TOPIC
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from support import stores

# Names and pieces of them, in an order and number that no client would write.
PIECES = ["UNIQ_KEY\x01", "KEYS\x01", "TAGS\x01", "\x02", "\x01", "a", "b c", "é", "X\x01y\x02"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
KEYED = TEXTS.map(lambda text: f"UNIQ_KEY\x01{text}\x02")
USUAL = "UNIQ_KEY\x01k1\x02WAIT\x01true\x02TAGS\x01t\x02"


class _NoRows:
    """A key-value store without rows."""

    def pairs(self, *_: bytes) -> list[tuple[bytes, bytes]]:
        return []


def _run(*properties: str, topic: str = "T", body: bytes = b"x") -> RecordRun:
    messages = [BatchMessage(body, one) for one in properties]
    run = scan_run(encode_batch(messages), stores.message(topic))
    assert run is not None
    return run


def _positions(run: RecordRun, start: int) -> list[int]:
    return [start + sum(run.sizes[:count]) for count in range(len(run) + 1)]


@given(st.lists(TEXTS, min_size=1, max_size=5) | st.lists(KEYED, min_size=1, max_size=5))
@example([USUAL, "", USUAL + "KEYS\x01x y\x02"])
@example([USUAL, USUAL])
@example([USUAL, "UNIQ_KEY\x01k2"])
@example(["UNIQ_KEY\x01k1", USUAL])
@example([USUAL, "UNIQ_KEY\x01k\x02UNIQ_KEY\x01last\x02"])
@example([USUAL, "A\x01UNIQ_KEY\x01k2\x02"])
@example([USUAL, "UNIQ_KEY\x01\x02"])
@example(["UNIQ_KEY\x01no end", "UNIQ_KEY\x01\x02", "A\x01UNIQ_KEY\x01k\x02"])
def test_rows_of_a_run_are_those_of_its_records_in_the_log(properties: list[str]) -> None:
    run = _run(*properties)
    memory = AppendedRun(("T", 0), 5, _positions(run, 1000), run.sizes, run.properties, 99)
    of_run, of_log = KeyIndex(_NoRows()), KeyIndex(_NoRows())  # type: ignore[arg-type]
    entries = b""
    for at, size, _, _, _, stored_ms, topic, one, *_ in scan_units(run.encode(5, 1000, 99), 1000):
        entries += rows.ENTRY.pack(at, size, entry_code(topic, one, stored_ms))
        of_log.add(topic, one, at, stored_ms)
    assert memory.entries() == entries
    of_run.add_run(b"T", memory.properties, memory.positions, 99)
    assert vars(of_run) | {"_kv": None} == vars(of_log) | {"_kv": None}


@pytest.mark.parametrize("forgets", [False, True])
def test_a_store_derives_the_same_from_memory_and_from_the_log(
    tmp_path: Path, *, forgets: bool
) -> None:
    """Mixed with single sends, confirmed run by run, in parts and together."""
    store = stores.open_store(tmp_path)
    ends: list[int] = []
    for number in range(40):
        if number % 5 == 0:
            stores.put(store, stores.message(tag="single"))
        stored = store.put(
            _run(USUAL, f"TAGS\x01{number}\x02KEYS\x01{number} b\x02"), now_ms=number
        )
        ends += [at.end for at in stored]
        if forgets:
            store._dispatcher.appended.forget()
    for end in ends[3:31:7]:  # also within runs
        stores.confirm(store, end)
    stores.confirm(store)
    assert len(store._dispatcher.appended) == 0
    seen = stores.derived(store)
    store.close()
    stores.forget_derived(tmp_path)
    again = stores.open_store(tmp_path)
    assert stores.derived(again) == seen
    again.close()


def test_a_run_is_not_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stores.open_store(tmp_path)
    monkeypatch.setattr(store.log, "read", None)
    for _ in range(3):
        store.put(_run(USUAL, ""), now_ms=1)
    stores.confirm(store)
    monkeypatch.undo()
    assert store.max_offset("T", 0) == 6
    store.close()


def test_a_run_that_skips_a_queue_offset_is_refused_and_not_guessed(tmp_path: Path) -> None:
    store = stores.open_store(tmp_path)
    store.put(_run(USUAL, ""), now_ms=1)
    assert store._next is not None
    store._next["T", 0] = 5
    store.put(_run(USUAL), now_ms=1)
    store.log.flush()
    with pytest.raises(CorruptionError, match="number 5 in queue 0 of T, and 2 comes next"):
        store.dispatch(store.log.end)
    store.log.close()


def test_a_run_of_many_records_is_one_whatever_they_take_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records one by one cost five times as much, in one turn of the event loop."""
    store, run = stores.open_store(tmp_path), _run(*[""] * 8)
    monkeypatch.setattr(message_store, "MAX_RECORD_BYTES", max(run.sizes))
    assert isinstance(store.put(run, now_ms=1), StoredRun)
    monkeypatch.setattr(message_store, "MAX_RECORD_BYTES", max(run.sizes) - 1)
    assert not isinstance(store.put(run, now_ms=1), StoredRun), "a record is looked at by itself"
    stores.confirm(store)
    assert store.max_offset("T", 0) == 16
    store.close()


def test_a_run_that_was_cut_is_forgotten(tmp_path: Path) -> None:
    """The log of the next mastership says something else at the same place."""
    store = stores.open_store(tmp_path)
    start = store.log.end
    store.put(_run("TAGS\x01lost\x02"), now_ms=1)
    store.drop_mastership()
    store.truncate(start)
    store.take_mastership()
    store.put(_run("TAGS\x01kept\x02"), now_ms=1)
    stores.confirm(store)
    seen = stores.derived(store)
    store.close()
    stores.forget_derived(tmp_path)
    again = stores.open_store(tmp_path)
    assert stores.derived(again) == seen
    again.close()


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(_run(USUAL, topic=SCHEDULE_TOPIC), id="parked"),
        pytest.param(_run(USUAL, topic=STATE_TOPIC), id="of the system"),
        pytest.param(_run(USUAL, topic="no topic"), id="no topic name"),
        pytest.param(_run(*[""] * (dispatcher.RECORDS_MAX + 1)), id="long"),
        pytest.param(
            RecordRun(
                replace(stores.message(), sys_flag=TRANSACTION_PREPARED),
                *(
                    getattr(_run(""), name)
                    for name in ("messages", "places", "sizes", "properties")
                ),
            ),
            id="half",
        ),
    ],
)
def test_what_has_rules_of_its_own_is_read_from_the_log(run: RecordRun) -> None:
    runs = AppendedRuns()
    runs.add(run, 0, _positions(run, 0), 1)
    assert len(runs) == 0


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run(USUAL)
    size = len(USUAL) + 100
    monkeypatch.setattr(dispatcher, "BYTES_MAX", 2 * size)
    runs, places = AppendedRuns(), [_positions(run, start) for start in (0, 1000, 2000, 3000)]
    for positions in places[:3]:
        runs.add(run, 0, positions, 1)
    assert len(runs) == 2
    assert runs.take(0, 5000) is not None
    runs.add(run, 0, places[3], 1)
    assert len(runs) == 2
    assert runs.next_start(500, 5000) == 1000
    assert runs.take(2000, 5000) is None, "the one before it was read from the log"
    assert runs.next_start(2000, 5000) == 3000
    assert runs.take(3000, 3001) is None
    assert runs.next_start(3000, 3001) == 3001
    taken = runs.take(3000, 5000)
    assert taken is not None
    assert taken.positions == places[3]
    runs.add(run, 0, places[0], 1)
    runs.forget()
    assert runs.take(0, 5000) is None


def test_places_of_a_run_are_a_sequence() -> None:
    run = StoredRun(3, 7, [100, 110, 130, 131])
    each = [StoredAt(3, 7, 100, 10), StoredAt(3, 8, 110, 20), StoredAt(3, 9, 130, 1)]  # type: ignore[arg-type]
    assert list(run) == each
    assert (run[-1], run[1:], len(run)) == (each[-1], each[1:], 3)
    assert offsets_of(run) == offsets_of(each) == [100, 110, 130]
    with pytest.raises(IndexError):
        run[3]
