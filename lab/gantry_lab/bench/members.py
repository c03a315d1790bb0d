"""A broker group of bare processes on this machine: its brokers, and one controller or more.

Whatever ends the measurement, its processes end with it, and it does not go on without one that
ended by itself (`processes`).
"""

from __future__ import annotations

import asyncio
import shutil
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import aiohttp
from gantry_cli.trial.narrate import settled
from gantry_protocol.admin import GroupDeclaration, GroupView
from gantry_protocol.admin_client import quorum as admin_quorum
from gantry_protocol.admin_client.admin import Admin
from gantry_protocol.admin_client.errors import AdminError
from gantry_protocol.errors import GantryError

from gantry_lab.bench.controller.quorum import ProcessQuorum
from gantry_lab.bench.processes import Processes
from gantry_lab.bench.usage import cpu_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Self

GROUP = "bench"
CLUSTER = "gantry"
CONTROLLER = 1  # the number of the first
REPLICAS = 3
MIN_IN_SYNC = 2
READY_PATIENCE_S = 60.0
ASK_S = 0.05  # between two questions to the controller


class Members:
    """Use as an async context manager; leaving it ends every process.

    Args:
        directory: for data, logs and the token; it exists.
        replicas: how many brokers; the group wants two of them in sync, if there are two.
        controllers: how many of these.

    Attributes:
        killed_s: when the last master was killed, by the monotonic clock.
    """

    def __init__(self, directory: Path, *, replicas: int = REPLICAS, controllers: int = 1) -> None:
        self.killed_s = 0.0
        self._replicas = replicas
        self._controllers = ProcessQuorum(directory, nodes=controllers)
        self._brokers = Processes(directory)
        self._master: str | None = None  # as of the last time the group was settled
        self._open = AsyncExitStack()
        self._admin: Admin | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._controllers)
            stack.push_async_callback(self.stop)
            session = await stack.enter_async_context(aiohttp.ClientSession())
            asked = admin_quorum.Quorum(
                "The controller", self._controllers.endpoints, self._read_token, session
            )
            self._admin = Admin(asked, CLUSTER)
            await self._declare()
            self._open = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    @property
    def token(self) -> str:
        """Of that API."""
        return self._controllers.token

    @property
    def name_servers(self) -> list[str]:
        """Whom clients ask for routes."""
        return [self._controllers.address(node, "nameserver") for node in self._controllers.nodes]

    def controller(self, port: str) -> str:
        """An address of the first controller: `remoting`, `nameserver`, `http` or `raft`."""
        return self._controllers.address(CONTROLLER, port)

    async def start(self, variables: Mapping[str, str] | None = None) -> GroupView:
        """Start every broker that does not run, with `variables` besides; the group once settled.

        Raises:
            GantryError: a process ended by itself, or the group did not settle in time.
        """
        for number in range(self._replicas):
            name = f"{GROUP}-broker-{number}"
            if name not in self._brokers.names:
                await self._brokers.start(
                    name,
                    ("gantry_cli", "broker"),
                    {
                        "GANTRY_POD_UID": name,  # the name comes back with the group's members
                        "GANTRY_GROUP": GROUP,
                        "GANTRY_CLUSTER": CLUSTER,
                        "GANTRY_CONTROLLERS": ",".join(
                            map(self._controllers.address, self._controllers.nodes)
                        ),
                        "GANTRY_QUORUM_KEY_FILE": str(self._controllers.key_file),
                        "GANTRY_REMOTING_PORT": "0",
                        "GANTRY_HA_PORT": "0",
                        "GANTRY_HTTP_PORT": "0",
                        **(variables or {}),
                    },
                )
        return await self.until_settled()

    async def until_settled(self) -> GroupView:
        """The group, as soon as it has a master and everybody is in sync."""
        deadline = asyncio.get_running_loop().time() + READY_PATIENCE_S
        while asyncio.get_running_loop().time() < deadline:
            self.check()
            group = await self.group()
            if group is not None and settled(group) and self._is_ours(group):
                self._master = _master_of(group)
                return group
            await asyncio.sleep(ASK_S)
        raise GantryError(
            f"The broker group did not settle in {READY_PATIENCE_S:.0f} s; its logs are in "
            f"{self._brokers.directory}."
        )

    async def group(self) -> GroupView | None:
        """The group by the controller's word; None if it says nothing."""
        assert self._admin is not None
        found = await self._admin.group(GROUP)
        return found if isinstance(found, GroupView) else None

    async def stop(self) -> None:
        """SIGTERM to every broker, and wait for the end."""
        await self._brokers.end()

    async def kill_master(self) -> int:
        """SIGKILL the master's process; its epoch."""
        group = await self.until_settled()
        self.killed_s = time.monotonic()
        await self._brokers.kill(self.master)
        return group.master_epoch

    async def lose_replica(self) -> str:
        """SIGKILL a replica that is not the master, and remove its disk; its name."""
        await self.until_settled()
        name = next(name for name in self._brokers.names if name != self.master)
        await self._brokers.kill(name)
        await asyncio.to_thread(shutil.rmtree, self.data(name))
        return name

    @property
    def master(self) -> str:
        """The name of the master's process, as of the last time the group was settled."""
        assert self._master is not None, "start the group first"
        return self._master

    @property
    def names(self) -> list[str]:
        """The brokers that run."""
        return self._brokers.names

    def data(self, name: str) -> Path:
        """The data directory of a broker."""
        return self._brokers.directory / name

    def pid(self, name: str) -> int:
        """The process id of a broker."""
        return self._brokers.pid(name)

    def cpu_s(self) -> tuple[float, float]:
        """CPU seconds used so far by the master, and by all replicas together."""
        used = {name: cpu_of(self._brokers.pid(name)) for name in self._brokers.names}
        master = used.pop(self.master)
        return master, sum(used.values())

    def check(self) -> None:
        """Raise if a process has ended by itself."""
        self._controllers.check()
        self._brokers.check()

    # ---- inside

    def _is_ours(self, group: GroupView) -> bool:
        """Whether the members are processes that run, not what the controller remembers."""
        return {member.pod_uid for member in group.members if member.alive} == set(
            self._brokers.names
        )

    async def _declare(self) -> None:
        wish = GroupDeclaration(
            uid=GROUP,
            replicas=self._replicas,
            min_in_sync_replicas=min(MIN_IN_SYNC, self._replicas),
        )
        deadline = asyncio.get_running_loop().time() + READY_PATIENCE_S
        assert self._admin is not None
        while True:
            self.check()
            try:
                await self._admin.declare(GROUP, wish)
            except AdminError as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise GantryError(str(error)) from error
                await asyncio.sleep(ASK_S)
            else:
                return

    async def _read_token(self, _: bool) -> str:
        return self.token


def _master_of(group: GroupView) -> str:
    (master,) = [member for member in group.members if member.broker_id == group.master_broker_id]
    return str(master.pod_uid)
