"""The official gRPC clients, unmodified, as users at a proxy that judges them.

Java's, Python's and Go's.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from gantry_lab.bench.ports import free_ports
from support.cli_cluster import CliCluster
from support.grpc_programs import (
    PAUSE_MS,
    TOPIC,
    WITH_JAVA,
    WITH_OTHERS,
    client,
    cluster_with_topic,
    done,
)
from support.java_programs import until
from support.proxies import proxy

SECRET, ANOTHER, MEMBERS = "a-secret-of-shop", "another-secret", "interop-users"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[CliCluster]:
    """Access is on, and ``shop`` may send and read."""
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    with cluster_with_topic(tmp_path / "local") as made:
        made.gantry("users", "create", "root", "--type", "super", "--secret-file", str(secret))
        made.gantry("users", "create", "shop", "--secret-file", str(secret))
        both = ("--action", "Pub", "--action", "Sub")
        made.gantry("acl", "allow", "shop", "--resource", f"Topic:{TOPIC}", *both)
        made.gantry("acl", "allow", "shop", "--resource", f"Group:{MEMBERS}", "--action", "Sub")
        made.gantry("access", "enable", "--yes")
        yield made


@pytest.mark.parametrize("language", [WITH_JAVA, WITH_OTHERS[0], WITH_OTHERS[-1]])
def test_clients_sign_and_are_judged(cluster: CliCluster, tmp_path: Path, language: str) -> None:
    ports = free_ports(2)
    endpoint, start = f"127.0.0.1:{ports[0]}", partial(client, language)
    produce = ("produce", endpoint, TOPIC, PAUSE_MS)
    with (
        proxy(cluster, ports),
        start(tmp_path, *produce, user="shop", secret=SECRET) as producer,
        start(tmp_path, "push", endpoint, TOPIC, MEMBERS, user="shop", secret=SECRET) as pushed,
        start(tmp_path / "stranger", *produce, user="shop", secret=ANOTHER) as stranger,
        start(tmp_path / "nobody", *produce) as nobody,
    ):
        until(lambda: len(done(pushed)) > 50, "users are served", producer, pushed)
        for denied in (stranger, nobody):
            assert not denied.of_kind("ACK")
        cluster.gantry("users", "delete", "shop", "--yes")
        refused = len(producer.of_kind("NACK"))
        until(lambda: len(producer.of_kind("NACK")) > refused + 5, "a deleted user is refused")
        told = {error for _, error in producer.of_kind("NACK")[-3:]}
        assert all("unauthorized" in error.lower() or "40100" in error for error in told), told
    print(
        f"\nGRPC {language} {len(producer.of_kind('ACK'))} sent by a user, {told} once it is gone"
    )
