"""A proxy with a certificate before a cluster that enforces TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import grpc
import grpc.aio
import pytest
from gantry_protocol.errors import ConfigError
from gantry_protocol.tls import contexts
from gantry_proxy.server import ProxyServer
from support.certificates import Authority, Pair
from support.grpc_client import GrpcClient, code
from support.proxies import served_proxy
from support.tls_cluster import NAME, TlsCluster, tls_cluster

TOPIC = "spoken"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    with tls_cluster(tmp_path_factory.mktemp("proxied") / "local", "Enforcing") as made:
        made.gantry("topics", "create", TOPIC, *made.options)
        yield made


@pytest.fixture
def pair(cluster: TlsCluster, tmp_path: Path) -> Pair:
    return cluster.authority.issue(NAME, into=Pair(tmp_path / "tls.crt", tmp_path / "tls.key"))


def running(
    cluster: TlsCluster, pair: Pair, **more: object
) -> AbstractAsyncContextManager[ProxyServer]:
    return served_proxy(
        cluster,
        tls_cert_file=pair.cert,
        tls_key_file=pair.key,
        tls_ca_file=cluster.authority.file,
        tls_server_name=NAME,
        **more,
    )


def client(server: ProxyServer, authority: Authority, own: Pair | None = None) -> GrpcClient:
    shown = (own.key.read_bytes(), own.cert.read_bytes()) if own else (None, None)
    credentials = grpc.ssl_channel_credentials(authority.file.read_bytes(), *shown)
    return GrpcClient(f"127.0.0.1:{server.grpc_port}", credentials=credentials, named=NAME)


async def shown_at(port: int) -> str:
    return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))


async def test_grpc_is_served_by_tls_and_by_nothing_else(cluster: TlsCluster, pair: Pair) -> None:
    async with running(cluster, pair) as server:
        async with client(server, cluster.authority) as speaking:
            assert code(await speaking.send(TOPIC, b"message")) == "OK"
        async with GrpcClient(f"127.0.0.1:{server.grpc_port}") as plain:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await plain.route(TOPIC)
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_new_certificate_is_shown_without_a_restart(
    cluster: TlsCluster, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts, "LOOK_S", 0.0)
    async with running(cluster, pair) as server:
        first = await shown_at(server.grpc_port)
        assert await shown_at(server.grpc_port) == first
        pair.cert.write_text("nothing")
        assert await shown_at(server.grpc_port) == first, "the last good one stays"
        cluster.authority.issue(NAME, into=pair)
        second = await shown_at(server.grpc_port)
        assert second != first
        async with client(server, cluster.authority) as speaking:
            assert code(await speaking.route(TOPIC)) == "OK"


async def test_client_certificates_are_demanded(
    cluster: TlsCluster, pair: Pair, tmp_path: Path
) -> None:
    clients = Authority(tmp_path / "clients", "clients")
    async with running(cluster, pair, tls_client_ca_file=clients.file) as server:
        async with client(server, cluster.authority, clients.issue("app")) as known:
            assert code(await known.route(TOPIC)) == "OK"
        async with client(server, cluster.authority) as unknown:
            with pytest.raises(grpc.aio.AioRpcError):
                await unknown.route(TOPIC)


async def test_start_with_a_bad_pair_is_refused(cluster: TlsCluster, pair: Pair) -> None:
    pair.key.write_text("nothing")
    with pytest.raises(ConfigError, match="holds no private key"):
        async with running(cluster, pair):
            pass
