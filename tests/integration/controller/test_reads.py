"""Reads at three real nodes: from followers, by lease, and one after another through the log."""

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from gantry_broker.control.peers import ControllerPeers
from gantry_controller.raft.reads import ReadMode
from gantry_controller.server import Controller
from gantry_lab.bench.controller.serial import SerialController
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.remoting.asking import Outcome
from support.controller_quorum import CLUSTER, NAME, Caller, Quorum, until
from support.patience import PATIENCE_S

WRITES = 60
TOPIC = "Orders"


async def write_route(caller: Caller, queues: int) -> None:
    """Acknowledged: the topic has so many queues from now on (a broker of the old kind says so)."""
    fields = {"brokerName": NAME, "brokerAddr": "h:1", "clusterName": CLUSTER, "brokerId": "0"}
    topic = {"topicName": TOPIC, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}
    table = {TOPIC: topic, "Other": {**topic, "topicName": "Other"}}
    version = {"stateVersion": queues, "timestamp": 0, "counter": queues}
    body = {"topicConfigSerializeWrapper": {"topicConfigTable": table, "dataVersion": version}}
    answer = await caller.call(103, fields, json.dumps(body).encode())
    assert answer.code == 0, answer


async def queues_of(caller: Caller, **more: str) -> int:
    answer = await caller.call(105, {"topic": TOPIC, **more})
    assert answer.code == 0, answer
    queues: int = json.loads(answer.body)["queueDatas"][0]["writeQueueNums"]
    return queues


async def switch_lease(quorum: Quorum, leader: Controller, *, enabled: bool) -> None:
    async with (
        quorum.http(leader) as session,
        session.put("/v1/quorum/lease", json={"enabled": enabled}) as response,
    ):
        assert response.status == 200, await response.text()
        assert (await response.json())["lease"]["enabled"] is enabled


async def test_no_node_answers_with_an_older_view_than_was_acknowledged(quorum: Quorum) -> None:
    leader = await quorum.led()
    one, two = quorum.followers()
    async with (
        quorum.client(leader) as writer,
        quorum.client(one) as first,
        quorum.client(two) as second,
    ):
        for queues in range(1, WRITES + 1):
            await write_route(writer, queues)
            seen = await asyncio.gather(*(queues_of(caller) for caller in (first, second, writer)))
            assert seen == [queues] * 3
    for follower in (one, two):
        assert follower.node.stats.reads[ReadMode.FOLLOWER] == WRITES
        assert follower.forwarder.forwarded == 0


async def test_follower_that_lags_names_the_leader_or_asks_it(tmp_path: Path) -> None:
    quorum = Quorum(tmp_path)
    for number, settings in quorum.settings.items():
        quorum.settings[number] = settings.model_copy(update={"read_lag_max": 2})
    await quorum.start()
    try:
        leader = await quorum.led()
        follower = quorum.followers()[0]
        async with quorum.client(leader) as writer, quorum.client(follower) as caller:
            await write_route(writer, 1)
            assert await queues_of(caller) == 1
            follower.node._apply = lambda entries: None  # type: ignore[method-assign]  # it is stuck
            for queues in range(2, 7):
                await write_route(writer, queues)
            await until(lambda: follower.node.commit_index >= follower.node.applied_index + 3)
            answer = await caller.call(105, {"topic": TOPIC, "gantryRedirects": "true"})
            assert answer.code == 1
            assert answer.ext is not None
            number = leader.node.node_id
            assert answer.ext["controllerLeaderAddress"] == quorum.remoting(number)
            assert all(f"n{n}:{quorum.remoting(n)};" in answer.ext["peers"] for n in (1, 2, 3))
            assert await queues_of(caller) == 6, "whoever cannot go there is answered by the leader"
            assert follower.node.stats.reads_redirected >= 2  # who waits asks again
            async with (
                quorum.http(follower) as session,
                session.get("/v1/groups?anywhere") as response,
            ):
                error = await response.json()
                assert (response.status, len(error["peers"])) == (421, 3)
                assert error["leader"] == leader.settings.members[number - 1].http_url()
    finally:
        await quorum.stop()


async def test_brokers_read_from_followers(quorum: Quorum) -> None:
    leader = await quorum.led()
    peers = ControllerPeers([quorum.remoting(number) for number in quorum.settings], lambda: None)
    peers.start()
    code = int(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID)
    try:
        await until(lambda: peers.connections == len(quorum.settings))
        await read_at(peers, code)  # by now each has said whether it leads
        before = leader.dispatcher.requests.get(code, 0)
        for _ in range(40):
            assert (await read_at(peers, code)).code == 0
        assert leader.dispatcher.requests.get(code, 0) - before <= 0.4 * 40
        assert peers.reads_by_follower >= 0.6 * 40
        await quorum.stop(*(one.node.node_id for one in quorum.followers()[:1]))
        assert (await read_at(peers, code)).code == 0, "another answers instead"
    finally:
        await peers.stop()


async def read_at(peers: ControllerPeers, code: int) -> RemotingCommand:
    told: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    command = request(code, {"clusterName": CLUSTER, "brokerName": NAME})
    peers.ask(command, told.set_result, PATIENCE_S)
    outcome = await told
    assert isinstance(outcome, RemotingCommand), outcome
    return outcome


async def test_lease_reads_are_a_setting_that_survives_the_leader(quorum: Quorum) -> None:
    leader = await quorum.led()
    async with quorum.client(leader) as caller:
        await read_something(caller)
        assert leader.node.stats.reads[ReadMode.LEASE] == 0
        await switch_lease(quorum, leader, enabled=True)
        await until(lambda: leader.node.lease_is_valid)
        await until_read_by_lease(leader, caller)
    await quorum.stop(leader.node.node_id)
    successor = await quorum.led()
    assert successor.node.lease_is_on
    async with quorum.client(successor) as caller:
        await until_read_by_lease(successor, caller)
        await switch_lease(quorum, successor, enabled=False)
        before = successor.node.stats.reads[ReadMode.LEASE]
        await read_something(caller)
        assert successor.node.stats.reads[ReadMode.LEASE] == before


async def read_something(caller: Caller) -> None:
    answer = await caller.call(1012, {"clusterName": CLUSTER, "brokerName": NAME})
    assert (answer.code, (answer.ext or {})["nextBrokerId"]) == (0, "1")


async def until_read_by_lease(leader: Controller, caller: Caller) -> None:
    """A lease may lapse while this machine is busy; the read then takes a round."""
    async with asyncio.timeout(PATIENCE_S):
        while leader.node.stats.reads[ReadMode.LEASE] == 0:
            await read_something(caller)


async def until_nobody_is_admitted_any_more(
    quorum: Quorum, write: Coroutine[Any, Any, None]
) -> None:
    """The founding is over: whoever was late to it was admitted by an entry of its own.

    A member that may not vote yet when the leader first hears of it costs a no-op, the mark of its
    admission (``raft.admission``). Once all may vote, and each has said so in its answer to a later
    entry, there can be no more of them.
    """
    await until(lambda: all(one.node.is_voter for one in quorum.running.values()))
    await write
    leader = await quorum.led()
    await until(
        lambda: all(
            peer.counted and peer.match_index == leader.node.commit_index
            for peer in leader.node.peer_status()
        )
    )


async def test_serial_architecture_sends_reads_through_the_log(tmp_path: Path) -> None:
    """Exactly one entry for each read, whoever is asked, and nothing but those."""
    quorum = Quorum(tmp_path, make=SerialController, election_timeout_ms=1000)
    await quorum.start()
    try:
        leader = await quorum.led()
        follower = quorum.followers()[0]
        async with quorum.client(leader) as caller, quorum.client(follower) as other:
            await until_nobody_is_admitted_any_more(quorum, write_route(caller, 1))
            before, forwarded = leader.node.commit_index, follower.forwarder.forwarded
            seen = await asyncio.gather(*(queues_of(one) for one in (caller, other) * 5))
            assert seen == [1] * 10
            assert leader.node.commit_index == before + 10
            assert follower.forwarder.forwarded == forwarded + 5
            assert sum(leader.node.stats.reads.values()) == 0
    finally:
        await quorum.stop()
