"""Knocking at a closed broker's address: when, how often, and what counts."""

import pytest
from gantry_controller.liveness.core import probes as module
from gantry_controller.liveness.core.probes import ATTEMPTS_MAX, GAP_S, Knock, Probes
from gantry_controller.liveness.core.table import Heartbeat, HeartbeatTable
from gantry_protocol.types import BrokerId

ONE = ("c", "b", BrokerId(1))


def hear(table: HeartbeatTable, at_s: float, connection: int, broker_id: int = 1) -> None:
    beat = Heartbeat(broker_id=BrokerId(broker_id), timeout_s=2.5)
    table.heard(("c", "b"), beat, now_s=at_s, connection=connection)


@pytest.fixture
def table() -> HeartbeatTable:
    table = HeartbeatTable()
    hear(table, 0.0, connection=1)
    table.closed(1)
    return table


def knock(probes: Probes, outcomes: list[tuple[float, Knock]]) -> list[bool]:
    """Takes and answers one knock after another, each at its time."""
    results = []
    for at_s, outcome in outcomes:
        assert probes.take(at_s, 10) == [ONE], at_s
        results.append(probes.answered(ONE, outcome, at_s))
    return results


def refused(table: HeartbeatTable) -> bool:
    row = table.row(("c", "b"), BrokerId(1))
    assert row is not None
    return row.refused


def test_two_refusals_are_evidence(table: HeartbeatTable) -> None:
    probes = Probes(table)
    probes.start(ONE, 1.0)
    assert probes.next_due() == 1.0
    assert knock(probes, [(1.0, Knock.REFUSED), (1.0 + GAP_S, Knock.REFUSED)]) == [False, True]
    assert refused(table)
    assert probes.next_due() is None


def test_one_refusal_is_not(table: HeartbeatTable) -> None:
    probes = Probes(table)
    probes.start(ONE, 1.0)
    assert knock(probes, [(1.0, Knock.REFUSED), (1.1, Knock.OTHER), (1.2, Knock.REFUSED)]) == [
        False,
        False,
        False,
    ]
    assert not refused(table)
    assert knock(probes, [(1.3, Knock.REFUSED)]) == [True]


def test_refusals_too_close_together_do_not_add_up(table: HeartbeatTable) -> None:
    probes = Probes(table)
    probes.start(ONE, 1.0)
    assert probes.take(1.0, 10) == [ONE]
    assert not probes.answered(ONE, Knock.REFUSED, 1.0)
    assert probes.take(1.0 + GAP_S / 2, 10) == []
    assert not probes.answered(ONE, Knock.REFUSED, 1.0 + GAP_S / 2)
    assert not refused(table)


def test_unreachable_proves_nothing_and_ends(table: HeartbeatTable) -> None:
    probes = Probes(table)
    probes.start(ONE, 1.0)
    assert not any(knock(probes, [(1.0 + n, Knock.OTHER) for n in range(ATTEMPTS_MAX)]))
    assert probes.next_due() is None
    assert not refused(table)


def test_heartbeat_ends_the_probe(table: HeartbeatTable) -> None:
    probes = Probes(table)
    probes.start(ONE, 1.0)
    knock(probes, [(1.0, Knock.REFUSED)])
    hear(table, 1.01, connection=2)
    assert probes.take(1.1, 10) == []
    assert not probes.answered(ONE, Knock.REFUSED, 1.2)
    assert not refused(table)


def test_late_answer_about_an_earlier_connection_proves_nothing(table: HeartbeatTable) -> None:
    probes = Probes(table)
    probes.start(ONE, 1.0)
    knock(probes, [(1.0, Knock.REFUSED)])
    assert probes.take(1.1, 10) == [ONE]
    hear(table, 1.11, connection=2)
    assert not probes.answered(ONE, Knock.REFUSED, 1.2)
    assert not refused(table)


def test_starts_only_for_closed_connections_and_once(table: HeartbeatTable) -> None:
    probes = Probes(table)
    hear(table, 1.0, connection=2)
    probes.start(ONE, 1.0)
    probes.start(("c", "b", BrokerId(9)), 1.0)
    assert probes.next_due() is None
    table.closed(2)
    probes.start(ONE, 2.0)
    probes.start(ONE, 2.0)
    assert probes.take(2.0, 10) == [ONE]
    assert probes.take(2.0, 10) == []


def test_waiting_probes_are_bounded(table: HeartbeatTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 1)
    hear(table, 0.0, connection=5, broker_id=2)
    table.closed(5)
    probes = Probes(table)
    probes.start(ONE, 1.0)
    probes.start(("c", "b", BrokerId(2)), 1.0)
    assert probes.take(1.0, 10) == [ONE]
