"""Three real controllers and scripted brokers over loopback, from first boot to lost leaders."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gantry_controller.server import Controller, serve
from gantry_protocol.command import request
from gantry_protocol.errors import DataDirError, PortInUseError, RemotingError
from gantry_protocol.remoting.client import RemotingClient
from support.controller_quorum import CLUSTER, GROUP, NAME, Quorum, WireBroker, until
from support.patience import PATIENCE_S


class Group:
    """A declared group of three brokers in sync."""

    def __init__(self, quorum: Quorum) -> None:
        self.quorum = quorum
        self.brokers = [WireBroker(quorum) for _ in range(3)]

    async def start(self) -> None:
        await self.quorum.declare()
        for broker in self.brokers:
            await broker.start()
        await self.elected(1)
        assert (await self.master.alter([1, 2, 3])).code == 0

    async def stop(self) -> None:
        for broker in self.brokers:
            await broker.kill()

    async def elected(self, epoch: int) -> dict[str, object]:
        """The view once the group has a master in ``epoch`` or later."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                view = await self.quorum.view()
                if view["masterEpoch"] >= epoch and view["masterBrokerId"] is not None:
                    self.master = self.broker(view["masterBrokerId"])
                    return view
                await asyncio.sleep(0.01)

    def broker(self, broker_id: int) -> WireBroker:
        return next(one for one in self.brokers if one.broker_id == broker_id)


@pytest.fixture
async def group(quorum: Quorum) -> AsyncIterator[Group]:
    group = Group(quorum)
    await group.start()
    yield group
    await group.stop()


async def test_first_boot_elects_once_and_tells_everybody(group: Group) -> None:
    view = await group.quorum.view()
    assert (view["masterEpoch"], view["syncStateSet"]) == (1, [1, 2, 3])
    assert sorted(one["brokerId"] for one in view["members"]) == [1, 2, 3]
    await until(lambda: all(one.epochs_told for one in group.brokers))
    assert [one.epochs_told for one in group.brokers] == [[1]] * 3


async def test_killed_master_is_replaced_and_survivors_are_told(group: Group) -> None:
    old = group.master
    await old.kill()
    view = await group.elected(2)
    assert view["masterBrokerId"] != old.broker_id
    assert view["syncStateSet"] == sorted({1, 2, 3} - {old.broker_id})
    survivors = [one for one in group.brokers if one is not old]
    await until(lambda: all(2 in one.epochs_told for one in survivors))
    assert 2 not in old.epochs_told


async def test_restarted_master_serves_only_in_a_new_epoch(group: Group) -> None:
    master = group.master
    await master.kill()
    answer = await master.start()
    assert answer.ext is not None
    assert answer.ext.get("masterBrokerId") != str(master.broker_id)
    assert (await group.elected(2))["masterBrokerId"] is not None


async def test_hand_over_by_name_under_the_epoch(group: Group) -> None:
    target = next(one for one in group.brokers if one is not group.master)
    ext = {"designateElect": "true", "masterEpoch": "1", "brokerId": str(target.broker_id)}
    assert (await group.master.call(1002, **ext)).code == 0
    assert (await group.master.call(1002, **ext)).code == 2000
    view = await group.elected(2)
    assert view["masterBrokerId"] == target.broker_id


async def test_lost_leader_is_replaced_and_nothing_is_forgotten(group: Group) -> None:
    quorum = group.quorum
    leader = await quorum.led()
    before = await quorum.view()
    await quorum.stop(leader.node.node_id)
    view = await quorum.view()
    for key in ("masterEpoch", "masterBrokerId", "syncStateSet", "syncStateSetEpoch"):
        assert view[key] == before[key]
    await group.master.kill()
    assert (await group.elected(2))["masterEpoch"] == 2


async def test_restart_of_all_nodes_keeps_everything(group: Group) -> None:
    quorum = group.quorum
    before = await quorum.view()
    nodes = list(quorum.running.values())
    await until(lambda: len({one.node.applied_index for one in nodes}) == 1)
    assert len({one.machine.state.digest() for one in nodes}) == 1
    await quorum.stop()
    await quorum.start()
    view = await quorum.view()
    for key in ("masterEpoch", "syncStateSet", "syncStateSetEpoch", "uid", "replicas"):
        assert view[key] == before[key]


async def test_followers_answer_reads_and_pass_writes_on(group: Group) -> None:
    await group.quorum.led()
    for follower in group.quorum.followers():
        before = follower.forwarder.forwarded
        async with group.quorum.client(follower) as caller:
            info = await caller.call(1004, GROUP)
            assert info.code == 0
            assert info.ext is not None
            assert info.ext["masterEpoch"] == "1"
            route = await caller.call(105, {"topic": "TBW102"})
            data = json.loads(route.body)
            assert data["brokerDatas"][0]["brokerAddrs"] == {"0": group.master.address}
            assert follower.forwarder.forwarded == before
            stale = {**GROUP, "masterBrokerId": "1", "masterEpoch": "0"}
            refused = await caller.call(1001, stale, b'{"syncStateSet":[1],"syncStateSetEpoch":1}')
            assert refused.code == 2000
        assert follower.forwarder.forwarded == before + 1


async def test_name_server_port_is_the_same_service(group: Group) -> None:
    leader = await group.quorum.led()
    client = RemotingClient()
    await client.connect(f"127.0.0.1:{leader.ports['nameserver']}")
    answer = await client.call(request(105, {"topic": "TBW102"}))
    assert answer.code == 0
    client.close()


async def test_metadata_names_the_leader_from_every_node(quorum: Quorum) -> None:
    leader = await quorum.led()
    peers = "".join(f"n{number}:{quorum.remoting(number)};" for number in (1, 2, 3))
    for controller in quorum.running.values():
        async with quorum.client(controller) as caller:
            answer = await caller.call(1005)
            assert answer.ext == {
                "group": "uid",
                "isLeader": "true" if controller is leader else "false",
                "peers": peers,
                "controllerLeaderId": f"n{leader.node.node_id}",
                "controllerLeaderAddress": quorum.remoting(leader.node.node_id),
            }


async def test_minority_answers_in_time_and_knows_nothing(group: Group) -> None:
    quorum = group.quorum
    await quorum.led()
    survivor = next(iter(quorum.running))
    await quorum.stop(*(number for number in (1, 2, 3) if number != survivor))
    controller = quorum.running[survivor]
    await until(lambda: controller.node.leader_id is None)
    async with quorum.client(controller) as caller:
        assert (await caller.call(1004, GROUP)).code == 2007
        assert (await caller.call(105, {"topic": "TBW102"})).code == 1
        metadata = await caller.call(1005)
        assert metadata.ext is not None
        assert "controllerLeaderAddress" not in metadata.ext
    async with quorum.http(controller) as session:
        async with session.get("/readyz") as response:
            assert response.status == 200
        async with session.get("/v1/groups") as response:
            assert response.status == 421
            assert (await response.json())["leader"] is None


async def test_watch_follows_the_group_and_ends_with_the_leader(group: Group) -> None:
    quorum = group.quorum
    leader = await quorum.led()
    async with quorum.http(leader) as session, session.get("/v1/watch?since=0") as response:
        first = json.loads(await response.content.readline())
        assert (first["cluster"], first["group"], first["masterEpoch"]) == (CLUSTER, NAME, 1)
        await group.master.kill()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                line = json.loads(await response.content.readline())
                if line.get("masterEpoch", 0) >= 2:
                    break
        await quorum.stop(leader.node.node_id)
        assert (await response.content.read()).count(b"masterEpoch") == 0


async def test_topic_is_committed_and_routed(group: Group) -> None:
    ext = {"topic": "Orders", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
    created = await group.master.call(17, **ext)
    assert created.ext == {"topicsVersion": "1"}
    info = await group.master.call(1004)
    assert info.ext is not None
    assert info.ext["topicsVersion"] == "1"
    route = await group.master.call(105, topic="Orders")
    assert json.loads(route.body)["queueDatas"][0]["writeQueueNums"] == 4


async def test_another_quorums_directory_is_refused(quorum: Quorum) -> None:
    leader = await quorum.led()
    number = leader.node.node_id
    await quorum.stop(number)
    settings = quorum.settings[number].model_copy(update={"cluster_uid": "another"})
    controller = Controller(settings)
    with pytest.raises(DataDirError, match="cluster_uid"):
        await controller.start()
    await controller.stop()
    await quorum.start(number)


async def test_port_in_use_is_one_sentence(tmp_path: Path, quorum: Quorum) -> None:
    taken = quorum.settings[1].http_port
    lonely = quorum.settings[1].model_copy(
        update={
            "name": "alone-0",
            "node_id": 1,
            "peers": "",
            "data_dir": tmp_path / "alone",
            "raft_port": 0,
            "remoting_port": 0,
            "nameserver_port": 0,
            "http_port": taken,
        }
    )
    with pytest.raises(PortInUseError, match=f"Port {taken}"):
        await serve(lonely, asyncio.Event())


async def test_single_node_serves_and_stops(tmp_path: Path) -> None:
    alone = Quorum(tmp_path, 1)
    stop = asyncio.Event()
    task = asyncio.create_task(serve(alone.settings[1], stop))
    address = alone.remoting(1)

    async def leads() -> bool:
        client = RemotingClient()
        try:
            await client.connect(address, 0.2)
            answer = await client.call(request(1005))
        except RemotingError:
            return False
        finally:
            client.close()
        return (answer.ext or {}).get("isLeader") == "true"

    async with asyncio.timeout(PATIENCE_S):
        while not await leads():
            await asyncio.sleep(0.02)
    stop.set()
    await asyncio.wait_for(task, PATIENCE_S)
