"""Connections of peers: which of them counts, and what its end says."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from gantry_controller.node import dialler as dialling
from gantry_controller.node.dialler import Dialler, _Outgoing
from gantry_controller.node.framing import VERSION, Hello, encode_hello
from gantry_controller.node.listener import CONNECTIONS_MAX, PeerListener, _Incoming
from gantry_lab.bench.ports import free_ports
from gantry_protocol.types import NodeId
from support.raft_quorum import until

ME, PEER = NodeId(1), NodeId(2)
HELLO = Hello(VERSION, PEER, ME, "q", "h:1")


class Wire:
    """A transport that leads nowhere; it closes by itself after so many pings."""

    def __init__(self, pings: int = 1_000) -> None:
        self.aborted = False
        self._pings = pings

    def get_extra_info(self, _: str) -> None:
        return None

    def write(self, _: bytes) -> None:
        self._pings -= 1

    def is_closing(self) -> bool:
        return self.aborted or self._pings < 0

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.aborted = True


class Peers:
    """A listener, and who left."""

    def __init__(self) -> None:
        self.left: list[NodeId] = []
        self.listener = PeerListener(
            ME,
            "q",
            lambda *_: None,
            lambda *_: None,
            greeted=lambda *_: None,
            left=self.left.append,
        )

    def connect(self, *, greets: bool = True) -> tuple[_Incoming, Wire]:
        wire: Any = Wire()
        connection = _Incoming(self.listener)
        connection.connection_made(wire)
        if greets:
            connection.data_received(encode_hello(HELLO))
        return connection, wire


async def test_the_end_of_a_connection_that_was_replaced_says_nothing() -> None:
    peers = Peers()
    older, its_wire = peers.connect()
    newer, wire = peers.connect()
    assert (its_wire.aborted, wire.aborted) == (True, False)
    older.connection_lost(None)
    assert peers.left == []
    newer.connection_lost(None)
    assert peers.left == [PEER]


async def test_strangers_make_room_for_who_comes_later() -> None:
    peers = Peers()
    made = [peers.connect(greets=False) for _ in range(CONNECTIONS_MAX + 1)]
    assert [wire.aborted for _, wire in made] == [True] + [False] * CONNECTIONS_MAX
    assert peers.listener.connections == CONNECTIONS_MAX
    for connection, _ in made:
        connection.connection_lost(None)


async def test_who_says_nothing_is_shown_out() -> None:
    peers = Peers()
    connection, wire = peers.connect(greets=False)
    connection._check_idle()
    assert wire.aborted
    connection.connection_lost(None)


async def test_a_peer_that_never_was_there_is_not_gone() -> None:
    (port,), gone = free_ports(1), list[NodeId]()
    dialler = Dialler(PEER, f"127.0.0.1:{port}", HELLO, process_gone=gone.append)
    task = asyncio.create_task(dialler.run())
    await until(lambda: "cannot be reached" in dialler._said)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert gone == []


async def test_a_connection_whose_peer_is_silent_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dialling, "PING_EVERY_S", 0)
    dialler = Dialler(PEER, "h:1", HELLO, process_gone=lambda _: None)
    wire: Any = Wire(pings=3)
    outgoing = _Outgoing(HELLO)
    outgoing.heard_at -= dialling.SILENCE_MAX_S + 1
    await dialler._hold(wire, outgoing)
    assert dialler._said == "peer is silent"
