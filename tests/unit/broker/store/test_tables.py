"""The topic table and the consumer offsets."""

from __future__ import annotations

import pytest
from gantry_broker.store.tables.names import OFFSETS_TOPIC, TOPICS_TOPIC
from gantry_broker.store.tables.offsets import GONE, ConsumerOffsets, decode_rows
from gantry_broker.store.tables.topics import (
    TopicChange,
    TopicTable,
    change_record,
    decode_change,
    is_topic_name,
)
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.errors import BodyError

A, B = TopicConfig("a", 4, 4), TopicConfig("b", 1, 1)


def test_a_change_travels_in_a_record_of_the_system_topic() -> None:
    change = TopicChange(7, [A], ["b"])
    record = change_record(change)
    assert record.topic == TOPICS_TOPIC
    assert decode_change(record.body) == change


def test_changes_apply_once_and_in_order() -> None:
    table = TopicTable()
    assert table.apply(TopicChange(3, [A, B])) == []
    assert table.apply(TopicChange(3, [], ["a"])) == []
    assert table.apply(TopicChange(2, [], ["a"])) == []
    assert table.lookup("a") == A
    assert table.apply(TopicChange(5, [], ["a", "never here"])) == ["a", "never here"]
    assert (table.lookup("a"), table.version, len(table)) == (None, 5, 1)


@pytest.mark.parametrize(
    ("version", "wanted", "expected"),
    [
        pytest.param(1, [A], None, id="not newer"),
        pytest.param(2, [A], TopicChange(2, [A], ["b"]), id="new and gone"),
        pytest.param(
            2, [TopicConfig("b", 2, 2)], TopicChange(2, [TopicConfig("b", 2, 2)]), id="changed"
        ),
        pytest.param(2, [B], TopicChange(2), id="only the version"),
    ],
)
def test_difference(version: int, wanted: list[TopicConfig], expected: TopicChange | None) -> None:
    table = TopicTable(1, [B])
    change = table.difference(version, wanted)
    assert change == expected
    if change is not None:
        table.apply(change)
        assert sorted(t.topic_name for t in table.all()) == sorted(t.topic_name for t in wanted)


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[1]", b'{"version":"x"}', b'{"version":1,"put":[{}]}']
)
def test_a_body_that_is_no_change_is_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        decode_change(body)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a-B_9%|", True), ("", False), ("a/b", False), ("..", False), ("a b", False), ("ü", False)],
)
def test_topic_names(name: str, expected: bool) -> None:
    assert is_topic_name(name) is expected


def _rows(offsets: ConsumerOffsets) -> list[tuple[str, str, int, int]]:
    records, _ = offsets.take_records()
    assert all(record.topic == OFFSETS_TOPIC for record in records)
    return [row for record in records for row in decode_rows(record.body)]


def test_a_commit_is_seen_at_once_and_written_once() -> None:
    offsets = ConsumerOffsets()
    assert offsets.query("g", "t", 0) is None
    offsets.commit("g", "t", 0, 5)
    offsets.commit("g", "t", 1, 6)
    offsets.commit("g", "t", 0, 3)
    assert offsets.query("g", "t", 0) == 3
    assert _rows(offsets) == [("g", "t", 0, 3), ("g", "t", 1, 6)]
    assert not offsets.is_dirty
    assert _rows(offsets) == []
    offsets.commit("g", "t", 0, 3)
    assert not offsets.is_dirty, "nothing changed"


def test_an_older_confirmed_record_does_not_undo_a_newer_commit() -> None:
    offsets = ConsumerOffsets()
    offsets.commit("g", "t", 0, 5)
    first = _rows(offsets)
    offsets.commit("g", "t", 0, 9)
    offsets.apply(first)
    assert offsets.query("g", "t", 0) == 9
    second = _rows(offsets)
    assert second == [("g", "t", 0, 9)]
    offsets.apply(second)
    offsets.forget_pending()
    assert offsets.query("g", "t", 0) == 9


def test_a_commit_back_to_an_older_value_survives_the_records_before_it() -> None:
    offsets = ConsumerOffsets()
    records = []
    for offset in (5, 7):
        offsets.commit("g", "t", 0, offset)
        records.append(_rows(offsets))
    offsets.commit("g", "t", 0, 5)
    for rows in records:
        offsets.apply(rows)
    assert offsets.query("g", "t", 0) == 5
    offsets.apply(_rows(offsets))
    offsets.forget_pending()
    assert offsets.query("g", "t", 0) == 5


@pytest.mark.parametrize("is_new", [True, False])
def test_the_last_record_in_the_log_counts_until_it_is_confirmed(is_new: bool) -> None:
    """Of a master, or one that takes over with all of them: an earlier one that says the same."""
    offsets = ConsumerOffsets()
    records = [[("g", "t", 0, offset)] for offset in (5, 7, 5)]
    for rows in records:
        if is_new:
            offsets.foresee(rows)
        else:
            offsets.put_back([row[:3] for row in offsets.all()], stored=True)  # it was late: 12
            offsets.commit(*rows[0])
            assert _rows(offsets) == rows
    for rows in records:
        offsets.apply(rows)
        assert offsets.query("g", "t", 0) == 5
    assert offsets._pending == {}, "each is confirmed"
    offsets.apply([("g", "t", 0, 3)])
    assert offsets.query("g", "t", 0) == 3


def test_a_record_that_was_never_stored_is_not_waited_for() -> None:
    offsets = ConsumerOffsets()
    offsets.commit("g", "t", 0, 5)
    _, keys = offsets.take_records()
    offsets.put_back(keys, stored=False)
    offsets.foresee([("g", "t", 1, 5)])
    offsets.take_back([("g", "t", 1, 4)])
    rows = _rows(offsets)
    assert rows == [("g", "t", 0, 5)]
    offsets.apply([*rows, ("g", "t", 1, 4)])
    assert offsets._pending == {}


def test_a_state_that_says_so_too_is_no_record_of_its_own() -> None:
    offsets = ConsumerOffsets()
    offsets.foresee([("g", "t", 0, 5)])
    offsets.foresee([("g", "t", 0, 5)], again=True)
    offsets.apply([("g", "t", 0, 5)], again=True)
    assert offsets._pending == {("g", "t", 0): 5}
    offsets.apply([("g", "t", 0, 5)])
    assert offsets._pending == {}


def test_rows_of_a_topic_that_ended_are_not_waited_for() -> None:
    """A store leaves those out of the log that come behind the end."""
    offsets = ConsumerOffsets()
    offsets.commit("g", "t", 0, 5)
    assert _rows(offsets)
    offsets.drop_topics(["t"], ended=["t"])
    offsets.commit("g", "t", 0, 1)
    offsets.apply(_rows(offsets))
    assert offsets._pending == {}


def test_what_was_not_confirmed_is_written_again() -> None:
    offsets = ConsumerOffsets()
    offsets.commit("g", "t", 0, 5)
    _, keys = offsets.take_records()
    offsets.put_back(keys, stored=False)
    assert _rows(offsets) == [("g", "t", 0, 5)]


def test_a_lost_mastership_falls_back_to_what_is_confirmed() -> None:
    offsets = ConsumerOffsets([("g", "t", 0, 4, 0)])
    offsets.commit("g", "t", 0, 9)
    offsets.forget_pending()
    assert offsets.query("g", "t", 0) == 4
    assert not offsets.is_dirty


def test_many_offsets_go_into_records_of_bounded_size() -> None:
    offsets = ConsumerOffsets()
    for number in range(2_000):
        offsets.commit("g" * 120, "t" * 250, number, number)
    records, keys = offsets.take_records()
    assert len(keys) == 2_000
    assert len(records) == 4
    assert max(len(record.body) for record in records) < 1 << 20


def test_offsets_of_one_group() -> None:
    offsets = ConsumerOffsets([("g", "t", 0, 4, 0), ("h", "t", 0, 4, 0)])
    offsets.commit("g", "t", 1, 9)
    assert sorted(offsets.of_group("g")) == [("g", "t", 0, 4), ("g", "t", 1, 9)]


@pytest.mark.parametrize("body", [b"", b"{}", b'[["g","t",0]]', b'[["g","t","0",1]]'])
def test_a_body_that_is_no_offsets_is_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        decode_rows(body)


def test_a_forgotten_offset_is_gone_everywhere_and_may_come_back() -> None:
    offsets, replica = (
        ConsumerOffsets([("g", "t", 0, 5, 0), ("g", "t", 1, 6, 0)]) for _ in range(2)
    )
    offsets.forget("g", "t", 0)
    offsets.forget("g", "t", 7)  # never known: nothing to say
    assert offsets.query("g", "t", 0) is None
    assert offsets.all() == offsets.of_group("g") == [("g", "t", 1, 6)]
    rows = _rows(offsets)
    assert rows == [("g", "t", 0, GONE)]
    for one in (offsets, replica):
        one.apply(rows)
        one.forget_pending()
        assert one.all() == one.applied_rows() == [("g", "t", 1, 6)]
    offsets.commit("g", "t", 0, 2)
    assert offsets.query("g", "t", 0) == 2


def test_no_commit_follows_the_end_of_its_topic_in_the_log() -> None:
    offsets = ConsumerOffsets([("g", "t", 0, 5, 0), ("g", "kept", 0, 5, 0)])
    offsets.commit("g", "t", 0, 6)
    offsets.end_topic("t")
    offsets.commit("g", "t", 0, 7)
    offsets.put_back([("g", "t", 0)], stored=True)
    assert _rows(offsets) == []
    offsets.drop_topics(["t"], ended=["t"])
    assert offsets.all() == [("g", "kept", 0, 5)]
    offsets.commit("g", "t", 0, 0)  # of the next topic of that name
    assert _rows(offsets) == [("g", "t", 0, 0)]


def test_what_was_committed_before_the_end_of_its_topic_is_not_told_by_the_next_master() -> None:
    """The last one has answered the deletion; here its record is not confirmed yet."""
    offsets = ConsumerOffsets([("g", "t", 0, 5, 0), ("g", "kept", 0, 5, 0)])
    offsets.foresee([("g", "t", 1, 6)])
    offsets.end_topic("t")
    assert offsets.query("g", "t", 0) is None
    assert offsets.all() == offsets.of_group("g") == [("g", "kept", 0, 5)]


def test_what_a_next_master_foresees_behind_the_end_of_a_topic_is_of_the_next_one() -> None:
    offsets = ConsumerOffsets([("g", "t", 0, 5, 0)])
    offsets.end_topic("t")
    offsets.foresee([("g", "t", 0, 1)])
    assert offsets.query("g", "t", 0) == 1
    offsets.drop_topics(["t"], ended=["t"])
    assert offsets.query("g", "t", 0) == 1, "it is in the log, and not confirmed yet"


@pytest.mark.parametrize("ended", [True, False])
def test_an_end_that_did_not_come_holds_nothing_up(ended: bool) -> None:
    offsets = ConsumerOffsets()
    offsets.end_topic("t")
    if ended:  # its record was not newer
        offsets.drop_topics([], ended=["t"])
    else:
        offsets.forget_pending()
    offsets.commit("g", "t", 0, 1)
    assert _rows(offsets) == [("g", "t", 0, 1)]


def test_many_topics_go_in_one_pass_over_the_offsets() -> None:
    class Gone(list[str]):
        """Names that count how often each offset is looked for in all of them."""

        searched = 0

        def __contains__(self, name: object) -> bool:
            self.searched += 1
            return super().__contains__(name)

    offsets = ConsumerOffsets([("g", f"T{number}", 0, 7, 0) for number in range(300)])
    gone = Gone(f"T{number}" for number in range(0, 300, 2))
    offsets.drop_topics(gone, ended=[])
    assert gone.searched == 0
    assert [offsets.query("g", f"T{number}", 0) for number in (0, 1, 2, 3)] == [None, 7, None, 7]
