"""The evidence that a group has no living master."""

from __future__ import annotations

import pytest
from gantry_broker.front.core.absence import OFF_AFTER_S, Absence
from gantry_protocol.bodies.controller import ReplicaIdentity, ReplicasInfo
from gantry_protocol.types import BrokerId, Epoch


def said(*alive: int, master: int | None = 1) -> ReplicasInfo:
    """What the leader says of three members, of which 3 is not in sync."""
    members = [
        ReplicaIdentity("g", BrokerId(number), f"10.0.0.{number}:10911", number in alive)
        for number in (1, 2, 3)
    ]
    known = None if master is None else BrokerId(master)
    return ReplicasInfo(Epoch(4), Epoch(2), members[:2], members[2:], known)


def after(*answers: ReplicasInfo | None, apart_s: float = OFF_AFTER_S / 2) -> bool:
    absence = Absence()
    for number, answer in enumerate(answers):
        absence.heard(answer, 100.0 + number * apart_s)
    return absence.is_off


NOBODY = said()


@pytest.mark.parametrize(
    ("answers", "is_off"),
    [
        pytest.param([NOBODY] * 3, True, id="said three times over five seconds"),
        pytest.param([NOBODY] * 2, False, id="said too few times"),
        pytest.param([said(2, 3)] * 3, True, id="replicas live, and none is the master"),
        pytest.param([said(2, 3, master=None)] * 3, True, id="there is no master at all"),
        pytest.param([said(1)] * 9, False, id="the master lives"),
        pytest.param([NOBODY, NOBODY, said(1), NOBODY, NOBODY], False, id="it lived in between"),
        pytest.param([None] * 9, False, id="the controllers are silent"),
        pytest.param([NOBODY, NOBODY, None, NOBODY, NOBODY], False, id="silence breaks the row"),
        pytest.param([NOBODY] * 3 + [None] * 9, True, id="silence is no master"),
        pytest.param([NOBODY] * 3 + [said(1)], False, id="the master is back"),
        pytest.param([said(3, master=3)] * 9, False, id="a master that is not in the set"),
    ],
)
def test_only_the_leaders_repeated_word_counts(
    answers: list[ReplicasInfo | None], is_off: bool
) -> None:
    assert after(*answers) is is_off


def test_many_answers_at_once_are_not_time() -> None:
    assert after(*[NOBODY] * 50, apart_s=OFF_AFTER_S / 100) is False
    assert after(*[NOBODY] * 101, apart_s=OFF_AFTER_S / 100) is True


def test_a_master_that_is_named_ends_it() -> None:
    absence = Absence()
    for number in range(3):
        absence.heard(NOBODY, number * OFF_AFTER_S)
    assert absence.is_off
    absence.ended()
    assert not absence.is_off
    absence.heard(NOBODY, 1000.0)
    assert not absence.is_off
