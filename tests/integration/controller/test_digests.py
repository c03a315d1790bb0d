"""A controller whose state is not what the others made of the same log does not go on serving."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from gantry_controller.metadata.events import CreateTopic, encode_event
from gantry_controller.metadata.topic_table import Topic
from gantry_controller.raft.errors import StateDiffersError
from msgspec.structs import replace
from support.controller_quorum import CLUSTER, NAME, Quorum, until

EVERY = 8


@pytest.fixture
async def quorum(tmp_path: Path) -> AsyncIterator[Quorum]:
    """What a leader found goes with it, so this one stays, also on a busy machine."""
    found = Quorum(tmp_path, election_timeout_ms=2000)
    await found.start()
    for controller in found.running.values():
        machine = controller.machine
        machine._digest_every = machine._digest_due = EVERY  # else a thousand entries are needed
    yield found
    await found.stop()


async def fill(quorum: Quorum) -> None:
    """Enough entries for a digest."""
    leader = await quorum.led()
    loop = asyncio.get_running_loop()
    waits = []
    for number in range(2 * EVERY):
        topic = CreateTopic(
            cluster=CLUSTER, name=NAME, topic=f"t{number}", config=Topic(1, 1, 6), if_absent=True
        )
        done: asyncio.Future[Any] = loop.create_future()
        leader.node.propose(encode_event(topic), done.set_result)
        waits.append(done)
    assert all(result.ok for result in await asyncio.gather(*waits))


async def test_equal_states_agree_and_say_so(quorum: Quorum) -> None:
    await quorum.declare()
    await fill(quorum)
    nodes = list(quorum.running.values())
    leader = await quorum.led()
    await until(lambda: leader.node.digests.agreed.index >= EVERY)
    agreed = leader.node.digests.agreed.index
    await until(lambda: all(one.node.digests.agreed.index >= agreed for one in nodes))
    for node in nodes:
        async with quorum.http(node) as session, session.get("/v1/quorum") as response:
            view = await response.json()
        assert view["digestIndex"] >= agreed
        assert view["digest"] == f"{node.machine.point.digest:016x}"
        assert all(peer.get("differsAtIndex") is None for peer in view["peers"])


async def test_a_follower_that_differs_is_named_and_ends(quorum: Quorum) -> None:
    failures: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: failures.append(context["exception"])
    )
    await quorum.declare()
    leader = await quorum.led()
    wrong, third = quorum.followers()
    await until(lambda: wrong.machine.group(CLUSTER, NAME) is not None)
    group = wrong.machine.group(CLUSTER, NAME)
    assert group is not None
    wrong.machine.state.put(replace(group, clean=False))
    third.machine._digest_due = 1000 * EVERY  # it says nothing yet, so nobody has a majority
    await fill(quorum)
    await until(lambda: wrong.node.node_id in leader.node.digests.differing)
    assert not failures
    third.machine._digest_due = EVERY
    await fill(quorum)
    await until(lambda: failures)
    assert isinstance(failures[0], StateDiffersError)
    assert f"The state of node {wrong.node.node_id}" in str(failures[0])
    async with quorum.http(leader) as session, session.get("/v1/quorum") as response:
        peers = {peer["id"]: peer for peer in (await response.json())["peers"]}
    assert peers[wrong.node.node_id]["differsAtIndex"] % EVERY == 0
    assert not wrong.node.is_voter  # it takes no part any more
    await quorum.stop(wrong.node.node_id)
    await fill(quorum)  # the others go on
