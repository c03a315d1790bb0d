"""Old connections of producers are ended, when it costs their clients nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from gantry_broker.front.ageing import ENDED_AT_ONCE, end_old
from gantry_protocol.bodies import ConsumerData, HeartbeatData, ProducerData, encode_body
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import request
from gantry_protocol.frame import encode

AGE_S = 100.0
OLD_S, YOUNG_S = 126.0, 74.0


def heartbeat(*, consumes: bool = False) -> bytes:
    consumer = ConsumerData(
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        consume_type="CONSUME_PASSIVELY",
        group_name="g",
        message_model="CLUSTERING",
        subscription_data_set=[],
    )
    data = HeartbeatData("c", [ProducerData("p")], [consumer] if consumes else [])
    return encode(request(RequestCode.HEART_BEAT, {}, encode_body(data)))


PRODUCES, CONSUMES = heartbeat(), heartbeat(consumes=True)


@dataclass
class Way:
    number: int = 1
    since_s: float = 0.0
    waiting: int = 0
    is_quiet: bool = True
    is_idle: bool = False
    heartbeat: bytes | None = PRODUCES
    told: list[str] = field(default_factory=list)

    def end(self) -> None:
        self.told.append("end")

    def end_with_answer(self) -> None:
        self.told.append("with answer")


def test_an_old_producer_goes_with_its_next_answer() -> None:
    way = Way(waiting=1, is_quiet=False)
    assert end_old([way], YOUNG_S, AGE_S) == 0
    assert way.told == []
    assert end_old([way], OLD_S, AGE_S) == 1
    assert way.told == ["with answer"]


def test_one_that_says_nothing_goes_at_once() -> None:
    way = Way(is_idle=True)
    assert end_old([way], OLD_S, AGE_S) == 1
    assert way.told == ["end"]


@pytest.mark.parametrize(
    "said",
    [
        {"heartbeat": CONSUMES, "is_idle": True},
        {"heartbeat": CONSUMES, "waiting": 1, "is_quiet": False},
        {"heartbeat": None, "waiting": 1},
        {"heartbeat": PRODUCES, "waiting": 1},
        {"heartbeat": b"\0\0\0\4none", "is_idle": True},
    ],
    ids=["idle", "asks", "pulls unknown", "pulls", "unreadable"],
)
def test_a_consumer_stays_and_is_looked_at_again_later(said: dict[str, Any]) -> None:
    way = Way(**said)
    assert end_old([way], OLD_S, AGE_S) == 0
    assert (way.told, way.since_s) == ([], OLD_S)


def test_who_is_not_known_goes_when_it_says_nothing() -> None:
    """Its heartbeat may have been too long to be kept."""
    way = Way(heartbeat=None, waiting=1, is_quiet=False)
    assert end_old([way], OLD_S, AGE_S) == 0
    way.waiting, way.is_quiet, way.is_idle = 0, True, True
    assert end_old([way], OLD_S, AGE_S) == 1


def test_not_all_go_at_once() -> None:
    ways = [Way(number) for number in range(3 * ENDED_AT_ONCE)]
    assert end_old(ways, OLD_S, AGE_S) == ENDED_AT_ONCE
    young = [Way(number) for number in range(100)]
    went = end_old(young, AGE_S, AGE_S)
    assert 30 < went < 64, "clients that came together go apart"
