"""Everything derived from the log: saved, compared with it, and made again from it."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import msgspec
import pytest
from gantry_broker.log.checked import Damage, holds
from gantry_broker.queues import MessageStore, derived, rows, saving
from gantry_broker.queues.kv import KvBatch
from gantry_broker.store.contract import ReadLimits
from gantry_broker.store.tables.topics import TopicChange, change_record
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.errors import CorruptionError
from gantry_protocol.types import Offset
from support import logs, stores
from support.patience import PATIENCE_S

ALL = ReadLimits(32, 256 * 1024)


def _everything(store: MessageStore) -> tuple[object, ...]:
    """All that can be read of the derived state."""
    written = stores.derived(store)
    keys = [key for key, *_ in store._queues.stored()]
    bodies = {
        key: store.get(*key, store.min_offset(*key), ReadLimits(10**6, 10**9)).body for key in keys
    }
    return store.dispatched, written, bodies


def _busy_store(directory: Path) -> MessageStore:
    store = stores.open_store(directory)
    for number in range(60):
        stores.put(store, stores.message(queue_id=number % 3, tag="A"), now_ms=1000 + number)
        store.offsets.commit("g", "T", number % 3, number)
        if number % 10 == 5:
            change = TopicChange(number, [TopicConfig(f"t{number}")], [f"t{number - 10}"])
            stores.put(store, *store.offsets.take_records()[0], change_record(change))
        stores.confirm(store)
        if number == 30:
            store.save()
    return store


@pytest.mark.parametrize("end", ["clean", "killed"])
def test_checkpoint_and_replay_give_the_same_as_replay_of_everything(
    tmp_path: Path, end: str
) -> None:
    store = _busy_store(tmp_path / "store")
    expected = _everything(store)
    if end == "clean":
        store.close()
        left = tmp_path / "store"
    else:
        left = logs.clone(tmp_path / "store", tmp_path / "killed")
        store.close()
    floor = expected[0]
    fresh = tmp_path / "fresh"
    shutil.copytree(left, fresh)
    stores.forget_derived(fresh)
    found = []
    for directory in (left, fresh):
        again = MessageStore.open(directory, stores.SEGMENT_BYTES, confirm_floor=Offset(floor))
        found.append(_everything(again))
        again.close()
    assert found[0] == expected
    assert found[1] == expected


def test_the_rows_at_any_offset_are_those_of_a_replay(tmp_path: Path) -> None:
    """H12, whatever was written when, and over restarts."""
    rng = random.Random(4)
    store = stores.open_store(tmp_path / "store")
    states: dict[Offset, object] = {}
    for number in range(50):
        records = [stores.message(rng.choice("ABC"), rng.randrange(4)) for _ in range(5)]
        for record in records:
            record.properties = f"TAGS\x01x\x02KEYS\x01k{rng.randrange(9)}\x02"
        stores.put(store, *records)
        store.offsets.commit(rng.choice("gh"), "A", rng.randrange(4), number)
        stores.put(store, *store.offsets.take_records()[0])
        if number % 7 == 3:
            change = TopicChange(number, [TopicConfig(f"t{number}")], [rng.choice("ABC")])
            stores.put(store, change_record(change))
        stores.confirm(store)
        states[store.dispatched] = stores.derived(store)
    replica = stores.open_store(tmp_path / "replica", master=False)
    replica.log.append_raw(Offset(0), store.log.read_units(Offset(0), 1 << 20))
    replica.log.flush()
    for offset, expected in states.items():
        replica.dispatch(offset)
        if rng.random() < 0.7:
            continue
        assert stores.derived(replica) == expected
        if rng.random() < 0.5:
            replica.close()
            replica = stores.open_store(tmp_path / "replica", master=False)
            assert replica.dispatched == offset
    store.close()
    replica.close()


def test_offsets_of_a_topic_that_is_gone_do_not_come_back_with_a_restart(tmp_path: Path) -> None:
    store = stores.open_store(tmp_path)
    for topic in ("T", "S"):
        store.offsets.commit("g", topic, 0, 7)
    stores.put(store, *store.offsets.take_records()[0])
    stores.confirm(store)
    store.save()
    stores.put(store, change_record(TopicChange(1, [], ["T"])))
    stores.confirm(store)
    again = stores.as_replica(store)
    assert again.offsets.applied_rows() == [("g", "S", 0, 7)]
    again.close()


def test_rows_never_know_more_than_the_log_has_on_the_disk(tmp_path: Path) -> None:
    """After a power cut they would speak of records that are gone."""
    store = stores.open_store(tmp_path)
    stores.put(store, stores.message())
    store.dispatch(store.log.end)
    assert store.log.flushed == 0
    store.save()
    assert store.log.flushed == store.dispatched
    store.close()


def _tables(directory: Path) -> list[Path]:
    return sorted((directory / "kv").glob("*.sst"))


def _manifest(directory: Path) -> Path:
    return next((directory / "kv").glob("MANIFEST-*"))


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda d: logs.flip(_tables(d)[0], 25), id="a table"),
        pytest.param(lambda d: _tables(d)[0].unlink(), id="a table is gone"),
        pytest.param(lambda d: logs.flip(_manifest(d), 20), id="the manifest"),
        pytest.param(lambda d: _manifest(d).unlink(), id="the manifest is gone"),
        pytest.param(lambda d: (d / "kv" / "CURRENT").write_bytes(b"xy"), id="the root"),
        pytest.param(lambda d: (d / "kv" / "DAMAGED").touch(), id="it was marked"),
    ],
)
def test_damaged_derived_state_is_named_and_made_again_from_the_log(
    tmp_path: Path, damage, caplog: pytest.LogCaptureFixture
) -> None:
    store = _busy_store(tmp_path)
    expected = _everything(store)
    store.close()
    damage(tmp_path)
    again = stores.open_store(tmp_path, master=False)
    assert _everything(again) == expected
    again.close()
    (warning,) = [one for one in caplog.records if "is damaged" in one.getMessage()]
    assert Path(warning.__dict__["facts"]["file"]).is_relative_to(tmp_path / "kv")


def test_rows_of_another_version_are_made_again(tmp_path: Path) -> None:
    store = _busy_store(tmp_path)
    expected = _everything(store)
    batch = KvBatch()
    batch.put(rows.HEAD, msgspec.msgpack.encode([rows.VERSION + 1, "what", "ever"]))
    store._kv.write(batch)
    store._kv.flush()
    store.log.close()
    store._kv.close()
    again = stores.open_store(tmp_path, master=False)
    assert _everything(again) == expected
    again.close()


def test_a_checkpoint_beyond_the_log_proves_that_the_log_lost_bytes(tmp_path: Path) -> None:
    store = stores.open_store(tmp_path)
    stores.put(store, stores.message())
    stores.confirm(store)
    store.close()
    shutil.rmtree(tmp_path / "commitlog")
    with pytest.raises(CorruptionError, match="was flushed up to"):
        stores.open_store(tmp_path)


@pytest.mark.parametrize("field", range(12))  # log offset and size
def test_a_wrong_entry_fails_the_read_and_delivers_nothing_wrong(
    tmp_path: Path, field: int
) -> None:
    store = stores.open_store(tmp_path)
    stores.put(store, *(stores.message(body=b"%d" % n) for n in range(300)))
    stores.confirm(store)
    sound = stores.bodies(store.get("T", 0, 0, ALL))
    expected = _everything(store)
    key = rows.run_key(rows.run_prefix(("T", 0)), 0)
    run = bytearray(store._kv.get(key) or b"")
    run[field] ^= 2
    batch = KvBatch()
    batch.put(key, bytes(run))
    store._kv.write(batch)
    with pytest.raises(CorruptionError, match="entry 0 of queue 0 of T") as caught:
        store.get("T", 0, 0, ALL)
    assert caught.value.file == tmp_path / "kv"
    store.close()
    again = stores.open_store(tmp_path)
    assert stores.bodies(again.get("T", 0, 0, ALL)) == sound
    assert _everything(again) == expected
    again.close()


def test_a_row_that_is_gone_fails_the_read(tmp_path: Path) -> None:
    store = stores.open_store(tmp_path)
    for _ in range(3):
        stores.put(store, *(stores.message() for n in range(10)))
        stores.confirm(store)
        store.save()
    batch = KvBatch()
    batch.delete(rows.run_key(rows.run_prefix(("T", 0)), 10))
    store._kv.write(batch)
    assert store.get("T", 0, 0, ReadLimits(10, 1 << 20)).count == 10
    with pytest.raises(CorruptionError, match="entry 5 of queue 0 of T"):
        store.get("T", 0, 5, ALL)
    store.close()


def test_a_log_that_skips_a_queue_offset_is_refused_and_not_guessed(tmp_path: Path) -> None:
    store = stores.open_store(tmp_path)
    stores.put(store, stores.message())
    assert store._next is not None
    store._next[("T", 0)] = 5
    stores.put(store, stores.message())
    store.log.flush()
    with pytest.raises(CorruptionError, match="number 5 in queue 0 of T, and 1 comes next"):
        store.dispatch(store.log.end)
    store.log.close()


def test_reset_forgets_everything_and_a_crash_before_it_forgets_nothing(tmp_path: Path) -> None:
    store = _busy_store(tmp_path / "store")
    expected = _everything(store)
    store.save()
    store.drop_mastership()
    crashed = logs.clone(tmp_path / "store", tmp_path / "crashed")
    stores.forget_derived(crashed)  # as far as a reset got before the crash
    again = MessageStore.open(crashed, stores.SEGMENT_BYTES, confirm_floor=store.log.confirm_floor)
    assert _everything(again) == expected
    again.close()
    store.reset(Offset(5000))
    assert (store.log.end, store.dispatched, store.max_offset("T", 0)) == (5000, 5000, 0)
    assert store.topics.all() == []
    store.close()
    once_more = stores.open_store(tmp_path / "store")
    assert once_more.dispatched == 5000
    assert stores.put(once_more, stores.message())[0].offset == 5000
    once_more.close()


def test_checkpoints_happen_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gantry_broker.queues.message_store.CHECKPOINT_BYTES", 2000)
    store = stores.open_store(tmp_path)
    for _ in range(60):
        stores.put(store, stores.message())
        stores.confirm(store)
    store._saver.join()
    kv, head = derived.open_derived(logs.clone(tmp_path / "kv", tmp_path / "killed"))
    assert head is not None
    assert 0 < head.offset <= store.dispatched
    kv.close()
    store.close()


async def _found_in_background(store: MessageStore) -> list[Damage]:
    store.scrub(0)
    assert store.scrubber is not None
    await asyncio.to_thread(store.scrubber._thread.join)
    await asyncio.sleep(0)
    assert store.scrubber.passes == 1
    return list(store.log.checks.damage.values())


async def test_old_damage_is_found_in_the_background_and_the_start_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open_store(tmp_path)
    for number in range(100):
        stores.put(store, stores.message(body=bytes(2000)))
        if number % 10 == 9:
            stores.confirm(store)
    store.close()
    monkeypatch.setattr("gantry_broker.log.recovery.VERIFY_AT_START_BYTES", 1)
    monkeypatch.setattr("gantry_broker.queues.saving.VERIFY_PAUSE_S", 0)
    monkeypatch.setattr("gantry_broker.log.recovery.PAUSE_BYTES", 1)
    sound = stores.open_store(tmp_path)
    assert await _found_in_background(sound) == []
    sound.close()
    oldest, next_oldest = sorted((tmp_path / "commitlog").glob("*[0-9]"))[:2]
    logs.flip(oldest, 30)
    logs.flip(next_oldest, 30)
    store = stores.open_store(tmp_path)
    assert [one.path for one in await _found_in_background(store)] == [oldest, next_oldest]
    store.close()


async def test_a_running_store_is_compared_again_in_each_period(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantry_broker.queues.saving.VERIFY_PAUSE_S", 0)
    store = stores.open_store(tmp_path)
    (stored,) = stores.put(store, stores.message(tag="blue"))
    stores.confirm(store)
    store.scrub(0.01)
    path, position = store.log.locate(stored.offset)
    logs.flip(path, position + stored.size - 2)  # in a property
    async with asyncio.timeout(PATIENCE_S):
        while not store.log.checks.damage:
            await asyncio.sleep(0.01)
    (damage,) = store.log.checks.damage.values()
    assert holds(damage) == ["T queue 0: 0 to 0"]
    store.close()


@pytest.mark.parametrize(
    ("log_bytes", "period_s", "expected"),
    [
        (0, 86_400, 69_120),
        (100 << 30, 86_400, 5.4),
        (10 << 40, 86_400, 0.0527),
        (100 << 40, 86_400, 0.05),
    ],
)
def test_a_pass_takes_most_of_its_period_and_never_more_of_the_disk_than_it_bears(
    log_bytes: int, period_s: float, expected: float
) -> None:
    assert saving.pause_s(log_bytes, period_s) == pytest.approx(expected, rel=0.01)


async def test_damage_in_what_is_not_derived_yet_leaves_the_rest_for_later(tmp_path: Path) -> None:
    store = stores.open_store(tmp_path / "store")
    for number in range(10):
        stores.put(store, stores.message(body=b"%d" % number))
        stores.confirm(store)
    end = store.dispatched
    store.log._writer._disk._checkpoint([store.log._writer])
    killed = logs.clone(tmp_path / "store", tmp_path / "killed")
    store.close()
    shutil.rmtree(killed / "kv")
    path = killed / "commitlog" / f"{0:020d}"
    size = end // 10
    logs.flip(path, 6 * size + 20)
    again = stores.open_store(killed, master=False)
    (damage,) = again.log.checks.damage.values()
    assert again.dispatched == damage.start < end
    logs.flip(path, 6 * size + 20)
    again.log.compare(damage.start, damage.end)
    again.dispatch(end)
    assert len(stores.bodies(again.get("T", 0, 0, ALL))) == 10
    again.close()


async def test_closing_ends_the_background_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantry_broker.queues.saving.VERIFY_PAUSE_S", 600)
    monkeypatch.setattr("gantry_broker.log.recovery.PAUSE_BYTES", 1)
    store = stores.open_store(tmp_path)
    stores.put(store, stores.message())
    stores.confirm(store)
    store.log._verified_from = store.log.end
    store.scrub(86_400)
    store.close()


def test_how_long_offsets_were_unused_outlives_a_restart(tmp_path: Path) -> None:
    store = stores.open_store(tmp_path)
    store.offsets.commit("g", "T", 0, 7)
    for _ in range(3):
        store.offsets.count_hour()
        stores.put(store, *store.offsets.take_records()[0])
        stores.confirm(store)
    store.close()
    again = stores.open_store(tmp_path)
    assert again.offsets.hour == 3
    assert [(key[0], hours) for key, hours in again.offsets.unused(1)] == [("g", 3)]
    again.close()
