"""A broker group of bare processes on this machine: one controller, its brokers, nothing else.

For measurements in which an operator and an API server would only take part as noise. Rule
protected: whatever ends the measurement, its processes end with it. What it refuses: to go on
without a process that ended by itself; the sentence says which, and where its log is.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
from typing import TYPE_CHECKING

import aiohttp
from gantry_operator.controllers.admin import Admin
from gantry_operator.controllers.errors import AdminError
from gantry_operator.controllers.quorum import Endpoint, Quorum
from gantry_protocol.admin import GroupDeclaration, GroupView
from gantry_protocol.errors import GantryError
from gantry_protocol.process.listening import bind

from gantry_cli.trial.narrate import settled

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

GROUP = "bench"
CLUSTER = "gantry"
HOST = "127.0.0.1"
REPLICAS = 3
MIN_IN_SYNC = 2
READY_PATIENCE_S = 60.0
STOP_PATIENCE_S = 20.0
ASK_S = 0.05  # between two questions to the controller


class Members:
    """Use as an async context manager; leaving it ends every process.

    Args:
        directory: for data, logs and the token; it exists.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._token = secrets.token_hex(16)
        self._controller: asyncio.subprocess.Process | None = None
        self._brokers: dict[str, asyncio.subprocess.Process] = {}
        self._session: aiohttp.ClientSession | None = None
        self._admin: Admin | None = None
        self._ports: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        names = ("remoting", "nameserver", "raft", "http")
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        token = self._directory / "token"
        token.write_text(self._token, encoding="ascii")
        self._controller = await self._spawn(
            "controller",
            {
                "GANTRY_ADMIN_TOKEN_FILE": str(token),
                **{f"GANTRY_{name.upper()}_PORT": str(port) for name, port in self._ports.items()},
            },
        )
        self._session = aiohttp.ClientSession()
        self._admin = Admin(
            Quorum("The controller", lambda: [self.endpoint], self._read_token, self._session),
            CLUSTER,
        )
        try:
            await self._declare()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close()

    @property
    def endpoint(self) -> Endpoint:
        """The controller's admin API."""
        return Endpoint("controller", HOST, self._ports["http"])

    @property
    def token(self) -> str:
        """Of that API."""
        return self._token

    @property
    def name_servers(self) -> list[str]:
        """Whom clients ask for routes."""
        return [f"{HOST}:{self._ports['nameserver']}"]

    async def start(self, variables: Mapping[str, str] | None = None) -> GroupView:
        """Start every broker that does not run, with `variables` besides; the group once settled.

        Raises:
            GantryError: a process ended by itself, or the group did not settle in time.
        """
        for number in range(REPLICAS):
            name = f"{GROUP}-broker-{number}"
            if name not in self._brokers:
                self._brokers[name] = await self._spawn(
                    "broker",
                    {
                        "GANTRY_NAME": name,
                        "GANTRY_POD_UID": name,  # the name comes back with the group's members
                        "GANTRY_GROUP": GROUP,
                        "GANTRY_CLUSTER": CLUSTER,
                        "GANTRY_CONTROLLERS": f"{HOST}:{self._ports['remoting']}",
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
                return group
            await asyncio.sleep(ASK_S)
        raise GantryError(
            f"The broker group did not settle in {READY_PATIENCE_S:.0f} s; its logs are in "
            f"{self._directory}."
        )

    async def group(self) -> GroupView | None:
        """What the controller says of the group; None if it says nothing."""
        assert self._admin is not None
        found = await self._admin.group(GROUP)
        return found if isinstance(found, GroupView) else None

    async def stop(self) -> None:
        """SIGTERM to every broker, and wait for the end."""
        brokers, self._brokers = self._brokers, {}
        await asyncio.gather(*(end_process(process) for process in brokers.values()))

    async def kill_master(self) -> int:
        """SIGKILL the master's process; its epoch."""
        group = await self.until_settled()
        (master,) = [one for one in group.members if one.broker_id == group.master_broker_id]
        process = self._brokers.pop(str(master.pod_uid))
        process.kill()
        await process.wait()
        return group.master_epoch

    def check(self) -> None:
        """Raise if a process has ended by itself."""
        for name, process in {**self._brokers, "controller": self._controller}.items():
            if process is not None and process.returncode is not None:
                raise GantryError(
                    f"The process of {name} ended with {process.returncode}; its log is "
                    f"{self._directory / name}.log."
                )

    # ---- inside

    async def _close(self) -> None:
        try:
            await self.stop()
        finally:
            if self._controller is not None:
                await end_process(self._controller)
            if self._session is not None:
                await self._session.close()

    def _is_ours(self, group: GroupView) -> bool:
        """Whether the members are processes that run, not what the controller remembers."""
        return {one.pod_uid for one in group.members if one.alive} == set(self._brokers)

    async def _declare(self) -> None:
        wish = GroupDeclaration(uid=GROUP, replicas=REPLICAS, min_in_sync_replicas=MIN_IN_SYNC)
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

    async def _spawn(self, kind: str, variables: Mapping[str, str]) -> asyncio.subprocess.Process:
        name = variables.get("GANTRY_NAME", kind)
        inherited = {key: value for key, value in os.environ.items() if key[:7] != "GANTRY_"}
        data = {"GANTRY_DATA_DIR": str(self._directory / name)}
        with (self._directory / f"{name}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gantry_cli", kind),
                env={**inherited, **data, **variables},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is ours; the group ends in order
            )

    async def _read_token(self, _: bool) -> str:
        return self._token


async def end_process(process: asyncio.subprocess.Process) -> None:
    """SIGTERM, and SIGKILL if that is not enough; until it is gone."""
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_PATIENCE_S):
                await process.wait()
        except TimeoutError:
            process.kill()
    await process.wait()


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on just now; held open together, so that no two are the same."""
    listeners = [bind(HOST, 0, purpose="a measurement") for _ in range(count)]
    ports = [int(listener.getsockname()[1]) for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
