"""The operator's metrics: what a group's status makes of them, and their page."""

from __future__ import annotations

from gantry_operator.cache import Key
from gantry_operator.metrics import Metrics
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from support.metrics_page import check_section

ORDERS = Key("BrokerGroup", "shop", "orders")
LABELS = {"namespace": "shop", "group": "orders"}


def declared(registry: CollectorRegistry) -> list[Metric]:
    """Families with the labels that they were declared with, whether they have a sample or not."""
    found = []
    for collector in registry._collector_to_names:
        for family in collector.collect():
            family._labelnames = collector._labelnames  # type: ignore[attr-defined]
            found.append(family)
    return found


def test_page_names_every_metric_and_no_other() -> None:
    check_section("Operator", declared(Metrics(CollectorRegistry()).registry))


def test_nothing_is_exported_that_the_page_does_not_name() -> None:
    metrics = Metrics(CollectorRegistry())
    metrics.reconciles.labels("BrokerGroup", "ok").inc()
    assert b"_created" not in generate_latest(metrics.registry)


def test_a_groups_figures_follow_its_status_and_go_with_it() -> None:
    metrics = Metrics(CollectorRegistry())

    def value(name: str) -> float | None:
        return metrics.registry.get_sample_value(f"gantry_group_{name}", LABELS)

    status = {
        "master": {"epoch": 7},
        "inSync": "2/3",
        "inSyncReplicas": ["orders-0", "orders-1"],
        "conditions": [
            {"type": "Available", "status": "True"},
            {"type": "TierHealthy", "status": "Unknown"},
        ],
    }
    metrics.note_group(ORDERS, status)
    assert value("master_epoch") == 7
    assert value("in_sync_replicas") == 2
    assert value("available") == 1
    assert value("tier_healthy") == -1
    metrics.drop_group(ORDERS)
    for name in ("master_epoch", "in_sync_replicas", "available", "tier_healthy"):
        assert value(name) is None
