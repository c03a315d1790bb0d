"""Consumers of two broker groups, at a real controller's handlers: one view at both masters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from gantry_broker.clients.claim import Claim
from gantry_broker.clients.consumers import REPORT_GAP_S, Consumers
from gantry_broker.clients.elsewhere import LOOK_EVERY_S, LOOK_GAP_S, Elsewhere
from gantry_broker.clients.sessions import Sessions
from gantry_controller.metadata import consumer_view
from gantry_controller.remoting.notifier import Notifier
from gantry_protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import RequestTimeout
from gantry_protocol.types import BrokerId, Epoch
from support.controller_dispatcher import CLUSTER, Harness
from support.group_view import FakeConnection

SOON_S = REPORT_GAP_S + LOOK_EVERY_S + 0.1


class Peers:
    """The way to the controller, unless it is cut."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.is_cut = False
        self.asked = 0

    def ask(self, command: RemotingCommand, done: Any, timeout_s: float) -> None:
        self.asked += command.code == 31007
        answer: Any = RequestTimeout("cut")
        if not self.is_cut:
            answer = self.harness.call(command.code, command.ext, command.body or b"")
        asyncio.get_running_loop().call_soon(done, answer)


class Master:
    """The master of one group, in a process of its own unless ``elsewhere`` is shared."""

    def __init__(self, peers: Peers, name: str, elsewhere: Elsewhere | None = None) -> None:
        self.elsewhere = elsewhere or Elsewhere(CLUSTER, peers)
        self.book = Consumers(CLUSTER, name, peers, self.elsewhere)
        self.sessions = Sessions(lambda _: None, self.book)
        self.book.began(Claim(BrokerId(1), Epoch(1), "i"))
        self.book.serve(self.sessions)

    def beat(self, client: str, group: str = "g") -> FakeConnection:
        conn = FakeConnection()
        wanted = [SubscriptionData(topic="t", sub_string="*")]
        data = HeartbeatData(
            client, consumer_data_set=[ConsumerData(group, subscription_data_set=wanted)]
        )
        self.sessions.heartbeat(conn, "JAVA", 479, data)  # type: ignore[arg-type]  # a fake
        return conn

    def lose(self, conn: FakeConnection) -> None:
        self.sessions.connection_closed(conn)  # type: ignore[arg-type]  # a fake

    def members(self, group: str = "g") -> list[str]:
        return sorted(self.sessions.client_ids(group))


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    harness = Harness()
    for name in ("a", "b"):
        named = {"clusterName": CLUSTER, "brokerName": name, "brokerId": "1"}
        applied = {"appliedBrokerId": "1", "registerCheckCode": "x;1"}
        assert harness.call(1013, {**named, **applied}).code == 0
        signed = {**named, "incarnation": "i"}
        place = {"brokerAddress": f"127.0.0.1:{ord(name)}"}
        assert harness.call(1003, {**signed, **place}).code == 0
        beat = {"brokerAddr": place["brokerAddress"], "epoch": "1", "maxOffset": "10"}
        assert harness.call(904, {**signed, **beat}).code == 0
        assert harness.call(1002, {**named, "designateElect": "false"}).code == 0
    yield Peers(harness)
    await harness.close()


@pytest.mark.looptime
async def test_both_masters_name_everybody_whom_any_of_them_hears(peers: Peers) -> None:
    a, b = Master(peers, "a"), Master(peers, "b")
    a.beat("x")
    a.beat("y")
    b.beat("x")
    await asyncio.sleep(SOON_S)
    assert a.members() == b.members() == ["x", "y"]


@pytest.mark.looptime
async def test_whoever_loses_one_connection_is_a_member_everywhere(peers: Peers) -> None:
    a, b = Master(peers, "a"), Master(peers, "b")
    conns = [(a.beat(client), b.beat(client)) for client in ("x", "y")]
    await asyncio.sleep(SOON_S)
    told = [len(conn.sent) for pair in conns for conn in pair]
    b.lose(conns[0][1])
    await asyncio.sleep(SOON_S)
    assert a.members() == b.members() == ["x", "y"]
    assert [len(conn.sent) for pair in conns for conn in pair] == told, "nobody moves queues"
    a.lose(conns[0][0])
    await asyncio.sleep(SOON_S)
    assert a.members() == b.members() == ["y"]
    at_a, at_b = (len(conn.sent) for conn in conns[1])
    assert (at_a, at_b) == (told[2] + 1, told[3] + 1), "each tells once that it is gone"


@pytest.mark.looptime
async def test_who_comes_back_to_a_master_was_a_member_all_along(peers: Peers) -> None:
    a, b = Master(peers, "a"), Master(peers, "b")
    other = b.beat("y")
    a.beat("x")
    await asyncio.sleep(SOON_S)
    told = len(other.sent)
    b.beat("x")
    await asyncio.sleep(SOON_S)
    assert len(other.sent) == told


@pytest.mark.looptime
async def test_masters_of_one_process_share_a_reader(peers: Peers) -> None:
    shared = Elsewhere(CLUSTER, peers)
    a, b = Master(peers, "a", shared), Master(peers, "b", shared)
    a.beat("x")
    b.beat("y")
    await asyncio.sleep(SOON_S)
    assert a.members() == b.members() == ["x", "y"]
    asked = peers.asked
    await asyncio.sleep(10 * LOOK_EVERY_S)
    assert peers.asked - asked <= 11
    a.book.end()
    await asyncio.sleep(SOON_S)
    assert b.members() == ["x", "y"], "who was heard there is remembered by its next master"
    b.book.end()
    asked = peers.asked
    await asyncio.sleep(10 * LOOK_EVERY_S)
    assert peers.asked <= asked + 1


@pytest.mark.looptime
async def test_nobody_is_gone_because_the_controllers_are(peers: Peers) -> None:
    a, b = Master(peers, "a"), Master(peers, "b")
    a.beat("x")
    b.beat("y")
    await asyncio.sleep(SOON_S)
    peers.is_cut = True
    await asyncio.sleep(100)
    assert a.members() == b.members() == ["x", "y"]


@pytest.mark.looptime
async def test_news_are_asked_for_at_once_but_not_without_end(peers: Peers) -> None:
    a = Master(peers, "a")
    await asyncio.sleep(SOON_S)
    asked = peers.asked
    a.elsewhere.look()
    await asyncio.sleep(0.001)
    assert peers.asked == asked + 1
    for _ in range(1000):
        a.elsewhere.look()
        await asyncio.sleep(0.001)
    assert peers.asked <= asked + 2 + 1.0 / LOOK_GAP_S


@pytest.mark.looptime
async def test_a_cluster_of_many_is_read_page_by_page(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_view, "PAGE_CLIENTS_MAX", 4)
    a = Master(peers, "a")
    for number in range(20):
        a.beat("x", f"g{number}")
    await asyncio.sleep(SOON_S)
    b = Master(peers, "b")
    b.beat("y", "g7")
    await asyncio.sleep(SOON_S)
    assert b.elsewhere.pages >= 10
    assert [b.members(f"g{number}") for number in (0, 7, 19)] == [["x"], ["x", "y"], ["x"]]
    peers.harness.machine.state.rebuild_indexes()  # as after a snapshot: the whole is told again
    b.elsewhere.look()
    await asyncio.sleep(SOON_S)
    assert [b.members(f"g{number}") for number in (0, 7, 19)] == [["x"], ["x", "y"], ["x"]]


@pytest.mark.looptime
async def test_masters_that_hear_members_of_the_same_group_are_told(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    leads = True
    machine = peers.harness.machine
    notifier = Notifier(machine.state, lambda: leads, lambda _: [])
    machine.add_consumer_listener(notifier.consumers_changed)
    told: list[tuple[str, int]] = []
    monkeypatch.setattr(notifier, "tell", lambda to, word: told.append((to, word.code)))
    a, b = Master(peers, "a"), Master(peers, "b")
    a.beat("x", "g")
    a.beat("x", "mine")
    await asyncio.sleep(SOON_S)
    assert told == [], "nobody else hears members of these"
    b.beat("y", "g")
    await asyncio.sleep(SOON_S)
    assert told == [(f"127.0.0.1:{ord('a')}", RequestCode.GANTRY_CONSUMERS_CHANGED)]
    leads = False
    a.beat("z", "g")
    await asyncio.sleep(SOON_S)
    assert len(told) == 1, "one controller is enough to say it"
    assert json.loads(peers.harness.call(31007, {"clusterName": "unknown"}).body)["groups"] == {}
