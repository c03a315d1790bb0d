"""Three controllers, a group of three brokers and a front as processes, with members' certificates.

Each process has an address of its own, so that ports are the usual ones.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import RemotingError
from gantry_protocol.member_tls.asking import FileTrust
from gantry_protocol.member_tls.names import MemberKind, MemberName
from gantry_protocol.quorum_key import KeyFile, write_key
from gantry_protocol.records import decode_records
from gantry_protocol.remoting.client import RemotingClient
from support.broker_processes import own_network
from support.certificates import MemberAuthority, Pair
from support.patience import PATIENCE_S

CLUSTER, GROUP, TOKEN, TOPIC = "prod", "orders", "the admin token", "load"
DOMAIN = "mq"
STARTS_S = 240.0  # seven processes, on a machine that may be busy
RAFT, CONTROL, HA, STORE = 9879, 9878, 10912, 10914


class Place(NamedTuple):
    """One process: its command, its name and its address."""

    command: str
    name: str
    ip: str

    @property
    def http(self) -> str:
        """Its probes and metrics."""
        port = {"controller": 9880, "broker": 10913, "front": 10921}[self.command]
        return f"http://{self.ip}:{port}"


class MemberTlsCluster:
    """See the module.

    Attributes:
        authority: of all members.
        places: of all processes, in the order in which they are restarted.
        acknowledged: bodies of messages.
        gap_s: the longest time without one since it was set.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = MemberAuthority(directory / "authority")
        self.key = KeyFile(write_key(directory / "quorum-key"))
        self.acknowledged: list[bytes] = []
        self.gap_s = 0.0
        self.session: aiohttp.ClientSession
        network = own_network()
        self.places = [
            *(Place("controller", f"c-{n}", f"{network}.{n + 1}") for n in range(3)),
            *(Place("broker", f"orders-{n}", f"{network}.{n + 11}") for n in range(3)),
            Place("front", "front", f"{network}.21"),
        ]
        self._running: dict[Place, asyncio.subprocess.Process] = {}
        self._modes: dict[Place, str | None] = {}
        self._number = 0
        for place in self.places:
            self.renew(place)

    @asynccontextmanager
    async def run(self, mode: str | None) -> AsyncIterator[MemberTlsCluster]:
        """Until the end of the block, begun in this mode."""
        (self.directory / "token").write_text(TOKEN)
        timeout = aiohttp.ClientTimeout(total=5)
        async with aiohttp.ClientSession(timeout=timeout) as self.session:
            try:
                for place in self.places:
                    await self.start(place, mode)
                async with asyncio.timeout(STARTS_S):
                    await self._declare()
                    await self.settled()
                    while not await self.front_serves():
                        await asyncio.sleep(0.05)
                yield self
            finally:
                for process in self._running.values():
                    with suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()

    # ---- certificates

    def member(self, place: Place) -> MemberName:
        """What the process is."""
        of = {"broker": (CLUSTER, GROUP), "front": (CLUSTER,), "controller": ()}[place.command]
        return MemberName(MemberKind(place.command), *of)

    def pair(self, place: Place) -> Pair:
        """Its files."""
        return Pair(self.directory / f"{place.name}.crt", self.directory / f"{place.name}.key")

    def renew(self, place: Place) -> None:
        """A new certificate for it."""
        name = self.member(place).in_domain(DOMAIN)
        self.authority.issue(place.name, name, into=self.pair(place))

    # ---- processes

    async def start(self, place: Place, mode: str | None) -> None:
        """Start it in this mode; None: it has no certificate at all."""
        self._modes[place] = mode
        controllers = [one for one in self.places if one.command == "controller"]
        peers = ",".join(f"{n}={one.ip}" for n, one in enumerate(controllers, start=1))
        settings: dict[str, object] = {
            "NAME": place.name,
            "BIND": place.ip,
            "QUORUM_KEY_FILE": self.key.file,
        }
        if place.command == "controller":
            settings |= {"PEERS": peers, "CLUSTER_UID": "uid"}
            settings |= {"ADMIN_TOKEN_FILE": self.directory / "token"}
        else:
            settings |= {"CLUSTER": CLUSTER, "CONTROLLERS": ",".join(one.ip for one in controllers)}
        if place.command == "broker":
            settings |= {"GROUP": GROUP, "STORE_PORT": STORE, "LOCK_WAIT_S": 10}
            settings |= {"LOG_SEGMENT_BYTES": 1 << 22}
        if place.command != "front":
            settings["DATA_DIR"] = self.directory / place.name
        if mode is not None:
            pair = self.pair(place)
            settings |= {"MEMBER_TLS_CERT_FILE": pair.cert, "MEMBER_TLS_KEY_FILE": pair.key}
            settings |= {"MEMBER_TLS_CA_FILE": self.authority.file, "MEMBER_TLS_MODE": mode}
        environment = {key: value for key, value in os.environ.items() if "GANTRY" not in key}
        environment |= {f"GANTRY_{key}": str(value) for key, value in settings.items()}
        with (self.directory / f"{place.name}.log").open("ab") as log:
            self._running[place] = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gantry_cli", place.command), env=environment, stderr=log
            )

    async def restart(self, place: Place, mode: str | None) -> None:
        """By SIGTERM, as a rolling update does; until all are in sync again."""
        self._running[place].send_signal(signal.SIGTERM)
        await self._running[place].wait()
        await self.start(place, mode)
        async with asyncio.timeout(STARTS_S):
            await self.settled()

    async def kill(self, place: Place) -> None:
        """SIGKILL."""
        self._running[place].kill()
        await self._running[place].wait()

    def said(self, place: Place) -> str:
        """Its log."""
        return (self.directory / f"{place.name}.log").read_text("utf-8")

    def brokers(self) -> list[Place]:
        """Those of the group."""
        return [place for place in self.places if place.command == "broker"]

    # ---- state

    async def _declare(self) -> None:
        wish = {"uid": "u", "replicas": 3, "minInSyncReplicas": 2}
        while await self._admin("PUT", f"/v1/groups/{CLUSTER}/{GROUP}", wish) is None:
            await asyncio.sleep(0.05)

    async def _admin(self, method: str, path: str, body: object = None) -> dict[str, Any] | None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        trust = await FileTrust(self.authority.file, DOMAIN).context(fresh=False)
        for place in self.places[:3]:
            url, tls = place.http + path, self._modes[place] is not None
            with suppress(aiohttp.ClientError, TimeoutError):
                async with self.session.request(
                    method,
                    url.replace("http:", "https:") if tls else url,
                    json=body,
                    headers=headers,
                    ssl=trust if tls else True,
                ) as answer:
                    if answer.status == 200:
                        found: dict[str, Any] = await answer.json()
                        return found
        return None

    async def settled(self) -> None:
        """Until every process is ready and all brokers are in sync."""
        while True:
            group = await self._admin("GET", f"/v1/groups/{CLUSTER}/{GROUP}")
            ready = [await self._is_ready(place) for place in self.places]
            if group is not None and len(group["syncStateSet"]) == 3 and all(ready):
                return
            for place, process in self._running.items():
                assert process.returncode is None, self.said(place)
            await asyncio.sleep(0.05)

    async def master(self) -> Place:
        """The group's."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                group = await self._admin("GET", f"/v1/groups/{CLUSTER}/{GROUP}")
                for member in () if group is None else group["members"]:
                    if group is not None and member["brokerId"] == group["masterBrokerId"]:
                        ip = member["address"].partition(":")[0]
                        return next(place for place in self.places if place.ip == ip)
                await asyncio.sleep(0.05)

    async def _is_ready(self, place: Place) -> bool:
        with suppress(aiohttp.ClientError, TimeoutError):
            async with self.session.get(place.http + "/readyz") as answer:
                return answer.status == 200
        return False

    async def front_serves(self) -> bool:
        """Whether the front answers itself, by the stores' port."""
        with suppress(aiohttp.ClientError, TimeoutError):
            async with self.session.get(self.places[-1].http + "/status") as answer:
                return any(group["storeAddress"] for group in (await answer.json())["groups"])
        return False

    async def figures(self, place: Place) -> dict[str, float]:
        """Its metrics of TLS between members."""
        async with self.session.get(place.http + "/metrics") as answer:
            lines = [line.rpartition(" ") for line in (await answer.text()).splitlines()]
        kept = {
            name: float(text) for name, _, text in lines if name.startswith("gantry_member_tls")
        }
        return {name.removeprefix("gantry_member_tls_"): value for name, value in kept.items()}

    # ---- clients

    async def produce(self) -> None:
        """Send for ever, to any broker or the front; the same again until it is acknowledged."""
        clock = asyncio.get_running_loop().time
        ports = [f"{place.ip}:10911" for place in self.brokers()] + [f"{self.places[-1].ip}:10950"]
        client: RemotingClient | None = None
        turn, last_s = 0, clock()
        try:
            while True:
                self._number += 1
                body = b"message %d" % self._number
                done = False
                while not done:
                    try:
                        if client is None or client.closed:
                            turn += 1
                            client = RemotingClient()
                            await client.connect(ports[turn % len(ports)], 0.5)
                        done = (await client.call(send(body), 3)).code == 0
                        if not done:
                            client.close()
                            await asyncio.sleep(0.02)
                    except RemotingError:
                        if client is not None:
                            client.close()
                        await asyncio.sleep(0.01)
                self.acknowledged.append(body)
                self.gap_s = max(self.gap_s, clock() - last_s)
                last_s = clock()
                await asyncio.sleep(0.002)
        finally:
            if client is not None:
                client.close()

    @asynccontextmanager
    async def load(self) -> AsyncIterator[None]:
        """Send all the while, and go on at the end."""
        task = asyncio.create_task(self.produce())
        try:
            await self.goes_on()
            yield
            await self.goes_on()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def goes_on(self) -> None:
        """Until some more messages are acknowledged."""
        count = len(self.acknowledged)
        async with asyncio.timeout(PATIENCE_S):
            while len(self.acknowledged) < count + 20:
                await asyncio.sleep(0.02)

    async def stored(self) -> set[bytes]:
        """Bodies of all messages that the master gives out."""
        found: set[bytes] = set()
        client = await RemotingClient().connect(f"{(await self.master()).ip}:10911")
        for queue in range(4):
            offset = 0
            while True:
                header = {
                    "consumerGroup": "g", "topic": TOPIC, "queueId": str(queue),
                    "queueOffset": str(offset), "maxMsgNums": "32", "sysFlag": "4",
                    "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0",
                    "subscription": "*", "expressionType": "TAG",
                }  # fmt: skip
                answer = await client.call(request(11, header))
                if answer.code != 0:
                    break
                records = decode_records(answer.body)
                found |= {record.body for record in records}
                offset = int((answer.ext or {})["nextBeginOffset"])
        client.close()
        return found


def send(body: bytes) -> RemotingCommand:
    """A message."""
    header = {
        "producerGroup": "p", "topic": TOPIC, "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "1",
        "flag": "0", "properties": "", "reconsumeTimes": "0",
    }  # fmt: skip
    return request(10, header, body)
