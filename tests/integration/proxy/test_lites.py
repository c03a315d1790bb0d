"""Lite topics by gRPC, before a real group of three: sent, subscribed to, taken, refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from gantry_proxy import messages
from gantry_proxy.server import ProxyServer
from support.broker_cluster import eventually
from support.cli_cluster import GROUP, CliCluster, cluster_with_group
from support.grpc_client import GrpcClient, code, settings
from support.proxies import served_proxy

PLACE = GROUP  # the broker's name is the group's
PARENT, AGENTS, ALONE = "sessions", "agents", "alone"
PARTIAL_ADD, PARTIAL_REMOVE, COMPLETE_ADD, COMPLETE_REMOVE = range(4)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliCluster]:
    with cluster_with_group(tmp_path_factory.mktemp("lites") / "local") as made:
        made.gantry("topics", "create", PARENT, "--type", "lite")
        made.gantry("topics", "create", "plain")
        made.gantry("groups", "create", AGENTS, "--lite-of", PARENT)
        made.gantry("groups", "create", ALONE, "--lite-of", PARENT, "--lite-exclusive")
        yield made


@pytest.fixture
async def first(cluster: CliCluster) -> AsyncIterator[ProxyServer]:
    async with served_proxy(cluster) as server:
        yield server


@pytest.fixture
async def client(first: ProxyServer) -> AsyncIterator[GrpcClient]:
    async with GrpcClient(f"127.0.0.1:{first.grpc_port}", "one") as made:
        yield made


@pytest.fixture
async def rival(first: ProxyServer) -> AsyncIterator[GrpcClient]:
    async with GrpcClient(f"127.0.0.1:{first.grpc_port}", "two") as made:
        yield made


@pytest.fixture
async def elsewhere(cluster: CliCluster) -> AsyncIterator[GrpcClient]:
    """The same client as the first, at another proxy."""
    async with (
        served_proxy(cluster) as server,
        GrpcClient(f"127.0.0.1:{server.grpc_port}", "one") as made,
    ):
        yield made


async def sync(client: GrpcClient, action: int, *names: str, group: str = AGENTS) -> str:
    wanted = messages.SyncLiteSubscriptionRequest(action=action, lite_topic_set=names)
    wanted.topic.name, wanted.group.name = PARENT, group
    return code(await client.ask("SyncLiteSubscription", wanted))


async def send(client: GrpcClient, lite: str, *bodies: bytes, topic: str = PARENT) -> list[str]:
    answers = [await client.send(topic, body, kind="LITE", lite_topic=lite) for body in bodies]
    return [code(answer) for answer in answers]


async def take(client: GrpcClient, group: str = AGENTS, poll_ms: int = 5_000) -> dict[str, Any]:
    _, found = await client.receive(PARENT, group, PLACE, poll_ms=poll_ms)
    return {message.body.decode(): message for message in found}


async def test_what_one_proxy_gives_the_other_acknowledges(client, elsewhere) -> None:
    assert await sync(client, PARTIAL_ADD, "a", "b") == "OK"
    assert await send(client, "a", b"a1", b"a2") == ["OK", "OK"]
    found = await take(client)
    assert list(found) == ["a1", "a2"]
    assert {message.system_properties.lite_topic for message in found.values()} == {"a"}
    handles = [message.system_properties.receipt_handle for message in found.values()]
    put_off = await elsewhere.change(PARENT, AGENTS, handles[1], 0)
    assert code(put_off) == "OK"
    assert await elsewhere.ack(PARENT, AGENTS, handles[0]) == ["OK"]
    again = await take(elsewhere)
    assert list(again) == ["a2"]
    message = again["a2"]
    assert message.system_properties.delivery_attempt == 2
    assert await client.ack(PARENT, AGENTS, message.system_properties.receipt_handle) == ["OK"]
    assert await take(client, poll_ms=0) == {}
    assert await sync(client, COMPLETE_REMOVE) == "OK"


async def test_what_is_buried_is_done(client, cluster) -> None:
    assert await sync(client, PARTIAL_ADD, "c") == "OK"
    assert await send(client, "c", b"c1") == ["OK"]
    (message,) = (await take(client)).values()
    answer = await client.bury(PARENT, AGENTS, message.system_properties.receipt_handle)
    assert code(answer) == "OK"
    assert await send(client, "c", b"c2") == ["OK"]
    assert list(await take(client)) == ["c2"]


async def test_a_client_is_told_that_it_has_lost_a_lite_topic(client, rival) -> None:
    stream = client.telemetry(settings(group=ALONE, topics=(PARENT,)))
    told = await stream.hear()
    assert told.settings.subscription.lite_subscription_quota == 2_000
    assert told.settings.subscription.max_lite_topic_size == 64
    assert await sync(client, PARTIAL_ADD, "d", group=ALONE) == "OK"
    assert await sync(rival, PARTIAL_ADD, "d", group=ALONE) == "OK"
    lost = await stream.hear()
    assert lost.notify_unsubscribe_lite_command.lite_topic == "d"
    assert await send(client, "d", b"d1") == ["OK"]
    assert list(await take(rival, ALONE)) == ["d1"]
    assert await take(client, ALONE, poll_ms=0) == {}
    stream.leave()


async def test_refusals(client) -> None:
    assert await sync(client, PARTIAL_ADD, "a b") == "ILLEGAL_LITE_TOPIC"
    assert await sync(client, PARTIAL_ADD, "a", group="nobody") == "CONSUMER_GROUP_NOT_FOUND"
    assert await send(client, "a b", b"x1") == ["ILLEGAL_LITE_TOPIC"]
    assert await send(client, "a", b"x2", topic="plain") == ["BAD_REQUEST"]
    many = [f"n{number}" for number in range(2_001)]
    assert await sync(client, COMPLETE_ADD, *many) == "LITE_SUBSCRIPTION_QUOTA_EXCEEDED"


async def test_a_client_that_says_that_it_goes_takes_nothing_any_more(client, first) -> None:
    assert await sync(client, PARTIAL_ADD, "e") == "OK"
    command = settings(group=AGENTS, topics=(PARENT,))
    command.settings.client_type = messages.CLIENT_TYPES["LITE_PUSH_CONSUMER"]
    stream = client.telemetry(command)
    await stream.hear()
    wanted = messages.NotifyClientTerminationRequest()
    wanted.group.name = AGENTS
    assert code(await client.ask("NotifyClientTermination", wanted)) == "OK"
    await eventually(lambda: not first.lites._leaving, "it is taken off")
    assert await send(client, "e", b"e1") == ["OK"]
    assert await take(client, poll_ms=0) == {}
    assert await sync(client, PARTIAL_ADD, "e") == "OK"
    assert list(await take(client)) == ["e1"], "and what waited for it is there"
