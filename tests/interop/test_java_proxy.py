"""RocketMQ's proxy 5.5.0 in cluster mode, unmodified, in front of a group whose master is killed.

Behind it are the official gRPC client's producer, push consumer and simple consumer (Java 5.2.0).
What was acknowledged to the producer is consumed by both consumer groups. Again comes only what
failed, and what was in flight when the master was killed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from gantry_lab.bench.ports import free_ports
from support import java
from support.cli_cluster import cluster_with_group, settled
from support.grpc_programs import done
from support.java_programs import JavaProgram, running, until

TOPIC, QUEUES, PAUSE_MS = "proxied", 4, 20
PUSHED, TAKEN = "interop-push", "interop-simple"
CALM_S = 5.0  # before the kill, and after it
IN_FLIGHT_MAX = 64  # of a consumer, when the master is killed

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(bool(java.MISSING), reason=f"{' and '.join(java.MISSING)} not installed"),
    pytest.mark.timeout(900),
]


def test_grpc_clients_behind_rocketmq_s_proxy_lose_nothing(tmp_path: Path) -> None:
    with cluster_with_group(tmp_path / "local") as cluster:
        cluster.gantry("topics", "create", TOPIC, "--queues", str(QUEUES))
        for group in (PUSHED, TAKEN):  # a proxy refuses groups without a setting
            cluster.gantry("groups", "create", group)
        with (
            proxy(tmp_path, cluster.name_servers) as at,
            client(tmp_path, "push", at, TOPIC, PUSHED) as pushed,
            client(tmp_path, "simple", at, TOPIC, TAKEN) as taken,
            client(tmp_path, "produce", at, TOPIC, PAUSE_MS) as producer,
        ):
            until(
                lambda: min(len(one.of_kind("DONE")) for one in (pushed, taken)) > 50,
                "both consume",
                *(pushed, taken, producer),
            )
            epoch = cluster.wait_until(settled)["masterEpoch"]
            time.sleep(CALM_S)
            cluster.gantry("local", "kill", cluster.master_pod())
            cluster.wait_until(lambda group: settled(group) and group["masterEpoch"] > epoch)
            time.sleep(CALM_S)
            producer.process.kill()
            producer.reader.join(CALM_S)
            sent = {key for key, *_ in producer.of_kind("ACK")}
            refused = producer.of_kind("NACK")
            until(
                lambda: all(sent <= done(one).keys() for one in (pushed, taken)),
                "all is consumed",
                *(pushed, taken),
            )
            failed = {key for key, *_ in pushed.of_kind("FAILED")}
            again = [sum(n > 1 for n in done(one).values()) for one in (pushed, taken)]
    print(
        f"\nJAVA PROXY {len(sent)} acknowledged and consumed by both, {len(refused)} refused,"
        f" {len(failed)} failed once, {again} came again"
    )
    assert failed
    assert max(again) <= IN_FLIGHT_MAX


@contextmanager
def proxy(home: Path, name_servers: str) -> Iterator[str]:
    """Where a proxy serves gRPC."""
    place = home / "proxy"
    (place / "conf").mkdir(parents=True)
    grpc_port, remoting_port = free_ports(2)
    settings = {
        "rocketMQClusterName": "gantry",
        "proxyMode": "CLUSTER",
        "namesrvAddr": name_servers,
        "grpcServerPort": grpc_port,
        "remotingListenPort": remoting_port,
        "localServeAddr": "127.0.0.1",
        "useEndpointPortFromRequest": True,
    }
    (place / "conf" / "rmq-proxy.json").write_text(json.dumps(settings))
    homes = {"RMQ_PROXY_HOME": str(place), "ROCKETMQ_HOME": str(place)}
    main = "org.apache.rocketmq.proxy.ProxyStartup"
    with running(place, java.proxy(), "-Xmx256m", main, settings=homes) as started:
        until(lambda: any("successfully" in line for line in started.lines), "it serves", started)
        yield f"127.0.0.1:{grpc_port}"


def client(home: Path, *args: object) -> AbstractContextManager[JavaProgram]:
    """A process of the program in ``java_grpc``."""
    program = "dev.gantry.interop.Grpc"
    return running(home / str(args[0]), java.grpc_clients(), "-Xmx96m", program, *args)
