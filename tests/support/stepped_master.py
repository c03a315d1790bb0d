"""A master and a name server without sockets, on a clock that moves only when it is told to.

Everything between a connection's bytes and the log is real: frames, routing, requests, queues,
timers, routes. What differs from one run to the next is not there: time passes in ticks, clients
have the addresses they are given, what is appended is flushed and confirmed before the append
returns. So the same bytes at the same ticks get the same answers, to the last byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gantry_broker.clients import ClientProcessor
from gantry_broker.clients.core.transactions import Policy
from gantry_broker.clients.routing import ClientRouter
from gantry_broker.clients.view import Created
from gantry_controller.metadata.events import CreateTopic
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.topic_table import Topic
from gantry_controller.nameserver.imports import Imports
from gantry_controller.nameserver.requests import NameRequests
from gantry_controller.remoting.dispatcher import Dispatcher
from gantry_controller.remoting.guard import Guard
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.quorum_key import NO_KEY
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.server import RemotingServer
from gantry_protocol.remoting.turns import Turns
from support.controller_dispatcher import FakeForwarder, FakeQuorum, describe, listing
from support.group_view import FakeGroup
from support.metadata_world import CLUSTER, World

TICK_MS = 10
HOST = "127.0.0.1"
BROKER_PORT, NAMES_PORT = 20911, 29876  # a recorder listens here: the first is part of every route
FIRST_CLIENT_PORT = 40_000
TURNS = 6  # of the loop for whatever a tick or some bytes bring about
NAMES, BROKER = "N", "B"  # the two servers
POLICY = Policy(timeout_ms=500, interval_ms=1000)  # nobody waits half a minute to be asked

Heard = Callable[[str, bytes | None], None]


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is the caller's; it is never to be waited in."""

    ticks = 0

    def time(self) -> float:
        return self.ticks * TICK_MS / 1000


class _Transport(asyncio.Transport):
    """A client's end: what is written is heard at once."""

    def __init__(self, name: str, number: int, heard: Heard) -> None:
        super().__init__(
            {"peername": (HOST, FIRST_CLIENT_PORT + number), "sockname": (HOST, BROKER_PORT)}
        )
        self._name, self._heard = name, heard
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._heard(self._name, bytes(data))

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._heard(self._name, None)

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever buffered here."""

    def pause_reading(self) -> None:
        raise AssertionError("a client that says little is always read from")

    resume_reading = pause_reading


class _Group(FakeGroup):
    """Topics are made at the name server, too."""

    store_host = (HOST, BROKER_PORT)
    leaving = False

    def __init__(self, directory: Path, world: World) -> None:
        super().__init__(directory)
        self._world = world

    def create_topic(self, topic: TopicConfig, done: Created, *, if_absent: bool) -> None:
        shape = Topic(topic.read_queue_nums, topic.write_queue_nums, topic.perm)
        made = self._world.apply(
            CreateTopic(
                cluster=CLUSTER,
                name=self.broker_name,
                topic=topic.topic_name,
                config=shape,
                if_absent=if_absent,
            )
        )
        assert made.ok, made
        super().create_topic(topic, done, if_absent=if_absent)


class SteppedMaster:
    """See the module; made by ``stepped_master``.

    Args:
        directory: of the log.
        began_ms: since 1970, at tick 0.
        heard: called with the name of a connection and what it was sent; None is its end.
    """

    def __init__(self, directory: Path, began_ms: int, heard: Heard) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SteppedLoop)
        self._loop, self._began_ms, self._heard = loop, began_ms, heard
        machine = MetadataStateMachine()
        world = World()
        world.state = machine.state
        world.declare(1, 1, route=f"{HOST}:{BROKER_PORT}")
        world.join(1)
        assert world.elect(live=[1], waited=True).ok
        self._group = _Group(directory, world)
        self._processor = ClientProcessor(
            self._group, clock=lambda: self.now_ms / 1000, policy=POLICY
        )
        self._router = ClientRouter(
            master_address=lambda: "",
            epoch=lambda: 0,
            ask=lambda: None,
        )
        self._router.member = self._group
        self._router.processor = self._processor
        self._dispatcher, self._imports = _name_service(machine)
        self._servers = {
            NAMES: RemotingServer(self._dispatcher.handle, turns=Turns(lambda: 0.0)),
            BROKER: RemotingServer(
                self._router.handle,
                on_close=self._processor.connection_closed,
                on_response=self._processor.answered,
                turns=Turns(lambda: 0.0),  # however slow this machine is: it is their turn
            ),
        }
        self._connections: dict[str, tuple[Connection, _Transport]] = {}

    @property
    def now_ms(self) -> int:
        """Since 1970."""
        return self._began_ms + self._loop.ticks * TICK_MS

    async def start(self) -> None:
        for server in self._servers.values():
            await server.start(HOST, 0)

    async def stop(self) -> None:
        for name in list(self._connections):
            self.disconnect(name)
        for server in self._servers.values():
            await server.stop(0)
        self._router.close()
        self._processor.close()
        self._dispatcher.close()
        self._imports.stop()
        self._group.messages.close()

    def connect(self, name: str) -> None:
        """A client connects; the first letter of the name says to what."""
        number = int(name[1:])
        connection = Connection(self._servers[name[0]], number)
        transport = _Transport(name, number, self._heard)
        self._connections[name] = connection, transport
        connection.connection_made(transport)

    def say(self, name: str, data: bytes) -> None:
        """A client's bytes; nobody hears them when the server has closed the connection."""
        connection, transport = self._connections[name]
        if not transport.is_closed:
            connection.data_received(data)

    def disconnect(self, name: str) -> None:
        """A client is gone."""
        connection, transport = self._connections.pop(name)
        transport.is_closed = True
        connection.connection_lost(None)

    async def advance(self, ticks: int) -> None:
        """Let time pass until then."""
        while self._loop.ticks < ticks:
            self._loop.ticks += 1
            self._group.now_ms = max(self._group.now_ms, self.now_ms)
            await self.settle()

    async def settle(self) -> None:
        """Let everything happen that needs no time."""
        for _ in range(TURNS):
            await asyncio.sleep(0)


def _name_service(machine: MetadataStateMachine) -> tuple[Dispatcher, Imports]:
    quorum: Any = FakeQuorum(machine)  # of one voice
    forwarder: Any = FakeForwarder()
    dispatcher = Dispatcher(
        quorum, forwarder, lambda: machine.state.index, describe, Guard(NO_KEY, is_open=True)
    )
    imports = Imports(machine, quorum.propose, lambda: True)
    NameRequests(dispatcher, machine, imports, listing)
    return dispatcher, imports


@asynccontextmanager
async def stepped_master(
    directory: Path, began_ms: int, heard: Heard
) -> AsyncIterator[SteppedMaster]:
    """A master that serves, within a ``SteppedLoop``."""
    master = SteppedMaster(directory, began_ms, heard)
    await master.start()
    try:
        yield master
    finally:
        await master.stop()
