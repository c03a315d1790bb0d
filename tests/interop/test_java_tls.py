"""Unmodified Java clients by TLS, remoting and gRPC, at a cluster that serves nothing else."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gantry_lab.bench.ports import free_ports
from support import java
from support.certificates import Authority
from support.cli_cluster import settled
from support.java_programs import running, until
from support.proxies import proxy
from support.tls_cluster import NAME, TlsCluster, tls_cluster

COUNT = 100

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(bool(java.MISSING), reason=f"{' and '.join(java.MISSING)} not installed"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    with tls_cluster(tmp_path_factory.mktemp("tls") / "local", "Enforcing") as made:
        yield made


def probe(home: Path, *args: object) -> list[list[str]]:
    """The lines of the program in ``interop/java`` with these options and arguments."""
    options = [arg for arg in args if str(arg).startswith("-D")]
    rest = [arg for arg in args if arg not in options]
    done = subprocess.run(
        [
            *("java", "-cp", java.clients(), f"-Duser.home={home}", *java.SHORT_LIVED),
            *map(str, ("-Xmx128m", *options, "dev.gantry.interop.Probe", *rest)),
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=300,
    )
    return [line.split(maxsplit=4) for line in done.stdout.splitlines()]


def verifying(home: Path, authority: Authority) -> str:
    """The option that has a client believe this authority alone."""
    home.mkdir(parents=True, exist_ok=True)
    file = home / "tls.properties"
    file.write_text(
        "tls.test.mode.enable=false\n"
        "tls.client.authServer=true\n"
        f"tls.client.trustCertPath={authority.file}\n"
    )
    return f"-Dtls.config.file={file}"


@pytest.mark.parametrize("verifies", [False, True])
def test_java_clients_speak_tls(cluster: TlsCluster, tmp_path: Path, verifies: bool) -> None:
    """What the producer sends while the master is killed, the consumer receives."""
    options = ["-Dtls.enable=true"]
    if verifies:
        options.append(verifying(tmp_path, cluster.authority))
    topic = f"java-tls-{verifies}"
    epoch = cluster.wait_until(settled)["masterEpoch"]
    said = probe(tmp_path, *options, "produce", cluster.name_servers, topic, COUNT, 0)
    acknowledged = {line[1] for line in said if line[0] == "ACK"}
    assert len(acknowledged) == COUNT
    cluster.gantry("local", "kill", cluster.master_pod())
    got = probe(tmp_path, *options, "lite-pull", cluster.name_servers, topic, COUNT)
    assert {line[1] for line in got if line[0] == "MSG"} == acknowledged
    assert cluster.wait_until(settled)["masterEpoch"] > epoch


@pytest.mark.parametrize(
    ("speaks", "metric"),
    [(False, "gantry_tls_plain_refused_total"), (True, "gantry_tls_handshake_failures_total")],
)
def test_java_client_without_tls_or_of_another_authority_is_not_served(
    cluster: TlsCluster, tmp_path: Path, speaks: bool, metric: str
) -> None:
    options = ["-Dtls.enable=true", verifying(tmp_path, Authority(tmp_path / "other"))]
    before = cluster.figure("controller", 9880, metric)
    with running(
        *(tmp_path, java.clients(), "-Xmx64m", *(options if speaks else ())),
        *("dev.gantry.interop.Probe", "produce", cluster.name_servers, "java-none", 1, 0),
    ) as client:
        until(lambda: cluster.figure("controller", 9880, metric) > before, metric, client)
        assert client.of_kind("ACK") == []


def test_java_grpc_client_speaks_tls_by_default(cluster: TlsCluster, tmp_path: Path) -> None:
    topic = "java-grpc-tls"
    cluster.gantry("topics", "create", topic, *cluster.options)
    pair = cluster.authority.issue(NAME)
    ports = free_ports(2)
    files = ("--tls-cert-file", str(pair.cert), "--tls-key-file", str(pair.key), *cluster.options)
    with (
        proxy(cluster, ports, *files),
        running(
            *(tmp_path / "push", java.grpc_clients(), "-Xmx96m", "-Dgantry.tls=true"),
            *("dev.gantry.interop.Grpc", "push", f"127.0.0.1:{ports[0]}", topic, "readers"),
        ) as consumer,
        running(
            *(tmp_path / "produce", java.grpc_clients(), "-Xmx96m", "-Dgantry.tls=true"),
            *("dev.gantry.interop.Grpc", "produce", f"127.0.0.1:{ports[0]}", topic, 20),
        ) as producer,
    ):
        until(
            lambda: len(consumer.of_kind("DONE")) >= COUNT, "all are consumed", consumer, producer
        )
        assert producer.of_kind("NACK") == []
