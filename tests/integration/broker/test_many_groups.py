"""Several groups per process, three processes: spread masters, one process killed, one ended."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from gantry_broker.clients.elsewhere import LOOK_EVERY_S
from gantry_broker.front import FrontServer, FrontSettings
from gantry_controller.liveness.core import spread
from gantry_lab.bench.ports import free_ports
from gantry_protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData, encode_body
from gantry_protocol.command import request
from gantry_protocol.process.datadir import DataDir
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import eventually, send_command
from support.broker_processes import Process
from support.loopback_controller import CLUSTER, KEY
from support.many_groups import STORE_PORT, ManyGroups, parse_metrics
from support.patience import PATIENCE_S

GROUPS = 10


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ManyGroups]:
    made = ManyGroups(tmp_path, GROUPS)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


async def test_all_groups_of_a_killed_process_fail_over_and_lose_nothing(
    cluster: ManyGroups,
) -> None:
    masters = Counter(cluster.master_ip(name) for name in cluster.names)
    assert len(masters) == 3, f"masters are spread over the processes: {masters}"
    for name in cluster.names:
        await cluster.send(name, 5)
    epochs = {name: cluster.group(name).master_epoch for name in cluster.names}

    killed = cluster.master_ip(cluster.names[0])
    lost = [name for name in cluster.names if cluster.master_ip(name) == killed]
    cluster.processes[killed].process.kill()
    for name in lost:
        await eventually(lambda name=name: cluster.master_ip(name) not in ("", killed), name, 10)
        assert cluster.group(name).master_epoch == epochs[name] + 1
    kept = set(cluster.names) - set(lost)
    assert {name for name in kept if cluster.group(name).master_epoch != epochs[name]} == set()
    for name in cluster.names:
        await cluster.send(name, 5)
    cluster.boot(killed)
    await cluster.settled()

    leaving = next(ip for ip in cluster.ips if ip != killed)
    led = [name for name in cluster.names if cluster.master_ip(name) == leaving]
    assert led
    cluster.processes[leaving].process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(cluster.processes[leaving].exit_code) == 0
    said = cluster.processes[leaving].said
    assert said.count("handing over") >= len(led)
    assert "nobody took over in time" not in said
    cluster.boot(leaving)
    await cluster.settled()
    for name in cluster.names:
        assert await cluster.read(name) == cluster.acknowledged[name], name


async def test_masters_move_back_to_a_process_that_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While all groups are written to; none of it is lost, and nothing moves any more then."""
    monkeypatch.setattr(spread, "BACK_S", 0.5)
    monkeypatch.setattr(spread, "REST_S", 1.0)
    monkeypatch.setattr(spread, "LOOK_EVERY_S", 0.2)
    cluster = ManyGroups(tmp_path, GROUPS, spreads=True)

    def led() -> list[int]:
        masters = Counter(cluster.master_ip(name) for name in cluster.names)
        return sorted(masters[ip] for ip in cluster.ips)

    async def write(until: asyncio.Event) -> None:
        while not until.is_set():
            await asyncio.gather(*(cluster.send(name, 1) for name in cluster.names))

    try:
        await cluster.start()
        await eventually(lambda: led() == [3, 3, 4], "masters are even", PATIENCE_S)
        killed = cluster.ips[1]
        cluster.processes[killed].process.kill()
        await eventually(lambda: led()[0] == 0, "all groups fail over", PATIENCE_S)
        cluster.boot(killed)
        counts, (_, fewer, more) = cluster.controller.watchman.spread, led()
        enough = counts.moved + (more - fewer) // 2 + spread.MOVES_AT_ONCE + 3
        done = asyncio.Event()
        writer = asyncio.create_task(write(done))
        await eventually(lambda: led() == [3, 3, 4], "masters are even again", PATIENCE_S)
        done.set()
        await writer
        await eventually(lambda: counts.to_move == 0, "it is noticed")
        assert counts.failed == 0
        assert 0 < counts.moved <= enough
        for name in cluster.names:
            assert await cluster.read(name) == cluster.acknowledged[name], name
    finally:
        await cluster.stop()


async def test_what_a_process_says_of_its_groups(cluster: ManyGroups) -> None:
    ip = cluster.ips[0]
    overview = json.loads(await cluster.get(ip, "/status"))
    assert [row["group"] for row in overview["groups"]] == cluster.names
    assert {row["state"] for row in overview["groups"]} == {"ready"}
    document = json.loads(await cluster.get(ip, f"/status/{cluster.names[3]}"))
    assert document["group"] == cluster.names[3]
    assert (await cluster.get(ip, "/readyz")).strip() == f"{GROUPS} groups"
    metrics = parse_metrics(await cluster.get(ip, "/metrics"))
    assert metrics["gantry_broker_groups", (("state", "ready"),)] == GROUPS
    for name in cluster.names:
        key = ("gantry_broker_epoch", (("group", name),))
        assert metrics[key] == cluster.group(name).master_epoch
    assert metrics["gantry_broker_controllers_connected", ()] == 1


async def test_a_damaged_group_ends_alone(cluster: ManyGroups) -> None:
    ip, name = cluster.ips[1], cluster.names[4]
    cluster.processes[ip].process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(cluster.processes[ip].exit_code) == 0
    lineage = cluster.directory / ip / "groups" / name / "lineage.json"
    lineage.write_text("{}")
    cluster.boot(ip)
    others = set(cluster.names) - {name}
    await eventually(lambda: cluster.in_place(ip, others), "the other groups are in place")
    rows = json.loads(await cluster.get(ip, "/status"))["groups"]
    states = {row["group"]: row["state"] for row in rows}
    assert states.pop(name) == "failed"
    assert "lineage.json" in next(row["reason"] for row in rows if row["group"] == name)
    assert lineage.read_text() == "{}", "nothing is repaired"
    await cluster.send(name, 1)


@asynccontextmanager
async def front_of(cluster: ManyGroups) -> AsyncIterator[FrontServer]:
    """A front of all groups."""
    server = FrontServer(
        FrontSettings(
            cluster=CLUSTER,
            controllers=[cluster.controller.address],
            first_port=free_ports(1)[0],
            http_port=0,
            store_port=STORE_PORT,
            quorum_key_file=KEY.file,
        )
    )
    stop = asyncio.Event()
    task = asyncio.create_task(server.run(stop))
    try:
        yield server
    finally:
        stop.set()
        await task


async def served(front: FrontServer, names: list[str]) -> None:
    """The stores of all these groups are open."""

    def is_open(name: str) -> bool:
        return name in front.groups and front.groups[name].router.open_aside is not None

    for name in names:
        await eventually(lambda name=name: is_open(name), f"the store of {name}", PATIENCE_S)


async def send_through(cluster: ManyGroups, front: FrontServer, name: str) -> None:
    """Some messages; the first of a connection may go its way to the master."""
    group = front.groups[name]
    client = await RemotingClient().connect(f"127.0.0.1:{group.port}")
    before = group.served
    for number in range(3):
        body = f"{name} {group.connection.opened} {number}".encode()
        assert (await client.call(send_command(body), PATIENCE_S)).code == 0
        cluster.acknowledged[name].append(body)
    client.close()
    assert group.served - before >= 2


async def test_fronts_are_served_from_the_stores_of_all_groups_at_one_port(
    cluster: ManyGroups,
) -> None:
    for name in cluster.names:
        await cluster.send(name, 1)  # which makes the topic
    async with front_of(cluster) as front:
        await served(front, cluster.names)
        for name in cluster.names:
            await send_through(cluster, front, name)

        killed = cluster.master_ip(cluster.names[0])
        lost = [name for name in cluster.names if cluster.master_ip(name) == killed]
        stay = [name for name in cluster.names if name not in lost]
        opened = {name: front.groups[name].connection.opened for name in stay}
        cluster.processes[killed].process.kill()
        for name in lost:
            await eventually(lambda name=name: cluster.master_ip(name) != killed, name, PATIENCE_S)
        await served(front, cluster.names)
        assert {name: front.groups[name].connection.opened for name in stay} == opened
        for name in lost:
            await send_through(cluster, front, name)
    cluster.boot(killed)
    await cluster.settled()
    for name in cluster.names:
        assert await cluster.read(name) == cluster.acknowledged[name], name


def test_a_directory_of_one_group_is_not_taken_for_many(tmp_path: Path) -> None:
    one = {"cluster": CLUSTER, "group": "orders"}
    DataDir.open(tmp_path / "d", "broker", one).close()
    many = Process(tmp_path / "d", GANTRY_GROUP="", GANTRY_GROUPS="a,b")
    assert many.exit_code() == 2
    assert "belongs to it" in many.sentence


async def members_at(client: RemotingClient, group: str) -> list[str]:
    answer = await client.call(request(38, {"consumerGroup": group}), PATIENCE_S)
    assert answer.code == 0, answer
    ids: list[str] = json.loads(answer.body)["consumerIdList"]
    return sorted(ids)


async def test_masters_name_the_same_members_whichever_of_them_hears_a_client(
    tmp_path: Path,
) -> None:
    cluster = ManyGroups(tmp_path, 2)
    lines: dict[tuple[str, str], RemotingClient] = {}
    try:
        await cluster.start()
        for client, group in (("x", "g-000"), ("x", "g-001"), ("y", "g-000")):
            line = lines[client, group] = RemotingClient()
            await line.connect(f"{cluster.master_ip(group)}:{cluster.port(group)}", PATIENCE_S)
            wanted = [SubscriptionData(topic="t", sub_string="*")]
            data = HeartbeatData(client, [], [ConsumerData("g", subscription_data_set=wanted)])
            assert (await line.call(request(34, {}, encode_body(data)), PATIENCE_S)).code == 0

        async def all_are_told(members: list[str], lines: list[RemotingClient]) -> None:
            async with asyncio.timeout(PATIENCE_S):
                while any([await members_at(line, "g") != members for line in lines]):
                    await asyncio.sleep(0.02)

        await all_are_told(["x", "y"], list(lines.values()))
        lines.pop(("x", "g-000")).close()
        await asyncio.sleep(2 * LOOK_EVERY_S)
        await all_are_told(["x", "y"], list(lines.values()))
        lines.pop(("x", "g-001")).close()
        await all_are_told(["y"], list(lines.values()))
    finally:
        for line in lines.values():
            line.close()
        await cluster.stop()
