"""Metrics of transactions, in Prometheus' words."""

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry_broker.clients.core.transactions.records import TransactionOutcome
from gantry_broker.clients.transactions import Counters, Transactions


class TransactionCollector(Collector):
    """Reads everything when it is scraped; counters begin anew with each mastership.

    Args:
        transactions: of this mastership; None while this is not the master.
    """

    def __init__(self, transactions: Callable[[], Transactions | None]) -> None:
        """Nothing is counted here."""
        self._transactions = transactions

    def collect(self) -> Iterable[Metric]:
        """The metrics as of now."""
        found = self._transactions()
        counters = Counters() if found is None else found.counters
        yield GaugeMetricFamily(
            "gantry_broker_transactions_open",
            "Transactions without an outcome, on the serving master.",
            value=0 if found is None else len(found.ledger),
        )
        yield GaugeMetricFamily(
            "gantry_broker_transactions_failed",
            "1 while transactions are not served, since their records do not read.",
            value=0 if found is None else bool(found.failure),
        )
        ended = CounterMetricFamily(
            "gantry_broker_transactions_ended",
            "Transactions that ended, by outcome, in this mastership.",
            labels=["outcome"],
        )
        for outcome in TransactionOutcome:
            ended.add_metric([outcome.value], counters.ended[outcome])
        yield ended
        for name, text, value in (
            ("ends_repeated", "Outcomes of transactions that had one.", counters.repeated),
            ("ends_refused", "Outcomes that were refused.", counters.refused_ends),
            ("refused", "Half messages refused: too many were open.", counters.refused_halves),
            ("checks", "Questions to producers.", counters.checks),
            ("unasked", "Questions without a producer to ask.", counters.unasked),
            ("failures", "Reads of the records that failed.", counters.failures),
            ("tables", "Tables of open transactions in the log.", counters.tables),
        ):
            yield CounterMetricFamily(f"gantry_broker_transactions_{name}", text, value=value)
