"""Ports of processes that end and start again: two programs never get the same one."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from gantry_lab.bench import ports
from gantry_lab.bench.ports import Ports, free_ports
from gantry_protocol.errors import GantryError
from gantry_protocol.process.listening import bind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OUTGOING_FROM = 32_768  # Linux's default of ip_local_port_range
ASKS = "from gantry_lab.bench.ports import free_ports; print(*free_ports(40)); input()"


@pytest.fixture
def program() -> Iterator[Callable[[], Ports]]:
    """Makes one more program; all share two slots of six ports that only this test uses."""
    bottom = free_ports(20)[0] + 1
    made: list[Ports] = []

    def one_more() -> Ports:
        made.append(Ports(bottom, 6, 2))
        return made[-1]

    yield one_more
    for one in made:
        one.close()


def test_two_programs_never_get_the_same_port(program: Callable[[], Ports]) -> None:
    first, second = program(), program()
    for _ in range(10):
        assert not set(first.take(4)) & set(second.take(4))


def test_ports_of_other_processes_are_others() -> None:
    found = free_ports(40)
    asked = [
        subprocess.Popen([sys.executable, "-c", ASKS], stdin=-1, stdout=-1, text=True)
        for _ in range(3)
    ]
    try:
        answers = [one.stdout.readline() for one in asked if one.stdout is not None]
    finally:
        for one in asked:
            one.communicate("\n")
    found += [int(port) for answer in answers for port in answer.split()]
    assert len(found) == 160
    assert len(set(found)) == 160


def test_a_slot_is_free_again_when_its_program_has_ended(program: Callable[[], Ports]) -> None:
    first, second, third = program(), program(), program()
    theirs = first.take(6)
    second.take(1)
    with pytest.raises(GantryError, match="All 2 ranges of ports"):
        third.take(1)
    first.close()
    assert third.take(6) == theirs


def test_a_port_on_which_somebody_listens_is_left_out(program: Callable[[], Ports]) -> None:
    first = program()
    taken = first.take(6)[2]
    with bind("127.0.0.1", taken, purpose="somebody"):
        assert taken not in first.take(5)
        with pytest.raises(GantryError, match="only 5 are free, and 6 are needed"):
            first.take(6)


def test_a_port_comes_back_after_all_others(program: Callable[[], Ports]) -> None:
    first = program()
    turn = first.take(2) + first.take(4)
    assert len(set(turn)) == 6
    assert first.take(6) == turn


def test_no_outgoing_connection_takes_one() -> None:
    assert ports.FIRST + ports.SLOT_PORTS * ports.SLOTS < OUTGOING_FROM
