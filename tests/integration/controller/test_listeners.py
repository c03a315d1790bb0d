"""Routes by listener, at three real controllers, while masters and the leader end."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from gantry_controller.server import Controller
from gantry_protocol.command import request
from gantry_protocol.errors import ConnectionClosed
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.tls.process import Tls
from gantry_protocol.tls.settings import TlsFiles
from support.certificates import Authority
from support.controller_quorum import NAME, Quorum, WireBroker, until
from support.patience import PATIENCE_S

INSIDE = "10.96.0.7:10911"
ADVERTISED = {
    "outside": [
        {"brokerId": 1, "route": "172.18.0.2:30911", "own": "172.18.0.2:31001"},
        {"brokerId": 2, "route": "172.18.0.3:30911", "own": "172.18.0.3:31002"},
    ],
    "balancer": [
        {"brokerId": 1, "route": "a.example:10911", "own": "a.example:10911"},
        {"brokerId": 2, "route": "b.example:10911", "own": "b.example:10911"},
    ],
}


@pytest.fixture
async def quorum(tmp_path: Path) -> AsyncIterator[Quorum]:
    quorum = Quorum(tmp_path, snapshot_margin_entries=0, listeners="outside=0,balancer=0,none=0")
    await quorum.start()
    yield quorum
    await quorum.stop()


async def broker_zero(node: Controller, way_in: str) -> str | None:
    """The master's address as a client is told that comes in so; None for no route."""
    client = RemotingClient()
    await client.connect(f"127.0.0.1:{node.ports[way_in]}")
    try:
        answer = await client.call(request(105, {"topic": "TBW102"}), PATIENCE_S)
    finally:
        client.close()
    if answer.code == 17:
        return None
    assert answer.code == 0, answer
    route: dict[str, Any] = json.loads(answer.body)
    (broker,) = route["brokerDatas"]
    assert broker["brokerName"] == NAME
    assert set(broker["brokerAddrs"]) == {"0"}
    found: str = broker["brokerAddrs"]["0"]
    return found


async def told(quorum: Quorum, way_in: str) -> set[str | None]:
    """The same at each controller."""
    return {await broker_zero(node, way_in) for node in quorum.running.values()}


async def test_every_controller_leads_by_the_listener_through_failovers(quorum: Quorum) -> None:
    await quorum.declare(2, routeAddress=INSIDE, listeners=ADVERTISED)
    brokers = [WireBroker(quorum), WireBroker(quorum)]
    try:
        for broker in brokers:
            await broker.start()
        await until(lambda: (group := _group(quorum)) is not None and group.had_master)
        first = brokers[_master(quorum) - 1]
        assert first.broker_id == _master(quorum)
        await first.alter([1, 2])
        was = _master(quorum)
        assert await told(quorum, "nameserver") == {INSIDE}
        for name, rows in ADVERTISED.items():
            assert await told(quorum, f"listener-{name}") == {rows[was - 1]["route"]}
        assert await told(quorum, "listener-none") == {None}

        await first.kill()
        await until(lambda: _master(quorum) not in (0, was))
        second = _master(quorum)
        for name, rows in ADVERTISED.items():
            assert await told(quorum, f"listener-{name}") == {rows[second - 1]["route"]}
        assert await told(quorum, "nameserver") == {INSIDE}

        # Addresses change without a restart; what is declared outlives the leader and a snapshot.
        moved = [{**row, "route": "172.18.0.9:30911"} for row in ADVERTISED["outside"]]
        await quorum.declare(2, routeAddress=INSIDE, listeners={"outside": moved})
        leader = await quorum.led()
        lost = leader.node.node_id
        await leader.node.snapshots.take()
        await quorum.stop(lost)
        await quorum.led()
        await quorum.start(lost)
        await quorum.led()
        assert await told(quorum, "listener-outside") == {"172.18.0.9:30911"}
        assert await told(quorum, "listener-balancer") == {None}
        assert (await quorum.view())["listeners"] == {"outside": moved}
    finally:
        for broker in brokers:
            await broker.kill()


def _group(quorum: Quorum) -> Any:
    node = next(iter(quorum.running.values()))
    return node.machine.state.groups.get(("c", NAME))


def _master(quorum: Quorum) -> int:
    group = _group(quorum)
    return 0 if group is None or group.master_id is None else int(group.master_id)


async def test_a_listener_enforces_tls_as_the_name_service_does(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    pair = authority.issue("controller")
    quorum = Quorum(
        tmp_path,
        size=1,
        listeners="outside=0",
        tls_cert_file=pair.cert,
        tls_key_file=pair.key,
        tls_ca_file=authority.file,
        tls_mode="enforcing",
    )
    await quorum.start()
    try:
        node = await quorum.led()
        address = f"127.0.0.1:{node.ports['listener-outside']}"
        plain = RemotingClient()
        await plain.connect(address)
        with pytest.raises(ConnectionClosed):
            await plain.call(request(105, {"topic": "TBW102"}), PATIENCE_S)
        covered = RemotingClient(tls=Tls(TlsFiles(tls_ca_file=authority.file)))
        await covered.connect(address)
        answer = await covered.call(request(105, {"topic": "TBW102"}), PATIENCE_S)
        assert answer.code == 17, "it is served, and there is no group yet"
        covered.close()
    finally:
        await quorum.stop()
