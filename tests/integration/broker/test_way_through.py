"""A client whose connection runs through a replica, while masters end: real processes."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import eventually
from support.broker_processes import Group
from support.client_kills import stored_keys
from support.sends import Load


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
