"""What must stay of a log: each need is a pin, and the least of them and confirm is the bound."""

from __future__ import annotations

import pytest
from gantry_broker.retention.core.pins import Pins, pins
from gantry_protocol.types import BrokerId, Offset


def all_of(
    transaction: int = 50,
    parked: int | None = 50,
    popped: int = 50,
    member: int = 50,
    other: int = 50,
) -> Pins:
    return pins(
        transactions=[Offset(90), Offset(transaction)],
        parked=None if parked is None else Offset(parked),
        popped=Offset(popped),
        members=[(Offset(member), BrokerId(2))],
        others=[(Offset(other), BrokerId(3))],
    )


@pytest.mark.parametrize("who", ["transaction", "parked", "popped", "member", "other"])
def test_everybody_counts(who: str) -> None:
    assert all_of(**{who: 20}).bound(Offset(80)) == 20


def test_nothing_goes_that_is_not_confirmed() -> None:
    assert all_of().bound(Offset(30)) == 30
    assert Pins().bound(Offset(30)) == 30


def test_a_copy_outside_the_set_does_not_keep_a_full_disk_full() -> None:
    found = all_of(other=10)
    assert min(found.needed).at == 50
    assert [need.who for need in found.copied] == ["replica outside the set, 3"]


def test_who_needs_it_is_said() -> None:
    assert [need.who for need in all_of().needed] == [
        "an open transaction",
        "an open transaction",
        "a delayed message",
        "messages in flight",
        "member 2",
    ]
    assert len(all_of(parked=None).offsets) == 5
