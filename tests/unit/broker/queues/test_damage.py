"""Damage in a log where nothing was derived yet: what is known, what is not, until it is mended."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from gantry_broker.log import CutRefusedError
from gantry_broker.log.checked import DamagedError
from gantry_broker.queues import MessageStore
from gantry_broker.store.contract import KeyRead, ReadLimits
from gantry_protocol.types import Offset
from support import logs, stores

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT_BYTES = 64 * 1024
ALL = ReadLimits(32, 1 << 20)


def filled(directory: Path) -> tuple[list[Offset], Path]:
    """A store with five records of one queue, a flush each; where they stand, and their file."""
    store = MessageStore.open(directory, SEGMENT_BYTES)
    store.take_mastership()
    places = []
    for _ in range(5):
        places.append(stores.put(store, stores.message())[0].offset)
        store.log.flush()
    path = store.log.locate(places[0])[0]
    store.close()
    return places, path


def opened(directory: Path, confirm: Offset) -> MessageStore:
    return MessageStore.open(directory, SEGMENT_BYTES, confirm_floor=confirm)


def test_what_stands_behind_it_is_neither_served_nor_written_to(tmp_path: Path) -> None:
    places, path = filled(tmp_path)
    logs.flip(path, places[2] + 60)
    store = opened(tmp_path, places[4])
    assert store.dispatched == places[2]
    assert store.in_the_way is not None
    assert store.in_the_way.start == places[2]
    assert not store.is_whole
    store.take_mastership()
    assert store.get("T", 0, 0, ALL).count == 2
    for offset in (2, 4, 5):
        with pytest.raises(DamagedError):
            store.get("T", 0, offset, ALL)
    with pytest.raises(DamagedError):
        store.view(places[3])
    with pytest.raises(DamagedError):
        store.find(KeyRead("T", "k", 1, 0, 1 << 60))
    with pytest.raises(DamagedError):
        store.check_known()
    with pytest.raises(AssertionError, match="which number comes next"):
        stores.put(store, stores.message())
    store.close()


@pytest.mark.parametrize("confirmed", [4, 1])
def test_it_goes_on_once_the_bytes_are_back(tmp_path: Path, confirmed: int) -> None:
    """Also where only a master's look ahead met it: nothing is numbered before it looked again."""
    places, path = filled(tmp_path)
    logs.flip(path, places[2] + 60)
    store = opened(tmp_path, places[confirmed])
    store.take_mastership()
    assert store.in_the_way is not None
    assert not store.is_way_free
    with pytest.raises(DamagedError):
        store.dispatch(store.log.end)
    logs.flip(path, places[2] + 60)
    store.log.compare(places[2], places[3])
    assert store.is_way_free
    assert store.in_the_way is not None, "nobody has looked again"
    store.dispatch(places[4])
    assert store.in_the_way is not None, "a master has yet to look at what is not confirmed"
    store.take_mastership()
    assert store.in_the_way is None
    (stored,) = stores.put(store, stores.message())
    assert stored.queue_offset == 5
    stores.confirm(store)
    assert store.get("T", 0, 0, ALL).count == 6
    store.close()


def test_it_begins_behind_what_nobody_has_any_more(tmp_path: Path) -> None:
    """A whole state stands behind; only the next opening derives from there."""
    store = MessageStore.open(tmp_path, 4096)
    store.take_mastership()
    while len(store.log.starts) < 3:
        stores.put(store, stores.message(body=bytes(500)))
    stores.confirm(store)
    stores.put(store, *(store.state_records() or ()))
    stores.confirm(store)
    stores.put(store, stores.message())
    stores.confirm(store)
    end, begin, known = store.log.end, store.log.starts[2], store.max_offset("T", 0)
    store.close()
    shutil.rmtree(tmp_path / "kv")
    logs.flip(tmp_path / "commitlog" / f"{0:020d}", 100)
    store = MessageStore.open(tmp_path, 4096, confirm_floor=end)
    told: list[str] = []
    store.on_lost = told.append
    with pytest.raises(CutRefusedError):
        store.begin_behind(Offset(begin - 1))
    assert not store.lost
    store.begin_behind(begin)
    assert told == [store.lost]
    store.close()
    store = MessageStore.open(tmp_path, 4096, confirm_floor=end)
    assert (store.log.log_start, store.dispatched, store.in_the_way) == (begin, end, None)
    assert store.is_whole
    assert store.max_offset("T", 0) == known
    low = store.min_offset("T", 0)
    assert 0 < low < known
    assert store.get("T", 0, low, ALL).count == known - low
    store.close()


def test_who_is_no_master_any_more_looks_at_what_is_confirmed_only(tmp_path: Path) -> None:
    places, path = filled(tmp_path)
    logs.flip(path, places[3] + 60)
    store = opened(tmp_path, places[2])
    assert store.in_the_way is None
    store.take_mastership()
    assert store.in_the_way is not None
    store.drop_mastership()
    assert store.in_the_way is None
    with pytest.raises(DamagedError):
        store.dispatch(places[4])
    store.drop_mastership()
    assert store.in_the_way is not None
    store.reset(places[4])
    assert store.in_the_way is None
    store.close()
