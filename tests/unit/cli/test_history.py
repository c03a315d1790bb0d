"""One master per epoch, whatever order the controllers' words arrive in."""

from __future__ import annotations

from gantry_cli.trial.history import MasterHistory, Mastership


def test_masterships_are_ordered_by_epoch_and_counted_as_changes() -> None:
    history = MasterHistory()
    assert history.enter(2, 3)
    assert history.enter(1, 1)
    assert not history.enter(2, 3)
    assert history.masterships == [Mastership(1, 1), Mastership(2, 3)]
    assert (history.changes, history.conflicts) == (1, [])


def test_same_broker_in_a_new_epoch_is_no_change() -> None:
    history = MasterHistory()
    for epoch in (1, 2, 3):
        history.enter(epoch, 1)
    assert history.changes == 0


def test_two_masters_in_one_epoch_are_a_conflict() -> None:
    history = MasterHistory()
    history.enter(4, 1)
    history.enter(4, 2)
    assert history.conflicts == [4]


def test_no_master_says_nothing() -> None:
    history = MasterHistory()
    assert not history.enter(5, None)
    assert history.masterships == []
