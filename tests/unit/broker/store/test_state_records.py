"""The state in the log: nothing new for who read it all, everything for who begins later."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_broker.log import CutRefusedError
from gantry_broker.queues import MessageStore, rows
from gantry_broker.store.contract import GetStatus, ReadLimits
from gantry_broker.store.tables import pieces, state_records
from gantry_broker.store.tables.state_records import Gathered, StatePiece, decode_piece, gather
from gantry_broker.store.tables.topics import TopicChange, change_record
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.errors import BodyError, CorruptionError
from gantry_protocol.types import Offset
from support import logs, stores

SEGMENT_BYTES = 2048
ALL = ReadLimits(32, 1 << 20)


@pytest.fixture
def store(tmp_path: Path):
    """A master with topics, offsets and queues that are spread over several files."""
    made = MessageStore.open(tmp_path / "master", SEGMENT_BYTES)
    made.take_mastership()
    stores.put(made, change_record(TopicChange(1, [TopicConfig("early"), TopicConfig("gone")])))
    stores.put(made, stores.message("early", 3), stores.message("gone"))
    made.offsets.commit("g", "early", 3, 1)
    stores.put(made, *made.offsets.take_records()[0])
    stores.put(made, change_record(TopicChange(2, [TopicConfig("T")], ["gone"])))
    for number in range(40):
        stores.put(made, stores.message(body=b"%d" % number * 100))
    stores.confirm(made)
    yield made
    made.close()


def write_state(store: MessageStore) -> None:
    records = store.state_records()
    assert records is not None
    stores.put(store, *records)
    stores.confirm(store)


def trim(store: MessageStore, to: Offset) -> None:
    for _ in store.raise_minimums(to):
        pass
    for segment in store.trim(to):
        segment.remove()


def follower(store: MessageStore, directory: Path) -> MessageStore:
    """An empty replica that begins where the master's log does."""
    made = MessageStore.open(directory, SEGMENT_BYTES)
    made.reset(store.log.log_start)
    copy(store, made)
    return made


def copy(store: MessageStore, to: MessageStore) -> None:
    while to.log.end < store.log.end:
        to.log.append_raw(to.log.end, store.log.read_units(to.log.end, 1 << 16))
    stores.confirm(to)


def known(store: MessageStore) -> object:
    store.tiered = True
    store.save()
    queues = sorted(key for key, *_ in store._queues.stored() if key[0] != "GANTRY_SYS_STATE")
    return (
        store.topics.version,
        sorted(topic.topic_name for topic in store.topics.all()),
        sorted(store.offsets.applied_rows()),
        [(key, store.min_offset(*key), store.max_offset(*key)) for key in queues],
    )


def test_an_empty_replica_knows_what_was_said_before_its_log_began(
    store: MessageStore, tmp_path: Path
) -> None:
    write_state(store)
    trim(store, store.log.starts[-1])
    replica = follower(store, tmp_path / "replica")
    assert replica.log.log_start > 0
    assert replica.is_whole
    assert known(replica) == known(store)
    assert replica.topics.lookup("gone") is None
    assert replica.offsets.query("g", "early", 3) == 1
    replica.take_mastership()
    assert stores.put(replica, stores.message("early", 3))[0].queue_offset == 1
    assert stores.put(replica, stores.message())[0].queue_offset == 40
    replica.close()


def test_a_master_that_has_not_confirmed_the_state_yet_goes_by_it(
    store: MessageStore, tmp_path: Path
) -> None:
    write_state(store)
    trim(store, store.log.starts[-1])
    replica = MessageStore.open(tmp_path / "replica", SEGMENT_BYTES)
    replica.reset(store.log.log_start)
    while replica.log.end < store.log.end:
        replica.log.append_raw(replica.log.end, store.log.read_units(replica.log.end, 1 << 16))
    replica.take_mastership()
    assert not replica.is_whole
    assert replica.state_records() is None
    assert replica.offsets.query("g", "early", 3) == 1
    assert stores.put(replica, stores.message("early", 3))[0].queue_offset == 1
    stores.confirm(replica)
    assert replica.is_whole
    replica.close()


def test_a_rebuilt_broker_knows_everything(store: MessageStore, tmp_path: Path) -> None:
    write_state(store)
    trim(store, store.log.starts[-1])
    before = known(store)
    replica = follower(store, tmp_path / "replica")
    replica.close()
    stores.forget_derived(tmp_path / "replica")
    again = MessageStore.open(tmp_path / "replica", SEGMENT_BYTES)
    assert known(again) == before
    again.close()


def test_a_restart_with_an_old_checkpoint_serves_nothing_below_the_log(
    store: MessageStore, tmp_path: Path
) -> None:
    write_state(store)
    replica = follower(store, tmp_path / "replica")
    replica.save()
    logs.clone(tmp_path / "replica" / "kv", tmp_path / "old")
    trim(replica, replica.log.starts[-1])
    replica.close()
    stores.forget_derived(tmp_path / "replica")
    logs.clone(tmp_path / "old", tmp_path / "replica" / "kv")
    again = MessageStore.open(tmp_path / "replica", SEGMENT_BYTES)
    low = again.local_min_offset("T", 0)
    assert low > 0
    assert again.get("T", 0, low - 1, ALL).status is GetStatus.OFFSET_TOO_SMALL
    again.tiered = True
    assert again.get("T", 0, low - 1, ALL).status is GetStatus.OFFSET_IN_TIER
    assert again.get("T", 0, low, ALL).status is GetStatus.FOUND
    assert (again.min_offset("T", 0), again.min_offset("gone", 0)) == (0, 1)
    again.close()


def test_a_checkpoint_may_stand_between_two_pieces(
    store: MessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "MAX_ROWS", 1)
    write_state(store)
    start = store.whole_from
    assert start is not None
    trim(store, store.log.starts[-2])
    reader = MessageStore.open(tmp_path / "replica", SEGMENT_BYTES)
    reader.reset(store.log.log_start)
    while reader.log.end < store.log.end:
        reader.log.append_raw(reader.log.end, store.log.read_units(reader.log.end, 1 << 16))
        reader.log.flush()
    at = reader.log.log_start
    while at < reader.log.end:  # one unit, one checkpoint, one restart
        at = Offset(at + len(reader.log.read_units(at, 1)))
        reader.dispatch(at)
        reader.close()
        reader = MessageStore.open(tmp_path / "replica", SEGMENT_BYTES)
    assert reader.whole_from == start
    assert known(reader) == known(store)
    reader.close()


def test_nothing_is_trimmed_above_a_whole_state(store: MessageStore) -> None:
    for _ in range(2):
        with pytest.raises(CutRefusedError, match="newest whole state"):
            store.trim(store.log.starts[2])
    write_state(store)
    assert store.whole_from is not None
    end = store.log.end
    while store.log.starts[-1] <= end:
        stores.put(store, stores.message(body=bytes(300)))
    stores.confirm(store)
    with pytest.raises(CutRefusedError, match="newest whole state"):
        store.trim(store.log.starts[-1])
    assert store.log.log_start == 0


def test_no_state_is_written_over_an_unconfirmed_change_of_topics(store: MessageStore) -> None:
    stores.put(store, change_record(TopicChange(3, [TopicConfig("new")])))
    assert store.state_records() is None
    stores.confirm(store)
    assert store.state_records() is not None


def test_a_state_counts_what_stands_before_it_and_is_not_confirmed(store: MessageStore) -> None:
    stores.put(store, stores.message("fresh", 5), stores.message())
    records = store.state_records()
    assert records is not None
    queues = [row for record in records for row in decode_piece(record.body).queues]
    assert ("fresh", 5, 0, 1) in queues
    assert ("T", 0, 0, 41) in queues
    stores.put(store, *records)
    stores.confirm(store)


def test_a_state_that_does_not_fit_the_log_is_damage(store: MessageStore) -> None:
    stores.put(store, *state_records.state_records(2, [], [], [("T", 0, 0, 39)]))
    with pytest.raises(CorruptionError, match="by the state 39 comes next in queue 0 of T"):
        stores.confirm(store)


@pytest.mark.parametrize("body", [b"{}", b"nonsense", b'{"index":2,"count":2,"topics_version":1}'])
def test_what_is_no_piece(body: bytes) -> None:
    with pytest.raises(BodyError):
        decode_piece(body)


def test_only_pieces_that_follow_each_other_are_together() -> None:
    def piece(index: int, count: int = 2) -> StatePiece:
        return StatePiece(index, count, 1)

    first = gather(None, piece(0), Offset(10))
    assert first == Gathered(10, 1, 2)
    assert gather(first, piece(1), Offset(20)) == Gathered(10, 2, 2)
    assert gather(first, piece(0), Offset(30)) == Gathered(30, 1, 2)
    assert gather(first, piece(1, 3), Offset(30)) is None
    assert gather(None, piece(1), Offset(30)) is None


@pytest.mark.parametrize("every", [1, 7, 60])
def test_entries_go_with_the_log(tmp_path: Path, every: int) -> None:
    store = MessageStore.open(tmp_path / "s", SEGMENT_BYTES)
    store.take_mastership()
    for number in range(60):
        stores.put(store, stores.message(body=bytes(100)))
        stores.confirm(store)
        if number % every == every - 1:
            store.save()
    write_state(store)
    trim(store, store.log.starts[2])
    store.save()
    low = store.local_min_offset("T", 0)
    prefix = rows.run_prefix(("T", 0))
    starts = [rows.run_start(key) for key, _ in store._kv.pairs(prefix, prefix + b"\xff")]
    assert 0 < low < 60
    assert starts[0] == low // every * every
    store.close()
    again = MessageStore.open(tmp_path / "s", SEGMENT_BYTES)
    assert again.local_min_offset("T", 0) == low
    assert again.get("T", 0, low, ReadLimits(60, 1 << 20)).next_offset == 60
    again.close()


def test_a_state_makes_no_offset_young(store: MessageStore) -> None:
    """Logs without a tier are trimmed again and again, and a state is written each time."""
    store.offsets.count_hour()
    stores.put(store, *store.offsets.take_records()[0])
    stores.confirm(store)
    write_state(store)
    assert [(key[0], hours) for key, hours in store.offsets.unused(1)] == [("g", 1)]
