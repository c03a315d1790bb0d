"""A group with clients outside of its cluster, which reach it by node ports only: real processes.

A node is an address with two ports: one that leads to some door of the group, as a Service of all
pods does, and one that leads to the broker of one pod. Who comes in by the listener is counted
there. The broker's own addresses are for those inside, and the node ports are not for them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from gantry_controller.metadata.events import DeclareGroup, encode_event
from gantry_controller.metadata.listeners import GroupListener, ListenedMember
from gantry_protocol.command import request
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.remoting.server import RemotingServer
from gantry_protocol.tls.process import NO_TLS, Tls
from gantry_protocol.types import BrokerId
from support.broker_processes import Group
from support.loopback_controller import CLUSTER, GROUP
from support.patience import PATIENCE_S

GROUP_PORT, OWN_PORT = 30911, 31001


class Node:
    """A machine with node ports; ``come`` counts the connections to them."""

    def __init__(self, ip: str) -> None:
        self.ip = ip
        self.come = 0
        self._servers: list[asyncio.Server] = []
        self._open: set[asyncio.StreamWriter] = set()

    async def open(self, port: int, targets: Callable[[], list[str]]) -> None:
        """Has a port lead to the first of ``targets`` that accepts."""
        serve = partial(self._serve, targets)
        self._servers.append(await asyncio.start_server(serve, self.ip, port))

    def lose(self) -> None:
        """The machine is gone, and its connections with it."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(
        self,
        targets: Callable[[], list[str]],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.come += 1
        self._open.add(writer)
        try:
            for target in targets():
                host, _, port = target.partition(":")
                with suppress(OSError):
                    back, forth = await asyncio.open_connection(host, int(port))
                    await asyncio.gather(_copy(reader, forth), _copy(back, writer))
                    return
        finally:
            self._open.discard(writer)
            writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


class Outside:
    """A group with doors, a node for each pod, and a name service that listens for those outside.

    Attributes:
        group: the processes.
        nodes: by the address of the pod on it.
        way_in: the name service's port of the listener.

    Args:
        group: the processes.
        tls: of the name service's port.
        door_port, broker_port: where the listener is at the pods.
    """

    def __init__(
        self, group: Group, tls: Tls = NO_TLS, door_port: int = 10910, broker_port: int = 10911
    ) -> None:
        self.group = group
        self._door_port, self._broker_port = door_port, broker_port
        self.nodes: dict[str, Node] = {}
        self.way_in = ""
        dispatcher = group.controller.dispatcher
        self._names = RemotingServer(partial(dispatcher.handle_outside, "outside"), tls=tls)

    async def start(self) -> None:
        await self.group.start()
        await self.group.open_doors()
        for number, ip in enumerate(sorted(self.group.processes)):
            node = self.nodes[ip] = Node(f"{self.group.network}.{201 + number}")
            await node.open(GROUP_PORT, self._living_doors)
            await node.open(OWN_PORT, partial(list, [f"{ip}:{self._broker_port}"]))
        self.way_in = f"127.0.0.1:{await self._names.start('127.0.0.1', 0)}"
        members = tuple(
            ListenedMember(
                BrokerId(member.broker_id),
                f"{self._node(member.address).ip}:{GROUP_PORT}",
                f"{self._node(member.address).ip}:{OWN_PORT}",
            )
            for member in self.group.controller.group.members
        )
        self._declare(GroupListener("outside", members))

    async def stop(self) -> None:
        await self._names.stop(0)
        for node in self.nodes.values():
            node.lose()
        await self.group.stop()

    @property
    def come(self) -> int:
        """Connections to all nodes so far."""
        return sum(node.come for node in self.nodes.values())

    async def route(self, name_server: str) -> dict[str, str]:
        """The addresses of the group's brokers as they are told there."""
        client = RemotingClient()
        await client.connect(name_server)
        answer = await client.call(request(105, {"topic": "TBW102"}), PATIENCE_S)
        client.close()
        (broker,) = json.loads(answer.body)["brokerDatas"]
        found: dict[str, str] = broker["brokerAddrs"]
        return found

    def _declare(self, listener: GroupListener) -> None:
        event = DeclareGroup(
            cluster=CLUSTER,
            name=GROUP,
            uid="u",
            replicas=3,
            min_in_sync_replicas=2,
            listeners=(listener,),
        )
        assert self.group.controller.quorum._apply(encode_event(event)).ok

    def _node(self, address: str) -> Node:
        return self.nodes[address.partition(":")[0]]

    def _living_doors(self) -> list[str]:
        doors = sorted(self.group.doors.items())
        master = self.group.controller.group.master_id or 0
        turned = doors[master % len(doors) :] + doors[: master % len(doors)]
        living = (ip for ip, door in turned if door.process.poll() is None)
        return [f"{ip}:{self._door_port}" for ip in living]
