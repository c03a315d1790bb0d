"""Controller processes on loopback, each with its own directory, syncing each write.

Use as an async context manager: it begins with a quorum that is whole, and its processes end with
it. A measurement of the controllers has three, one of brokers makes do with one.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
from typing import TYPE_CHECKING

import aiohttp
from gantry_protocol.admin import QuorumView
from gantry_protocol.admin_client.quorum import Endpoint
from gantry_protocol.errors import GantryError
from gantry_protocol.hosts import split_address
from gantry_protocol.quorum_key import write_key
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError

from gantry_lab.bench.controller.target import ASK_S, ROLES, leader_of
from gantry_lab.bench.ports import free_ports
from gantry_lab.bench.processes import HOST, Processes
from gantry_lab.bench.usage import cpu_of, rss_mb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Self

NODES = 3
OURS = ("gantry_cli", "controller")
SERIAL = ("gantry_lab.bench.controller.serial",)
"""Programs of a controller: the product's, and the old architecture's."""
PORTS = ("raft", "remoting", "http", "nameserver")
SETTLE_PATIENCE_S = 30.0
HTTP_PATIENCE_S = 30.0  # a snapshot takes its time
BEHIND_MAX = 100  # entries; a member closer than this to the leader counts as up to date


class ProcessQuorum:
    """See the module; these are `Controllers`.

    Args:
        directory: for data, logs and the token; it exists.
        settings: environment variables that every controller gets besides its own.
        nodes: how many.
        program: what each of them runs.

    Attributes:
        token: of the admin API.
    """

    roles = ROLES

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        nodes: int = NODES,
        program: Sequence[str] = OURS,
    ) -> None:
        self.token = secrets.token_hex(16)
        self._settings = dict(settings or {})
        self._program = program
        self._processes = Processes(directory)
        self._all = range(1, nodes + 1)
        self._ports: dict[int, dict[str, int]] = {}
        self._session: aiohttp.ClientSession | None = None
        self._leading: int | None = None  # when last asked

    async def __aenter__(self) -> Self:
        free = iter(free_ports(len(self._all) * len(PORTS)))
        self._ports = {node: {purpose: next(free) for purpose in PORTS} for node in self._all}
        self._token_file.write_text(self.token, encoding="ascii")
        timeout = aiohttp.ClientTimeout(total=HTTP_PATIENCE_S)
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self.token}"}, timeout=timeout
        )
        try:
            for node in self._all:
                await self.start(node)
            await self.settled()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    @property
    def key_file(self) -> Path:
        """The quorum's key, for brokers."""
        return write_key(self._token_file.with_name("quorum-key"))

    # ---- what a load asks

    async def leader(self) -> str:
        """See `Controllers`."""
        self.check()
        address = await leader_of(await self.members())
        self._leading = next(node for node in self._all if self.address(node) == address)
        return address

    async def members(self) -> Sequence[str]:
        """See `Controllers`; those that run."""
        return [self.address(node) for node in self.nodes]

    def cpu_s(self) -> tuple[float, float] | None:
        """See `Controllers`; who leads is as of the last `leader`."""
        used = {node: cpu_of(self._processes.pid(_name(node))) for node in self.nodes}
        leader = used.pop(self._leading or 0, 0.0)
        return leader, sum(used.values())

    # ---- processes

    @property
    def leading(self) -> int:
        """The node that led when last asked."""
        assert self._leading is not None, "ask for the leader first"
        return self._leading

    @property
    def nodes(self) -> Sequence[int]:
        """Those that run."""
        running = set(self._processes.names)
        return [node for node in self._all if _name(node) in running]

    def address(self, node: int, purpose: str = "remoting") -> str:
        """The address for brokers, or for another `purpose` (`PORTS`)."""
        return f"{HOST}:{self._ports[node][purpose]}"

    def endpoints(self) -> list[Endpoint]:
        """The admin APIs of those that run."""
        return [
            Endpoint(_name(node), *split_address(self.address(node, "http"))) for node in self.nodes
        ]

    async def start(self, node: int) -> None:
        """Start one controller that does not run."""
        peers = ",".join(
            f"{item}={HOST}:{ports['raft']}:{ports['remoting']}:{ports['http']}"
            for item, ports in self._ports.items()
        )
        variables = {
            "GANTRY_PEERS": peers,
            "GANTRY_CLUSTER_UID": "bench",
            "GANTRY_ADMIN_TOKEN_FILE": str(self._token_file),
            "GANTRY_QUORUM_KEY_FILE": str(self.key_file),
            "GANTRY_ALLOW_UNAUTHENTICATED": "true",  # the load shows no key; all is on loopback
            **{f"GANTRY_{key.upper()}_PORT": str(port) for key, port in self._ports[node].items()},
        }
        await self._processes.start(_name(node), self._program, {**variables, **self._settings})

    async def kill(self, node: int) -> None:
        """SIGKILL, and until it is gone."""
        await self._processes.kill(_name(node))

    def pause(self, node: int) -> None:
        """SIGSTOP."""
        self._processes.signal(_name(node), signal.SIGSTOP)

    def resume(self, node: int) -> None:
        """SIGCONT."""
        self._processes.signal(_name(node), signal.SIGCONT)

    def rss_mb(self, node: int) -> float:
        """Memory of its process."""
        return rss_mb(self._processes.pid(_name(node)))

    def check(self) -> None:
        """Raise if a process has ended by itself."""
        self._processes.check()

    # ---- its admin API

    async def settled(self) -> QuorumView:
        """The leader's view, once everybody follows it and is nearly up to date.

        Raises:
            GantryError: that does not happen, or a process has ended.
        """
        deadline = asyncio.get_running_loop().time() + SETTLE_PATIENCE_S
        while asyncio.get_running_loop().time() < deadline:
            await self.leader()
            view = await self.view(self.leading)
            if view is not None and view.role == "leader" and _together(view):
                return view
            await asyncio.sleep(ASK_S)
        raise GantryError(
            f"The quorum did not settle in {SETTLE_PATIENCE_S:.0f} s; its logs are in "
            f"{self._processes.directory}."
        )

    async def view(self, node: int) -> QuorumView | None:
        """The quorum by `node`'s word; None if it says nothing."""
        try:
            async with self.session.get(self._url(node, "/v1/quorum")) as response:
                return QuorumView.model_validate_json(await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError, ValidationError):
            return None

    async def admin(
        self, method: str, path: str, body: object = None, *, node: int | None = None
    ) -> int:
        """The status of one request to an admin API, by default the leader's."""
        url = self._url(self.leading if node is None else node, path)
        async with self.session.request(method, url, json=body) as response:
            await response.read()
            return response.status

    async def counts(self, node: int, name: str, label: str) -> dict[str, float]:
        """One of `node`'s metrics, by the value of a label; empty for one without samples."""
        async with self.session.get(self._url(node, "/metrics")) as response:
            text = await response.text()
        return {
            sample.labels.get(label, ""): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == f"gantry_controller_{name}"
        }

    @property
    def session(self) -> aiohttp.ClientSession:
        """For HTTP, with the token."""
        assert self._session is not None, "use the quorum as a context manager"
        return self._session

    def _url(self, node: int, path: str) -> str:
        return f"http://{self.address(node, 'http')}{path}"

    @property
    def _token_file(self) -> Path:
        return self._processes.directory / "token"

    async def _close(self) -> None:
        try:
            await self._processes.end()
        finally:
            if self._session is not None:
                await self._session.close()


def _name(node: int) -> str:
    """As the pods of a StatefulSet are called: their numbers begin at 0."""
    return f"controller-{node - 1}"


def _together(view: QuorumView) -> bool:
    others = [peer for peer in view.peers if peer.id != view.node_id]
    return all(
        peer.match_index is not None and peer.match_index >= view.commit_index - BEHIND_MAX
        for peer in others
    )
