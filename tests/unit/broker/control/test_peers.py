"""Connections to all controllers: whom a question goes to."""

from __future__ import annotations

import asyncio

from gantry_broker.control.peers import ControllerPeers
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.server import RemotingServer
from support.broker_cluster import eventually


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
