"""A real controller's handlers on loopback sockets, over a quorum of one voice.

Everything but the Raft log is real: dispatcher, liveness with knocking, notifications, metadata.
"""

from __future__ import annotations

import os
from pathlib import Path

from gantry_controller.liveness.watchman import Watchman
from gantry_controller.metadata.events import DeclareGroup, encode_event
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.state import BrokerGroup
from gantry_controller.nameserver.imports import Imports
from gantry_controller.nameserver.requests import NameRequests
from gantry_controller.remoting.control import ControllerRequests
from gantry_controller.remoting.dispatcher import Dispatcher
from gantry_controller.remoting.guard import Guard
from gantry_controller.remoting.live_settings import LiveSettings
from gantry_controller.remoting.notifier import Notifier
from gantry_lab.bench.ports import free_ports
from gantry_protocol.headers.controller import GetMetadataResponseHeader
from gantry_protocol.quorum_key import NO_KEY, KeyFile
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.server import RemotingServer
from support.controller_dispatcher import FakeForwarder, FakeQuorum, describe

CLUSTER, GROUP = "c", "g"


# Processes that a test starts show it their key; what a test says itself shows none.
_FILE = os.environ.get("GANTRY_QUORUM_KEY_FILE")
KEY = KeyFile(Path(_FILE)) if _FILE else NO_KEY


class LoopbackController:
    """Must be made inside a running event loop; ``start`` it, ``stop`` it.

    Masters stay where they are, unless it ``spreads`` them.
    """

    def __init__(
        self,
        machine: MetadataStateMachine | None = None,
        *,
        spreads: bool = False,
        key: KeyFile = KEY,
    ) -> None:
        self.machine = MetadataStateMachine() if machine is None else machine
        self.quorum = FakeQuorum(self.machine)
        self.watchman = Watchman(
            self.machine, self.quorum.propose, default_timeout_s=2.5, spreads=spreads
        )
        dispatcher = Dispatcher(
            self.quorum,
            FakeForwarder(),  # type: ignore[arg-type]  # a fake of the same shape
            lambda: self.machine.state.index,
            describe,
            Guard(key, is_open=True),
        )
        self.dispatcher = dispatcher
        self.imports = Imports(self.machine, self.quorum.propose, lambda: True)
        ControllerRequests(
            dispatcher,
            self.machine,
            self.watchman,
            describe=lambda: GetMetadataResponseHeader("g", True, "n1:h:1;", "n1", self.address),
            listing=dict,
            live_settings=LiveSettings(),
            default_timeout_s=2.5,
            refresh=self.imports.refreshed,
        )
        NameRequests(dispatcher, self.machine, self.imports, dict)
        self.notifier = Notifier(self.machine.state, lambda: True, self._living)
        self.machine.add_listener(self.notifier.applied)
        self.machine.add_consumer_listener(self.notifier.consumers_changed)
        self.server = RemotingServer(dispatcher.handle, on_close=self._closed)
        self.address = ""

    async def start(self, port: int = 0) -> str:
        port = await self.server.start("127.0.0.1", port or free_ports(1)[0])
        self.address = f"127.0.0.1:{port}"
        self.watchman.start()
        self.watchman.role_changed(leading=True)
        return self.address

    async def stop(self) -> None:
        await self.server.stop(0)
        self.dispatcher.close()
        self.imports.stop()
        await self.notifier.close()
        await self.watchman.stop()

    def declare(self, replicas: int = 3, min_in_sync: int = 2, name: str = GROUP) -> None:
        event = DeclareGroup(
            cluster=CLUSTER,
            name=name,
            uid="u" if name == GROUP else f"u-{name}",
            replicas=replicas,
            min_in_sync_replicas=min_in_sync,
        )
        self.quorum._apply(encode_event(event))

    @property
    def group(self) -> BrokerGroup:
        return self.machine.state.groups[CLUSTER, GROUP]

    def _closed(self, connection: Connection) -> None:
        self.watchman.connection_closed(connection.id)

    def _living(self, group: BrokerGroup) -> list[str]:
        return [one.address for one in group.members if self.watchman.is_alive(group, one)]
