"""Bugs in filters in SQL: what they say of a message, and where a reader goes on."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests
from sim.mutants.planting import Edit

CLIENTS = "gantry_broker.clients"
CORE = f"{CLIENTS}.core.filters"
READS = "unit/broker/clients/test_filtered.py"
MEANING = "unit/broker/clients/core/test_filters.py"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    edit = Edit(place, text, other)
    return Mutant(name, "filters", what, (edit,), UnitTests(killer))


MUTANTS = (
    Mutant(
        "pull-forgets-its-filter",
        "filters",
        "a consumer that filters gets every message, whichever member it asks",
        (
            Edit(
                f"{CLIENTS}.pull_reads:PullReader.begin",
                "sql=subscriptions.wanted_sql(subscription)",
                "sql=None",
            ),
        ),
        Seeds("product-readers", 3),
    ),
    _mutant(
        "filter-forgotten",
        "a group that filters gets every message",
        f"{CLIENTS}.filtered:read_filtered",
        "if sql is None:",
        "if True:",
        f"{READS}::test_only_what_passes_comes",
    ),
    _mutant(
        "filter-skips-what-does-not-fit",
        "messages that pass and do not fit into an answer are never delivered",
        f"{CORE}.sql:passed",
        "next_offset = queue_offset\n                break\n            kept.append",
        "break\n            kept.append",
        f"{MEANING}::test_what_does_not_fit_is_looked_at_again",
    ),
    _mutant(
        "filter-looks-for-ever",
        "one look at long properties with a dear filter holds everybody up for seconds",
        f"{CORE}.sql:passed",
        "if at and work > LOOK_WORK:",
        "if False:",
        f"{MEANING}::test_the_longer_the_properties_the_fewer_records_are_looked_at",
    ),
    _mutant(
        "filter-leaves-a-pull-behind",
        "a pull that waits gets what passes only when another message comes",
        f"{CLIENTS}.pull_reads:_ends_waiting",
        "is_cut or result.status",
        "result.status",
        f"{READS}::test_more_than_one_look_sees_ends_the_waiting",
    ),
    _mutant(
        "filter-leaves-a-pop-behind",
        "the same of a pop",
        f"{CLIENTS}.pop.taking:Taking._passed_over",
        "self._loop.call_soon(self._look_again, queue_id)",
        "pass",
        f"{READS}::test_a_pop_that_waits_gets_past_what_its_filter_leaves",
    ),
    _mutant(
        "filter-stuck-at-trouble",
        "what was looked at does not count where the rest cannot be read",
        f"{CLIENTS}.filtered:both",
        "return first",
        "return second",
        f"{READS}::test_what_was_looked_at_counts_also_when_the_rest_cannot_be_read",
    ),
    _mutant(
        "filter-unknown-is-no",
        "NOT makes a yes of a property that is not there",
        f"{CORE}.evaluation:_any",
        "if found is None:",
        "if False:",
        f"{MEANING}::test_a_filter_says_what_upstreams_says",
    ),
    _mutant(
        "filter-of-any-size",
        "one expression holds everybody up",
        f"{CORE}.grammar:_Parser._count",
        "self.terms > TERMS_MAX",
        "False",
        f"{MEANING}::test_what_costs_too_much_is_refused",
    ),
    _mutant(
        "broker-too-old-to-filter",
        "Java clients with a filter in SQL never pull",
        f"{CLIENTS}.membership:Membership.heartbeat",
        "answer.version = FILTERS_BY_SQL",
        "pass",
        "unit/broker/clients/test_membership.py::test_a_captured_heartbeat",
    ),
)
