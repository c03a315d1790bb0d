"""The metrics of clients that are held or passed on, in brokers and doors alike."""

from collections.abc import Iterable

from gantry_protocol.process.metrics import counter, gauge
from prometheus_client.core import Metric

from gantry_broker.clients.routing import ClientRouter


def routing_metrics(prefix: str, router: ClientRouter) -> Iterable[Metric]:
    """All of them, with names that begin with ``prefix``."""
    budget = router.budget
    for name, text, now in (
        ("held_connections", "Client connections that wait for a master.", router.held),
        (
            "spliced_connections",
            "Client connections that are passed on to the master.",
            router.spliced,
        ),
        (
            "splice_kept_bytes",
            "Requests without an answer, kept for the next master.",
            budget.kept_bytes,
        ),
    ):
        yield gauge(f"{prefix}_{name}", text, now)
    for name, text, total in (
        ("splices", "Connections handed to a master.", router.spliced_total),
        (
            "splice_moves",
            "Connections handed to the next master after another.",
            router.moved_total,
        ),
        (
            "splice_sends_given_again",
            "Sends that a master had not answered and the next one was given.",
            budget.given_again,
        ),
        (
            "splice_refused_again",
            "Requests that a master had not answered and the next one must not carry out.",
            budget.refused_again,
        ),
        (
            "refused_requests",
            "Requests refused because there was no master.",
            router.refused_total,
        ),
    ):
        yield counter(f"{prefix}_{name}", text, total)
