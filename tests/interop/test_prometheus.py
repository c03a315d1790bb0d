"""The chart's rules and dashboards, by a real Prometheus: alone, and over a running cluster.

Prometheus is built through Go's modules, which takes minutes the first time; skipped without Go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml
from support import promql
from support.alert_cases import CASES
from support.cli_cluster import CliCluster, cluster_with_group, settled
from support.go_programs import MISSING
from support.metrics_page import DEVIATIONS
from support.patience import PATIENCE_S
from support.prometheus import RULES, Prometheus, promtool, scraping, targets

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.timeout(3600)]

VARIABLES = {"$namespace": ".*", "$instance": ".*", "$__rate_interval": "30s"}
"""What Grafana puts into queries."""
WITHOUT_DATA = (
    "gantry_tier_",  # the group has no tier
    "gantry_operator_fronts_available",  # nor fronts
    "gantry_broker_delay_pending",  # no message is delayed
    "gantry_broker_error_answers_total",  # nothing has gone wrong
    "gantry_operator_drifts_total",
    "gantry_operator_stalled_watches_total",
    "gantry_operator_repeated_reconciles_total",
    "gantry_operator_reconciles_without_change_total",
    "gantry_controller_elections_total",
    "gantry_operator_default_image_groups",
    "gantry_operator_disruptions_total",
)
"""Beginnings of metrics that a cluster which is well has no sample of."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliCluster]:
    with cluster_with_group(tmp_path_factory.mktemp("cluster") / "local") as found:
        assert found.run("produce", "watched", "--count", "40").returncode == 0
        assert found.run("consume", "watched", "--count", "40", "--group", "g").returncode == 0
        yield found


@pytest.fixture(scope="module")
def prometheus(
    cluster: CliCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    with scraping(tmp_path_factory.mktemp("prometheus") / "home", targets(cluster)) as server:
        yield server


def until(holds: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s, f"never: {what}"
        time.sleep(0.5)


def until_none(left: Callable[[], set[str]], what: str) -> None:
    """Until ``left`` is empty; a failure says what it has."""
    deadline_s = time.monotonic() + PATIENCE_S
    while found := left():
        assert time.monotonic() < deadline_s, f"{what}: {sorted(found)}"
        time.sleep(0.5)


def test_the_rules_are_sound() -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    assert done.returncode == 0, done.stderr
    assert f"{len(promql.rules())} rules found" in done.stdout


def test_every_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    rules = promql.rules()
    assert set(CASES) == set(rules)
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            case.document(name, rules[name]["labels"]["severity"]) for name, case in CASES.items()
        ],
    }
    file = tmp_path / "cases.yaml"
    file.write_text(yaml.safe_dump(document))
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_finds_no_fault_with_names_and_help_but_for_the_known(
    cluster: CliCluster,
) -> None:
    """``promtool check metrics`` on what a component of each kind exports."""
    kinds = {
        (
            target["labels"]["app_kubernetes_io_component"],
            target["targets"][0].split(":")[1],
        ): target["targets"][0]
        for target in targets(cluster)
    }
    assert {component for component, _ in kinds} == {"operator", "controller", "broker"}
    assert len(kinds) == 4, "and doors"
    complaints = set()
    for address in kinds.values():
        with urlopen(f"http://{address}/metrics", timeout=30) as answer:
            done = promtool("check", "metrics", text=answer.read().decode())
        complaints |= set(done.stderr.splitlines() + done.stdout.splitlines())
    odd = {line.split()[0].removesuffix("_total") for line in complaints if line}
    assert odd <= set(DEVIATIONS), complaints


def test_every_metric_that_is_asked_for_is_there(prometheus: Prometheus) -> None:
    wanted = {name for one in promql.asked() for name in promql.selectors(one.expression)}
    wanted = {name for name in wanted if name != "ALERTS" and not name.startswith(WITHOUT_DATA)}
    names = "|".join(sorted(wanted))

    def missing() -> set[str]:
        series = prometheus.query(f'group by (__name__) ({{__name__=~"({names})(_count)?"}})')
        return wanted - {one["metric"]["__name__"].removesuffix("_count") for one in series}

    until_none(missing, "metrics without a sample")


def test_every_panel_of_every_dashboard_has_data(prometheus: Prometheus) -> None:
    def empty() -> set[str]:
        return {
            one.where
            for one in promql.asked()
            if ".json" in one.where
            and not any(name.startswith(WITHOUT_DATA) for name in promql.selectors(one.expression))
            and not prometheus.query(filled_in(one.expression))
        }

    until_none(empty, "panels without data")


def test_every_query_of_every_dashboard_is_one(prometheus: Prometheus) -> None:
    for one in promql.asked():
        prometheus.query(filled_in(one.expression))


def filled_in(expression: str) -> str:
    """As Grafana sends it."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression


def test_a_cluster_that_is_well_raises_no_alert(prometheus: Prometheus) -> None:
    until_none(
        lambda: {one["scrapeUrl"] for one in prometheus.targets() if one["health"] != "up"},
        "targets that are not scraped",
    )
    assert prometheus.alerts() == {}


def test_alerts_fire_when_brokers_stop_and_end_when_they_go_on(
    cluster: CliCluster, prometheus: Prometheus
) -> None:
    master, (first, second) = cluster.broker_pods()

    def fires(name: str) -> Callable[[], bool]:
        return lambda: prometheus.alerts().get(name, {}).get("state") == "firing"

    try:
        cluster.gantry("local", "kill", first, "--signal", "STOP")
        until(fires("GantryReplicaOutOfSync"), "a replica is out of sync")
        assert "GantrySendsRefused" not in prometheus.alerts()
        cluster.gantry("local", "kill", second, "--signal", "STOP")
        until(fires("GantrySendsRefused"), "sends are refused")
        told = prometheus.alerts()["GantrySendsRefused"]["annotations"]
        assert told["summary"] == "default/orders refuses sends"
        assert told["description"].startswith("Members in sync: 1,")
        cluster.gantry("local", "kill", master, "--signal", "STOP")
        until(fires("GantryGroupWithoutMaster"), "the group has no master")
    finally:
        for pod in (first, second, master):
            cluster.run("local", "kill", pod, "--signal", "CONT")
    cluster.wait_until(settled)
    until_none(lambda: set(prometheus.alerts()), "alerts that do not end")


def test_a_killed_master_is_seen_as_an_election(
    cluster: CliCluster, prometheus: Prometheus
) -> None:
    epochs = "max(gantry_broker_epoch)"
    (before,) = prometheus.query(epochs)
    cluster.gantry("local", "kill", cluster.master_pod())
    cluster.wait_until(settled)
    until(
        lambda: float(prometheus.query(epochs)[0]["value"][1]) > float(before["value"][1]),
        "the next epoch is scraped",
    )
    until_none(lambda: set(prometheus.alerts()), "alerts that are left")
