"""Metrics of decisions about clients' requests."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric

from gantry_protocol.process.metrics import counter, gauge
from gantry_protocol.remoting.known_users import KnownUsers

REASONS = ("unsigned", "signature", "disabled", "super", "rules", "unreadable", "unknown")


def access_metrics(prefix: str, access: KnownUsers) -> Iterable[Metric]:
    """The metrics as of now."""
    yield gauge(
        f"{prefix}_access_enabled",
        "1 while every request of a client needs a user.",
        access.enabled,
    )
    yield gauge(
        f"{prefix}_access_known",
        "1 once the controllers have said whether it does; nobody is served before.",
        access.is_known,
    )
    yield gauge(f"{prefix}_access_users", "Users of the cluster.", len(access.users))
    yield counter(
        f"{prefix}_access_allowed", "Requests that a user signed and may make.", access.allowed
    )
    denied = CounterMetricFamily(
        f"{prefix}_access_denied",
        "Requests that were refused for want of a user, a signature or a rule.",
        labels=["reason"],
    )
    for reason in REASONS:
        denied.add_metric([reason], access.denied[reason])
    yield denied
