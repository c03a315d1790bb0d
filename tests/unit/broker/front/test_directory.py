"""The groups that a front serves, given answers that are late, doubled or out of order."""

from __future__ import annotations

from gantry_broker.front.core.directory import GONE_S, Directory
from gantry_protocol.bodies.fronts import FrontGroupRow
from gantry_protocol.types import Epoch


def rows(**places: int) -> list[FrontGroupRow]:
    return [FrontGroupRow(name, index, Epoch(1)) for name, index in places.items()]


def test_a_group_has_the_place_that_was_named() -> None:
    directory = Directory(4)
    directory.heard(rows(a=0, b=3), 0.0)
    assert directory.places == {"a": 0, "b": 3}
    directory.heard(rows(a=0, b=2), 1.0)
    assert directory.places == {"a": 0, "b": 2}


def test_a_group_beyond_the_ports_is_not_served() -> None:
    directory = Directory(2)
    directory.heard(rows(a=0, b=2), 0.0)
    assert (directory.places, directory.beyond) == ({"a": 0}, ["b"])
    directory.heard(rows(a=2, b=1), 1.0)
    assert (directory.places, directory.beyond) == ({"b": 1}, ["a"])


def test_a_group_that_one_answer_leaves_out_stays() -> None:
    directory = Directory(4)
    directory.heard(rows(a=0, b=1), 0.0)
    directory.heard(rows(a=0), 1.0)
    directory.heard(rows(a=0), GONE_S)
    assert directory.places == {"a": 0, "b": 1}
    directory.heard(rows(a=0, b=1), GONE_S + 0.5)
    directory.heard(rows(a=0), GONE_S + 1.0)
    directory.heard(rows(a=0), 2 * GONE_S)
    assert directory.places == {"a": 0, "b": 1}, "it was named in between"
    directory.heard(rows(a=0), 2 * GONE_S + 1.0)
    assert directory.places == {"a": 0}


def test_a_group_gives_its_place_to_the_next_one_at_once() -> None:
    directory = Directory(4)
    directory.heard(rows(a=0), 0.0)
    directory.heard(rows(b=0), 1.0)
    assert directory.places == {"b": 0}


def test_two_groups_change_places() -> None:
    directory = Directory(4)
    directory.heard(rows(a=0, b=1), 0.0)
    directory.heard(rows(a=1, b=0), 1.0)
    assert directory.places == {"a": 1, "b": 0}
