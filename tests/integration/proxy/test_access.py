"""A proxy that judges its clients, before real brokers and controllers with users."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import grpc.aio
import pytest
from gantry_lab.bench.ports import free_ports
from gantry_protocol.process import log
from gantry_protocol.quorum_key import write_key
from gantry_proxy import messages
from gantry_proxy.core import handles
from gantry_proxy.server import ProxyServer
from support.broker_cluster import eventually
from support.cli_cluster import GROUP, CliCluster, cluster_with_group
from support.grpc_client import GrpcClient, Telemetry, code, settings
from support.patience import PATIENCE_S
from support.proxies import proxy as process
from support.proxies import served_proxy

SECRET, ROOTS = "a-secret-of-shop", "a-secret-of-root"
DENIED = "UNAUTHORIZED"
OURS, THEIRS, MEMBERS = "ours", "theirs", "readers"
RULES = (
    ("Topic:ours", "Pub"),
    ("Topic:ours", "Sub"),
    ("Group:readers", "Sub"),
)

pytestmark = [
    pytest.mark.timeout(300),
]


def secret_file(directory: Path, name: str, text: str) -> str:
    file = directory / name
    file.write_text(text + "\n")
    return str(file)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("judged")


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[CliCluster]:
    """Access is on; ``root`` is a super user, and ``shop`` may send and read ``ours``."""
    with cluster_with_group(home / "local", transaction_check_interval_s="1") as made:
        for topic in (OURS, THEIRS):
            made.gantry("topics", "create", topic, "--queues", "4")
        root = secret_file(home, "root", ROOTS)
        made.gantry("users", "create", "root", "--type", "super", "--secret-file", root)
        new_user(made, home, "shop")
        made.gantry("access", "enable", "--yes")
        yield made


def new_user(cluster: CliCluster, home: Path, name: str) -> None:
    cluster.gantry("users", "create", name, "--secret-file", secret_file(home, name, SECRET))
    cluster.gantry("acl", "allow", name, "--resource", "Topic:ours", "--action", "Pub",
                   "--action", "Sub")  # fmt: skip
    cluster.gantry("acl", "allow", name, "--resource", "Group:readers", "--action", "Sub")


@pytest.fixture(scope="module")
def key(cluster: CliCluster, home: Path) -> Path:
    shown = cluster.shown("local", "get", "secrets", "gantry-quorum-key", "-o", "json")
    file = home / "quorum-key"
    file.write_bytes(base64.b64decode(json.loads(shown)["data"]["key"]))
    return file


@pytest.fixture(scope="module")
def controllers(cluster: CliCluster) -> list[str]:
    pods = cluster.object("pods")["items"]
    return [
        f"{pod['status']['podIP']}:9878" for pod in pods if "controller" in pod["metadata"]["name"]
    ]


@pytest.fixture
async def proxy(
    cluster: CliCluster, controllers: list[str], key: Path
) -> AsyncIterator[ProxyServer]:
    async with served_proxy(cluster, controllers=controllers, quorum_key_file=key) as server:
        await eventually(lambda: server.ready()[0], "it knows the users")
        yield server


class Clients:
    """Clients of one proxy, ended together."""

    def __init__(self, proxy: ProxyServer) -> None:
        self._address = f"127.0.0.1:{proxy.grpc_port}"
        self._stack = AsyncExitStack()

    async def of(self, user: str = "", secret: str = SECRET) -> GrpcClient:
        made = GrpcClient(self._address, f"{user}-1", user=user, secret=secret)
        return await self._stack.enter_async_context(made)

    async def close(self) -> None:
        await self._stack.aclose()


@pytest.fixture
async def clients(proxy: ProxyServer) -> AsyncIterator[Clients]:
    made = Clients(proxy)
    yield made
    await made.close()


async def test_a_user_does_what_its_rules_allow(clients: Clients, proxy: ProxyServer) -> None:
    shop = await clients.of("shop")
    producer = shop.telemetry(settings(topics=(OURS,)))
    assert code(await producer.hear()) == "OK"
    assert code(await shop.route(OURS)) == "OK"
    assert code(await shop.assignment(OURS, MEMBERS)) == "OK"
    assert code(await shop.send(OURS, b"one")) == "OK"
    _, (message,) = await shop.receive(OURS, MEMBERS, GROUP, poll_ms=5_000)
    handle = message.system_properties.receipt_handle
    changed = await shop.change(OURS, MEMBERS, handle, 20_000)
    assert code(changed) == "OK"
    assert await shop.ack(OURS, MEMBERS, changed.receipt_handle) == ["OK"]
    beat = messages.HeartbeatRequest()
    beat.group.name = MEMBERS
    assert code(await shop.ask("Heartbeat", beat)) == "OK"
    assert proxy.users is not None
    assert not proxy.users.denied
    for answer in (
        await shop.route(THEIRS),
        await shop.send(THEIRS, b"two"),
        await shop.assignment(OURS, "others"),
    ):
        assert code(answer) == DENIED
    assert (await shop.receive_code(OURS, "others", GROUP), proxy.users.denied["rules"]) == (
        DENIED,
        4,
    )
    producer.leave()


async def test_the_log_level_is_a_super_users(clients: Clients, proxy: ProxyServer) -> None:
    """The service Admin at the same port; its refusals are gRPC's own."""
    wanted = messages.ChangeLogLevelRequest(level=3).SerializeToString()

    async def ask(client: GrpcClient) -> str:
        call = client.channel.unary_unary("/apache.rocketmq.v2.Admin/ChangeLogLevel")
        data = await call(wanted, metadata=client.metadata, timeout=PATIENCE_S)
        return str(messages.ChangeLogLevelResponse.FromString(data).remark)

    before = log.level()
    for client, sentence in (
        (await clients.of(), "is not signed"),
        (await clients.of("shop"), "super users may"),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match=sentence) as refused:
            await ask(client)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert proxy.status()["logLevel"] == before
    try:
        assert await ask(await clients.of("root", ROOTS)) == f"logs at warning; before at {before}"
        assert proxy.status()["logLevel"] == "warning"
    finally:
        log.set_level(before)


async def test_who_has_not_signed_is_nobody(clients: Clients) -> None:
    for nobody in (
        await clients.of(),
        await clients.of("shop", "another-secret"),
        await clients.of("nobody"),
        await clients.of("gantry"),
    ):
        assert code(await nobody.route(OURS)) == DENIED
        assert code(await nobody.send(OURS, b"one")) == DENIED
        stream = nobody.telemetry(settings(topics=(OURS,)))
        assert code(await stream.hear()) == DENIED
        assert await ends(stream)


async def test_a_super_user_may_do_everything(clients: Clients) -> None:
    root = await clients.of("root", ROOTS)
    assert code(await root.send(THEIRS, b"of root")) == "OK"
    found, _ = await root.receive(THEIRS, "roots", GROUP, poll_ms=1_000)
    assert found in ("OK", "MESSAGE_NOT_FOUND")


async def test_a_place_in_a_handle_leads_to_no_other_topic(clients: Clients) -> None:
    """A receipt and a transaction's id are texts that a client may change."""
    root, shop = await clients.of("root", ROOTS), await clients.of("shop")
    half = await root.send(THEIRS, b"half", kind="TRANSACTION")
    named = handles.unpack(half.entries[0].transaction_id)
    forged = handles.Transaction(
        named.broker_name, OURS, named.queue_offset, named.physical_offset, named.message_id,
        named.transaction_id,
    )  # fmt: skip
    assert code(await shop.end(THEIRS, half.entries[0].transaction_id, 1)) == DENIED
    ended = await shop.end(OURS, handles.pack(forged), 1)
    assert ended.status.message == "Find prepared transaction message failed"
    assert code(await root.send(THEIRS, b"secret")) == "OK"
    _, (message, *_) = await root.receive(THEIRS, "roots", GROUP, poll_ms=5_000)
    handle = message.system_properties.receipt_handle
    assert code(await shop.bury(THEIRS, MEMBERS, handle)) == DENIED
    buried = await shop.bury(OURS, MEMBERS, handle)
    assert buried.status.message.startswith("look message by offset failed")
    assert code(await root.bury(THEIRS, "roots", handle)) == "OK"
    assert code(await root.end(THEIRS, half.entries[0].transaction_id, 2)) == "OK"


async def test_a_users_end_is_felt_at_once(
    cluster: CliCluster, home: Path, clients: Clients, proxy: ProxyServer
) -> None:
    await asyncio.to_thread(new_user, cluster, home, "short")
    assert proxy.users is not None
    users = proxy.users
    await eventually(
        lambda: not users.users.not_signed("short", "x", lambda user: len(user.rules) == 2),
        "it knows",
    )
    short = await clients.of("short")
    stream = short.telemetry(settings(topics=(OURS,)))
    assert code(await stream.hear()) == "OK"
    assert code(await short.send(OURS, b"one")) == "OK"
    await asyncio.to_thread(cluster.gantry, "users", "delete", "short", "--yes")
    assert code(await stream.hear()) == DENIED
    assert await ends(stream)
    assert code(await short.send(OURS, b"two")) == DENIED
    assert proxy.clients.ended_streams == 1


async def test_a_proxy_with_another_key_serves_nobody(
    cluster: CliCluster, controllers: list[str], home: Path
) -> None:
    key = write_key(home / "another-key")
    async with served_proxy(cluster, controllers=controllers, quorum_key_file=key) as server:
        await asyncio.sleep(1.0)
        assert not server.ready()[0]
        assert server.status()["access"] == "unknown"
        async with GrpcClient(f"127.0.0.1:{server.grpc_port}", user="root", secret=ROOTS) as root:
            assert code(await root.route(OURS)) == "INTERNAL_SERVER_ERROR"


async def ends(stream: Telemetry) -> bool:
    """Whether nothing more comes on it."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            await stream.hear()
        except StopAsyncIteration:
            return True
    return False


async def test_the_local_clusters_proxy_judges_and_is_not_told_how(cluster: CliCluster) -> None:
    ports = free_ports(2)
    address = f"127.0.0.1:{ports[0]}"
    with process(cluster, ports):
        async with (
            GrpcClient(address, "shop-1", user="shop", secret=SECRET) as shop,
            GrpcClient(address) as nobody,
        ):
            assert code(await shop.send(OURS, b"judged")) == "OK"
            assert code(await nobody.send(OURS, b"denied")) == DENIED
