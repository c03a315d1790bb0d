"""Two broker groups of one member each, three controllers, and a client's way to one of them.

A client that is given ``names`` for its name server reaches the master of ``FAR`` only through
``way``: what it asks is passed on to a controller, and routes name the relay's address in place of
the master's. The way can be closed while every other connection goes on.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Self

from gantry_lab.bench.controller.quorum import ProcessQuorum
from gantry_protocol.admin import GroupDeclaration
from gantry_protocol.bodies import decode_body
from gantry_protocol.bodies.consumers import ConsumerTable
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.errors import RemotingError
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.headers.consumers import GetConsumersRequestHeader
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.remoting.server import Connection, RemotingServer
from support.broker_processes import Process, own_network
from support.cut_off import Relay
from support.loopback_controller import CLUSTER
from support.patience import PATIENCE_S, STARTS_WITHIN_S

NEAR, FAR = "g-near", "g-far"
PORT = 10911
POLL_S = 0.1


class NameRelay:
    """A name server that passes requests on, and names other addresses in routes.

    Args:
        upstream: the name server that answers.
        instead: by the address that it names, the one that its client hears.
    """

    def __init__(self, upstream: str, instead: dict[str, str]) -> None:
        self.address = ""
        self._upstream = upstream
        self._instead = instead
        self._server = RemotingServer(self._serve)
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str) -> None:
        self.address = f"{host}:{await self._server.start(host, 0)}"

    async def stop(self) -> None:
        await self._server.stop()
        await asyncio.gather(*self._tasks)

    def _serve(self, connection: Connection, command: RemotingCommand) -> None:
        task = asyncio.create_task(self._pass_on(connection, command))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, connection: Connection, command: RemotingCommand) -> None:
        try:
            answer = await ask(self._upstream, request(command.code, command.ext, command.body))
        except RemotingError as error:
            connection.reply(command, reply(command, ResponseCode.SYSTEM_ERROR, str(error)))
            return
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            for theirs, ours in self._instead.items():
                answer.body = answer.body.replace(f'"{theirs}"'.encode(), f'"{ours}"'.encode())
        answer.opaque = command.opaque
        connection.reply(command, answer)


class TwoGroups:
    """See the module; use as an asynchronous context manager.

    Args:
        directory: for data and logs; it exists.
        settings: of each broker, as variables of its environment.

    Attributes:
        way: to the master of ``FAR``, for the clients of ``names``.
        names: a name server for clients that shall use ``way``.
        masters: addresses by group.
    """

    def __init__(self, directory: Path, **settings: str) -> None:
        network = own_network()
        self._directory = directory
        self._settings = settings
        self._network = network
        self.masters = {NEAR: f"{network}.1:{PORT}", FAR: f"{network}.2:{PORT}"}
        self._way_host = f"{network}.102"
        self._quorum = ProcessQuorum(directory)
        self._processes: dict[str, Process] = {}
        self.way = Relay((f"{network}.2", PORT))
        self.names: NameRelay

    async def __aenter__(self) -> Self:
        await self._quorum.__aenter__()
        try:
            for name in list(self.masters):
                await self.start(name)
            await self.way.start(self._way_host, PORT)
            self.names = NameRelay(self.name_server, {self.masters[FAR]: self.way.address})
            await self.names.start(self._way_host)
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.names.stop()
        await self.way.stop()
        await self._end()

    @property
    def name_server(self) -> str:
        """For clients that reach both masters themselves."""
        return self._quorum.address(1, "nameserver")

    async def close_way(self) -> None:
        """End the connections, and refuse further ones."""
        await self.way.stop()

    async def open_way(self) -> None:
        """Take connections again."""
        await self.way.start(self._way_host, PORT)

    def silence_way(self) -> None:
        """Take connections and bytes, and pass nothing on, as a network that drops packets."""
        self.way.cut()

    def mend_way(self) -> None:
        """Pass on what has come meanwhile, and what comes."""
        self.way.mend()

    async def admin(self, method: str, path: str, body: object) -> int:
        """The status of a request to the controllers' admin API."""
        return await self._quorum.admin(method, path, body)

    async def create_topic(self, topic: str, queues: dict[str, int]) -> None:
        """Create ``topic`` with so many queues in each group."""
        for name, count in queues.items():
            ext = {"topic": topic, "defaultTopic": "TBW102", "perm": "6", "order": "false"}
            ext |= {"readQueueNums": str(count), "writeQueueNums": str(count)}
            ext |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}
            await answered(self.masters[name], request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext))

    async def reported(self, group: str, consumer_group: str) -> set[str]:
        """The members of a consumer group whom the master of ``group`` hears, by client id."""
        header = GetConsumersRequestHeader(group, CLUSTER, consumer_group)
        command = request(RequestCode.GANTRY_GET_CONSUMERS, to_ext(header))
        answer = await answered(self._quorum.address(1), command)
        found = decode_body(ConsumerTable, answer.body).groups.get(consumer_group)
        return set() if found is None else {one.client_id for one in found.clients}

    async def read(self, path: str) -> bytes:
        """What the leader's admin API says. Raises ClientError: there is none."""
        quorum = self._quorum
        url = f"http://{quorum.address(quorum.leading, 'http')}{path}"
        async with quorum.session.get(url) as response:
            response.raise_for_status()
            return await response.read()

    def end(self, name: str) -> None:
        """Kill the only member of a group."""
        one = self._processes.pop(name)
        one.process.kill()
        one.process.wait()

    async def start(self, name: str) -> None:
        """Declare a group, and start its only member."""
        self.masters.setdefault(name, f"{self._network}.{len(self.masters) + 1}:{PORT}")
        wish = GroupDeclaration(uid=name, replicas=1, min_in_sync_replicas=1)
        path = f"/v1/groups/{CLUSTER}/{name}"
        status = await self._quorum.admin("PUT", path, wish.model_dump(mode="json"))
        assert status in (200, 201), status
        host = self.masters[name].partition(":")[0]
        controllers = ",".join(self._quorum.address(node) for node in self._quorum.nodes)
        self._processes[name] = Process(
            self._directory / name,
            controllers,
            GANTRY_NAME=f"{name}-0",
            GANTRY_GROUP=name,
            GANTRY_BIND=host,
            GANTRY_REMOTING_PORT=str(PORT),
            GANTRY_QUORUM_KEY_FILE=str(self._quorum.key_file),
            GANTRY_ALLOW_UNAUTHENTICATED="true",
            **self._settings,
        )

    async def _end(self) -> None:
        for name in list(self._processes):
            self.end(name)
        await self._quorum.__aexit__(None, None, None)


async def ask(address: str, command: RemotingCommand) -> RemotingCommand:
    """The answer to one request on a connection of its own.

    Raises:
        RemotingError: there is none.
    """
    client = await RemotingClient().connect(address)
    try:
        return await client.call(command, PATIENCE_S)
    finally:
        client.close()


async def answered(address: str, command: RemotingCommand) -> RemotingCommand:
    """The first answer that is a success; whoever is asked may be about to start."""
    async with asyncio.timeout(STARTS_WITHIN_S):
        while True:
            try:
                answer = await ask(address, command)
            except RemotingError:
                pass
            else:
                if answer.code == ResponseCode.SUCCESS:
                    return answer
            await asyncio.sleep(POLL_S)
