"""Programs of the official gRPC clients as processes, and a cluster for them to speak to."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from support import java
from support.cli_cluster import CliCluster, cluster_with_group, settled
from support.foreign_clients import GRPC_CLIENTS, missing
from support.java_programs import JavaProgram, process_of, running

TOPIC, QUEUES, PAUSE_MS = "spoken", 4, 20
CALM_S = 5.0  # before a kill, and after it

WITH_JAVA = pytest.param(
    "java",
    marks=[
        pytest.mark.java,
        pytest.mark.skipif(
            bool(java.MISSING), reason=f"{' and '.join(java.MISSING)} not installed"
        ),
    ],
)
WITH_OTHERS = [
    pytest.param(language, marks=pytest.mark.skipif(bool(reason), reason=reason))
    for language, reason in zip(GRPC_CLIENTS, map(missing, GRPC_CLIENTS), strict=True)
]


@contextmanager
def cluster_with_topic(home: Path) -> Iterator[CliCluster]:
    """A group of three, and ``TOPIC``."""
    with cluster_with_group(home, transaction_check_interval_s="1") as made:
        made.gantry("topics", "create", TOPIC, "--queues", str(QUEUES))
        yield made


def kill_master(cluster: CliCluster) -> None:
    """Kill it amid calm, and wait until its group is whole again."""
    epoch = cluster.wait_until(settled)["masterEpoch"]
    time.sleep(CALM_S)
    cluster.gantry("local", "kill", cluster.master_pod())
    cluster.wait_until(lambda group: settled(group) and group["masterEpoch"] > epoch)
    time.sleep(CALM_S)


def client(
    language: str, home: Path, role: str, *args: object, user: str = "", secret: str = ""
) -> AbstractContextManager[JavaProgram]:
    """A process of the program in ``java_grpc``, ``python_grpc``, or another of these.

    These two and Go's sign as ``user``, if it is given.
    """
    place = home / role
    signs = {"CLIENT_ACCESS_KEY": user, "CLIENT_SECRET_KEY": secret} if user else {}
    if language == "java":
        program = "dev.gantry.interop.Grpc"
        classpath = java.grpc_clients()
        return running(place, classpath, "-Xmx96m", program, role, *args, settings=signs)
    settings = {"HOME": str(place)} | signs
    return process_of(place, *GRPC_CLIENTS[language](), role, *args, settings=settings)


def done(consumer: JavaProgram) -> Counter[str]:
    """The keys of what it has consumed, and how often.

    What it acknowledged without an answer counts: it comes again only if that was not carried out.
    """
    said = consumer.of_kind("DONE") + consumer.of_kind("UNSURE")
    return Counter(key for key, *_ in said)
