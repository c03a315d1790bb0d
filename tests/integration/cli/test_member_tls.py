"""TLS between the processes of a cluster: the way to it, who is kept out by it, and its renewal."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from gantry_broker.ha import wire as ha
from gantry_broker.remote import messages as store
from gantry_broker.replica import messages as replication
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import request
from gantry_protocol.errors import ConnectError, MemberRefused
from gantry_protocol.frame import encode
from gantry_protocol.member_tls.names import MemberKind, MemberName
from gantry_protocol.member_tls.process import MemberTls
from gantry_protocol.quorum_key import KeyFile, Purpose
from gantry_protocol.remoting.client import RemotingClient, open_connection
from gantry_protocol.remoting.key_requests import show_key
from gantry_protocol.remoting.signatures import sign, signed_content
from gantry_protocol.types import Epoch
from support.certificates import MemberAuthority
from support.member_pipe import Impostor, Speaker
from support.member_tls_cluster import (
    CLUSTER,
    CONTROL,
    GROUP,
    HA,
    RAFT,
    STORE,
    MemberTlsCluster,
    Place,
)
from support.patience import PATIENCE_S

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

GATES = ((RAFT, Purpose.RAFT, 0), (HA, Purpose.REPLICATION, 3), (STORE, Purpose.STORE, 3))
ORDERS = MemberName(MemberKind.BROKER, CLUSTER, GROUP)


async def plain_connections(cluster: MemberTlsCluster, *places: Place) -> float:
    """Between members, so far, as the processes that run now have counted them."""
    found = [await cluster.figures(place) for place in places or cluster.places]
    return sum(one["plain_dials_total"] + one["plain_accepted_total"] for one in found)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MemberTlsCluster]:
    made = MemberTlsCluster(tmp_path_factory.mktemp("cluster"))
    async with made.run("enforcing"):
        yield made


async def test_way_from_none_to_enforced_loses_nothing(tmp_path: Path) -> None:
    """Also a renewal of all certificates under load, with a master killed after it."""
    cluster = MemberTlsCluster(tmp_path)
    async with cluster.run(None):
        async with cluster.load():
            for mode in ("permissive", "enforcing"):
                for place in cluster.places:
                    await cluster.restart(place, mode)
                await cluster.goes_on()
                before = await plain_connections(cluster)
                for place in (cluster.places[0], cluster.places[3]):
                    before -= await plain_connections(cluster, place)
                    await cluster.restart(place, mode)
                assert await plain_connections(cluster) == before, mode
            figures = {place: await cluster.figures(place) for place in cluster.places}
            for place, found in figures.items():
                assert found["handshakes_total"] > 0 or place.command != "controller", place
                assert found["plain_dials_total"] == found["plain_accepted_total"] == 0, place
                for name, value in found.items():  # who is restarted may leave amid a handshake
                    if name.startswith("refused") and "left" not in name:
                        assert value == 0, (place, name, cluster.said(place))

            for place in cluster.places:
                cluster.renew(place)
            await asyncio.sleep(1.1)  # files are looked at once a second
            master = await cluster.master()
            await cluster.kill(master)
            await cluster.goes_on()
            await cluster.start(master, "enforcing")
            async with asyncio.timeout(PATIENCE_S):
                await cluster.settled()
            for place in cluster.places:
                found = await cluster.figures(place)
                if place != master:
                    assert (
                        found["certificate_expires_seconds"]
                        > figures[place]["certificate_expires_seconds"]
                    ), place
                assert found["reload_failures_total"] == 0, place
        assert set(cluster.acknowledged) <= await cluster.stored()
        assert len(cluster.acknowledged) > 200


async def test_failover_is_as_quick_as_ever(cluster: MemberTlsCluster) -> None:
    """With 200 strangers amid their handshakes at every port."""
    strangers = []
    for place in cluster.places[:6]:
        for port in (RAFT,) if place.command == "controller" else (HA, STORE):
            for number in range(200):
                _, writer = await asyncio.open_connection(place.ip, port)
                if number % 2:
                    writer.write(b"\x16\x03\x01\x02\x00\x01")
                strangers.append(writer)
    async with cluster.load():
        master = await cluster.master()
        cluster.gap_s = 0.0
        await cluster.kill(master)
        await cluster.goes_on()
        print(f"longest time without an acknowledged send: {cluster.gap_s:.2f} s")
        await cluster.start(master, "enforcing")
        async with asyncio.timeout(PATIENCE_S):
            await cluster.settled()
    async with asyncio.timeout(PATIENCE_S):  # a failover may be over before a stranger's time is up
        for place in cluster.places[:6]:
            while place != master:
                if (await cluster.figures(place))['refused_total{reason="time"}'] > 0:
                    break
                await asyncio.sleep(0.1)
    for writer in strangers:
        writer.close()
    assert set(cluster.acknowledged) <= await cluster.stored()


@pytest.mark.parametrize(("port", "purpose", "at"), GATES, ids=[gate[1].name for gate in GATES])
async def test_key_without_a_certificate_comes_nowhere(
    cluster: MemberTlsCluster, port: int, purpose: Purpose, at: int
) -> None:
    place = cluster.places[at]
    with pytest.raises(ConnectError):
        await open_connection(
            Speaker, f"{place.ip}:{port}", 2, key=KeyFile(cluster.key.file), purpose=purpose
        )


@pytest.mark.parametrize(("port", "purpose", "at"), GATES, ids=[gate[1].name for gate in GATES])
@pytest.mark.parametrize("whose", ["another authority", "another kind", "another domain"])
async def test_key_with_a_wrong_certificate_comes_nowhere(
    cluster: MemberTlsCluster, tmp_path: Path, port: int, purpose: Purpose, at: int, whose: str
) -> None:
    place = cluster.places[at]
    authority, name = cluster.authority, f"gantry://mq/front/{CLUSTER}"
    if purpose is Purpose.STORE:
        name = f"gantry://mq/broker/{CLUSTER}/{GROUP}"
    if whose == "another authority":
        authority = MemberAuthority(tmp_path, "clients")
        name = cluster.member(place).in_domain("mq")
    elif whose == "another domain":
        name = cluster.member(place).in_domain("other")
    tls = Impostor(authority.issue("hostile", name), cluster.authority.file)
    before = await cluster.figures(place)
    with pytest.raises(MemberRefused):
        await open_connection(
            Speaker,
            f"{place.ip}:{port}",
            2,
            key=KeyFile(cluster.key.file, tls),
            purpose=purpose,
            expected=cluster.member(place),
        )
    after = await cluster.figures(place)
    kind = "certificate" if whose == "another authority" else "name"
    label = f'refused_total{{reason="{kind}"}}'
    assert after[label] > before[label]


async def test_broker_of_another_group_reads_nothing(
    cluster: MemberTlsCluster, tmp_path: Path
) -> None:
    """It is a broker of the same cluster; its own certificate says of which group."""
    bills = cluster.authority.issue("bills", f"gantry://mq/broker/{CLUSTER}/bills")
    tls = Impostor(bills, cluster.authority.file)
    speaker = Speaker()
    master = await cluster.master()
    transport = await open_connection(
        lambda: speaker,
        f"{master.ip}:{HA}",
        2,
        key=KeyFile(cluster.key.file, tls),
        purpose=Purpose.REPLICATION,
        expected=ORDERS,
    )
    hello = replication.RangeAsk(0, 100)
    transport.writelines(ha.encode(hello, ha.Caller(CLUSTER, GROUP, "u")))
    async with asyncio.timeout(PATIENCE_S):
        while not speaker.has_ended:
            await asyncio.sleep(0.01)
    assert b"your certificate is not for that group" in speaker.heard


async def test_front_of_another_cluster_is_not_served(cluster: MemberTlsCluster) -> None:
    other = cluster.authority.issue("other", "gantry://mq/front/another")
    tls = Impostor(other, cluster.authority.file)
    speaker = Speaker()
    master = await cluster.master()
    transport = await open_connection(
        lambda: speaker,
        f"{master.ip}:{STORE}",
        2,
        key=KeyFile(cluster.key.file, tls),
        purpose=Purpose.STORE,
        expected=ORDERS,
    )
    transport.write(store.encode(store.Hello(CLUSTER, GROUP, Epoch(0), "1.2.3.4:5")))
    async with asyncio.timeout(PATIENCE_S):
        while not speaker.has_ended:
            await asyncio.sleep(0.01)
    assert b"your certificate is not for that cluster" in speaker.heard


async def test_controllers_hear_members_only_and_are_read_by_all(
    cluster: MemberTlsCluster,
) -> None:
    address = f"{cluster.places[0].ip}:{CONTROL}"
    heartbeat = request(
        904,
        {
            "clusterName": CLUSTER, "brokerName": GROUP, "brokerId": "1", "brokerAddr": "1.2.3.4:5",
            "epoch": "9", "maxOffset": "9", "confirmOffset": "9", "heartbeatTimeoutMills": "1000",
        },
    )  # fmt: skip

    async def told(tls: MemberTls | None) -> tuple[int, int]:
        client = RemotingClient() if tls is None else RemotingClient(member_tls=tls)
        await client.connect(address)
        await show_key(client, cluster.key)
        answers = [await client.call(one) for one in (heartbeat, request(1005))]
        client.close()
        return answers[0].code, answers[1].code

    refused, served = ResponseCode.NO_PERMISSION, ResponseCode.SUCCESS
    assert await told(None) == (refused, served)
    for name, heard in (
        (f"broker/{CLUSTER}/bills", refused),
        (f"broker/{CLUSTER}/{GROUP}", served),
    ):
        pair = cluster.authority.issue("caller", f"gantry://mq/{name}")
        tls = Impostor(pair, cluster.authority.file)
        assert await told(tls) == (heard, served)


async def test_client_by_tls_reads_at_the_controllers_port(cluster: MemberTlsCluster) -> None:
    """A tool of the old kind that speaks TLS and shows no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(cluster.places[0].ip, CONTROL, ssl=context)
    writer.write(encode(request(1005)))
    (size,) = struct.unpack(">I", await asyncio.wait_for(reader.readexactly(4), PATIENCE_S))
    assert b'"code":0' in await reader.readexactly(size)
    writer.close()


async def test_old_broker_by_tls_shows_a_certificate(
    cluster: MemberTlsCluster,
) -> None:
    """Of the old kind: it signs its requests, and knows nothing of how members greet."""
    pair = cluster.authority.issue("old", f"gantry://mq/broker/{CLUSTER}/{GROUP}")
    ext = {
        "clusterName": CLUSTER, "brokerName": GROUP, "brokerId": "9", "brokerAddr": "1.2.3.4:5",
        "epoch": "1", "maxOffset": "1", "confirmOffset": "1", "heartbeatTimeoutMills": "1000",
        "AccessKey": "gantry",
    }  # fmt: skip
    ext["Signature"] = sign(cluster.key.keys()[0], signed_content(ext, b"")).decode()
    for shown, code in ((True, ResponseCode.SUCCESS), (False, ResponseCode.NO_PERMISSION)):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if shown:
            context.load_cert_chain(pair.cert, pair.key)
        reader, writer = await asyncio.open_connection(cluster.places[0].ip, CONTROL, ssl=context)
        writer.write(encode(request(904, ext)))
        (size,) = struct.unpack(">I", await asyncio.wait_for(reader.readexactly(4), PATIENCE_S))
        assert b'"code":%d,' % code in await reader.readexactly(size)
        writer.close()


async def test_process_with_the_certificate_of_another_does_not_start(
    cluster: MemberTlsCluster, tmp_path: Path
) -> None:
    other = MemberTlsCluster(tmp_path)
    place = other.places[3]
    other.authority.issue("x", f"gantry://mq/front/{CLUSTER}", into=other.pair(place))
    await other.start(place, "enforcing")
    process: Any = other._running[place]
    assert await asyncio.wait_for(process.wait(), PATIENCE_S) != 0
    said = other.said(place)
    assert f"must be the URI gantry://mq/broker/{CLUSTER}/{GROUP}, and it has" in said
    assert "Traceback" not in said
