"""Three broker processes that host the same groups, on addresses of their own, and controllers."""

from __future__ import annotations

import asyncio
import urllib.request
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

from gantry_controller.metadata.events import DeclareGroup, encode_event
from gantry_controller.metadata.state import BrokerGroup
from gantry_protocol.errors import RemotingError
from gantry_protocol.records import decode_records
from gantry_protocol.remoting.client import RemotingClient
from prometheus_client.parser import text_string_to_metric_families
from support.broker_cluster import eventually, pull_command, send_command
from support.broker_processes import Process, own_network
from support.loopback_controller import CLUSTER, LoopbackController
from support.patience import PATIENCE_S, STARTS_WITHIN_S
from support.real_quorum import RealQuorum

FIRST_PORT = 21000
HTTP_PORT = 10913
STORE_PORT = 10914
SETTLE_WITHIN_S = STARTS_WITHIN_S
SEND_WITHIN_S = PATIENCE_S


class ManyGroups:
    """The processes by address, and what was acknowledged by group.

    Attributes:
        env: of the processes, besides what all have.
        body_bytes: of each message, at least.
    """

    def __init__(
        self,
        directory: Path,
        count: int,
        quorum: RealQuorum | None = None,
        *,
        spreads: bool = False,
    ) -> None:
        self.directory = directory
        self.quorum = quorum  # without one, a controller of a single voice in this process
        self.names = [f"g-{number:03d}" for number in range(count)]
        self.range = f"g-[000-{count - 1:03d}]"
        network = own_network()
        self.ips = [f"{network}.{number}" for number in (1, 2, 3)]
        self.controller = LoopbackController(spreads=spreads)
        self.processes: dict[str, Process] = {}
        self.env: dict[str, str] = {}
        self.body_bytes = 0
        self.acknowledged: defaultdict[str, list[bytes]] = defaultdict(list)

    async def start(self) -> None:
        await (self.quorum or self.controller).start()
        for name in self.names:
            await self._declare(name)
        for ip in self.ips:
            self.boot(ip)
        await self.settled()

    def boot(self, ip: str) -> None:
        if ip in self.processes:
            self.processes[ip].process.wait()
        self.processes[ip] = Process(
            self.directory / ip,
            (self.quorum or self.controller).address,
            GANTRY_NAME=f"broker-{self.ips.index(ip)}",
            GANTRY_GROUP="",
            GANTRY_GROUPS=self.range,
            GANTRY_BIND=ip,
            GANTRY_REMOTING_PORT=str(FIRST_PORT),
            GANTRY_HA_PORT="10912",
            GANTRY_HTTP_PORT=str(HTTP_PORT),
            GANTRY_LOCK_WAIT_S="5",
            GANTRY_STORE_PORT=str(STORE_PORT),
            **self.env,
        )

    async def stop(self) -> None:
        for process in self.processes.values():
            process.process.kill()
            process.process.wait()
        await (self.quorum or self.controller).stop()

    def group(self, name: str) -> BrokerGroup:
        return self.controller.machine.state.groups[CLUSTER, name]

    def master_ip(self, name: str) -> str:
        """Whose process is master; empty while nobody's is."""
        if self.quorum is not None:
            seen = self.quorum.group(name)
            address = None if seen is None else seen.master_address
        else:
            master = self.group(name).master
            address = None if master is None else master.address
        return (address or "").partition(":")[0]

    def in_place(self, ip: str, names: Collection[str]) -> bool:
        """Whether the member at ``ip`` is in the sync-state set of each of these groups."""
        for name in names:
            group = self.group(name) if self.quorum is None else self.quorum.group(name)
            if group is None:
                return False
            ids = {one.broker_id for one in group.members if one.address.startswith(f"{ip}:")}
            if not ids & set(group.sync_state_set):
                return False
        return True

    async def _declare(self, name: str) -> None:
        if self.quorum is not None:
            await self.quorum.declare(name)
            return
        event = DeclareGroup(
            cluster=CLUSTER, name=name, uid=name, replicas=3, min_in_sync_replicas=2
        )
        self.controller.quorum._apply(encode_event(event))

    async def settled(self) -> None:
        await eventually(
            lambda: all(self.in_place(ip, self.names) for ip in self.ips),
            "everybody is in the set of every group",
            SETTLE_WITHIN_S,
        )

    def port(self, name: str) -> int:
        return FIRST_PORT + self.names.index(name)

    async def send(self, name: str, count: int) -> None:
        """``count`` messages that are acknowledged, to any process: it hands them on."""
        clock = asyncio.get_running_loop().time
        until_s = clock() + SEND_WITHIN_S
        sent, turn = 0, 0
        while sent < count:
            assert clock() < until_s, f"{name} takes no messages"
            ip = self.ips[turn % len(self.ips)]
            turn += 1
            client = RemotingClient()
            try:
                await client.connect(f"{ip}:{self.port(name)}", 1.0)
                while sent < count:
                    text = f"{name} {len(self.acknowledged[name])}"
                    body = text.ljust(self.body_bytes, ".").encode()
                    answer = await client.call(send_command(body), 3.0)
                    if answer.code != 0:
                        break
                    self.acknowledged[name].append(body)
                    sent += 1
            except RemotingError:
                await asyncio.sleep(0.02)
            finally:
                client.close()

    async def read(self, name: str) -> list[bytes]:
        """All that was sent to the group, once each, in order."""
        client = await RemotingClient().connect(f"{self.ips[0]}:{self.port(name)}", 1.0)
        found: dict[bytes, None] = {}
        offset = 0
        try:
            while True:
                answer = await client.call(pull_command(offset), 3.0)
                if answer.code != 0:
                    return list(found)
                records = decode_records(answer.body)
                found.update((bytes(record.body), None) for record in records)
                offset = int((answer.ext or {})["nextBeginOffset"])
        finally:
            client.close()

    async def get(self, ip: str, path: str) -> str:
        url = f"http://{ip}:{HTTP_PORT}{path}"
        return await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())


def parse_metrics(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Values by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
