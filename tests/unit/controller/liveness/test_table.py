"""The heartbeat table: which message about a broker is the newest."""

import msgspec
import pytest
from gantry_controller.liveness.core import table as tables
from gantry_controller.liveness.core.table import GONE_PODS_MAX, Heartbeat, HeartbeatTable
from gantry_controller.metadata.state import GroupKey
from gantry_protocol.types import BrokerId, Epoch, Offset

KEY = ("c", "b")
ONE = BrokerId(1)


def beat(broker_id: int = 1, **facts: object) -> Heartbeat:
    return Heartbeat(broker_id=BrokerId(broker_id), timeout_s=2.5, **facts)  # type: ignore[arg-type]  # facts are typed by the caller


def test_every_heartbeat_overwrites_the_one_before() -> None:
    """A truncated log must not be believed to reach as far as it did (upstream keeps the most)."""
    table = HeartbeatTable()
    table.heard(KEY, beat(epoch=Epoch(2), max_offset=Offset(900)), now_s=1.0, connection=7)
    table.heard(KEY, beat(epoch=Epoch(1), max_offset=Offset(300)), now_s=2.0, connection=7)
    row = table.row(KEY, ONE)
    assert row is not None
    assert (row.beat.epoch, row.beat.max_offset, row.seen_s) == (1, 300, 2.0)


def test_straggler_of_an_older_connection_says_nothing() -> None:
    table = HeartbeatTable()
    table.heard(KEY, beat(incarnation="new"), now_s=1.0, connection=8)
    assert not table.heard(KEY, beat(incarnation="old"), now_s=2.0, connection=7)
    row = table.row(KEY, ONE)
    assert row is not None
    assert (row.beat.incarnation, row.seen_s) == ("new", 1.0)


def test_row_that_fell_silent_gives_way_to_any_connection() -> None:
    table = HeartbeatTable()
    table.heard(KEY, beat(incarnation="dead"), now_s=1.0, connection=8)
    assert not table.heard(KEY, beat(incarnation="living"), now_s=3.5, connection=7)
    assert table.heard(KEY, beat(incarnation="living"), now_s=3.6, connection=7)
    assert table.closed(8) == []


def test_close_of_an_older_connection_does_not_touch_the_newer_row() -> None:
    table = HeartbeatTable()
    table.heard(KEY, beat(), now_s=1.0, connection=7)
    table.heard(KEY, beat(), now_s=2.0, connection=8)
    assert table.closed(7) == []
    row = table.row(KEY, ONE)
    assert row is not None
    assert row.connected
    assert table.closed(8) == [("c", "b", 1)]
    assert not row.connected


def test_one_connection_may_carry_several_brokers() -> None:
    table = HeartbeatTable()
    for broker_id in (2, 1):
        table.heard(KEY, beat(broker_id), now_s=1.0, connection=7)
    assert table.closed(7) == [("c", "b", 1), ("c", "b", 2)]
    assert table.closed(7) == []


def test_reconnection_ends_the_refusal() -> None:
    table = HeartbeatTable()
    table.heard(KEY, beat(), now_s=1.0, connection=7)
    table.closed(7)
    assert table.refuse(("c", "b", ONE), 7)
    table.heard(KEY, beat(), now_s=2.0, connection=8)
    row = table.row(KEY, ONE)
    assert row is not None
    assert not row.refused
    assert not table.refuse(("c", "b", ONE), 7)
    assert not row.refused


def test_what_another_controller_passed_on_counts_only_for_a_new_process() -> None:
    table = HeartbeatTable()
    table.heard(KEY, beat(incarnation="a", max_offset=Offset(9)), now_s=1.0, connection=7)
    assert not table.heard(KEY, beat(incarnation="a"), now_s=2.0, connection=None)
    assert table.heard(KEY, beat(incarnation="b"), now_s=3.0, connection=None)
    row = table.row(KEY, ONE)
    assert row is not None
    assert not row.connected
    assert table.closed(7) == []


def test_newest_word_about_a_pod_counts_and_their_number_is_bounded() -> None:
    table = HeartbeatTable()
    table.pod_is_gone("p", 1.0)
    table.pod_is_gone("p", 2.0)
    assert table.gone_since("p") == 2.0
    assert table.gone_since(None) is None
    for number in range(GONE_PODS_MAX):
        table.pod_is_gone(f"other-{number}", 3.0)
    assert table.gone_since("p") is None


def test_rows_are_bounded(monkeypatch) -> None:  # type: ignore[no-untyped-def]  # pytest's fixture
    monkeypatch.setattr(tables, "ROWS_MAX", 3)
    monkeypatch.setattr(tables, "ROWS_PER_GROUP_MAX", 2)
    table = HeartbeatTable()
    assert table.heard(KEY, beat(1), now_s=1.0, connection=1)
    assert table.heard(KEY, beat(2), now_s=1.0, connection=1)
    assert not table.heard(KEY, beat(3), now_s=1.0, connection=1)
    assert table.heard(("c", "x"), beat(1), now_s=1.0, connection=1)
    assert not table.heard(("c", "y"), beat(1), now_s=1.0, connection=1)
    assert table.heard(KEY, beat(1), now_s=2.0, connection=1)
    assert table.refused_rows == 2
    assert table.closed(1) == [("c", "b", 1), ("c", "b", 2), ("c", "x", 1)]


def test_members_struck_from_the_record_and_silent_strangers_are_forgotten() -> None:
    table = HeartbeatTable()
    table.heard(KEY, beat(1), now_s=1.0, connection=1)
    table.heard(KEY, beat(2), now_s=5.0, connection=1)
    table.registered(KEY, ONE, 1.0)
    table.keep_only(KEY, [BrokerId(2)])
    assert table.row(KEY, ONE) is None
    assert table.registered_at(KEY, ONE) is None
    table.pass_time(5.0 + tables.FORGET_AFTER_S, 10)
    assert table.row(KEY, BrokerId(2)) is not None
    table.pass_time(5.1 + tables.FORGET_AFTER_S, 10)
    assert table.row(KEY, BrokerId(2)) is None
    assert table.closed(1) == []
    assert table.alive == 0


class TestNews:
    """What watchers and metrics are told, without a walk over all rows."""

    def heard(self, table: HeartbeatTable, now_s: float, broker_id: int = 1) -> set[GroupKey]:
        assert table.heard(KEY, beat(broker_id), now_s=now_s, connection=broker_id)
        return table.take_news()

    def test_coming_and_falling_silent_are_news_once(self) -> None:
        table = HeartbeatTable()
        assert self.heard(table, 1.0) == {KEY}
        assert self.heard(table, 2.0) == set()
        table.pass_time(4.5, 10)
        assert (table.take_news(), table.alive) == (set(), 1), "exactly at the time-out"
        table.pass_time(4.6, 10)
        assert (table.take_news(), table.alive) == ({KEY}, 0)
        table.pass_time(9.0, 10)
        assert table.take_news() == set()

    def test_who_comes_back_is_watched_as_before(self) -> None:
        table = HeartbeatTable()
        self.heard(table, 1.0)
        table.pass_time(9.0, 10)
        assert table.alive == 0
        assert self.heard(table, 10.0) == {KEY}
        assert table.alive == 1
        table.pass_time(12.6, 10)
        assert table.alive == 0

    @pytest.mark.parametrize("field", ["disk_stuck", "log_damage"])
    def test_trouble_is_news_once_when_it_comes_and_when_it_goes(self, field: str) -> None:
        table = HeartbeatTable()
        self.heard(table, 1.0)
        for said, is_news in (("a", True), ("b", False), ("", True), ("", False)):
            told = msgspec.structs.replace(beat(1), **{field: said})
            assert table.heard(KEY, told, now_s=2.0, connection=1)
            assert table.take_news() == ({KEY} if is_news else set())

    @pytest.mark.parametrize("field", ["settings", "settings_refused"])
    def test_other_settings_are_news(self, field: str) -> None:
        table = HeartbeatTable()
        self.heard(table, 1.0)
        for said, is_news in (("a", True), ("a", False), ("b", True), ("", True)):
            told = msgspec.structs.replace(beat(1), **{field: said})
            assert table.heard(KEY, told, now_s=2.0, connection=1)
            assert table.take_news() == ({KEY} if is_news else set())

    def test_the_first_record_of_a_mastership_is_news(self) -> None:
        table = HeartbeatTable()
        self.heard(table, 1.0)
        for said, is_news in ((None, False), (700, True), (700, False)):
            told = msgspec.structs.replace(beat(1), last_write_ms=500, first_write_ms=said)
            assert table.heard(KEY, told, now_s=2.0, connection=1)
            assert table.take_news() == ({KEY} if is_news else set())

    def test_refusal_is_news(self) -> None:
        table = HeartbeatTable()
        self.heard(table, 1.0)
        table.closed(1)
        assert table.closed_members() == [(*KEY, ONE)]
        assert table.refuse((*KEY, ONE), 1)
        assert (table.take_news(), table.alive) == ({KEY}, 0)
        assert self.heard(table, 1.5) == {KEY}
        assert (table.closed_members(), table.alive) == ([], 1)

    def test_shorter_time_out_takes_effect_at_once(self) -> None:
        table = HeartbeatTable()
        patient = Heartbeat(broker_id=ONE, timeout_s=300.0)
        assert table.heard(KEY, patient, now_s=1.0, connection=1)
        self.heard(table, 2.0)
        table.pass_time(4.6, 10)
        assert table.alive == 0

    def test_work_is_bounded_and_nobody_is_missed(self) -> None:
        table = HeartbeatTable()
        for broker_id in range(1, 8):
            self.heard(table, 1.0, broker_id)
        table.pass_time(5.0, 3)
        assert table.alive == 4
        table.pass_time(5.0, 3)
        table.pass_time(5.0, 3)
        assert table.alive == 0

    def test_struck_member_is_not_counted_any_more(self) -> None:
        table = HeartbeatTable()
        self.heard(table, 1.0)
        self.heard(table, 1.0, 2)
        table.keep_only(KEY, [ONE])
        assert table.alive == 1
        table.pass_time(9.0, 10)
        assert table.alive == 0
