"""The heartbeat table: which message about a broker is the newest."""

from gantry_controller.liveness import table as tables
from gantry_controller.liveness.table import GONE_PODS_MAX, Heartbeat, HeartbeatTable
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
    table.sweep(before_s=5.0)
    assert table.row(KEY, BrokerId(2)) is not None
    table.sweep(before_s=6.0)
    assert table.row(KEY, BrokerId(2)) is None
    assert table.closed(1) == []
