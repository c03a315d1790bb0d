"""The official Java client sends by priority, and takes what is most urgent first after a kill."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from gantry_lab.bench.ports import free_ports
from support.cli_cluster import cluster_with_group
from support.grpc_programs import WITH_JAVA, client, done, kill_master
from support.java_programs import until
from support.proxies import proxy

TOPIC, GROUP, PRIORITIES, EACH = "urgent", "interop-urgent", 4, 20

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("language", [WITH_JAVA])
def test_the_most_urgent_messages_are_taken_first(tmp_path: Path, language: str) -> None:
    """The first one is not acknowledged: it comes again before all that is less urgent."""
    start = partial(client, language, tmp_path)
    ports = free_ports(2)
    endpoint = f"127.0.0.1:{ports[0]}"
    with cluster_with_group(tmp_path / "local") as cluster:
        kind = ("--type", "priority")
        cluster.gantry("topics", "create", TOPIC, "--queues", str(PRIORITIES), *kind)
        with (
            proxy(cluster, ports),
            start("urgent", endpoint, TOPIC, PRIORITIES, EACH) as producer,
        ):
            until(lambda: producer.of_kind("SENT"), "all is sent", producer)
            sent = {key for key, *_ in producer.of_kind("ACK")}
            kill_master(cluster)
            with start("rank", endpoint, TOPIC, GROUP) as taker:
                until(lambda: sent <= done(taker).keys(), "all is consumed", taker)
                ranks = [tuple(line[1:]) for line in taker.lines if line[0] == "RANK"]
    levels = [int(key.split("-")[1]) for key, *_ in ranks]
    print(f"\nGRPC {language} priorities: {len(sent)} sent, taken as {levels}")
    assert levels == sorted(levels, reverse=True)
    assert [level for *_, level in ranks] == list(map(str, levels)), "the client is told"
    (first, *_), (second, tries, _) = ranks[0], ranks[1]
    assert (first, tries) == (second, "2")
