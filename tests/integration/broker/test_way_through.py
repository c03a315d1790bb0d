"""A client whose connection runs through a replica, while masters end: real processes."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

import pytest
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import eventually, send_command
from support.broker_processes import Group
from support.client_kills import TOPIC, stored_keys
from support.patience import PATIENCE_S

SENDERS = 8  # at once, so that some wait for an answer whenever the master ends


class Load:
    """Sends on one connection; none is ever sent twice by itself."""

    def __init__(self, client: RemotingClient) -> None:
        self.client = client
        self.codes: dict[str, int] = {}
        self._count = 0
        self._tasks = [asyncio.create_task(self._send()) for _ in range(SENDERS)]

    async def _send(self) -> None:
        while True:
            self._count += 1
            key = f"K{self._count}"
            command = send_command(key.encode(), TOPIC)
            assert command.ext is not None
            command.ext["i"] = f"UNIQ_KEY\x01{key}\x02"
            self.codes[key] = (await self.client.call(command, PATIENCE_S)).code

    async def goes_on(self) -> None:
        count = len(self.codes)
        await eventually(
            lambda: len(self.codes) > count + 5 * SENDERS or any(t.done() for t in self._tasks),
            "it goes on",
        )
        assert not any(task.done() for task in self._tasks)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.mark.timeout(600)
async def test_a_client_through_a_replica_outlives_the_masters(tmp_path: Path) -> None:
    """Each send is answered 0 on the one connection, and stored once."""
    group = Group(tmp_path)
    try:
        await group.start()
        first = group.master_ip
        through = next(ip for ip in group.processes if ip != first)
        client = await RemotingClient().connect(f"{through}:10911")
        load = Load(client)
        await load.goes_on()
        group.processes[first].process.kill()
        await load.goes_on()
        second = group.master_ip
        assert second != first
        if second != through:  # else its client is connected to the master from now on
            group.boot(first)
            await group.settled()
            group.processes[second].process.send_signal(signal.SIGTERM)
            await eventually(lambda: group.master_ip != second, "another master")
            await load.goes_on()
        await load.stop()
        client.close()
        stored = await stored_keys(f"{group.master_ip}:10911")
    finally:
        await group.stop()
    assert Counter(load.codes.values()) == {0: len(load.codes)}
    assert {key: stored[key] for key in load.codes} == dict.fromkeys(load.codes, 1)
    assert set(stored.values()) == {1}
