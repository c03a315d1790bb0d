"""Metrics of delayed messages, in Prometheus' words."""

from collections.abc import Callable, Iterable

from gantry_protocol.settings.delays import MAX_LEVELS
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry_broker.clients.delivery import Delivery

TIMER = "timer"  # the level of all messages for a certain moment


class DelayCollector(Collector):
    """Reads everything when it is scraped; counters begin anew with each mastership.

    Args:
        delivery: of this mastership; None while this is not the master.
    """

    def __init__(self, delivery: Callable[[], Delivery | None]) -> None:
        """Nothing is counted here."""
        self._delivery = delivery

    def collect(self) -> Iterable[Metric]:
        """The metrics as of now."""
        delivery = self._delivery()
        pending = GaugeMetricFamily(
            "gantry_broker_delay_pending",
            "Messages that wait in a delay level, on the serving master.",
            labels=["level"],
        )
        overdue = GaugeMetricFamily(
            "gantry_broker_delay_overdue_seconds",
            "How long the first message of a level has been due.",
            labels=["level"],
        )
        if delivery is not None:
            waiting, late_s = delivery.pending(), delivery.overdue_s()
            for level, count in waiting.items():
                if level <= MAX_LEVELS:
                    pending.add_metric([str(level)], count)
                    overdue.add_metric([str(level)], late_s[level])
            steps = [level for level in waiting if level > MAX_LEVELS]
            if steps:
                pending.add_metric([TIMER], sum(waiting[level] for level in steps))
                overdue.add_metric([TIMER], max(late_s[level] for level in steps))
        yield pending
        yield overdue
        ended = CounterMetricFamily(
            "gantry_broker_delay_messages",
            "Delayed messages by what became of them, in this mastership.",
            labels=["outcome"],
        )
        ended.add_metric(["delivered"], 0 if delivery is None else delivery.delivered)
        ended.add_metric(["passed_over"], 0 if delivery is None else delivery.passed_over)
        ended.add_metric(["taken_back"], 0 if delivery is None else delivery.recalls.taken_back)
        yield ended
        yield GaugeMetricFamily(
            "gantry_broker_delay_recalls",
            "Messages that were taken back and are dropped once their next step is over.",
            value=0 if delivery is None else len(delivery.recalls),
        )
        yield CounterMetricFamily(
            "gantry_broker_delay_refused",
            "Reads and appends of a level that were refused and are tried again.",
            value=0 if delivery is None else delivery.refused,
        )
