"""Prometheus and promtool, built without the discovery of clouds; a server over a cluster."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml
from gantry_lab.bench.ports import free_ports
from support import go_programs
from support.cli_cluster import CliCluster
from support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "charts/gantry/rules/gantry.yaml"
COMMANDS = "github.com/prometheus/prometheus/cmd"
SCRAPE_S = 1
PORTS = ("http", "door-http")
"""Names of container ports that serve metrics, as in the chart's PodMonitor."""


def built(program: str) -> str:
    """The path of ``prometheus`` or ``promtool``."""
    return go_programs.built("prometheus", f"{COMMANDS}/{program}", "-tags", "remove_all_sd")


def promtool(*args: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """What promtool makes of ``args``, with ``text`` as standard input, whatever its exit code."""
    command = [built("promtool"), *args]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def targets(cluster: CliCluster) -> list[dict[str, Any]]:
    """Every port with metrics of the cluster's pods, with the labels that a PodMonitor gives."""
    return [
        {"targets": [f"{pod['status']['podIP']}:{port['containerPort']}"], "labels": _labels(pod)}
        for pod in cluster.object("pods", "-A")["items"]
        for container in pod["spec"]["containers"]
        for port in container.get("ports", ())
        if port.get("name") in PORTS and pod["status"].get("podIP")
    ]


def _labels(pod: dict[str, Any]) -> dict[str, str]:
    metadata = pod["metadata"]
    given = metadata["labels"]
    return {
        "namespace": metadata["namespace"],
        "pod": metadata["name"],
        # A local cluster's operator is of no release.
        "app_kubernetes_io_instance": given.get("app.kubernetes.io/instance", "gantry"),
        "app_kubernetes_io_component": given["app.kubernetes.io/component"],
    }


class Prometheus:
    """A server at ``port``."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query.

        Raises:
            HTTPError: the query is none.
        """
        found: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return found

    def alerts(self) -> dict[str, dict[str, Any]]:
        """Pending and firing alerts by name; of several one."""
        return {one["labels"]["alertname"]: one for one in self._get("alerts")["alerts"]}

    def targets(self) -> list[dict[str, Any]]:
        """What is scraped."""
        found: list[dict[str, Any]] = self._get("targets")["activeTargets"]
        return found

    def is_ready(self) -> bool:
        """Whether it answers queries."""
        try:
            with urlopen(f"{self._base}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _get(self, what: str, **named: str) -> Any:
        url = f"{self._base}/api/v1/{what}?{urlencode(named)}"
        try:
            with urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except HTTPError as error:
            error.add_note(error.read().decode())
            raise


@contextmanager
def scraping(directory: Path, scraped: list[dict[str, Any]]) -> Iterator[Prometheus]:
    """A server that scrapes these targets every second and knows the rules; not their waits.

    Each alert waits for 5 s instead of minutes, so that a test sees it fire.
    """
    directory.mkdir(parents=True)
    rules = yaml.safe_load(RULES.read_text("utf-8"))
    for group in rules["groups"]:
        group["interval"] = f"{SCRAPE_S}s"
        for rule in group["rules"]:
            rule["for"] = "5s"
    (directory / "rules.yaml").write_text(yaml.safe_dump(rules))
    (directory / "targets.json").write_text(json.dumps(scraped))
    config = {
        "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {
                "job_name": "gantry",
                "honor_labels": True,
                "file_sd_configs": [{"files": ["targets.json"]}],
            }
        ],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    command = [
        built("prometheus"),
        f"--config.file={directory}/prometheus.yml",
        f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    server = Prometheus(port)
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=subprocess.STDOUT)
        try:
            deadline_s = time.monotonic() + PATIENCE_S
            while not server.is_ready():
                if process.poll() is not None or time.monotonic() > deadline_s:
                    pytest.fail(f"Prometheus is not ready: {(directory / 'log').read_text()}")
                time.sleep(0.2)
            yield server
        finally:
            process.kill()
            process.wait()
