"""For each alert series that make it fire, and series beside them that must not.

Samples are a minute apart, in promtool's notation. ``fires`` are the labels of the alerts that fire
in the end, besides their names and severities: exactly those.
"""

from __future__ import annotations

from typing import Any, NamedTuple

LONG = "x200"
DAY = 86_400


class Case(NamedTuple):
    """One alert.

    Attributes:
        series: values by series.
        pending: minutes after which it does not fire yet.
        firing: minutes after which it does.
        fires: the labels of each alert then.
    """

    series: dict[str, str]
    pending: int
    firing: int
    fires: list[dict[str, str]]

    def document(self, alert: str, severity: str) -> dict[str, Any]:
        """A test group of promtool."""
        named = {"alertname": alert, "alertstate": "firing", "severity": severity}
        samples = [{"labels": text("ALERTS", named | more), "value": 1} for more in self.fires]
        query = text("ALERTS", {"alertname": alert, "alertstate": "firing"})
        return {
            "name": alert,
            "interval": "1m",
            "input_series": [
                {"series": series, "values": values} for series, values in self.series.items()
            ],
            "promql_expr_test": [
                {"expr": query, "eval_time": f"{self.pending}m", "exp_samples": []},
                {"expr": query, "eval_time": f"{self.firing}m", "exp_samples": samples},
            ],
        }


def text(name: str, labels: dict[str, str]) -> str:
    """A series as PromQL writes it."""
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


def target(instance: str, pod: str = "0", component: str = "broker") -> dict[str, str]:
    """The labels of a pod that is scraped."""
    return {
        "namespace": "shop",
        "pod": f"{instance}-{pod}",
        "app_kubernetes_io_instance": instance,
        "app_kubernetes_io_component": component,
    }


def of(name: str, instance: str, pod: str = "0", **labels: str) -> str:
    """A series of a broker."""
    return text(name, target(instance, pod) | labels)


def group(instance: str) -> dict[str, str]:
    """The labels of an alert about a group or a quorum."""
    return {"namespace": "shop", "app_kubernetes_io_instance": instance}


def always(value: float) -> str:
    """The same value for hours."""
    return f"{value}{LONG}"


def controller(name: str, instance: str, pod: str) -> str:
    """A series of a controller."""
    return text(name, target(instance, pod, "controller"))


def operator(name: str, pod: str, **labels: str) -> str:
    """A series of an operator."""
    return text(name, target("release", pod, "operator") | labels)


def acting(name: str, pods: str) -> dict[str, str]:
    """Operators of a release: the first acts where ``pods`` says so."""
    leads = {
        text("gantry_operator_leading", target(name, str(at), "operator")): always(int(value))
        for at, value in enumerate(pods)
    }
    up = {text("up", target(name, str(at), "operator")): always(1) for at in range(len(pods))}
    return leads | up


CASES = {
    "GantryGroupWithoutMaster": Case(
        {
            controller("gantry_controller_groups_unserved", "bad", "0"): always(2),
            controller("gantry_controller_leading", "bad", "0"): always(1),
            controller("gantry_controller_groups_unserved", "follower", "0"): always(1),
            controller("gantry_controller_leading", "follower", "0"): always(0),
            controller("gantry_controller_groups_unserved", "election", "0"): "1 0x99",
            controller("gantry_controller_leading", "election", "0"): always(1),
        },
        0,
        3,
        [group("bad")],
    ),
    "GantrySendsRefused": Case(
        {
            of("gantry_broker_in_sync_replicas", "bad", group="g"): always(1),
            of("gantry_broker_in_sync_replicas_min", "bad", group="g"): always(2),
            of("gantry_broker_in_sync_replicas", "bad", group="other"): always(2),
            of("gantry_broker_in_sync_replicas_min", "bad", group="other"): always(2),
            of("gantry_broker_in_sync_replicas", "replica"): always(0),
            of("gantry_broker_in_sync_replicas_min", "replica"): always(0),
        },
        0,
        3,
        [target("bad") | {"group": "g"}],
    ),
    "GantryReplicaOutOfSync": Case(
        {
            of("gantry_broker_in_sync_replicas", "bad"): always(2),
            of("gantry_broker_replicas", "bad"): always(3),
            of("gantry_broker_in_sync_replicas", "rolled"): "2x10 3x100",
            of("gantry_broker_replicas", "rolled"): always(3),
        },
        14,
        16,
        [target("bad")],
    ),
    "GantryDiskFull": Case(
        {
            of("gantry_broker_disk_refusing", "bad"): always(1),
            of("gantry_broker_disk_refusing", "fine"): always(0),
        },
        0,
        3,
        [target("bad")],
    ),
    "GantryDiskFilling": Case(
        {
            of("gantry_broker_disk_has_room", "bad", "0"): always(0),
            of("gantry_broker_retention_stuck", "bad", "0"): always(0),
            of("gantry_broker_disk_has_room", "bad", "1"): always(1),
            of("gantry_broker_retention_stuck", "bad", "1"): always(1),
            of("gantry_broker_disk_has_room", "fine"): always(1),
            of("gantry_broker_retention_stuck", "fine"): always(0),
        },
        14,
        16,
        [target("bad", "0"), target("bad", "1")],
    ),
    "GantryLogDamaged": Case(
        {
            of("gantry_broker_log_damaged_ranges", "bad"): always(3),
            of("gantry_broker_log_damaged_ranges", "repaired"): "1x5 0x100",
        },
        9,
        11,
        [target("bad")],
    ),
    "GantryConsumerLags": Case(
        {
            of("gantry_broker_consumer_lag_seconds", "bad", consumer_group="c", topic="t"): "0+60"
            + LONG,
            of("gantry_broker_consumer_lag_seconds", "late", consumer_group="c", topic="t"): always(
                5_000
            ),
            of("gantry_broker_consumer_lag_seconds", "near", consumer_group="c", topic="t"): "0+1"
            + LONG,
        },
        24,
        27,
        [target("bad") | {"consumer_group": "c", "topic": "t"}],
    ),
    "GantryTierUploadStalled": Case(
        {
            of("gantry_tier_upload_stalled", "bad"): always(1),
            of("gantry_tier_upload_stalled", "fine"): always(0),
        },
        9,
        11,
        [target("bad")],
    ),
    "GantryTierLagGrows": Case(
        {
            of("gantry_tier_lag_bytes", "bad"): "2000000000+1000000" + LONG,
            of("gantry_tier_lag_bytes", "catching-up"): "5000000000-1000000" + LONG,
            of("gantry_tier_lag_bytes", "small"): "1000+1000" + LONG,
        },
        29,
        33,
        [target("bad")],
    ),
    "GantryTierUnreadable": Case(
        {
            of("gantry_tier_readable", "bad"): always(0),
            of("gantry_tier_readable", "fine"): always(1),
        },
        14,
        16,
        [target("bad")],
    ),
    "GantryControllersWithoutLeader": Case(
        {
            controller("gantry_controller_leading", "bad", "0"): always(0),
            controller("gantry_controller_leading", "bad", "1"): always(0),
            controller("up", "bad", "0"): always(1),
            controller("up", "bad", "1"): always(1),
            controller("up", "bad", "2"): always(0),
            controller("up", "gone", "0"): always(0),
            controller("gantry_controller_leading", "fine", "0"): always(0),
            controller("gantry_controller_leading", "fine", "1"): always(1),
            controller("up", "fine", "0"): always(1),
            controller("up", "fine", "1"): always(1),
        },
        0,
        3,
        [group("bad"), group("gone")],
    ),
    "GantryControllerDown": Case(
        {
            controller("gantry_controller_raft_voters", "bad", "0"): always(3),
            controller("gantry_controller_leading", "bad", "0"): always(1),
            controller("gantry_controller_leading", "bad", "1"): always(0),
            controller("gantry_controller_raft_voters", "fine", "0"): always(1),
            controller("gantry_controller_leading", "fine", "0"): always(1),
        },
        4,
        6,
        [group("bad")],
    ),
    "GantryControllerStatesDiffer": Case(
        {
            controller("gantry_controller_raft_state_differs", "bad", "0"): "0x4 1x100",
            controller("gantry_controller_raft_state_differs", "fine", "0"): always(0),
        },
        3,
        6,
        [target("bad", component="controller")],
    ),
    "GantryOperatorNotActing": Case(
        acting("bad", "00") | acting("fine", "10"),
        4,
        6,
        [group("bad")],
    ),
    "GantryOperatorBehind": Case(
        {
            operator("gantry_operator_queue_oldest_seconds", "queue"): always(90),
            operator("gantry_operator_resync_age_seconds", "queue"): always(10),
            operator("gantry_operator_leading", "queue"): always(1),
            operator("gantry_operator_queue_oldest_seconds", "resync"): always(0),
            operator("gantry_operator_resync_age_seconds", "resync"): always(1_000),
            operator("gantry_operator_leading", "resync"): always(1),
            operator("gantry_operator_resync_age_seconds", "standby"): always(1_000),
            operator("gantry_operator_leading", "standby"): always(0),
        },
        4,
        6,
        [
            target("release", "queue", "operator"),
            target("release", "resync", "operator"),
        ],
    ),
    "GantryOperatorSpins": Case(
        {
            operator("gantry_operator_reconciles_without_change_total", "0", kind="Spins"): "0+1"
            + LONG,
            operator("gantry_operator_reconciles_without_change_total", "0", kind="Once"): (
                "0x3 1x100"
            ),
        },
        14,
        25,
        [{"namespace": "shop", "pod": "release-0", "kind": "Spins"}],
    ),
    "GantryOperatorRepeats": Case(
        {
            operator("gantry_operator_repeated_reconciles_total", "0", kind="Repeats"): "0+1"
            + LONG,
            operator("gantry_operator_reconciles_total", "0", kind="Fails", result="bug"): "0+1"
            + LONG,
            operator("gantry_operator_reconciles_total", "0", kind="Works", result="ok"): "0+9"
            + LONG,
            operator("gantry_operator_repeated_reconciles_total", "0", kind="Once"): "0x3 1x100",
        },
        14,
        25,
        [
            {"namespace": "shop", "pod": "release-0", "kind": "Repeats"},
            {"namespace": "shop", "pod": "release-0", "kind": "Fails"},
        ],
    ),
    "GantryFrontsUnavailable": Case(
        {
            operator("gantry_operator_fronts_available", "0", group="bad"): always(0),
            operator("gantry_operator_fronts_available", "0", group="fine"): always(1),
            operator("gantry_operator_fronts_available", "0", group="unknown"): always(-1),
        },
        4,
        6,
        [{"namespace": "shop", "group": "bad"}],
    ),
    "GantryCertificateExpires": Case(
        {
            of("gantry_tls_certificate_expires_seconds", "bad"): always(90 * DAY),
            of("gantry_member_tls_certificate_expires_seconds", "bad"): always(3 * DAY),
            of("gantry_listener_tls_certificate_expires_seconds", "public"): always(4 * DAY),
            of("gantry_tls_certificate_expires_seconds", "public"): always(90 * DAY),
            of("gantry_tls_certificate_expires_seconds", "without"): always(0),
            of("gantry_member_tls_certificate_expires_seconds", "without"): always(0),
            of("gantry_tls_certificate_expires_seconds", "fine"): always(8 * DAY),
        },
        59,
        61,
        [group(one) | {"app_kubernetes_io_component": "broker"} for one in ("bad", "public")],
    ),
}
