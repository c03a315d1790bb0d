"""Connections to all controllers: whom a question goes to."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from gantry_broker.control.peers import ControllerPeers
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.errors import RequestTimeout
from gantry_protocol.hosts import HOSTS_VARIABLE
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.server import RemotingServer
from support.broker_cluster import eventually
from support.patience import PATIENCE_S


class Controller:
    """Says at once that it does not lead, and answers everything else when it is told to."""

    def __init__(self) -> None:
        self.owed: list[tuple[Connection, RemotingCommand]] = []
        self.server = RemotingServer(self._handle)

    def _handle(self, conn: Connection, command: RemotingCommand) -> RemotingCommand | None:
        if command.code == RequestCode.CONTROLLER_GET_METADATA_INFO:
            return reply(command, ext={"group": "g", "isLeader": "false", "peers": ""})
        self.owed.append((conn, command))
        return None

    def answer(self) -> None:
        for conn, command in self.owed:
            conn.reply(command, reply(command))
        self.owed.clear()


async def test_a_controller_that_owes_an_answer_is_asked_nothing_more() -> None:
    controllers = Controller(), Controller()
    ports = [await one.server.start("127.0.0.1", 0) for one in controllers]
    peers = ControllerPeers([f"127.0.0.1:{port}" for port in ports], lambda: None)
    told: list[Outcome] = []

    def ask() -> int:
        return peers.ask_each(
            lambda: request(RequestCode.CONTROLLER_GET_REPLICA_INFO), told.append, 60
        )

    try:
        assert ask() == 0  # nobody is connected yet
        peers.start()
        asked = 0
        while asked < len(controllers):  # as each connects, and has said who leads
            asked += ask()
            await eventually(lambda: peers.connections == len(controllers), "they connect")
            await asyncio.sleep(0.001)  # all are connected, and may not have said who leads
        await eventually(lambda: all(one.owed for one in controllers), "both are asked")
        assert ask() == 0
        controllers[0].answer()
        await eventually(lambda: len(told) == 1, "one has answered")
        assert ask() == 1
    finally:
        await peers.stop()
        for one in controllers:
            await one.server.stop(0)


class Quorum:
    """Three controllers that say who leads; each answers all else as it is told to."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.codes: dict[int, int | None] = {0: 0, 1: 0, 2: 0}  # None: no answer
        self.held_s = 0.0  # before they answer
        self.servers = [RemotingServer(self._handler(at)) for at in self.codes]

    def _handler(self, at: int) -> Callable[[Connection, RemotingCommand], RemotingCommand | None]:
        def handle(conn: Connection, command: RemotingCommand) -> RemotingCommand | None:
            if command.code == RequestCode.CONTROLLER_GET_METADATA_INFO:
                leads = "true" if at == 0 else "false"
                return reply(command, ext={"group": "g", "isLeader": leads, "peers": ""})
            self.asked.append(at)
            code = self.codes[at]
            answer = None if code is None else reply(command, code, str(at))
            if answer is None or not self.held_s:
                return answer
            asyncio.get_running_loop().call_later(self.held_s, conn.reply, command, answer)
            return None

        return handle


@asynccontextmanager
async def led_quorum() -> AsyncIterator[tuple[Quorum, ControllerPeers]]:
    """The first of three leads, and is known to."""
    quorum = Quorum()
    ports = [await server.start("127.0.0.1", 0) for server in quorum.servers]
    peers = ControllerPeers([f"127.0.0.1:{port}" for port in ports], lambda: None)
    peers.start()
    try:
        await eventually(lambda: peers.connections == len(ports), "they connect")
        await eventually(lambda: all(p.round_trip_s < math.inf for p in peers._peers), "all spoke")
        yield quorum, peers
    finally:
        await peers.stop()
        for server in quorum.servers:
            await server.stop(0)


async def outcome_of(
    peers: ControllerPeers, code: int, timeout_s: float = 60, held_s: float = 0.0
) -> Outcome:
    told: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    peers.ask(request(code), told.set_result, timeout_s, held_s)
    return await told


READ, CHANGE = RequestCode.CONTROLLER_GET_REPLICA_INFO, RequestCode.CONTROLLER_ELECT_MASTER


async def test_followers_are_asked_reads_and_the_leader_changes() -> None:
    async with led_quorum() as (quorum, peers):
        for _ in range(10):
            await outcome_of(peers, READ)
        assert 0 not in quorum.asked
        assert (peers.reads_by_leader, peers.reads_by_follower) == (0, 10)
        quorum.asked.clear()
        for _ in range(3):
            await outcome_of(peers, CHANGE)
        assert quorum.asked == [0, 0, 0]


async def test_a_follower_that_cannot_read_is_left_within_one_request() -> None:
    async with led_quorum() as (quorum, peers):
        quorum.codes[1] = ResponseCode.CONTROLLER_NOT_LEADER
        for _ in range(10):
            outcome = await outcome_of(peers, READ)
            assert isinstance(outcome, RemotingCommand)
            assert outcome.code == 0
        assert quorum.asked.count(1) == 1
        assert peers.reads_moved == 1
        quorum.codes[2] = ResponseCode.CONTROLLER_NOT_LEADER
        outcome = await outcome_of(peers, READ)
        assert isinstance(outcome, RemotingCommand)
        assert (outcome.code, outcome.remark) == (0, "0"), "the leader is there when nobody else is"


async def test_who_does_not_know_a_read_yet_does_not_speak_for_the_others() -> None:
    """A broker would take users for what this quorum has none of, and serve everybody."""
    unknown = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    async with led_quorum() as (quorum, peers):
        quorum.codes[1] = quorum.codes[2] = unknown
        outcome = await outcome_of(peers, READ)
        assert isinstance(outcome, RemotingCommand)
        assert (outcome.code, outcome.remark) == (0, "0")
        quorum.codes[0] = unknown
        quorum.asked.clear()
        outcome = await outcome_of(peers, READ)
        assert isinstance(outcome, RemotingCommand)
        assert outcome.code == unknown
        assert sorted(quorum.asked) == [0, 1, 2], "each is asked once"


async def test_a_silent_follower_leaves_time_for_the_next_to_answer() -> None:
    async with led_quorum() as (quorum, peers):
        quorum.codes[1] = quorum.codes[2] = None
        outcome = await outcome_of(peers, READ, 0.4)
        assert isinstance(outcome, RemotingCommand)
        assert (outcome.code, outcome.remark) == (0, "0")


async def test_who_was_asked_to_wait_for_news_is_not_silent() -> None:
    """A quiet cluster has no news, and its brokers are to hear just that."""
    async with led_quorum() as (quorum, peers):
        quorum.held_s = 1.0
        outcome = await outcome_of(peers, READ, PATIENCE_S, quorum.held_s)
        assert isinstance(outcome, RemotingCommand)
        assert len(quorum.asked) == 1
        assert peers.reads_moved == 0
        quorum.asked.clear()
        quorum.held_s, quorum.codes = 0.0, dict.fromkeys(quorum.codes)
        assert isinstance(await outcome_of(peers, READ, 1.0, 1.0), RequestTimeout)
        assert len(quorum.asked) == 1, "the next question goes to another one"


async def test_when_no_controller_can_read_the_last_answer_says_so() -> None:
    async with led_quorum() as (quorum, peers):
        quorum.codes = dict.fromkeys(quorum.codes, ResponseCode.CONTROLLER_NOT_LEADER)
        outcome = await outcome_of(peers, READ)
        assert isinstance(outcome, RemotingCommand)
        assert outcome.code == ResponseCode.CONTROLLER_NOT_LEADER
        assert sorted(quorum.asked) == [0, 1, 2], "each is asked once"


async def test_a_change_without_an_answer_is_not_sent_again() -> None:
    async with led_quorum() as (quorum, peers):
        quorum.codes[0] = None
        assert isinstance(await outcome_of(peers, CHANGE, 0.05), RequestTimeout)
        assert quorum.asked == [0]


async def test_who_stops_leaves_no_connection_behind() -> None:
    async with led_quorum() as (_, peers):
        assert peers.connections == 3
        await peers.stop()
        assert peers.connections == 0


class Members:
    """Controllers that say who takes part, and that the first of those that run leads."""

    def __init__(self) -> None:
        self.running: list[tuple[str, RemotingServer]] = []
        self.said: list[str] = []
        self.lead = True

    async def add(self) -> str:
        at = len(self.running)
        server = RemotingServer(lambda conn, command: self._answer(at, command))
        address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
        self.running.append((address, server))
        self.said.append(address)
        return address

    def _answer(self, at: int, command: RemotingCommand) -> RemotingCommand:
        leads = "true" if self.lead and self.running[at][0] == self.said[0] else "false"
        members = "".join(f"n{n}:{address};" for n, address in enumerate(self.said, start=1))
        return reply(command, ext={"group": "g", "isLeader": leads, "peers": members})


@asynccontextmanager
async def members(count: int) -> AsyncIterator[tuple[Members, ControllerPeers]]:
    """So many run, and the first of them is in the settings."""
    quorum = Members()
    addresses = [await quorum.add() for _ in range(count)]
    peers = ControllerPeers(addresses[:1], lambda: None)
    peers.start()
    try:
        yield quorum, peers
    finally:
        await peers.stop()
        for _, server in quorum.running:
            await server.stop(0)


async def test_members_that_come_are_connected_to_and_those_that_go_are_left() -> None:
    async with members(1) as (quorum, peers):
        await eventually(lambda: peers.connections == 1, "the one in the settings")
        await quorum.add()
        await quorum.add()
        await eventually(lambda: peers.connections == 3, "two came")
        gone = quorum.said.pop(0)
        await eventually(lambda: gone not in peers.dialled, "the leader's word takes one away")
        await eventually(lambda: peers.connections == 2, "the others stay")
        server = dict(quorum.running)[gone]
        await eventually(lambda: not server.connections, "nothing is left at who went")


async def test_a_follower_that_is_behind_takes_nobody_away() -> None:
    async with members(3) as (quorum, peers):
        await eventually(lambda: peers.connections == 3, "all three")
        quorum.lead = False
        del quorum.said[1:]
        heard = [peer.round_trip_s for peer in peers._peers]
        await eventually(
            lambda: all(p.round_trip_s != h for p, h in zip(peers._peers, heard, strict=True)),
            "each has said so",
        )
        assert peers.connections == 3


async def test_a_process_whose_controllers_all_went_finds_the_others_behind_their_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings name a pod that is gone; the Service of its StatefulSet has another one."""
    quorum = Members()
    address = await quorum.add()
    port = address.rpartition(":")[2]
    pods = [f"q-{n}.q.mq.svc" for n in range(2)]
    quorum.said[:] = [f"{pods[1]}:{port}", f"{pods[0]}:{port}"]
    hosts = tmp_path / "hosts"
    hosts.write_text(json.dumps({pods[1]: "127.0.0.1", "q.mq.svc": "127.0.0.1"}))
    monkeypatch.setenv(HOSTS_VARIABLE, str(hosts))
    peers = ControllerPeers([f"{pods[0]}:{port}"], lambda: None)
    peers.start()
    try:
        await eventually(lambda: peers.connections == 1, "it is found")
        assert f"{pods[1]}:{port}" in peers.dialled
    finally:
        await peers.stop()
        await quorum.running[0][1].stop(0)
