"""Bugs in spans of sends, in ends of transactions that come twice, in figures of lite topics."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests
from sim.mutants.planting import Edit

MUTANTS = (
    Mutant(
        "traced-against-its-producers-word",
        "tracing",
        "a send whose producer does not trace it is traced",
        (
            Edit(
                "gantry_protocol.tracing.context:is_sampled",
                "parent.sampled",
                "parent.sampled or drawn < ratio",
            ),
        ),
        Seeds("product-doors", 3),
    ),
    Mutant(
        "refused-spans-count-as-taken",
        "tracing",
        "spans that the collector has refused are counted as taken",
        (
            Edit(
                "gantry_protocol.tracing.export:SpanExport._send",
                "self.exported += left - lost",
                "self.exported += left",
            ),
        ),
        Seeds("product-doors", 6),
    ),
    Mutant(
        "a-span-ends-before-it-begins",
        "tracing",
        "where the clock goes back amid a send its span is none",
        (
            Edit(
                "gantry_broker.clients.core.send_trace:SendTrace.spans",
                "max(self.arrived_ns, answered_ns)",
                "answered_ns",
            ),
        ),
        UnitTests("unit/broker/clients/core/test_send_trace.py"),
    ),
    Mutant(
        "the-last-end-of-a-transaction-counts",
        "transactions",
        "a transaction that was rolled back is committed by a second end",
        (
            Edit(
                "gantry_broker.clients.transactions:Transactions._end",
                "if self.ledger.has_ended(offset) and (",
                "if self.ledger.has_ended(offset) and refusal is not None and (",
            ),
        ),
        Seeds("product-rich", 3),
    ),
    Mutant(
        "figures-of-lites-before-all-is-confirmed",
        "lite topics",
        "a new master's figures leave out what the last one has acknowledged",
        (
            Edit(
                "gantry_broker.clients.lite.requests:_confirmed",
                "queue.max_offset >= end",
                "True",
            ),
        ),
        UnitTests(
            "unit/broker/clients/test_lite_topics.py"
            "::test_figures_wait_for_what_the_last_master_left"
        ),
    ),
)
