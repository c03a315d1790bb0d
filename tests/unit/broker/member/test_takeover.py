"""The records between which nobody wrote, read from the log itself."""

from __future__ import annotations

from pathlib import Path

from gantry_broker.member.takeover import Takeover
from gantry_broker.queues import MessageStore
from gantry_protocol.types import Offset
from support import stores

SEGMENT_BYTES = 64 * 1024


def store_in(directory: Path, confirm: int = 0) -> MessageStore:
    return MessageStore.open(directory, SEGMENT_BYTES, confirm_floor=Offset(confirm))


def put(store: MessageStore, now_ms: int) -> Offset:
    """The end of the log with one more record."""
    store.put([stores.message()], now_ms=now_ms)
    return store.log.end


def test_the_first_record_counts_once_it_is_confirmed(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.take_mastership()
    put(store, 1_000)
    start = put(store, 1_500)
    takeover = Takeover(store)
    assert takeover.report(start) == (1_500, None)
    first = put(store, 1_740)
    put(store, 1_900)
    assert takeover.report(start) == (1_500, None), "it may be cut yet"
    assert takeover.report(first) == (1_500, 1_740)
    put(store, 2_500)
    assert takeover.report(store.log.end) == (1_500, 1_740), "the first one stays the first"
    store.close()


def test_the_newest_record_before_is_found_after_a_start_and_beyond_what_is_derived(
    tmp_path: Path,
) -> None:
    store = store_in(tmp_path)
    store.take_mastership()
    confirmed = put(store, 1_000)
    put(store, 1_500)
    store.log.flush()
    store.close()
    store = store_in(tmp_path, confirmed)
    store.take_mastership()
    assert Takeover(store).report(confirmed) == (1_500, None)
    store.close()


def test_an_empty_log_has_no_last_record(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.take_mastership()
    takeover = Takeover(store)
    assert takeover.report(Offset(0)) == (None, None)
    assert takeover.report(put(store, 7_000)) == (None, 7_000)
    store.close()
