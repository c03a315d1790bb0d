"""Unmodified Java brokers and mqadmin of RocketMQ 5.3.3 on a quorum of ours.

Three controllers run inside the test, three brokers and the admin tool as processes. The quorum is
controller and name server at once; nobody declares the group, so upstream's rules hold for it.
"""

import asyncio
import re
import shutil
import subprocess
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from gantry_controller.metadata.state import BrokerGroup
from support.controller_quorum import Quorum, free_ports, until

POM = Path(__file__).parent / "java_brokers" / "pom.xml"
MISSING = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
CLUSTER, NAME = "DefaultCluster", "broker-a"
START_S = 120.0
SETTLE_S = 60.0

pytestmark = [
    # Upstream's own programs, which are fetched and built with these.
    pytest.mark.skipif(bool(MISSING), reason=f"{' and '.join(MISSING)} not installed"),
    pytest.mark.timeout(900),
]

# The store class refers to buffers inside the JDK; the heap is for a machine that does other work.
JVM = [
    *("--add-exports", "java.base/sun.nio.ch=ALL-UNNAMED"),
    *("--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.nio=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.lang=ALL-UNNAMED"),
    *("-Xms200m", "-Xmx300m", "-XX:MaxDirectMemorySize=256m"),
]


@pytest.fixture(scope="module")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The jars, fetched by Maven."""
    target = tmp_path_factory.mktemp("classpath") / "classpath"
    goal = ["dependency:build-classpath", f"-Dmdep.outputFile={target}"]
    subprocess.run(["mvn", "-q", "-B", "-f", str(POM), *goal], check=True)
    return target.read_text().strip()


class JavaGroup:
    """The brokers of one group, and the admin tool."""

    def __init__(self, quorum: Quorum, classpath: str, directory: Path) -> None:
        self.quorum = quorum
        self._classpath = classpath
        self._directory = directory
        self._running: dict[str, asyncio.subprocess.Process] = {}
        # A broker also takes the port two below its own, and the one above for replication.
        self._ports = [port - port % 4 + 2 for port in free_ports(3)]

    @property
    def record(self) -> BrokerGroup | None:
        leader = self.quorum.leader
        return None if leader is None else leader.machine.group(CLUSTER, NAME)

    async def start(self) -> None:
        for port in self._ports:
            await self.start_broker(f"127.0.0.1:{port}")

    async def start_broker(self, address: str) -> None:
        port = int(address.rpartition(":")[2])
        home = self._directory / str(port)
        home.mkdir(exist_ok=True)
        nodes = sorted(self.quorum.settings)
        names = ";".join(
            f"127.0.0.1:{self.quorum.settings[node].nameserver_port}" for node in nodes
        )
        settings = {
            "brokerClusterName": CLUSTER,
            "brokerName": NAME,
            "brokerId": -1,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": port,
            "namesrvAddr": names,
            "enableControllerMode": "true",
            "controllerAddr": ";".join(self.quorum.remoting(node) for node in nodes),
            "brokerRole": "SLAVE",
            "allAckInSyncStateSet": "true",
            "storePathRootDir": home / "store",
            "storePathCommitLog": home / "store" / "commitlog",
            "mappedFileSizeCommitLog": 10_485_760,
            "mappedFileSizeConsumeQueue": 60_000,
            "maxHashSlotNum": 10_000,
            "maxIndexNum": 40_000,
            "timerWheelEnable": "false",
            "diskMaxUsedSpaceRatio": 98,
            "checkSyncStateSetPeriod": 1_000,
            "syncBrokerMetadataPeriod": 1_000,
        }
        config = home / "broker.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._running[address] = await self._java(
            "org.apache.rocketmq.broker.BrokerStartup", "-c", str(config), home=home
        )

    async def kill(self, address: str) -> None:
        process = self._running.pop(address)
        process.kill()
        await process.wait()

    async def stop(self) -> None:
        for address in list(self._running):
            await self.kill(address)

    async def admin(self, *arguments: str) -> str:
        """What mqadmin prints, without the noise of its logger."""
        home = self._directory / "admin"
        home.mkdir(exist_ok=True)
        names = f"127.0.0.1:{self.quorum.settings[1].nameserver_port}"
        process = await self._java(
            "org.apache.rocketmq.tools.command.MQAdminStartup",
            *(*arguments, "-n", names),
            home=home,
        )
        output, _ = await process.communicate()
        lines = output.decode(errors="replace").splitlines()
        return "\n".join(line for line in lines if "|-" not in line)

    async def _java(self, main: str, *arguments: str, home: Path) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            "java",
            *JVM,
            *(f"-Duser.home={home}", f"-Drocketmq.home.dir={home}", "-cp", self._classpath, main),
            *arguments,
            stdout=PIPE if main.endswith("MQAdminStartup") else DEVNULL,
            stderr=DEVNULL,
        )

    async def settled(
        self, within_s: float, condition: Callable[[BrokerGroup], bool]
    ) -> BrokerGroup:
        """The group once it is so."""
        await until(lambda: self.record is not None and condition(self.record), within_s)
        assert self.record is not None
        return self.record


@pytest.fixture
async def group(tmp_path: Path, classpath: str) -> AsyncIterator[JavaGroup]:
    quorum = Quorum(tmp_path)
    await quorum.start()
    group = JavaGroup(quorum, classpath, tmp_path)
    await group.start()
    yield group
    await group.stop()
    await quorum.stop()


async def test_life_of_a_group(group: JavaGroup) -> None:
    started = await group.settled(START_S, lambda one: len(one.sync_state_set) == 3)
    assert started.master is not None
    master = started.master

    await group.kill(master.address)
    survived = await group.settled(SETTLE_S, lambda one: len(one.sync_state_set) == 2)
    assert survived.master_epoch > started.master_epoch
    assert survived.master_id != master.broker_id

    await group.start_broker(master.address)
    returned = await group.settled(START_S, lambda one: len(one.sync_state_set) == 3)
    assert returned.master_id == survived.master_id
    assert len(returned.members) == 3

    node = group.quorum.remoting(1)  # whichever leads
    shown = await group.admin("getSyncStateSet", "-a", node, "-b", NAME)
    assert re.search(r"#SyncStateSetNums\s+3", shown), shown
    assert shown.count("alive=true") == 3

    wanted = str(master.broker_id)
    named = ["-a", node, "-bn", NAME, "-c", CLUSTER]
    elected = await group.admin("electMaster", *named, "-b", wanted)
    assert re.search(rf"#BrokerMasterAddr\s+{re.escape(master.address)}", elected), elected
    again = await group.settled(SETTLE_S, lambda one: len(one.sync_state_set) == 3)
    assert again.master_id == master.broker_id

    listed = await group.admin("clusterList")
    assert len(re.findall(rf"{CLUSTER}\s+{NAME}\s+\d+\s+127\.0\.0\.1:\d+", listed)) == 3, listed

    victim = next(one for one in again.members if one.broker_id != master.broker_id)
    await group.kill(victim.address)
    await group.settled(SETTLE_S, lambda one: len(one.sync_state_set) == 2)
    cleaned = await group.admin("cleanBrokerMetadata", *named, "-b", str(victim.broker_id))
    assert "success" in cleaned, cleaned
    await group.settled(SETTLE_S, lambda one: len(one.members) == 2)
