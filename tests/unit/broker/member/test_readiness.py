"""Whether clients may be sent to a member: the first reason against it, and a grace period."""

from __future__ import annotations

import pytest
from gantry_broker.member.readiness import BETWEEN_MASTERS_S, FENCED, Readiness, Standing

IDLE = Standing(
    leaving=False,
    joined=True,
    stuck="",
    registered=True,
    serving=False,
    following=False,
    epoch=3,
)
SERVING = IDLE._replace(serving=True)


@pytest.mark.parametrize(
    ("standing", "ready", "reason"),
    [
        (SERVING, True, "master of epoch 3"),
        (IDLE._replace(following=True), True, "following in epoch 3"),
        (IDLE, False, "no master to follow"),
        (SERVING._replace(registered=False), False, "not registered with the controllers"),
        (SERVING._replace(stuck="Behind: look"), False, "Behind: look"),
        (SERVING._replace(joined=False), False, "waiting for the controllers"),
        (SERVING._replace(disk="its disk is full"), True, "master of epoch 3; its disk is full"),
        (IDLE._replace(disk="its disk is full"), False, "no master to follow; its disk is full"),
        (SERVING._replace(alone="cut off", disk="x"), False, "cut off"),
        (SERVING._replace(leaving=True, joined=False), False, "leaving"),
        (IDLE._replace(fenced=True), False, FENCED),
    ],
)
def test_the_answer_is_the_first_reason(standing: Standing, ready: bool, reason: str) -> None:
    assert Readiness().look(standing, 100.0) == (ready, reason)


def test_a_member_stays_ready_for_a_while_between_two_masters() -> None:
    readiness = Readiness()
    readiness.look(SERVING, 100.0)
    assert readiness.look(IDLE, 100.0 + BETWEEN_MASTERS_S) == (True, "between two masters")
    assert readiness.look(IDLE, 100.1 + BETWEEN_MASTERS_S) == (False, "no master to follow")


def test_a_fenced_member_is_not_ready_at_once() -> None:
    readiness = Readiness()
    assert readiness.look(IDLE._replace(following=True), 100.0)[0]
    assert readiness.look(IDLE._replace(fenced=True), 100.1) == (False, FENCED)
