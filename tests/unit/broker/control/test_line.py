"""One line for all groups of a process: how much is said, and to whom an answer goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from gantry_broker.control import line as line_module
from gantry_broker.control.line import ControllerLine
from gantry_broker.control.peers import Done
from gantry_protocol.bodies import decode_body, encode_body
from gantry_protocol.bodies.batches import ChangedBody, HeartbeatsBody, LookRow, LooksBody
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import RequestTimeout
from gantry_protocol.headers.controller import BrokerHeartbeatRequestHeader
from gantry_protocol.types import BrokerId


class Peers:
    """Controllers that note what they are told, and answer when the test says so."""

    def __init__(self) -> None:
        self.told: list[RemotingCommand] = []
        self.asked: list[tuple[RemotingCommand, Done]] = []

    def tell_all(self, make: Callable[[], RemotingCommand]) -> int:
        self.told.append(make())
        return 1

    def ask(self, command: RemotingCommand, done: Done, timeout_s: float) -> None:
        self.asked.append((command, done))


class Agent:
    def __init__(self, group: str) -> None:
        self.group = group
        self.registered = True
        self.digest = 7
        self.refreshed = 0
        self.heard_s: list[float] = []

    def heartbeat(self) -> BrokerHeartbeatRequestHeader | None:
        if not self.registered:
            return None
        return BrokerHeartbeatRequestHeader("c", "1.2.3.4:1", self.group, BrokerId(1))

    def look(self) -> LookRow | None:
        return LookRow(self.group, BrokerId(1), "i", self.digest) if self.registered else None

    def refresh(self) -> None:
        self.refreshed += 1

    def heard(self, asked_s: float) -> None:
        self.heard_s.append(asked_s)


@pytest.fixture
def peers() -> Peers:
    return Peers()


def made(peers: Peers, *names: str) -> tuple[ControllerLine, list[Agent]]:
    line = ControllerLine(
        "c", ["h:1"], pod_uid=None, heartbeat_interval_ms=500, heartbeat_timeout_ms=2500
    )
    line.peers = peers  # type: ignore[assignment]  # a fake of the same shape
    agents = [Agent(name) for name in names]
    for agent in agents:
        line.join(agent)
    return line, agents


def said(peers: Peers) -> list[list[str]]:
    assert {one.code for one in peers.told} == {RequestCode.GANTRY_HEARTBEATS}
    assert all(one.is_oneway for one in peers.told)
    bodies = [decode_body(HeartbeatsBody, one.body) for one in peers.told]
    return [[row.broker_name for row in body.rows] for body in bodies]


def test_all_groups_are_in_one_message_and_silent_ones_in_none(peers: Peers) -> None:
    line, agents = made(peers, "a", "b", "c")
    agents[1].registered = False
    line._say(list(line._members.values()))
    assert said(peers) == [["a", "c"]]
    assert line.messages == 1


def test_a_message_is_bounded(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_module, "BATCH_MAX", 2)
    line, _ = made(peers, "a", "b", "c")
    line._say(list(line._members.values()))
    assert said(peers) == [["a", "b"], ["c"]]


async def test_one_group_says_what_rocketmq_says(peers: Peers) -> None:
    line, agents = made(peers, "a")
    line._say(list(line._members.values()))
    line._look()
    assert [one.code for one in peers.told] == [RequestCode.BROKER_HEARTBEAT]
    assert (agents[0].refreshed, peers.asked) == (1, [])


async def test_what_is_urgent_is_said_once_at_the_end_of_the_turn(peers: Peers) -> None:
    line, (a, b, c) = made(peers, "a", "b", "c")
    for agent in (c, a, c, b):
        line.beat(agent)
    line.leave(b)
    assert peers.told == []
    await asyncio.sleep(0)
    assert said(peers) == [["c", "a"]]


async def test_a_look_makes_only_those_poll_that_changed(peers: Peers) -> None:
    line, (a, b, c) = made(peers, "a", "b", "c")
    c.registered = False
    line._look()
    line._look()  # one at a time
    ((command, done),) = peers.asked
    rows = decode_body(LooksBody, command.body).rows
    assert [(row.broker_name, row.digest) for row in rows] == [("a", 7), ("b", 7)]
    done(reply(command, body=encode_body(ChangedBody(["b", "gone"]))))
    assert (a.refreshed, b.refreshed, c.refreshed) == (0, 1, 0)
    assert (a.heard_s, b.heard_s, c.heard_s) == ([line._looked_s], [], []), "what is so still"
    line._look()
    peers.asked[1][1](RequestTimeout("no answer"))
    line._look()
    assert len(peers.asked) == 3, "a look without an answer does not end looking"


async def test_a_controller_that_connects_hears_of_everybody_at_once(peers: Peers) -> None:
    """It may have just started, and would think us dead until the next heartbeat."""
    line, _ = made(peers, "a", "b")
    line._connected()
    assert said(peers) == [["a", "b"]]
    assert len(peers.asked) == 1, "and it may know more"


def test_nobody_speaks_for_a_group_that_left(peers: Peers) -> None:
    line, (_, b, _) = made(peers, "a", "b", "c")
    line.leave(b)
    line._say(list(line._members.values()))
    assert said(peers) == [["a", "c"]]
