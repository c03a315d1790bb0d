"""The programs in ``examples/clients``, as their README has somebody run them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gantry_lab.bench.ports import free_ports
from support.cli_cluster import CliCluster, cluster_with_group
from support.foreign_clients import EXAMPLES, example, missing
from support.java_programs import process_of, until
from support.proxies import proxy

TOPIC = "greetings"
LANGUAGES = sorted(folder.name for folder in EXAMPLES.iterdir() if folder.is_dir())
RUN_S = 120

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliCluster]:
    with cluster_with_group(tmp_path_factory.mktemp("examples") / "local") as made:
        made.gantry("topics", "create", TOPIC)
        yield made


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_the_producer_sends_is_printed_by_the_consumer(
    cluster: CliCluster, tmp_path: Path, language: str
) -> None:
    if reason := missing(language):
        pytest.skip(reason)
    programs = example(language)
    ports = free_ports(2)
    endpoint, home = f"127.0.0.1:{ports[0]}", {"HOME": str(tmp_path)}
    with (
        proxy(cluster, ports),
        process_of(tmp_path, *programs.consumer, endpoint, TOPIC, settings=home) as consumer,
    ):
        produced = subprocess.run(
            [*programs.producer, endpoint, TOPIC],
            env=os.environ | home,
            stdout=subprocess.PIPE,
            text=True,
            timeout=RUN_S,
            check=True,
        )
        sent = [line for line in produced.stdout.splitlines() if line.startswith("sent ")]
        assert len(sent) == len(set(sent)) == 10
        mine = {f"hello {number} from {language.title()}" for number in range(10)}
        until(
            lambda: mine <= {" ".join(words) for words in consumer.of_kind("got")},
            "it prints all ten",
            consumer,
        )
