"""The key index against the records themselves, whatever the blocks, restarts and crashes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from gantry_broker.queues import MessageStore, key_index, lookups
from gantry_broker.queues.key_index import keys_of
from gantry_broker.store.contract import GetStatus, KeyRead
from gantry_protocol.records import MessageRecord, decode_records
from support import logs, stores

SEGMENT_BYTES = 4096
EVER = (0, 1 << 62)


def keyed(number: int, *, topic: str = "T", keys: str = "", unique: str = "") -> MessageRecord:
    record = stores.message(topic, number % 3, b"%d" % number)
    record.properties = f"KEYS\x01{keys}\x02UNIQ_KEY\x01{unique or f'U{number}'}\x02"
    return record


def bodies(
    store: MessageStore,
    key: str,
    *,
    topic: str = "T",
    count: int = 64,
    between: tuple[int, int] = EVER,
    is_unique: bool = False,
) -> list[int]:
    found = store.find(KeyRead(topic, key, count, *between, is_unique))
    assert (found.status is GetStatus.FOUND) == (found.count > 0)
    records = decode_records(found.body)
    assert len(records) == found.count
    return [int(record.body) for record in records]


@pytest.mark.parametrize(
    ("properties", "keys"),
    [
        pytest.param(b"", [], id="none"),
        pytest.param(b"UNIQ_KEY\x01u\x02KEYS\x01a b  c\x02", [b"u", b"a", b"b", b"c"], id="all"),
        pytest.param(b"KEYS\x01a", [b"a"], id="no last separator"),
        pytest.param(b"MYKEYS\x01x\x02", [], id="another name"),
        pytest.param(b"KEYS\x01a\x02MYKEYS\x01x\x02", [b"a"], id="another name behind it"),
        pytest.param(b"T\x01KEYS\x02KEYS\x01a\x02", [b"a"], id="the name as a value"),
        pytest.param(b"KEYS\x01a\x02KEYS\x01b\x02", [b"b"], id="later ones win"),
        pytest.param(b"KEYS\x01\x02", [], id="empty"),
    ],
)
def test_keys_of_a_record(properties: bytes, keys: list[bytes]) -> None:
    assert keys_of(properties) == keys


def test_records_are_found_by_each_of_their_keys_newest_first(tmp_path: Path) -> None:
    store = stores.open_store(tmp_path)
    stores.put(store, keyed(1, keys="red k k"), keyed(2, keys="red"), keyed(3, topic="S", keys="k"))
    assert bodies(store, "red") == [], "not confirmed"
    stores.confirm(store)
    assert bodies(store, "red") == [2, 1]
    assert bodies(store, "k") == [1], "once, though it has the key twice"
    assert bodies(store, "k", topic="S") == [3]
    assert bodies(store, "U2") == bodies(store, "U2", is_unique=True) == [2]
    assert bodies(store, "red", is_unique=True) == []
    assert bodies(store, "red k") == []
    store.close()


def test_one_checksum_is_not_one_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "_checksum", lambda _: 7)
    monkeypatch.setattr(key_index, "_extended", lambda *_: 7)
    store = stores.open_store(tmp_path)
    stores.put(store, *(keyed(number, keys=f"k{number}") for number in range(20)))
    stores.confirm(store)
    assert bodies(store, "k4") == [4]
    store.close()


def test_answers_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stores.open_store(tmp_path)
    stores.put(store, *(keyed(number, keys="k") for number in range(100)))
    stores.confirm(store)
    assert bodies(store, "k", count=3) == [99, 98, 97]
    assert len(bodies(store, "k", count=10**6)) == lookups.MAX_RECORDS
    assert len(bodies(store, "k", count=-1)) == 1
    monkeypatch.setattr(lookups, "MAX_BYTES", 300)
    assert bodies(store, "k") == [99, 98]
    monkeypatch.setattr(lookups, "_MAX_CANDIDATES", 5)
    assert bodies(store, "k", between=(0, 1)) == []
    store.close()


@pytest.mark.parametrize("block_keys", [4, 50, 65_536])
@pytest.mark.parametrize("seed", range(3))
def test_random_histories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_keys: int, seed: int
) -> None:
    """Batches, restarts, kills and a trim; every key finds what the kept records have."""
    monkeypatch.setattr(key_index, "BLOCK_KEYS", block_keys)
    rng = random.Random(seed)
    directory = tmp_path / "0"
    store = MessageStore.open(directory, SEGMENT_BYTES)
    store.take_mastership()
    sent: list[tuple[int, int, list[str]]] = []  # log offset, number, keys
    for step in range(120):
        words = [rng.choice("abcdef") for _ in range(rng.randrange(4))]
        (at,) = stores.put(store, keyed(step, keys=" ".join(words)), now_ms=step)
        sent.append((at.offset, step, [f"U{step}", *words]))
        stores.confirm(store)
        happens = rng.random()
        if happens < 0.2:
            store.save()
        elif happens < 0.3:
            if happens > 0.25:
                logs.clone(directory, tmp_path / str(step))
                floor = store.dispatched
                store.close()
                directory = tmp_path / str(step)
                store = MessageStore.open(directory, SEGMENT_BYTES, confirm_floor=floor)
            else:
                store.close()
                store = MessageStore.open(directory, SEGMENT_BYTES)
            store.take_mastership()
    stores.put(store, *(store.state_records() or []))
    stores.confirm(store)
    start = store.log.starts[len(store.log.starts) // 2]
    list(store.raise_minimums(start))
    for segment in store.trim(start):
        segment.remove()
    for key in ["a", "b", "f", "U3", "U77", "U119", "none"]:
        for between in (EVER, (40, 80)):
            expected = [
                number
                for offset, number, keys in sent
                if key in keys and offset >= start and between[0] <= number <= between[1]
            ]
            assert bodies(store, key, between=between) == expected[::-1]
    blocks = [value for _, value in store._kv.pairs(*key_index.BLOCKS)]
    assert all(int.from_bytes(value[:8], "big") >= start for value in blocks)
    store.close()


def test_what_is_known_is_told(tmp_path: Path) -> None:
    store = stores.open_store(tmp_path)
    nothing = store.find(KeyRead("T", "k", 1, *EVER))
    assert (nothing.next_offset, nothing.known_ms) == (-1, 0)
    stores.put(store, keyed(1), now_ms=70)
    (at,) = stores.put(store, keyed(2), now_ms=77)
    stores.confirm(store)
    known = store.find(KeyRead("T", "none", 1, *EVER))
    assert (known.next_offset, known.known_ms) == (at.offset, 77)
    again = stores.as_replica(store)
    assert again.find(KeyRead("T", "none", 1, *EVER)) == known
    assert bodies(again, "U2", between=(77, 77)) == [2]
    again.close()
