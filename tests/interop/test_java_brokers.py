"""Unmodified Java brokers and mqadmin of RocketMQ 5.3.3 on a quorum of ours.

Three controllers run inside the test, three brokers and the admin tool as processes. The quorum is
controller and name server at once; nobody declares the group, so upstream's rules hold for it.

Starting a broker is most of the time, so one group lives through the whole story, chapter by
chapter; a broker's number is its directory, whatever address and id it has.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from gantry_controller.metadata.state import BrokerGroup, Member
from gantry_lab.bench.ports import free_ports
from support import java
from support.controller_quorum import Quorum, until

CLUSTER, NAME = "DefaultCluster", "broker-a"
ORDERED = "SELF_TEST_TOPIC"
START_S = 120.0
SETTLE_S = 60.0
BROKERS = (0, 1, 2)

pytestmark = [
    pytest.mark.java,
    # Upstream's own programs, which are fetched and built with these.
    pytest.mark.skipif(bool(java.MISSING), reason=f"{' and '.join(java.MISSING)} not installed"),
    pytest.mark.timeout(900),
]

# The store class refers to buffers inside the JDK; the heap is for a machine that does other work.
JVM = [
    *("--add-exports", "java.base/sun.nio.ch=ALL-UNNAMED"),
    *("--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.nio=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.lang=ALL-UNNAMED"),
    *("-Xms200m", "-Xmx300m", "-XX:MaxDirectMemorySize=256m"),
    *java.SHORT_LIVED,
]


def broker_port() -> int:
    """A port for a broker, which also takes the one two below it, and the one above."""
    while True:
        found = free_ports(4)
        if found == list(range(found[0], found[0] + 4)):
            return found[2]


class JavaGroup:
    """The brokers of one group, by number, and the admin tool."""

    def __init__(self, quorum: Quorum, classpath: str, directory: Path) -> None:
        self.quorum = quorum
        self._classpath = classpath
        self._admin = java.Admin(
            directory / "admin", f"127.0.0.1:{quorum.settings[1].nameserver_port}"
        )
        self._directory = directory
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._ports = [broker_port() for _ in BROKERS]

    @property
    def record(self) -> BrokerGroup | None:
        leader = self.quorum.leader
        return None if leader is None else leader.machine.group(CLUSTER, NAME)

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self._ports[number]}"

    def number(self, member: Member) -> int:
        """Which broker has registered as this member."""
        return next(number for number in BROKERS if self.address(number) == member.address)

    def move(self, number: int) -> None:
        """Gives a broker another address, which it has from its next start on."""
        self._ports[number] = broker_port()

    async def start(self, *numbers: int) -> None:
        for number in numbers or BROKERS:
            config = self._configured(number)
            self._running[number] = await self._started(config)

    def _configured(self, number: int) -> Path:
        home = self._directory / f"broker-{number}"
        home.mkdir(exist_ok=True)
        nodes = sorted(self.quorum.settings)
        names = (f"127.0.0.1:{self.quorum.settings[node].nameserver_port}" for node in nodes)
        settings = {
            "brokerClusterName": CLUSTER,
            "brokerName": NAME,
            "brokerId": -1,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": self._ports[number],
            "namesrvAddr": ";".join(names),
            "enableControllerMode": "true",
            "controllerAddr": ";".join(self.quorum.remoting(node) for node in nodes),
            "brokerRole": "SLAVE",
            "allAckInSyncStateSet": "true",
            "storePathRootDir": home / "store",
            "storePathCommitLog": home / "store" / "commitlog",
            "mappedFileSizeCommitLog": 1_048_576,
            "mappedFileSizeConsumeQueue": 60_000,
            "maxHashSlotNum": 10_000,
            "maxIndexNum": 40_000,
            "timerWheelEnable": "false",
            "diskMaxUsedSpaceRatio": 98,
            # Upstream's defaults of 1 to 30 s are for networks; nothing here depends on them.
            "brokerHeartbeatInterval": 500,
            "registerNameServerPeriod": 10_000,
            "syncBrokerMetadataPeriod": 1_000,
            "syncControllerMetadataPeriod": 1_000,
            "checkSyncStateSetPeriod": 1_000,
            "haSendHeartbeatInterval": 1_000,
        }
        config = home / "broker.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return config

    async def _started(self, config: Path) -> asyncio.subprocess.Process:
        home = config.parent
        with (home / "console.log").open("ab") as console:
            return await asyncio.create_subprocess_exec(
                "java",
                *JVM,
                *(f"-Duser.home={home}", f"-Drocketmq.home.dir={home}", "-cp", self._classpath),
                *("org.apache.rocketmq.broker.BrokerStartup", "-c", str(config)),
                stdout=console,
                stderr=console,
            )

    async def kill(self, number: int) -> None:
        process = self._running.pop(number)
        process.kill()
        await process.wait()

    async def stop(self) -> None:
        self._admin.close()
        for number in list(self._running):
            await self.kill(number)

    async def admin(self, command: str, *arguments: str) -> str:
        """What mqadmin prints."""
        return await asyncio.to_thread(self._admin, command, *arguments)

    def assert_all_run(self) -> None:
        """A broker that cannot go on says why on its console, and ends."""
        for number, process in self._running.items():
            console = self._directory / f"broker-{number}" / "console.log"
            said = console.read_text("utf-8", errors="replace")[-2000:]
            assert process.returncode is None, f"broker {number} has ended: {said}"

    async def settled(
        self, within_s: float, condition: Callable[[BrokerGroup], bool]
    ) -> BrokerGroup:
        """The group once it is so."""

        def is_so() -> bool:
            self.assert_all_run()
            return self.record is not None and condition(self.record)

        await until(is_so, within_s)
        assert self.record is not None
        return self.record

    async def in_sync(self, count: int, within_s: float = SETTLE_S) -> BrokerGroup:
        """The group once so many are in its sync-state set."""
        return await self.settled(within_s, lambda one: len(one.sync_state_set) == count)


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[JavaGroup]:
    classpath = java.brokers()  # before anything runs that Maven would keep waiting
    quorum = Quorum(tmp_path)
    await quorum.start()
    group = JavaGroup(quorum, classpath, tmp_path)
    await group.start()
    yield group
    await group.stop()
    await quorum.stop()


async def test_life_of_a_group(group: JavaGroup) -> None:
    await group.in_sync(3, START_S)
    old_master = await master_is_killed_and_a_slave_takes_over(group)
    await old_master_returns_as_slave(group, old_master)
    await administrators_see_the_quorum(group)
    await administrators_see_the_group(group)
    await administrators_tell_the_name_service(group)
    await administrator_makes_it_master(group, old_master)
    mover = await slave_returns_under_another_address(group)
    await administrator_cleans_what_is_gone(group, mover)
    await brokers_have_learnt_what_is_ordered(group)


async def master_is_killed_and_a_slave_takes_over(group: JavaGroup) -> Member:
    before = await group.in_sync(3)
    assert before.master is not None
    await group.kill(group.number(before.master))
    after = await group.in_sync(2)
    assert after.master_epoch > before.master_epoch
    assert after.master_id != before.master_id
    return before.master


async def old_master_returns_as_slave(group: JavaGroup, old: Member) -> None:
    before = group.record
    assert before is not None
    await group.start(group.number(old))
    returned = await group.in_sync(3, START_S)
    assert returned.master_id == before.master_id
    assert returned.master_epoch == before.master_epoch
    assert {one.broker_id for one in returned.members} == {1, 2, 3}


async def administrators_see_the_quorum(group: JavaGroup) -> None:
    leader = await group.quorum.led()
    follower = group.quorum.followers()[0].node.node_id
    nodes = [group.quorum.remoting(number) for number in sorted(group.quorum.settings)]
    told = await group.admin("getControllerMetaData", "-a", group.quorum.remoting(follower))
    assert f"#ControllerLeaderAddress\t{group.quorum.remoting(leader.node.node_id)}" in told, told
    assert told.count("#Peer:") == 3, told
    listed = await group.admin("getControllerConfig", "-a", ";".join(nodes))
    for address in nodes:
        assert f"============{address}============" in listed, listed
    assert len(re.findall(r"^election_timeout_ms\s+=\s+200$", listed, re.MULTILINE)) == 3, listed
    setting = ["-k", "notifyBrokerRoleChanged", "-v", "false"]
    updated = await group.admin("updateControllerConfig", "-a", nodes[0], *setting)
    assert "success" in updated, updated
    live = [
        one.live_settings.notify_role_changes for _, one in sorted(group.quorum.running.items())
    ]
    assert live == [False, True, True]


async def administrators_see_the_group(group: JavaGroup) -> None:
    record = group.record
    assert record is not None
    assert record.master is not None
    node = group.quorum.remoting(group.quorum.followers()[0].node.node_id)
    shown = await group.admin("getSyncStateSet", "-a", node, "-b", NAME)
    assert re.search(r"#SyncStateSetNums\s+3", shown), shown
    assert shown.count("alive=true") == 3
    # Asked of the brokers that the route names.
    epochs = await group.admin("getBrokerEpoch", "-b", NAME)
    assert epochs.count(f"#brokerName\t{NAME}") == 3, epochs
    assert epochs.count("#Epoch: EpochEntry{epoch=1, startOffset=0, ") == 3, epochs
    listed = await group.admin("clusterList")
    assert len(re.findall(rf"{CLUSTER}\s+{NAME}\s+\d+\s+127\.0\.0\.1:\d+", listed)) == 3, listed


async def administrators_tell_the_name_service(group: JavaGroup) -> None:
    """What they say at one controller, another one shows, of a topic that every broker has."""
    topic = ORDERED

    async def shown() -> tuple[int, str | None]:
        async with group.quorum.client(group.quorum.running[2]) as caller:
            route = json.loads((await caller.call(105, {"topic": topic})).body)
        return route["queueDatas"][0]["perm"], route.get("orderTopicConf")

    assert await shown() == (6, None)
    order = f"{NAME}:1"
    ordered = await group.admin("updateOrderConf", "-t", topic, "-m", "put", "-v", order)
    assert f"update orderConf success. topic=[{topic}], orderConf=[{order}]" in ordered, ordered
    enabled = await group.admin("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    assert "update name server config success!" in enabled, enabled
    wiped = await group.admin("wipeWritePerm", "-b", NAME)
    assert re.search(rf"wipe write perm of broker\[{NAME}\] .* OK, [1-9]", wiped), wiped
    assert await shown() == (4, order)
    added = await group.admin("addWritePerm", "-b", NAME)
    assert re.search(rf"add write perm of broker\[{NAME}\] .* OK, [1-9]", added), added
    assert await shown() == (6, order)


async def administrator_makes_it_master(group: JavaGroup, wanted: Member) -> None:
    node = group.quorum.remoting(1)  # whichever leads
    named = ["-a", node, "-bn", NAME, "-c", CLUSTER, "-b", str(wanted.broker_id)]
    elected = await group.admin("electMaster", *named)
    assert re.search(rf"#BrokerMasterAddr\s+{re.escape(wanted.address)}", elected), elected
    again = await group.in_sync(3)
    assert again.master_id == wanted.broker_id


async def slave_returns_under_another_address(group: JavaGroup) -> Member:
    before = group.record
    assert before is not None
    slave = next(one for one in before.members if one.broker_id != before.master_id)
    number = group.number(slave)
    await group.kill(number)
    await group.in_sync(2)
    group.move(number)
    await group.start(number)
    after = await group.in_sync(3, START_S)
    moved = after.member(slave.broker_id)
    assert moved is not None
    assert moved.address == group.address(number) != slave.address
    assert [one.broker_id for one in after.members] == [1, 2, 3]
    return moved


async def administrator_cleans_what_is_gone(group: JavaGroup, victim: Member) -> None:
    await group.kill(group.number(victim))
    await group.in_sync(2)
    named = ["-a", group.quorum.remoting(1), "-bn", NAME, "-c", CLUSTER]
    named += ["-b", str(victim.broker_id)]
    async with asyncio.timeout(SETTLE_S):  # the set loses it before the quorum takes it for dead
        while "is still alive" in (cleaned := await group.admin("cleanBrokerMetadata", *named)):
            await asyncio.sleep(0.5)
    assert "success" in cleaned, cleaned
    left = await group.settled(SETTLE_S, lambda one: len(one.members) == 2)
    assert left.member(victim.broker_id) is None


async def brokers_have_learnt_what_is_ordered(group: JavaGroup) -> None:
    """From the answer to a report (103), which they repeat every 10 s; then they report it so."""
    leader = await group.quorum.led()
    table = leader.machine.state.topic_table((CLUSTER, NAME))
    assert not table.topics["TBW102"].order
    await until(
        lambda: leader.machine.state.topic_table((CLUSTER, NAME)).topics[ORDERED].order, SETTLE_S
    )
