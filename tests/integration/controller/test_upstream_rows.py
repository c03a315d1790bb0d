"""Upstream tests of whole controllers: ``ControllerManagerTest``, ``DLedgerControllerTest``.

Brokers here are Java's: undeclared, without incarnations, told of by heartbeats with a time-out of
their own. Elections outside the sync-state set do not exist with us, so where upstream switches
them on, the survivor is in the set instead.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import RemotingError
from gantry_protocol.remoting.client import RemotingClient
from support.controller_quorum import GROUP, Quorum, until
from support.patience import PATIENCE_S

TIMEOUT_MS = 1000


class Brokers:
    """Two brokers of upstream, by id: what they send, over one connection to each controller."""

    def __init__(self, quorum: Quorum) -> None:
        self.quorum = quorum
        self.beating: set[int] = set()
        self._task = asyncio.create_task(self._beat())
        self._clients: dict[int, RemotingClient] = {}

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for client in self._clients.values():
            client.close()

    async def call(self, code: int, body: bytes = b"", /, **ext: object) -> RemotingCommand:
        """Asks until somebody leads."""
        fields = {**GROUP, **{key: str(value) for key, value in ext.items()}}
        async with asyncio.timeout(PATIENCE_S):
            while True:
                leader = await self.quorum.led()
                async with self.quorum.client(leader) as caller:
                    try:
                        answer = await caller.call(code, fields, body)
                    except RemotingError:
                        continue
                if answer.code != 2007:
                    return answer

    async def join(self, broker: int) -> RemotingCommand:
        told = await self.call(1012)
        assert (told.ext or {})["nextBrokerId"] == str(broker)
        code = f"127.0.0.1:{broker};1"
        assert (await self.call(1013, appliedBrokerId=broker, registerCheckCode=code)).code == 0
        return await self.register(broker)

    async def register(self, broker: int) -> RemotingCommand:
        return await self.call(1003, brokerId=broker, brokerAddress=f"127.0.0.1:{broker}")

    async def info(self) -> tuple[str | None, str, list[int]]:
        """Master, epoch and set as 1004 tells them."""
        answer = await self.call(1004)
        ext = answer.ext or {}
        return (
            ext.get("masterBrokerId"),
            ext["masterEpoch"],
            json.loads(answer.body)["syncStateSet"],
        )

    async def until_info(self, expected: tuple[str | None, str, list[int]]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await self.info() != expected:
                await asyncio.sleep(0.02)

    async def _beat(self) -> None:
        while True:
            for number, controller in list(self.quorum.running.items()):
                client = self._clients.get(number)
                try:
                    if client is None or client.closed:
                        client = self._clients[number] = RemotingClient()
                        await client.connect(f"127.0.0.1:{controller.ports['remoting']}", 0.2)
                    for broker in sorted(self.beating):
                        client.oneway(request(904, _heartbeat(broker)))
                except (RemotingError, KeyError):
                    continue
            await asyncio.sleep(0.1)


def _heartbeat(broker: int) -> dict[str, str]:
    return {
        **GROUP,
        "brokerId": str(broker),
        "brokerAddr": f"127.0.0.1:{broker}",
        "epoch": "1",
        "maxOffset": "1",
        "heartbeatTimeoutMills": str(TIMEOUT_MS),
    }


@pytest.fixture
async def brokers(quorum: Quorum) -> AsyncIterator[Brokers]:
    brokers = Brokers(quorum)
    yield brokers
    await brokers.stop()


async def founded(brokers: Brokers) -> None:
    """Brokers 1 and 2 in sync, 1 is master in epoch 1."""
    for broker in (1, 2):
        assert (await brokers.join(broker)).code == 0
    brokers.beating = {1, 2}
    assert (await brokers.call(1002, brokerId=1)).code == 0
    body = b'{"syncStateSet":[1,2],"syncStateSetEpoch":1}'
    async with asyncio.timeout(PATIENCE_S):
        while (await brokers.call(1001, body, masterBrokerId=1, masterEpoch=1)).code == 2006:
            await asyncio.sleep(0.05)  # broker 2 was not heard since it registered
    assert await brokers.info() == ("1", "1", [1, 2])


async def test_some_api(brokers: Brokers) -> None:
    """``ControllerManagerTest.testSomeApi``."""
    for broker in (1, 2):
        registered = await brokers.join(broker)
        assert registered.code == 0
        assert "masterBrokerId" not in (registered.ext or {})
    brokers.beating = {1, 2}
    first = await brokers.call(1002, brokerId=1)
    assert (first.code, (first.ext or {})["masterEpoch"]) == (0, "1")
    assert (first.ext or {})["syncStateSetEpoch"] == "1"
    await until(lambda: brokers.quorum.leader is not None)
    second = await brokers.call(1002, brokerId=2)
    assert (second.code, (second.ext or {})["masterBrokerId"]) == (2011, "1")


async def test_silent_master_is_replaced(brokers: Brokers) -> None:
    """``ControllerManagerTest``, second half; ``DLedgerControllerTest.testElectMaster``."""
    await founded(brokers)
    brokers.beating = {2}
    await brokers.until_info(("2", "2", [2]))


async def test_majority_lost_and_back(brokers: Brokers) -> None:
    """``DLedgerControllerTest.testBrokerLifecycleListener``."""
    quorum = brokers.quorum
    await founded(brokers)
    survivor = (await quorum.led()).node.node_id
    lost = [number for number in (1, 2, 3) if number != survivor]
    await quorum.stop(*lost)
    brokers.beating = {2}
    async with quorum.client(quorum.running[survivor]) as caller:
        refused = await caller.call(1002, {**GROUP, "brokerId": "2"})
        assert refused.code in (2, 2007), "an election without a majority"
    await quorum.start(*lost)
    await brokers.until_info(("2", "2", [2]))


async def test_a_master_that_finds_new_controllers_late_stays(brokers: Brokers) -> None:
    """Of all controllers that come back under new addresses, replicas hear seconds earlier."""
    await founded(brokers)
    brokers.beating = set()
    await brokers.quorum.stop(1, 2, 3)
    await brokers.quorum.start(1, 2, 3)
    brokers.beating = {2}
    await brokers.call(1002, brokerId=2)  # somebody leads, and has heard the replica alone
    await asyncio.sleep(3 * TIMEOUT_MS / 1000)  # of what was heard, that would be the end
    assert await brokers.info() == ("1", "1", [1, 2])


async def test_all_replicas_shut_down_and_restart(brokers: Brokers) -> None:
    """``DLedgerControllerTest.testAllReplicasShutdownAndRestartWithUnEnableElectUnCleanMaster``.

    Upstream drops the master and burns an epoch; with us a failure changes nothing.
    """
    await founded(brokers)
    body = b'{"syncStateSet":[1],"syncStateSetEpoch":2}'
    assert (await brokers.call(1001, body, masterBrokerId=1, masterEpoch=1)).code == 0
    brokers.beating = {2}
    # Until broker 1 counts as dead, it "still exists" (2011).
    async with asyncio.timeout(PATIENCE_S):
        while (await brokers.call(1002, brokerId=2)).code != 2012:
            await asyncio.sleep(0.05)
    assert await brokers.info() == ("1", "1", [1])
    brokers.beating = {1, 2}
    assert (await brokers.register(1)).code == 0
    assert (await brokers.call(1002, brokerId=1)).code in (0, 2011)
    master, epoch, members = await brokers.info()
    assert (master, members) == ("1", [1])
    assert epoch == "2", "a new process of the master serves in a new epoch"


async def test_change_of_the_leading_controller(brokers: Brokers) -> None:
    """``DLedgerControllerTest.testChangeControllerLeader``."""
    await founded(brokers)
    await brokers.quorum.stop((await brokers.quorum.led()).node.node_id)
    assert await brokers.info() == ("1", "1", [1, 2])
