"""Two proxies before a real group of three brokers: what one gave, the other takes."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator

import grpc
import pytest
from gantry_proxy import consuming, messages, renewing
from gantry_proxy.core.outgoing import BODY_BYTES_MAX
from gantry_proxy.server import ProxyServer
from support.cli_cluster import GROUP, CliCluster, cluster_with_group
from support.grpc_client import GrpcClient, code, settings
from support.patience import PATIENCE_S
from support.proxies import served_proxy

PLACE = GROUP  # the broker's name is the group's
QUEUES = 4
numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliCluster]:
    home = tmp_path_factory.mktemp("proxied") / "local"
    with cluster_with_group(home, transaction_check_interval_s="1") as made:
        yield made


@pytest.fixture
def topic(cluster: CliCluster) -> str:
    """A topic of its own for each test."""
    name = f"spoken-{next(numbers)}"
    cluster.gantry("topics", "create", name, "--queues", str(QUEUES))
    return name


@pytest.fixture
async def first(cluster: CliCluster) -> AsyncIterator[ProxyServer]:
    async with served_proxy(cluster) as server:
        yield server


@pytest.fixture
async def client(first: ProxyServer) -> AsyncIterator[GrpcClient]:
    async with GrpcClient(f"127.0.0.1:{first.grpc_port}") as made:
        yield made


@pytest.fixture
async def other(cluster: CliCluster) -> AsyncIterator[GrpcClient]:
    """The same client at another proxy."""
    async with served_proxy(cluster) as server, GrpcClient(f"127.0.0.1:{server.grpc_port}") as made:
        yield made


async def taken(client: GrpcClient, topic: str, group: str = "g", **changes: object) -> dict:
    """Bodies to messages, of one receive."""
    _, found = await client.receive(topic, group, PLACE, **{"poll_ms": 5_000} | changes)
    return {message.body: message for message in found}


def handle(message: messages.Message) -> str:
    return message.system_properties.receipt_handle


async def test_a_route_leads_to_where_the_client_came(client: GrpcClient, topic: str) -> None:
    answer = await client.route(topic)
    assert code(answer) == "OK"
    assert len(answer.message_queues) == QUEUES
    assert {queue.broker.name for queue in answer.message_queues} == {PLACE}
    assignment = await client.assignment(topic, "g")
    assert [item.message_queue.id for item in assignment.assignments] == [-1]


async def test_what_is_not_there_is_refused_by_name(client: GrpcClient, topic: str) -> None:
    assert code(await client.route("nowhere")) == "TOPIC_NOT_FOUND"
    assert code(await client.route("no topic")) == "ILLEGAL_TOPIC"
    assert code(await client.send("nowhere", b"a")) == "TOPIC_NOT_FOUND"
    found, _ = await client.receive(topic, "g", "nobody")
    assert found == "BAD_REQUEST"


async def test_sent_received_and_acknowledged_at_another_proxy(
    client: GrpcClient, other: GrpcClient, topic: str
) -> None:
    sent = await client.send(topic, b"a", tag="paid")
    assert code(sent) == "OK"
    assert sent.entries[0].message_id == "a"
    found = await taken(client, topic)
    assert found[b"a"].system_properties.delivery_attempt == 1
    assert found[b"a"].system_properties.tag == "paid"
    assert await other.ack(topic, "g", handle(found[b"a"])) == ["OK"]
    assert await client.ack(topic, "g", handle(found[b"a"])) == ["OK"]  # twice is as good as once
    assert (await client.receive(topic, "g", PLACE))[0] == "MESSAGE_NOT_FOUND"


async def test_what_passes_a_filter_in_sql_is_received(client: GrpcClient, topic: str) -> None:
    for tag in ("paid", "open", "paid"):
        assert code(await client.send(topic, tag.encode(), tag=tag)) == "OK"
    wanted = {"is_sql": True, "expression": "TAGS IN ('open') AND UNIQ_KEY IS NOT NULL"}
    found = await taken(client, topic, **wanted)
    assert list(found) == [b"open"]
    assert await client.ack(topic, "g", handle(found[b"open"])) == ["OK"]
    assert (await client.receive(topic, "g", PLACE, **wanted))[0] == "MESSAGE_NOT_FOUND"
    refused = await client.receive(topic, "g", PLACE, is_sql=True, expression="TAGS IN (open)")
    assert refused == ("ILLEGAL_FILTER_EXPRESSION", [])


async def test_a_message_comes_at_its_moment_unless_it_is_taken_back(
    client: GrpcClient, other: GrpcClient, topic: str
) -> None:
    due_ms = int(time.time() * 1000) + 5_000
    later, back = [
        await client.send(topic, body, kind="DELAY", delivery_timestamp=due_ms)
        for body in (b"later", b"back")
    ]
    assert code(later) == "OK"
    recall = messages.RecallMessageRequest(recall_handle=back.entries[0].recall_handle)
    recall.topic.name = topic
    answer = await other.ask("RecallMessage", recall)
    assert (code(answer), answer.message_id) == ("OK", "back")
    found: dict[bytes, messages.Message] = {}
    while not found:
        found = await taken(client, topic)
    assert time.time() * 1000 >= due_ms
    assert set(found) == {b"later"}
    assert found[b"later"].system_properties.delivery_timestamp.ToMilliseconds() == due_ms
    assert await client.ack(topic, "g", handle(found[b"later"])) == ["OK"]
    recall.recall_handle = later.entries[0].recall_handle
    assert code(await client.ask("RecallMessage", recall)) == "BAD_REQUEST", "its moment is over"
    recall.recall_handle = "nobody's"
    assert code(await client.ask("RecallMessage", recall)) == "BAD_REQUEST"
    recall.recall_handle = later.entries[0].recall_handle
    recall.topic.name = "nowhere"
    assert code(await client.ask("RecallMessage", recall)) == "BAD_REQUEST"


async def test_a_batch_is_stored_whole(client: GrpcClient, topic: str) -> None:
    sent = await client.send(topic, b"a", b"b", b"c")
    assert code(sent) == "OK"
    offsets = [entry.offset for entry in sent.entries]
    assert offsets == list(range(offsets[0], offsets[0] + 3))
    assert set(await taken(client, topic)) == {b"a", b"b", b"c"}


async def test_a_message_group_is_one_queue_at_every_proxy(
    client: GrpcClient, other: GrpcClient, topic: str
) -> None:
    for number, sender in enumerate((client, other) * 4):
        body = str(number).encode()
        await sender.send(topic, body, kind="FIFO", message_group="customer-1")
    found = await taken(client, topic)
    assert list(found) == [str(number).encode() for number in range(8)]
    assert len({item.system_properties.queue_id for item in found.values()}) == 1


async def test_tags_choose(client: GrpcClient, topic: str) -> None:
    await client.send(topic, b"a", tag="paid")
    await client.send(topic, b"b", tag="open")
    found: set[bytes] = set()
    while not found:
        found = set(await taken(client, topic, expression="paid || closed"))
    assert found == {b"a"}


async def test_a_message_comes_again_when_its_consumer_says_so(
    client: GrpcClient, topic: str
) -> None:
    await client.send(topic, b"a")
    got = (await taken(client, topic))[b"a"]
    changed = await client.change(topic, "g", handle(got), 1)
    assert code(changed) == "OK"
    again = (await taken(client, topic))[b"a"]
    assert again.system_properties.delivery_attempt == 2
    assert await client.ack(topic, "g", handle(got)) == ["INVALID_RECEIPT_HANDLE"]
    assert await client.ack(topic, "g", changed.receipt_handle) == ["INVALID_RECEIPT_HANDLE"]
    assert await client.ack(topic, "g", handle(again)) == ["OK"]


async def test_a_changed_handle_is_the_good_one(client: GrpcClient, topic: str) -> None:
    await client.send(topic, b"a")
    got = (await taken(client, topic))[b"a"]
    changed = await client.change(topic, "g", handle(got), 60_000)
    assert await client.ack(topic, "g", changed.receipt_handle) == ["OK"]


async def test_forged_and_foreign_handles_are_refused_one_by_one(
    client: GrpcClient, topic: str
) -> None:
    await client.send(topic, b"a")
    good = handle((await taken(client, topic))[b"a"])
    fields = good.split(" ")
    fields[7] = "999"
    forged = " ".join(fields)
    fields = good.split(" ")
    fields[5] = "elsewhere"
    foreign = " ".join(fields)
    refused = "INVALID_RECEIPT_HANDLE"
    assert await client.ack(topic, "g", "x", forged, foreign, good) == [
        *(refused, refused),
        "BAD_REQUEST",
        "OK",
    ]
    assert code(await client.change(topic, "g", forged, 10_000)) == refused
    assert code(await client.bury(topic, "g", "x")) == refused


async def test_a_buried_message_is_a_dead_letter(client: GrpcClient, topic: str) -> None:
    await client.send(topic, b"a")
    got = (await taken(client, topic))[b"a"]
    assert code(await client.bury(topic, "g", handle(got))) == "OK"
    dead: dict = {}
    async with asyncio.timeout(30):
        while not dead:
            if code(await client.route("%DLQ%g")) == "OK":
                dead = await taken(client, "%DLQ%g", "gravedigger")
            await asyncio.sleep(0.1)
    assert set(dead) == {b"a"}
    assert (await client.receive(topic, "g", PLACE))[0] == "MESSAGE_NOT_FOUND"


async def test_a_transaction_ends_at_any_proxy(
    client: GrpcClient, other: GrpcClient, topic: str
) -> None:
    ids = []
    for body in (b"kept", b"dropped"):
        sent = await client.send(topic, body, kind="TRANSACTION")
        assert code(sent) == "OK"
        ids.append(sent.entries[0].transaction_id)
    assert (await client.receive(topic, "g", PLACE))[0] == "MESSAGE_NOT_FOUND"
    assert code(await other.end(topic, ids[0], 1)) == "OK"
    assert code(await other.end(topic, ids[1], 2)) == "OK"
    assert set(await taken(client, topic)) == {b"kept"}
    assert (await client.receive(topic, "g", PLACE))[0] == "MESSAGE_NOT_FOUND"
    assert code(await client.end(topic, "x", 1)) == "INVALID_TRANSACTION_ID"
    assert code(await client.end("another", ids[0], 1)) == "INVALID_TRANSACTION_ID"


async def test_an_undecided_transaction_is_asked_for(client: GrpcClient, topic: str) -> None:
    stream = client.telemetry(settings(topics=(topic,)))
    assert (await stream.hear()).settings.publishing.max_body_size == BODY_BYTES_MAX
    wanted = messages.SendMessageRequest()
    message = wanted.messages.add(body=b"a")
    message.topic.name = topic
    message.system_properties.message_id = "a"
    message.system_properties.message_type = messages.MESSAGE_TYPES["TRANSACTION"]
    message.system_properties.orphaned_transaction_recovery_duration.FromSeconds(1)
    await client.ask("SendMessage", wanted)
    async with asyncio.timeout(90):
        command = await stream.hear()
    asked = command.recover_orphaned_transaction_command
    assert (asked.message.body, asked.message.topic.name) == (b"a", topic)
    assert asked.message.system_properties.message_id == "a"
    assert code(await client.end(topic, asked.transaction_id, 1, was_asked=True)) == "OK"
    assert set(await taken(client, topic)) == {b"a"}
    stream.leave()


async def test_messages_of_a_living_client_are_renewed(
    client: GrpcClient, other: GrpcClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "RENEWED_MS", 1_500)
    monkeypatch.setattr(renewing, "RENEWED_MS", 1_500)
    monkeypatch.setattr(renewing, "RENEW_AFTER_S", 0.3)
    monkeypatch.setattr(renewing, "LOOK_EVERY_S", 0.1)
    stream = client.telemetry(settings(group="g", topics=(topic,)))
    assert (await stream.hear()).settings.subscription.receive_batch_size == 32
    await client.send(topic, b"a")
    got = (await taken(client, topic, auto_renew=True))[b"a"]
    assert await taken(other, topic, poll_ms=4_000) == {}
    assert await other.ack(topic, "g", handle(got)) == ["OK"]
    await client.send(topic, b"b")
    await taken(client, topic, auto_renew=True)
    stream.leave()
    await client.ask("NotifyClientTermination", messages.NotifyClientTerminationRequest())
    assert set(await taken(other, topic, poll_ms=8_000)) == {b"b"}


async def test_what_a_client_did_not_wait_for_is_somebody_elses(
    client: GrpcClient, other: GrpcClient, topic: str
) -> None:
    waiting = client.stream(client.receiving(topic, "g", PLACE, poll_ms=15_000))
    reading = asyncio.ensure_future(anext(waiting.__aiter__()))
    await asyncio.sleep(0.5)  # until it waits at the broker
    reading.cancel()
    waiting.cancel()
    await asyncio.sleep(0.2)
    await client.send(topic, b"a")
    assert set(await taken(other, topic, poll_ms=5_000)) == {b"a"}  # its time is ten seconds


async def test_offsets_are_kept_and_asked(client: GrpcClient, topic: str) -> None:
    await client.send(topic, b"a", kind="FIFO", message_group="one")
    place = (await client.route(topic)).message_queues
    ends = {}
    for queue in place:
        wanted = messages.QueryOffsetRequest(query_offset_policy=1)
        wanted.message_queue.CopyFrom(queue)
        ends[queue.id] = (await client.ask("QueryOffset", wanted)).offset
    assert sorted(ends.values()) == [0, 0, 0, 1]
    (queue,) = (queue for queue in place if ends[queue.id])
    asked = messages.GetOffsetRequest()
    asked.message_queue.CopyFrom(queue)
    asked.group.name = "reader"
    moved = messages.UpdateOffsetRequest(offset=1)
    moved.message_queue.CopyFrom(queue)
    moved.group.name = "reader"
    assert code(await client.ask("UpdateOffset", moved)) == "OK"
    answer = await client.ask("GetOffset", asked)
    assert (code(answer), answer.offset) == ("OK", 1)


async def test_a_queue_is_pulled_from_any_offset_at_any_proxy(
    client: GrpcClient, other: GrpcClient, first: ProxyServer, cluster: CliCluster
) -> None:
    topic = f"pulled-{next(numbers)}"
    cluster.gantry("topics", "create", topic, "--queues", "1")
    for body in (b"a", b"b", b"c"):
        await client.send(topic, body, tag=body.decode())
    at = (topic, "reader", PLACE, 0)
    assert await client.pull(*at, 0, batch=2) == ("OK", [b"a", b"b"], 2)
    assert await other.pull(*at, 2, batch=2) == ("OK", [b"c"], 3)
    assert await client.pull(*at, 0, expression="c") == ("OK", [b"c"], 3)
    assert await client.pull(*at, 3) == ("MESSAGE_NOT_FOUND", [], 3)
    assert await client.pull(*at, 99) == ("MESSAGE_NOT_FOUND", [], 3), "it leads back"
    assert await client.pull(*at, -1) == ("ILLEGAL_OFFSET", [], None)
    assert await client.pull(topic, "reader", PLACE, 7, 0) == ("BAD_REQUEST", [], None)
    assert await client.pull("nowhere", "reader", PLACE, 0, 0) == ("TOPIC_NOT_FOUND", [], None)
    waits = asyncio.create_task(other.pull(*at, 3, poll_ms=15_000))
    await asyncio.sleep(0.3)
    assert not waits.done()
    began_s = time.monotonic()
    await client.send(topic, b"d")
    assert await waits == ("OK", [b"d"], 4)
    assert time.monotonic() - began_s < 5, "it came when there was a message"
    assert first.pulling.pulled == 3


async def test_a_mapped_topic_is_pulled(client: GrpcClient, cluster: CliCluster) -> None:
    topic = f"mapped-{next(numbers)}"
    cluster.gantry("queues", "map", topic, "--queues", "2")
    found: list[bytes] = []
    async with asyncio.timeout(PATIENCE_S):
        while code(await client.send(topic, b"a")) != "OK":
            await asyncio.sleep(0.1)  # the group is told of its topic
    for queue_id in (0, 1):
        answer, bodies, following = await client.pull(topic, "reader", PLACE, queue_id, 0)
        assert (answer, following) == (("OK", 1) if bodies else ("MESSAGE_NOT_FOUND", 0))
        found += bodies
    assert found == [b"a"]


async def test_a_stream_of_nobody_ends_with_a_reason(client: GrpcClient) -> None:
    client.metadata = ()
    stream = client.telemetry(settings())
    assert code(await stream.hear()) == "CLIENT_ID_REQUIRED"
    with pytest.raises(StopAsyncIteration):
        await stream.hear()


async def test_settings_of_neither_kind_are_refused(client: GrpcClient, topic: str) -> None:
    neither = messages.TelemetryCommand()
    neither.settings.SetInParent()
    stream = client.telemetry(neither, settings(topics=(topic,)))
    assert code(await stream.hear()) == "BAD_REQUEST"
    assert code(await stream.hear()) == "OK"  # the next ones on the same stream are taken
    stream.leave()


async def test_a_request_that_is_too_long_or_does_not_read_harms_nobody(
    client: GrpcClient, topic: str
) -> None:
    assert code(await client.send(topic, b"x" * (BODY_BYTES_MAX + 1))) == "MESSAGE_BODY_TOO_LARGE"
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.send(topic, *(b"x" * BODY_BYTES_MAX for _ in range(3)))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    call = client.channel.unary_unary("/apache.rocketmq.v2.MessagingService/SendMessage")
    answer = messages.SendMessageResponse.FromString(await call(b"\xff\xff", metadata=()))
    assert code(answer) == "BAD_REQUEST"
    assert code(await client.send(topic, b"a")) == "OK"


async def test_a_request_goes_on_while_the_master_changes(
    cluster: CliCluster, first: ProxyServer, client: GrpcClient, topic: str
) -> None:
    killing = asyncio.create_task(
        asyncio.to_thread(lambda: cluster.gantry("local", "kill", cluster.master_pod()))
    )
    acknowledged = []
    while not killing.done() or len(acknowledged) < 200:
        body = f"m-{len(acknowledged)}".encode()
        if code(await client.send(topic, body)) == "OK":
            acknowledged.append(body)
    await killing
    got: set[bytes] = set()
    async with asyncio.timeout(60):
        while not got >= set(acknowledged):
            found = await taken(client, topic, invisible_ms=60_000)
            got |= set(found)
            await client.ack(topic, "g", *map(handle, found.values()))


async def test_metrics_count(first: ProxyServer, client: GrpcClient, topic: str) -> None:
    await client.send(topic, b"a")
    got = await taken(client, topic)
    await client.ack(topic, "g", handle(got[b"a"]))
    done = (first.producing.sent, first.consuming.received, first.consuming.acknowledged)
    assert done == (1, 1, 1)
    assert first.status()["ready"]
